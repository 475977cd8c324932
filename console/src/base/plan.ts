/** Plans of EXPLAIN as trees, and what is slow in them. Each line is a step; its indentation is its depth. */

export interface PlanNode {
  /** `Filter`, or what the step does in words. */
  name: string
  /** Its expressions. */
  detail: string
  /** Further measurements, each with its name. */
  metrics: (readonly [string, string])[]
  /** Rows that the step returned, as the server writes them. */
  rows: string | undefined
  /** Seconds of the step itself. */
  seconds: number | undefined
  children: PlanNode[]
}

const UNITS: Record<string, number> = { ns: 1e-9, µs: 1e-6, us: 1e-6, ms: 1e-3, s: 1, m: 60 }

/** `1.5ms` as seconds. */
export const parseSeconds = (text: string): number | undefined => {
  const found = /^(\d+(?:\.\d+)?)\s*(ns|µs|us|ms|s|m)$/.exec(text.trim())
  return found ? Number(found[1]) * (UNITS[found[2] ?? ''] ?? 1) : undefined
}

/** `Rows: 40, time: 0.225 ms` after the steps: of the whole plan. */
const TOTAL = /^Rows: ([\d,]+), time: (.+)$/

const node = (line: string): PlanNode => {
  const [, head = line, list = ''] = /^(.*?)(?:, metrics=\[(.*)\])?$/.exec(line.trim()) ?? []
  const metrics = list === '' ? [] : list.split(/, (?=\w+=)/).map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)] as const)
  const valueOf = (wanted: string) => metrics.find(([name]) => name === wanted)?.[1]
  const operator = /^(\w+)Exec(?:: (.*))?$/.exec(head)
  const time = valueOf('elapsed_compute')
  return {
    name: operator?.[1] ?? head,
    detail: operator?.[2] ?? '',
    metrics,
    rows: valueOf('output_rows'),
    seconds: time === undefined ? undefined : parseSeconds(time),
    children: [],
  }
}

/** The lines of a plan; a line belongs to the nearest one before it that is indented less. */
export const parsePlan = (lines: readonly string[]): PlanNode[] => {
  const roots: PlanNode[] = []
  const open: { depth: number; node: PlanNode }[] = []
  for (const line of lines.flatMap((line) => line.split('\n'))) {
    if (line.trim() === '') continue
    const total = TOTAL.exec(line.trim())
    const first = roots[0]
    if (total && first) {
      first.rows = total[1]
      first.seconds = parseSeconds(total[2] ?? '')
      continue
    }
    const depth = line.length - line.trimStart().length
    while ((open.at(-1)?.depth ?? -1) >= depth) open.pop()
    const parsed = node(line)
    const parent = open.at(-1)?.node
    ;(parent ? parent.children : roots).push(parsed)
    open.push({ depth, node: parsed })
  }
  return roots
}

export interface Findings {
  /** Seconds of all steps. */
  seconds: number
  slowest: PlanNode | undefined
  /** A step reads a table from its first row to its last. */
  scans: boolean
  /** Columns whose values decide which rows remain. */
  columns: string[]
}

/** Why a plan takes the time that it takes. */
export const findings = (nodes: readonly PlanNode[]): Findings => {
  const all = (nodes: readonly PlanNode[]): PlanNode[] => nodes.flatMap((node) => [node, ...all(node.children)])
  const steps = all(nodes)
  const filters = steps.filter(({ name }) => name === 'Filter').flatMap(({ detail }) => [...detail.matchAll(/(\w+)@\d+/g)])
  return {
    seconds: steps.reduce((sum, { seconds }) => sum + (seconds ?? 0), 0),
    slowest: steps.reduce<PlanNode | undefined>((most, step) => ((step.seconds ?? 0) > (most?.seconds ?? 0) ? step : most), undefined),
    scans: steps.some(({ name }) => name === 'DataSource' || /\bscan\b/i.test(name)),
    columns: [...new Set(filters.map(([, column]) => column ?? ''))],
  }
}

/** The table of a statement that reads one. */
export const onlyTable = (sql: string): string | undefined => {
  const found = [...sql.matchAll(/\b(?:from|join)\s+((?:"(?:[^"]|"")+"|\w+)(?:\.(?:"(?:[^"]|"")+"|\w+))?)/gi)].map(([, table]) => table)
  return found.length === 1 ? found[0] : undefined
}
