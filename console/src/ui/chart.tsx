/** Time series drawn by uPlot, with a cursor that charts of one page share. */
import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'

import { formatLocal, formatNumber } from '../base/format'
import { oneLine } from '../base/text'
import { theme } from './theme'

export interface Line {
  label: string
  /** One value for each time; null is a gap. */
  values: (number | null)[]
}

/** Lines that have a colour each; further ones repeat them. */
const COLOURS = 8
/** Lines in the legend. */
const LEGEND_MAX = 100

/** Increments of an axis of bytes. */
const BINARY = Array.from({ length: 50 }, (_item, power) => 2 ** power)

/** A colour of the theme as the canvas takes it: a variable may be `light-dark(…)`, which an element resolves. */
const colour = (place: HTMLElement, name: string): string => {
  place.style.color = `var(${name})`
  const resolved = getComputedStyle(place).color
  place.style.color = ''
  return resolved
}

const two = (value: number): string => String(value).padStart(2, '0')

/** Times of an axis: `14:05`, with seconds or the date where the steps need it. */
const timeLabels = (seconds: number[], step: number): string[] =>
  seconds.map((value, index) => {
    const time = new Date(value * 1000)
    const date = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`
    if (step >= 86_400) return date
    const clock = `${two(time.getHours())}:${two(time.getMinutes())}${step < 60 ? `:${two(time.getSeconds())}` : ''}`
    const isNewDay = index > 0 && new Date((seconds[index - 1] ?? value) * 1000).getDate() !== time.getDate()
    return isNewDay ? `${clock}\n${date}` : clock
  })

export const Chart = ({
  times,
  lines,
  format = formatNumber,
  height = 190,
  label,
  legend = true,
  fromZero = false,
  binary = false,
  select,
}: {
  /** Seconds since 1970. */
  times: number[]
  lines: readonly Line[]
  format?: (value: number) => string
  height?: number
  label: string
  legend?: boolean
  /** The axis of values begins at 0, or below. */
  fromZero?: boolean
  /** Values are bytes: the axis has steps of powers of two. */
  binary?: boolean
  /** A range of times was marked. */
  select?: (from: number, to: number) => void
}) => {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const [at, setAt] = useState<number | null>(null)
  const latest = useRef({ format, select })
  latest.current = { format, select }
  // A line of one or two values is only visible by its points.
  const isShort = lines.every((line) => line.values.filter((value) => value !== null).length < 3)
  const shape = `${isShort ? 'short' : ''}${lines.map((line) => line.label).join('\u0000')}|${height}|${theme.value}`
  useEffect(() => {
    const element = place.current
    if (!element) return
    const grid = { stroke: colour(element, '--line'), width: 1 }
    const axis = { stroke: colour(element, '--soft'), grid, ticks: { ...grid, size: 4 }, font: `11px ${getComputedStyle(element).fontFamily}` }
    const options: uPlot.Options = {
      width: element.clientWidth || 300,
      height,
      legend: { show: false },
      cursor: { sync: { key: 'page' }, drag: { x: true, y: false, setScale: false } },
      scales: {
        x: { time: true },
        ...(fromZero && { y: { range: (_plot, least, most) => [Math.min(least, 0), Math.max(most, 0) * 1.08 || 1] } }),
      },
      axes: [
        { ...axis, size: 32, values: (_plot, times, _axis, _space, step) => timeLabels(times, step) },
        { ...axis, size: 72, values: (_plot, values) => values.map((value) => latest.current.format(value)), ...(binary && { incrs: BINARY }) },
      ],
      series: [
        {},
        ...lines.map((line, index) => ({
          label: line.label,
          stroke: colour(element, `--c${(index % COLOURS) + 1}`),
          width: 1.5,
          points: { show: isShort },
        })),
      ],
      hooks: {
        setCursor: [(drawn) => setAt(drawn.cursor.idx ?? null)],
        setSelect: [
          (drawn) => {
            const { left, width } = drawn.select
            if (width > 4) latest.current.select?.(drawn.posToVal(left, 'x'), drawn.posToVal(left + width, 'x'))
          },
        ],
      },
    }
    const drawn = new uPlot(options, [times, ...lines.map((line) => line.values)], element)
    plot.current = drawn
    const resized = new ResizeObserver(() => drawn.setSize({ width: element.clientWidth, height }))
    resized.observe(element)
    return () => {
      resized.disconnect()
      drawn.destroy()
      plot.current = undefined
    }
    // The data is set below, without a new plot.
  }, [shape])
  useEffect(() => plot.current?.setData([times, ...lines.map((line) => line.values)]), [times, lines])
  const index = at ?? times.length - 1
  const time = times[index]
  return (
    <figure class="stack chart" role="group" aria-label={label} style={{ margin: '0' }}>
      <div ref={place} aria-hidden="true" />
      {legend && (
        <figcaption class="legend">
          {time !== undefined && <span class="soft">{formatLocal(new Date(time * 1000)).slice(0, 19)}</span>}
          {lines.slice(0, LEGEND_MAX).map((line, number) => {
            const value = line.values[index]
            return (
              <span key={line.label}>
                <i class={`swatch s${(number % COLOURS) + 1}`} />
                <bdi>{oneLine(line.label, 160)}</bdi>
                <b>{value === null || value === undefined ? '–' : format(value)}</b>
              </span>
            )
          })}
          {lines.length > LEGEND_MAX && <span class="soft">and {lines.length - LEGEND_MAX} more</span>}
        </figcaption>
      )}
    </figure>
  )
}
