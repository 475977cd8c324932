/** Ten tasks of a newcomer, each from the first page on, by what the screen offers. */
import { readFileSync } from 'node:fs'

import type { Download, Page } from '@playwright/test'
import { parquetReadObjects } from 'hyparquet'

import { editor, expect, test } from './fixture'
import { Server } from './server'

const server = new Server()

test.beforeAll(async () => {
  await server.start()
  await server.fill()
})
test.afterAll(() => server.remove())
test.beforeEach(({ page }) => page.goto(`${server.url}/ui/`))

/** Opens a page by its entry in the navigation. */
const visit = (page: Page, name: string) => page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name, exact: true }).click()

const run = async (page: Page, sql: string) => {
  await editor(page, 'SQL').click()
  await page.keyboard.press('Control+A')
  await page.keyboard.type(sql)
}

const bytesOf = async (download: Download): Promise<Buffer> => readFileSync(await download.path())

test('find who enrolled on course c1', async ({ page }) => {
  await visit(page, 'Events')
  await page.getByRole('link', { name: /courses/ }).click()
  await page.getByRole('button', { name: /^StudentEnrolled/ }).click()
  await page.getByRole('button', { name: /^course:c1/ }).click()
  await expect(page.getByText('4 events match')).toBeVisible()
  const list = page.getByRole('group', { name: 'Events, newest first' })
  for (const student of ['ann', 'ben', 'cleo', 'dan']) await expect(list).toContainText(`student:${student}`)
})

test('see why a query is slow, add an index, and see the plan change', async ({ page }) => {
  await visit(page, 'SQL')
  await run(page, 'SELECT * FROM visits WHERE visitor = 7')
  await page.getByRole('button', { name: 'Explain analyze' }).click()
  const plan = page.getByRole('region', { name: 'Plan' })
  await expect(plan).toContainText('The slowest step is')
  await expect(plan).toContainText('reads a whole table')
  await plan.getByRole('button', { name: 'Put it into the editor' }).click()
  await expect(editor(page, 'SQL')).toContainText('CREATE INDEX ON visits (visitor)')
  await page.getByRole('button', { name: /^Run/ }).click()
  await expect(page.getByRole('heading', { name: 'CREATE INDEX' })).toBeVisible()
  await page.getByRole('button', { name: /EXPLAIN ANALYZE SELECT/ }).click()
  await page.getByRole('button', { name: /^Run/ }).click()
  await expect(plan).toContainText(/by index/)
  await expect(plan).not.toContainText('reads a whole table')
})

test('add an index of documents and see the plan change', async ({ page }) => {
  await visit(page, 'Documents')
  await page.getByRole('link', { name: 'orders', exact: true }).click()
  await editor(page, 'Filter').click()
  await page.keyboard.type('{"n": 2}')
  await page.getByRole('button', { name: 'Explain' }).click()
  await expect(page.getByText('COLLSCAN').first()).toBeVisible()
  await page.getByRole('button', { name: /^Find/ }).click()
  await expect(page.getByText('1 document', { exact: true })).toBeVisible()
  await page.getByRole('link', { name: 'Indexes' }).click()
  await page.getByLabel(/Fields/).fill('n')
  await page.getByRole('button', { name: 'Create' }).click()
  await expect(page.getByRole('cell', { name: 'n_1' })).toBeVisible()
  await page.goBack()
  await page.getByRole('button', { name: 'Explain' }).click()
  await expect(page.getByText('IXSCAN').first()).toBeVisible()
})

test('replay a parked event', async ({ page }) => {
  await server.park('mailers', 2, 'no <b>address</b>')
  await page.reload()
  await page.getByRole('region', { name: 'Consumers' }).getByRole('link', { name: 'mailers' }).click()
  await page.getByRole('button', { name: 'Look at 2 parked events' }).click()
  await page.getByText('no <b>address</b>').first().click()
  await page.getByRole('button', { name: 'Replay', exact: true }).first().click()
  await expect(page.getByText('1 parked', { exact: true })).toBeVisible()
  await page.getByRole('button', { name: 'Replay all' }).click()
  await expect(page.getByText('0 parked', { exact: true })).toBeVisible()
})

test('plot the 99th percentile of commits', async ({ page }) => {
  await visit(page, 'Metrics')
  await page.getByRole('button', { name: '99 % of commits take at most' }).click()
  await page.getByRole('button', { name: '5m', exact: true }).click()
  await server.order('plotted', 1)
  await expect(page.locator('.u-over')).toBeVisible()
  await expect(page.getByText('1 result in')).toBeVisible()
})

test('export a table as CSV, JSON, NDJSON and Parquet', async ({ page }) => {
  await visit(page, 'SQL')
  await page.getByRole('group').filter({ hasText: 'stock' }).getByText('stock', { exact: true }).click()
  await page.getByRole('button', { name: 'Show rows' }).click()
  await expect(page.getByText(/^\d+ rows, 2 columns$/)).toBeVisible()
  const save = async (name: string) => {
    const download = page.waitForEvent('download')
    await page.getByRole('button', { name, exact: true }).click()
    return bytesOf(await download)
  }
  expect((await save('CSV')).toString()).toContain('sku,n\r\no1,1\r\n')
  expect(JSON.parse((await save('JSON')).toString())).toContainEqual({ sku: 'o2', n: 2 })
  expect((await save('NDJSON')).toString().trim().split('\n').map((line) => JSON.parse(line) as unknown)).toContainEqual({ sku: 'o3', n: 3 })
  const { buffer, byteOffset, byteLength } = await save('Parquet')
  expect(await parquetReadObjects({ file: buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer })).toContainEqual({ sku: 'o4', n: 4 })
})

test('make a backup', async ({ page }) => {
  await visit(page, 'Keep')
  await page.getByRole('link', { name: 'Backups' }).click()
  await page.getByLabel(/Name/).fill('nightly')
  await page.getByRole('button', { name: 'Make a backup' }).click()
  await expect(page.getByText('Last commit')).toBeVisible()
  await expect(page.getByText('ropewalk verify BACKUPS/nightly')).toBeVisible()
  await page.reload()
  await expect(page.getByRole('listitem').filter({ hasText: 'nightly' })).toBeVisible()
})

test('see what one commit did in all models', async ({ page }) => {
  await server.order('o1', 77)
  await visit(page, 'Commits')
  await page.getByLabel('Find in stores').fill('order:o1')
  await page.locator('.virtual .line').first().click()
  for (const part of ['Events', 'Documents', 'Rows', 'Samples']) await expect(page.getByRole('heading', { name: new RegExp(`^${part}: 1`) })).toBeVisible()
  const row = page.getByRole('region', { name: 'Columns of stock' }).getByRole('row').filter({ hasText: /^n/ })
  await expect(row).toContainText('1')
  await expect(row.getByText('77')).toBeVisible()
})

test('follow a collection live', async ({ page }) => {
  await visit(page, 'Documents')
  await page.getByRole('link', { name: 'orders', exact: true }).click()
  await page.getByRole('link', { name: 'Live changes' }).click()
  await expect(page.getByText('live', { exact: true })).toBeVisible()
  await expect(page.getByText('No change yet')).toBeVisible()
  await server.order('o2', 5)
  await expect(page.getByRole('heading', { name: /^update "o2"/ })).toBeVisible()
})

test('create a read-only token', async ({ page }) => {
  await server.createUser('root', { '*': ['admin'] })
  await page.reload()
  await page.getByLabel('User', { exact: true }).fill('root')
  await page.getByLabel('Password').fill('correct horse')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await visit(page, 'Keep')
  await page.getByRole('link', { name: 'Tokens' }).click()
  await page.getByLabel(/Name/).fill('ci')
  await page.getByRole('button', { name: 'Create' }).click()
  const token = (await page.getByRole('dialog').locator('pre').textContent()) ?? ''
  expect(token).toMatch(/^rw_/)
  const headers = { Authorization: `Bearer ${token}` }
  expect((await fetch(`${server.url}/v1/stores`, { headers })).status).toBe(200)
  expect((await fetch(`${server.url}/v1/stores/made`, { method: 'PUT', headers })).status).toBe(403)
})
