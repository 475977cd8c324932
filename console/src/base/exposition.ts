/** The text format of Prometheus, as far as this server writes it at `/metrics`. */

export interface Sample {
  name: string
  labels: Readonly<Record<string, string>>
  value: number
}

const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g

const unescapeLabel = (text: string): string =>
  text.replace(/\\(.)/g, (_all, char: string) => (char === 'n' ? '\n' : char))

const labelsOf = (text: string): Record<string, string> => {
  const labels: Record<string, string> = {}
  for (const [, name, value] of text.matchAll(LABEL)) labels[name ?? ''] = unescapeLabel(value ?? '')
  return labels
}

/** The samples of a text; lines that are not samples are skipped. */
export const parseExposition = (text: string): Sample[] => {
  const samples: Sample[] = []
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue
    const space = line.lastIndexOf(' ')
    const head = line.slice(0, space)
    const value = Number(line.slice(space + 1).replace('+Inf', 'Infinity').replace('-Inf', '-Infinity'))
    const brace = head.indexOf('{')
    const name = brace < 0 ? head : head.slice(0, brace)
    if (name === '' || Number.isNaN(value)) continue
    samples.push({ name, labels: brace < 0 ? {} : labelsOf(head.slice(brace + 1, -1)), value })
  }
  return samples
}

/** Samples by name, for several reads of one scrape. */
export class Scrape {
  private readonly byName = new Map<string, Sample[]>()

  constructor(
    text: string,
    /** Seconds of a steady clock at the time of the scrape. */
    readonly seconds: number,
  ) {
    for (const sample of parseExposition(text)) {
      const found = this.byName.get(sample.name)
      if (found) found.push(sample)
      else this.byName.set(sample.name, [sample])
    }
  }

  all(name: string): readonly Sample[] {
    return this.byName.get(name) ?? []
  }

  /** Sum of the samples whose labels equal those of `where`; `undefined` without any. */
  sum(name: string, where: Readonly<Record<string, string>> = {}): number | undefined {
    const found = this.all(name).filter(({ labels }) => Object.entries(where).every(([key, value]) => labels[key] === value))
    return found.length === 0 ? undefined : found.reduce((sum, { value }) => sum + value, 0)
  }

  /** Sums by a label. */
  by(name: string, label: string): Map<string, number> {
    const sums = new Map<string, number>()
    for (const { labels, value } of this.all(name)) {
      const key = labels[label] ?? ''
      sums.set(key, (sums.get(key) ?? 0) + value)
    }
    return sums
  }
}

/** Rise of a counter for each second between two scrapes. A counter that fell was reset: it rose from 0. */
export const rate = (before: number | undefined, now: number | undefined, seconds: number): number | undefined => {
  if (before === undefined || now === undefined || seconds <= 0) return undefined
  return (now >= before ? now - before : now) / seconds
}

/** The upper bound of the bucket in which a quantile of the observations between two scrapes is. */
export const bucketQuantile = (
  quantile: number,
  before: readonly Sample[],
  now: readonly Sample[],
): number | undefined => {
  const risen = new Map<number, number>()
  const add = (samples: readonly Sample[], sign: number) => {
    for (const { labels, value } of samples) {
      const bound = labels['le'] === '+Inf' ? Infinity : Number(labels['le'])
      risen.set(bound, (risen.get(bound) ?? 0) + sign * value)
    }
  }
  add(now, 1)
  add(before, -1)
  const bounds = [...risen].sort(([a], [b]) => a - b)
  const total = bounds.at(-1)?.[1] ?? 0
  if (total <= 0) return undefined
  return bounds.find(([, count]) => count >= quantile * total)?.[0]
}
