/** Files of Parquet, read back by another program. */
import { parquetMetadata, parquetReadObjects, parquetSchema } from 'hyparquet'
import { describe, expect, it } from 'vitest'

import { ExactNumber } from '../src/base/json'
import type { Json } from '../src/base/json'
import { distinct, parquet } from '../src/base/parquet'

/** Times as their numbers, and bytes as they are. */
const parsers = {
  timestampFromMicroseconds: (micros: bigint) => micros,
  dateFromDays: (days: number) => days,
  uuidFromBytes: (bytes: Uint8Array | undefined) => bytes && Buffer.from(bytes).toString('hex'),
}

const rowsOf = (file: ArrayBuffer, utf8 = true) => parquetReadObjects({ file, parsers, utf8 }) as Promise<Record<string, unknown>[]>

/** A column that was written and read, and the element of the schema. */
const column = async (type: string, values: Json[], utf8 = true) => {
  const file = await parquet([{ name: 'c', type }], values.map((value) => [value]))
  const rows = await rowsOf(file, utf8)
  const { name, repetition_type, ...element } = parquetSchema(parquetMetadata(file)).children[0]?.element ?? { name: '' }
  expect([name, repetition_type]).toEqual(['c', 'OPTIONAL'])
  return { values: rows.map((row) => row['c']), element }
}

const INT64_MAX = 9_223_372_036_854_775_807n

describe('parquet', () => {
  it('stores integers of every width exactly', async () => {
    const long = await column('bigint', [new ExactNumber(String(INT64_MAX)), new ExactNumber('-9223372036854775808'), 7, null])
    expect(long).toEqual({ values: [INT64_MAX, -INT64_MAX - 1n, 7n, null], element: { type: 'INT64' } })
    expect(await column('integer', [-2_147_483_648, null, 2_147_483_647])).toEqual({ values: [-2_147_483_648, null, 2_147_483_647], element: { type: 'INT32' } })
    expect(await column('smallint', [-32_768, 1])).toMatchObject({ values: [-32_768, 1], element: { type: 'INT32', converted_type: 'INT_16' } })
  })

  it('stores floats with their infinities, NaN, and sign of zero', async () => {
    const double = await column('double precision', [0.1, 'NaN', 'Infinity', '-Infinity', -0, 0, new ExactNumber('0.1234567890123456'), null])
    expect(double).toEqual({ values: [0.1, NaN, Infinity, -Infinity, -0, 0, 0.1234567890123456, null], element: { type: 'DOUBLE' } })
    expect(await column('real', [0.5, null])).toEqual({ values: [0.5, null], element: { type: 'FLOAT' } })
  })

  it('stores booleans, also when all are NULL', async () => {
    const many = Array.from({ length: 40 }, (_, index) => (index % 3 === 0 ? null : index % 2 === 0))
    expect(await column('boolean', many)).toEqual({ values: many, element: { type: 'BOOLEAN' } })
    expect((await column('boolean', [null, null])).values).toEqual([null, null])
  })

  it('stores numeric with a precision as decimal, otherwise as text', async () => {
    const money = await column('numeric(10,2)', ['12.30', '-0.05', '0.00', null])
    expect(money).toMatchObject({ values: [12.3, -0.05, 0, null], element: { converted_type: 'DECIMAL', precision: 10, scale: 2, type_length: 16 } })
    const digits = '99999999999999999999999999999999999999'
    expect((await column('numeric(38,0)', [digits, `-${digits}`])).values).toEqual([1e38, -1e38])
    expect(await column('numeric', [digits, '0.10', 'NaN'])).toMatchObject({ values: [digits, '0.10', 'NaN'], element: { converted_type: 'UTF8' } })
  })

  it('stores times in microseconds', async () => {
    const stamps = ['2024-02-29 12:00:00.25', '1969-12-31 23:59:59.999999', '0001-01-01 00:00:00', '0001-12-31 00:00:00 BC', null]
    const numbers = [1_709_208_000_250_000n, -1n, -62_135_596_800_000_000n, -62_135_683_200_000_000n, null]
    const local = await column('timestamp without time zone', stamps)
    expect(local).toMatchObject({ values: numbers, element: { type: 'INT64', logical_type: { type: 'TIMESTAMP', isAdjustedToUTC: false, unit: 'MICROS' } } })
    const instant = await column('timestamp with time zone', ['2024-02-29 12:00:00+00', '0001-12-31 00:00:00+00 BC'])
    expect(instant).toMatchObject({ values: [1_709_208_000_000_000n, numbers[3]], element: { logical_type: { isAdjustedToUTC: true } } })
    expect(await column('date', ['1970-01-01', '2000-01-01', '1969-12-31', null])).toEqual({ values: [0, 10_957, -1, null], element: { type: 'INT32', converted_type: 'DATE' } })
    expect(await column('time without time zone', ['00:00:00', '23:59:59.000001'])).toMatchObject({ values: [0n, 86_399_000_001n], element: { logical_type: { type: 'TIME', isAdjustedToUTC: false } } })
  })

  it('stores a column as text if its type cannot represent a value', async () => {
    const text = { converted_type: 'UTF8' }
    for (const [type, values] of [
      ['numeric(10,2)', ['1.00', 'NaN']],
      ['date', ['2024-02-29', 'infinity', null]],
      ['timestamp without time zone', ['-infinity', '2024-02-29 00:00:00', '294276-12-31 00:00:00']],
      ['time without time zone', ['24:00:00', '01:00:00']],
    ] as [string, Json[]][]) {
      expect(await column(type, values)).toMatchObject({ values, element: text })
    }
  })

  it('stores JSON as its text', async () => {
    const values: Json[] = [{ a: [1, 'x', null] }, 'text', 5, true, new ExactNumber('12345678901234567890'), null]
    expect((await column('jsonb', values)).values).toEqual(['{"a":[1,"x",null]}', '"text"', '5', 'true', '12345678901234567890', null])
  })

  it('stores bytes, UUIDs, and the other types as text', async () => {
    const bytes = await column('bytea', ['\\x00ff', '\\x', null], false)
    expect(bytes).toEqual({ values: [Uint8Array.of(0, 255), new Uint8Array(), null], element: { type: 'BYTE_ARRAY' } })
    const uuid = await column('uuid', ['00112233-4455-6677-8899-aabbccddeeff', null])
    expect(uuid).toMatchObject({ values: ['00112233445566778899aabbccddeeff', null], element: { type_length: 16, logical_type: { type: 'UUID' } } })
    for (const type of ['text', 'integer[]', 'interval', 'mood', 'constructor']) {
      const values = ['', '{1,NULL}', '<script>\u0000🧵\u202e', 'x'.repeat(1 << 20), null]
      expect(await column(type, values)).toMatchObject({ values, element: { converted_type: 'UTF8' } })
    }
  })

  it('stores columns with equal and strange names', async () => {
    expect(distinct(['a', 'a', 'a_2', 'a', '?column?', '__proto__'])).toEqual(['a', 'a_3', 'a_2', 'a_4', '?column?', '__proto__'])
    const file = await parquet(['a', 'a', 'b.c', ''].map((name) => ({ name, type: 'integer' })), [[1, 2, 3, 4]])
    expect(await rowsOf(file)).toEqual([{ a: 1, a_2: 2, 'b.c': 3, '': 4 }])
  })

  it('stores results without rows, and with many', async () => {
    const columns = [{ name: 'n', type: 'bigint' }, { name: 't', type: 'text' }]
    const empty = await parquet(columns, [])
    expect(await rowsOf(empty)).toEqual([])
    expect(parquetSchema(parquetMetadata(empty)).children.map(({ element }) => element.name)).toEqual(['n', 't'])
    const rows = Array.from({ length: 120_001 }, (_, index): Json[] => [index % 7 === 0 ? null : index, index % 2 === 0 ? 'even' : `odd ${index}`])
    const file = await parquet(columns, rows)
    expect(parquetMetadata(file).row_groups.map((group) => group.num_rows)).toEqual([50_000n, 50_000n, 20_001n])
    const found = await rowsOf(file)
    expect(found).toHaveLength(rows.length)
    for (const index of [0, 1, 49_999, 50_000, 120_000]) {
      const [n, t] = rows[index] ?? []
      expect(found[index]).toEqual({ n: n === null ? null : BigInt(n as number), t })
    }
  })
})
