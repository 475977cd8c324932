/** The client. */
import { retry } from "./decision.js";
import type { ConflictRetryOptions } from "./decision.js";
import { Collection } from "./documents.js";
import { EventStore } from "./events.js";
import type { EventStoreOptions } from "./events.js";
import { base64Of } from "./extjson.js";
import type { Isolation } from "./operations.js";
import { Prom } from "./prom.js";
import type { AnyEvents, Durability } from "./query.js";
import { sqlResult, statementOf } from "./sql.js";
import type { Row, SqlArguments, SqlParam, SqlResult, WireSqlResult } from "./sql.js";
import { InteractiveTransaction, transact } from "./transaction.js";
import type { Committed, TransactionBuilder, TransactionOptions } from "./transaction.js";
import { Transport } from "./transport.js";
import type { RetryOptions } from "./transport.js";

/** Options of a client. */
export interface RopewalkOptions {
  /** Address of the server's HTTP port, such as `http://127.0.0.1:4780`. */
  url: string;
  /** Token of the server, `rw_…`. */
  token?: string;
  /** Name and password instead of a token. */
  user?: string;
  password?: string;
  /** Default: the global `fetch`. */
  fetch?: typeof fetch;
  /** Longest time of one attempt of a request, milliseconds; of a stream, until it begins. Default 130,000. */
  timeoutMs?: number;
  /** Repetition of requests that may be repeated, after network errors and overload. */
  retry?: RetryOptions;
}

/** A database on a Ropewalk server. It has no connection to close: `fetch` manages them. */
export class Ropewalk {
  /** Queries in PromQL. */
  readonly prom: Prom;
  readonly #transport: Transport;

  constructor(options: RopewalkOptions) {
    const { attempts = 8, minDelayMs = 50, maxDelayMs = 2000 } = options.retry ?? {};
    this.#transport = new Transport({
      url: options.url.replace(/\/+$/, ""),
      authorization: authorization(options),
      fetch: options.fetch ?? ((...request) => globalThis.fetch(...request)),
      timeoutMs: options.timeoutMs ?? 130_000,
      retry: { attempts, minDelayMs, maxDelayMs },
    });
    this.prom = new Prom(this.#transport);
  }

  /** An event store. `S` maps the name of each event type to the type of its data. */
  events<S = AnyEvents>(store: string, options: EventStoreOptions<S> = {}): EventStore<S> {
    return new EventStore<S>(this.#transport, store, options);
  }

  /** A collection of documents, in the database `default` or another one. */
  collection<D extends object = Record<string, unknown>>(name: string, options: { database?: string } = {}): Collection<D> {
    return new Collection<D>(this.#transport, name, options.database ?? "default");
  }

  /**
   * Runs operations on all models in one commit and one request: all or none.
   *
   * `build` calls the operations on `tx` and returns those whose results are needed, one or an array. The
   * server runs a transaction again that conflicts with others; a network error repeats the request with its
   * idempotency key.
   *
   * @throws RopewalkError `condition_failed` and `precondition_failed`, with the index of the operation or
   * precondition; the codes of each operation.
   */
  transaction<const R>(build: (tx: TransactionBuilder) => R, options: TransactionOptions = {}): Promise<Committed<R>> {
    return transact(this.#transport, build, options);
  }

  /** Begins a transaction over several requests. Prefer {@link Ropewalk.transaction} unless it reads before it decides. */
  async begin(options: { isolation?: Isolation; durability?: Durability; signal?: AbortSignal } = {}): Promise<InteractiveTransaction> {
    const { signal, ...body } = options;
    // A transaction whose response was lost is rolled back by its idle time.
    const begun = await this.#transport.json<{ transaction: string; snapshot: number; idle_ms: number }>({
      method: "POST", path: "/v1/transactions/begin", body, repeatable: true, signal,
    });
    return new InteractiveTransaction(this.#transport, begun, signal);
  }

  /** Calls `work` again as long as it fails with a conflict: read, decide and write in it. */
  retry<T>(work: (attempt: number) => Promise<T>, options: ConflictRetryOptions = {}): Promise<T> {
    return retry(work, options);
  }

  /**
   * Runs one SQL statement; values in the template become parameters. It is sent once: for a write that has to
   * be repeated after a network error, use {@link Ropewalk.transaction}.
   */
  async sql<R = Row>(...statement: SqlArguments): Promise<SqlResult<R>> {
    const [result] = await this.#sql<R>(statementOf(statement));
    return result ?? { command: "", rowCount: 0, rows: [], columns: [] };
  }

  /** Rows of one SQL statement with parameters `$1`, `$2`, … */
  async query<R = Row>(text: string, params: readonly SqlParam[] = []): Promise<R[]> {
    return (await this.sql<R>(text, params)).rows;
  }

  /** Runs the statements of a script without parameters, and returns a result for each. */
  script(text: string): Promise<SqlResult[]> {
    return this.#sql<Row>({ sql: text });
  }

  async #sql<R>(body: object): Promise<SqlResult<R>[]> {
    const { results } = await this.#transport.json<{ results: WireSqlResult[] }>({ method: "POST", path: "/v1/sql", body, repeatable: false });
    return results.map((result) => sqlResult<R>(result));
  }
}

function authorization({ token, user, password }: RopewalkOptions): string | undefined {
  if (token !== undefined) return `Bearer ${token}`;
  return user === undefined ? undefined : `Basic ${base64Of(new TextEncoder().encode(`${user}:${password ?? ""}`))}`;
}
