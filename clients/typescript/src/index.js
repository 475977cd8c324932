/**
 * Client for the HTTP API of the Ropewalk database server.
 *
 * Times are milliseconds unless a name says otherwise, positions and sequence numbers are integers below 2^53.
 * Every method that sends a request rejects with {@link RopewalkError}, or with the reason of its signal.
 */
export { Ropewalk } from "./client.js";
export { combine, retry } from "./decision.js";
export { Collection } from "./documents.js";
export { RopewalkError, isConflict, isRetryable } from "./error.js";
export { Checkpoint, EventStore } from "./events.js";
export { ConsumerGroup, Park, RetryLater } from "./group.js";
export { CountedOperation, DocumentOperations, Operation, Operations } from "./operations.js";
export { Prom } from "./prom.js";
export { InteractiveTransaction, Preconditions, TransactionBuilder } from "./transaction.js";
//# sourceMappingURL=index.js.map