/** Every page in light and dark and on narrow and wide screens: axe, width, screenshots, hostile texts. */
import type { Page } from '@playwright/test'
import axe from 'axe-core'

import { expect, test } from './fixture'
import { HOSTILE } from './server'

/** A page, and an element that it has when it is complete. `SEQ` is the number of a commit. */
const PAGES: [string, string][] = [
  ['/ui/now', '.u-over'],
  ['/ui/commits', '.virtual .line'],
  ['/ui/commits?seq=SEQ', 'text=/^Samples: 1/'],
  ['/ui/events', 'text=courses'],
  ['/ui/events/shop', 'text=40 events match'],
  ['/ui/events/shop?position=7', 'text=What else happened to'],
  ['/ui/events/hostile?position=1', 'text=What else happened to'],
  ['/ui/events/shop?tab=groups', 'text=mailers'],
  ['/ui/events/shop?tab=projections', 'text=Declaration'],
  ['/ui/events/shop?tab=append', 'text=Append an event'],
  ['/ui/documents', 'text=orders'],
  ['/ui/documents/default/orders', '.grid-row'],
  ['/ui/documents/default/orders?as=tree', '.tree'],
  ['/ui/documents/default/hostile', '.grid-row'],
  ['/ui/documents/default/orders?tab=pipeline', '.cm-content'],
  ['/ui/documents/default/orders?tab=indexes', 'text=_id_'],
  ['/ui/documents/default/orders?tab=shape', 'text=100 %'],
  ['/ui/documents/default/orders?tab=changes', 'text=No change yet'],
  ['/ui/sql', 'text=visits'],
  ['/ui/sql?sql=SELECT+*+FROM+stock', '.grid-row'],
  ['/ui/sql?sql=EXPLAIN+ANALYZE+SELECT+*+FROM+visits+WHERE+visitor+%3D+7', 'text=The slowest step is'],
  ['/ui/metrics?q=last_over_time(ropes_sold[1h])&as=table', 'text=8 results in'],
  ['/ui/metrics?q=rate(ropewalk_commits_total[1m])&range=5m', '.u-over'],
  ['/ui/metrics?tab=cardinality', 'text=/series/'],
  ['/ui/metrics?tab=rules', 'text=ShopIsOpen'],
  ['/ui/metrics?tab=targets', 'text=127.0.0.1:9'],
  ['/ui/keep', 'text=Rights'],
  ['/ui/keep/users', 'text=Password'],
  ['/ui/keep/tokens', 'text=Create'],
  ['/ui/keep/backups', 'text=Make a backup'],
  ['/ui/keep/settings', 'text=postgres.listen'],
]

const open = async (page: Page, url: string) => {
  await page.goto(url)
  await expect(page.locator('main h1')).toBeVisible()
  if (url.includes('sql=')) await page.getByRole('button', { name: /^Run/ }).click()
}

const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']

/** Violations as `rule: elements`. The page has a single frame, so axe runs in it without a page for the results of several. */
const violations = async (page: Page): Promise<string[]> => {
  expect(page.frames()).toHaveLength(1)
  await page.evaluate(axe.source)
  return page.evaluate(async (values) => {
    // At the bottom of a narrow screen the navigation covers what can be scrolled.
    const nav = document.querySelector<HTMLElement>('.nav')
    nav?.style.setProperty('position', 'static')
    const found = await (window as unknown as { axe: typeof axe }).axe.run({ runOnly: { type: 'tag', values }, resultTypes: ['violations'] })
    nav?.style.removeProperty('position')
    return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`)
  }, RULES)
}

const SCREENS = [
  [1280, 860],
  [360, 740],
  [3840, 1000],
] as const
/** Contrast depends on the colours, and the structure on the width: these have each. `AXE=all` checks every pair. */
const CHECKED = ['1280 dark', '360 light']
const ALL = process.env['AXE'] === 'all'

for (const [path, complete] of PAGES) {
  test(`${path} violates no rule of axe and is not wider than the screen`, async ({ page, server }, info) => {
    await open(page, server.url + path.replace('SEQ', String(server.seq)))
    await expect(page.locator(complete).first()).toBeVisible()
    await expect(page.getByRole('status').filter({ hasText: '…' })).toHaveCount(0)
    const found: string[] = []
    for (const [width, height] of SCREENS) {
      await page.setViewportSize({ width, height })
      for (const scheme of ['light', 'dark'] as const) {
        const screen = `${width} ${scheme}`
        await page.emulateMedia({ colorScheme: scheme })
        // A chart follows the width of its place.
        await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth), `pixels at ${screen}`).toBeLessThanOrEqual(width)
        if (!ALL && !CHECKED.includes(screen)) continue
        await page.screenshot({ path: info.outputPath(`${screen.replace(' ', '-')}.png`) })
        found.push(...(await violations(page)).map((text) => `${screen}: ${text}`))
      }
    }
    expect(found).toEqual([])
  })
}

test('hostile names and payloads are text everywhere', async ({ page, server }) => {
  const [script = '', image = ''] = HOSTILE
  const { recorded_at } = (await (await server.request('GET', `/v1/commits/${server.seq}`)).json()) as { recorded_at: string }
  const places: [string, string[]][] = [
    ['/ui/events/hostile', [script, image]],
    ['/ui/events/hostile?position=1', [script]],
    ['/ui/events/hostile?position=6', ['show all 524,288 characters']],
    [`/ui/commits?find=hostile&since=${recorded_at}`, [script, image]],
    ['/ui/documents', ['<b>bold</b>']],
    [`/ui/documents/default/${encodeURIComponent('<b>bold</b>')}`, [image]],
    ['/ui/documents/default/hostile?as=tree', [script, image]],
    ['/ui/documents/default/hostile?tab=shape', [script.replaceAll('.', '')]],
    ['/ui/sql', [script]],
    [`/ui/sql?sql=${encodeURIComponent(`SELECT * FROM "${script}"`)}`, [image]],
    [`/ui/sql?sql=${encodeURIComponent(`SELECT '${script}' AS "${image.replaceAll('"', '')}" FROM nothing`)}`, ['nothing']],
    ['/ui/metrics?q=last_over_time(hostile[1h])&as=table', [script, image.replaceAll('"', '\\"')]],
    [`/ui/events/${encodeURIComponent(script)}`, [script]],
    [`/ui/${encodeURIComponent(script)}`, [script]],
  ]
  for (const [path, texts] of places) {
    await open(page, server.url + path)
    for (const text of texts) await expect(page.getByText(text).first(), path).toBeAttached()
  }
})
