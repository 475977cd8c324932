/** Queries of events: their form in the URL, and in the languages of the clients. */

export interface Item {
  types: string[]
  tags: string[]
}

export interface EventQuery {
  items: Item[]
}

const texts = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((item): item is string => typeof item === 'string') : []

/** Parses a query from the URL. An invalid text selects every event. */
export const parseQuery = (text: string): EventQuery => {
  try {
    const value = JSON.parse(text) as { items?: unknown }
    const items = Array.isArray(value.items) ? (value.items as Partial<Record<keyof Item, unknown>>[]) : []
    return { items: items.map((item) => ({ types: texts(item.types), tags: texts(item.tags) })).filter(isFull) }
  } catch {
    return { items: [] }
  }
}

const isFull = (item: Item): boolean => item.types.length + item.tags.length > 0

/** The query as the API takes it: items without types or tags leave them out. */
export const wireQuery = (query: EventQuery) => ({
  items: query.items.filter(isFull).map(({ types, tags }) => ({
    ...(types.length > 0 && { types }),
    ...(tags.length > 0 && { tags }),
  })),
})

export const formatQuery = (query: EventQuery): string =>
  query.items.some(isFull) ? JSON.stringify(wireQuery(query)) : ''

/** The query with the words of one item changed. */
export const withItem = (query: EventQuery, index: number, change: (item: Item) => Item): EventQuery => {
  const items = query.items.length > index ? [...query.items] : [...query.items, { types: [], tags: [] }]
  return { items: items.map((item, place) => (place === index ? change(item) : item)).filter(isFull) }
}

/** A text as one argument of a POSIX shell. */
export const shellQuoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

const list = (values: readonly string[]): string => values.map((value) => JSON.stringify(value)).join(', ')

/** A text as a Python literal: JSON's escapes are Python's, apart from surrogates, which a tag cannot contain. */
const python = (item: Item): string => {
  const types = item.types.map((type) => JSON.stringify(type))
  const tags = item.tags.length === 0 ? [] : [`tags=[${list(item.tags)}]`]
  return `where(${[...types, ...tags].join(', ')})`
}

/** A text as a Rust literal. */
export const rustText = (text: string): string =>
  `"${text.replace(/["\\]/g, '\\$&').replace(/\p{Cc}/gu, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`)}"`

const rustList = (values: readonly string[]): string => `[${values.map(rustText).join(', ')}]`

const rust = (query: EventQuery): string => {
  const items = query.items.filter(isFull)
  if (items.length === 0) return 'Query::all()'
  const one = ({ types, tags }: Item) => `QueryItem::new(${types.length === 0 ? '[""; 0]' : rustList(types)}, ${tags.length === 0 ? '[""; 0]' : rustList(tags)})`
  return `Query::from_items([${items.map(one).join(', ')}])`
}

/** Programs that read the events of a query. */
export const snippets = (server: string, store: string, query: EventQuery): { curl: string; rust: string; python: string; typescript: string } => {
  const items = query.items.filter(isFull)
  const body = JSON.stringify({ query: wireQuery(query), backwards: true, limit: 100 })
  const url = `${server}/v1/stores/${encodeURIComponent(store)}/events:query`
  const wire = wireQuery(query).items
  return {
    curl: `curl -s ${shellQuoted(url)} -H 'Content-Type: application/json' -d ${shellQuoted(body)}`,
    rust: `let events = db.events(${rustText(store)})?;
for event in events.read(&${rust(query)}, ReadOptions::default())? {
    let event = event?;
    println!("{} {}", event.position, event.event_type());
}`,
    python: `import ropewalk
from ropewalk import where

db = ropewalk.connect(${JSON.stringify(server)})
for event in db.events(${JSON.stringify(store)}).read(${items.length === 0 ? 'where()' : items.map(python).join(' | ')}):
    print(event.position, event.type, event.tags, event.data)`,
    typescript: `import { Ropewalk } from "@ropewalk/client";

const db = new Ropewalk({ url: ${JSON.stringify(server)} });
for await (const event of await db.events(${JSON.stringify(store)}).read(${wire.length === 0 ? '{}' : JSON.stringify(wire.length === 1 ? wire[0] : wire)})) {
  console.log(event.position, event.type, event.data);
}`,
  }
}

/** The condition of an append that decided by the query, when `head` was the last position. */
export const condition = (query: EventQuery, head: number) => ({
  conditions: [{ fail_if_events_match: wireQuery(query), after: head }],
})
