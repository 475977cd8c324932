/** Metrics: PromQL as graph and table, labels and cardinality, rules, alerts, targets. */
import { useMemo, useRef, useState } from 'preact/hooks'

import { query as search } from '../api/client'
import { data, instant, listRules, onGrid, parseDuration, range, sampleValue, seriesName, stepFor, valuesOf } from '../api/prom'
import type { Labels, RuleGroup, Series } from '../api/prom'
import { useLoaded, usePages } from '../api/resource'
import { formatCount, formatDuration, formatLocal, formatNumber } from '../base/format'
import type { Json } from '../base/json'
import { plural } from '../base/text'
import { change, link, parameter, parameters } from '../route'
import { CodeField } from '../ui/code-field'
import { Form } from '../ui/form'
import type { Names } from '../ui/languages/promql'
import { LazyChart } from '../ui/lazy-chart'
import { NameList } from '../ui/list'
import { Busy, Card, Empty, Field, ProblemNotice, Segments, serverUrl, Tabs, Text, Time } from '../ui/parts'
import { Table } from '../ui/table'
import { Tree } from '../ui/tree'

/** Rows of a table of results. */
const ROWS_MAX = 500
const REFRESH_MS = 15_000

/** Names for completion; each list is loaded once, when it is first needed. */
const useHints = () => {
  const functions = useLoaded('features', (signal) => data<Record<string, Record<string, boolean>>>('features', signal))
  return useMemo(() => {
    const names = Object.entries(functions.data ?? {})
      .filter(([category]) => /^(promql_(functions|operators)|metricsql_)/.test(category))
      .flatMap(([, members]) => Object.keys(members))
      .filter((name) => /^[a-z]/.test(name))
    const values = new Map<string, ReturnType<typeof valuesOf>>()
    const valuesBy = (label: string, start: string) => {
      const found = values.get(label) ?? valuesOf(label)
      values.set(label, found)
      return found(start)
    }
    let labels: Promise<Names> | undefined
    return {
      functions: [...new Set(names)],
      metrics: (start: string) => valuesBy('__name__', start),
      labels: () =>
        (labels ??= data<string[]>('labels?limit=10000').then(
          (names) => ({ names, all: true }),
          () => ({ names: [], all: true }),
        )),
      values: valuesBy,
    }
  }, [functions.data])
}

interface Span {
  seconds: number
  /** Seconds since 1970; `undefined`: now. */
  end: number | undefined
  step: number
}

const spanOf = (): Span => {
  const seconds = parseDuration(parameter('range', '1h')) ?? 3_600
  const end = Date.parse(parameter('end')) / 1000
  return { seconds, end: Number.isFinite(end) ? end : undefined, step: parseDuration(parameter('step')) ?? stepFor(seconds) }
}

const InstantTable = ({ series }: { series: readonly Series[] }) => {
  const rows = [...series].sort((a, b) => sampleValue(b.value?.[1] ?? '') - sampleValue(a.value?.[1] ?? '')).slice(0, ROWS_MAX)
  return (
    <>
      <Table
        label="Values"
        rows={rows}
        id={({ metric }) => seriesName(metric)}
        columns={[
          { name: 'Series', kind: 'mono', cell: ({ metric }) => <Text text={seriesName(metric)} max={400} /> },
          {
            name: 'Value',
            kind: 'number',
            cell: ({ value, histogram }) => (value ? <span title={value[1]}>{formatNumber(sampleValue(value[1]))}</span> : <Tree value={(histogram?.[1] ?? null) as Json} />),
          },
        ]}
      />
      {series.length > ROWS_MAX && <p class="soft">The first {ROWS_MAX} of {formatCount(series.length)} series.</p>}
    </>
  )
}

const Panel = ({ promql, span, as }: { promql: string; span: Span; as: 'graph' | 'table' }) => {
  const key = promql.trim() === '' ? undefined : [promql, as, span.seconds, span.end, span.step].join('\u0000')
  const loaded = useLoaded(
    key,
    async (signal) => {
      const begun = performance.now()
      if (as === 'table') {
        const answer = await instant(promql, span.end, signal)
        return { answer, grid: undefined, seconds: (performance.now() - begun) / 1000 }
      }
      const end = Math.floor((span.end ?? Date.now() / 1000) / span.step) * span.step
      const start = end - Math.floor(span.seconds / span.step) * span.step
      const answer = await range(promql, start, end, span.step, signal)
      return { answer, grid: onGrid(answer.data.result as Series[], start, end, span.step), seconds: (performance.now() - begun) / 1000 }
    },
    span.end === undefined ? REFRESH_MS : undefined,
  )
  const { answer, grid, seconds } = loaded.data ?? {}
  const result = answer?.data
  const notes = [...(answer?.warnings ?? []), ...(answer?.infos ?? [])]
  const select = (from: number, to: number) => {
    const seconds = Math.max(Math.round(to - from), 10)
    change({ range: `${seconds}s`, end: new Date(to * 1000).toISOString(), step: undefined })
  }
  return (
    <div class="stack">
      <ProblemNotice problem={loaded.problem} retry={loaded.reload} />
      {notes.map((note) => (
        <p key={note} class="notice warn">
          <Text text={note} />
        </p>
      ))}
      {!loaded.data && key !== undefined && !loaded.problem && <Busy what="Evaluating" />}
      {grid && grid.lines.length > 0 && <LazyChart label={`Graph of ${promql}`} times={grid.times} lines={grid.lines} height={300} select={select} />}
      {result?.resultType === 'vector' && (result.result as Series[]).length > 0 && <InstantTable series={result.result as Series[]} />}
      {result && (result.resultType === 'scalar' || result.resultType === 'string') && <p class="mono">{(result.result as [number, string])[1]}</p>}
      {result && Array.isArray(result.result) && result.result.length === 0 && <p class="soft">No series. Names and times are as in the query; the last hour has no sample of it.</p>}
      {seconds !== undefined && result && <p class="soft small">{plural((result.result as unknown[]).length, 'result')} in {formatDuration(seconds)}</p>}
    </div>
  )
}

const RANGES: readonly string[] = ['5m', '15m', '1h', '6h', '1d', '1w', '4w']

/** Queries of a newcomer: what they show, and their text. */
const EXAMPLES = [
  ['99 % of commits take at most', 'histogram_quantile(0.99, sum by (le) (rate(ropewalk_request_seconds_bucket{operation=~"append|transaction|sql"}[1m])))'],
  ['commits each second', 'sum(rate(ropewalk_commits_total[1m]))'],
  ['requests each second by protocol', 'sum by (protocol) (rate(ropewalk_requests_total[1m]))'],
  ['lag of projections', 'ropewalk_projection_lag_events'],
] as const

const Query = () => {
  const hints = useHints()
  const queries = parameters.value.getAll('q')
  const shown = queries.length === 0 ? [''] : queries
  const [texts, setTexts] = useState<Record<number, string>>({})
  const span = spanOf()
  const as = parameter('as') === 'table' ? 'table' : 'graph'
  const run = (index: number, text: string) => change({ q: shown.map((query, place) => (place === index ? text : query)) })
  const metrics = useLoaded('metrics', () => hints.metrics(''))
  return (
    <div class="stack">
      <div class="row end">
        <Segments
          label="Form of the results"
          options={[
            ['graph', 'Graph'],
            ['table', 'Table'],
          ]}
          current={as}
          choose={(form) => change({ as: form === 'graph' ? undefined : form })}
        />
        <Segments label="Range" options={RANGES.map((name) => [name, name] as const)} current={parameter('range', '1h')} choose={(name) => change({ range: name, end: undefined, step: undefined })} />
        <Form
          layout="row end"
          submit={(text) => {
            const end = new Date(text('end'))
            change({ range: text('range'), end: Number.isNaN(end.getTime()) ? undefined : end.toISOString(), step: text('step') })
          }}
        >
          <Field label="Other range" name="range" class="short" key={`r${parameter('range')}`} defaultValue={parameter('range', '1h')} />
          <Field label="Step" name="step" class="short" key={`s${parameter('step')}`} placeholder={`${span.step}s`} defaultValue={parameter('step')} />
          <Field label="Until" name="end" type="datetime-local" step="1" key={`e${parameter('end')}`} defaultValue={span.end === undefined ? '' : formatLocal(new Date(span.end * 1000)).slice(0, 19).replace(' ', 'T')} />
          <button>Set</button>
        </Form>
      </div>
      {shown.map((query, index) => (
        <Card key={index}>
          <CodeField
            language="promql"
            hints={hints}
            value={texts[index] ?? query}
            change={(text) => setTexts({ ...texts, [index]: text })}
            run={(text) => run(index, text)}
            label={`PromQL ${index + 1}`}
            hint="rate(ropewalk_commits_total[1m])"
          />
          <div class="row">
            <button class="primary" onClick={() => run(index, texts[index] ?? query)}>
              Run <kbd>Ctrl+Enter</kbd>
            </button>
            {query === '' && (
              <span class="row">
                <span class="soft">or</span>
                {EXAMPLES.map(([name, promql]) => (
                  <button key={name} class="small" onClick={() => run(index, promql)}>
                    {name}
                  </button>
                ))}
              </span>
            )}
            {shown.length > 1 && (
              <button
                onClick={() => {
                  setTexts({})
                  change({ q: shown.filter((_query, place) => place !== index) })
                }}
              >
                Remove
              </button>
            )}
          </div>
          <Panel promql={query} span={span} as={as} />
        </Card>
      ))}
      <div>
        <button onClick={() => change({ q: [...shown, ''] })}>Add a query</button>
      </div>
      {metrics.data?.names.length === 0 && (
        <Empty
          title="No metrics yet"
          command={`curl -s ${serverUrl()}/api/v1/import/prometheus --data-binary 'temperature{room="hall"} 21.5
'`}
        >
          <p>This stores the first sample. Prometheus, OpenTelemetry and Telegraf can write here, too.</p>
        </Empty>
      )}
    </div>
  )
}

interface Tsdb {
  headStats: { numSeries: number; numLabelPairs?: number; chunkCount?: number }
  seriesCountByMetricName: { name: string; value: number }[]
  labelValueCountByLabelName: { name: string; value: number }[]
  seriesCountByLabelValuePair: { name: string; value: number }[]
}

const Counts = ({ title, rows, href }: { title: string; rows: { name: string; value: number }[] | undefined; href?: (name: string) => string }) => {
  const most = Math.max(...(rows ?? []).map((row) => row.value), 1)
  return (
    <Card title={title}>
      <Table
        label={title}
        rows={rows ?? []}
        id={(row) => row.name}
        columns={[
          { name: 'Name', kind: 'mono', cell: (row) => (href ? <a href={href(row.name)}><Text text={row.name} max={160} /></a> : <Text text={row.name} max={160} />) },
          { name: 'Count', kind: 'number', cell: (row) => formatCount(row.value) },
          {
            name: 'Share',
            kind: 'share',
            cell: (row) => (
              <div class="bar">
                <span style={{ width: `${(100 * row.value) / most}%` }} />
              </div>
            ),
          },
        ]}
      />
    </Card>
  )
}

/** Rows of each table of counts at first. */
const COUNTS = 20
/** The same at most: the limit of the server. */
const COUNTS_MAX = 10_000

const Cardinality = () => {
  const rows = useRef(COUNTS)
  const tsdb = useLoaded('tsdb', (signal) => data<Tsdb>(`status/tsdb${search({ limit: rows.current })}`, signal))
  if (!tsdb.data) return tsdb.problem ? <ProblemNotice problem={tsdb.problem} retry={tsdb.reload} /> : <Busy />
  return (
    <>
      <p class="soft">{formatCount(tsdb.data.headStats.numSeries)} series</p>
      <div class="halves">
        <Counts title="Metrics with the most series" rows={tsdb.data.seriesCountByMetricName} href={(name) => link(['metrics'], { q: `{__name__=${JSON.stringify(name)}}`, as: 'table' })} />
        <Counts title="Labels with the most values" rows={tsdb.data.labelValueCountByLabelName} />
        <Counts title="Pairs of label and value in the most series" rows={tsdb.data.seriesCountByLabelValuePair} />
      </div>
      {tsdb.data.seriesCountByLabelValuePair.length === rows.current && rows.current < COUNTS_MAX && (
        <div>
          <button
            disabled={tsdb.loading}
            onClick={() => {
              rows.current = Math.min(10 * rows.current, COUNTS_MAX)
              tsdb.reload()
            }}
          >
            Show more
          </button>
        </div>
      )}
    </>
  )
}

const GroupOfRules = ({ group }: { group: RuleGroup }) => (
  <Card title={<Text text={group.name} />}>
    <p class="soft small">
      <Text text={group.file} />, every {formatDuration(group.interval)}
    </p>
    {group.rules.map((rule) => (
      <details key={`${rule.type} ${rule.name}`} open={rule.state === 'firing'}>
        <summary>
          <Text text={rule.name} /> <span class={`pill ${rule.state === 'firing' || rule.health === 'err' ? 'bad' : rule.state === 'pending' ? 'warn' : rule.state === 'inactive' ? '' : 'good'}`}>{rule.state ?? rule.health}</span>
        </summary>
        <p>
          <a class="mono target" href={link(['metrics'], { q: rule.query })}>
            <Text text={rule.query} />
          </a>
        </p>
        {rule.lastError !== undefined && rule.lastError !== '' && (
          <p class="bad">
            <Text text={rule.lastError} />
          </p>
        )}
        {rule.alerts?.map((alert, index) => (
          <p key={index} class="row">
            <span class={`pill ${alert.state === 'firing' ? 'bad' : 'warn'}`}>{alert.state}</span>
            <span class="mono">
              <Text text={seriesName(alert.labels)} />
            </span>
            {alert.activeAt !== undefined && <Time at={alert.activeAt} age />}
          </p>
        ))}
      </details>
    ))}
  </Card>
)

const Rules = () => {
  const rules = usePages('rules', listRules, REFRESH_MS)
  const empty = (
    <Empty title="No rules" command="ropewalk serve --prometheus-config prometheus.yml">
      <p>Recording rules and alerts are in the files that prometheus.config names, in Prometheus' format.</p>
    </Empty>
  )
  return (
    <div class="stack">
      <NameList list={rules} noun="rule" name={(group) => [group.name, ...group.rules.map((rule) => rule.name)].join(' ')} empty={empty}>
        {(found) => found.map((group) => <GroupOfRules key={`${group.file} ${group.name}`} group={group} />)}
      </NameList>
    </div>
  )
}

interface Target {
  scrapePool: string
  scrapeUrl: string
  health: string
  lastError: string
  lastScrape: string
  lastScrapeDuration: number
  labels: Labels
}

const Targets = () => {
  const targets = useLoaded('targets', (signal) => data<{ activeTargets: Target[] }>('targets?state=active', signal), REFRESH_MS)
  if (!targets.data) return targets.problem ? <ProblemNotice problem={targets.problem} retry={targets.reload} /> : <Busy />
  if (targets.data.activeTargets.length === 0) {
    return (
      <Empty title="No targets" command="ropewalk serve --prometheus-config prometheus.yml">
        <p>Scrape jobs are in the file that prometheus.config names, in Prometheus' format.</p>
      </Empty>
    )
  }
  return (
    <Table
      label="Targets"
      rows={targets.data.activeTargets}
      id={(target) => target.scrapePool + target.scrapeUrl}
      columns={[
        { name: 'Job', cell: (target) => <Text text={target.scrapePool} /> },
        { name: 'Address', kind: 'mono', cell: (target) => <Text text={target.scrapeUrl} /> },
        {
          name: 'Health',
          cell: (target) => (
            <>
              <span class={`pill ${target.health === 'up' ? 'good' : target.health === 'down' ? 'bad' : ''}`}>{target.health}</span> <Text text={target.lastError} max={200} />
            </>
          ),
        },
        { name: 'Last scrape', cell: (target) => <Time at={target.lastScrape} age /> },
        { name: 'Took', kind: 'number', cell: (target) => formatDuration(target.lastScrapeDuration) },
      ]}
    />
  )
}

export const Metrics = () => {
  const tab = parameter('tab', 'query')
  const at = (tab: string | undefined) => link(['metrics'], { tab })
  const tabs = [
    ['query', 'Query', at(undefined)],
    ['cardinality', 'Cardinality', at('cardinality')],
    ['rules', 'Rules and alerts', at('rules')],
    ['targets', 'Targets', at('targets')],
  ] as const
  return (
    <>
      <h1>Metrics</h1>
      <Tabs label="Parts of the page" tabs={tabs} current={tab} />
      {tab === 'cardinality' ? <Cardinality /> : tab === 'rules' ? <Rules /> : tab === 'targets' ? <Targets /> : <Query />}
    </>
  )
}
