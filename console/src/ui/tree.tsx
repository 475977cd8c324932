/** A JSON value as a tree that opens. Large arrays and objects are shown in parts. */
import { useState } from 'preact/hooks'

import { ExactNumber, isObject } from '../base/json'
import type { Json } from '../base/json'
import { plural } from '../base/text'
import { Text } from './parts'

/** Members that are shown at once. */
const PART = 100

const Scalar = ({ value }: { value: Json }) => {
  if (typeof value === 'string') {
    return (
      <span class="string">
        "<Text text={value} max={600} />"
      </span>
    )
  }
  return <span class={typeof value === 'number' || value instanceof ExactNumber ? 'number' : 'word'}>{value instanceof ExactNumber ? value.text : JSON.stringify(value)}</span>
}

const Members = ({ entries, depth }: { entries: (readonly [string, Json])[]; depth: number }) => {
  const [shown, setShown] = useState(PART)
  return (
    <ul>
      {entries.slice(0, shown).map(([name, value]) => (
        <li key={name}>
          <span class="name">
            <Text text={name} max={200} />
          </span>
          : <Node value={value} depth={depth + 1} />
        </li>
      ))}
      {shown < entries.length && (
        <li>
          <button onClick={() => setShown(shown + 10 * PART)}>show more of {plural(entries.length, 'member')}</button>
        </li>
      )}
    </ul>
  )
}

const Node = ({ value, depth }: { value: Json; depth: number }) => {
  const entries: (readonly [string, Json])[] = Array.isArray(value)
    ? value.map((item, index) => [String(index), item] as const)
    : isObject(value)
      ? Object.entries(value)
      : []
  const [open, setOpen] = useState(depth < 2 && entries.length <= PART)
  if (!Array.isArray(value) && !isObject(value)) return <Scalar value={value} />
  const [before, after] = Array.isArray(value) ? ['[', ']'] : ['{', '}']
  if (entries.length === 0) return <span>{before + after}</span>
  return (
    <>
      <button class="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? '▾' : '▸'} {before}
        {open ? '' : `… ${entries.length.toLocaleString('en')} ${after}`}
      </button>
      {open && <Members entries={entries} depth={depth} />}
    </>
  )
}

export const Tree = ({ value }: { value: Json }) => (
  <div class="tree">
    <Node value={value} depth={0} />
  </div>
)
