/** Every page with data of every kind, from a server that is played by a table of responses. */
import { render } from 'preact'
import { act } from 'preact/test-utils'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import { signInNeeded } from '../src/api/client'
import { session } from '../src/api/session'
import { App } from '../src/app'
import { go } from '../src/route'

// There is no canvas.
vi.mock('uplot', () => ({
  default: class {
    setData() {}
    setSize() {}
    destroy() {}
  },
}))

const HOSTILE = '<img src=x onerror="hacked = 1">'
const EVENT = { position: 7, seq: 9, recorded_at: '2026-11-21T14:36:51.123456Z', type: HOSTILE, tags: [HOSTILE, 'order:o1'], id: 'x', data: { [HOSTILE]: HOSTILE }, metadata: { [HOSTILE]: HOSTILE }, tracking: { source: HOSTILE, position: 1 } }
const QUERY = { items: [{ types: ['A'] }] }

const METRICS = `ropewalk_commits_total 100
ropewalk_log_syncs_total 50
ropewalk_requests_total{protocol="http",operation="append",code="ok"} 10
ropewalk_requests_running{protocol="http",operation="append"} 1
ropewalk_request_seconds_bucket{protocol="http",operation="append",le="0.1"} 9
ropewalk_request_seconds_bucket{protocol="http",operation="append",le="+Inf"} 10
ropewalk_request_seconds_sum{protocol="http",operation="append"} 0.5
ropewalk_request_seconds_count{protocol="http",operation="append"} 10
ropewalk_memtable_bytes 1000
ropewalk_memtable_bytes_max 8000000
ropewalk_cache_bytes 5
ropewalk_log_written_bytes_total 5
ropewalk_log_segments 2
ropewalk_projection_parked{projection="p",store="s"} 2
`
const STATS = {
  seq: 100, checkpoint: 90, memtable_bytes: 1, memtable_bytes_max: 10, memtables_frozen: 0, snapshots: 1, flush_error: null,
  log: { appended_bytes: 1, written_bytes: 1, syncs: 1, segments: 1, spare_segments: 0 },
  cache_bytes: 1, cache_bytes_max: 10, run_memory_bytes: 1,
  keyspaces: [{ name: 'events', number: 0, entries: 5, raw_bytes: 1, file_bytes: 100, flushed_bytes: 10, compacted_bytes: 20, levels: [{ runs: 1, bytes: 100 }] }],
}
const FEED = { seq: 9, recorded_at: EVENT.recorded_at, appends: [{ store: HOSTILE, events: [EVENT] }], writes: [], others: [{ model: 'documents', bytes: 5 }] }
const COMMIT = {
  ...FEED,
  documents: [{ change: { operationType: 'update', ns: { db: 'shop', coll: HOSTILE }, documentKey: { _id: HOSTILE }, updateDescription: { updatedFields: { n: 2 } }, fullDocument: { n: 2 } }, before: { n: HOSTILE } }],
  rows: [{ table: 'stock', change: 'update', before: { sku: HOSTILE, n: '1' }, after: { sku: HOSTILE, n: null } }],
  samples: [{ store: 'default', labels: { __name__: 'x', a: HOSTILE }, count: 7, samples: [[1000, 1.5], [2000, 'NaN']] }],
  writes: [{ keyspace: 3, change: 'put', key_base64: 'AA==' }],
  truncated: true,
}
const GROUP = { name: HOSTILE, query: QUERY, lease_ms: 1, pause_ms: 1, tries: 3, in_order: true, cursor: 1, head: 2, waiting: 1, pending: 0, pending_max: 10, leased: 0, parked: 2 }
const PROJECTION = { name: HOSTILE, version: 1, state: 'failed', checkpoint: null, head: 1, lag: 1, parked: 1, error: HOSTILE, tables: ['t'], collections: ['"default".c'], on_error: 'stop', on: [{ types: [HOSTILE], statements: [HOSTILE] }] }

const success = (data: unknown) => ({ status: 'success', data })
const series = [{ metric: { __name__: 'up', a: HOSTILE }, value: [1, '1'], values: [[0, '1']] }]

const SQL = {
  results: [
    { command: 'SELECT 2', columns: [{ name: HOSTILE, type: 'text' }, { name: 'n', type: 'integer' }], rows: [[HOSTILE, 1], [null, 2]] },
    { command: 'EXPLAIN', columns: [{ name: 'QUERY PLAN', type: 'text' }], rows: [['Sort (1 keys)'], [`  ${HOSTILE}, metrics=[output_rows=5]`]] },
    { command: 'CREATE TABLE' },
  ],
}

/** Responses by the beginning of the URL; the first that fits. */
const RESPONSES: [string, unknown][] = [
  ['/v1/session', { name: 'root', kind: 'user', roles: { '*': ['admin'] }, write_token: 'w', version: '1' }],
  ['/metrics', METRICS],
  ['/ready', { status: 'ready' }],
  ['/v1/stats/live', `${JSON.stringify(STATS)}\n`],
  ['/v1/stats', STATS],
  ['/v1/changes', `${JSON.stringify(FEED)}\n`],
  ['/v1/commits/', COMMIT],
  ['/v1/stores/s/events:query', { head: 7, events: [EVENT] }],
  ['/v1/stores/s/events:count', { count: 1 }],
  ['/v1/stores/s/groups/', { parked: [{ tries: 1, parked_at: EVENT.recorded_at, reason: HOSTILE, event: EVENT }] }],
  ['/v1/stores/s/groups', { groups: [GROUP] }],
  ['/v1/stores/s/projections/', { parked: [{ position: 1, type: HOSTILE, statement: HOSTILE, sqlstate: '23505', message: HOSTILE, parked_at: EVENT.recorded_at, retry: true }] }],
  ['/v1/stores/s/projections', { projections: [PROJECTION] }],
  ['/v1/stores', { stores: [{ name: 's', head: 7, events: 7 }] }],
  ['/v1/databases/d/collections/c/documents:query', { documents: [{ _id: HOSTILE, [HOSTILE]: [HOSTILE] }] }],
  ['/v1/databases/d/collections/c/documents:count', { count: 1 }],
  ['/v1/databases/d/collections/c/documents:explain', { queryPlanner: { winningPlan: { stage: 'FETCH', inputStage: { stage: 'IXSCAN', indexName: HOSTILE } } }, executionStats: { nReturned: 1 } }],
  ['/v1/databases/d/collections/c/documents:aggregate', { documents: [{ _id: HOSTILE }] }],
  ['/v1/databases/d/collections/c/documents/', { _id: HOSTILE }],
  ['/v1/databases/d/collections/c/indexes', { indexes: [{ name: '_id_', fields: ['_id'], unique: true, ready: true }, { name: HOSTILE, fields: [HOSTILE], sparse: true, ready: false }] }],
  ['/v1/databases/d/collections/c/watch', `${JSON.stringify({ _id: { _data: '1' }, operationType: 'insert', documentKey: { _id: HOSTILE }, fullDocument: { x: HOSTILE } })}\n`],
  ['/v1/databases/d/collections', { collections: [{ name: 'c', documents: 1, bytes: 10 }] }],
  ['/v1/databases', { databases: ['d'] }],
  ['/v1/sql', SQL],
  ['/api/v1/query_range', success({ resultType: 'matrix', result: series })],
  ['/api/v1/query', success({ resultType: 'vector', result: series })],
  ['/api/v1/features', success({ promql_functions: { rate: true } })],
  ['/api/v1/label', success(['up'])],
  ['/api/v1/status/tsdb', success({ headStats: { numSeries: 5 }, seriesCountByMetricName: [{ name: HOSTILE, value: 5 }], labelValueCountByLabelName: [], seriesCountByLabelValuePair: [] })],
  ['/api/v1/rules', success({ groups: [{ name: HOSTILE, file: 'f', interval: 15, rules: [{ name: HOSTILE, query: HOSTILE, type: 'alerting', health: 'ok', state: 'firing', lastError: HOSTILE, alerts: [{ labels: { a: HOSTILE }, annotations: {}, state: 'firing', activeAt: EVENT.recorded_at, value: '1' }] }] }] })],
  ['/api/v1/targets', success({ activeTargets: [{ scrapePool: HOSTILE, scrapeUrl: HOSTILE, health: 'down', lastError: HOSTILE, lastScrape: EVENT.recorded_at, lastScrapeDuration: 0.1, labels: {} }] })],
  ['/v1/users', { users: [{ name: 'ann', roles: { [HOSTILE]: ['read'] }, created_at: EVENT.recorded_at }] }],
  ['/v1/tokens', { tokens: [{ id: '1', name: HOSTILE, roles: {}, created_at: EVENT.recorded_at, expires_at: null }] }],
  ['/v1/backups', { backups: [{ name: 'nightly' }] }],
  ['/v1/settings', { settings: [{ name: 'memory', value: HOSTILE, origin: 'default' }] }],
]

const unknown: string[] = []

const respond = (url: string) => {
  const found = RESPONSES.find(([start]) => url.startsWith(start))
  if (!found) unknown.push(url)
  const body = found?.[1] ?? {}
  return Promise.resolve(new Response(typeof body === 'string' ? body : JSON.stringify(body), { status: found ? 200 : 404 }))
}

/** Only to end a hang: other programs may use the processors. */
const PATIENCE = { timeout: 20_000 }

let place: HTMLDivElement
const errors: unknown[] = []
const note = (event: Event) => errors.push(event)

const settle = (ms = 30) => act(() => new Promise((resolve) => setTimeout(resolve, ms)))

const open = async (url: string) => {
  await act(() => {
    go(url)
  })
  await vi.waitFor(async () => {
    await settle()
    expect(place.querySelector('main h1'), url).not.toBeNull()
  }, PATIENCE)
  await settle(80)
}

beforeEach(async () => {
  vi.stubGlobal('fetch', respond)
  window.addEventListener('error', note)
  window.addEventListener('unhandledrejection', note)
  errors.length = 0
  unknown.length = 0
  session.value = undefined
  signInNeeded.value = false
  place = document.createElement('div')
  document.body.append(place)
  go('/ui/')
  await act(() => {
    render(<App />, place)
  })
})

afterEach(() => {
  render(null, place)
  place.remove()
  window.removeEventListener('error', note)
  window.removeEventListener('unhandledrejection', note)
  vi.unstubAllGlobals()
})

/** A page, and a text that it must show. */
const PAGES: [string, RegExp][] = [
  ['/ui/now', /Log syncs/],
  ['/ui/now', /events of projections were set aside/],
  ['/ui/commits', /of the newest 1 shown|newest/],
  ['/ui/commits?seq=9', /Keys: /],
  ['/ui/events', /7/],
  ['/ui/events/s?position=7', /What else happened to/],
  ['/ui/events/s?tab=groups', /deliveries, in order/],
  ['/ui/events/s?tab=projections', /Declaration/],
  ['/ui/events/s?tab=append', /Append an event/],
  ['/ui/documents', /Collection/],
  ['/ui/documents/d/c', /1 document/],
  ['/ui/documents/d/c?tab=pipeline', /Run/],
  ['/ui/documents/d/c?tab=indexes', /being built/],
  ['/ui/documents/d/c?tab=shape', /100 %/],
  ['/ui/documents/d/c?tab=changes', /insert/],
  ['/ui/sql', /Tables/],
  ['/ui/metrics?q=up&as=table', /1 result in/],
  ['/ui/metrics?q=up', /1 result in/],
  ['/ui/metrics?tab=cardinality', /5 series/],
  ['/ui/metrics?tab=rules', /firing/],
  ['/ui/metrics?tab=targets', /down/],
  ['/ui/keep', /Rights/],
  ['/ui/keep/users', /ann/],
  ['/ui/keep/tokens', /never/],
  ['/ui/keep/backups', /nightly/],
  ['/ui/keep/settings', /memory/],
]

describe('pages', () => {
  for (const [url, text] of PAGES) {
    it(`${url} shows ${text.source}`, async () => {
      await open(url)
      await vi.waitFor(async () => {
        await settle()
        expect(place.textContent).toMatch(text)
      }, PATIENCE)
      expect(place.querySelectorAll('img, script')).toHaveLength(0)
      expect([errors, unknown]).toEqual([[], []])
    })
  }

  it('run statements and show their results, plans and commands', async () => {
    await open('/ui/sql?sql=SELECT%201')
    const button = [...place.querySelectorAll('button')].find((button) => button.textContent.startsWith('Run'))
    await act(() => {
      button?.click()
    })
    await vi.waitFor(async () => {
      await settle()
      expect(place.textContent).toContain('2 rows, 2 columns')
    }, PATIENCE)
    expect(place.textContent).toContain('5 rows')
    expect(place.textContent).toContain('CREATE TABLE')
    expect(place.querySelectorAll('img, script')).toHaveLength(0)
    expect(errors).toEqual([])
  })

  it('open parked events, and a document', async () => {
    await open('/ui/events/s?tab=groups')
    const look = [...place.querySelectorAll('button')].find((button) => button.textContent.startsWith('Look at'))
    await act(() => {
      look?.click()
    })
    await settle(60)
    expect(place.textContent).toContain('after 1 try')
    await open('/ui/documents/d/c?as=tree')
    const edit = [...place.querySelectorAll('button')].find((button) => button.textContent === 'Edit')
    await act(() => {
      edit?.click()
    })
    await settle(120)
    expect(place.querySelector('dialog')?.textContent).toContain('Store')
    expect(place.querySelectorAll('img, script')).toHaveLength(0)
    expect(errors).toEqual([])
  })
})
