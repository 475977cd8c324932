/** Collections of documents. */
import { RopewalkError } from "./error.js";
import { decode, encode } from "./extjson.js";
import { lineChunks } from "./lines.js";
import { wireFind } from "./operations.js";
import { transact } from "./transaction.js";
import { networkError, path } from "./transport.js";
/**
 * A collection. Dates and `Uint8Array` are stored as such; other types that JSON lacks are written in
 * MongoDB's Extended JSON.
 *
 * `insert`, `insertMany`, `update` and `delete` are transactions with an idempotency key: they are sent
 * again after a network error and take effect once. The other writes are sent once.
 */
export class Collection {
    name;
    database;
    #transport;
    #path;
    /** @internal */
    constructor(transport, name, database) {
        this.name = name;
        this.database = database;
        this.#transport = transport;
        this.#path = path `/v1/databases/${database}/collections/${name}`;
    }
    /** The document with this `_id`; null if it does not exist. */
    async get(id) {
        return (await this.getTagged(id))?.document ?? null;
    }
    /** The document with its tag, which changes with each write; null if it does not exist. */
    async getTagged(id) {
        try {
            const { value, headers } = await this.#transport.send({ method: "GET", ...this.#document(id), repeatable: true });
            return { document: decode(value), tag: headers.get("etag") ?? "" };
        }
        catch (error) {
            if (error instanceof RopewalkError && error.code === "not_found")
                return null;
            throw error;
        }
    }
    /** Stores a complete document; returns its tag. With `ifAbsent`, only if none exists. */
    async put(id, document, options = {}) {
        const absent = options.ifAbsent ? { "if-none-match": "*" } : {};
        const sent = await this.#transport.send({
            method: "PUT", ...this.#document(id, options.durability), headers: { ...matching(options), ...absent }, body: encode(document), repeatable: false,
        });
        return { created: sent.status === 201, tag: sent.headers.get("etag") ?? "" };
    }
    /** Updates the document by operators or stages and returns the new version. */
    async patch(id, update, options = {}) {
        const call = { method: "PATCH", ...this.#document(id, options.durability), headers: matching(options), body: encode(update), repeatable: false };
        return decode(await this.#transport.json(call));
    }
    /** Deletes the document with this `_id`; `not_found` if it does not exist. */
    async deleteById(id, options = {}) {
        await this.#transport.json({ method: "DELETE", ...this.#document(id, options.durability), headers: matching(options), repeatable: false });
    }
    #document(id, durability) {
        const query = new URLSearchParams();
        if (durability)
            query.set("durability", durability);
        if (typeof id !== "string")
            query.set("id", "json");
        const text = typeof id === "string" ? id : JSON.stringify(encode(id));
        return { path: this.#path + path `/documents/${text}`, query };
    }
    /** Inserts a document and returns its `_id`. */
    async insert(document, options = {}) {
        return this.#write((documents) => documents.insert(document), options);
    }
    /** Inserts up to 10,000 documents atomically and returns their `_id`s. */
    async insertMany(documents, options = {}) {
        if (documents.length === 0)
            return [];
        const committed = await transact(this.#transport, (tx) => {
            const operations = tx.documents(this);
            return documents.map((document) => operations.insert(document));
        }, options);
        return committed.results;
    }
    /** Updates the first matching document, or all with `many`. */
    async update(filter, update, options = {}) {
        const { idempotencyKey, durability, signal, ...rest } = options;
        const write = { ...(idempotencyKey !== undefined && { idempotencyKey }), ...(durability && { durability }), ...(signal && { signal }) };
        return this.#write((documents) => documents.update(filter, update, rest), write);
    }
    /** Deletes the first matching document, or all with `many`; returns their number. */
    async delete(filter, options = {}) {
        const { many, ...rest } = options;
        return this.#write((documents) => documents.delete(filter, many ? { many } : {}), rest);
    }
    async #write(build, options) {
        let operation;
        await transact(this.#transport, (tx) => void (operation = build(tx.documents(this))), options);
        return operation;
    }
    /** The matching documents, streamed as they are iterated. */
    async *find(filter = {}, options = {}) {
        const { signal, ...find } = options;
        const stream = await this.#transport.stream({ ...this.#asked("query", wireFind(filter, find), signal), headers: { accept: "application/x-ndjson" } });
        try {
            for await (const lines of lineChunks(stream.body)) {
                for (const line of lines)
                    if (line !== "")
                        yield decode(JSON.parse(line));
            }
        }
        catch (error) {
            throw networkError(error, signal);
        }
        finally {
            stream.cancel(new RopewalkError({ code: "network", detail: "the read ended" }));
        }
    }
    /** The first matching document; null if there is none. */
    async findOne(filter = {}, options = {}) {
        for await (const document of this.find(filter, { ...options, limit: 1 }))
            return document;
        return null;
    }
    /** Number of matching documents. */
    async count(filter = {}) {
        return (await this.#transport.json(this.#asked("count", { filter: encode(filter) }))).count;
    }
    /** Distinct values of a field, given as a dotted path. */
    async distinct(field, filter = {}) {
        const { values } = await this.#transport.json(this.#asked("distinct", { field, filter: encode(filter) }));
        return values.map(decode);
    }
    /** Runs a pipeline. It is sent once: `$out` and `$merge` write. */
    async aggregate(pipeline, variables) {
        const body = { pipeline: encode(pipeline), ...(variables && { let: encode(variables) }) };
        const { documents } = await this.#transport.json({ ...this.#asked("aggregate", body), repeatable: false });
        return documents.map(decode);
    }
    /** Updates or deletes the first matching document and returns it; null if there is none. */
    async modify(filter, options) {
        const { update, delete: deletes, after, upsert, arrayFilters, sort, projection, hint } = options;
        const body = {
            filter: encode(filter), update: update && encode(update), delete: deletes, after, upsert,
            array_filters: arrayFilters && encode(arrayFilters), sort, projection: projection && encode(projection), hint,
        };
        const { document } = await this.#transport.json({ ...this.#asked("modify", body), repeatable: false });
        return decode(document ?? null);
    }
    /** Creates an index, such as `["city", "-age"]`, unless it exists; returns its name. */
    async createIndex(fields, options = {}) {
        const { expireAfterSeconds, partial, ...rest } = options;
        const body = { fields, ...rest, ...(partial && { partial: encode(partial) }), expire_after_seconds: expireAfterSeconds };
        return (await this.#transport.json({ method: "POST", path: `${this.#path}/indexes`, body, repeatable: true })).name;
    }
    #asked(what, body, signal) {
        return { method: "POST", path: `${this.#path}/documents:${what}`, body, repeatable: true, signal };
    }
}
/** Header of a condition. */
function matching({ ifMatch }) {
    return ifMatch === undefined ? {} : { "if-match": ifMatch };
}
//# sourceMappingURL=documents.js.map