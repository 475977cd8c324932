/** Plans of EXPLAIN as trees. Each line is a step; its indentation is its depth. */

export interface PlanNode {
  text: string
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

const node = (line: string): PlanNode => {
  const text = line.trim()
  const rows = /output_rows=(\d[\d.]*(?:\s?[KMB])?)/.exec(text)?.[1] ?? /\brows[=: ]+([\d,]+)/i.exec(text)?.[1]
  const time = /elapsed_compute=([\d.]+\s?[nµu]?m?s)/.exec(text)?.[1] ?? /\btime[=: ]+([\d.]+\s?(?:ns|µs|us|ms|s))/i.exec(text)?.[1]
  return { text, rows: rows?.trim(), seconds: time === undefined ? undefined : parseSeconds(time), children: [] }
}

/** The lines of a plan; a line belongs to the nearest one before it that is indented less. */
export const parsePlan = (lines: readonly string[]): PlanNode[] => {
  const roots: PlanNode[] = []
  const open: { depth: number; node: PlanNode }[] = []
  for (const line of lines.flatMap((line) => line.split('\n'))) {
    if (line.trim() === '') continue
    const depth = line.length - line.trimStart().length
    while ((open.at(-1)?.depth ?? -1) >= depth) open.pop()
    const parsed = node(line)
    const parent = open.at(-1)?.node
    ;(parent ? parent.children : roots).push(parsed)
    open.push({ depth, node: parsed })
  }
  return roots
}
