/** Event stores. */
import { combine, decide, retry } from "./decision.js";
import type { DecideOptions, Decision, Loaded, Model } from "./decision.js";
import { RopewalkError, isRetryable } from "./error.js";
import { ConsumerGroup } from "./group.js";
import type { GroupOptions } from "./group.js";
import { lineChunks } from "./lines.js";
import type { QueryOfAll } from "./operations.js";
import { itemsOf, listOf, recorded, wireCondition, wireEvent, wireQuery } from "./query.js";
import type {
  AppendCondition, Durability, EventQuery, EventType, NewEvent, RecordedEvent, Selected, TagRules, WireRecorded,
} from "./query.js";
import { batches } from "./subscription.js";
import type { SubscribeOptions } from "./subscription.js";
import { TransactionBuilder } from "./transaction.js";
import { chosenKey, networkError, path, sleep } from "./transport.js";
import type { Transport } from "./transport.js";

/** Options of an event store. */
export interface EventStoreOptions<S> {
  /** Tags of an event by its type, derived from its data, in addition to those of each event. */
  tags?: TagRules<S>;
}

/** Options of an append. */
export interface AppendOptions<S> {
  /** All must hold; otherwise nothing is appended (`condition_failed`, with `conflict`). */
  conditions?: AppendCondition<EventType<S>> | readonly AppendCondition<EventType<S>>[];
  /**
   * Default: a new random key, with which the append is sent again after a network error and takes effect once.
   * `false`, and a condition with prefixes: no key, and no repetition.
   */
  idempotencyKey?: string | false;
  /** If a condition fails because of exactly these events, by their ids, their positions are returned. */
  repeatById?: boolean;
  /** Position reached in an upstream source; must increase, and is stored in the same commit. */
  tracking?: { readonly source: string; readonly position: number };
  durability?: Durability;
  signal?: AbortSignal;
}

/** Positions of appended events, and the number of their commit. */
export interface Appended {
  readonly first: number;
  readonly last: number;
  readonly seq: number;
}

/** Options of a read. */
export interface ReadOptions {
  /** First position, inclusive, in the direction of reading. */
  from?: number;
  /** Only events after this position. */
  after?: number;
  /** Only events before this position. */
  before?: number;
  /** Newest first. */
  backwards?: boolean;
  /** Most events. */
  limit?: number;
  signal?: AbortSignal;
}

/** The events of a read, as an async iterator. */
export interface EventStream<E> extends AsyncIterable<E> {
  /** Last position of the store when it was read; 0 for an empty store. */
  readonly head: number;
  /** All events. */
  toArray(): Promise<E[]>;
}

/** Options of {@link EventStore.follow}. */
export interface FollowOptions<Q> extends Pick<SubscribeOptions<Q>, "query" | "signal" | "onCaughtUp" | "onDisconnect"> {
  /** Most events of one transaction. Default 100. */
  batch?: number;
}

/** Position of a consumer in an event store. */
export class Checkpoint {
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal */
  constructor(transport: Transport, store: string, readonly consumer: string) {
    this.#transport = transport;
    this.#path = path`/v1/stores/${store}/checkpoints/${consumer}`;
  }

  /** The recorded position; 0 without a checkpoint. */
  async get(options: { signal?: AbortSignal } = {}): Promise<number> {
    const found = await this.#transport.json<{ position: number | null }>({ method: "GET", path: this.#path, repeatable: true, signal: options.signal });
    return found.position ?? 0;
  }

  /** Records a position, at most the last of the store. */
  async set(position: number): Promise<void> {
    await this.#transport.json({ method: "PUT", path: this.#path, body: { position }, repeatable: false });
  }

  /** Removes the checkpoint. */
  async delete(): Promise<void> {
    await this.#transport.json({ method: "DELETE", path: this.#path, repeatable: false });
  }
}

/** An event store. `S` maps the name of each event type to the type of its data. */
export class EventStore<S> {
  readonly name: string;
  readonly tagRules: TagRules<S>;
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal */
  constructor(transport: Transport, name: string, options: EventStoreOptions<S>) {
    this.#transport = transport;
    this.name = name;
    this.tagRules = options.tags ?? {};
    this.#path = path`/v1/stores/${name}`;
  }

  /** Appends events atomically; they are durable when the promise resolves. The first append creates the store. */
  async append(events: NewEvent<S> | readonly NewEvent<S>[], options: AppendOptions<S> = {}): Promise<Appended> {
    const conditions = listOf<AppendCondition>(options.conditions);
    const hasPrefixes = conditions.some(({ failIfEventsMatch }) =>
      itemsOf(failIfEventsMatch).some((item) => item.typePrefixes || item.tagPrefixes));
    const { idempotencyKey, repeatById, tracking, durability, signal } = options;
    const key = chosenKey(idempotencyKey ?? (hasPrefixes || repeatById ? false : undefined));
    return this.#transport.json<Appended>({
      method: "POST",
      path: `${this.#path}/events`,
      headers: key === undefined ? {} : { "idempotency-key": key },
      body: {
        events: listOf<NewEvent<S>>(events).map((event) => wireEvent(this.tagRules, event)),
        ...(conditions.length > 0 && { conditions: conditions.map(wireCondition) }),
        ...(repeatById && { repeat_by_id: true }), ...(tracking && { tracking }), ...(durability && { durability }),
      },
      repeatable: key !== undefined || repeatById === true,
      signal,
    });
  }

  /** Reads the matching events as of one position. The stream is read as it is iterated. */
  async read<const Q extends EventQuery<EventType<S>> = QueryOfAll>(query?: Q, options: ReadOptions = {}): Promise<EventStream<RecordedEvent<S, Selected<S, Q>>>> {
    type E = RecordedEvent<S, Selected<S, Q>>;
    const { signal, ...range } = options;
    const call = (range: Omit<ReadOptions, "signal">) => this.#transport.stream({
      method: "POST", path: `${this.#path}/events:query`, headers: { accept: "application/x-ndjson" },
      body: { query: wireQuery(query ?? {}), ...range }, repeatable: true, signal,
    });
    const first = await call(range);
    const head = Number(first.headers.get("ropewalk-head") ?? 0);
    const transport = this.#transport;
    async function* events(): AsyncGenerator<E, void, void> {
      let stream = first;
      let left = range.limit;
      const before = Math.min(range.before ?? Infinity, head + 1);
      // A new connection reads the rest of the same positions.
      let rest: Omit<ReadOptions, "signal"> = { ...range, before };
      for (let failures = 0; ; ) {
        try {
          for await (const lines of lineChunks(stream.body)) {
            for (const line of lines) {
              if (line === "") continue;
              const event = recorded<E>(JSON.parse(line) as WireRecorded);
              failures = 0;
              rest = range.backwards ? { ...rest, before: event.position } : { ...rest, after: event.position };
              // It is inclusive, and the rest starts after a position.
              delete rest.from;
              if (left !== undefined) rest.limit = --left;
              yield event;
            }
          }
          return;
        } catch (error) {
          const failure = networkError(error, signal);
          if (left === 0) return;
          if (!isRetryable(failure) || ++failures > 3) throw failure;
        } finally {
          stream.cancel(new RopewalkError({ code: "network", detail: "the read ended" }));
        }
        await sleep(transport.delay(failures), signal);
        stream = await call(rest);
      }
    }
    const stream = events();
    return {
      head,
      [Symbol.asyncIterator]: () => stream,
      toArray: async () => {
        const all: E[] = [];
        for await (const event of stream) all.push(event);
        return all;
      },
    };
  }

  /** The newest matching event, or null. */
  async last<const Q extends EventQuery<EventType<S>> = QueryOfAll>(query?: Q): Promise<RecordedEvent<S, Selected<S, Q>> | null> {
    const { event } = await this.#ask<{ event: WireRecorded | null }>("last", { query: wireQuery(query ?? {}) });
    return event && recorded<RecordedEvent<S, Selected<S, Q>>>(event);
  }

  /** Number of matching events; they are not read. */
  async count(query: EventQuery<EventType<S>> = {}): Promise<number> {
    return (await this.#ask<{ count: number }>("count", { query: wireQuery(query) })).count;
  }

  /** Whether an event matches, after a position if given. */
  async exists(query: EventQuery<EventType<S>> = {}, options: { after?: number } = {}): Promise<boolean> {
    return (await this.#ask<{ exists: boolean }>("exists", { query: wireQuery(query), ...options })).exists;
  }

  #ask<T>(question: string, body: object): Promise<T> {
    return this.#transport.json<T>({ method: "POST", path: `${this.#path}/events:${question}`, body, repeatable: true });
  }

  /** Last position of the store; 0 for an empty store. */
  async head(): Promise<number> {
    const { head } = await this.#transport.json<{ head: number | null }>({ method: "GET", path: `${this.#path}/head`, repeatable: true });
    return head ?? 0;
  }

  /** Declares a model: a state computed from the events of a query. Returns its argument, with types inferred. */
  model<State, const Q extends EventQuery<EventType<S>>>(model: {
    query: Q;
    initial: () => State;
    evolve: (state: State, event: RecordedEvent<S, Selected<S, Q>>) => State;
  }): Model<S, State> {
    return model as unknown as Model<S, State>;
  }

  /**
   * One model of several, whose state has the state of each under its name. All are read in one snapshot, and
   * a change of any of them is a conflict.
   */
  combine<States extends Record<string, unknown>>(models: { [K in keyof States]: Model<S, States[K]> }): Model<S, States> {
    return combine(models);
  }

  /** Reads the events of a model and computes its state, with the condition for a later append. */
  async load<State>(model: Model<S, State>, options: { signal?: AbortSignal } = {}): Promise<Loaded<S, State>> {
    const events = await this.read(model.query, options);
    let state = model.initial();
    for await (const event of events) state = model.evolve(state, event as RecordedEvent<S>);
    return { state, head: events.head, condition: { failIfEventsMatch: model.query, after: events.head } };
  }

  /**
   * Decides on the state of a model and appends the resulting events, with other operations in the same
   * commit, if no event of the model was appended since. After such a conflict it decides again.
   */
  decide<State>(options: DecideOptions<S, State>): Promise<Decision<S, State>> {
    return decide(this.#transport, this, options);
  }

  /**
   * Delivers the matching events, then each new one as soon as it is durable. It reconnects after network
   * errors and resumes by position, so no event is missed or repeated. It ends by `break`, by the signal, or by
   * an error that a repetition does not remove.
   */
  async *subscribe<const Q extends EventQuery<EventType<S>> = QueryOfAll>(
    options: SubscribeOptions<Q> = {},
  ): AsyncGenerator<RecordedEvent<S, Selected<S, Q>>, void, void> {
    for await (const batch of batches<RecordedEvent<S, Selected<S, Q>>>(this.#transport, this.name, options)) {
      for (const event of batch) {
        if (options.signal?.aborted) return;
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
  async follow<const Q extends EventQuery<EventType<S>> = QueryOfAll>(
    consumer: string,
    handler: (event: RecordedEvent<S, Selected<S, Q>>, tx: TransactionBuilder) => unknown,
    options: FollowOptions<Q> = {},
  ): Promise<void> {
    const { batch: max = 100, signal, ...subscription } = options;
    let done = await this.checkpoint(consumer).get(signal ? { signal } : {});
    type E = RecordedEvent<S, Selected<S, Q>>;
    const arriving = batches<E>(this.#transport, this.name, { ...subscription, after: done, ...(signal && { signal }) });
    for await (const batch of arriving) {
      for (let at = 0; at < batch.length && !signal?.aborted; at += max) {
        const events = batch.slice(at, at + max);
        const position = events.at(-1)?.position ?? done;
        await retry(() => this.#step(consumer, events, handler, done, position));
        done = position;
      }
    }
  }

  async #step<E>(consumer: string, events: E[], handler: (event: E, tx: TransactionBuilder) => unknown, done: number, position: number): Promise<void> {
    const tx = new TransactionBuilder();
    for (const event of events) await handler(event, tx);
    tx.checkpoint(this, consumer, position, { expect: done });
    try {
      await tx.send(this.#transport, {});
    } catch (error) {
      const isFenced = error instanceof RopewalkError && error.code === "precondition_failed" && error.operation === tx.operations.length - 1;
      if (!isFenced) throw error;
      throw new RopewalkError({ code: "fenced", status: error.status, detail: `another worker moved the checkpoint of ${consumer}: ${error.detail}`, cause: error });
    }
  }

  /** A consumer group of the store. With options, `each` and `create` set them. */
  group<const Q extends EventQuery<EventType<S>> = QueryOfAll>(name: string, options?: GroupOptions<Q>): ConsumerGroup<RecordedEvent<S, Selected<S, Q>>> {
    return new ConsumerGroup(this.#transport, this.name, name, options);
  }

  /** The checkpoint of a consumer. */
  checkpoint(consumer: string): Checkpoint {
    return new Checkpoint(this.#transport, this.name, consumer);
  }

  /** Positions of all consumers with a checkpoint. */
  async checkpoints(): Promise<Map<string, number>> {
    type Listed = { checkpoints: { consumer: string; position: number }[]; next?: string };
    const all = new Map<string, number>();
    let after: string | undefined;
    do {
      const query = new URLSearchParams(after === undefined ? {} : { after });
      const page: Listed = await this.#transport.json({ method: "GET", path: `${this.#path}/checkpoints`, query, repeatable: true });
      for (const { consumer, position } of page.checkpoints) all.set(consumer, position);
      after = page.next;
    } while (after !== undefined);
    return all;
  }

  /** Upstream position stored with an append; null for an unknown source. */
  async tracking(source: string): Promise<number | null> {
    const found = await this.#transport.json<{ position: number | null }>({ method: "GET", path: this.#path + path`/tracking/${source}`, repeatable: true });
    return found.position;
  }

  /** Creates the store if it does not exist. */
  async create(): Promise<void> {
    await this.#transport.json({ method: "PUT", path: this.#path, repeatable: true });
  }

  /** Deletes the store with its events, checkpoints and groups. */
  async delete(): Promise<void> {
    await this.#transport.json({ method: "DELETE", path: this.#path, repeatable: false });
  }
}
