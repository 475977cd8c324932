/** Rows in columns, in a frame that scrolls sideways where the screen is narrow. */
import type { ComponentChildren } from 'preact'

export interface Column<T> {
  name: string
  cell: (row: T) => ComponentChildren
  /** Numbers are aligned to the right; the name of a column of buttons or bars is for screen readers only. */
  kind?: 'number' | 'mono' | 'actions' | 'share'
  /** A further class of a cell, such as `bad`. */
  tone?: (row: T) => string | false
}

const classes = (...names: (string | false | undefined)[]): string | undefined => names.filter((name) => typeof name === 'string' && name !== '').join(' ') || undefined

export const Table = <T,>({
  label,
  columns,
  rows,
  id,
}: {
  label: string
  columns: readonly (Column<T> | false)[]
  rows: readonly T[]
  /** A text that differs from row to row. */
  id: (row: T) => string
}) => {
  const shown = columns.filter((column) => column !== false)
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {shown.map(({ name, kind }) => (
              <th key={name} scope="col" class={kind}>
                {kind === 'actions' || kind === 'share' ? <span class="hidden">{name}</span> : name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {shown.map(({ name, cell, kind, tone }) => (
                <td key={name} class={classes(kind, tone?.(row))}>
                  {kind === 'actions' ? <div class="row">{cell(row)}</div> : cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
