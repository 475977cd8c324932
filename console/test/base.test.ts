import { describe, expect, it } from 'vitest'

import { csv, csvField } from '../src/base/csv'
import { bucketQuantile, parseExposition, rate, Scrape } from '../src/base/exposition'
import { formatAge, formatBytes, formatCompact, formatCount, formatDuration, formatNumber, formatShare, formatUtc } from '../src/base/format'
import { ExactNumber, errorPosition, formatJson, member, parseJson } from '../src/base/json'
import { backoffMs, EventReader, lines } from '../src/base/lines'
import { findings, onlyTable, parsePlan, parseSeconds } from '../src/base/plan'
import { oneLine, plural, shorten, visible } from '../src/base/text'

describe('format', () => {
  it('shows numbers with at most three digits and their unit', () => {
    expect([0, 0.01234, 1.234, 12.34, 123.4, 1234.5, 2e-9].map(formatNumber)).toEqual(['0', '0.0123', '1.23', '12.3', '123', '1,235', '2.00e-9'])
    expect([NaN, Infinity, -Infinity].map(formatNumber)).toEqual(['NaN', '+∞', '−∞'])
    expect([999, 1000, 999_999, 1_234_567].map(formatCompact)).toEqual(['999', '1 k', '1 M', '1.23 M'])
    expect([0, 1023, 1024, 5 * 1024 ** 3].map(formatBytes)).toEqual(['0 B', '1,023 B', '1 KiB', '5 GiB'])
    expect(formatCount(1_234_567)).toBe('1,234,567')
    expect([formatShare(1, 4), formatShare(1, 0)]).toEqual(['25 %', '–'])
  })

  it('shows durations in the unit that fits', () => {
    const shown = [0, 8.5e-5, 0.0012, 3, 65, 7380, 90_000, -65].map(formatDuration)
    expect(shown).toEqual(['0 s', '85 µs', '1.2 ms', '3 s', '1 min 5 s', '2 h 3 min', '1 d 1 h', '−1 min 5 s'])
    expect(formatDuration(Infinity)).toBe('–')
  })

  it('shows times in UTC and as an age', () => {
    const time = new Date('2026-11-21T14:36:51.123Z')
    expect(formatUtc(time)).toBe('2026-11-21 14:36:51.123Z')
    expect(formatUtc(new Date('x'))).toBe('–')
    expect(formatAge(time, new Date(time.getTime() + 3_700_000))).toBe('1 h ago')
    expect(formatAge(time, new Date(time.getTime() - 5_000))).toBe('in 5 s')
    expect(formatAge(time, time)).toBe('now')
  })
})

describe('text', () => {
  it('makes control characters and direction marks visible', () => {
    expect(visible('a\u0000b\u001b\u007f\u202e\n')).toBe('a␀b␛␡\\u202e\n')
    expect(visible('<script>é🧵')).toBe('<script>é🧵')
    expect(oneLine('a\nb\tc')).toBe('a⏎b⇥c')
  })

  it('is shortened without half of a character', () => {
    expect(shorten('ab🧵', 3)).toBe('ab')
    expect(shorten('ab🧵', 4)).toBe('ab🧵')
    expect(oneLine('x'.repeat(1 << 20))).toHaveLength(201)
    expect([plural(1, 'row'), plural(1234, 'row')]).toEqual(['1 row', '1,234 rows'])
  })
})

describe('json', () => {
  it('keeps the spelling of numbers that a double cannot hold', () => {
    const supports = (JSON as unknown as { rawJSON?: unknown }).rawJSON !== undefined
    const value = parseJson('{"a":12345678901234567890,"b":1.50,"c":[1]}')
    expect(member(value, 'b')).toBe(1.5)
    if (supports) expect(member(value, 'a')).toEqual(new ExactNumber('12345678901234567890'))
    expect(formatJson({ a: [1, 'x'] }, 0)).toBe('{"a":[1,"x"]}')
  })

  it('reads members of its own only', () => {
    expect(member({ a: 1 }, 'toString')).toBeUndefined()
    expect(member([1], '0')).toBeUndefined()
    expect(member(parseJson('{"__proto__":{"x":1}}'), 'x')).toBeUndefined()
    expect(errorPosition('Unexpected token in JSON at position 7')).toBe(7)
    expect(errorPosition('bad')).toBeUndefined()
  })
})

const streamOf = (...chunks: string[]) => {
  const encoder = new TextEncoder()
  return new ReadableStream<Uint8Array>({
    start: (controller) => {
      for (const chunk of chunks) controller.enqueue(encoder.encode(chunk))
      controller.close()
    },
  })
}

describe('lines', () => {
  it('joins lines over chunks and drops an incomplete last one', async () => {
    const found: string[] = []
    for await (const line of lines(streamOf('{"a"', ':1}\n{"b":2}\r\n', '\n{"c"'))) found.push(line)
    expect(found).toEqual(['{"a":1}', '{"b":2}', ''])
  })

  it('reads server-sent events', () => {
    const reader = new EventReader()
    const found = [': heartbeat', '', 'id: 7', 'event: stats', 'data: {', 'data: }', '', 'data: x', ''].map((line) => reader.push(line))
    expect(found.filter((event) => event !== undefined)).toEqual([
      { id: '7', event: 'stats', data: '{\n}' },
      { id: '7', event: 'message', data: 'x' },
    ])
  })

  it('pauses longer after each failure, up to a bound', () => {
    const pauses = [0, 1, 2, 20].map((attempt) => backoffMs(attempt, () => 0.5))
    expect(pauses).toEqual([250, 500, 1000, 10_000])
  })
})

const TEXT = `# HELP x A help.
# TYPE x counter
x{protocol="http",operation="a\\"b\\\\"} 3
x{protocol="grpc",operation="c"} 4
h_bucket{le="0.1"} 5
h_bucket{le="1"} 9
h_bucket{le="+Inf"} 10
bad
plain 1.5
`

describe('exposition', () => {
  it('reads names, labels and values', () => {
    expect(parseExposition(TEXT)[0]).toEqual({ name: 'x', labels: { protocol: 'http', operation: 'a"b\\' }, value: 3 })
    const scrape = new Scrape(TEXT, 0)
    expect(scrape.sum('x')).toBe(7)
    expect(scrape.sum('x', { protocol: 'grpc' })).toBe(4)
    expect(scrape.sum('absent')).toBeUndefined()
    expect([...scrape.by('x', 'protocol')]).toEqual([['http', 3], ['grpc', 4]])
    expect(scrape.sum('plain')).toBe(1.5)
  })

  it('computes rates and quantiles between two scrapes', () => {
    expect([rate(10, 30, 2), rate(30, 4, 2), rate(undefined, 1, 2), rate(1, 2, 0)]).toEqual([10, 2, undefined, undefined])
    const now = new Scrape(TEXT, 0).all('h_bucket')
    expect([0.5, 0.9, 0.99].map((q) => bucketQuantile(q, [], now))).toEqual([0.1, 1, Infinity])
    expect(bucketQuantile(0.5, now, now)).toBeUndefined()
  })
})

describe('plan', () => {
  it('is a tree by indentation', () => {
    const [limit] = parsePlan(['Limit', '  s Read by index', '    RowScan, metrics=[output_rows=1200, elapsed_compute=1.5ms]', '  other'])
    expect(limit?.children.map((child) => child.name)).toEqual(['s Read by index', 'other'])
    expect(limit?.children[0]?.children[0]).toMatchObject({ rows: '1200', seconds: 0.0015 })
    expect(parsePlan([])).toEqual([])
    expect(parsePlan(['t Read by index t_a (a =)', 'Rows: 40, time: 0.5 ms'])).toMatchObject([{ rows: '40', seconds: 0.0005 }])
  })

  it('says what is slow in a plan, and which columns it compares', () => {
    const nodes = parsePlan([
      'ProjectionExec: expr=[id@0 as c3], metrics=[output_rows=40, elapsed_compute=32.91µs]',
      '  FilterExec: visitor@1 = 7 AND page@2 = a, metrics=[output_rows=40, elapsed_compute=8.96ms, selectivity=100% (40/40)]',
      '    DataSourceExec: partitions=1, metrics=[]',
    ])
    const found = findings(nodes)
    expect(found).toMatchObject({ slowest: { name: 'Filter', rows: '40' }, scans: true, columns: ['visitor', 'page'] })
    expect(found.slowest?.metrics.at(-1)).toEqual(['selectivity', '100% (40/40)'])
    expect(['SELECT * FROM a', 'SELECT * FROM a JOIN b ON true', 'SELECT * FROM s."x y" WHERE 1 = 1'].map(onlyTable)).toEqual(['a', undefined, 's."x y"'])
  })

  it('reads times', () => {
    expect(['5ns', '2 µs', '3ms', '1s'].map(parseSeconds)).toEqual([5e-9, 2e-6, 0.003, 1])
    expect(parseSeconds('soon')).toBeUndefined()
  })
})

describe('csv', () => {
  it('quotes fields and disarms formulas', () => {
    expect(['a', 'a"b', 'a,b', '', '=1+1', '-5', '+1e3', '@x', '-x'].map(csvField)).toEqual(['a', '"a""b"', '"a,b"', '""', "'=1+1", '-5', '+1e3', "'@x", "'-x"])
    expect(csv(['a', 'b'], [['1', null]])).toBe('a,b\r\n1,\r\n')
  })
})
