/** Lists of any length, of which only the rows on the screen exist. */
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from '@tanstack/virtual-core'
import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'

export interface Shown {
  index: number
  start: number
}

/** The rows of a scrolled element that are on the screen, and the height of all. */
export const useVirtual = (count: number, rowHeight: number, headHeight = 0) => {
  const element = useRef<HTMLDivElement>(null)
  const [, setTurn] = useState(0)
  const virtualizer = useRef<Virtualizer<HTMLDivElement, HTMLElement> | undefined>(undefined)
  const options = {
    count,
    getScrollElement: () => element.current,
    estimateSize: () => rowHeight,
    overscan: 12,
    scrollMargin: headHeight,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: () => setTurn((turn) => turn + 1),
  }
  virtualizer.current ??= new Virtualizer<HTMLDivElement, HTMLElement>(options)
  virtualizer.current.setOptions(options)
  useLayoutEffect(() => virtualizer.current?._didMount(), [])
  useLayoutEffect(() => virtualizer.current?._willUpdate())
  const rows: Shown[] = virtualizer.current
    .getVirtualItems()
    .map(({ index, start }) => ({ index, start: start - headHeight }))
  return { element, rows, height: virtualizer.current.getTotalSize(), scrollTo: (index: number) => virtualizer.current?.scrollToIndex(index) }
}

/** Moves a row to its place. Styles are set by script: the policy of the page forbids them in markup. */
export const at = (start: number, height: number) => ({ transform: `translateY(${start}px)`, height: `${height}px` })

/** A list whose rows are buttons; arrow keys move between them. */
export const VirtualList = <T,>({
  items,
  label,
  rowHeight = 30,
  columns,
  current,
  pick,
  row,
}: {
  items: readonly T[]
  label: string
  rowHeight?: number
  /** Class of the columns that its rows share. */
  columns?: string
  current?: (item: T) => boolean
  pick: (item: T) => void
  row: (item: T) => ComponentChildren
}) => {
  const { element, rows, height } = useVirtual(items.length, rowHeight)
  const move = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowDown' ? 'nextElementSibling' : event.key === 'ArrowUp' ? 'previousElementSibling' : undefined
    const target = step && event.target instanceof Element ? event.target.closest('.line')?.[step] : undefined
    if (target instanceof HTMLElement) {
      event.preventDefault()
      target.focus()
    }
  }
  return (
    <div ref={element} class="virtual" role="group" aria-label={label} tabIndex={0} onKeyDown={move}>
      <div class="content" style={{ height: `${height}px` }}>
        {rows.map(({ index, start }) => {
          const item = items[index]
          return (
            item !== undefined && (
              <button
                key={index}
                class={`line ${columns === undefined ? '' : `columns ${columns}`} ${current?.(item) === true ? 'current' : ''}`}
                style={at(start, rowHeight)}
                onClick={() => pick(item)}
              >
                {row(item)}
              </button>
            )
          )
        })}
      </div>
    </div>
  )
}
