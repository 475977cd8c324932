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

const colour = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

export const Chart = ({
  times,
  lines,
  format = formatNumber,
  height = 190,
  label,
  legend = true,
  select,
}: {
  /** Seconds since 1970. */
  times: number[]
  lines: readonly Line[]
  format?: (value: number) => string
  height?: number
  label: string
  legend?: boolean
  /** A range of times was marked. */
  select?: (from: number, to: number) => void
}) => {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const [at, setAt] = useState<number | null>(null)
  const latest = useRef({ format, select })
  latest.current = { format, select }
  const shape = `${lines.map((line) => line.label).join('\u0000')}|${height}|${theme.value}`
  useEffect(() => {
    const element = place.current
    if (!element) return
    const text = colour('--soft')
    const grid = { stroke: colour('--line'), width: 1 }
    const axis = { stroke: text, grid, ticks: grid, font: '11px system-ui, sans-serif' }
    const options: uPlot.Options = {
      width: element.clientWidth || 300,
      height,
      legend: { show: false },
      cursor: { sync: { key: 'page' }, drag: { x: true, y: false, setScale: false } },
      scales: { x: { time: true } },
      axes: [axis, { ...axis, size: 68, values: (_plot, values) => values.map((value) => latest.current.format(value)) }],
      series: [
        {},
        ...lines.map((line, index) => ({
          label: line.label,
          stroke: colour(`--c${(index % COLOURS) + 1}`),
          width: 1.5,
          points: { show: false },
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
