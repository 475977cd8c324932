/** SQL by `POST /v1/sql`. */
import { ExactNumber, formatJson } from '../base/json'
import type { Json } from '../base/json'
import { json, path, send } from './client'
import type { Page } from './client'

export interface Column {
  name: string
  type: string
}

export interface SqlResult {
  command: string
  columns?: Column[]
  rows?: Json[][]
}

/** Runs a text. With an `id` it can be cancelled. */
export const runSql = async (sql: string, signal?: AbortSignal, id?: string): Promise<SqlResult[]> =>
  (await json<{ results: SqlResult[] }>('/v1/sql', { method: 'POST', body: { sql }, headers: id === undefined ? {} : { 'X-Statement-Id': id }, signal })).results

/** Cancels the text that runs with this id; the response to it is then an error. */
export const cancelSql = async (id: string): Promise<void> => {
  await send(path`/v1/sql/${id}`, { method: 'DELETE' })
}

/** An id that no other client has. (`crypto.randomUUID` exists only on pages that were loaded by TLS or from a loopback address.) */
export const statementId = (): string => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('')

/** A value as text; null for NULL. */
export const cellText = (value: Json | undefined): string | null => {
  if (value === null || value === undefined) return null
  if (typeof value === 'string') return value
  if (typeof value === 'object' && !(value instanceof ExactNumber)) return formatJson(value, 0)
  return String(value)
}

/** Types of SQL, and of documents. */
const NUMBERS = new Set(['smallint', 'integer', 'bigint', 'real', 'double precision', 'numeric', 'number', 'int', 'long', 'double', 'decimal'])

export const isNumeric = (type: string): boolean => NUMBERS.has(type) || type.startsWith('numeric')

export const isTime = (type: string): boolean => type.startsWith('timestamp') || type === 'date'

export interface TableInfo {
  schema: string
  name: string
  columns: { name: string; type: string; nullable: boolean }[]
}

/** Tables of a page. */
const TABLES = 500

const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`

const columnsAfter = (after: string | undefined): string => {
  const begin = after === undefined ? '' : ` AND (table_schema, table_name) > (${after.split('\u0000').map(literal).join(', ')})`
  return `SELECT t.table_schema, t.table_name, c.column_name, c.data_type, c.is_nullable
FROM (SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema')${begin}
  ORDER BY table_schema, table_name LIMIT ${TABLES + 1}) t
LEFT JOIN information_schema.columns c ON c.table_schema = t.table_schema AND c.table_name = t.table_name
ORDER BY t.table_schema, t.table_name, c.ordinal_position`
}

/** A page of the tables, with their columns. It begins after a table: its schema, NUL, which is in no name, and its name. */
export const listTables = async (after: string | undefined, signal: AbortSignal): Promise<Page<TableInfo>> => {
  const [result] = await runSql(columnsAfter(after), signal)
  const tables = new Map<string, TableInfo>()
  for (const row of result?.rows ?? []) {
    const [schema = '', name = '', column = '', type = '', nullable = ''] = row.map((value) => cellText(value) ?? '')
    const key = `${schema}\u0000${name}`
    const table = tables.get(key) ?? { schema, name, columns: [] }
    if (column !== '') table.columns.push({ name: column, type, nullable: nullable === 'YES' })
    tables.set(key, table)
  }
  const keys = [...tables.keys()]
  return { entries: [...tables.values()].slice(0, TABLES), next: keys.length > TABLES ? keys[TABLES - 1] : undefined }
}

/** An identifier in a statement: quoted unless it is plain. */
export const quoted = (name: string): string => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`)

/** The names of `schema."na.me"`. */
export const identifiers = (text: string): string[] =>
  [...text.matchAll(/"((?:[^"]|"")*)"|[^.]+/g)].map(([whole, inner]) => inner?.replaceAll('""', '"') ?? whole)

export const tableName = (table: TableInfo): string =>
  table.schema === 'public' ? quoted(table.name) : `${quoted(table.schema)}.${quoted(table.name)}`
