/** A list of named entries that comes page by page: a box that finds names, and a button for the next page. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'

import type { Listed } from '../api/resource'
import { formatCount } from '../base/format'
import { Busy, ProblemNotice } from './parts'

/** A shorter list is read at a glance: there the box is left out, unless the page always has one. */
const SEARCHED_MIN = 10

/** A box that finds names; the key `/` leads to it. */
export const Find = ({ noun, text, change }: { noun: string; text: string; change: (text: string) => void }) => (
  <input data-search aria-label={`Find a ${noun}`} placeholder={`Find a ${noun} (/)`} value={text} onInput={(event) => change(event.currentTarget.value)} />
)

export const NameList = <T,>({
  list,
  noun,
  name,
  search = false,
  actions,
  empty,
  children,
}: {
  list: Listed<T>
  noun: string
  /** The text in which names are found. */
  name: (entry: T) => string
  /** The box is shown although the list is short. */
  search?: boolean
  /** Shown next to the box. */
  actions?: ComponentChildren
  /** Shown instead of a list without entries. */
  empty?: ComponentChildren
  children: (found: T[]) => ComponentChildren
}) => {
  const [text, setText] = useState('')
  const { data, problem, hasMore, loading, more, reload } = list
  if (!data) return problem ? <ProblemNotice problem={problem} retry={reload} /> : <Busy />
  if (data.length === 0 && !hasMore && empty !== undefined) return <>{empty}</>
  const found = text === '' ? data : data.filter((entry) => name(entry).toLowerCase().includes(text.toLowerCase()))
  const hasBox = search || hasMore || text !== '' || data.length >= SEARCHED_MIN
  return (
    <>
      {(hasBox || actions !== undefined) && (
        <div class="row between">
          {hasBox && <Find noun={noun} text={text} change={setText} />}
          {actions}
        </div>
      )}
      <ProblemNotice problem={problem} retry={reload} />
      {children(found)}
      {hasMore && (
        <div class="row">
          <span class="soft" role="status">
            {text === '' ? `The first ${formatCount(data.length)}.` : `${formatCount(found.length)} of the first ${formatCount(data.length)} match.`}
          </span>
          <button disabled={loading} onClick={more}>
            {text === '' ? 'Show more' : 'Search more'}
          </button>
        </div>
      )}
    </>
  )
}
