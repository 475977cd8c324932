// Compresses the built files in place, adds the licences of what they contain, and notes the sources.
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'

import { DIST, filesBelow, ROOT, sourcesHash } from './sources.mjs'

// As in deny.toml: permissive licences only.
const ALLOWED = new Set(['MIT', 'Apache-2.0', 'ISC', 'BSD-2-Clause', 'BSD-3-Clause', 'MIT OR Apache-2.0'])

const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'))
const notices = []
for (const [place, { dev, optional, peer, version }] of Object.entries(lock.packages)) {
  const folder = join(ROOT, place)
  if (place === '' || dev || optional || (peer && !existsSync(folder))) continue
  const { name, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  if (!ALLOWED.has(license)) throw new Error(`${name} ${version} has the licence ${license}`)
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry))
  notices.push(`${name} ${version} (${license})\n\n${file ? readFileSync(join(folder, file), 'utf8').trim() : ''}\n`)
}
writeFileSync(join(DIST, 'assets', 'licences.txt'), notices.sort().join(`\n${'-'.repeat(80)}\n\n`))

for (const file of filesBelow(DIST)) {
  writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }))
  rmSync(file)
}
writeFileSync(join(DIST, '.sources'), `${sourcesHash()}\n`)
