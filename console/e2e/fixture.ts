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

/** Fails for a request to another host, an error of a script, or a violation of the policy. */
const watch = (page: Page): string[] => {
  const problems: string[] = []
  let host: string | undefined
  page.on('request', (request) => {
    if (/^(data|blob):/.test(request.url())) return
    const { host: asked } = new URL(request.url())
    host ??= asked
    if (asked !== host) problems.push(`request to ${request.url()}`)
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

export const test = base.extend<object, { server: Server }>({
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
  context: async ({ context }, use) => {
    if (DIST !== undefined) await serveDist(context, DIST)
    await use(context)
  },
  page: async ({ page }, use) => {
    const problems = watch(page)
    await use(page)
    base.expect(problems).toEqual([])
    if (!page.isClosed()) base.expect(await page.evaluate(() => 'hacked' in window)).toBe(false)
  },
})

/** The text area of an editor, which is in a shadow tree. */
export const editor = (page: Page, label: string) => page.getByRole('textbox', { name: label, exact: true })
