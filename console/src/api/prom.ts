/** Prometheus' query API of the server, and its results as lines of a chart. */
import { json, query } from './client'
import type { Page } from './client'

export type Labels = Record<string, string>

export interface Series {
  metric: Labels
  /** Of an instant query. */
  value?: [number, string]
  /** Of a range query. */
  values?: [number, string][]
  histogram?: [number, unknown]
  histograms?: [number, unknown][]
}

export interface Result {
  resultType: 'vector' | 'matrix' | 'scalar' | 'string'
  result: Series[] | [number, string]
}

interface Answer<T> {
  status: 'success' | 'error'
  data: T
  warnings?: string[]
  infos?: string[]
}

const form = (parameters: Record<string, string>): URLSearchParams => new URLSearchParams(parameters)

export const instant = async (promql: string, time: number | undefined, signal?: AbortSignal): Promise<Answer<Result>> =>
  json('/api/v1/query', {
    method: 'POST',
    form: form({ query: promql, ...(time === undefined ? {} : { time: String(time) }) }),
    signal,
  })

export const range = async (
  promql: string,
  from: number,
  to: number,
  step: number,
  signal?: AbortSignal,
): Promise<Answer<Result>> =>
  json('/api/v1/query_range', {
    method: 'POST',
    form: form({ query: promql, start: String(from), end: String(to), step: String(step) }),
    signal,
  })

/** The data of another endpoint below `/api/v1/`. */
export const data = async <T>(rest: string, signal?: AbortSignal): Promise<T> =>
  (await json<Answer<T>>(`/api/v1/${rest}`, { signal })).data

/** Names of one request. */
const NAMES = 1_000

/** Values of a label that begin with a text; all of them if they are few. They are requested once, unless they are many. */
export const valuesOf = (label: string) => {
  const request = async (matching: string | undefined) => {
    const { data: names, warnings } = await json<Answer<string[]>>(`/api/v1/label/${encodeURIComponent(label)}/values${query({ limit: NAMES, 'match[]': matching })}`)
    return { names, all: warnings === undefined }
  }
  let first: ReturnType<typeof request> | undefined
  return async (start: string): ReturnType<typeof request> => {
    try {
      const few = await (first ??= request(undefined))
      if (few.all || start === '') return few
      const pattern = `${start.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}.*`
      return { ...(await request(`{${label}=~${JSON.stringify(pattern)}}`)), all: false }
    } catch {
      return { names: [], all: true }
    }
  }
}

export interface RuleGroup {
  name: string
  file: string
  interval: number
  rules: Rule[]
}

export interface Rule {
  name: string
  query: string
  type: string
  health: string
  state?: string
  lastError?: string
  evaluationTime?: number
  labels?: Labels
  annotations?: Labels
  alerts?: { labels: Labels; annotations: Labels; state: string; activeAt?: string; value: string }[]
}

/** Groups of rules of a page. */
const GROUPS = 100

export const listRules = async (after: string | undefined, signal: AbortSignal): Promise<Page<RuleGroup>> => {
  const found = await data<{ groups: RuleGroup[]; groupNextToken?: string }>(`rules${query({ group_limit: GROUPS, group_next_token: after })}`, signal)
  return { entries: found.groups, next: found.groupNextToken }
}

/** A sample value as a number; the API writes them as strings. */
export const sampleValue = (text: string): number =>
  text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text)

/** `up{instance="a",job="b"}`. */
export const seriesName = (labels: Labels): string => {
  const { __name__: name = '', ...rest } = labels
  const pairs = Object.entries(rest)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => `${key}=${JSON.stringify(value)}`)
  return pairs.length === 0 ? name || '{}' : `${name}{${pairs.join(',')}}`
}

/** A step that makes at most `points` points, from a list of usual steps. */
export const stepFor = (seconds: number, points = 250): number => {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400]
  return steps.find((step) => seconds / step <= points) ?? Math.ceil(seconds / points)
}

/** The series of a range query on one grid of times; a time without a sample is a gap. */
export const onGrid = (series: readonly Series[], from: number, to: number, step: number) => {
  const times: number[] = []
  for (let time = from; time <= to + step / 1000; time += step) times.push(time)
  const lines = series.map(({ metric, values = [] }) => {
    const row: (number | null)[] = times.map(() => null)
    for (const [time, value] of values) {
      const index = Math.round((time - from) / step)
      const number = sampleValue(value)
      if (index >= 0 && index < row.length) row[index] = Number.isFinite(number) ? number : null
    }
    return { label: seriesName(metric), values: row }
  })
  return { times, lines }
}

/** `30s`, `5m`, `1h`, `2d`, `1w`, or combinations, as seconds; `undefined` for another text. */
export const parseDuration = (text: string): number | undefined => {
  const units: Record<string, number> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400, w: 604_800, y: 31_536_000 }
  const parts = [...text.trim().matchAll(/(\d+(?:\.\d+)?)(ms|[smhdwy])/g)]
  if (parts.length === 0 || parts.map(([part]) => part).join('') !== text.trim()) return undefined
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * (units[unit ?? ''] ?? 0), 0)
}
