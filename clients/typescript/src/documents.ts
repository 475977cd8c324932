/** Collections of documents. */
import { RopewalkError } from "./error.js";
import { decode, encode } from "./extjson.js";
import { lineChunks } from "./lines.js";
import { wireFind } from "./operations.js";
import type { CountedOperation, DocumentOperations, Operation } from "./operations.js";
import { transact } from "./transaction.js";
import type { TransactionOptions } from "./transaction.js";
import { networkError, path } from "./transport.js";
import type { Call, Transport } from "./transport.js";
import type { Durability } from "./query.js";

/** The `_id` of a document: a string, a number, or Extended JSON such as `{ $oid: "…" }`. */
export type DocumentId = string | number | boolean | Date | { readonly [key: string]: unknown };

/** Filter, sort and projection in MongoDB's language. */
export type Filter = Readonly<Record<string, unknown>>;
/** Fields, and 1 for ascending or -1 for descending. */
export type Sort = Readonly<Record<string, 1 | -1>>;
/** Operators such as `$set`, an array of stages, or a whole document. */
export type Update = Readonly<Record<string, unknown>> | readonly Readonly<Record<string, unknown>>[];
/** An index: its name, or its fields. */
export type Hint = string | Sort;

/** Options of a query. */
export interface FindOptions {
  sort?: Sort;
  projection?: Filter;
  skip?: number;
  limit?: number;
  hint?: Hint;
}

/** Options of a write: as of a transaction. */
export type WriteOptions = Pick<TransactionOptions, "idempotencyKey" | "durability" | "signal">;

/** Options of an update. */
export interface UpdateOptions extends WriteOptions {
  /** All matching documents, not the first. */
  many?: boolean;
  /** Inserts a document if none matches. */
  upsert?: boolean;
  arrayFilters?: readonly Filter[];
  /** Which document is the first. Excludes `many`. */
  sort?: Sort;
  hint?: Hint;
}

/** Result of an update. */
export interface UpdateResult {
  readonly matched: number;
  readonly modified: number;
  /** The `_id` of the inserted document; null if none was inserted. */
  readonly upsertedId: DocumentId | null;
}

/** A condition on the stored document, checked in the commit; otherwise `precondition_failed`. */
export interface Match {
  /** The document has this tag, from {@link Collection.getTagged}. */
  ifMatch?: string;
  durability?: Durability;
}

/** Options of {@link Collection.modify}. */
export interface ModifyOptions {
  update?: Update;
  /** Deletes the document instead of updating it. */
  delete?: boolean;
  /** Returns the document as it is after the update. */
  after?: boolean;
  upsert?: boolean;
  arrayFilters?: readonly Filter[];
  sort?: Sort;
  projection?: Filter;
  hint?: Hint;
}

/**
 * A collection. Dates and `Uint8Array` are stored as such; other types that JSON lacks are written in
 * MongoDB's Extended JSON.
 *
 * `insert`, `insertMany`, `update` and `delete` are transactions with an idempotency key: they are sent
 * again after a network error and take effect once. The other writes are sent once.
 */
export class Collection<D extends object = Record<string, unknown>> {
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal */
  constructor(transport: Transport, readonly name: string, readonly database: string) {
    this.#transport = transport;
    this.#path = path`/v1/databases/${database}/collections/${name}`;
  }

  /** The document with this `_id`; null if it does not exist. */
  async get(id: DocumentId): Promise<D | null> {
    return (await this.getTagged(id))?.document ?? null;
  }

  /** The document with its tag, which changes with each write; null if it does not exist. */
  async getTagged(id: DocumentId): Promise<{ document: D; tag: string } | null> {
    try {
      const { value, headers } = await this.#transport.send<unknown>({ method: "GET", ...this.#document(id), repeatable: true });
      return { document: decode(value) as D, tag: headers.get("etag") ?? "" };
    } catch (error) {
      if (error instanceof RopewalkError && error.code === "not_found") return null;
      throw error;
    }
  }

  /** Stores a complete document; returns its tag. With `ifAbsent`, only if none exists. */
  async put(id: DocumentId, document: Omit<D, "_id"> & { _id?: unknown }, options: Match & { ifAbsent?: boolean } = {}): Promise<{ created: boolean; tag: string }> {
    const absent: Record<string, string> = options.ifAbsent ? { "if-none-match": "*" } : {};
    const sent = await this.#transport.send<unknown>({
      method: "PUT", ...this.#document(id, options.durability), headers: { ...matching(options), ...absent }, body: encode(document), repeatable: false,
    });
    return { created: sent.status === 201, tag: sent.headers.get("etag") ?? "" };
  }

  /** Updates the document by operators or stages and returns the new version. */
  async patch(id: DocumentId, update: Update, options: Match = {}): Promise<D> {
    const call: Call = { method: "PATCH", ...this.#document(id, options.durability), headers: matching(options), body: encode(update), repeatable: false };
    return decode(await this.#transport.json<unknown>(call)) as D;
  }

  /** Deletes the document with this `_id`; `not_found` if it does not exist. */
  async deleteById(id: DocumentId, options: Match = {}): Promise<void> {
    await this.#transport.json({ method: "DELETE", ...this.#document(id, options.durability), headers: matching(options), repeatable: false });
  }

  #document(id: DocumentId, durability?: Durability): { path: string; query: URLSearchParams } {
    const query = new URLSearchParams();
    if (durability) query.set("durability", durability);
    if (typeof id !== "string") query.set("id", "json");
    const text = typeof id === "string" ? id : JSON.stringify(encode(id));
    return { path: this.#path + path`/documents/${text}`, query };
  }

  /** Inserts a document and returns its `_id`. */
  async insert(document: D, options: WriteOptions = {}): Promise<DocumentId> {
    return this.#write((documents) => documents.insert(document), options);
  }

  /** Inserts up to 10,000 documents atomically and returns their `_id`s. */
  async insertMany(documents: readonly D[], options: WriteOptions = {}): Promise<DocumentId[]> {
    if (documents.length === 0) return [];
    const committed = await transact(this.#transport, (tx) => {
      const operations = tx.documents<D>(this);
      return documents.map((document) => operations.insert(document));
    }, options);
    return committed.results as DocumentId[];
  }

  /** Updates the first matching document, or all with `many`. */
  async update(filter: Filter, update: Update, options: UpdateOptions = {}): Promise<UpdateResult> {
    const { idempotencyKey, durability, signal, ...rest } = options;
    const write = { ...(idempotencyKey !== undefined && { idempotencyKey }), ...(durability && { durability }), ...(signal && { signal }) };
    return this.#write((documents) => documents.update(filter, update, rest), write);
  }

  /** Deletes the first matching document, or all with `many`; returns their number. */
  async delete(filter: Filter, options: WriteOptions & { many?: boolean } = {}): Promise<number> {
    const { many, ...rest } = options;
    return this.#write((documents) => documents.delete(filter, many ? { many } : {}), rest);
  }

  async #write<T>(build: (documents: DocumentOperations<D>) => Operation<T> | CountedOperation<T>, options: WriteOptions): Promise<T> {
    let operation: Operation<T> | undefined;
    await transact(this.#transport, (tx) => void (operation = build(tx.documents<D>(this))), options);
    return operation as PromiseLike<T>;
  }

  /** The matching documents, streamed as they are iterated. */
  async *find(filter: Filter = {}, options: FindOptions & { signal?: AbortSignal } = {}): AsyncGenerator<D, void, void> {
    const { signal, ...find } = options;
    const stream = await this.#transport.stream({ ...this.#asked("query", wireFind(filter, find), signal), headers: { accept: "application/x-ndjson" } });
    try {
      for await (const lines of lineChunks(stream.body)) {
        for (const line of lines) if (line !== "") yield decode(JSON.parse(line)) as D;
      }
    } catch (error) {
      throw networkError(error, signal);
    } finally {
      stream.cancel(new RopewalkError({ code: "network", detail: "the read ended" }));
    }
  }

  /** The first matching document, or null. */
  async findOne(filter: Filter = {}, options: Omit<FindOptions, "limit"> = {}): Promise<D | null> {
    for await (const document of this.find(filter, { ...options, limit: 1 })) return document;
    return null;
  }

  /** Number of matching documents. */
  async count(filter: Filter = {}): Promise<number> {
    return (await this.#transport.json<{ count: number }>(this.#asked("count", { filter: encode(filter) }))).count;
  }

  /** Distinct values of a field, given as a dotted path. */
  async distinct<T = unknown>(field: string, filter: Filter = {}): Promise<T[]> {
    const { values } = await this.#transport.json<{ values: unknown[] }>(this.#asked("distinct", { field, filter: encode(filter) }));
    return values.map(decode) as T[];
  }

  /** Runs a pipeline. It is sent once: `$out` and `$merge` write. */
  async aggregate<T extends object = Record<string, unknown>>(pipeline: readonly Filter[], variables?: Filter): Promise<T[]> {
    const body = { pipeline: encode(pipeline), ...(variables && { let: encode(variables) }) };
    const { documents } = await this.#transport.json<{ documents: unknown[] }>({ ...this.#asked("aggregate", body), repeatable: false });
    return documents.map(decode) as T[];
  }

  /** Updates or deletes the first matching document and returns it; null if no document matches. */
  async modify(filter: Filter, options: ModifyOptions): Promise<D | null> {
    const { update, delete: deletes, after, upsert, arrayFilters, sort, projection, hint } = options;
    const body = {
      filter: encode(filter), update: update && encode(update), delete: deletes, after, upsert,
      array_filters: arrayFilters && encode(arrayFilters), sort, projection: projection && encode(projection), hint,
    };
    const { document } = await this.#transport.json<{ document: unknown }>({ ...this.#asked("modify", body), repeatable: false });
    return decode(document ?? null) as D | null;
  }

  /** Creates an index, such as `["city", "-age"]`, unless it exists; returns its name. */
  async createIndex(fields: readonly string[], options: { name?: string; unique?: boolean; sparse?: boolean; partial?: Filter; expireAfterSeconds?: number } = {}): Promise<string> {
    const { expireAfterSeconds, partial, ...rest } = options;
    const body = { fields, ...rest, ...(partial && { partial: encode(partial) }), expire_after_seconds: expireAfterSeconds };
    return (await this.#transport.json<{ name: string }>({ method: "POST", path: `${this.#path}/indexes`, body, repeatable: true })).name;
  }

  #asked(what: string, body: object, signal?: AbortSignal): Call {
    return { method: "POST", path: `${this.#path}/documents:${what}`, body, repeatable: true, signal };
  }
}

/** Header of a condition. */
function matching({ ifMatch }: Match): Record<string, string> {
  return ifMatch === undefined ? {} : { "if-match": ifMatch };
}
