/**
 * The state of the view is in the URL, so that it can be shared: `/ui/events/courses?type=A&tag=course:c1`.
 *
 * The path names the page and its object, the query string the rest.
 */
import { computed, signal } from '@preact/signals'

export const BASE = '/ui/'

const current = () => ({ path: window.location.pathname, search: window.location.search })
const place = signal(current())

window.addEventListener('popstate', () => {
  place.value = current()
})

/** Segments of a path below `/ui/`, decoded. A segment that is not valid stays as it is. */
export const segmentsOf = (path: string): string[] => {
  const rest = path.startsWith(BASE) ? path.slice(BASE.length) : ''
  return rest
    .split('/')
    .filter((segment) => segment !== '')
    .map((segment) => {
      try {
        return decodeURIComponent(segment)
      } catch {
        return segment
      }
    })
}

export const segments = computed(() => segmentsOf(place.value.path))
export const parameters = computed(() => new URLSearchParams(place.value.search))

/** Parameters to set; `undefined` and empty ones are left out. */
export type Parameters = Record<string, string | number | readonly string[] | undefined>

/** The address of a page. */
export const link = (path: readonly string[], parameters: Parameters = {}): string => {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(parameters)) {
    if (value === undefined || value === '') continue
    for (const one of Array.isArray(value) ? (value as readonly string[]) : [String(value)]) search.append(name, one)
  }
  const text = search.toString()
  return BASE + path.map(encodeURIComponent).join('/') + (text === '' ? '' : `?${text}`)
}

/** Shows an address of the console. `replace` adds no step to the history. */
export const go = (url: string, replace = false): void => {
  if (replace) window.history.replaceState(null, '', url)
  else window.history.pushState(null, '', url)
  place.value = current()
}

/** Changes parameters of the present page. */
export const change = (changes: Parameters, replace = false): void => {
  const all: Record<string, string | readonly string[] | undefined> = {}
  for (const name of new Set(parameters.value.keys())) all[name] = parameters.value.getAll(name)
  for (const [name, value] of Object.entries(changes)) all[name] = typeof value === 'number' ? String(value) : value
  go(link(segments.value, all), replace)
}

/** One parameter; `fallback` when it is absent. */
export const parameter = (name: string, fallback = ''): string => parameters.value.get(name) ?? fallback

/** Clicks on links to the console stay in the page. */
export const keepInPage = (): void => {
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return
    const anchor = event.target instanceof Element ? event.target.closest('a') : null
    if (!anchor || anchor.target !== '' || anchor.hasAttribute('download')) return
    const url = new URL(anchor.href, window.location.href)
    if (url.origin !== window.location.origin || !url.pathname.startsWith(BASE)) return
    event.preventDefault()
    go(url.pathname + url.search)
    document.getElementById('main')?.focus()
  })
}
