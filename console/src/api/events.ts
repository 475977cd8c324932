/** Events, consumer groups and projections of a store. */
import type { EventQuery } from '../base/event-query'
import { parseQuery, wireQuery } from '../base/event-query'
import type { Json } from '../base/json'
import { json, page, path, query as search, send } from './client'
import type { Page } from './client'

export interface StoredEvent {
  position: number
  seq: number
  recorded_at: string
  type: string
  tags: string[]
  id?: string
  data?: Json
  data_base64?: string
  metadata?: Record<string, string>
  tracking?: { source: string; position: number }
}

export interface Store {
  name: string
  head: number | null
  events: number
}

export const listStores = async (after: string | undefined, signal: AbortSignal): Promise<Page<Store>> => page('/v1/stores', 'stores', after, signal)

export interface ReadOptions {
  after?: number
  before?: number
  backwards?: boolean
  limit?: number
}

export const readEvents = async (
  store: string,
  query: EventQuery,
  options: ReadOptions,
  signal?: AbortSignal,
): Promise<{ head: number | null; events: StoredEvent[] }> =>
  json(path`/v1/stores/${store}/events:query`, { method: 'POST', body: { query: wireQuery(query), ...options }, signal })

export const countEvents = async (store: string, query: EventQuery, signal?: AbortSignal): Promise<number> =>
  (await json<{ count: number }>(path`/v1/stores/${store}/events:count`, { method: 'POST', body: { query: wireQuery(query) }, signal })).count

/** Address of the live events after a position. */
export const subscribeUrl = (store: string, query: EventQuery, after: number): string => {
  const wire = wireQuery(query)
  return path`/v1/stores/${store}/subscribe` + search({ format: 'ndjson', after, query: wire.items.length > 0 ? JSON.stringify(wire) : undefined })
}

export interface Group {
  name: string
  query: EventQuery
  lease_ms: number
  pause_ms: number
  tries: number
  in_order: boolean
  cursor: number
  head: number
  waiting: number
  pending: number
  pending_max: number
  leased: number
  parked: number
}

export interface ParkedEvent {
  tries: number
  parked_at: string
  reason: string
  event: StoredEvent
}

export const listGroups = async (store: string, after: string | undefined, signal: AbortSignal): Promise<Page<Group>> => {
  const { entries, next } = await page<Group>(path`/v1/stores/${store}/groups`, 'groups', after, signal)
  // The query of a group leaves out what is empty.
  return { entries: entries.map((group) => ({ ...group, query: parseQuery(JSON.stringify(group.query)) })), next }
}

export const listParked = async (store: string, group: string, after: number, signal?: AbortSignal): Promise<ParkedEvent[]> =>
  (await json<{ parked: ParkedEvent[] }>(path`/v1/stores/${store}/groups/${group}/parked` + search({ after, limit: 100 }), { signal })).parked

/** Delivers parked events again, or discards them; without positions, all. */
export const settleParked = async (store: string, group: string, how: 'replay' | 'discard', positions?: number[]): Promise<void> => {
  await send(path`/v1/stores/${store}/groups/${group}/parked/${how}`, { method: 'POST', body: positions === undefined ? {} : { positions } })
}

export interface Projection {
  name: string
  version: number
  state: string
  checkpoint: number | null
  head: number
  lag: number
  parked: number
  error: string | null
  tables: string[]
  /** Each as identifiers of database and name. */
  collections: string[]
  on_error: string
  on: { types: string[]; statements: string[] }[]
}

export interface ParkedByProjection {
  position: number
  type: string
  statement: string
  sqlstate: string
  message: string
  parked_at: string
  retry: boolean
}

export const listProjections = async (store: string, after: string | undefined, signal: AbortSignal): Promise<Page<Projection>> =>
  page(path`/v1/stores/${store}/projections`, 'projections', after, signal)

export const parkedOfProjection = async (store: string, name: string, signal?: AbortSignal): Promise<ParkedByProjection[]> =>
  (await json<{ parked: ParkedByProjection[] }>(path`/v1/stores/${store}/projections/${name}/parked`, { signal })).parked

export const controlProjection = async (
  store: string,
  name: string,
  how: 'pause' | 'resume' | 'rebuild' | 'retry' | 'skip',
  position?: number,
): Promise<void> => {
  const takesBody = how === 'retry' || how === 'skip'
  await send(path`/v1/stores/${store}/projections/${name}/${how}`, {
    method: 'POST',
    ...(takesBody && { body: position === undefined ? {} : { position } }),
  })
}
