import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import { json, path, Problem, problemFrom, query, reachable, send, signInNeeded, writeToken } from '../src/api/client'
import { BUT_SAMPLES, matches, modelOfKeyspace, modelsOf } from '../src/api/commits'
import type { FeedCommit } from '../src/api/commits'
import { rolesOf } from '../src/api/keep'
import { onGrid, parseDuration, sampleValue, seriesName, stepFor } from '../src/api/prom'
import { follow } from '../src/api/resource'
import { authorization, hasRight, loadSession, may, session, signIn } from '../src/api/session'
import { cellText, identifiers, loadTables, quoted, tableName } from '../src/api/sql'
import { ExactNumber } from '../src/base/json'

type Handler = (url: string, init: RequestInit) => Response | Promise<Response>

const serve = (handler: Handler) => {
  const fetched = vi.fn((url: string, init: RequestInit) => Promise.resolve(handler(url, init)))
  vi.stubGlobal('fetch', fetched)
  return fetched
}

const problem = (status: number, code: string, detail: string) =>
  new Response(JSON.stringify({ type: `urn:ropewalk:problem:${code}`, title: 't', status, detail, code }), { status })

const headersOf = (init: RequestInit | undefined) => init?.headers as Record<string, string>

beforeEach(() => {
  writeToken.value = ''
  signInNeeded.value = false
  reachable.value = true
  session.value = undefined
})

afterEach(() => vi.unstubAllGlobals())

describe('requests', () => {
  it('encode names in paths and leave out empty parameters', () => {
    expect(path`/v1/stores/${'a b/ü?'}/head`).toBe('/v1/stores/a%20b%2F%C3%BC%3F/head')
    expect(query({ a: 'x y', b: '', c: undefined, d: false, e: true, f: ['1', '2'] })).toBe('?a=x+y&e=true&f=1&f=2')
    expect(query({})).toBe('')
  })

  it('carry the write token only when they change something', async () => {
    const fetched = serve(() => new Response('{}'))
    writeToken.value = 'token'
    await json('/v1/stores')
    await send('/v1/stores/a', { method: 'PUT' })
    const sent = fetched.mock.calls.map(([, init]) => headersOf(init)['X-Write-Token'])
    expect(sent).toEqual([undefined, 'token'])
    expect(headersOf(fetched.mock.calls[0]?.[1])['X-Requested-With']).toBe('console')
    expect(fetched.mock.calls[0]?.[1].credentials).toBe('same-origin')
  })

  it('throw the server\'s words', async () => {
    serve(() => problem(409, 'condition_failed', 'append condition 0 failed'))
    const error = await json('/v1/x', { method: 'POST', body: {} }).catch((error: unknown) => error)
    expect(error).toBeInstanceOf(Problem)
    expect(error).toMatchObject({ status: 409, code: 'condition_failed', message: 'append condition 0 failed' })
    expect(problemFrom(422, '{"status":"error","errorType":"execution","error":"too many samples"}')).toMatchObject({ code: 'execution', message: 'too many samples' })
    expect(problemFrom(502, '<html>').message).toBe('<html>')
    expect(problemFrom(500, '').message).toBe('the server responded with status 500')
  })

  it('say when there is no response, and when a sign-in is needed', async () => {
    vi.stubGlobal('fetch', () => Promise.reject(new TypeError('failed')))
    await expect(send('/v1/stores')).rejects.toThrow('failed')
    expect(reachable.value).toBe(false)
    serve(() => problem(401, 'unauthenticated', 'credentials are needed'))
    await expect(send('/v1/stores')).rejects.toThrow('credentials are needed')
    expect([reachable.value, signInNeeded.value]).toEqual([true, true])
  })
})

describe('session', () => {
  it('begins with credentials, which are not stored', async () => {
    const fetched = serve(() => new Response(JSON.stringify({ name: 'ann', kind: 'user', roles: { shop: ['read'] }, write_token: 'w', version: '1' }), { status: 201 }))
    await signIn('ann', 'pässword', '')
    const headers = headersOf(fetched.mock.calls[0]?.[1])
    expect(headers['Authorization']).toBe(`Basic ${btoa(String.fromCharCode(...new TextEncoder().encode('ann:pässword')))}`)
    expect(writeToken.value).toBe('w')
    expect([may('read', 'shop'), may('append', 'shop'), may('read'), may('read', 'toString')]).toEqual([true, false, false, false])
    expect(authorization('', '', ' rw_x ')).toBe('Bearer rw_x')
  })

  it('is asked for at the start; a closed server needs a sign-in', async () => {
    serve(() => problem(401, 'unauthenticated', 'credentials are needed'))
    await loadSession()
    expect(signInNeeded.value).toBe(true)
    serve(() => problem(503, 'stopping', 'the server is stopping'))
    signInNeeded.value = false
    await expect(loadSession()).rejects.toThrow('the server is stopping')
  })

  it('has the rights of its roles; admin includes the others', () => {
    expect(hasRight({ '*': ['read'] }, 'read')).toBe(true)
    expect(hasRight({ '*': ['read'] }, 'append', 'a')).toBe(false)
    expect(hasRight({ a: ['admin'] }, 'append', 'a')).toBe(true)
    expect(hasRight({ a: ['admin'] }, 'append')).toBe(false)
    expect(rolesOf('*', ['admin', 'root'])).toEqual({ '*': ['admin'] })
    expect(rolesOf('', ['read'])).toEqual({})
  })
})

describe('streams', () => {
  it('connect again where they ended, and end at a problem of the request', async () => {
    const urls: string[] = []
    const bodies = ['{"n":1}\n{"n":2}\n', '{"n":3}\n']
    serve((url) => {
      urls.push(url)
      const body = bodies.shift()
      return body === undefined ? problem(403, 'permission_denied', 'no') : new Response(body)
    })
    vi.useFakeTimers()
    let next = 0
    const states: string[] = []
    follow(
      () => `/x?after=${next}`,
      (line) => {
        next = (JSON.parse(line) as { n: number }).n
      },
      (state) => states.push(state),
    )
    await vi.advanceTimersByTimeAsync(60_000)
    vi.useRealTimers()
    expect(urls).toEqual(['/x?after=0', '/x?after=2', '/x?after=3'])
    expect(states).toEqual(['connecting', 'live', 'waiting', 'connecting', 'live', 'waiting', 'connecting', 'ended'])
  })
})

describe('commits', () => {
  const commit: FeedCommit = {
    seq: 7,
    recorded_at: '',
    appends: [{ store: 'shop', events: [{ position: 1, seq: 7, recorded_at: '', type: 'OrderPlaced', tags: ['order:O1'] }] }],
    writes: [],
    others: [{ model: 'documents', bytes: 3 }],
  }

  it('are found by store, type, tag, model and number', () => {
    const names = ['events', 'tables', 'documents.catalog', 'own']
    expect(modelsOf(commit, names)).toEqual(['events', 'documents'])
    expect([1, 2, 3, 9].map((keyspace) => modelOfKeyspace(names, keyspace))).toEqual(['tables', 'documents', 'keys', 'keys'])
    const write = { keyspace: 1, change: 'put', key_base64: btoa('rope') }
    expect(modelsOf({ ...commit, writes: [write] }, names)).toEqual(['events', 'documents', 'tables'])
    expect(matches({ ...commit, writes: [write] }, { text: 'rope', model: 'tables' }, names)).toBe(true)
    const samples = { ...commit, appends: [], others: [{ model: 'time series', bytes: 3 }] }
    expect([commit, samples].map((commit) => matches(commit, { text: '', model: BUT_SAMPLES }, names))).toEqual([true, false])
    for (const text of ['', 'SHOP', 'placed', 'order:o1', '7', 'document']) expect(matches(commit, { text, model: '' }, names)).toBe(true)
    expect(matches(commit, { text: 'o2', model: '' }, names)).toBe(false)
    expect(matches(commit, { text: '', model: 'tables' }, names)).toBe(false)
  })
})

describe('prometheus', () => {
  it('puts samples on a grid with gaps', () => {
    const { times, lines } = onGrid([{ metric: { __name__: 'up', a: '"x' }, values: [[10, '1'], [30, 'NaN'], [40, '3']] }], 10, 40, 10)
    expect(times).toEqual([10, 20, 30, 40])
    expect(lines).toEqual([{ label: 'up{a="\\"x"}', values: [1, null, null, 3] }])
    expect(seriesName({})).toBe('{}')
    expect(['+Inf', '-Inf', '2'].map(sampleValue)).toEqual([Infinity, -Infinity, 2])
  })

  it('reads durations and chooses steps', () => {
    expect(['5m', '1h30m', '90s', '1.5h', '10ms', '', 'x', '5'].map(parseDuration)).toEqual([300, 5400, 90, 5400, 0.01, undefined, undefined, undefined])
    expect([60, 3600, 86_400, 1e9].map((seconds) => stepFor(seconds))).toEqual([1, 15, 600, 4_000_000])
  })
})

describe('sql', () => {
  it('shows values as text, NULL apart', () => {
    expect([null, undefined, 1, true, 'x', { a: [1] }, new ExactNumber('1.50')].map(cellText)).toEqual([null, null, '1', 'true', 'x', '{"a":[1]}', '1.50'])
    expect([quoted('a_1'), quoted('A"b')]).toEqual(['a_1', '"A""b"'])
    expect([identifiers('shop.orders'), identifiers('"default"."a"".b"')]).toEqual([['shop', 'orders'], ['default', 'a".b']])
  })

  it('reads tables from the catalog', async () => {
    serve(() => new Response(JSON.stringify({ results: [{ command: 'SELECT 2', columns: [], rows: [['public', 't', 'id', 'integer', 'NO'], ['s', 'T', 'n', 'text', 'YES']] }] })))
    const tables = await loadTables()
    expect(tables.map(tableName)).toEqual(['t', 's."T"'])
    expect(tables[0]?.columns).toEqual([{ name: 'id', type: 'integer', nullable: false }])
  })
})
