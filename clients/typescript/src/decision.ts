/** Decisions: events are read, reduced to a state, and new events are appended only if nothing has changed. */
import { isConflict } from "./error.js";
import type { EventStore } from "./events.js";
import type { AppendedPositions, Operation } from "./operations.js";
import { itemsOf, listOf, matches } from "./query.js";
import type { AppendCondition, EventQuery, EventType, NewEvent, QueryItem, RecordedEvent } from "./query.js";
import { TransactionBuilder } from "./transaction.js";
import type { TransactionOptions } from "./transaction.js";
import type { Transport } from "./transport.js";
import { sleep } from "./transport.js";

/** A state that is computed from the events of a query. */
export interface Model<S, State> {
  readonly query: EventQuery<EventType<S>>;
  /** The state before the first event; called for each decision. */
  readonly initial: () => State;
  /** Returns the state after an event. It is called in order of position, with matching events only. */
  readonly evolve: (state: State, event: RecordedEvent<S>) => State;
}

/** A model as of a position. */
export interface Loaded<S, State> {
  readonly state: State;
  /** Last position of the store when it was read; 0 for an empty store. */
  readonly head: number;
  /** Fails an append if an event that the state depends on was appended since. */
  readonly condition: AppendCondition<EventType<S>>;
}

/** Options of {@link EventStore.decide}. */
export interface DecideOptions<S, State> extends Omit<TransactionOptions, "idempotencyKey"> {
  model: Model<S, State>;
  /**
   * Returns the events to append for the state, possibly none. Operations on `tx` are part of the same commit.
   * It is called again, with a new state, after a conflict. An error that it throws ends the decision.
   */
  decide: (state: State, tx: TransactionBuilder) => Decided<S> | Promise<Decided<S>>;
  /** Most calls of `decide`. Default 20; then the conflict is thrown. */
  attempts?: number;
}

/** Events of a decision. */
export type Decided<S> = NewEvent<S> | readonly NewEvent<S>[];

/** A decision that was committed. */
export interface Decision<S, State> {
  /** The state on which it was made. */
  readonly state: State;
  readonly events: readonly NewEvent<S>[];
  /** Positions of the events; null without events. */
  readonly first: number | null;
  readonly last: number | null;
  /** Number of the commit; null if there was nothing to write. */
  readonly seq: number | null;
  /** Calls of `decide`. */
  readonly attempts: number;
}

/** @internal */
export async function decide<S, State>(
  transport: Transport,
  store: EventStore<S>,
  { model, decide, attempts = 20, ...options }: DecideOptions<S, State>,
): Promise<Decision<S, State>> {
  return retry(async (attempt) => {
    const { state, head, condition } = await store.load(model, options.signal ? { signal: options.signal } : {});
    const tx = new TransactionBuilder();
    const events = listOf<NewEvent<S>>(await decide(state, tx));
    if (events.length === 0 && tx.operations.length === 0) {
      return { state, events, first: null, last: null, seq: null, attempts: attempt };
    }
    let append: Operation<AppendedPositions> | undefined;
    if (events.length > 0) append = tx.append(store, events, { conditions: condition });
    else tx.require.events(store, model.query, { after: head });
    const { seq } = await tx.send(transport, options);
    const { first, last } = (await append) ?? { first: null, last: null };
    return { state, events, first, last, seq, attempts: attempt };
  }, { attempts, ...(options.signal && { signal: options.signal }) });
}

/** Options of {@link retry}. */
export interface ConflictRetryOptions {
  /** Most calls. Default 20; then the conflict is thrown. */
  attempts?: number;
  signal?: AbortSignal;
}

/** Longest pause after a conflict, milliseconds. */
const PAUSE_MS_MAX = 50;

/** Calls `work` again as long as it fails with a conflict ({@link isConflict}). Other errors are thrown at once. */
export async function retry<T>(work: (attempt: number) => Promise<T>, { attempts = 20, signal }: ConflictRetryOptions = {}): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work(attempt);
    } catch (error) {
      if (attempt >= attempts || !isConflict(error)) throw error;
      // A random pause separates writers that met each other.
      if (attempt > 1) await sleep(Math.random() * Math.min(PAUSE_MS_MAX, 2 ** attempt), signal);
    }
  }
}

/** @internal One model of several. */
export function combine<S, States extends Record<string, unknown>>(parts: { [K in keyof States]: Model<S, States[K]> }): Model<S, States> {
  const entries = Object.entries(parts) as [string, Model<S, unknown>][];
  return {
    query: entries.flatMap(([, model]) => itemsOf(model.query) as readonly QueryItem<EventType<S>>[]),
    initial: () => Object.fromEntries(entries.map(([name, model]) => [name, model.initial()])) as States,
    evolve: (state, event) => {
      const changed = entries.filter(([, model]) => matches(model.query, event));
      const next = changed.map(([name, model]) => [name, model.evolve(state[name], event)]);
      return { ...state, ...Object.fromEntries(next) } as States;
    },
  };
}
