// Hash of everything that decides the built files. `dist/.sources` has that of the committed ones.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'

export const ROOT = join(import.meta.dirname, '..')
export const DIST = join(ROOT, 'dist')

const INPUTS = ['index.html', 'package-lock.json', 'tsconfig.json', 'vite.config.ts', 'scripts/pack.mjs', 'src']

export const filesBelow = (folder) =>
  readdirSync(folder)
    .sort()
    .flatMap((name) => {
      const path = join(folder, name)
      return statSync(path).isDirectory() ? filesBelow(path) : [path]
    })

export const sourcesHash = () => {
  const hash = createHash('sha256')
  for (const input of INPUTS) {
    const path = join(ROOT, input)
    for (const file of statSync(path).isDirectory() ? filesBelow(path) : [path]) {
      hash.update(`${file.slice(ROOT.length)}\0`).update(readFileSync(file)).update('\0')
    }
  }
  return hash.digest('hex')
}
