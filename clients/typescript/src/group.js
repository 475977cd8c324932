/** Consumer groups: each event is processed by one of several consumers. */
import { RopewalkError, isRetryable } from "./error.js";
import { recorded, wireQuery } from "./query.js";
import { path, sleep } from "./transport.js";
/** Thrown by a handler: the event is parked and not delivered again. The message is the reason. */
export class Park extends Error {
    name = "Park";
}
/** Thrown by a handler: the event is delivered again after `pauseMs`. The message is the reason. */
export class RetryLater extends Error {
    name = "RetryLater";
    pauseMs;
    constructor(reason, options) {
        super(reason);
        this.pauseMs = options.pauseMs;
    }
}
/** Longest wait of a take, milliseconds: that of the server. */
const WAIT_MS = 20_000;
/** A consumer group of an event store. */
export class ConsumerGroup {
    name;
    #transport;
    #path;
    #options;
    /** @internal */
    constructor(transport, store, name, options) {
        this.name = name;
        this.#transport = transport;
        this.#path = path `/v1/stores/${store}/groups/${name}`;
        this.#options = options;
    }
    /** Creates the group with its options, or changes the settings of an existing one. Requires the right `admin`. */
    async create() {
        const { query, after, leaseMs, pauseMs, tries, pending, inOrder } = this.#options ?? {};
        const body = {
            query: query && wireQuery(query), after, lease_ms: leaseMs, pause_ms: pauseMs, tries, pending, in_order: inOrder,
        };
        return statusOf(await this.#transport.json({ method: "PUT", path: this.#path, body, repeatable: true }));
    }
    /** Settings and progress. */
    async status() {
        return statusOf(await this.#transport.json({ method: "GET", path: this.#path, repeatable: true }));
    }
    /** Deletes the group. Requires the right `admin`. */
    async delete() {
        await this.#transport.json({ method: "DELETE", path: this.#path, repeatable: false });
    }
    /** Takes events; null if there are none within `waitMs` (at most 20,000, default 0). `max`: 1 to 1,000. */
    async take(options = {}) {
        const { max, leaseMs, waitMs, signal } = options;
        const body = { max, lease_ms: leaseMs, wait_ms: waitMs };
        const taken = await this.#transport.json({ method: "POST", path: `${this.#path}/take`, body, repeatable: false, signal });
        if (taken.lease === null)
            return null;
        const events = taken.events.map(({ tries, event }) => ({ tries, event: recorded(event) }));
        return { id: taken.lease, until: taken.until, events };
    }
    /** Marks events as processed: these positions, or all of the lease. */
    acknowledge(lease, positions) {
        return this.#settle("acknowledge", { lease: lease.id, positions });
    }
    /** Delivers events again after the pause, default that of the group. Events without a try left are parked. */
    retry(lease, options = {}) {
        const { positions, pauseMs, reason } = options;
        return this.#settle("retry", { lease: lease.id, positions, pause_ms: pauseMs, reason });
    }
    /** Parks events: they are not delivered any more. */
    park(lease, options = {}) {
        return this.#settle("park", { lease: lease.id, ...options });
    }
    /** Extends the lease on its unsettled events, from now, and returns its new end. */
    async extend(lease, leaseMs) {
        const body = { lease: lease.id, lease_ms: leaseMs };
        return (await this.#transport.json({ method: "POST", path: `${this.#path}/extend`, body, repeatable: true })).until;
    }
    #settle(how, body) {
        // The lease makes a repetition harmless: positions that are settled already are only listed as lost.
        return this.#transport.json({ method: "POST", path: `${this.#path}/${how}`, body, repeatable: true });
    }
    /** Parked events by position; at most `limit` (1 to 1,000, default 100). */
    async parked(options = {}) {
        const query = new URLSearchParams(Object.entries(options).map(([name, value]) => [name, String(value)]));
        const { parked } = await this.#transport.json({ method: "GET", path: `${this.#path}/parked`, query, repeatable: true });
        return parked.map(({ tries, parked_at, reason, event }) => ({ tries, parkedAt: parked_at, reason, event: recorded(event) }));
    }
    /** Delivers parked events again, with all their tries: these positions, or all. */
    replayParked(positions) {
        return this.#settle("parked/replay", { positions });
    }
    /** Discards parked events: these positions, or all. */
    discardParked(positions) {
        return this.#settle("parked/discard", { positions });
    }
    /**
     * Processes events until the signal is aborted.
     *
     * An event whose handler returns is acknowledged. If the handler throws {@link Park}, the event is parked;
     * after any other error it is delivered again, with the message as the reason. Leases are extended while
     * handlers run. Each event is processed at least once, so handlers must tolerate repetitions.
     *
     * If the group has options, it is created first, which requires the right `admin`.
     *
     * @throws RopewalkError if the group cannot be read or its events cannot be taken, except for network errors
     * and overload, after which it continues.
     */
    async each(handler, options = {}) {
        const { signal } = options;
        const settings = this.#options ? await this.create() : await this.status();
        const work = new Work(this, handler, settings, options);
        const slots = Math.max(1, Math.min(options.concurrency ?? 8, 1000));
        let failures = 0;
        try {
            while (!signal?.aborted) {
                await work.below(settings.inOrder ? 1 : slots);
                work.throwFailure();
                if (signal?.aborted)
                    break;
                try {
                    // No more than can start at once, so that no event waits with a running lease.
                    const max = settings.inOrder ? slots : slots - work.running;
                    const lease = await this.take({ max, waitMs: WAIT_MS, ...(signal && { signal }) });
                    failures = 0;
                    if (lease)
                        work.start(lease);
                }
                catch (error) {
                    if (signal?.aborted)
                        break;
                    if (!isRetryable(error))
                        throw error;
                    options.onError?.(error, undefined);
                    await sleep(this.#transport.delay(++failures), signal).catch(() => { });
                }
            }
        }
        finally {
            await work.below(1);
        }
        work.throwFailure();
    }
}
/** The handlers of a consumer that run, and the settling of their events. */
class Work {
    group;
    handler;
    settings;
    options;
    running = 0;
    #failure;
    #wake;
    constructor(group, handler, settings, options) {
        this.group = group;
        this.handler = handler;
        this.settings = settings;
        this.options = options;
    }
    throwFailure() {
        if (this.#failure)
            throw this.#failure.error;
    }
    /** Waits until fewer than `count` events are in work. */
    async below(count) {
        while (this.running >= count)
            await new Promise((resolve) => (this.#wake = resolve));
    }
    #ended(count) {
        this.running -= count;
        this.#wake?.();
    }
    start(lease) {
        this.running += lease.events.length;
        const extend = setInterval(() => {
            this.group.extend(lease).catch((error) => this.options.onError?.(error, undefined));
        }, Math.max(10, this.settings.leaseMs / 3));
        const all = this.settings.inOrder ? this.#inOrder(lease) : Promise.all(lease.events.map((one) => this.#one(lease, one.event, one.tries)));
        all.catch((error) => (this.#failure ??= { error })).finally(() => clearInterval(extend));
    }
    async #inOrder(lease) {
        let left = lease.events.length;
        try {
            for (const { event, tries } of lease.events) {
                const isRetried = await this.#process(lease, event, tries);
                // A retry has returned the later events of the lease, too.
                if (isRetried)
                    return;
                this.#ended(1);
                left--;
            }
        }
        finally {
            this.#ended(left);
        }
    }
    async #one(lease, event, tries) {
        try {
            await this.#process(lease, event, tries);
        }
        finally {
            this.#ended(1);
        }
    }
    /** Runs the handler and settles the event; returns whether it is to be delivered again. */
    async #process(lease, event, tries) {
        const positions = [event.position];
        const { onError, signal } = this.options;
        let thrown;
        try {
            await this.handler(event, { tries, signal });
        }
        catch (error) {
            thrown = { error };
            onError?.(error, event);
        }
        try {
            const settled = await this.#settle(lease, positions, thrown);
            if (settled.lost.length > 0) {
                onError?.(new RopewalkError({ code: "lease_lost", detail: `the lease on position ${event.position} expired` }), event);
            }
        }
        catch (error) {
            // After its lease the event is delivered again.
            if (!isRetryable(error))
                throw error;
            onError?.(error, event);
            return true;
        }
        return thrown !== undefined && !(thrown.error instanceof Park);
    }
    #settle(lease, positions, thrown) {
        if (!thrown)
            return this.group.acknowledge(lease, positions);
        const { error } = thrown;
        const reason = error instanceof Error ? error.message : String(error);
        if (error instanceof Park)
            return this.group.park(lease, { positions, reason });
        return this.group.retry(lease, { positions, reason, ...(error instanceof RetryLater && { pauseMs: error.pauseMs }) });
    }
}
function statusOf({ name, lease_ms, pause_ms, tries, in_order, cursor, head, waiting, pending, leased, parked }) {
    return { name, leaseMs: lease_ms, pauseMs: pause_ms, tries, inOrder: in_order, cursor, head, waiting, pending, leased, parked };
}
//# sourceMappingURL=group.js.map