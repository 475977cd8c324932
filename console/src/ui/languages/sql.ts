/** SQL in an editor. Tables and columns complete by `hints`. */
import { PostgreSQL, sql } from '@codemirror/lang-sql'
import type { Extension } from '@codemirror/state'

export interface Hints {
  /** Columns by table. */
  tables?: Readonly<Record<string, readonly string[]>>
}

export const make = ({ tables = {} }: Hints): Extension => sql({ dialect: PostgreSQL, schema: tables, upperCaseKeywords: true })
