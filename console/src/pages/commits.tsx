/** Commits: the change feed as a live timeline; one commit with its parts in every model. */
import type { ComponentChildren } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'

import { problemOf, send } from '../api/client'
import type { Problem } from '../api/client'
import { BUT_SAMPLES, changesUrl, getCommit, keyspaceNames, matches, modelOfKeyspace, modelsOf } from '../api/commits'
import type { Commit, FeedCommit, RowChange } from '../api/commits'
import { seriesName } from '../api/prom'
import { follow, useLoaded } from '../api/resource'
import type { StreamState } from '../api/resource'
import { may } from '../api/session'
import { formatBytes, formatCount, formatLocal, formatNumber } from '../base/format'
import { formatJson, member, parseJson } from '../base/json'
import type { Json } from '../base/json'
import { lines } from '../base/lines'
import { bytesText, oneLine, plural } from '../base/text'
import { change, link, parameter } from '../route'
import { Form } from '../ui/form'
import { Busy, Card, Code, Empty, Field, Model, Pills, ProblemNotice, serverUrl, Text, Time } from '../ui/parts'
import { Table } from '../ui/table'
import { Tree } from '../ui/tree'
import { VirtualList } from '../ui/virtual'

/** Commits that are read when the page is opened, and those that stay on the screen. */
const FIRST = 200
const SHOWN_MAX = 2_000
/** The server sends new commits at this interval, and only the newest ones: more would only cost its clients time. */
const INTERVAL_MS = 250
const NEWEST = 100
const MODELS = ['events', 'documents', 'tables', 'time series', 'keys'] as const

const readLines = async (url: string, signal: AbortSignal): Promise<FeedCommit[]> => {
  const response = await send(url, { signal })
  const found: FeedCommit[] = []
  if (response.body) for await (const line of lines(response.body)) if (line !== '') found.push(parseJson(line) as unknown as FeedCommit)
  return found
}

interface Feed {
  /** Newest first. */
  commits: FeedCommit[]
  /** Commits that arrived since the page was opened. */
  arrived: number
  state: StreamState
  problem?: Problem
}

/**
 * The newest commits, then each new one; or the first ones since a time. Rendered four times a second, whatever their
 * rate.
 */
const useFeed = (isLive: boolean, since: string): Feed => {
  const [feed, setFeed] = useState<Feed>({ commits: [], arrived: 0, state: 'connecting' })
  useEffect(() => {
    const abort = new AbortController()
    let stop: (() => void) | undefined
    let fresh: FeedCommit[] = []
    let dropped = 0
    const flush = setInterval(() => {
      if (fresh.length === 0) return
      const added = fresh.reverse()
      const count = added.length + dropped
      fresh = []
      dropped = 0
      setFeed((old) => ({ ...old, commits: [...added, ...old.commits].slice(0, SHOWN_MAX), arrived: old.arrived + count }))
    }, INTERVAL_MS)
    const run = async () => {
      try {
        const first = await readLines(changesUrl(since === '' ? { last: FIRST } : { since, limit: FIRST }), abort.signal)
        setFeed({ commits: first.reverse(), arrived: 0, state: isLive ? 'connecting' : 'ended' })
        if (!isLive) return
        let next = (first[0]?.seq ?? 0) + 1
        stop = follow(
          () => changesUrl({ from: next, follow: true, interval_ms: INTERVAL_MS, newest: NEWEST }),
          (line) => {
            const value = parseJson(line) as unknown as FeedCommit & { control?: string; commits?: number }
            if (value.control !== undefined) {
              dropped += value.commits ?? 0
              return
            }
            next = value.seq + 1
            fresh.push(value)
            // Commits that would not be shown are dropped before they cost memory.
            if (fresh.length > SHOWN_MAX) {
              fresh.shift()
              dropped += 1
            }
          },
          (state, problem) => setFeed((old) => ({ commits: old.commits, arrived: old.arrived, state, ...(problem && { problem }) })),
        )
      } catch (error) {
        if (!abort.signal.aborted) setFeed((old) => ({ ...old, state: 'ended', problem: problemOf(error) }))
      }
    }
    void run()
    return () => {
      clearInterval(flush)
      abort.abort()
      stop?.()
    }
  }, [isLive, since])
  return feed
}

const summary = (commit: FeedCommit): string =>
  [
    ...commit.appends.map(({ store, events, deleted }) =>
      deleted === true ? `${store} deleted` : `${store}: ${events.map((event) => event.type).slice(0, 5).join(', ')}${events.length > 5 ? ` and ${events.length - 5} more` : ''}`,
    ),
  ].join(' · ')

/** How many keys of a model were written, or the bytes of its part. */
const sizeOf = (commit: FeedCommit, model: string, names: readonly string[]): string => {
  const keys = commit.writes.filter(({ keyspace }) => modelOfKeyspace(names, keyspace) === model).length
  const other = commit.others?.find((part) => part.model === model)
  return keys > 0 ? plural(keys, 'key') : other ? formatBytes(other.bytes) : ''
}

/** Names of the keyspaces; numbers are shown until they are known. */
const useNames = (): readonly string[] => useLoaded('keyspaces', keyspaceNames).data ?? NO_NAMES
const NO_NAMES: readonly string[] = []

const TITLES: Record<string, string> = { Events: 'events', Documents: 'documents', Rows: 'tables', Samples: 'time series', Keys: 'keys' }

const Part = ({ title, count, children }: { title: string; count: number; children: ComponentChildren }) =>
  count === 0 ? null : (
    <Card
      title={
        <span class={`model ${TITLES[title] === 'time series' ? 'series' : (TITLES[title] ?? '')}`}>
          {title}: {formatCount(count)}
        </span>
      }
    >
      <div class="stack scroll" style={{ maxHeight: '60vh' }} tabIndex={0} role="region" aria-label={title}>
        {children}
      </div>
    </Card>
  )

const Row = ({ row }: { row: RowChange }) => {
  const names = [...new Set([...Object.keys(row.before ?? {}), ...Object.keys(row.after ?? {})])]
  const shown = (value: Json | undefined) => (value === undefined ? '' : value === null ? 'NULL' : typeof value === 'string' ? value : formatJson(value, 0))
  return (
    <div class="stack">
      <h3>
        <a href={link(['sql'], { sql: `SELECT * FROM ${row.table} LIMIT 100` })}>
          <Text text={row.table} />
        </a>{' '}
        {row.change}
      </h3>
      <Table
        label={`Columns of ${row.table}`}
        rows={names}
        id={(name) => name}
        columns={[
          { name: 'Column', kind: 'mono', cell: (name) => <Text text={name} /> },
          { name: 'Before', kind: 'mono', cell: (name) => <Text text={shown(row.before?.[name])} max={400} /> },
          {
            name: 'After',
            kind: 'mono',
            cell: (name) => {
              const after = <Text text={shown(row.after?.[name])} max={400} />
              return shown(row.before?.[name]) === shown(row.after?.[name]) ? after : <mark>{after}</mark>
            },
          },
        ]}
      />
    </div>
  )
}

const text = (value: Json | undefined): string => (typeof value === 'string' ? value : '')

const DocumentChange = ({ event, before }: { event: Json; before: Json }) => {
  const [database, collection] = [text(member(member(event, 'ns'), 'db')), text(member(member(event, 'ns'), 'coll'))]
  const update = member(event, 'updateDescription')
  const after = member(event, 'fullDocument')
  return (
    <div class="stack">
      <h3>
        {text(member(event, 'operationType'))}{' '}
        <a href={link(['documents', database, collection])}>
          <Text text={`${database}.${collection}`} />
        </a>{' '}
        <span class="mono">{oneLine(formatJson(member(member(event, 'documentKey'), '_id') ?? null, 0), 80)}</span>
      </h3>
      {/* Both states show what changed; without the state before, the change itself does. */}
      {before === null && update !== undefined && <Tree value={update} />}
      <div class={before !== null && after !== undefined ? 'pair' : ''}>
        {before !== null && (
          <div>
            <span class="soft">before</span>
            <Tree value={before} />
          </div>
        )}
        {after !== undefined && (
          <div>
            <span class="soft">after</span>
            <Tree value={after} />
          </div>
        )}
      </div>
    </div>
  )
}

const One = ({ seq }: { seq: number }) => {
  const commit = useLoaded<Commit>(String(seq), (signal) => getCommit(seq, signal))
  const { data } = commit
  const names = useNames()
  return (
    <div class="stack">
      <div class="row between">
        <h2>Commit {formatCount(seq)}</h2>
        <div class="row">
          {seq > 1 && (
            <a class="button" href={link(['commits'], { seq: seq - 1 })}>
              Previous
            </a>
          )}
          <a class="button" href={link(['commits'], { seq: seq + 1 })}>
            Next
          </a>
          <a class="button" href={link(['commits'])}>
            Timeline
          </a>
        </div>
      </div>
      <ProblemNotice problem={commit.problem} retry={commit.reload} />
      {!data && !commit.problem && <Busy />}
      {data && (
        <>
          <p>
            <Time at={data.recorded_at} /> <span class="soft">as one log record with one sync: all of it or nothing</span>
          </p>
          {data.truncated && <p class="notice warn">The commit has more parts than are shown here. GET /v1/changes has all events of it.</p>}
          <div class="flow">
            <Part title="Events" count={data.appends.reduce((sum, append) => sum + append.events.length, 0)}>
              {data.appends.map((append, index) => (
                <div class="stack" key={index}>
                  {append.events.map((event) => (
                    <div class="stack" key={event.position}>
                      <h3>
                        <a href={link(['events', append.store], { position: event.position })}>
                          <Text text={append.store} /> {formatCount(event.position)}
                        </a>{' '}
                        <Text text={event.type} max={120} />
                      </h3>
                      <Pills texts={event.tags} />
                      {event.data !== undefined && <Tree value={event.data} />}
                    </div>
                  ))}
                </div>
              ))}
            </Part>
            <Part title="Documents" count={data.documents.length}>
              {data.documents.map(({ change, before }, index) => (
                <DocumentChange key={index} event={change} before={before} />
              ))}
            </Part>
            <Part title="Rows" count={data.rows.length}>
              {data.rows.map((row, index) => (
                <Row key={index} row={row} />
              ))}
            </Part>
            <Part title="Samples" count={data.samples.length}>
              <Table
                label="Series with samples"
                rows={data.samples}
                id={(series) => `${series.store} ${seriesName(series.labels)}`}
                columns={[
                  { name: 'Series', kind: 'mono', cell: (series) => <Text text={seriesName(series.labels)} max={300} /> },
                  {
                    name: 'Values',
                    kind: 'number',
                    cell: (series) => (
                      <>
                        {series.samples.slice(0, 5).map(([time, value]) => (
                          <div key={time} title={formatLocal(new Date(time))}>
                            {typeof value === 'number' ? formatNumber(value) : value}
                          </div>
                        ))}
                        {series.count > 5 && <div class="soft">{plural(series.count, 'sample')}</div>}
                      </>
                    ),
                  },
                ]}
              />
            </Part>
            <Part title="Keys" count={data.writes.length}>
              {data.writes.slice(0, 200).map((write, index) => (
                <div class="mono small" key={index}>
                  <span class="soft">
                    {names[write.keyspace] ?? `keyspace ${write.keyspace}`}, {write.change.replace('_', ' ')}
                  </span>{' '}
                  <Text text={bytesText(write.key_base64)} max={240} />
                </div>
              ))}
            </Part>
          </div>
        </>
      )}
    </div>
  )
}

const STATES: Record<StreamState, string> = { connecting: 'connecting', live: 'live', waiting: 'interrupted, trying again', ended: 'paused' }

const Timeline = () => {
  const since = parameter('since')
  const isLive = parameter('live', '1') === '1' && since === ''
  const feed = useFeed(isLive, since)
  const names = useNames()
  const filter = { text: parameter('find'), model: parameter('model') }
  const shown = useMemo(() => feed.commits.filter((commit) => matches(commit, filter, names)), [feed.commits, filter.text, filter.model, names])
  return (
    <div class="stack">
      <div class="row end">
        <label class="field grow">
          Find in stores, types, tags, keys
          <input data-search value={filter.text} onInput={(event) => change({ find: event.currentTarget.value }, true)} placeholder="order:o1 (/)" />
        </label>
        <Field kind="select" label="Model" value={filter.model} onChange={(event: Event) => change({ model: (event.currentTarget as HTMLSelectElement).value }, true)}>
          <option value="">all</option>
          <option value={BUT_SAMPLES}>all but samples alone</option>
          {MODELS.map((model) => (
            <option key={model} value={model}>
              {model}
            </option>
          ))}
        </Field>
        <Field
          label="Since"
          type="datetime-local"
          step="1"
          value={since === '' ? '' : formatLocal(new Date(since)).slice(0, 19).replace(' ', 'T')}
          onChange={(event: Event) => {
            const time = new Date((event.currentTarget as HTMLInputElement).value)
            change({ since: Number.isNaN(time.getTime()) ? undefined : time.toISOString() }, true)
          }}
        />
        <Form
          layout="row end"
          submit={(text) => {
            const seq = Number(text('seq'))
            if (Number.isInteger(seq) && seq > 0) change({ seq })
          }}
        >
          <Field label="Commit number" name="seq" type="number" min="1" class="short" />
          <button>Open</button>
        </Form>
        {since === '' ? (
          <button aria-pressed={isLive} onClick={() => change({ live: isLive ? '0' : undefined }, true)}>
            {isLive ? 'Pause' : 'Follow'}
          </button>
        ) : (
          <button onClick={() => change({ since: undefined }, true)}>Newest</button>
        )}
      </div>
      <ProblemNotice problem={feed.problem} />
      <p class="soft" role="status">
        {since === '' ? (
          <>
            <span class={`pill ${feed.state === 'live' ? 'good' : ''}`}>{STATES[feed.state]}</span> {plural(feed.arrived, 'new commit')}, {formatCount(shown.length)} of the newest{' '}
            {formatCount(feed.commits.length)} shown
          </>
        ) : (
          <>
            {formatCount(shown.length)} of the first {formatCount(feed.commits.length)} commits since <Time at={since} /> shown
          </>
        )}
      </p>
      {feed.commits.length === 0 && feed.state !== 'connecting' && !feed.problem && (
        <Empty
          title="No commits yet"
          command={`curl -s ${serverUrl()}/v1/transactions -H 'Content-Type: application/json' -d '{"operations": [
  {"append": {"store": "shop", "events": [{"type": "OrderPlaced", "tags": ["order:o1"], "data": {"n": 2}}]}},
  {"documents": {"collection": "orders", "insert": {"_id": "o1", "n": 2}}},
  {"samples": {"series": [{"labels": {"__name__": "ropes_sold"}, "samples": [[${Date.now()}, 2]]}]}}]}'`}
        >
          <p>This writes events, a document and a sample in one commit:</p>
        </Empty>
      )}
      {shown.length > 0 && (
        <VirtualList
          items={shown}
          label="Commits, newest first"
          columns="commit"
          pick={(commit) => change({ seq: commit.seq })}
          row={(commit) => (
            <>
              <span class="number mono">{formatCount(commit.seq)}</span>
              <Time at={commit.recorded_at} />
              <span class="row parts">
                {modelsOf(commit, names).map((model) => (
                  <span class="row" key={model}>
                    <Model name={model} />
                    <span class="soft">{sizeOf(commit, model, names)}</span>
                  </span>
                ))}
                <span class="cut">
                  <bdi>{oneLine(summary(commit), 200)}</bdi>
                </span>
              </span>
            </>
          )}
        />
      )}
      <details class="soft small">
        <summary>Follow commits in a terminal</summary>
        <Code text={`curl -sN '${serverUrl()}/v1/changes?last=10&follow=true'\nropewalk tail`} />
      </details>
    </div>
  )
}

export const Commits = () => {
  const seq = Number(parameter('seq'))
  return (
    <>
      <h1>Commits</h1>
      {!may('admin') ? (
        <Empty title="Administrators only">
          <p>Commits contain the data of every store. They need the right admin on all stores.</p>
        </Empty>
      ) : Number.isInteger(seq) && seq > 0 ? (
        <One key={seq} seq={seq} />
      ) : (
        <Timeline />
      )}
    </>
  )
}
