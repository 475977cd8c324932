/** Commits of the database: the change feed, and one commit with its parts in every model. */
import type { Json } from '../base/json'
import type { StoredEvent } from './events'
import { json, query } from './client'

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

export const changesUrl = (parameters: { from?: number; last?: number; limit?: number; follow?: boolean }): string =>
  `/v1/changes${query(parameters)}`

export const getCommit = async (seq: number, signal?: AbortSignal): Promise<Commit> => json(`/v1/commits/${seq}`, { signal })

/** The models that a commit wrote. */
export const modelsOf = (commit: FeedCommit): string[] => {
  const models = new Set<string>()
  if (commit.appends.length > 0) models.add('events')
  for (const { model } of commit.others ?? []) models.add(model)
  if (commit.writes.length > 0) models.add('keys')
  return [...models]
}

/** The words of a commit that a search looks at. */
export const wordsOf = (commit: FeedCommit): string => {
  const events = commit.appends.flatMap(({ store, events }) => [store, ...events.flatMap((event) => [event.type, ...event.tags])])
  return [String(commit.seq), ...events, ...modelsOf(commit)].join('\n').toLowerCase()
}

export interface Filter {
  text: string
  model: string
}

export const matches = (commit: FeedCommit, { text, model }: Filter): boolean =>
  (model === '' || modelsOf(commit).includes(model)) && (text === '' || wordsOf(commit).includes(text.toLowerCase()))
