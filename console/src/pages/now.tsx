/** Now: what the server does at this moment, and did in the last hour. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'

import { json, path as encoded, send } from '../api/client'
import type { Problem } from '../api/client'
import { onGrid, range } from '../api/prom'
import type { Series } from '../api/prom'
import { follow, useLoaded } from '../api/resource'
import { may } from '../api/session'
import { bucketQuantile, rate, Scrape } from '../base/exposition'
import { formatBytes, formatCompact, formatCount, formatDuration, formatRate, formatShare } from '../base/format'
import { member, parseJson } from '../base/json'
import { plural } from '../base/text'
import { link } from '../route'
import { Chart } from '../ui/chart'
import { Busy, Card, Code, Empty, ProblemNotice, serverUrl, Text } from '../ui/parts'
import { Table } from '../ui/table'

const LIVE_MS = 2_000
const HISTORY_MS = 15_000
const HOUR = 3_600
const STEP = 15

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
  keyspaces: { name: string; entries: number; file_bytes: number; flushed_bytes: number; compacted_bytes: number; levels: Level[] }[]
}

const promLink = (promql: string) => link(['metrics'], { q: promql, range: '1h' })

/** Two scrapes in a row, and what was counted between them. */
interface Live {
  now: Scrape
  before: Scrape | undefined
}

const useLive = (wanted: boolean) => {
  const last = useRef<Scrape | undefined>(undefined)
  return useLoaded<Live>(
    wanted ? 'live' : undefined,
    async (signal) => {
      const text = await (await send('/metrics', { signal })).text()
      const now = new Scrape(text, performance.now() / 1000)
      const before = last.current
      last.current = now
      return { now, before }
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
            () => '/v1/stats/live?format=ndjson&interval_ms=1000',
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

const Tile = ({ name, value, note, href }: { name: string; value: string; note?: string; href: string }) => (
  <a class="tile" href={href}>
    <span class="soft">{name}</span>
    <span class="value">{value}</span>
    {note !== undefined && <span class="soft small">{note}</span>}
  </a>
)

const shown = (value: number | undefined, format: (value: number) => string): string =>
  value === undefined ? '–' : format(value)

/** Counters of the two scrapes as rates. */
const rateOf = ({ now, before }: Live, name: string, where: Record<string, string> = {}): number | undefined =>
  before && rate(before.sum(name, where), now.sum(name, where), now.seconds - before.seconds)

const Tiles = ({ live }: { live: Live }) => {
  const { now, before } = live
  const commits = rateOf(live, 'ropewalk_commits_total')
  const syncs = rateOf(live, 'ropewalk_log_syncs_total')
  const requests = rateOf(live, 'ropewalk_requests_total')
  const slow =
    before && bucketQuantile(0.99, before.all('ropewalk_request_seconds_bucket'), now.all('ropewalk_request_seconds_bucket'))
  const memory = now.sum('ropewalk_memtable_bytes')
  const memoryMax = now.sum('ropewalk_memtable_bytes_max')
  const written = rateOf(live, 'ropewalk_log_written_bytes_total')
  return (
    <div class="tiles">
      <Tile
        name="Commits"
        value={shown(commits, formatRate)}
        note={`${formatCount(now.sum('ropewalk_commits_total') ?? 0)} in all`}
        href={promLink('sum(rate(ropewalk_commits_total[1m]))')}
      />
      <Tile
        name="Log syncs"
        value={shown(syncs, formatRate)}
        note={commits !== undefined && syncs !== undefined && syncs > 0 ? `${formatCompact(commits / syncs)} commits each` : 'group commit'}
        href={promLink('sum(rate(ropewalk_log_syncs_total[1m]))')}
      />
      <Tile
        name="Requests"
        value={shown(requests, formatRate)}
        note={`${formatCount(now.sum('ropewalk_requests_running') ?? 0)} running`}
        href={promLink('sum by (protocol) (rate(ropewalk_requests_total[1m]))')}
      />
      <Tile
        name="99 % of requests within"
        value={shown(slow, (bound) => (Number.isFinite(bound) ? formatDuration(bound) : 'over 30 s'))}
        note="of the last 2 s"
        href={promLink('histogram_quantile(0.99, sum by (le, operation) (rate(ropewalk_request_seconds_bucket[1m])))')}
      />
      <Tile
        name="Memtables"
        value={shown(memory, formatBytes)}
        note={memory !== undefined && memoryMax !== undefined ? `${formatShare(memory, memoryMax)} of ${formatBytes(memoryMax)}` : ''}
        href={promLink('ropewalk_memtable_bytes')}
      />
      <Tile
        name="Block cache"
        value={shown(now.sum('ropewalk_cache_bytes'), formatBytes)}
        note={`${formatCount(now.sum('ropewalk_runs') ?? 0)} sorted files`}
        href={promLink('ropewalk_cache_bytes')}
      />
      <Tile
        name="Log"
        value={shown(written, (bytes) => `${formatBytes(bytes)}/s`)}
        note={plural(now.sum('ropewalk_log_segments') ?? 0, 'segment')}
        href={promLink('sum(rate(ropewalk_log_written_bytes_total[1m]))')}
      />
      <Tile
        name="Subscriptions"
        value={formatCount(now.sum('ropewalk_subscriptions') ?? 0)}
        note={`${formatCount(now.sum('ropewalk_reads') ?? 0)} open reads`}
        href={promLink('ropewalk_subscriptions')}
      />
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
            : (['good', 'Healthy: commits are accepted and durable'] as const)
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
      const from = to - HOUR
      const all = await Promise.all(
        Object.entries(QUERIES).map(async ([name, promql]) => {
          const { data } = await range(promql, from, to, STEP, signal)
          return [name, onGrid(data.result as Series[], from, to, STEP)] as const
        }),
      )
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
      <Card title={<a href={promLink(QUERIES.commits)}>Commits, last hour</a>}>
        <Chart label="Commits for each second in the last hour" times={data.commits.times} lines={named.commits} format={perSecond} />
      </Card>
      <Card title={<a href={promLink(QUERIES.requests)}>Requests by protocol</a>}>
        <Chart label="Requests for each second by protocol" times={data.requests.times} lines={named.requests} format={perSecond} />
      </Card>
      <Card title={<a href={promLink(QUERIES.memory)}>Memory</a>}>
        <Chart label="Bytes of memtables and of the block cache" times={data.memory.times} lines={named.memory} format={formatBytes} />
      </Card>
      <Card title={<a href={promLink(QUERIES.log)}>Bytes written to the log</a>}>
        <Chart label="Bytes for each second written to the log" times={data.log.times} lines={named.log} format={(value) => `${formatBytes(value)}/s`} />
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

const Storage = ({ stats }: { stats: Stats }) => {
  const rows = [...stats.keyspaces].filter((keyspace) => keyspace.entries > 0).sort((a, b) => b.file_bytes - a.file_bytes)
  return (
    <Card title="Storage">
      <p class="soft small">
        Commit {formatCount(stats.seq)}; recovery would start after commit {formatCount(stats.checkpoint)}.{' '}
        {plural(stats.memtables_frozen, 'memtable')} wait for a flush, {plural(stats.snapshots, 'snapshot')} open.
      </p>
      {rows.length > 0 && (
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
      )}
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
      const { stores } = await json<{ stores: { name: string; events: number }[] }>('/v1/stores', { signal })
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
      return { rows: rows.flat(), stores }
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
      <div class="row between">
        <h1>Now</h1>
      </div>
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
        {stats && <Storage stats={stats} />}
        <Consumers />
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
