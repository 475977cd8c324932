import { decode, encode } from "./extjson.js";
import { listOf, recorded, wireCondition, wireEvent, wireQuery } from "./query.js";
import { sqlResult, statementOf } from "./sql.js";
/**
 * An operation of a transaction, and later its result.
 *
 * In an interactive transaction it is awaited like a promise. In `db.transaction` it is returned from the
 * function that builds the transaction, or awaited after the commit; awaiting it earlier rejects.
 */
export class Operation {
    /** @internal */
    wire;
    #decode;
    #started = false;
    #result;
    // `never`, so that an operation of any result is an operation of an unknown one.
    #resolve;
    #reject;
    /** @internal */
    constructor(wire, decode) {
        this.wire = wire;
        this.#decode = decode;
        this.#result = new Promise((resolve, reject) => {
            this.#resolve = resolve;
            this.#reject = reject;
        });
        // The error is reported by the transaction, whether or not this operation is awaited.
        this.#result.catch(() => { });
    }
    /** @internal From now on it may be awaited. */
    start() {
        this.#started = true;
    }
    /** @internal */
    succeed(result) {
        const value = this.#decode(result);
        this.#resolve(value);
        return value;
    }
    /** @internal */
    fail(error) {
        this.#reject(error);
    }
    then(onResolve, onReject) {
        const early = () => Promise.reject(new TypeError("the operation was awaited before its transaction was sent; return it instead"));
        return (this.#started ? this.#result : early()).then(onResolve, onReject);
    }
}
/** An operation on documents or rows, whose number can be a condition of the transaction. */
export class CountedOperation extends Operation {
    /** @internal */
    constructor(kind, body, decode) {
        super({ [kind]: body }, decode);
        this.#body = body;
    }
    #body;
    /**
     * Fails the transaction with `precondition_failed` unless exactly so many documents or rows are written or
     * returned.
     */
    expect(count) {
        this.#body.expect = count;
        return this;
    }
}
/** Operations on the documents of one collection. */
export class DocumentOperations {
    #counted;
    /** @internal */
    constructor(add) {
        this.#counted = add;
    }
    /** Inserts a document and returns its `_id`. */
    insert(document) {
        return this.#counted({ insert: encode(document) }, (result) => decode(result.id));
    }
    /** Updates the first matching document, or all with `many`. */
    update(filter, update, options = {}) {
        return this.#counted({ update: wireUpdate(filter, update, options) }, updateResult);
    }
    /** Deletes the first matching document, or all with `many`, and returns their number. */
    delete(filter, options = {}) {
        return this.#counted({ delete: { filter: encode(filter), ...options } }, (result) => result.deleted);
    }
    /** Reads the document with this `_id`; null if it does not exist. */
    get(id) {
        return this.#counted({ get: encode(id) }, (result) => decode(result.document ?? null));
    }
    /** Reads the matching documents. */
    find(filter = {}, options = {}) {
        return this.#counted({ find: wireFind(filter, options) }, (result) => result.documents.map(decode));
    }
}
/** @internal */
export function wireUpdate(filter, update, options) {
    const { arrayFilters, many, upsert, sort, hint } = options;
    return {
        filter: encode(filter), update: encode(update),
        ...(arrayFilters && { array_filters: encode(arrayFilters) }),
        ...(many && { many }), ...(upsert && { upsert }), ...(sort && { sort }), ...(hint !== undefined && { hint }),
    };
}
/** @internal */
export function wireFind(filter, { sort, projection, skip, limit, hint }) {
    return {
        filter: encode(filter), ...(sort && { sort }), ...(projection && { projection: encode(projection) }),
        ...(skip !== undefined && { skip }), ...(limit !== undefined && { limit }), ...(hint !== undefined && { hint }),
    };
}
/** @internal */
export function updateResult(result) {
    return { matched: result.matched, modified: result.modified, upsertedId: (decode(result.upserted ?? null) ?? null) };
}
/** Operations on all models. Each sees the writes of those before it. */
export class Operations {
    #added(operation) {
        this.add(operation);
        return operation;
    }
    /** Appends events. A condition that fails rolls the whole transaction back with `condition_failed`. */
    append(store, events, options = {}) {
        const conditions = listOf(options.conditions).map(wireCondition);
        const append = {
            store: store.name,
            events: listOf(events).map((event) => wireEvent(store.tagRules, event)),
            ...(conditions.length > 0 && { conditions }),
            ...(options.tracking && { tracking: options.tracking }),
        };
        return this.#added(new Operation({ append }, (result) => result));
    }
    /** Reads events, including those that this transaction has appended. */
    read(store, query, options = {}) {
        const read = { store: store.name, query: wireQuery(query ?? {}), ...options };
        return this.#added(new Operation({ read }, (result) => result.events.map((event) => recorded(event))));
    }
    /** The documents of a collection, in the database `default` or another one. */
    documents(collection, database = "default") {
        const place = typeof collection === "string" ? { collection, database } : { collection: collection.name, database: collection.database };
        return new DocumentOperations((wire, decode) => this.#added(new CountedOperation("documents", { ...place, ...wire }, decode)));
    }
    /** Runs one SQL statement; values in the template become parameters. Not BEGIN, COMMIT and COPY. */
    sql(...statement) {
        return this.#added(new CountedOperation("sql", statementOf(statement), (result) => sqlResult(result)));
    }
    /** Appends samples to the series store `default` or another one, and returns their number. */
    samples(series, store) {
        const samples = { ...(store !== undefined && { store }), series: listOf(series).map(wireSeries) };
        return this.#added(new Operation({ samples }, (result) => result.samples));
    }
    /**
     * Records that a consumer has processed the events up to a position. With `expect`, the transaction fails
     * with `precondition_failed` unless that position was recorded before (0: none), which fences a second worker.
     */
    checkpoint(store, consumer, position, options = {}) {
        const checkpoint = { store: store.name, consumer, position, ...options };
        return this.#added(new Operation({ checkpoint }, () => undefined));
    }
}
function wireSeries(input) {
    const pairs = "samples" in input ? input.samples : [[input.time ?? Date.now(), input.value]];
    const samples = pairs.map(([time, value]) => {
        if (!Number.isFinite(value))
            throw new TypeError(`the sample ${value} of ${input.name} is not a finite number`);
        return [Number(time), value];
    });
    return { labels: { ...input.labels, __name__: input.name }, samples };
}
//# sourceMappingURL=operations.js.map