/** Now: what the server does at this moment, and did in the last hour. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'

import { json, page, path as encoded, send } from '../api/client'
import type { Problem } from '../api/client'
import { listStores } from '../api/events'
import { onGrid, range } from '../api/prom'
import type { Series } from '../api/prom'
import { follow, useLoaded, usePages } from '../api/resource'
import { may } from '../api/session'
import { bucketQuantile, rate, Scrape } from '../base/exposition'
import { formatBytes, formatCompact, formatCount, formatDuration, formatRate, formatShare } from '../base/format'
import { member, parseJson } from '../base/json'
import { plural } from '../base/text'
import { link } from '../route'
import { Chart } from '../ui/chart'
import { NameList } from '../ui/list'
import { Busy, Card, Code, Empty, ProblemNotice, SeqLink, serverUrl, Text } from '../ui/parts'
import { Table } from '../ui/table'

const LIVE_MS = 2_000
const HISTORY_MS = 15_000
const KEYSPACES_MS = 5_000
const HOUR = 3_600
const STEP = 15
/** Shortest time that the charts show. */
const SHORTEST = 300

interface Level {
  runs: number
  bytes: number
}

export interface Stats {
  seq: number
  checkpoint: number
  memtable_bytes: number
  memtable_bytes_max: number
  memtables_frozen: number
  snapshots: number
  flush_error: string | null
  cache_bytes: number
  cache_bytes_max: number
  run_memory_bytes: number
  log: { appended_bytes: number; written_bytes: number; syncs: number; segments: number; spare_segments: number }
}

interface Keyspace {
  name: string
  entries: number
  file_bytes: number
  flushed_bytes: number
  compacted_bytes: number
  levels: Level[]
}

const promLink = (promql: string) => link(['metrics'], { q: promql, range: '1h' })

/** Two scrapes in a row, what was counted between them, and the values of the tiles at the scrapes before. */
interface Live {
  now: Scrape
  before: Scrape | undefined
  past: readonly Values[]
}

/** Time between the first two scrapes: rates appear at once. */
const FIRST_MS = 600
/** Values of a tile that its line shows. */
const PAST_MAX = 60

const useLive = (wanted: boolean) => {
  const last = useRef<Live | undefined>(undefined)
  return useLoaded<Live>(
    wanted ? 'live' : undefined,
    async (signal) => {
      const scrape = async () => new Scrape(await (await send('/metrics', { signal })).text(), performance.now() / 1000)
      let before = last.current?.now
      if (!before) {
        before = await scrape()
        await new Promise((resolve) => setTimeout(resolve, FIRST_MS))
      }
      const live = { now: await scrape(), before, past: last.current?.past ?? [] }
      last.current = { ...live, past: [...live.past, valuesOf(live)].slice(-PAST_MAX) }
      return last.current
    },
    LIVE_MS,
  )
}

/** Statistics of the engine each second, while the page is on the screen. */
const useStats = (wanted: boolean): Stats | undefined => {
  const [stats, setStats] = useState<Stats>()
  useEffect(() => {
    if (!wanted) return
    let stop: (() => void) | undefined
    const change = () => {
      stop?.()
      stop = document.hidden
        ? undefined
        : follow(
            // Of the keyspaces only one: the table reads them page by page.
            () => '/v1/stats/live?format=ndjson&interval_ms=1000&limit=1',
            (line) => {
              const value = parseJson(line)
              if (member(value, 'seq') !== undefined) setStats(value as unknown as Stats)
            },
            () => undefined,
          )
    }
    change()
    document.addEventListener('visibilitychange', change)
    return () => {
      document.removeEventListener('visibilitychange', change)
      stop?.()
    }
  }, [wanted])
  return stats
}

const shown = (value: number | undefined, format: (value: number) => string): string =>
  value === undefined ? '–' : format(value)

/** Counters of the two scrapes as rates. */
const rateOf = ({ now, before }: Omit<Live, 'past'>, name: string, where: Record<string, string> = {}): number | undefined =>
  before && rate(before.sum(name, where), now.sum(name, where), now.seconds - before.seconds)

/** What the tiles show. */
const valuesOf = (live: Omit<Live, 'past'>) => {
  const { now, before } = live
  const syncs = rateOf(live, 'ropewalk_log_syncs_total')
  const syncSeconds = rateOf(live, 'ropewalk_log_sync_seconds_total')
  return {
    commits: rateOf(live, 'ropewalk_commits_total'),
    syncs,
    syncTime: syncs !== undefined && syncs > 0 && syncSeconds !== undefined ? syncSeconds / syncs : undefined,
    requests: rateOf(live, 'ropewalk_requests_total'),
    slow: before && bucketQuantile(0.99, before.all('ropewalk_request_seconds_bucket'), now.all('ropewalk_request_seconds_bucket')),
    memory: now.sum('ropewalk_memtable_bytes'),
    cache: now.sum('ropewalk_cache_bytes'),
    written: rateOf(live, 'ropewalk_log_written_bytes_total'),
    connections: now.sum('ropewalk_connections'),
    subscriptions: now.sum('ropewalk_subscriptions'),
  }
}
type Values = ReturnType<typeof valuesOf>

/** The last two minutes of a value as a line; a gap where it was not known. */
const Spark = ({ values }: { values: readonly (number | undefined)[] }) => {
  const most = Math.max(...values.map((value) => (value !== undefined && Number.isFinite(value) ? value : 0)))
  const start = PAST_MAX - values.length
  const points = values.flatMap((value, index) =>
    value === undefined || !Number.isFinite(value) ? [] : [`${((start + index) * 100) / (PAST_MAX - 1)},${most > 0 ? 25 - (24 * value) / most : 25}`],
  )
  return (
    <svg viewBox="0 0 100 26" preserveAspectRatio="none" aria-hidden="true">
      <polyline points={points.join(' ')} vector-effect="non-scaling-stroke" />
    </svg>
  )
}

const Tile = ({ name, value, note, href, past }: { name: string; value: string; note: string; href: string; past: readonly (number | undefined)[] }) => (
  <a class="tile" href={href}>
    <span class="soft">{name}</span>
    <span class="value">{value}</span>
    <span class="soft small">{note}</span>
    <Spark values={past} />
  </a>
)

const Tiles = ({ live }: { live: Live }) => {
  const { now, past } = live
  const { commits, syncs, syncTime, requests, slow, memory, cache, written, connections, subscriptions } = valuesOf(live)
  const memoryMax = now.sum('ropewalk_memtable_bytes_max')
  const line = (name: keyof Values) => past.map((values) => values[name])
  const eachSync = commits !== undefined && syncs !== undefined && syncs > 0 ? `${formatCompact(commits / syncs)} commits each` : 'group commit'
  return (
    <div class="tiles of-eight">
      <Tile
        name="Commits"
        value={shown(commits, formatRate)}
        note={`${formatCount(now.sum('ropewalk_commits_total') ?? 0)} in all`}
        href={promLink('sum(rate(ropewalk_commits_total[1m]))')}
        past={line('commits')}
      />
      <Tile
        name="Log syncs"
        value={shown(syncs, formatRate)}
        note={syncTime === undefined ? eachSync : `${formatDuration(syncTime)}, ${eachSync}`}
        href={promLink('sum(rate(ropewalk_log_syncs_total[1m]))')}
        past={line('syncs')}
      />
      <Tile
        name="Requests"
        value={shown(requests, formatRate)}
        note={`${formatCount(now.sum('ropewalk_requests_running') ?? 0)} running`}
        href={promLink('sum by (protocol) (rate(ropewalk_requests_total[1m]))')}
        past={line('requests')}
      />
      <Tile
        name="Slowest 1 % take over"
        value={shown(slow, (bound) => (Number.isFinite(bound) ? formatDuration(bound) : '30 s'))}
        note="requests of the last 2 s"
        href={promLink('histogram_quantile(0.99, sum by (le, operation) (rate(ropewalk_request_seconds_bucket[1m])))')}
        past={line('slow')}
      />
      <Tile
        name="Written to the log"
        value={shown(written, (bytes) => `${formatBytes(bytes)}/s`)}
        note={plural(now.sum('ropewalk_log_segments') ?? 0, 'segment')}
        href={promLink('sum(rate(ropewalk_log_written_bytes_total[1m]))')}
        past={line('written')}
      />
      <Tile
        name="Memtables"
        value={shown(memory, formatBytes)}
        note={memory !== undefined && memoryMax !== undefined ? `${formatShare(memory, memoryMax)} of ${formatBytes(memoryMax)}` : ''}
        href={promLink('ropewalk_memtable_bytes')}
        past={line('memory')}
      />
      <Tile
        name="Block cache"
        value={shown(cache, formatBytes)}
        note={plural(now.sum('ropewalk_runs') ?? 0, 'sorted file')}
        href={promLink('ropewalk_cache_bytes')}
        past={line('cache')}
      />
      {connections === undefined ? (
        <Tile
          name="Subscriptions"
          value={shown(subscriptions, formatCount)}
          note={`${formatCount(now.sum('ropewalk_reads') ?? 0)} open reads`}
          href={promLink('ropewalk_subscriptions')}
          past={line('subscriptions')}
        />
      ) : (
        <Tile
          name="Connections"
          value={formatCount(connections)}
          note={`${plural(subscriptions ?? 0, 'subscription')}, ${plural(now.sum('ropewalk_reads') ?? 0, 'open read')}`}
          href={promLink('sum by (protocol) (ropewalk_connections)')}
          past={line('connections')}
        />
      )}
    </div>
  )
}

/** Health in one line with a reason. */
const Health = ({ live, stats, notReady }: { live: Live | undefined; stats: Stats | undefined; notReady: Problem | undefined }) => {
  const full = stats && stats.memtable_bytes_max > 0 && stats.memtable_bytes / stats.memtable_bytes_max > 0.9
  const failed = live?.now.sum('ropewalk_projection_failed') ?? 0
  const parked = live?.now.sum('ropewalk_projection_parked') ?? 0
  const [state, text] = notReady
    ? (['bad', `Not ready: ${notReady.message}`] as const)
    : stats?.flush_error
      ? (['bad', `Memtables cannot be written to disk: ${stats.flush_error}`] as const)
      : failed > 0
        ? (['bad', `${plural(failed, 'projection')} stopped at an event that failed`] as const)
        : full
          ? (['warn', 'Writers wait: the memtables are full, and a flush is on its way'] as const)
          : parked > 0
            ? (['warn', `${plural(parked, 'event')} of projections were set aside`] as const)
            : (['good', 'Commits are accepted and durable'] as const)
  return (
    <p class="row" role="status">
      <span class={`pill ${state}`}>
        <span class="dot" /> {state === 'good' ? 'healthy' : state === 'warn' ? 'attention' : 'failing'}
      </span>
      <Text text={text} />
    </p>
  )
}

const QUERIES = {
  commits: 'sum(rate(ropewalk_commits_total{job="ropewalk"}[1m]))',
  requests: 'sum by (protocol) (rate(ropewalk_requests_total{job="ropewalk"}[1m]))',
  memory: '{__name__=~"ropewalk_(memtable|cache)_bytes",job="ropewalk"}',
  log: 'sum(rate(ropewalk_log_written_bytes_total{job="ropewalk"}[1m]))',
} as const

const useHistory = () =>
  useLoaded(
    'history',
    async (signal) => {
      const to = Math.floor(Date.now() / 1000 / STEP) * STEP
      const results = await Promise.all(
        Object.entries(QUERIES).map(async ([name, promql]) => [name, (await range(promql, to - HOUR, to, STEP, signal)).data.result as Series[]] as const),
      )
      // A server that started a few minutes ago has no hour to show.
      const first = Math.min(to, ...results.flatMap(([, series]) => series.map(({ values }) => values?.[0]?.[0] ?? to)))
      const from = Math.max(to - HOUR, Math.min(first, to - SHORTEST))
      const all = results.map(([name, series]) => [name, onGrid(series, from, to, STEP)] as const)
      return Object.fromEntries(all) as Record<keyof typeof QUERIES, ReturnType<typeof onGrid>>
    },
    HISTORY_MS,
  )

const History = () => {
  const { data, problem, reload } = useHistory()
  const named = useMemo(() => {
    if (!data) return undefined
    const rename = (lines: { label: string; values: (number | null)[] }[], name: string) =>
      lines.map((line) => ({ ...line, label: line.label === '{}' ? name : (/"([^"]*)"/.exec(line.label)?.[1] ?? line.label) }))
    const memory = data.memory.lines.map((line) => ({
      ...line,
      label: line.label.startsWith('ropewalk_cache') ? 'block cache' : 'memtables',
    }))
    return {
      commits: rename(data.commits.lines, 'commits'),
      requests: rename(data.requests.lines, 'requests'),
      log: rename(data.log.lines, 'log'),
      memory,
    }
  }, [data])
  if (problem && !data) return <ProblemNotice problem={problem} retry={reload} />
  if (!data || !named) return <Busy what="Reading the last hour" />
  if (named.commits.length === 0) {
    return (
      <Empty title="No history yet" command="ropewalk serve --prometheus-self-scrape 15s">
        <p>
          The server stores its own metrics every 15 seconds, unless the setting prometheus.self_scrape is off. The first
          values appear after a minute.
        </p>
      </Empty>
    )
  }
  const perSecond = (value: number) => formatRate(value)
  return (
    <div class="panels">
      <Card title={<a href={promLink(QUERIES.commits)}>Commits</a>}>
        <Chart label="Commits for each second in the last hour" times={data.commits.times} lines={named.commits} format={perSecond} fromZero />
      </Card>
      <Card title={<a href={promLink(QUERIES.requests)}>Requests by protocol</a>}>
        <Chart label="Requests for each second by protocol" times={data.requests.times} lines={named.requests} format={perSecond} fromZero />
      </Card>
      <Card title={<a href={promLink(QUERIES.memory)}>Memory</a>}>
        <Chart label="Bytes of memtables and of the block cache" times={data.memory.times} lines={named.memory} format={formatBytes} fromZero binary />
      </Card>
      <Card title={<a href={promLink(QUERIES.log)}>Bytes written to the log</a>}>
        <Chart label="Bytes for each second written to the log" times={data.log.times} lines={named.log} format={(value) => `${formatBytes(value)}/s`} fromZero binary />
      </Card>
    </div>
  )
}

const Operations = ({ live }: { live: Live }) => {
  const { now, before } = live
  const rows = now
    .all('ropewalk_request_seconds_count')
    .map(({ labels, value }) => {
      const where = { protocol: labels['protocol'] ?? '', operation: labels['operation'] ?? '' }
      const seconds = now.sum('ropewalk_request_seconds_sum', where) ?? 0
      return { ...where, count: value, mean: value > 0 ? seconds / value : 0, rate: before ? rateOf(live, 'ropewalk_request_seconds_count', where) : undefined }
    })
    .filter((row) => row.count > 0)
    .sort((a, b) => (b.rate ?? 0) - (a.rate ?? 0) || b.count * b.mean - a.count * a.mean)
    .slice(0, 12)
  return (
    <Card title="Operations">
      <Table
        label="Operations"
        rows={rows}
        id={(row) => `${row.protocol} ${row.operation}`}
        columns={[
          { name: 'Protocol', cell: (row) => row.protocol },
          {
            name: 'Operation',
            cell: ({ protocol, operation }) => (
              <a href={promLink(`histogram_quantile(0.99, sum by (le) (rate(ropewalk_request_seconds_bucket{protocol="${protocol}",operation="${operation}"}[1m])))`)}>{operation}</a>
            ),
          },
          { name: 'Now', kind: 'number', cell: (row) => shown(row.rate, formatRate) },
          { name: 'Mean time', kind: 'number', cell: (row) => formatDuration(row.mean) },
          { name: 'Since the start', kind: 'number', cell: (row) => formatCount(row.count) },
        ]}
      />
    </Card>
  )
}

const Keyspaces = ({ rows }: { rows: Keyspace[] }) =>
  rows.length === 0 ? (
    <p class="soft">All data is in memtables and in the log so far. Sorted files appear after the first flush.</p>
  ) : (
    <Table
      label="Storage"
      rows={rows}
      id={(keyspace) => keyspace.name}
      columns={[
        { name: 'Keyspace', cell: (keyspace) => keyspace.name },
        { name: 'Entries', kind: 'number', cell: (keyspace) => formatCount(keyspace.entries) },
        { name: 'On disk', kind: 'number', cell: (keyspace) => formatBytes(keyspace.file_bytes) },
        { name: 'Levels: files, bytes', cell: (keyspace) => keyspace.levels.map((level) => `${level.runs}, ${formatBytes(level.bytes)}`).join(' · ') },
        {
          name: 'Merged for each byte flushed',
          kind: 'number',
          cell: (keyspace) => (keyspace.flushed_bytes > 0 ? formatCompact(keyspace.compacted_bytes / keyspace.flushed_bytes) : '–'),
        },
      ]}
    />
  )

const Storage = ({ stats }: { stats: Stats }) => {
  const keyspaces = usePages('keyspaces', (after, signal) => page<Keyspace>('/v1/stats', 'keyspaces', after, signal), KEYSPACES_MS)
  return (
    <Card title="Storage">
      <dl class="facts">
        <dt>Newest commit</dt>
        <dd>{may('admin') && stats.seq > 0 ? <SeqLink seq={stats.seq} /> : formatCount(stats.seq)}</dd>
        <dt>In sorted files up to</dt>
        <dd>commit {formatCount(stats.checkpoint)}; recovery reads the log after it</dd>
        <dt>Waiting for a flush</dt>
        <dd>{plural(stats.memtables_frozen, 'memtable')}</dd>
        <dt>Open snapshots</dt>
        <dd>{formatCount(stats.snapshots)}</dd>
      </dl>
      <NameList list={keyspaces} noun="keyspace" name={(keyspace) => keyspace.name}>
        {(found) => <Keyspaces rows={found.filter((keyspace) => keyspace.entries > 0).sort((a, b) => b.file_bytes - a.file_bytes)} />}
      </NameList>
    </Card>
  )
}

interface Group {
  name: string
  waiting: number
  parked: number
}
interface Projection {
  name: string
  state: string
  lag: number
  parked: number
}

/** Stores whose consumers are shown: each costs two requests. */
const STORES_MAX = 20

const useConsumers = () =>
  useLoaded(
    'consumers',
    async (signal) => {
      const { entries: stores, next } = await listStores(undefined, signal)
      const some = [...stores].sort((a, b) => b.events - a.events).slice(0, STORES_MAX)
      const rows = await Promise.all(
        some.map(async ({ name }) => {
          const [groups, projections] = await Promise.all([
            json<{ groups: Group[] }>(encoded`/v1/stores/${name}/groups`, { signal }),
            json<{ projections: Projection[] }>(encoded`/v1/stores/${name}/projections`, { signal }),
          ])
          return [
            ...groups.groups.map((group) => ({ store: name, kind: 'group', name: group.name, lag: group.waiting, parked: group.parked, state: '' })),
            ...projections.projections.map((projection) => ({ store: name, kind: 'projection', ...projection })),
          ]
        }),
      )
      return { rows: rows.flat(), stores, isPart: next !== undefined || stores.length > some.length }
    },
    10_000,
  )

const Consumers = () => {
  const { data } = useConsumers()
  if (!data) return null
  if (data.stores.every((store) => store.events === 0)) {
    return (
      <Empty
        title="No events yet"
        command={`curl -s ${serverUrl()}/v1/stores/courses/events -H 'Content-Type: application/json' -d '{
  "events": [{"type": "CourseDefined", "tags": ["course:c1"], "data": {"capacity": 2}}]
}'`}
      >
        <p>This appends the first one:</p>
      </Empty>
    )
  }
  if (data.rows.length === 0) return null
  return (
    <Card title="Consumers">
      <Table
        label="Consumers"
        rows={data.rows}
        id={(row) => `${row.store} ${row.kind} ${row.name}`}
        columns={[
          { name: 'Store', cell: (row) => <Text text={row.store} /> },
          {
            name: 'Consumer',
            cell: (row) => (
              <>
                <a href={link(['events', row.store], { tab: row.kind === 'group' ? 'groups' : 'projections' })}>
                  <Text text={row.name} />
                </a>{' '}
                <span class="soft">{row.kind}</span>
              </>
            ),
          },
          { name: 'State', cell: (row) => row.state, tone: (row) => row.state === 'failed' && 'bad' },
          { name: 'Lag', kind: 'number', cell: (row) => formatCount(row.lag) },
          { name: 'Parked', kind: 'number', cell: (row) => formatCount(row.parked), tone: (row) => row.parked > 0 && 'warn' },
        ]}
      />
      {data.isPart && <p class="soft">Of {STORES_MAX} large stores. The page Events has all stores.</p>}
    </Card>
  )
}

export const Now = () => {
  const all = may('read')
  const live = useLive(all)
  const stats = useStats(all)
  const ready = useLoaded('ready', async (signal) => (await send('/ready', { signal })).status, 5_000)
  return (
    <>
      <h1>Now</h1>
      <Health live={live.data} stats={stats} notReady={ready.problem} />
      {!all && (
        <div class="notice">
          <p>Statistics of the server need the right read on all stores. Your stores are on the page Events.</p>
        </div>
      )}
      {all && <ProblemNotice problem={live.data ? undefined : live.problem} retry={live.reload} />}
      {live.data && <Tiles live={live.data} />}
      {all && <History />}
      <div class="halves">
        {live.data && <Operations live={live.data} />}
        <div class="stack">
          <Consumers />
          {stats && <Storage stats={stats} />}
        </div>
      </div>
      {all && (
        <details class="soft small">
          <summary>The same numbers for a monitoring system</summary>
          <Code text={`curl -s ${serverUrl()}/metrics`} />
        </details>
      )}
    </>
  )
}
