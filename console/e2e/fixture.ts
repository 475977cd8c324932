/** What every test of a page has: its own browser context, and a check that no page does what it must not. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'

import { test as base } from '@playwright/test'
import type { BrowserContext, Page } from '@playwright/test'

import { Server } from './server'

export { expect } from '@playwright/test'

/** Built files that are served instead of those in the server: `CONSOLE_DIST=dist` needs no build of the server. */
const DIST = process.env['CONSOLE_DIST']

const TYPES: Record<string, string> = { html: 'text/html', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml', txt: 'text/plain' }

/** Serves the built files with the headers that the server gives its own. */
const serveDist = async (context: BrowserContext, dist: string): Promise<void> => {
  await context.route(/^http:\/\/[^/]+\/ui\//, async (route) => {
    const path = new URL(route.request().url()).pathname.slice('/ui/'.length)
    const file = path.startsWith('assets/') ? path : 'index.html'
    const compressed = join(dist, `${file}.gz`)
    if (!existsSync(compressed)) return route.continue()
    return route.fulfill({
      body: gunzipSync(readFileSync(compressed)),
      contentType: TYPES[file.split('.').at(-1) ?? ''] ?? '',
      headers: {
        'Content-Security-Policy':
          "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      },
    })
  })
}

/** Paths that the OpenAPI document leaves out: files, Prometheus' API and metrics. */
const OTHERS = /^(\/|\/ui\/.*|\/api\/v1\/.*|\/metrics)$/

/** The operations of the OpenAPI document, as expressions for `METHOD path`. */
const operationsOf = async (server: Server): Promise<RegExp[]> => {
  const { paths } = (await (await server.request('GET', '/openapi.json')).json()) as { paths: Record<string, Record<string, unknown>> }
  const pattern = (path: string) => path.replaceAll(/[.()$]/g, '\\$&').replaceAll(/\{\w+\}/g, '[^/]+')
  return Object.entries(paths).flatMap(([path, item]) => Object.keys(item).map((method) => new RegExp(`^${method} ${pattern(path)}$`, 'i')))
}

/** Fails for a request to another host or outside of the public API, an error of a script, or a violation of the policy. */
const watch = (page: Page, operations: RegExp[]): string[] => {
  const problems: string[] = []
  let host: string | undefined
  page.on('request', (request) => {
    if (/^(data|blob):/.test(request.url())) return
    const { host: asked, pathname } = new URL(request.url())
    host ??= asked
    if (asked !== host) problems.push(`request to ${request.url()}`)
    const operation = `${request.method()} ${pathname}`
    if (!OTHERS.test(pathname) && !operations.some((described) => described.test(operation))) problems.push(`not in the OpenAPI document: ${operation}`)
  })
  page.on('pageerror', (error) => problems.push(String(error)))
  page.on('console', (message) => {
    // Chromium's own editing adds styles when keys replace a selection, at no place of a script; they are blocked, and not needed.
    const { line, column } = message.location()
    const isEditing = line === 0 && column === 0 && message.text().startsWith('Applying inline style')
    if (/Content Security Policy/i.test(message.text()) && !isEditing) problems.push(message.text())
  })
  return problems
}

export const test = base.extend<object, { server: Server; operations: RegExp[] }>({
  /** A server with data, for the tests of a worker that write nothing. */
  server: [
    async ({}, use) => {
      const server = new Server()
      await server.start()
      await server.fill()
      await server.hour()
      await server.park('mailers', 2, 'no <b>address</b>')
      await use(server)
      await server.remove()
    },
    { scope: 'worker' },
  ],
  operations: [async ({ server }, use) => use(await operationsOf(server)), { scope: 'worker' }],
  context: async ({ context }, use) => {
    if (DIST !== undefined) await serveDist(context, DIST)
    await use(context)
  },
  page: async ({ page, operations }, use) => {
    const problems = watch(page, operations)
    await use(page)
    base.expect(problems).toEqual([])
    if (!page.isClosed()) base.expect(await page.evaluate(() => 'hacked' in window)).toBe(false)
  },
})

/** The text area of an editor, which is in a shadow tree. */
export const editor = (page: Page, label: string) => page.getByRole('textbox', { name: label, exact: true })
