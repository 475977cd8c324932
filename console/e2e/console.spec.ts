/** Behaviour of the console in a browser, against a real server. */
import { editor, expect, test } from './fixture'
import { Server } from './server'

const server = new Server()

test.beforeAll(async () => {
  await server.start()
  await server.fill()
})
test.afterAll(() => server.remove())

test('the root leads to Now, which counts commits', async ({ page }) => {
  await page.goto(server.url)
  await expect(page).toHaveURL(/\/ui\/$/)
  await expect(page.getByText('healthy', { exact: true })).toBeVisible()
  await expect(page.getByRole('link', { name: /^Commits .* in all/ })).toBeVisible()
})

test('keys lead from page to page', async ({ page }) => {
  await page.goto(`${server.url}/ui/`)
  await expect(page.locator('main h1')).toBeVisible()
  await page.keyboard.press('?')
  await expect(page.getByRole('dialog')).toContainText('go to Events')
  await page.keyboard.press('Escape')
  await page.keyboard.press('g')
  await page.keyboard.press('e')
  await expect(page).toHaveURL(/\/ui\/events$/)
  await expect(page.getByLabel('Find a store')).toBeVisible()
  await page.keyboard.press('/')
  await expect(page.getByLabel('Find a store')).toBeFocused()
})

test('a commit shows its row before and after', async ({ page }) => {
  const seq = await server.order('o1', 77)
  await page.goto(`${server.url}/ui/commits?seq=${seq}`)
  const row = page.locator('tr', { hasText: /^n/ })
  await expect(row).toContainText('1')
  await expect(row).toContainText('77')
})

test('commits arrive live', async ({ page }) => {
  await page.goto(`${server.url}/ui/commits`)
  await expect(page.getByText(/^live/)).toBeVisible()
  const seq = await server.order('o2', 5)
  await expect(page.getByRole('button', { name: new RegExp(`^${seq.toLocaleString('en')} `) })).toBeVisible()
})

test('a statement is run, plotted, explained, and rejected in the words of the server', async ({ page }) => {
  await page.goto(`${server.url}/ui/sql`)
  await editor(page, 'SQL').click()
  await page.keyboard.type('SELECT n, n * 2 AS double FROM generate_series(1, 100000) AS t (n)')
  await page.keyboard.press('Control+Enter')
  await expect(page.getByText('100,000 rows')).toBeVisible()
  await page.getByRole('table').press('End')
  await expect(page.getByRole('cell', { name: '200000' })).toBeVisible()
  await page.getByRole('button', { name: 'Plot' }).click()
  await expect(page.locator('.u-over')).toBeVisible()
  await page.getByRole('button', { name: 'Explain analyze' }).click()
  await expect(page.getByRole('region', { name: 'Plan' })).toBeVisible()
  await page.goto(`${server.url}/ui/sql?sql=SELECT+nothing+FROM+stock`)
  await page.getByRole('button', { name: /^Run/ }).click()
  await expect(page.getByRole('alert')).toContainText('42703')
})

test('keys that are pressed fast all reach the editor, and completion opens', async ({ page }) => {
  await page.goto(`${server.url}/ui/sql`)
  await editor(page, 'SQL').click()
  const text = 'SELECT sku, n FROM stock WHERE n > 1 AND sku LIKE 1 -- 0123456789 abcdefghijklmnopqrstuvwxyz'
  await page.keyboard.type(text)
  await expect(editor(page, 'SQL')).toContainText(text)
  await page.keyboard.press('Control+A')
  await page.keyboard.type('SELECT * FROM sto')
  await expect(page.getByRole('option', { name: /stock/ })).toBeVisible()
})

test('a user who writes before the editor is loaded continues in it', async ({ page }) => {
  let load = (): void => undefined
  const loading = new Promise<void>((resolve) => (load = resolve))
  await page.route(/assets\/editor-/, async (route) => {
    await loading
    await route.fallback()
  })
  await page.goto(`${server.url}/ui/sql`)
  await editor(page, 'SQL').click()
  await page.keyboard.type('SELECT *  stock')
  for (let count = 0; count < ' stock'.length; count += 1) await page.keyboard.press('ArrowLeft')
  load()
  await expect(page.locator('.cm-content')).toBeVisible()
  await page.keyboard.type('FROM')
  await expect(editor(page, 'SQL')).toHaveText('SELECT * FROM stock')
})

test('a statement is cancelled on the server', async ({ page }) => {
  await page.goto(`${server.url}/ui/sql?sql=${encodeURIComponent('SELECT pg_sleep(50)')}`)
  await page.getByRole('button', { name: /^Run/ }).click()
  await expect.poll(() => server.running('sql')).toBe(1)
  await page.getByRole('button', { name: 'Cancel' }).click()
  await expect(page.getByRole('alert')).toContainText('canceling statement due to user request')
})

test('commits are listed from a time on', async ({ page }) => {
  const first = await server.order('o9', 1)
  const { recorded_at } = (await (await server.request('GET', `/v1/commits/${first}`)).json()) as { recorded_at: string }
  await server.order('o9', 2)
  await page.goto(`${server.url}/ui/commits?since=${encodeURIComponent(recorded_at)}`)
  await expect(page.getByText(/commits since/)).toBeVisible()
  await expect(page.locator('.virtual .line').last()).toContainText(first.toLocaleString('en'))
  await page.getByRole('button', { name: 'Newest' }).click()
  await expect(page.getByText('live', { exact: true })).toBeVisible()
})

test('a million rows are scrolled', async ({ page }) => {
  await page.goto(`${server.url}/ui/sql?sql=${encodeURIComponent('SELECT n FROM generate_series(1, 1000000) AS t (n)')}`)
  await page.getByRole('button', { name: /^Run/ }).click()
  await expect(page.getByText('1,000,000 rows')).toBeVisible()
  await page.getByRole('table').press('End')
  await expect(page.getByRole('cell', { name: '1000000' })).toBeVisible()
  expect(await page.locator('.grid-row').count()).toBeLessThan(100)
})

test('a document that another client changed is not overwritten', async ({ page }) => {
  await page.goto(`${server.url}/ui/documents/default/orders?filter=${encodeURIComponent('{"_id": "o3"}')}`)
  await page.getByRole('cell', { name: 'o3' }).click()
  await editor(page, 'Document').click()
  await page.keyboard.press('Control+End')
  await page.keyboard.press('ArrowLeft')
  await page.keyboard.type(', "note": "mine"')
  await server.order('o3', 9)
  await page.getByRole('button', { name: 'Store' }).click()
  await expect(page.getByText('Another client has changed the document')).toBeVisible()
})

test('a metric is drawn and listed', async ({ page }) => {
  await page.goto(`${server.url}/ui/metrics?q=ropewalk_commits_total&range=5m`)
  await expect(page.locator('.u-over')).toBeVisible()
  await page.getByRole('button', { name: 'Table' }).click()
  await expect(page.getByRole('region', { name: 'Values' })).toContainText('ropewalk_commits_total')
})

test('a server that goes away and comes back is noticed', async ({ page }) => {
  await page.goto(`${server.url}/ui/now`)
  await expect(page.getByText('healthy', { exact: true })).toBeVisible()
  await server.stop()
  await expect(page.getByText('no response, trying again')).toBeVisible()
  await server.start()
  await expect(page.getByText('no response, trying again')).toBeHidden()
})
