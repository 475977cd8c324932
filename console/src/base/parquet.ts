/** Results of SQL as Parquet. Loaded only for a download. */
import type { DecodedArray, SchemaElement } from 'hyparquet'
import { ByteWriter, parquetWrite } from 'hyparquet-writer'

import { ExactNumber, formatJson } from './json'
import type { Json } from './json'

/** After so many rows the browser may do something else. */
const GROUP_ROWS = 50_000
const DAY_MS = 86_400_000
const DAY_MICROS = 86_400_000_000n

/** How values of a type are stored. */
interface Storage {
  element: Omit<SchemaElement, 'name' | 'repetition_type'>
  /** The stored value; `undefined` for one that the Parquet type cannot represent. */
  store: (value: Json) => unknown
  /** A dictionary would turn -0 into 0. */
  plain?: true
}

/** JSON; a number that a double cannot hold is spelled as the server spelled it. */
const jsonOf = (value: Json): string => (value instanceof ExactNumber ? value.text : formatJson(value, 0))

const textOf = (value: Json): string => (typeof value === 'string' ? value : jsonOf(value))

const TEXT: Storage = { element: { type: 'BYTE_ARRAY', converted_type: 'UTF8' }, store: textOf }
const JSON_TEXT: Storage = { element: TEXT.element, store: jsonOf }

/** Days since 1970-01-01. */
const daysOf = (year: string, month: string, day: string, isBeforeChrist: boolean): number => {
  const date = new Date(0)
  date.setUTCFullYear(isBeforeChrist ? 1 - Number(year) : Number(year), Number(month) - 1, Number(day))
  return date.getTime() / DAY_MS
}

/** Microseconds since midnight of `12:00:00.25`. */
const clockOf = (clock: string): bigint => {
  const [hours = '', minutes = '', seconds = '', fraction = ''] = clock.split(/[:.]/)
  const whole = Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds)
  return BigInt(whole) * 1_000_000n + BigInt(fraction.padEnd(6, '0'))
}

/** `2024-02-29`, with ` BC` for years before the first. `infinity` has no counterpart in Parquet. */
const dateOf = (value: Json): number | undefined => {
  const [whole, year = '', month = '', day = '', era] = /^(\d+)-(\d\d)-(\d\d)( BC)?$/.exec(textOf(value)) ?? []
  const days = daysOf(year, month, day, era !== undefined)
  return whole === undefined || Number.isNaN(days) ? undefined : days
}

/** `2024-02-29 12:00:00.25`, in UTC if it has an offset. */
const instantOf = (value: Json): bigint | undefined => {
  const [whole, year = '', month = '', day = '', clock = '', era] = /^(\d+)-(\d\d)-(\d\d) ([\d:.]+)(?:\+00)?( BC)?$/.exec(textOf(value)) ?? []
  const days = daysOf(year, month, day, era !== undefined)
  return whole === undefined || Number.isNaN(days) ? undefined : BigInt(days) * DAY_MICROS + clockOf(clock)
}

/** Parquet's day ends before 24:00:00. */
const timeOf = (value: Json): bigint | undefined => {
  const micros = clockOf(textOf(value))
  return micros < DAY_MICROS ? micros : undefined
}

const bytesOf = (value: Json): Uint8Array => Uint8Array.from(textOf(value).slice(2).match(/../g) ?? [], (byte) => Number.parseInt(byte, 16))

/** A numeric as the number of its last digits. Parquet has no NaN of this type. */
const decimal = (precision: number, scale: number): Storage => ({
  element: { type: 'FIXED_LEN_BYTE_ARRAY', type_length: 16, converted_type: 'DECIMAL', precision, scale },
  store: (value) => {
    const [, whole, fraction = ''] = /^(-?\d+)(?:\.(\d+))?$/.exec(textOf(value)) ?? []
    return whole === undefined || fraction.length > scale ? undefined : BigInt(whole + fraction.padEnd(scale, '0'))
  },
})

const timestamp = (isAdjustedToUTC: boolean): Storage => ({
  element: { type: 'INT64', logical_type: { type: 'TIMESTAMP', isAdjustedToUTC, unit: 'MICROS' } },
  store: instantOf,
})

/** A number, or the text of one that JSON does not have. */
const float = (type: 'FLOAT' | 'DOUBLE'): Storage => ({
  element: { type },
  store: (value) => (typeof value === 'number' ? value : Number(textOf(value))),
  plain: true,
})

const STORAGES: Record<string, Storage> = {
  boolean: { element: { type: 'BOOLEAN' }, store: (value) => value },
  smallint: { element: { type: 'INT32', converted_type: 'INT_16' }, store: Number },
  integer: { element: { type: 'INT32' }, store: Number },
  bigint: { element: { type: 'INT64' }, store: (value) => BigInt(textOf(value)) },
  real: float('FLOAT'),
  'double precision': float('DOUBLE'),
  date: { element: { type: 'INT32', converted_type: 'DATE' }, store: dateOf },
  'time without time zone': { element: { type: 'INT64', logical_type: { type: 'TIME', isAdjustedToUTC: false, unit: 'MICROS' } }, store: timeOf },
  'timestamp without time zone': timestamp(false),
  'timestamp with time zone': timestamp(true),
  uuid: { element: { type: 'FIXED_LEN_BYTE_ARRAY', type_length: 16, logical_type: { type: 'UUID' } }, store: textOf },
  bytea: { element: { type: 'BYTE_ARRAY' }, store: bytesOf },
  json: JSON_TEXT,
  jsonb: JSON_TEXT,
}

const storageOf = (type: string): Storage => {
  const [, precision, scale] = /^numeric\((\d+),(\d+)\)$/.exec(type) ?? []
  if (precision !== undefined) return decimal(Number(precision), Number(scale))
  return Object.hasOwn(STORAGES, type) ? (STORAGES[type] ?? TEXT) : TEXT
}

/** Values of one column. A column with a value that its type cannot represent is text as a whole. */
const stored = (storage: Storage, values: Json[]): { storage: Storage; data: unknown[] } => {
  const data = values.map((value) => (value === null ? null : storage.store(value)))
  return data.includes(undefined) ? stored(TEXT, values) : { storage, data }
}

/** Names of which each is another: SQL allows equal ones, Parquet does not. */
export const distinct = (names: readonly string[]): string[] => {
  const taken = new Set(names)
  const seen = new Set<string>()
  return names.map((name) => {
    let found = name
    for (let count = 2; seen.has(found) || (found !== name && taken.has(found)); count += 1) found = `${name}_${count}`
    seen.add(found)
    return found
  })
}

/**
 * A file of the rows.
 *
 * `numeric` without a precision, intervals, arrays and labels of enums are texts as PostgreSQL writes them; json and jsonb are
 * texts of JSON.
 */
export const parquet = async (columns: readonly { name: string; type: string }[], rows: readonly Json[][]): Promise<ArrayBuffer> => {
  const names = distinct(columns.map(({ name }) => name))
  const all = columns.map(({ type }, index) => stored(storageOf(type), rows.map((row) => row[index] ?? null)))
  const elements = all.map(({ storage }, index): SchemaElement => ({ ...storage.element, name: names[index] ?? '', repetition_type: 'OPTIONAL' }))
  const pause = () => new Promise<void>((resolve) => setTimeout(resolve))
  const writer = Object.assign(new ByteWriter(), { flush: pause })
  await parquetWrite({
    writer,
    schema: [{ name: 'root', num_children: columns.length }, ...elements],
    columnData: all.map(({ storage, data }, index) => ({ name: names[index] ?? '', data: data as DecodedArray, ...(storage.plain && { encoding: 'PLAIN' as const }) })),
    rowGroupSize: GROUP_ROWS,
    createdBy: 'Ropewalk',
  })
  return writer.getBuffer()
}
