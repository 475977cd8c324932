/** The shape of documents, from a sample: fields, their types, and how many documents have them. */
import { ExactNumber, isObject } from './json'
import type { Json } from './json'

export interface Field {
  path: string
  /** Number of documents by type of the value. */
  types: Record<string, number>
  /** Documents that have the field. */
  count: number
}

const WRAPPERS: Record<string, string> = {
  $oid: 'objectId',
  $date: 'date',
  $numberDecimal: 'decimal',
  $numberLong: 'long',
  $numberInt: 'int',
  $numberDouble: 'double',
  $binary: 'binary',
  $regularExpression: 'regex',
  $timestamp: 'timestamp',
  $minKey: 'minKey',
  $maxKey: 'maxKey',
}

/** The type of a value in Extended JSON. */
export const typeOf = (value: Json): string => {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  if (value instanceof ExactNumber) return 'number'
  if (isObject(value)) {
    const names = Object.keys(value)
    const wrapper = names.length === 1 ? WRAPPERS[names[0] ?? ''] : undefined
    return wrapper ?? 'object'
  }
  return typeof value
}

const DEPTH_MAX = 5
const FIELDS_MAX = 500

/** Fields of the documents, by path; fields of embedded documents have dotted paths. */
export const shapeOf = (documents: readonly Json[]): Field[] => {
  const fields = new Map<string, Field>()
  const visit = (value: Json, prefix: string, depth: number): void => {
    if (!isObject(value) || depth > DEPTH_MAX) return
    for (const [name, part] of Object.entries(value)) {
      const path = prefix + name
      let field = fields.get(path)
      if (!field) {
        if (fields.size >= FIELDS_MAX) continue
        field = { path, types: {}, count: 0 }
        fields.set(path, field)
      }
      const type = typeOf(part)
      field.types[type] = (field.types[type] ?? 0) + 1
      field.count += 1
      if (type === 'object') visit(part, `${path}.`, depth + 1)
    }
  }
  for (const document of documents) visit(document, '', 0)
  return [...fields.values()]
}

/** Columns of a table of documents: more make rows that are hard to compare. */
const COLUMNS_MAX = 60

/** A value of Extended JSON without its wrapper. */
const plain = (value: Json): Json => {
  if (!isObject(value)) return value
  const names = Object.keys(value)
  const inner = names.length === 1 && WRAPPERS[names[0] ?? ''] !== undefined ? value[names[0] ?? ''] : undefined
  return inner === undefined || isObject(inner) ? value : inner
}

/** Documents as rows: a column for each field of the first level, in the order in which the fields appear. */
export const columnsOf = (documents: readonly Json[]): { columns: { name: string; type: string }[]; rows: Json[][] } => {
  const types = new Map<string, Set<string>>()
  for (const document of documents) {
    for (const [name, value] of isObject(document) ? Object.entries(document) : []) {
      const found = types.get(name) ?? new Set()
      found.add(typeOf(value))
      if (types.size < COLUMNS_MAX || types.has(name)) types.set(name, found)
    }
  }
  const columns = [...types].map(([name, found]) => ({ name, type: [...found].join(' or ') }))
  const cell = (document: Json, name: string): Json => {
    const value = isObject(document) && Object.hasOwn(document, name) ? document[name] : undefined
    return value === undefined ? '' : plain(value)
  }
  return { columns, rows: documents.map((document) => columns.map(({ name }) => cell(document, name))) }
}

/** The path and the parameter by which the API names a document. */
export const idParts = (id: Json): { id: string; kind: '' | 'oid' | 'json' } => {
  if (typeof id === 'string' && id !== '') return { id, kind: '' }
  if (isObject(id) && typeof id['$oid'] === 'string' && Object.keys(id).length === 1) return { id: id['$oid'], kind: 'oid' }
  return { id: id instanceof ExactNumber ? id.text : JSON.stringify(id), kind: 'json' }
}

export interface ExplainNode {
  stage: string
  facts: [string, string][]
  children: ExplainNode[]
}

const CHILDREN = ['inputStage', 'inputStages', 'outerStage', 'innerStage', 'queryPlan']

/** A plan of `explain`, as MongoDB writes it. */
export const explainTree = (plan: Json | undefined): ExplainNode | undefined => {
  if (!isObject(plan)) return undefined
  const facts: [string, string][] = []
  const children: ExplainNode[] = []
  for (const [name, value] of Object.entries(plan)) {
    if (name === 'stage') continue
    if (CHILDREN.includes(name)) {
      for (const child of Array.isArray(value) ? value : [value]) {
        const found = explainTree(child)
        if (found) children.push(found)
      }
    } else if (value !== null && value !== false) {
      facts.push([name, typeof value === 'string' ? value : value instanceof ExactNumber ? value.text : JSON.stringify(value)])
    }
  }
  const stage = plan['stage']
  return { stage: typeof stage === 'string' ? stage : 'PLAN', facts, children }
}
