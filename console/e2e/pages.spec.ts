/** Every page in light and dark and on narrow and wide screens: axe, width, screenshots, hostile texts. */
import { AxeBuilder } from '@axe-core/playwright'
import type { Page } from '@playwright/test'

import { expect, test } from './fixture'
import { HOSTILE, Server } from './server'

const server = new Server()

test.beforeAll(async () => {
  await server.start()
  await server.fill()
  await server.park('mailers', 2, 'no <b>address</b>')
})
test.afterAll(() => server.remove())

const PAGES = [
  '/ui/now',
  '/ui/commits',
  '/ui/commits?seq=20',
  '/ui/events',
  '/ui/events/shop',
  '/ui/events/shop?position=7',
  '/ui/events/hostile?position=1',
  '/ui/events/shop?tab=groups',
  '/ui/events/shop?tab=projections',
  '/ui/events/shop?tab=append',
  '/ui/documents',
  '/ui/documents/default/orders',
  '/ui/documents/default/orders?as=tree',
  '/ui/documents/default/hostile',
  '/ui/documents/default/orders?tab=pipeline',
  '/ui/documents/default/orders?tab=indexes',
  '/ui/documents/default/orders?tab=shape',
  '/ui/documents/default/orders?tab=changes',
  '/ui/sql',
  '/ui/sql?sql=SELECT+*+FROM+stock',
  '/ui/sql?sql=EXPLAIN+ANALYZE+SELECT+*+FROM+visits+WHERE+visitor+%3D+7',
  '/ui/metrics?q=ropes_sold&as=table',
  '/ui/metrics?q=rate(ropewalk_commits_total[1m])&range=5m',
  '/ui/metrics?tab=cardinality',
  '/ui/metrics?tab=rules',
  '/ui/metrics?tab=targets',
  '/ui/keep',
  '/ui/keep/users',
  '/ui/keep/tokens',
  '/ui/keep/backups',
  '/ui/keep/settings',
]

const open = async (page: Page, path: string) => {
  await page.goto(server.url + path)
  await expect(page.locator('main h1')).toBeVisible()
  if (path.includes('sql=')) await page.getByRole('button', { name: /^Run/ }).click()
  await expect(page.getByRole('status').filter({ hasText: '…' })).toHaveCount(0)
  await page.waitForTimeout(300)
}

/** Violations as `rule: elements`. */
const violations = async (page: Page): Promise<string[]> => {
  const found = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']).analyze()
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(' ')}`)
}

const SCREENS = [
  [1280, 860],
  [360, 740],
  [3840, 1000],
] as const
/** Contrast depends on the colours, and the structure on the width: these have each. `AXE=all` checks every pair. */
const CHECKED = ['1280 dark', '360 light']
const ALL = process.env['AXE'] === 'all'

for (const path of PAGES) {
  test(`${path} violates no rule of axe and is not wider than the screen`, async ({ page }, info) => {
    test.setTimeout(120_000)
    await open(page, path)
    const found: string[] = []
    for (const [width, height] of SCREENS) {
      await page.setViewportSize({ width, height })
      for (const scheme of ['light', 'dark'] as const) {
        const screen = `${width} ${scheme}`
        await page.emulateMedia({ colorScheme: scheme })
        if (ALL || width < 3840) await page.screenshot({ path: info.outputPath(`${screen.replace(' ', '-')}.png`) })
        const across = await page.evaluate(() => document.documentElement.scrollWidth)
        if (across > width) found.push(`${screen}: ${across} pixels wide`)
        if (ALL || CHECKED.includes(screen)) found.push(...(await violations(page)).map((text) => `${screen}: ${text}`))
      }
    }
    expect(found).toEqual([])
  })
}

test('hostile names and payloads are text everywhere', async ({ page }) => {
  const [script = '', image = ''] = HOSTILE
  const places: [string, string[]][] = [
    ['/ui/events/hostile', [script, image]],
    ['/ui/events/hostile?position=1', [script]],
    ['/ui/events/hostile?position=6', ['show all 524,288 characters']],
    ['/ui/commits?find=hostile', [script, image]],
    ['/ui/documents', ['<b>bold</b>']],
    [`/ui/documents/default/${encodeURIComponent('<b>bold</b>')}`, [image]],
    ['/ui/documents/default/hostile?as=tree', [script, image]],
    ['/ui/documents/default/hostile?tab=shape', [script.replaceAll('.', '')]],
    ['/ui/sql', [script]],
    [`/ui/sql?sql=${encodeURIComponent(`SELECT * FROM "${script}"`)}`, [image]],
    [`/ui/sql?sql=${encodeURIComponent(`SELECT '${script}' AS "${image.replaceAll('"', '')}" FROM nothing`)}`, ['nothing']],
    ['/ui/metrics?q=hostile&as=table', [script, image.replaceAll('"', '\\"')]],
    [`/ui/events/${encodeURIComponent(script)}`, [script]],
    [`/ui/${encodeURIComponent(script)}`, [script]],
  ]
  for (const [path, texts] of places) {
    await open(page, path)
    for (const text of texts) await expect(page.getByText(text).first(), path).toBeAttached()
  }
})
