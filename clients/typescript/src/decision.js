/** Decisions: events are read, reduced to a state, and new events are appended only if nothing has changed. */
import { RopewalkError, isConflict } from "./error.js";
import { itemsOf, listOf, matches } from "./query.js";
import { TransactionBuilder } from "./transaction.js";
import { sleep } from "./transport.js";
/** @internal */
export async function decide(transport, store, { model, decide, attempts = 20, ...options }) {
    return retry(async (attempt) => {
        const { state, head, condition } = await store.load(model, options.signal ? { signal: options.signal } : {});
        const tx = new TransactionBuilder();
        const events = listOf(await decide(state, tx));
        if (events.length === 0 && tx.operations.length === 0) {
            return { state, events, first: null, last: null, seq: null, attempts: attempt };
        }
        let append;
        if (events.length > 0)
            append = tx.append(store, events, { conditions: condition });
        else
            tx.require.events(store, model.query, { after: head });
        const { seq } = await tx.send(transport, options);
        const { first, last } = (await append) ?? { first: null, last: null };
        return { state, events, first, last, seq, attempts: attempt };
    }, { attempts, ...(options.signal && { signal: options.signal }) });
}
/** Longest pause after a conflict, milliseconds. */
const PAUSE_MS_MAX = 50;
/** Calls `work` again as long as it fails with a conflict ({@link isConflict}). Other errors are thrown at once. */
export async function retry(work, { attempts = 20, signal } = {}) {
    for (let attempt = 1;; attempt++) {
        try {
            return await work(attempt);
        }
        catch (error) {
            if (attempt >= attempts || !isConflict(error))
                throw error;
            // A random pause separates writers that met each other.
            if (attempt > 1)
                await sleep(Math.random() * Math.min(PAUSE_MS_MAX, 2 ** attempt), signal);
        }
    }
}
/**
 * One model of several, whose state has the state of each under its name. All are read in one snapshot,
 * and a change of any of them is a conflict.
 */
export function combine(parts) {
    const entries = Object.entries(parts);
    if (entries.length === 0)
        throw new RopewalkError({ code: "invalid_argument", detail: "no model to combine" });
    return {
        query: entries.flatMap(([, model]) => itemsOf(model.query)),
        initial: () => Object.fromEntries(entries.map(([name, model]) => [name, model.initial()])),
        evolve: (state, event) => {
            const changed = entries.filter(([, model]) => matches(model.query, event));
            const next = changed.map(([name, model]) => [name, model.evolve(state[name], event)]);
            return { ...state, ...Object.fromEntries(next) };
        },
    };
}
//# sourceMappingURL=decision.js.map