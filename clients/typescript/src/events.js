/** Event stores. */
import { decide, retry } from "./decision.js";
import { RopewalkError, isRetryable } from "./error.js";
import { ConsumerGroup } from "./group.js";
import { lineChunks } from "./lines.js";
import { itemsOf, listOf, recorded, wireCondition, wireEvent, wireQuery } from "./query.js";
import { batches } from "./subscription.js";
import { TransactionBuilder } from "./transaction.js";
import { chosenKey, networkError, path } from "./transport.js";
/** Position of a consumer in an event store. */
export class Checkpoint {
    consumer;
    #transport;
    #path;
    /** @internal */
    constructor(transport, store, consumer) {
        this.consumer = consumer;
        this.#transport = transport;
        this.#path = path `/v1/stores/${store}/checkpoints/${consumer}`;
    }
    /** The recorded position; 0 if there is none. */
    async get(options = {}) {
        const found = await this.#transport.json({ method: "GET", path: this.#path, repeatable: true, signal: options.signal });
        return found.position ?? 0;
    }
    /** Records a position, at most the last of the store. */
    async set(position) {
        await this.#transport.json({ method: "PUT", path: this.#path, body: { position }, repeatable: false });
    }
    /** Removes the checkpoint. */
    async delete() {
        await this.#transport.json({ method: "DELETE", path: this.#path, repeatable: false });
    }
}
/** An event store. `S` maps the name of each event type to the type of its data. */
export class EventStore {
    name;
    tagRules;
    #transport;
    #path;
    /** @internal */
    constructor(transport, name, options) {
        this.#transport = transport;
        this.name = name;
        this.tagRules = options.tags ?? {};
        this.#path = path `/v1/stores/${name}`;
    }
    /** Appends events atomically; they are durable when the promise resolves. The first append creates the store. */
    async append(events, options = {}) {
        const conditions = listOf(options.conditions);
        const hasPrefixes = conditions.some(({ failIfEventsMatch }) => itemsOf(failIfEventsMatch).some((item) => item.typePrefixes || item.tagPrefixes));
        const { idempotencyKey, repeatById, tracking, durability, signal } = options;
        const key = chosenKey(idempotencyKey ?? (hasPrefixes || repeatById ? false : undefined));
        return this.#transport.json({
            method: "POST",
            path: `${this.#path}/events`,
            headers: key === undefined ? {} : { "idempotency-key": key },
            body: {
                events: listOf(events).map((event) => wireEvent(this.tagRules, event)),
                ...(conditions.length > 0 && { conditions: conditions.map(wireCondition) }),
                ...(repeatById && { repeat_by_id: true }), ...(tracking && { tracking }), ...(durability && { durability }),
            },
            repeatable: key !== undefined || repeatById === true,
            signal,
        });
    }
    /** Reads the matching events as of one position. The stream is read as it is iterated. */
    async read(query, options = {}) {
        const { signal, ...range } = options;
        const call = (range) => this.#transport.stream({
            method: "POST", path: `${this.#path}/events:query`, headers: { accept: "application/x-ndjson" },
            body: { query: wireQuery(query ?? {}), ...range }, repeatable: true, signal,
        });
        const first = await call(range);
        const head = Number(first.headers.get("ropewalk-head") ?? 0);
        const transport = this.#transport;
        async function* events() {
            let stream = first;
            let left = range.limit;
            let rest = range;
            for (let failures = 0;;) {
                try {
                    for await (const lines of lineChunks(stream.body)) {
                        for (const line of lines) {
                            if (line === "")
                                continue;
                            const event = recorded(JSON.parse(line));
                            failures = 0;
                            // A new connection reads the rest of the same positions.
                            if (left !== undefined)
                                left--;
                            rest = range.backwards
                                ? { ...withoutFrom(range), before: event.position }
                                : { ...withoutFrom(range), after: event.position, before: Math.min(range.before ?? Infinity, head + 1) };
                            if (left !== undefined)
                                rest.limit = left;
                            yield event;
                        }
                    }
                    return;
                }
                catch (error) {
                    const failure = networkError(error, signal);
                    if (!isRetryable(failure) || ++failures > 3 || left === 0)
                        throw failure;
                    await new Promise((resolve) => setTimeout(resolve, transport.delay(failures)));
                    if (rest === range && !range.backwards)
                        rest = { ...range, before: Math.min(range.before ?? Infinity, head + 1) };
                    stream = await call(rest);
                }
                finally {
                    stream.cancel(new RopewalkError({ code: "network", detail: "the read ended" }));
                }
            }
        }
        const stream = events();
        return {
            head,
            [Symbol.asyncIterator]: () => stream,
            toArray: async () => {
                const all = [];
                for await (const event of stream)
                    all.push(event);
                return all;
            },
        };
    }
    /** The newest matching event; null if there is none. */
    async last(query) {
        const { event } = await this.#ask("last", wireQuery(query ?? {}));
        return event && recorded(event);
    }
    /** Number of matching events; they are not read. */
    async count(query = {}) {
        return (await this.#ask("count", wireQuery(query))).count;
    }
    /** Whether an event matches, after a position if given. */
    async exists(query = {}, options = {}) {
        return (await this.#ask("exists", { query: wireQuery(query), ...options })).exists;
    }
    #ask(question, body) {
        return this.#transport.json({ method: "POST", path: `${this.#path}/events:${question}`, body, repeatable: true });
    }
    /** Last position of the store; 0 for an empty store. */
    async head() {
        const { head } = await this.#transport.json({ method: "GET", path: `${this.#path}/head`, repeatable: true });
        return head ?? 0;
    }
    /** Declares a model: a state computed from the events of a query. Returns its argument, with types inferred. */
    model(model) {
        return model;
    }
    /** Reads the events of a model and computes its state, with the condition for a later append. */
    async load(model, options = {}) {
        const events = await this.read(model.query, options);
        let state = model.initial();
        for await (const event of events)
            state = model.evolve(state, event);
        return { state, head: events.head, condition: { failIfEventsMatch: model.query, after: events.head } };
    }
    /**
     * Decides on the state of a model and appends the resulting events, with other operations in the same
     * commit, if no event of the model was appended since. After such a conflict it decides again.
     */
    decide(options) {
        return decide(this.#transport, this, options);
    }
    /**
     * Delivers the matching events, then each new one as soon as it is durable. It reconnects after network
     * errors and resumes by position, so no event is missed or repeated. It ends by `break`, by the signal, or by
     * an error that a repetition does not remove.
     */
    async *subscribe(options = {}) {
        for await (const batch of batches(this.#transport, this.name, options)) {
            for (const event of batch) {
                if (options.signal?.aborted)
                    return;
                yield event;
            }
        }
    }
    /**
     * Processes events exactly once: the operations of the handler and the checkpoint of the consumer are one
     * commit. Events that arrive together are processed in one transaction. Ends by the signal.
     *
     * @throws RopewalkError `fenced` if another worker of the consumer has moved the checkpoint.
     */
    async follow(consumer, handler, options = {}) {
        const { batch: max = 100, signal, ...subscription } = options;
        let done = await this.checkpoint(consumer).get(signal ? { signal } : {});
        const arriving = batches(this.#transport, this.name, { ...subscription, after: done, ...(signal && { signal }) });
        for await (const batch of arriving) {
            for (let at = 0; at < batch.length && !signal?.aborted; at += max) {
                const events = batch.slice(at, at + max);
                const position = events.at(-1)?.position ?? done;
                await retry(() => this.#step(consumer, events, handler, done, position));
                done = position;
            }
        }
    }
    async #step(consumer, events, handler, done, position) {
        const tx = new TransactionBuilder();
        for (const event of events)
            await handler(event, tx);
        tx.checkpoint(this, consumer, position, { expect: done });
        try {
            await tx.send(this.#transport, {});
        }
        catch (error) {
            const isFenced = error instanceof RopewalkError && error.code === "precondition_failed" && error.operation === tx.operations.length - 1;
            if (!isFenced)
                throw error;
            throw new RopewalkError({ code: "fenced", status: error.status, detail: `another worker moved the checkpoint of ${consumer}: ${error.detail}`, cause: error });
        }
    }
    /** A consumer group of the store. With options, `each` and `create` set them. */
    group(name, options) {
        return new ConsumerGroup(this.#transport, this.name, name, options);
    }
    /** The checkpoint of a consumer. */
    checkpoint(consumer) {
        return new Checkpoint(this.#transport, this.name, consumer);
    }
    /** Positions of all consumers with a checkpoint. */
    async checkpoints() {
        const { checkpoints } = await this.#transport.json({ method: "GET", path: `${this.#path}/checkpoints`, repeatable: true });
        return new Map(checkpoints.map(({ consumer, position }) => [consumer, position]));
    }
    /** Upstream position stored with an append; null for an unknown source. */
    async tracking(source) {
        const found = await this.#transport.json({ method: "GET", path: this.#path + path `/tracking/${source}`, repeatable: true });
        return found.position;
    }
    /** Creates the store if it does not exist. */
    async create() {
        await this.#transport.json({ method: "PUT", path: this.#path, repeatable: true });
    }
    /** Deletes the store with its events, checkpoints and groups. */
    async delete() {
        await this.#transport.json({ method: "DELETE", path: this.#path, repeatable: false });
    }
}
/** A resumed read starts after a position instead of at one. */
function withoutFrom({ from: _, ...range }) {
    return range;
}
//# sourceMappingURL=events.js.map