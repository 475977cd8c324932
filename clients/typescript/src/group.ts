/** Consumer groups: each event is processed by one of several consumers. */
import { RopewalkError, isRetryable } from "./error.js";
import { recorded, wireQuery } from "./query.js";
import type { EventQuery, WireRecorded } from "./query.js";
import { path, sleep } from "./transport.js";
import type { Transport } from "./transport.js";

/** Settings of a group. Absent: the default. */
export interface GroupOptions<Q> {
  /** Events to deliver. Default: every event. */
  query?: Q;
  /** Start position of a new group. Default: before the first event. */
  after?: number;
  /** Duration of a lease, milliseconds. Default 30,000. */
  leaseMs?: number;
  /** Pause before a retry, milliseconds. Default 1,000. */
  pauseMs?: number;
  /** Deliveries of an event before it is parked. Default 10. */
  tries?: number;
  /** Most events that are delivered and not settled. Default 1,000. */
  pending?: number;
  /** One batch at a time, in order of position. Default false. */
  inOrder?: boolean;
}

/** Settings and progress of a group. */
export interface GroupStatus {
  readonly name: string;
  readonly leaseMs: number;
  readonly pauseMs: number;
  readonly tries: number;
  readonly inOrder: boolean;
  /** Matching events up to this position were delivered at least once. */
  readonly cursor: number;
  /** Last position of the store. */
  readonly head: number;
  /** Matching events that were not delivered yet. */
  readonly waiting: number;
  /** Events that were delivered and not settled. */
  readonly pending: number;
  /** Pending events with a valid lease. */
  readonly leased: number;
  readonly parked: number;
}

/** An event that is not delivered any more. */
export interface ParkedEvent<E> {
  readonly event: E;
  readonly tries: number;
  /** RFC 3339 in UTC. */
  readonly parkedAt: string;
  readonly reason: string;
}

/** Thrown by a handler: the event is parked and not delivered again. The message is the reason. */
export class Park extends Error {
  override readonly name = "Park";
}

/** Thrown by a handler: the event is delivered again after `pauseMs`. The message is the reason. */
export class RetryLater extends Error {
  override readonly name = "RetryLater";
  readonly pauseMs: number;

  constructor(reason: string, options: { pauseMs: number }) {
    super(reason);
    this.pauseMs = options.pauseMs;
  }
}

/** Delivery of an event to a handler. */
export interface Delivery {
  /** Number of this delivery of the event, from 1. */
  readonly tries: number;
  /** The signal of {@link ConsumerGroup.each}. */
  readonly signal: AbortSignal | undefined;
}

/** Options of {@link ConsumerGroup.each}. */
export interface EachOptions<E> {
  /** Events that are processed at the same time; 1 in a group with `inOrder`. Default 8. */
  concurrency?: number;
  /** Ends the loop after the running handlers, without an error. */
  signal?: AbortSignal;
  /** Called with errors that do not end the loop: of handlers (with the event), and of the connection. */
  onError?: (error: unknown, event: E | undefined) => void;
}

/** Events that this consumer holds until the lease expires. */
export interface Lease<E> {
  readonly id: number;
  /** End of the lease, RFC 3339 in UTC. */
  readonly until: string;
  readonly events: readonly { readonly tries: number; readonly event: E }[];
}

/** Result of a request that settles events. */
export interface Settled {
  readonly done: number;
  readonly parked: number;
  /** Positions that were settled already, or delivered to another consumer after the lease expired. */
  readonly lost: readonly number[];
}

/** Longest wait of a take, milliseconds: that of the server. */
const WAIT_MS = 20_000;

/** A consumer group of an event store. */
export class ConsumerGroup<E extends { readonly position: number }> {
  readonly name: string;
  readonly #transport: Transport;
  readonly #path: string;
  readonly #options: GroupOptions<EventQuery> | undefined;

  /** @internal */
  constructor(transport: Transport, store: string, name: string, options: GroupOptions<EventQuery> | undefined) {
    this.name = name;
    this.#transport = transport;
    this.#path = path`/v1/stores/${store}/groups/${name}`;
    this.#options = options;
  }

  /** Creates the group with its options, or changes the settings of an existing one. Requires the right `admin`. */
  async create(): Promise<GroupStatus> {
    const { query, after, leaseMs, pauseMs, tries, pending, inOrder } = this.#options ?? {};
    const body = {
      query: query && wireQuery(query), after, lease_ms: leaseMs, pause_ms: pauseMs, tries, pending, in_order: inOrder,
    };
    return statusOf(await this.#transport.json<WireGroup>({ method: "PUT", path: this.#path, body, repeatable: true }));
  }

  /** Settings and progress. */
  async status(): Promise<GroupStatus> {
    return statusOf(await this.#transport.json<WireGroup>({ method: "GET", path: this.#path, repeatable: true }));
  }

  /** Deletes the group. Requires the right `admin`. */
  async delete(): Promise<void> {
    await this.#transport.json({ method: "DELETE", path: this.#path, repeatable: false });
  }

  /** Takes events; null if no event arrives within `waitMs` (at most 20,000, default 0). `max`: 1 to 1,000. */
  async take(options: { max?: number; leaseMs?: number; waitMs?: number; signal?: AbortSignal } = {}): Promise<Lease<E> | null> {
    const { max, leaseMs, waitMs, signal } = options;
    const body = { max, lease_ms: leaseMs, wait_ms: waitMs };
    type Taken = { lease: number | null; until: string; events: { tries: number; event: WireRecorded }[] };
    const taken = await this.#transport.json<Taken>({ method: "POST", path: `${this.#path}/take`, body, repeatable: false, signal });
    if (taken.lease === null) return null;
    const events = taken.events.map(({ tries, event }) => ({ tries, event: recorded<E>(event) }));
    return { id: taken.lease, until: taken.until, events };
  }

  /** Marks events as processed: these positions, or all of the lease. */
  acknowledge(lease: Lease<E>, positions?: readonly number[]): Promise<Settled> {
    return this.#settle("acknowledge", { lease: lease.id, positions });
  }

  /** Delivers events again after the pause, default that of the group. Events without a try left are parked. */
  retry(lease: Lease<E>, options: { positions?: readonly number[]; pauseMs?: number; reason?: string } = {}): Promise<Settled> {
    const { positions, pauseMs, reason } = options;
    return this.#settle("retry", { lease: lease.id, positions, pause_ms: pauseMs, reason });
  }

  /** Parks events: they are not delivered any more. */
  park(lease: Lease<E>, options: { positions?: readonly number[]; reason?: string } = {}): Promise<Settled> {
    return this.#settle("park", { lease: lease.id, ...options });
  }

  /** Extends the lease on its unsettled events, from now, and returns its new end. */
  async extend(lease: Lease<E>, leaseMs?: number): Promise<string> {
    const body = { lease: lease.id, lease_ms: leaseMs };
    return (await this.#transport.json<{ until: string }>({ method: "POST", path: `${this.#path}/extend`, body, repeatable: true })).until;
  }

  #settle(how: string, body: object): Promise<Settled> {
    // The lease makes a repetition harmless: positions that are settled already are only listed as lost.
    return this.#transport.json<Settled>({ method: "POST", path: `${this.#path}/${how}`, body, repeatable: true });
  }

  /** Parked events by position; at most `limit` (1 to 1,000, default 100). */
  async parked(options: { after?: number; limit?: number } = {}): Promise<ParkedEvent<E>[]> {
    const query = new URLSearchParams(Object.entries(options).map(([name, value]) => [name, String(value)]));
    type Listed = { parked: { tries: number; parked_at: string; reason: string; event: WireRecorded }[] };
    const { parked } = await this.#transport.json<Listed>({ method: "GET", path: `${this.#path}/parked`, query, repeatable: true });
    return parked.map(({ tries, parked_at, reason, event }) => ({ tries, parkedAt: parked_at, reason, event: recorded<E>(event) }));
  }

  /** Delivers parked events again, with all their tries: these positions, or all. */
  replayParked(positions?: readonly number[]): Promise<Settled> {
    return this.#settle("parked/replay", { positions });
  }

  /** Discards parked events: these positions, or all. */
  discardParked(positions?: readonly number[]): Promise<Settled> {
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
  async each(handler: (event: E, delivery: Delivery) => unknown, options: EachOptions<E> = {}): Promise<void> {
    const { signal } = options;
    const settings = this.#options ? await this.create() : await this.status();
    const work = new Work(this, handler, settings, options);
    const slots = Math.max(1, Math.min(options.concurrency ?? 8, 1000));
    let failures = 0;
    try {
      while (!signal?.aborted) {
        await work.below(settings.inOrder ? 1 : slots);
        work.throwFailure();
        if (signal?.aborted) break;
        try {
          // No more than can start at once, so that no event waits with a running lease.
          const max = settings.inOrder ? slots : slots - work.running;
          const lease = await this.take({ max, waitMs: WAIT_MS, ...(signal && { signal }) });
          failures = 0;
          if (lease) work.start(lease);
        } catch (error) {
          if (signal?.aborted) break;
          if (!isRetryable(error)) throw error;
          options.onError?.(error, undefined);
          await sleep(this.#transport.delay(++failures), signal).catch(() => {});
        }
      }
    } finally {
      await work.below(1);
    }
    work.throwFailure();
  }
}

/** The handlers of a consumer that run, and the settling of their events. */
class Work<E extends { readonly position: number }> {
  running = 0;
  #failure: { error: unknown } | undefined;
  #wake: (() => void) | undefined;

  constructor(
    readonly group: ConsumerGroup<E>,
    readonly handler: (event: E, delivery: Delivery) => unknown,
    readonly settings: GroupStatus,
    readonly options: EachOptions<E>,
  ) {}

  throwFailure(): void {
    if (this.#failure) throw this.#failure.error;
  }

  /** Waits until fewer than `count` events are in work. */
  async below(count: number): Promise<void> {
    while (this.running >= count) await new Promise<void>((resolve) => (this.#wake = resolve));
  }

  #ended(count: number): void {
    this.running -= count;
    this.#wake?.();
  }

  start(lease: Lease<E>): void {
    this.running += lease.events.length;
    const extend = setInterval(() => {
      this.group.extend(lease).catch((error: unknown) => this.options.onError?.(error, undefined));
    }, Math.max(10, this.settings.leaseMs / 3));
    const all = this.settings.inOrder ? this.#inOrder(lease) : Promise.all(lease.events.map((one) => this.#one(lease, one.event, one.tries)));
    all.catch((error: unknown) => (this.#failure ??= { error })).finally(() => clearInterval(extend));
  }

  async #inOrder(lease: Lease<E>): Promise<void> {
    let left = lease.events.length;
    try {
      for (const { event, tries } of lease.events) {
        const isRetried = await this.#process(lease, event, tries);
        // A retry has returned the later events of the lease, too.
        if (isRetried) return;
        this.#ended(1);
        left--;
      }
    } finally {
      this.#ended(left);
    }
  }

  async #one(lease: Lease<E>, event: E, tries: number): Promise<void> {
    try {
      await this.#process(lease, event, tries);
    } finally {
      this.#ended(1);
    }
  }

  /** Runs the handler and settles the event; returns whether it is to be delivered again. */
  async #process(lease: Lease<E>, event: E, tries: number): Promise<boolean> {
    const positions = [event.position];
    const { onError, signal } = this.options;
    let thrown: { error: unknown } | undefined;
    try {
      await this.handler(event, { tries, signal });
    } catch (error) {
      thrown = { error };
      onError?.(error, event);
    }
    try {
      const settled = await this.#settle(lease, positions, thrown);
      if (settled.lost.length > 0) {
        onError?.(new RopewalkError({ code: "lease_lost", detail: `the lease on position ${event.position} expired` }), event);
      }
    } catch (error) {
      // After its lease the event is delivered again.
      if (!isRetryable(error)) throw error;
      onError?.(error, event);
      return true;
    }
    return thrown !== undefined && !(thrown.error instanceof Park);
  }

  #settle(lease: Lease<E>, positions: number[], thrown: { error: unknown } | undefined): Promise<Settled> {
    if (!thrown) return this.group.acknowledge(lease, positions);
    const { error } = thrown;
    const reason = error instanceof Error ? error.message : String(error);
    if (error instanceof Park) return this.group.park(lease, { positions, reason });
    return this.group.retry(lease, { positions, reason, ...(error instanceof RetryLater && { pauseMs: error.pauseMs }) });
  }
}

interface WireGroup {
  name: string;
  lease_ms: number;
  pause_ms: number;
  tries: number;
  in_order: boolean;
  cursor: number;
  head: number;
  waiting: number;
  pending: number;
  leased: number;
  parked: number;
}

function statusOf({ name, lease_ms, pause_ms, tries, in_order, cursor, head, waiting, pending, leased, parked }: WireGroup): GroupStatus {
  return { name, leaseMs: lease_ms, pauseMs: pause_ms, tries, inOrder: in_order, cursor, head, waiting, pending, leased, parked };
}
