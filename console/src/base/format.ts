/** Numbers, sizes and times as people read them. Each value has its unit. */

const GROUPED = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

/** 1234567 as `1,234,567`. */
export const formatCount = (count: number): string => (Number.isFinite(count) ? GROUPED.format(count) : '–')

/** Three significant digits, without an exponent: 0.0123, 1.23, 12.3, 123, 1,230. */
export const formatNumber = (value: number): string => {
  if (Number.isNaN(value)) return 'NaN'
  if (!Number.isFinite(value)) return value > 0 ? '+∞' : '−∞'
  const size = Math.abs(value)
  if (size >= 1000 || value === 0) return GROUPED.format(value)
  if (size < 1e-6) return value.toExponential(2)
  return String(Number(value.toPrecision(3)))
}

const scaled = (value: number, step: number, units: readonly string[]): string => {
  let rest = value
  let unit = 0
  while (Math.abs(rest) >= step * 0.9995 && unit < units.length - 1) {
    rest /= step
    unit += 1
  }
  return `${formatNumber(rest)} ${units[unit] ?? ''}`.trimEnd()
}

/** 1234567 as `1.23 M`. */
export const formatCompact = (count: number): string => scaled(count, 1000, ['', 'k', 'M', 'G', 'T'])

/** Bytes in powers of 1024. */
export const formatBytes = (bytes: number): string => scaled(bytes, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB'])

/** Seconds as `85.3 µs`, `1.2 ms`, `3 s`, `4 min 5 s`, `2 h 3 min`. */
export const formatDuration = (seconds: number): string => {
  if (!Number.isFinite(seconds)) return '–'
  const size = Math.abs(seconds)
  if (size === 0) return '0 s'
  if (size < 1e-3) return `${formatNumber(seconds * 1e6)} µs`
  if (size < 1) return `${formatNumber(seconds * 1e3)} ms`
  if (size < 60) return `${formatNumber(seconds)} s`
  const sign = seconds < 0 ? '−' : ''
  const [whole, unit, part, smaller] =
    size < 3600
      ? [Math.floor(size / 60), 'min', Math.floor(size % 60), 's']
      : size < 86_400
        ? [Math.floor(size / 3600), 'h', Math.floor((size % 3600) / 60), 'min']
        : [Math.floor(size / 86_400), 'd', Math.floor((size % 86_400) / 3600), 'h']
  return `${sign}${whole} ${unit}${part > 0 ? ` ${part} ${smaller}` : ''}`
}

/** A rate for one second. */
export const formatRate = (perSecond: number): string => `${formatCompact(perSecond)}/s`

export const formatShare = (part: number, whole: number): string =>
  whole > 0 ? `${formatNumber((100 * part) / whole)} %` : '–'

const two = (value: number): string => String(value).padStart(2, '0')

/** `2026-11-21 15:36:51.123` in the zone of the browser. */
export const formatLocal = (time: Date): string => {
  if (Number.isNaN(time.getTime())) return '–'
  const date = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`
  const clock = `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`
  return `${date} ${clock}.${String(time.getMilliseconds()).padStart(3, '0')}`
}

/** The same in UTC, with a Z. */
export const formatUtc = (time: Date): string =>
  Number.isNaN(time.getTime()) ? '–' : time.toISOString().replace('T', ' ')

/** How long ago a time was, in one unit. */
export const formatAge = (time: Date, now: Date): string => {
  const seconds = (now.getTime() - time.getTime()) / 1000
  if (Number.isNaN(seconds)) return '–'
  if (Math.abs(seconds) < 1) return 'now'
  const text = formatDuration(Math.round(Math.abs(seconds))).split(' ').slice(0, 2).join(' ')
  return seconds > 0 ? `${text} ago` : `in ${text}`
}
