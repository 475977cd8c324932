/** Transactions over all models: in one request, or over several. */
import { RopewalkError } from "./error.js";
import { encode } from "./extjson.js";
import { Operation, Operations } from "./operations.js";
import { wireQuery } from "./query.js";
import { statementOf } from "./sql.js";
import { chosenKey, path } from "./transport.js";
/** Conditions that are checked before the operations, in the same snapshot. */
export class Preconditions {
    #list;
    /** @internal */
    constructor(list) {
        this.#list = list;
    }
    /** No event after the position matches. */
    events(store, query = {}, options = {}) {
        this.#list.push({ events: { store: store.name, query: wireQuery(query), ...options } });
    }
    /** Exactly `count` documents match; default 1. */
    documents(collection, filter, count = 1) {
        const place = typeof collection === "string" ? { collection } : { collection: collection.name, database: collection.database };
        this.#list.push({ documents: { ...place, filter: encode(filter), count } });
    }
    /** The query returns one row, or as many as `expect` says. */
    sql(...statement) {
        const wire = statementOf(statement);
        this.#list.push({ sql: wire });
        return { expect: (rows) => void (wire.expect = rows) };
    }
}
/** Collects the operations of a transaction that is sent in one request. */
export class TransactionBuilder extends Operations {
    /** @internal */
    operations = [];
    /** @internal */
    preconditions = [];
    #sent = false;
    /** Conditions that are checked before the operations. One that does not hold: `precondition_failed`. */
    require = new Preconditions(this.preconditions);
    add(operation) {
        if (this.#sent)
            throw new TypeError("the transaction has been sent already");
        this.operations.push(operation);
    }
    /** @internal Sends the transaction. */
    async send(transport, options) {
        this.#sent = true;
        for (const operation of this.operations)
            operation.start();
        try {
            const key = chosenKey(options.idempotencyKey);
            const { isolation, durability, includes, signal } = options;
            const answer = await transport.json({
                method: "POST",
                path: "/v1/transactions",
                headers: key === undefined ? {} : { "idempotency-key": key },
                body: {
                    ...(this.preconditions.length > 0 && { preconditions: this.preconditions }),
                    operations: this.operations.map((operation) => operation.wire),
                    ...(isolation && { isolation }), ...(durability && { durability }), ...(includes !== undefined && { includes }),
                },
                repeatable: key !== undefined,
                signal,
            });
            const results = this.operations.map((operation, index) => operation.succeed(answer.results[index]));
            return { seq: answer.seq, repeated: answer.repeated, results };
        }
        catch (error) {
            for (const operation of this.operations)
                operation.fail(error);
            throw error;
        }
    }
}
/** @internal Builds a transaction, sends it in one request, and returns its results. */
export async function transact(transport, build, options) {
    const tx = new TransactionBuilder();
    const built = build(tx);
    const returned = built instanceof Operation ? built : await built;
    const { seq, repeated, results } = await tx.send(transport, options);
    const resolved = returned === undefined ? results : await resultsOf(returned);
    return { seq, repeated, results: resolved };
}
async function resultsOf(returned) {
    if (returned instanceof Operation)
        return returned;
    return Array.isArray(returned) ? Promise.all(returned.map(resultsOf)) : returned;
}
/**
 * A transaction over several requests. It reads one snapshot and its own writes.
 *
 * Operations that are called in the same turn of the event loop are sent in one request. An error of an
 * operation rolls the transaction back, and so do 30 seconds without a request. Nothing is sent again
 * after a network error: if `commit` fails with `network`, the transaction may be committed.
 *
 * With `await using tx = await db.begin()` it is rolled back at the end of the block unless it was committed.
 */
export class InteractiveTransaction extends Operations {
    /** Number of the newest commit that it reads. */
    snapshot;
    /** It is rolled back after so many milliseconds without a request. */
    idleMs;
    #transport;
    #token;
    #signal;
    #waiting = [];
    #requests = Promise.resolve();
    #failure;
    #isOpen = true;
    /** @internal */
    constructor(transport, begun, signal) {
        super();
        this.#transport = transport;
        this.#token = begun.transaction;
        this.#signal = signal;
        this.snapshot = begun.snapshot;
        this.idleMs = begun.idle_ms;
    }
    add(operation) {
        if (!this.#isOpen)
            throw new TypeError("the transaction has ended");
        operation.start();
        this.#waiting.push(operation);
        if (this.#waiting.length === 1)
            queueMicrotask(() => this.#flush());
    }
    #flush() {
        const batch = this.#waiting;
        this.#waiting = [];
        if (batch.length > 0)
            this.#requests = this.#requests.then(() => this.#run(batch));
    }
    async #run(batch) {
        try {
            if (this.#failure)
                throw this.#failure.error;
            const { results } = await this.#call("operations", { operations: batch.map((operation) => operation.wire) });
            batch.forEach((operation, index) => operation.succeed(results[index]));
        }
        catch (error) {
            this.#failure ??= { error };
            for (const operation of batch)
                operation.fail(error);
        }
    }
    #call(step, body) {
        return this.#transport.json({
            method: "POST", path: path `/v1/transactions/${this.#token}/${step}`, body, repeatable: false, signal: this.#signal,
        });
    }
    /** Commits. `key_conflict`: another commit changed data that the transaction read; begin again. */
    async commit() {
        if (!this.#isOpen)
            throw new TypeError("the transaction has ended");
        this.#isOpen = false;
        this.#flush();
        await this.#requests;
        // The operation's error has rolled the transaction back.
        if (this.#failure)
            throw this.#failure.error;
        return this.#call("commit");
    }
    /** Rolls back. Has no effect after the end of the transaction. */
    async rollback() {
        if (!this.#isOpen)
            return;
        this.#isOpen = false;
        this.#flush();
        await this.#requests;
        try {
            await this.#transport.json({ method: "DELETE", path: path `/v1/transactions/${this.#token}`, repeatable: true });
        }
        catch (error) {
            // It has been rolled back by an error or by its idle time.
            if (!(error instanceof RopewalkError && error.code === "not_found"))
                throw error;
        }
    }
    async [Symbol.asyncDispose]() {
        await this.rollback();
    }
}
//# sourceMappingURL=transaction.js.map