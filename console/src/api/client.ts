/**
 * Requests to the server's public HTTP API.
 *
 * A request carries the cookie of the session; one that changes something also carries its write token. Every error
 * is a `Problem` with the server's own words.
 */
import { signal } from '@preact/signals'

import { isObject, parseJson } from '../base/json'
import type { Json } from '../base/json'

/** The write token of the session; empty without one. */
export const writeToken = signal('')
/** The server rejected the session, or the request needs one. */
export const signInNeeded = signal(false)
/** False while requests get no response. */
export const reachable = signal(true)

/** An error in the server's words. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    /** Further members of the problem, such as `sqlstate`, `hint`, `position`. */
    readonly more: Readonly<Record<string, Json>> = {},
  ) {
    super(detail)
  }

  member(name: string): string | undefined {
    const value = this.more[name]
    return value === undefined || value === null ? undefined : typeof value === 'object' ? undefined : String(value)
  }
}

/** Any thrown value as a problem. */
export const problemOf = (error: unknown): Problem =>
  error instanceof Problem
    ? error
    : new Problem(0, 'client', error instanceof Error ? error.message : String(error))

export const isAbort = (error: unknown): boolean => error instanceof DOMException && error.name === 'AbortError'

/** The problem of a response that is not a success: `application/problem+json`, or Prometheus' form of errors. */
export const problemFrom = (status: number, text: string): Problem => {
  try {
    const body = parseJson(text)
    if (isObject(body)) {
      if (typeof body['detail'] === 'string') {
        return new Problem(status, typeof body['code'] === 'string' ? body['code'] : '', body['detail'], body)
      }
      if (typeof body['error'] === 'string') {
        return new Problem(status, typeof body['errorType'] === 'string' ? body['errorType'] : '', body['error'], body)
      }
    }
  } catch {
    // The body is not JSON: its text is the message.
  }
  return new Problem(status, '', text.trim() === '' ? `the server responded with status ${status}` : text)
}

export interface Ask {
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Sent as JSON. */
  body?: unknown
  /** Sent as it is, as JSON. */
  text?: string
  /** Sent as a form. */
  form?: URLSearchParams
  headers?: Record<string, string>
  signal?: AbortSignal | undefined
}

/** A path from segments, each encoded. */
export const path = (strings: TemplateStringsArray, ...segments: string[]): string =>
  strings.map((part, index) => part + (index < segments.length ? encodeURIComponent(segments[index] ?? '') : '')).join('')

/** A query string of the parameters that are set. */
export const query = (parameters: Record<string, string | number | boolean | readonly string[] | undefined>): string => {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(parameters)) {
    if (value === undefined || value === '' || value === false) continue
    for (const one of Array.isArray(value) ? (value as readonly string[]) : [String(value)]) search.append(name, one)
  }
  const text = search.toString()
  return text === '' ? '' : `?${text}`
}

/** Sends a request; a response that is not a success is thrown as a `Problem`. */
export const send = async (url: string, ask: Ask = {}): Promise<Response> => {
  const method = ask.method ?? 'GET'
  const headers: Record<string, string> = { 'X-Requested-With': 'console', ...ask.headers }
  let body: string | URLSearchParams | null = null
  if (ask.form) body = ask.form
  else if (ask.text !== undefined || ask.body !== undefined) {
    body = ask.text ?? JSON.stringify(ask.body)
    headers['Content-Type'] = 'application/json'
  }
  if (method !== 'GET' && writeToken.value !== '') headers['X-Write-Token'] = writeToken.value
  let response: Response
  try {
    response = await fetch(url, {
      method,
      headers,
      body,
      credentials: 'same-origin',
      cache: 'no-store',
      signal: ask.signal ?? null,
    })
  } catch (error) {
    if (!isAbort(error)) reachable.value = false
    throw error
  }
  reachable.value = true
  if (response.ok) return response
  const problem = problemFrom(response.status, await response.text())
  if (response.status === 401) signInNeeded.value = true
  throw problem
}

/** A part of a list that is sorted by name, and the start of the next part; `undefined` for the last one. */
export interface Page<T> {
  entries: T[]
  next: string | undefined
}

/** The page of a list after a name. The entries are the member `list` of the response. */
export const page = async <T>(url: string, list: string, after: string | undefined, signal?: AbortSignal, limit?: number): Promise<Page<T>> => {
  const found = await json<Record<string, unknown> & { next?: string }>(`${url}${query({ after, limit })}`, { signal })
  return { entries: found[list] as T[], next: found.next }
}

/** The JSON of a response. Its shape is that of the OpenAPI document, which the caller names. */
export const json = async <T>(url: string, ask: Ask = {}): Promise<T> => {
  const text = await (await send(url, ask)).text()
  return (text === '' ? null : parseJson(text)) as T
}
