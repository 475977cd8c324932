/** Databases, collections and documents. */
import { idParts } from '../base/document-shape'
import type { Json } from '../base/json'
import { json, page, path, query, send } from './client'
import type { Page } from './client'

export interface CollectionInfo {
  database: string
  name: string
  /** Null where access rules may hide documents from the user. */
  documents: number | null
  bytes: number | null
}

export interface Place {
  database: string
  collection: string
}

const of = ({ database, collection }: Place): string => path`/v1/databases/${database}/collections/${collection}`

/** Databases of a page of collections. */
const DATABASES = 100

/**
 * A page of the collections of all databases. It begins after a database, or after a collection: the name of its
 * database, NUL, which is in no name, and its name.
 */
export const listCollections = async (after: string | undefined, signal: AbortSignal): Promise<Page<CollectionInfo>> => {
  const within = async (database: string, begin: string | undefined): Promise<Page<CollectionInfo>> => {
    const { entries, next } = await page<CollectionInfo>(path`/v1/databases/${database}/collections`, 'collections', begin, signal)
    return { entries: entries.map((collection) => ({ ...collection, database })), next: next === undefined ? undefined : `${database}\u0000${next}` }
  }
  const [database, collection] = after?.split('\u0000') ?? []
  if (database !== undefined && collection !== undefined) {
    const rest = await within(database, collection)
    return { ...rest, next: rest.next ?? database }
  }
  const databases = await page<string>('/v1/databases', 'databases', database, signal, DATABASES)
  const all = await Promise.all(databases.entries.map((name) => within(name, undefined)))
  // The page ends within a database that has more collections.
  const last = all.findIndex(({ next }) => next !== undefined)
  const taken = last < 0 ? all : all.slice(0, last + 1)
  return { entries: taken.flatMap(({ entries }) => entries), next: taken.at(-1)?.next ?? databases.next }
}

/** Parts of a find, each as JSON text, or empty. */
export interface Find {
  filter: string
  sort: string
  projection: string
  limit: number
  skip: number
}

/** The body of a find. The texts are sent as they are, so that numbers keep their types. */
export const findBody = (find: Find): string => {
  const parts = (['filter', 'sort', 'projection'] as const)
    .filter((name) => find[name].trim() !== '')
    .map((name) => `"${name}":${find[name]}`)
  return `{${[...parts, `"skip":${find.skip}`, `"limit":${find.limit}`].join(',')}}`
}

export const findDocuments = async (place: Place, find: Find, signal?: AbortSignal): Promise<Json[]> =>
  (await json<{ documents: Json[] }>(`${of(place)}/documents:query`, { method: 'POST', text: findBody(find), signal })).documents

export const countDocuments = async (place: Place, filter: string, signal?: AbortSignal): Promise<number> =>
  (await json<{ count: number }>(`${of(place)}/documents:count`, { method: 'POST', text: filter.trim() === '' ? '{}' : `{"filter":${filter}}`, signal })).count

export const explainFind = async (place: Place, find: Find): Promise<Json> =>
  json(`${of(place)}/documents:explain`, { method: 'POST', text: findBody(find) })

/** The results of a pipeline, which is an array as JSON text. */
export const aggregate = async (place: Place, pipeline: string, signal?: AbortSignal): Promise<Json[]> =>
  (await json<{ documents: Json[] }>(`${of(place)}/documents:aggregate`, { method: 'POST', text: `{"pipeline":${pipeline}}`, signal })).documents

const documentUrl = (place: Place, id: Json): string => {
  const parts = idParts(id)
  return `${of(place)}/documents/${encodeURIComponent(parts.id)}${query({ id: parts.kind })}`
}

/** A document as text, with the tag that a change needs. */
export const getDocument = async (place: Place, id: Json, signal?: AbortSignal): Promise<{ text: string; etag: string }> => {
  const response = await send(documentUrl(place, id), { signal })
  return { text: await response.text(), etag: response.headers.get('ETag') ?? '' }
}

/** Stores a document if it is still the one with this tag. */
export const putDocument = async (place: Place, id: Json, text: string, etag: string): Promise<void> => {
  await send(documentUrl(place, id), { method: 'PUT', text, headers: etag === '' ? {} : { 'If-Match': etag } })
}

export const insertDocument = async (place: Place, text: string): Promise<void> => {
  await send(`${of(place)}/documents`, { method: 'POST', text: `{"documents":[${text}]}` })
}

export const deleteDocument = async (place: Place, id: Json, etag: string): Promise<void> => {
  await send(documentUrl(place, id), { method: 'DELETE', headers: etag === '' ? {} : { 'If-Match': etag } })
}

export interface Index {
  name: string
  fields: string[]
  unique?: boolean
  sparse?: boolean
  hidden?: boolean
  ready?: boolean
  expire_after_seconds?: number
}

export const listIndexes = async (place: Place, signal?: AbortSignal): Promise<Index[]> =>
  (await json<{ indexes: Index[] }>(`${of(place)}/indexes`, { signal })).indexes

export const createIndex = async (place: Place, fields: string[], unique: boolean, sparse: boolean): Promise<void> => {
  await send(`${of(place)}/indexes`, { method: 'POST', body: { fields, ...(unique && { unique }), ...(sparse && { sparse }) } })
}

export const dropIndex = async (place: Place, name: string): Promise<void> => {
  await send(`${of(place)}/indexes/${encodeURIComponent(name)}`, { method: 'DELETE' })
}

/** Address of the change stream of a collection, from now or after an event. */
export const watchUrl = (place: Place, after: string | undefined): string =>
  `${of(place)}/watch${query({ format: 'ndjson', full_document: true, after })}`
