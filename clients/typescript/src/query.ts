/** Events and queries: their types, and their form in requests. */

/** Event types of a store that are declared nowhere: any type, with any data. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type AnyEvents = Record<string, any>;

/** Names of the event types of a store. */
export type EventType<S> = keyof S & string;

/**
 * One alternative of a query. An event matches if its type is one of `types` or begins with one of
 * `typePrefixes` (or both are absent), if it has all `tags`, and a tag for each of `tagPrefixes`.
 */
export interface QueryItem<T extends string = string> {
  readonly types?: readonly T[];
  readonly tags?: readonly string[];
  readonly typePrefixes?: readonly string[];
  readonly tagPrefixes?: readonly string[];
}

/** Matches the events that match at least one item. `{}` matches every event; an empty list is an error. */
export type EventQuery<T extends string = string> = QueryItem<T> | readonly QueryItem<T>[];

type TypesOfItem<S, I> = I extends { readonly typePrefixes: unknown }
  ? EventType<S>
  : I extends { readonly types: readonly (infer T)[] } ? T & EventType<S> : EventType<S>;

/** Event types of `S` that the query `Q` can return. */
export type Selected<S, Q> = Q extends readonly (infer I)[] ? TypesOfItem<S, I> : TypesOfItem<S, Q>;

/** An event to append. */
export type NewEvent<S = AnyEvents> = {
  [T in EventType<S>]: {
    readonly type: T;
    /** JSON. An event with `undefined` has an empty payload. */
    readonly data: S[T];
    /** In addition to the tags that the store derives from the data. */
    readonly tags?: readonly string[];
    /** UUID chosen by the application. */
    readonly id?: string;
    readonly metadata?: Readonly<Record<string, string>>;
  };
}[EventType<S>];

/** An event of a store. */
export type RecordedEvent<S = AnyEvents, T extends EventType<S> = EventType<S>> = {
  [K in T]: {
    readonly type: K;
    /** Undefined for an empty payload and for one that is not JSON. */
    readonly data: S[K];
    /** The payload in base64, if it is not JSON. */
    readonly dataBase64?: string;
    readonly tags: readonly string[];
    /** Number of the event in its store, from 1 without gaps. */
    readonly position: number;
    /** Number of the commit in the database. */
    readonly seq: number;
    /** Time of the commit, RFC 3339 in UTC with microseconds. */
    readonly recordedAt: string;
    readonly id?: string;
    readonly metadata?: Readonly<Record<string, string>>;
  };
}[T];

/** Fails an append if an event after a position matches. */
export interface AppendCondition<T extends string = string> {
  readonly failIfEventsMatch: EventQuery<T>;
  /** Events up to this position do not count. Absent: all count. */
  readonly after?: number;
}

/** Writes acknowledged: on disk (default), in the operating system, or synced within milliseconds. */
export type Durability = "sync" | "buffered" | `async:${number}`;

/** Tags of an event by its type, derived from its data. */
export type TagRules<S> = { readonly [T in EventType<S>]?: (data: S[T]) => readonly string[] };

/** @internal */
export interface WireQuery {
  items: { types?: readonly string[]; tags?: readonly string[]; type_prefixes?: readonly string[]; tag_prefixes?: readonly string[] }[];
}

/** @internal The items of a query. */
export function itemsOf(query: EventQuery): readonly QueryItem[] {
  const items = Array.isArray(query) ? (query as readonly QueryItem[]) : [query as QueryItem];
  // The server reads such a query as every event, which a list that happens to be empty does not mean.
  if (items.length === 0) throw new TypeError("a query of no items; use {} for every event");
  return items;
}

/** @internal */
export function wireQuery(query: EventQuery): WireQuery {
  const items = itemsOf(query).map(({ types, tags, typePrefixes, tagPrefixes }) => ({
    ...(types && { types }),
    ...(tags && { tags }),
    ...(typePrefixes && { type_prefixes: typePrefixes }),
    ...(tagPrefixes && { tag_prefixes: tagPrefixes }),
  }));
  // An item without restrictions selects every event; so does a query without items.
  return items.some((item) => Object.keys(item).length === 0) ? { items: [] } : { items };
}

/** @internal */
export function wireCondition({ failIfEventsMatch, after }: AppendCondition): object {
  return { fail_if_events_match: wireQuery(failIfEventsMatch), ...(after !== undefined && { after }) };
}

/** @internal Whether the event matches the query, as the server decides it. */
export function matches(query: EventQuery, event: { type: string; tags: readonly string[] }): boolean {
  return itemsOf(query).some(({ types, tags, typePrefixes, tagPrefixes }) => {
    const ofType = (!types?.length && !typePrefixes?.length)
      || types?.includes(event.type) || typePrefixes?.some((prefix) => event.type.startsWith(prefix));
    return ofType
      && (tags ?? []).every((tag) => event.tags.includes(tag))
      && (tagPrefixes ?? []).every((prefix) => event.tags.some((tag) => tag.startsWith(prefix)));
  });
}

/** @internal The event as the server receives it. */
export function wireEvent<S>(rules: TagRules<S>, event: NewEvent<S>): object {
  const derived = rules[event.type]?.(event.data) ?? [];
  const tags = [...new Set([...derived, ...(event.tags ?? [])])];
  const { type, data, id, metadata } = event;
  return { type, ...(tags.length > 0 && { tags }), ...(data !== undefined && { data }), ...(id && { id }), ...(metadata && { metadata }) };
}

/** @internal */
export interface WireRecorded {
  position: number;
  seq: number;
  recorded_at: string;
  type: string;
  tags?: string[];
  data?: unknown;
  data_base64?: string;
  id?: string;
  metadata?: Record<string, string>;
}

/** @internal The event as the application receives it. */
export function recorded<E>({ position, seq, recorded_at, type, tags, data, data_base64, id, metadata }: WireRecorded): E {
  return {
    position, seq, recordedAt: recorded_at, type, tags: tags ?? [], data,
    ...(data_base64 !== undefined && { dataBase64: data_base64 }),
    ...(id !== undefined && { id }),
    ...(metadata !== undefined && { metadata }),
  } as E;
}

/** @internal An array of one or several values. */
export function listOf<T>(value: T | readonly T[] | undefined): readonly T[] {
  return value === undefined ? [] : Array.isArray(value) ? (value as readonly T[]) : [value as T];
}
