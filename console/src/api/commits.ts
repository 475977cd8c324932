/** Commits of the database: the change feed, and one commit with its parts in every model. */
import type { Json } from '../base/json'
import type { StoredEvent } from './events'
import { json, page, query } from './client'
import { bytesText } from '../base/text'

interface Append {
  store: string
  deleted?: boolean
  tracking?: { source: string; position: number }
  events: StoredEvent[]
}

/** A line of the change feed. */
export interface FeedCommit {
  seq: number
  recorded_at: string
  appends: Append[]
  writes: { keyspace: number; change: string; key_base64: string; end_base64?: string }[]
  others?: { model: string; bytes: number }[]
}

export interface RowChange {
  table: string
  /** `insert`, `update`, `delete`, or `write` where the state before cannot be read. */
  change: string
  before: Record<string, Json> | null
  after: Record<string, Json> | null
}

export interface SampleChange {
  store: string
  labels: Record<string, string>
  count: number
  samples: [number, number | string][]
}

/** A commit with its parts in every model. */
export interface Commit {
  seq: number
  recorded_at: string
  appends: Append[]
  /** Events of a change stream, and the documents before the commit. */
  documents: { change: Json; before: Json }[]
  rows: RowChange[]
  samples: SampleChange[]
  writes: FeedCommit['writes']
  others?: { model: string; bytes: number }[]
  /** Parts were left out, because there are too many. */
  truncated: boolean
}

export const changesUrl = (parameters: {
  from?: number
  since?: string
  last?: number
  limit?: number
  follow?: boolean
  interval_ms?: number
  newest?: number
}): string => `/v1/changes${query(parameters)}`

export const getCommit = async (seq: number, signal?: AbortSignal): Promise<Commit> => json(`/v1/commits/${seq}`, { signal })

/** Names of the keyspaces, by number. */
export const keyspaceNames = async (signal?: AbortSignal): Promise<string[]> => {
  const names: string[] = []
  let after: string | undefined
  do {
    const { entries, next } = await page<{ name: string; number: number }>('/v1/stats', 'keyspaces', after, signal)
    for (const { name, number } of entries) names[number] = name
    after = next
  } while (after !== undefined)
  return names
}

const MODELS: Record<string, string> = { events: 'events', documents: 'documents', tables: 'tables', series: 'time series' }

/** The model whose data a keyspace has, by the beginning of its name; `keys` for others. */
export const modelOfKeyspace = (names: readonly string[], keyspace: number): string => {
  const first = names[keyspace]?.split('.')[0] ?? ''
  return Object.hasOwn(MODELS, first) ? (MODELS[first] ?? 'keys') : 'keys'
}

/** The models that a commit wrote. */
export const modelsOf = (commit: FeedCommit, names: readonly string[]): string[] => {
  const models = new Set<string>()
  if (commit.appends.length > 0) models.add('events')
  for (const { model } of commit.others ?? []) models.add(model)
  for (const { keyspace } of commit.writes) models.add(modelOfKeyspace(names, keyspace))
  return [...models]
}

/** The words of a commit that a search looks at. */
export const wordsOf = (commit: FeedCommit, names: readonly string[]): string => {
  const events = commit.appends.flatMap(({ store, events }) => [store, ...events.flatMap((event) => [event.type, ...event.tags])])
  return [String(commit.seq), ...events, ...modelsOf(commit, names), ...commit.writes.map((write) => bytesText(write.key_base64))].join('\n').toLowerCase()
}

/** Every commit, apart from those that wrote only samples: a server that stores its own metrics makes many of them. */
export const BUT_SAMPLES = '-samples'

export interface Filter {
  text: string
  /** Name of a model, `BUT_SAMPLES`, or empty for all. */
  model: string
}

const hasModel = (commit: FeedCommit, model: string, names: readonly string[]): boolean => {
  if (model === '') return true
  const models = modelsOf(commit, names)
  return model === BUT_SAMPLES ? models.some((other) => other !== 'time series') : models.includes(model)
}

export const matches = (commit: FeedCommit, { text, model }: Filter, names: readonly string[]): boolean =>
  hasModel(commit, model, names) && (text === '' || wordsOf(commit, names).includes(text.toLowerCase()))
