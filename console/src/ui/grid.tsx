/** Rows of a result in columns. Only the rows on the screen exist, so a million of them scroll. */
import { useMemo, useState } from 'preact/hooks'

import { cellText, isNumeric } from '../api/sql'
import type { Column } from '../api/sql'
import { isObject } from '../base/json'
import type { Json } from '../base/json'
import { oneLine } from '../base/text'
import { Dialog, Text } from './parts'
import { Tree } from './tree'
import { at, useVirtual } from './virtual'

const ROW_HEIGHT = 27
/** Rows whose texts decide the widths of the columns. */
const MEASURED = 200

const widths = (columns: readonly Column[], rows: readonly Json[][]): string[] =>
  columns.map((column, index) => {
    const lengths = rows.slice(0, MEASURED).map((row) => Math.min(cellText(row[index])?.length ?? 4, 46))
    return `${Math.max(column.name.length + 1, column.type.length, 6, ...lengths) + 3}ch`
  })

const RowDialog = ({ columns, row, number, close }: { columns: readonly Column[]; row: Json[]; number: number; close: () => void }) => (
  <Dialog title={`Row ${number.toLocaleString('en')}`} wide close={close}>
    <dl class="facts">
      {columns.map((column, index) => {
        const value = row[index]
        return [
          <dt key={`t${index}`}>
            <Text text={column.name} /> <span class="small">{column.type}</span>
          </dt>,
          <dd key={`d${index}`} class="mono">
            {isObject(value) || Array.isArray(value) ? <Tree value={value} /> : value === null || value === undefined ? <i class="soft">NULL</i> : <Text text={cellText(value) ?? ''} />}
          </dd>,
        ]
      })}
    </dl>
  </Dialog>
)

export const Grid = ({
  columns,
  rows,
  label,
  pick,
}: {
  columns: readonly Column[]
  rows: readonly Json[][]
  label: string
  /** A row was chosen; without it, a dialog shows the row. */
  pick?: (index: number) => void
}) => {
  const { element, rows: visible, height, scrollTo } = useVirtual(rows.length, ROW_HEIGHT)
  const [active, setActive] = useState(-1)
  const [picked, setPicked] = useState<number>()
  const choose = pick ?? setPicked
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity }
    const step = steps[event.key]
    if (step !== undefined && rows.length > 0) {
      event.preventDefault()
      const next = Math.min(Math.max(active + step, 0), rows.length - 1)
      setActive(next)
      scrollTo(next)
    }
    if (event.key === 'Enter' && active >= 0 && active < rows.length) choose(active)
  }
  const size = useMemo(() => widths(columns, rows), [columns, rows])
  const row = picked === undefined ? undefined : rows[picked]
  return (
    <>
      <div ref={element} class="virtual grid" role="table" aria-label={label} aria-rowcount={rows.length + 1} tabIndex={0} onKeyDown={move}>
        <div class="grid-head" role="row">
          {columns.map((column, index) => (
            <div key={index} role="columnheader" class={isNumeric(column.type) ? 'number' : ''} style={{ width: size[index] ?? '10ch' }} title={`${column.name}: ${column.type}`}>
              <bdi>{oneLine(column.name, 80)}</bdi>
              <div class="soft small">{column.type}</div>
            </div>
          ))}
        </div>
        <div class="content" style={{ height: `${height}px` }} role="rowgroup">
          {visible.map(({ index, start }) => (
            <div
              key={index}
              class={`grid-row ${index === active ? 'current' : ''}`}
              role="row"
              aria-rowindex={index + 2}
              style={at(start, ROW_HEIGHT)}
              onClick={() => {
                if (window.getSelection()?.toString() === '') choose(index)
              }}
            >
              {columns.map((column, place) => {
                const text = cellText(rows[index]?.[place])
                return (
                  <div key={place} role="cell" class={text === null ? 'null' : isNumeric(column.type) ? 'number' : ''} style={{ width: size[place] ?? '10ch' }}>
                    {text === null ? 'NULL' : <bdi>{oneLine(text)}</bdi>}
                  </div>
                )
              })}
            </div>
          ))}
        </div>
      </div>
      {row !== undefined && picked !== undefined && (
        <RowDialog columns={columns} row={row} number={picked + 1} close={() => setPicked(undefined)} />
      )}
    </>
  )
}
