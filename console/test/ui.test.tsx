import { render } from 'preact'
import { act } from 'preact/test-utils'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import { Problem, signInNeeded } from '../src/api/client'
import { usePages } from '../src/api/resource'
import { session } from '../src/api/session'
import { App } from '../src/app'
import { tally } from '../src/pages/events'
import { plotOf, readHistory } from '../src/pages/sql'
import { change, go, link, parameter, segments, segmentsOf } from '../src/route'
import { NameList } from '../src/ui/list'
import { Code, ProblemNotice, Text, Time } from '../src/ui/parts'
import { Tree } from '../src/ui/tree'
import { wanted } from '../src/ui/languages/promql'

/** Only to end a hang: other programs may use the processors. */
const PATIENCE = { timeout: 20_000 }

let place: HTMLDivElement

const show = async (view: preact.ComponentChild) => {
  await act(() => render(view, place))
}

const settle = () => act(() => new Promise((resolve) => setTimeout(resolve, 20)))

beforeEach(() => {
  place = document.createElement('div')
  document.body.append(place)
  session.value = undefined
  signInNeeded.value = false
  go('/ui/')
})

afterEach(() => {
  render(null, place)
  place.remove()
  vi.unstubAllGlobals()
})

const HOSTILE = ['<script>alert(1)</script>', '<img src=x onerror=alert(1)>', '\u0000nul', '\u202eright to left', '🧵emoji', '"\'`${x}']

describe('user data', () => {
  it('is text, never markup', async () => {
    for (const text of HOSTILE) {
      await show(
        <>
          <Text text={text} />
          <Tree value={{ [text]: [text, null, 1.5, true] }} />
          <Code text={text} />
          <ProblemNotice problem={new Problem(400, 'x', text, { hint: text })} />
          <Time at={text} />
        </>,
      )
      expect(place.querySelectorAll('script, img, iframe')).toHaveLength(0)
      if (!text.includes('\u0000') && !text.includes('\u202e')) expect(place.textContent).toContain(text)
    }
  })

  it('is bounded until the user asks for all of it', async () => {
    await show(<Text text={'x'.repeat(1 << 20)} />)
    expect(place.textContent.length).toBeLessThan(3_000)
    await act(() => place.querySelector('button')?.click())
    expect(place.textContent.length).toBe(1 << 20)
  })

  it('of many members is shown in parts', async () => {
    await show(<Tree value={Array.from({ length: 1_000 }, (_, index) => index)} />)
    await act(() => place.querySelector('button')?.click())
    expect(place.querySelectorAll('li').length).toBe(101)
  })
})

describe('list', () => {
  const NAMES = ['alpha', 'beta', 'gamma', 'delta']
  const Names = ({ size }: { size: number }) => {
    const list = usePages('names', (after) => {
      const begin = after === undefined ? 0 : NAMES.indexOf(after) + 1
      const entries = NAMES.slice(begin, begin + size)
      return Promise.resolve({ entries, next: begin + size < NAMES.length ? entries.at(-1) : undefined })
    })
    return (
      <NameList list={list} noun="name" name={(name) => name}>
        {(found) => <p>{found.join(' ')}</p>}
      </NameList>
    )
  }
  const shown = () => place.querySelector('p')?.textContent
  const find = (text: string) =>
    act(() => {
      const box = place.querySelector('input')
      if (!box) throw new Error('no box')
      box.value = text
      box.dispatchEvent(new Event('input', { bubbles: true }))
    })
  const more = async () => {
    await act(() => place.querySelector('button')?.click())
    await settle()
  }

  it('shows further pages on request, and finds names in what was loaded', async () => {
    await show(<Names size={2} />)
    await settle()
    expect(shown()).toBe('alpha beta')
    await find('MM')
    expect(shown()).toBe('')
    expect(place.textContent).toContain('0 of the first 2 match.')
    await more()
    expect([shown(), place.querySelector('button')]).toEqual(['gamma', null])
    await find('')
    expect(shown()).toBe('alpha beta gamma delta')
  })

  it('without further pages has no button, and no box while it is short', async () => {
    await show(<Names size={4} />)
    await settle()
    expect([shown(), place.querySelectorAll('button, input').length]).toEqual(['alpha beta gamma delta', 0])
  })
})

describe('route', () => {
  it('keeps the state of the view in the URL', () => {
    go(link(['events', 'a b/ü'], { q: '{"x":1}', tag: ['1', '2'], empty: '' }))
    expect(window.location.pathname).toBe('/ui/events/a%20b%2F%C3%BC')
    expect(segments.value).toEqual(['events', 'a b/ü'])
    expect(parameter('q')).toBe('{"x":1}')
    change({ q: undefined, live: 1 })
    expect(window.location.search).toBe('?tag=1&tag=2&live=1')
    expect(parameter('absent', 'x')).toBe('x')
    expect(segmentsOf('/ui/%zz')).toEqual(['%zz'])
    expect(segmentsOf('/other')).toEqual([])
  })
})

const answer = (body: unknown, status = 200) => Promise.resolve(new Response(JSON.stringify(body), { status }))

describe('app', () => {
  it('shows the sign-in of a closed server, and its words for a wrong password', async () => {
    vi.stubGlobal('fetch', () => answer({ detail: 'unknown user or wrong password', code: 'unauthenticated' }, 401))
    await show(<App />)
    await settle()
    expect(place.querySelector('h1')?.textContent).toBe('Sign in to Ropewalk')
    const form = place.querySelector('form')
    await act(() => {
      form?.dispatchEvent(new Event('submit', { bubbles: true, cancelable: true }))
    })
    await settle()
    expect(place.querySelector('[role=alert]')?.textContent).toContain('unknown user or wrong password')
  })

  it('shows every page to a user without any right, without buttons that need one', async () => {
    vi.stubGlobal('fetch', (url: string) =>
      url.startsWith('/v1/session')
        ? answer({ name: 'eve', kind: 'user', roles: {}, write_token: 'w', version: '1' })
        : url === '/v1/stores'
          ? answer({ stores: [] })
          : answer({ detail: 'eve lacks the right "read"', code: 'permission_denied' }, 403),
    )
    await show(<App />)
    await settle()
    for (const page of ['now', 'commits', 'events', 'documents', 'sql', 'metrics', 'keep']) {
      await act(() => go(link([page])))
      // The code of a page is loaded when it is opened.
      await vi.waitFor(async () => {
        await settle()
        expect(document.title.toLowerCase()).toContain(page)
        expect(place.querySelector('main h1'), page).not.toBeNull()
      }, PATIENCE)
      expect(place.querySelectorAll('button.danger')).toHaveLength(0)
    }
    expect(place.textContent).not.toContain('Create a store')
  })

  it('says so when the server does not respond', async () => {
    vi.stubGlobal('fetch', () => Promise.reject(new TypeError('Failed to fetch')))
    await show(<App />)
    await settle()
    expect(place.querySelector('[role=alert]')?.textContent).toContain('Failed to fetch')
  })
})

describe('pages', () => {
  it('count words of events', () => {
    const event = { position: 1, seq: 1, recorded_at: '', type: 'A', tags: ['x', 'y'] }
    expect(tally([event, { ...event, tags: ['y'] }], ({ tags }) => tags)).toEqual([['y', 2], ['x', 1]])
  })

  it('read a history that someone else has written', () => {
    expect(readHistory('["a", 7, "b"]')).toEqual(['a', 'b'])
    for (const text of [null, '', '{', '{}', '7']) expect(readHistory(text)).toEqual([])
  })

  it('plot numbers over times', () => {
    const columns = [
      { name: 'at', type: 'timestamp with time zone' },
      { name: 'n', type: 'integer' },
      { name: 'note', type: 'text' },
    ]
    const plot = plotOf({ command: '', columns, rows: [['2026-01-01 00:00:10Z', 2, 'a'], ['2026-01-01 00:00:00Z', null, 'b']] })
    expect(plot?.lines).toEqual([{ label: 'n', values: [null, 2] }])
    expect((plot?.times[1] ?? 0) - (plot?.times[0] ?? 0)).toBe(10)
    expect(plotOf({ command: '', columns: columns.slice(2), rows: [] })).toBeUndefined()
  })

  it('complete PromQL by the place of the cursor', () => {
    expect(wanted('rate(x')).toEqual({ kind: 'name' })
    expect(wanted('x{a')).toEqual({ kind: 'label' })
    expect(wanted('x{a="b", job=~"c')).toEqual({ kind: 'value', label: 'job', start: 'c' })
    expect(wanted('sum by (a')).toEqual({ kind: 'label' })
    expect(wanted('x{a="b"} + y')).toEqual({ kind: 'name' })
  })
})
