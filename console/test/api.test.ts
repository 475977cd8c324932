import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import type { Page } from '../src/api/client'
import { json, path, Problem, problemFrom, query, reachable, send, signInNeeded, writeToken } from '../src/api/client'
import { BUT_SAMPLES, keyspaceNames, matches, modelOfKeyspace, modelsOf } from '../src/api/commits'
import type { FeedCommit } from '../src/api/commits'
import { listCollections } from '../src/api/documents'
import { rolesOf } from '../src/api/keep'
import { listRules, onGrid, parseDuration, sampleValue, seriesName, stepFor, valuesOf } from '../src/api/prom'
import { follow } from '../src/api/resource'
import { authorization, hasRight, loadSession, may, session, signIn } from '../src/api/session'
import { cellText, identifiers, listTables, quoted, tableName } from '../src/api/sql'
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

  it('reads tables from the catalog, page by page', async () => {
    const rows = [['public', 't', 'id', 'integer', 'NO'], ['s', 'T', 'n', 'text', 'YES'], ['s', 'empty', null, null, null]]
    const fetched = serve(() => new Response(JSON.stringify({ results: [{ command: 'SELECT 3', columns: [], rows }] })))
    const tables = await listTables(undefined, SIGNAL)
    expect(tables.entries.map(tableName)).toEqual(['t', 's."T"', 's.empty'])
    expect(tables.entries.map(({ columns }) => columns)).toEqual([[{ name: 'id', type: 'integer', nullable: false }], [{ name: 'n', type: 'text', nullable: true }], []])
    expect(tables.next).toBeUndefined()
    const many = Array.from({ length: 501 }, (_, index) => ['s', `t${index}`, 'id', 'integer', 'NO'])
    serve(() => new Response(JSON.stringify({ results: [{ command: 'SELECT 501', columns: [], rows: many }] })))
    const first = await listTables("a'b\u0000c", SIGNAL)
    expect([first.entries.length, first.next]).toEqual([500, 's\u0000t499'])
    expect(fetched).toHaveBeenCalledTimes(1)
  })
})

const SIGNAL = new AbortController().signal

/** Serves responses by URL, and returns the URLs that were requested. */
const serveUrls = (responses: Record<string, unknown>) => {
  const asked: string[] = []
  serve((url) => {
    asked.push(url)
    return new Response(JSON.stringify(responses[url] ?? { detail: url, code: 'unknown' }), { status: url in responses ? 200 : 404 })
  })
  return asked
}

/** All entries, from page to page. */
const all = async <T>(load: (after: string | undefined, signal: AbortSignal) => Promise<Page<T>>): Promise<T[][]> => {
  const pages: T[][] = []
  let after: string | undefined
  do {
    const { entries, next } = await load(after, SIGNAL)
    pages.push(entries)
    after = next
  } while (after !== undefined)
  return pages
}

describe('pages', () => {
  it('of collections end within a database that has more, and continue there', async () => {
    const collections = (...names: string[]) => names.map((name) => ({ name, documents: 1, bytes: 1 }))
    const asked = serveUrls({
      '/v1/databases?limit=100': { databases: ['a', 'b', 'c'], next: 'c' },
      '/v1/databases/a/collections': { collections: collections('1') },
      '/v1/databases/b/collections': { collections: collections('1'), next: '1' },
      '/v1/databases/c/collections': { collections: collections('1') },
      '/v1/databases/b/collections?after=1': { collections: collections('2') },
      '/v1/databases?after=b&limit=100': { databases: ['c'], next: 'c' },
      '/v1/databases?after=c&limit=100': { databases: [] },
    })
    const pages = await all(listCollections)
    expect(pages.map((page) => page.map(({ database, name }) => `${database}.${name}`))).toEqual([['a.1', 'b.1'], ['b.2'], ['c.1'], []])
    expect(asked).toHaveLength(8)
  })

  it('of rules follow the token of the next group', async () => {
    const group = (name: string) => ({ name, file: 'f', interval: 1, rules: [] })
    serveUrls({
      '/api/v1/rules?group_limit=100': { status: 'success', data: { groups: [group('a')], groupNextToken: 'f;b' } },
      '/api/v1/rules?group_limit=100&group_next_token=f%3Bb': { status: 'success', data: { groups: [group('b')] } },
    })
    expect((await all(listRules)).map((page) => page.map(({ name }) => name))).toEqual([['a'], ['b']])
  })

  it('of keyspaces give names by number', async () => {
    serveUrls({
      '/v1/stats': { keyspaces: [{ name: 'a', number: 2 }, { name: 'b', number: 0 }], next: 'b' },
      '/v1/stats?after=b': { keyspaces: [{ name: 'c', number: 1 }] },
    })
    expect(await keyspaceNames()).toEqual(['b', 'c', 'a'])
  })
})

describe('values of a label', () => {
  const url = (rest: string) => `/api/v1/label/job/values?limit=1000${rest}`

  it('are requested once if they are few', async () => {
    const asked = serveUrls({ [url('')]: { data: ['a', 'b'] } })
    const values = valuesOf('job')
    expect([await values(''), await values('b')]).toEqual([{ names: ['a', 'b'], all: true }, { names: ['a', 'b'], all: true }])
    expect(asked).toHaveLength(1)
  })

  it('are found by their beginning if they are many', async () => {
    const matching = `&${new URLSearchParams({ 'match[]': '{job=~"x\\\\..*"}' }).toString()}`
    const asked = serveUrls({ [url('')]: { data: ['a'], warnings: ['truncated'] }, [url(matching)]: { data: ['x.1'] } })
    expect(await valuesOf('job')('x.')).toEqual({ names: ['x.1'], all: false })
    expect(asked).toEqual([url(''), url(matching)])
    expect(await valuesOf('other')('')).toEqual({ names: [], all: true })
  })
})
