/** SQL: the tables, an editor, results in a grid, plans, history. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'

import { isAbort, problemOf } from '../api/client'
import type { Problem } from '../api/client'
import { useLoaded } from '../api/resource'
import { cellText, isNumeric, isTime, loadTables, runSql, tableName } from '../api/sql'
import type { SqlResult, TableInfo } from '../api/sql'
import { csv } from '../base/csv'
import { formatDuration } from '../base/format'
import { formatJson } from '../base/json'
import { parsePlan } from '../base/plan'
import type { PlanNode } from '../base/plan'
import { oneLine, plural } from '../base/text'
import { change, link, parameter } from '../route'
import { CodeField } from '../ui/code-field'
import { Grid } from '../ui/grid'
import { LazyChart } from '../ui/lazy-chart'
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

const download = (name: string, type: string, text: string) => {
  const url = URL.createObjectURL(new Blob([text], { type }))
  const anchor = document.createElement('a')
  anchor.href = url
  anchor.download = name
  anchor.click()
  URL.revokeObjectURL(url)
}

const PlanStep = ({ node, most }: { node: PlanNode; most: number }) => (
  <li>
    <div class="row">
      <Text text={node.text} />
    </div>
    {(node.rows !== undefined || node.seconds !== undefined) && (
      <div class="row small">
        {node.rows !== undefined && <span class="pill">{node.rows} rows</span>}
        {node.seconds !== undefined && (
          <>
            <span class="pill">{formatDuration(node.seconds)}</span>
            <div class="bar" style={{ width: '140px' }}>
              <span style={{ width: `${most > 0 ? (100 * node.seconds) / most : 0}%` }} />
            </div>
          </>
        )}
      </div>
    )}
    {node.children.length > 0 && (
      <ul>
        {node.children.map((child, index) => (
          <PlanStep key={index} node={child} most={most} />
        ))}
      </ul>
    )}
  </li>
)

const longest = (nodes: readonly PlanNode[]): number =>
  nodes.reduce((most, node) => Math.max(most, node.seconds ?? 0, longest(node.children)), 0)

const Plan = ({ lines }: { lines: string[] }) => {
  const nodes = useMemo(() => parsePlan(lines), [lines])
  return (
    <div class="tree" role="region" aria-label="Plan">
      <ul>
        {nodes.map((node, index) => (
          <PlanStep key={index} node={node} most={longest(nodes)} />
        ))}
      </ul>
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

const Result = ({ result, name }: { result: SqlResult; name: string }) => {
  const [plotted, setPlotted] = useState(false)
  const { columns, rows } = result
  const plot = useMemo(() => (plotted ? plotOf(result) : undefined), [plotted, result])
  if (!columns || !rows) return <p class="mono">{result.command}</p>
  if (columns.length === 1 && columns[0]?.name === 'QUERY PLAN') {
    return <Plan lines={rows.map((row) => cellText(row[0]) ?? '')} />
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
          <button onClick={() => download(`${name}.csv`, 'text/csv', csv(columns.map((column) => column.name), texts()))}>CSV</button>
          <button onClick={() => download(`${name}.json`, 'application/json', formatJson(objects()))}>JSON</button>
        </div>
      </div>
      {plotted && (plot ? <LazyChart label="Plot of the result" times={plot.times} lines={plot.lines} /> : <p class="notice">A plot needs a column of times or numbers, and another one of numbers.</p>)}
      <Grid columns={columns} rows={rows} label={`Result ${name}`} />
    </div>
  )
}

const Tables = ({ tables, open }: { tables: TableInfo[]; open: (sql: string) => void }) => {
  const [filter, setFilter] = useState('')
  const found = tables.filter((table) => tableName(table).toLowerCase().includes(filter.toLowerCase()))
  return (
    <Card title="Tables">
      <input data-search aria-label="Find a table" placeholder="Find a table (/)" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
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
    </Card>
  )
}

export const Sql = () => {
  const [text, setText] = useState(parameter('sql'))
  const [ran, setRan] = useState<Ran>()
  const [problem, setProblem] = useState<Problem>()
  const [running, setRunning] = useState(false)
  const [history, setHistory] = useState(() => readHistory(stored(HISTORY_KEY)))
  const abort = useRef<AbortController | undefined>(undefined)
  const tables = useLoaded('tables', loadTables)
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
    setRunning(true)
    setProblem(undefined)
    change({ sql: text.length <= URL_CHARS_MAX ? text : undefined }, true)
    const begun = performance.now()
    try {
      const results = await runSql(statement, undefined, mine.signal)
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
          {tables.data && <Tables tables={tables.data} open={open} />}
          <ProblemNotice problem={tables.problem} retry={tables.reload} />
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
            hint="SELECT …"
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
              <button onClick={() => {
                abort.current?.abort()
                setRunning(false)
              }}>
                Stop waiting
              </button>
            )}
            {ran && !running && <span class="soft">{formatDuration(ran.seconds)} with the way here</span>}
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
              <Result result={result} name={`result-${index + 1}`} />
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
