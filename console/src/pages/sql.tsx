/** SQL: the tables, an editor, results in a grid, plans, history. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'

import { isAbort, problemOf } from '../api/client'
import type { Problem } from '../api/client'
import { usePages } from '../api/resource'
import type { Listed } from '../api/resource'
import { cancelSql, cellText, isNumeric, isTime, listTables, quoted, runSql, statementId, tableName } from '../api/sql'
import type { SqlResult, TableInfo } from '../api/sql'
import { csv } from '../base/csv'
import { formatDuration, formatShare } from '../base/format'
import { formatJson } from '../base/json'
import { findings, onlyTable, parsePlan } from '../base/plan'
import type { PlanNode } from '../base/plan'
import { oneLine, plural } from '../base/text'
import { change, link, parameter } from '../route'
import { useAction } from '../ui/action'
import { CodeField } from '../ui/code-field'
import { Grid } from '../ui/grid'
import { LazyChart } from '../ui/lazy-chart'
import { NameList } from '../ui/list'
import { Busy, Card, Empty, ProblemNotice, Text } from '../ui/parts'
import { store, stored } from '../ui/theme'

const HISTORY_KEY = 'ropewalk.sql.history'
const HISTORY_MAX = 50
/** Longer statements are not part of the address. */
const URL_CHARS_MAX = 4_000

export const readHistory = (text: string | null): string[] => {
  try {
    const list: unknown = JSON.parse(text ?? '[]')
    return Array.isArray(list) ? list.filter((item) => typeof item === 'string') : []
  } catch {
    return []
  }
}

const remember = (statement: string): string[] => {
  const old = readHistory(stored(HISTORY_KEY))
  const all = [statement, ...old.filter((other) => other !== statement)].slice(0, HISTORY_MAX)
  store(HISTORY_KEY, JSON.stringify(all))
  return all
}

interface Ran {
  statement: string
  results: SqlResult[]
  seconds: number
}

const download = (name: string, type: string, content: string | ArrayBuffer) => {
  const url = URL.createObjectURL(new Blob([content], { type }))
  const anchor = document.createElement('a')
  anchor.href = url
  anchor.download = name
  anchor.click()
  URL.revokeObjectURL(url)
}

/** What the steps of a plan do. */
const MEANINGS: Record<string, string> = {
  DataSource: 'reads a whole table',
  Filter: 'keeps the rows that match',
  Projection: 'computes columns',
  Aggregate: 'groups rows',
  HashJoin: 'joins by a table of hashes',
  NestedLoopJoin: 'compares each row with each other row',
  SortMergeJoin: 'joins rows in order',
  CrossJoin: 'combines each row with each other row',
  Sort: 'sorts rows',
  Window: 'computes over windows of rows',
  Union: 'joins results one after the other',
}

const PlanStep = ({ node, total, slowest }: { node: PlanNode; total: number; slowest: PlanNode | undefined }) => (
  <li>
    <div class="step">
      <div>
        <b>{node.name}</b> <span class="soft">{MEANINGS[node.name] ?? ''}</span>
        {node.detail !== '' && (
          <div class="mono small">
            <Text text={node.detail} max={300} />
          </div>
        )}
        {node.metrics.length > 0 && (
          <details class="small">
            <summary class="soft">all measurements</summary>
            <dl class="facts mono">
              {node.metrics.map(([name, value]) => [<dt key={`t${name}`}>{name}</dt>, <dd key={`d${name}`}>{value}</dd>])}
            </dl>
          </details>
        )}
      </div>
      <span class="number">{node.rows === undefined ? '' : `${node.rows} rows`}</span>
      <span class={`number ${node === slowest ? 'bad' : ''}`}>{node.seconds === undefined ? '' : formatDuration(node.seconds)}</span>
      <div class="bar">
        <span style={{ width: `${total > 0 ? (100 * (node.seconds ?? 0)) / total : 0}%` }} />
      </div>
    </div>
    {node.children.length > 0 && (
      <ul>
        {node.children.map((child, index) => (
          <PlanStep key={index} node={child} total={total} slowest={slowest} />
        ))}
      </ul>
    )}
  </li>
)

/** A plan as a tree, and why the statement takes the time that it takes. */
const Plan = ({ lines, statement, edit }: { lines: string[]; statement: string; edit: (sql: string) => void }) => {
  const nodes = useMemo(() => parsePlan(lines), [lines])
  const { seconds, slowest, scans, columns } = useMemo(() => findings(nodes), [nodes])
  const table = onlyTable(statement)
  const index = scans && columns.length > 0 && table !== undefined ? `CREATE INDEX ON ${table} (${columns.map(quoted).join(', ')})` : undefined
  return (
    <div class="stack" role="region" aria-label="Plan">
      {slowest && seconds > 0 && (
        <p>
          The slowest step is <b>{slowest.name}</b>: {formatDuration(slowest.seconds ?? 0)} of {formatDuration(seconds)}, {formatShare(slowest.seconds ?? 0, seconds)}.
        </p>
      )}
      {scans && (
        <div class="notice warn">
          <p>The statement reads a whole table. With an index on the columns that it compares, it reads the rows that match.</p>
          {index !== undefined && (
            <div class="row">
              <code>{index}</code>
              <button class="small" onClick={() => edit(index)}>
                Put it into the editor
              </button>
            </div>
          )}
        </div>
      )}
      <div class="plan scroll" tabIndex={0} role="group" aria-label="Steps">
        <ul>
          {nodes.map((node, place) => (
            <PlanStep key={place} node={node} total={seconds} slowest={slowest} />
          ))}
        </ul>
      </div>
    </div>
  )
}

/** The first column of times or numbers against the other numbers. */
export const plotOf = (result: SqlResult) => {
  const columns = result.columns ?? []
  const x = columns.findIndex(({ type }) => isTime(type))
  const from = x >= 0 ? x : columns.findIndex(({ type }) => isNumeric(type))
  const ys = columns.map((column, index) => ({ ...column, index })).filter(({ type, index }) => isNumeric(type) && index !== from)
  if (from < 0 || ys.length === 0) return undefined
  const number = (row: unknown[], index: number): number => {
    const text = String(row[index])
    return x >= 0 && index === from ? Date.parse(text.includes('T') ? text : text.replace(' ', 'T')) / 1000 : Number(text)
  }
  const rows = (result.rows ?? []).filter((row) => Number.isFinite(number(row, from))).sort((a, b) => number(a, from) - number(b, from))
  const value = (row: unknown[], index: number) => {
    const found = number(row, index)
    return row[index] === null || !Number.isFinite(found) ? null : found
  }
  return {
    times: rows.map((row) => number(row, from)),
    lines: ys.map(({ name, index }) => ({ label: name, values: rows.map((row) => value(row, index)) })),
  }
}

const Result = ({ result, name, statement, edit }: { result: SqlResult; name: string; statement: string; edit: (sql: string) => void }) => {
  const [plotted, setPlotted] = useState(false)
  const saving = useAction(() => undefined)
  const { columns, rows } = result
  const plot = useMemo(() => (plotted ? plotOf(result) : undefined), [plotted, result])
  if (!columns || !rows) return <p class="soft">Done.</p>
  if (columns.length === 1 && columns[0]?.name === 'QUERY PLAN') {
    return <Plan lines={rows.map((row) => cellText(row[0]) ?? '')} statement={statement} edit={edit} />
  }
  const texts = () => rows.map((row) => columns.map((_, index) => cellText(row[index])))
  const objects = () => rows.map((row) => Object.fromEntries(columns.map((column, index) => [column.name, row[index]])))
  return (
    <div class="stack">
      <div class="row between">
        <span class="soft">
          {plural(rows.length, 'row')}, {plural(columns.length, 'column')}
        </span>
        <div class="row">
          <button aria-pressed={plotted} onClick={() => setPlotted(!plotted)}>
            Plot
          </button>
          <span class="soft small">Download</span>
          <button onClick={() => download(`${name}.csv`, 'text/csv', csv(columns.map((column) => column.name), texts()))}>CSV</button>
          <button onClick={() => download(`${name}.json`, 'application/json', formatJson(objects()))}>JSON</button>
          <button onClick={() => download(`${name}.ndjson`, 'application/x-ndjson', `${objects().map((row) => formatJson(row, 0)).join('\n')}\n`)}>NDJSON</button>
          <button
            disabled={saving.busy}
            onClick={() =>
              saving.run(async () => {
                const { parquet } = await import('../base/parquet')
                download(`${name}.parquet`, 'application/vnd.apache.parquet', await parquet(columns, rows))
              })
            }
          >
            Parquet
          </button>
        </div>
      </div>
      <ProblemNotice problem={saving.problem} />
      {plotted && (plot ? <LazyChart label="Plot of the result" times={plot.times} lines={plot.lines} /> : <p class="notice">A plot needs a column of times or numbers, and another one of numbers.</p>)}
      <Grid columns={columns} rows={rows} label={`Result ${name}`} />
    </div>
  )
}

const Tables = ({ tables, open }: { tables: Listed<TableInfo>; open: (sql: string) => void }) => (
  <Card title="Tables">
    <NameList list={tables} noun="table" name={tableName} search>
      {(found) => (
        <div class="stack scroll" style={{ maxHeight: '60vh' }}>
          {found.map((table) => (
            <details key={tableName(table)}>
              <summary>
                <Text text={tableName(table)} />
              </summary>
              <ul class="list small">
                {table.columns.map((column) => (
                  <li key={column.name} class="row between">
                    <Text text={column.name} />
                    <span class="soft">
                      {column.type}
                      {column.nullable ? '' : ' not null'}
                    </span>
                  </li>
                ))}
              </ul>
              <button class="small" onClick={() => open(`SELECT * FROM ${tableName(table)} LIMIT 100`)}>
                Show rows
              </button>
            </details>
          ))}
          {found.length === 0 && <p class="soft">No table.</p>}
        </div>
      )}
    </NameList>
  </Card>
)

export const Sql = () => {
  const [text, setText] = useState(parameter('sql'))
  const [ran, setRan] = useState<Ran>()
  const [problem, setProblem] = useState<Problem>()
  const [running, setRunning] = useState(false)
  const [history, setHistory] = useState(() => readHistory(stored(HISTORY_KEY)))
  const abort = useRef<AbortController | undefined>(undefined)
  const id = useRef('')
  const tables = usePages('tables', listTables)
  const hints = useMemo(() => {
    const named = (tables.data ?? []).map((table) => [
      table.schema === 'public' ? table.name : `${table.schema}.${table.name}`,
      table.columns.map((column) => column.name),
    ])
    return { tables: Object.fromEntries(named) as Record<string, string[]> }
  }, [tables.data])
  const run = async (statement: string) => {
    if (statement.trim() === '') return
    abort.current?.abort()
    const mine = new AbortController()
    abort.current = mine
    id.current = statementId()
    setRunning(true)
    setProblem(undefined)
    change({ sql: text.length <= URL_CHARS_MAX ? text : undefined }, true)
    const begun = performance.now()
    try {
      const results = await runSql(statement, mine.signal, id.current)
      setRan({ statement, results, seconds: (performance.now() - begun) / 1000 })
      setHistory(remember(statement))
      if (/\b(create|drop|alter)\b/i.test(statement)) tables.reload()
    } catch (error) {
      if (!isAbort(error)) {
        setRan(undefined)
        setProblem(problemOf(error))
      }
    }
    if (abort.current === mine) setRunning(false)
  }
  useEffect(() => () => abort.current?.abort(), [])
  const open = (statement: string) => {
    setText(statement)
    void run(statement)
  }
  const position = Number(problem?.member('position'))
  return (
    <>
      <h1>Tables and SQL</h1>
      <div class="split">
        <div class="stack">
          <Tables tables={tables} open={open} />
          {history.length > 0 && (
            <Card title="History">
              <ul class="list small mono">
                {history.slice(0, 12).map((statement) => (
                  <li key={statement}>
                    <button title={statement} onClick={() => setText(statement)}>
                      {oneLine(statement, 60)}
                    </button>
                  </li>
                ))}
              </ul>
            </Card>
          )}
        </div>
        <div class="stack">
          <CodeField
            language="sql"
            hints={hints}
            value={text}
            change={setText}
            run={(statement) => void run(statement)}
            label="SQL"
            hint="SELECT * FROM …"
            numbers
            minHeight="120px"
          />
          <div class="row">
            <button class="primary" onClick={() => void run(text)}>
              Run <kbd>Ctrl+Enter</kbd>
            </button>
            <button onClick={() => void run(`EXPLAIN ${text}`)}>Explain</button>
            <button onClick={() => void run(`EXPLAIN ANALYZE ${text}`)}>Explain analyze</button>
            {running && (
              <button
                onClick={() => {
                  // Where the server cannot cancel it any more, this page waits no longer.
                  cancelSql(id.current).catch(() => {
                    abort.current?.abort()
                    setRunning(false)
                  })
                }}
              >
                Cancel
              </button>
            )}
            {ran && !running && <span class="soft">{formatDuration(ran.seconds)}, with the time of the network</span>}
          </div>
          {running && <Busy what="Running" />}
          <ProblemNotice problem={problem} />
          {problem && Number.isInteger(position) && position > 0 && (
            <p class="mono small">
              {oneLine(text.slice(Math.max(0, position - 31), position - 1))}
              <mark>{oneLine(text.slice(position - 1, position + 19))}</mark>
            </p>
          )}
          {ran?.results.map((result, index) => (
            <Card key={index} title={ran.results.length > 1 ? `${index + 1}. ${result.command}` : result.command}>
              <Result result={result} name={`result-${index + 1}`} statement={ran.statement} edit={setText} />
            </Card>
          ))}
          {!ran && !problem && !running && tables.data?.length === 0 && (
            <Empty title="No tables yet">
              <p>This statement makes one. Events, documents and metrics can be queried, too.</p>
              <div>
                <button onClick={() => setText("CREATE TABLE stock (sku text PRIMARY KEY, pieces int NOT NULL);\nINSERT INTO stock VALUES ('rope', 12), ('hook', 40);\nSELECT * FROM stock;")}>
                  Put it into the editor
                </button>
              </div>
            </Empty>
          )}
          <p class="soft small">
            Several statements are one transaction unless they say BEGIN and COMMIT. Select a part to run it alone. Link to this
            text: <a href={link(['sql'], { sql: text.length <= URL_CHARS_MAX ? text : undefined })}>here</a>.
          </p>
        </div>
      </div>
    </>
  )
}
