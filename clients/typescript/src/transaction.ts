/** Transactions over all models: in one request, or over several. */
import { RopewalkError } from "./error.js";
import type { EventStore } from "./events.js";
import { encode } from "./extjson.js";
import { Operation, Operations } from "./operations.js";
import type { Isolation } from "./operations.js";
import { wireQuery } from "./query.js";
import type { Durability, EventQuery, EventType } from "./query.js";
import type { Filter } from "./documents.js";
import { statementOf } from "./sql.js";
import type { SqlArguments } from "./sql.js";
import { chosenKey, path } from "./transport.js";
import type { Transport } from "./transport.js";

/** Options of `db.transaction`. */
export interface TransactionOptions {
  /**
   * Default: a new random key, with which the request is sent again after a network error and takes effect
   * once. A key that the application stores, such as the id of a command, has that effect for 24 hours also
   * across processes. `false`: no key, and no repetition.
   */
  idempotencyKey?: string | false;
  /** Default `serializable`. */
  isolation?: Isolation;
  durability?: Durability;
  /** Number of a commit that the snapshot has to include, such as the `seq` of an earlier response. */
  includes?: number;
  signal?: AbortSignal;
}

/** The results of the returned operations, in the shape in which they were returned. */
export type Results<R> =
  R extends Operation<infer T> ? T
  : R extends readonly unknown[] ? { -readonly [K in keyof R]: Results<R[K]> }
  : R;

/** A committed transaction. */
export interface Committed<R> {
  /** Number of the commit; of a transaction that only reads, that of its snapshot. */
  readonly seq: number;
  /** Whether an earlier request with the same key was committed, and these are its results. */
  readonly repeated: boolean;
  /** Results of the operations that the function returned; without a returned value, of all operations. */
  readonly results: R extends Operation<infer T> ? T : Awaited<R> extends void | undefined ? unknown[] : Results<Awaited<R>>;
}

/** Conditions that are checked before the operations, in the same snapshot. */
export class Preconditions {
  readonly #list: object[];

  /** @internal */
  constructor(list: object[]) {
    this.#list = list;
  }

  /** No event after the position matches. */
  events<S>(store: EventStore<S>, query: EventQuery<EventType<S>> = {}, options: { after?: number } = {}): void {
    this.#list.push({ events: { store: store.name, query: wireQuery(query), ...options } });
  }

  /** Exactly `count` documents match; default 1. */
  documents(collection: string | { readonly name: string; readonly database: string }, filter: Filter, count = 1): void {
    const place = typeof collection === "string" ? { collection } : { collection: collection.name, database: collection.database };
    this.#list.push({ documents: { ...place, filter: encode(filter), count } });
  }

  /** The query returns one row, or as many as `expect` says. */
  sql(...statement: SqlArguments): { expect(rows: number): void } {
    const wire = statementOf(statement);
    this.#list.push({ sql: wire });
    return { expect: (rows) => void (wire.expect = rows) };
  }
}

/** Collects the operations of a transaction that is sent in one request. */
export class TransactionBuilder extends Operations {
  /** @internal */
  readonly operations: Operation<unknown>[] = [];
  /** @internal */
  readonly preconditions: object[] = [];
  #sent = false;

  /** Conditions that are checked before the operations. One that does not hold: `precondition_failed`. */
  readonly require = new Preconditions(this.preconditions);

  protected override add(operation: Operation<unknown>): void {
    if (this.#sent) throw new TypeError("the transaction has been sent already");
    this.operations.push(operation);
  }

  /** @internal Sends the transaction. */
  async send(transport: Transport, options: TransactionOptions): Promise<{ seq: number; repeated: boolean; results: unknown[] }> {
    this.#sent = true;
    for (const operation of this.operations) operation.start();
    try {
      const key = chosenKey(options.idempotencyKey);
      const { isolation, durability, includes, signal } = options;
      const answer = await transport.json<{ seq: number; repeated: boolean; results: unknown[] }>({
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
    } catch (error) {
      for (const operation of this.operations) operation.fail(error);
      throw error;
    }
  }
}

/** @internal Builds a transaction, sends it in one request, and returns its results. */
export async function transact<R>(transport: Transport, build: (tx: TransactionBuilder) => R, options: TransactionOptions): Promise<Committed<R>> {
  const tx = new TransactionBuilder();
  const built: unknown = build(tx);
  const returned = built instanceof Operation ? built : await (built as unknown);
  const { seq, repeated, results } = await tx.send(transport, options);
  const resolved = returned === undefined ? results : await resultsOf(returned);
  return { seq, repeated, results: resolved } as Committed<R>;
}

async function resultsOf(returned: unknown): Promise<unknown> {
  if (returned instanceof Operation) return returned;
  return Array.isArray(returned) ? Promise.all(returned.map(resultsOf)) : returned;
}

/** Commit of an interactive transaction. */
export interface InteractiveCommit {
  readonly seq: number;
  /** Positions of each append, in order. */
  readonly appended: readonly { readonly store: string; readonly first: number | null; readonly last: number | null }[];
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
  readonly snapshot: number;
  /** It is rolled back after so many milliseconds without a request. */
  readonly idleMs: number;
  readonly #transport: Transport;
  readonly #token: string;
  readonly #signal: AbortSignal | undefined;
  #waiting: Operation<unknown>[] = [];
  #requests: Promise<void> = Promise.resolve();
  #failure: { error: unknown } | undefined;
  #isOpen = true;

  /** @internal */
  constructor(transport: Transport, begun: { transaction: string; snapshot: number; idle_ms: number }, signal: AbortSignal | undefined) {
    super();
    this.#transport = transport;
    this.#token = begun.transaction;
    this.#signal = signal;
    this.snapshot = begun.snapshot;
    this.idleMs = begun.idle_ms;
  }

  protected override add(operation: Operation<unknown>): void {
    if (!this.#isOpen) throw new TypeError("the transaction has ended");
    operation.start();
    this.#waiting.push(operation);
    if (this.#waiting.length === 1) queueMicrotask(() => this.#flush());
  }

  #flush(): void {
    const batch = this.#waiting;
    this.#waiting = [];
    if (batch.length > 0) this.#requests = this.#requests.then(() => this.#run(batch));
  }

  async #run(batch: Operation<unknown>[]): Promise<void> {
    try {
      if (this.#failure) throw this.#failure.error;
      const { results } = await this.#call<{ results: unknown[] }>("operations", { operations: batch.map((operation) => operation.wire) });
      batch.forEach((operation, index) => operation.succeed(results[index]));
    } catch (error) {
      this.#failure ??= { error };
      for (const operation of batch) operation.fail(error);
    }
  }

  #call<T>(step: "operations" | "commit", body?: object): Promise<T> {
    return this.#transport.json<T>({
      method: "POST", path: path`/v1/transactions/${this.#token}/${step}`, body, repeatable: false, signal: this.#signal,
    });
  }

  /** Commits. `key_conflict`: another commit changed data that the transaction read; begin again. */
  async commit(): Promise<InteractiveCommit> {
    if (!this.#isOpen) throw new TypeError("the transaction has ended");
    this.#isOpen = false;
    this.#flush();
    await this.#requests;
    // The operation's error has rolled the transaction back.
    if (this.#failure) throw this.#failure.error;
    return this.#call<InteractiveCommit>("commit");
  }

  /** Rolls back. Has no effect after the end of the transaction. */
  async rollback(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#flush();
    await this.#requests;
    try {
      await this.#transport.json({ method: "DELETE", path: path`/v1/transactions/${this.#token}`, repeatable: true });
    } catch (error) {
      // It has been rolled back by an error or by its idle time.
      if (!(error instanceof RopewalkError && error.code === "not_found")) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.rollback();
  }
}
