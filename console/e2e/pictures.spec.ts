/** The screenshots of the project's README, made only with `PICTURES`, the folder for them: of a server that works for some minutes. */
import { statSync } from 'node:fs'
import { join } from 'node:path'

import { expect, test } from './fixture'
import { Server } from './server'

const FOLDER = process.env['PICTURES']
const BYTES_MAX = 120_000
/** The charts show as long; `MINUTES` makes it shorter. */
const MINUTES = Number(process.env['MINUTES'] ?? 6)

const server = new Server()

test.skip(FOLDER === undefined, 'PICTURES names no folder')
test.beforeAll(async () => {
  await server.start()
  await server.fill()
})
test.afterAll(() => server.remove())

/** Orders of some clients, more and fewer in the course of time. */
const work = async (until: number): Promise<void> => {
  for (let n = 100; Date.now() < until; n += 1) {
    await server.order(`o${n % 400}`, n % 90, ['ann', 'ben', 'cleo', 'dan'][n % 4])
    const pause = 12 + 10 * Math.sin(Date.now() / 23_000) + 6 * Math.sin(Date.now() / 5_000)
    await new Promise((resolve) => setTimeout(resolve, pause))
  }
}

test('pictures of the README', async ({ page }) => {
  test.setTimeout((MINUTES + 3) * 60_000)
  const until = Date.now() + MINUTES * 60_000
  const clients = [work(until), work(until), work(until)]
  await page.setViewportSize({ width: 1200, height: 760 })
  const save = async (name: string) => {
    const path = join(FOLDER ?? '', `${name}.png`)
    await page.screenshot({ path })
    expect(statSync(path).size, path).toBeLessThanOrEqual(BYTES_MAX)
  }
  await page.goto(`${server.url}/ui/now`)
  await page.waitForTimeout(Math.max(3_000, until - Date.now() - 15_000))
  await page.mouse.move(0, 0)
  await save('console-now')
  await Promise.all(clients)
  const seq = await server.order('o7', 77)
  await page.goto(`${server.url}/ui/commits?seq=${seq}`)
  await expect(page.getByRole('heading', { name: /^Samples/ })).toBeVisible()
  await page.emulateMedia({ colorScheme: 'dark' })
  await save('console-commit')
})
