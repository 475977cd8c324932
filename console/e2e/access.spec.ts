/** Sign-in, sessions and rights in a browser, against a real server. */
import type { Page } from '@playwright/test'

import { expect, test } from './fixture'
import { Server } from './server'

const server = new Server()

test.beforeAll(async () => {
  await server.start()
  await server.append('shop', [{ type: 'OrderPlaced', tags: ['order:o1'] }])
  await server.createUser('root', { '*': ['admin'] })
  const headers = { Authorization: `Basic ${btoa('root:correct horse')}` }
  await server.request('PUT', '/v1/users/reader', { password: 'correct horse', roles: { shop: ['read'] } }, headers)
})
test.afterAll(() => server.remove())

const signIn = async (page: Page, user: string, password = 'correct horse') => {
  await page.goto(`${server.url}/ui/events/shop`)
  await page.getByLabel('User', { exact: true }).fill(user)
  await page.getByLabel('Password').fill(password)
  await page.getByRole('button', { name: 'Sign in' }).click()
}
/** Signs in and waits until the page has a session. */
const enter = async (page: Page, user: string) => {
  await signIn(page, user)
  await expect(page.getByRole('button', { name: 'Sign out' })).toBeVisible()
}

test('a wrong password is rejected without the dialog of the browser', async ({ page }) => {
  await signIn(page, 'root', 'wrong')
  await expect(page.getByRole('alert')).toContainText('wrong password')
})

test('a session is in a cookie that scripts cannot read, and survives a reload', async ({ page, context }) => {
  await enter(page, 'root')
  const cookie = (await context.cookies()).find(({ name }) => name === 'ropewalk_session')
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict' })
  expect(await page.evaluate(() => document.cookie)).toBe('')
  await page.reload()
  await expect(page.locator('main h1')).toBeVisible()
  await page.getByRole('button', { name: 'Sign out' }).click()
  await expect(page.getByRole('heading', { name: 'Sign in to Ropewalk' })).toBeVisible()
})

test('a reader sees no button of a right that it lacks', async ({ page }) => {
  await enter(page, 'reader')
  await expect(page.getByText('Delete the store')).toHaveCount(0)
  await expect(page.getByRole('link', { name: 'Append' })).toHaveCount(0)
  await page.goto(`${server.url}/ui/keep`)
  await expect(page.getByRole('link', { name: 'Users' })).toHaveCount(0)
  await page.goto(`${server.url}/ui/commits`)
  await expect(page.getByText('Administrators only')).toBeVisible()
})

test('a read-only token is created and signs in', async ({ page, context }) => {
  await enter(page, 'root')
  await page.goto(`${server.url}/ui/keep/tokens`)
  await page.getByLabel(/Name/).fill('ci')
  await page.getByRole('button', { name: 'Create' }).click()
  const token = await page.getByRole('dialog').locator('pre').textContent()
  expect(token).toMatch(/^rw_/)
  await context.clearCookies()
  await page.goto(`${server.url}/ui/events`)
  await page.getByRole('button', { name: 'API token' }).click()
  await page.getByLabel('Token').fill(token ?? '')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await expect(page.getByText('shop')).toBeVisible()
  await expect(page.getByText('Create a store')).toHaveCount(0)
})
