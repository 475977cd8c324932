/** The client. */
import { retry } from "./decision.js";
import { Collection } from "./documents.js";
import { EventStore } from "./events.js";
import { base64Of } from "./extjson.js";
import { Prom } from "./prom.js";
import { sqlResult, statementOf } from "./sql.js";
import { InteractiveTransaction, transact } from "./transaction.js";
import { Transport } from "./transport.js";
/** A database on a Ropewalk server. It has no connection to close: `fetch` manages them. */
export class Ropewalk {
    /** Queries in PromQL. */
    prom;
    #transport;
    constructor(options) {
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
    events(store, options = {}) {
        return new EventStore(this.#transport, store, options);
    }
    /** A collection of documents, in the database `default` or another one. */
    collection(name, options = {}) {
        return new Collection(this.#transport, name, options.database ?? "default");
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
    transaction(build, options = {}) {
        return transact(this.#transport, build, options);
    }
    /** Begins a transaction over several requests. Prefer {@link Ropewalk.transaction} unless it reads before it decides. */
    async begin(options = {}) {
        const { signal, ...body } = options;
        // A transaction whose response was lost is rolled back by its idle time.
        const begun = await this.#transport.json({
            method: "POST", path: "/v1/transactions/begin", body, repeatable: true, signal,
        });
        return new InteractiveTransaction(this.#transport, begun, signal);
    }
    /** Calls `work` again as long as it fails with a conflict: read, decide and write in it. */
    retry(work, options = {}) {
        return retry(work, options);
    }
    /**
     * Runs one SQL statement; values in the template become parameters. It is sent once: for a write that has to
     * be repeated after a network error, use {@link Ropewalk.transaction}.
     */
    async sql(...statement) {
        const [result] = await this.#sql(statementOf(statement));
        return result ?? { command: "", rowCount: 0, rows: [], columns: [] };
    }
    /** Rows of one SQL statement with parameters `$1`, `$2`, … */
    async query(text, params = []) {
        return (await this.sql(text, params)).rows;
    }
    /** Runs the statements of a script without parameters, and returns a result for each. */
    script(text) {
        return this.#sql({ sql: text });
    }
    async #sql(body) {
        const { results } = await this.#transport.json({ method: "POST", path: "/v1/sql", body, repeatable: false });
        return results.map((result) => sqlResult(result));
    }
}
function authorization({ token, user, password }) {
    if (token !== undefined)
        return `Bearer ${token}`;
    return user === undefined ? undefined : `Basic ${base64Of(new TextEncoder().encode(`${user}:${password ?? ""}`))}`;
}
//# sourceMappingURL=client.js.map