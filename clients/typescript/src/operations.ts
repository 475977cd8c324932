/** Operations of a transaction, and the objects on which they are called. */
import type { DocumentId, FindOptions, Filter, Update, UpdateOptions, UpdateResult } from "./documents.js";
import type { EventStore } from "./events.js";
import { decode, encode } from "./extjson.js";
import { listOf, recorded, wireCondition, wireEvent, wireQuery } from "./query.js";
import type { AppendCondition, EventQuery, EventType, NewEvent, RecordedEvent, Selected, WireRecorded } from "./query.js";
import { sqlResult, statementOf } from "./sql.js";
import type { Row, SqlArguments, SqlResult, WireSqlResult } from "./sql.js";

/** Isolation of a transaction. `serializable`: nothing that it read has changed at its commit. */
export type Isolation = "serializable" | "snapshot";

/** Positions of appended events; null within an interactive transaction, and for an append of no events. */
export interface AppendedPositions {
  readonly first: number | null;
  readonly last: number | null;
}

/** Samples of one series: one value, or several pairs of a time and a value. */
export type SeriesInput = {
  /** Metric, the label `__name__`. */
  readonly name: string;
  readonly labels?: Readonly<Record<string, string>>;
} & (
  | { readonly value: number; /** Date, or milliseconds since 1970. Default: now. */ readonly time?: Date | number }
  | { readonly samples: readonly (readonly [time: Date | number, value: number])[] }
);

/**
 * An operation of a transaction, and later its result.
 *
 * In an interactive transaction it is awaited like a promise. In `db.transaction` it is returned from the
 * function that builds the transaction, or awaited after the commit; awaiting it earlier rejects.
 */
export class Operation<T> implements PromiseLike<T> {
  /** @internal */
  readonly wire: object;
  readonly #decode: (result: never) => T;
  #started = false;
  readonly #result: Promise<T>;
  // `never`, so that an operation of any result is an operation of an unknown one.
  #resolve!: (value: never) => void;
  #reject!: (error: unknown) => void;

  /** @internal */
  constructor(wire: object, decode: (result: never) => T) {
    this.wire = wire;
    this.#decode = decode;
    this.#result = new Promise<T>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // The error is reported by the transaction, whether or not this operation is awaited.
    this.#result.catch(() => {});
  }

  /** @internal From now on it may be awaited. */
  start(): void {
    this.#started = true;
  }

  /** @internal */
  succeed(result: unknown): T {
    const value = this.#decode(result as never);
    this.#resolve(value as never);
    return value;
  }

  /** @internal */
  fail(error: unknown): void {
    this.#reject(error);
  }

  then<A = T, B = never>(
    onResolve?: ((value: T) => A | PromiseLike<A>) | null,
    onReject?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    const early = () => Promise.reject<T>(new TypeError("the operation was awaited before its transaction was sent; return it instead"));
    return (this.#started ? this.#result : early()).then(onResolve, onReject);
  }
}

/** An operation on documents or rows, whose number can be a condition of the transaction. */
export class CountedOperation<T> extends Operation<T> {
  /** @internal */
  constructor(kind: "documents" | "sql", body: object, decode: (result: never) => T) {
    super({ [kind]: body }, decode);
    this.#body = body as { expect?: number };
  }

  readonly #body: { expect?: number };

  /**
   * Fails the transaction with `precondition_failed` unless exactly so many documents or rows are written or
   * returned.
   */
  expect(count: number): this {
    this.#body.expect = count;
    return this;
  }
}

/** @internal Adds an operation on documents to its transaction. */
export type AddCounted = <T>(wire: object, decode: (result: never) => T) => CountedOperation<T>;

/** Operations on the documents of one collection. */
export class DocumentOperations<D extends object> {
  readonly #counted: AddCounted;

  /** @internal */
  constructor(add: AddCounted) {
    this.#counted = add;
  }

  /** Inserts a document and returns its `_id`. */
  insert(document: D): Operation<DocumentId> {
    return this.#counted({ insert: encode(document) }, (result: { id: unknown }) => decode(result.id) as DocumentId);
  }

  /** Updates the first matching document, or all with `many`. */
  update(filter: Filter, update: Update, options: Omit<UpdateOptions, "idempotencyKey" | "signal"> = {}): CountedOperation<UpdateResult> {
    return this.#counted({ update: wireUpdate(filter, update, options) }, updateResult);
  }

  /** Deletes the first matching document, or all with `many`, and returns their number. */
  delete(filter: Filter, options: { many?: boolean } = {}): CountedOperation<number> {
    return this.#counted({ delete: { filter: encode(filter), ...options } }, (result: { deleted: number }) => result.deleted);
  }

  /** Reads the document with this `_id`; null if it does not exist. */
  get(id: DocumentId): CountedOperation<D | null> {
    return this.#counted({ get: encode(id) }, (result: { document: unknown }) => decode(result.document ?? null) as D | null);
  }

  /** Reads the matching documents. */
  find(filter: Filter = {}, options: FindOptions = {}): CountedOperation<D[]> {
    return this.#counted({ find: wireFind(filter, options) }, (result: { documents: unknown[] }) => result.documents.map(decode) as D[]);
  }
}

/** @internal */
export function wireUpdate(filter: Filter, update: Update, options: Omit<UpdateOptions, "idempotencyKey" | "signal">): object {
  const { arrayFilters, many, upsert, sort, hint } = options;
  return {
    filter: encode(filter), update: encode(update),
    ...(arrayFilters && { array_filters: encode(arrayFilters) }),
    ...(many && { many }), ...(upsert && { upsert }), ...(sort && { sort }), ...(hint !== undefined && { hint }),
  };
}

/** @internal */
export function wireFind(filter: Filter, { sort, projection, skip, limit, hint }: FindOptions): object {
  return {
    filter: encode(filter), ...(sort && { sort }), ...(projection && { projection: encode(projection) }),
    ...(skip !== undefined && { skip }), ...(limit !== undefined && { limit }), ...(hint !== undefined && { hint }),
  };
}

/** @internal */
export function updateResult(result: { matched: number; modified: number; upserted: unknown }): UpdateResult {
  return { matched: result.matched, modified: result.modified, upsertedId: (decode(result.upserted ?? null) ?? null) as DocumentId | null };
}

/** Operations on all models. Each sees the writes of those before it. */
export abstract class Operations {
  /** @internal Adds the operation to the transaction. */
  protected abstract add(operation: Operation<unknown>): void;

  #added<O extends Operation<unknown>>(operation: O): O {
    this.add(operation);
    return operation;
  }

  /** Appends events. A condition that fails rolls the whole transaction back with `condition_failed`. */
  append<S>(
    store: EventStore<S>,
    events: NewEvent<NoInfer<S>> | readonly NewEvent<NoInfer<S>>[],
    options: {
      conditions?: AppendCondition<EventType<S>> | readonly AppendCondition<EventType<S>>[];
      tracking?: { readonly source: string; readonly position: number };
    } = {},
  ): Operation<AppendedPositions> {
    const conditions = listOf(options.conditions).map(wireCondition);
    const append = {
      store: store.name,
      events: listOf<NewEvent<S>>(events).map((event) => wireEvent(store.tagRules, event)),
      ...(conditions.length > 0 && { conditions }),
      ...(options.tracking && { tracking: options.tracking }),
    };
    return this.#added(new Operation({ append }, (result: AppendedPositions) => result));
  }

  /** Reads events, including those that this transaction has appended. */
  read<S, const Q extends EventQuery<EventType<S>> = QueryOfAll>(
    store: EventStore<S>,
    query?: Q,
    options: { after?: number; backwards?: boolean; limit?: number } = {},
  ): Operation<RecordedEvent<S, Selected<S, Q>>[]> {
    const read = { store: store.name, query: wireQuery(query ?? {}), ...options };
    return this.#added(new Operation({ read }, (result: { events: WireRecorded[] }) =>
      result.events.map((event) => recorded<RecordedEvent<S, Selected<S, Q>>>(event))));
  }

  /** The documents of a collection, in the database `default` or another one. */
  documents<D extends object = Record<string, unknown>>(collection: string | { readonly name: string; readonly database: string }, database = "default"): DocumentOperations<D> {
    const place = typeof collection === "string" ? { collection, database } : { collection: collection.name, database: collection.database };
    return new DocumentOperations<D>((wire, decode) => this.#added(new CountedOperation("documents", { ...place, ...wire }, decode)));
  }

  /** Runs one SQL statement; values in the template become parameters. Not BEGIN, COMMIT and COPY. */
  sql<R = Row>(...statement: SqlArguments): CountedOperation<SqlResult<R>> {
    return this.#added(new CountedOperation("sql", statementOf(statement), (result: WireSqlResult) => sqlResult<R>(result)));
  }

  /** Appends samples to the series store `default` or another one, and returns their number. */
  samples(series: SeriesInput | readonly SeriesInput[], store?: string): Operation<number> {
    const samples = { ...(store !== undefined && { store }), series: listOf(series).map(wireSeries) };
    return this.#added(new Operation({ samples }, (result: { samples: number }) => result.samples));
  }

  /**
   * Records that a consumer has processed the events up to a position. With `expect`, the transaction fails
   * with `precondition_failed` unless that position was recorded before (0: none), which fences a second worker.
   */
  checkpoint<S>(store: EventStore<S>, consumer: string, position: number, options: { expect?: number } = {}): Operation<void> {
    const checkpoint = { store: store.name, consumer, position, ...options };
    return this.#added(new Operation({ checkpoint }, () => undefined));
  }
}

/** The query of a read without a query. */
export type QueryOfAll = Record<never, never>;

function wireSeries(input: SeriesInput): object {
  const pairs = "samples" in input ? input.samples : [[input.time ?? Date.now(), input.value] as const];
  const samples = pairs.map(([time, value]) => {
    if (!Number.isFinite(value)) throw new TypeError(`the sample ${value} of ${input.name} is not a finite number`);
    return [Number(time), value];
  });
  return { labels: { ...input.labels, __name__: input.name }, samples };
}
