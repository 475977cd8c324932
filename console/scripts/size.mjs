// Checks the committed files: they are those of the sources, and the first load is within its budget.
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'

import { DIST, sourcesHash } from './sources.mjs'

const FIRST_LOAD_BYTES_MAX = 120_000
const PAGE_BYTES_MAX = 260_000

const assets = join(DIST, 'assets')
const names = readdirSync(assets)
const size = (name) => statSync(join(assets, `${name}.gz`)).size
const text = (path) => gunzipSync(readFileSync(`${path}.gz`)).toString()

/** A script with those that it imports, without those that it loads later. */
const closure = (name, found = new Set()) => {
  if (found.has(name)) return found
  found.add(name)
  for (const [, next] of text(join(assets, name)).matchAll(/(?:from|import)\s*["']\.\/([^"']+\.js)["']/g)) closure(next, found)
  return found
}

const page = text(join(DIST, 'index.html'))
const entry = /src="\/ui\/assets\/([^"]+\.js)"/.exec(page)?.[1]
if (entry === undefined) throw new Error('index.html names no script')
const styles = names.filter((name) => name.endsWith('.css.gz')).reduce((sum, name) => sum + statSync(join(assets, name)).size, 0)
const html = statSync(join(DIST, 'index.html.gz')).size
/** Bytes of a page. The page SQL and the language SQL have one name: the largest script counts. */
const bytesOf = (id) => {
  const chunks = names.filter((name) => new RegExp(`^${id}-[\\w-]+\\.js\\.gz$`).test(name))
  if (chunks.length === 0) throw new Error(`there is no script of the page ${id}`)
  const scripts = chunks.map((chunk) => closure(chunk.slice(0, -3), closure(entry)))
  return html + styles + Math.max(...scripts.map((names) => [...names].reduce((sum, name) => sum + size(name), 0)))
}

let failed = false
const report = (what, bytes, max) => {
  const over = bytes > max
  failed ||= over
  console.log(`${what.padEnd(28)} ${String(bytes).padStart(8)} of ${max} bytes${over ? '  TOO LARGE' : ''}`)
}
report('first load (page Now)', bytesOf('now'), FIRST_LOAD_BYTES_MAX)
for (const id of ['commits', 'events', 'documents', 'sql', 'metrics', 'keep']) report(`opened at page ${id}`, bytesOf(id), PAGE_BYTES_MAX)
if (readFileSync(join(DIST, '.sources'), 'utf8').trim() !== sourcesHash()) {
  console.log('dist is older than the sources: npm run build')
  failed = true
}
process.exitCode = failed ? 1 : 0
