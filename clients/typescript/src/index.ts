/**
 * Client for the HTTP API of the Ropewalk database server.
 *
 * Times are milliseconds unless a name says otherwise, positions and sequence numbers are integers below 2^53.
 * Every method that sends a request rejects with {@link RopewalkError}, or with the reason of its signal.
 */
export { Ropewalk } from "./client.js";
export type { RopewalkOptions } from "./client.js";
export { retry } from "./decision.js";
export type { ConflictRetryOptions, DecideOptions, Decided, Decision, Loaded, Model } from "./decision.js";
export { Collection } from "./documents.js";
export type {
  DocumentId, Filter, FindOptions, Hint, Match, ModifyOptions, Sort, Update, UpdateOptions, UpdateResult, WriteOptions,
} from "./documents.js";
export { RopewalkError, isConflict, isRetryable } from "./error.js";
export type { Conflict, ErrorCode, ErrorFields } from "./error.js";
export { Checkpoint, EventStore } from "./events.js";
export type { AppendOptions, Appended, EventStoreOptions, EventStream, FollowOptions, ReadOptions } from "./events.js";
export { ConsumerGroup, Park, RetryLater } from "./group.js";
export type { Delivery, EachOptions, GroupOptions, GroupStatus, Lease, ParkedEvent, Settled } from "./group.js";
export { CountedOperation, DocumentOperations, Operation, Operations } from "./operations.js";
export type { AppendedPositions, Isolation, QueryOfAll, SeriesInput } from "./operations.js";
export { Prom } from "./prom.js";
export type { Sample, Series, Time } from "./prom.js";
export type {
  AnyEvents, AppendCondition, Durability, EventQuery, EventType, NewEvent, QueryItem, RecordedEvent, Selected, TagRules,
} from "./query.js";
export type { Row, SqlArguments, SqlParam, SqlResult } from "./sql.js";
export type { SubscribeOptions } from "./subscription.js";
export { InteractiveTransaction, Preconditions, TransactionBuilder } from "./transaction.js";
export type { Committed, InteractiveCommit, Results, TransactionOptions } from "./transaction.js";
export type { RetryOptions } from "./transport.js";
