/** Data of the server as state of a component: loaded, reloaded at intervals, streamed. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'

import { backoffMs, lines } from '../base/lines'
import { isAbort, problemOf, send } from './client'
import type { Page, Problem } from './client'

export interface Loaded<T> {
  data: T | undefined
  problem: Problem | undefined
  loading: boolean
  reload: () => void
}

/** Loads when `key` changes, and again every `everyMs`. While it loads, the former data stays. */
export const useLoaded = <T>(
  key: string | undefined,
  load: (signal: AbortSignal) => Promise<T>,
  everyMs?: number,
): Loaded<T> => {
  const [state, setState] = useState<{ key?: string; data?: T; problem?: Problem; loading: boolean }>({ loading: true })
  const [turn, setTurn] = useState(0)
  const latest = useRef(load)
  latest.current = load
  useEffect(() => {
    if (key === undefined) return
    const abort = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const run = async () => {
      setState((old) => (old.key === key ? { ...old, loading: true } : { key, loading: true }))
      try {
        const data = await latest.current(abort.signal)
        if (!abort.signal.aborted) setState({ key, data, loading: false })
      } catch (error) {
        if (isAbort(error) || abort.signal.aborted) return
        setState((old) => ({ ...old, key, problem: problemOf(error), loading: false }))
      }
      if (everyMs !== undefined && !abort.signal.aborted) {
        // A hidden page asks for nothing.
        const again = () => {
          if (document.hidden) timer = setTimeout(again, everyMs)
          else void run()
        }
        timer = setTimeout(again, everyMs)
      }
    }
    void run()
    return () => {
      abort.abort()
      clearTimeout(timer)
    }
  }, [key, everyMs, turn])
  const reload = useCallback(() => setTurn((old) => old + 1), [])
  const current = state.key === key
  return {
    data: current ? state.data : undefined,
    problem: current ? state.problem : undefined,
    loading: key !== undefined && state.loading,
    reload,
  }
}

export interface Listed<T> extends Loaded<T[]> {
  /** The server has more entries than were loaded. */
  hasMore: boolean
  /** Loads a further page. */
  more: () => void
}

/** As `useLoaded`, for a list that comes page by page: the first one, and further ones on request. */
export const usePages = <T>(key: string | undefined, load: (after: string | undefined, signal: AbortSignal) => Promise<Page<T>>, everyMs?: number): Listed<T> => {
  const wanted = useRef({ key, pages: 1 })
  if (wanted.current.key !== key) wanted.current = { key, pages: 1 }
  const { data, reload, ...rest } = useLoaded(
    key,
    async (signal) => {
      const all: Page<T> = { entries: [], next: undefined }
      for (let pages = 0; pages < wanted.current.pages; pages += 1) {
        const { entries, next } = await load(all.next, signal)
        all.entries.push(...entries)
        all.next = next
        if (next === undefined) break
      }
      return all
    },
    everyMs,
  )
  const more = useCallback(() => {
    wanted.current.pages += 1
    reload()
  }, [reload])
  return { ...rest, data: data?.entries, hasMore: data?.next !== undefined, reload, more }
}

export type StreamState = 'connecting' | 'live' | 'waiting' | 'ended'

/**
 * Follows a stream of NDJSON and connects again after a failure, at the place that `url` gives then. `take` gets each
 * line. A problem with a status from 400 to 499 ends it, since the same request would fail again.
 */
export const follow = (
  url: () => string,
  take: (line: string) => void,
  note: (state: StreamState, problem?: Problem) => void,
): (() => void) => {
  const abort = new AbortController()
  const run = async () => {
    for (let attempt = 0; !abort.signal.aborted; attempt += 1) {
      note('connecting')
      try {
        const headers = { Accept: 'application/x-ndjson' }
        const response = await send(url(), { headers, signal: abort.signal })
        note('live')
        if (response.body) {
          for await (const line of lines(response.body)) {
            attempt = 0
            if (line !== '') take(line)
          }
        }
        note('waiting')
      } catch (error) {
        if (isAbort(error)) return
        const problem = problemOf(error)
        const final = problem.status >= 400 && problem.status < 500 && problem.status !== 408 && problem.status !== 429
        note(final ? 'ended' : 'waiting', problem)
        if (final) return
      }
      await new Promise((resolve) => setTimeout(resolve, backoffMs(attempt)))
    }
  }
  void run()
  return () => abort.abort()
}
