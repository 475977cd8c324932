import { existsSync } from 'node:fs'

import { defineConfig } from '@playwright/test'

/** Debian's Chromium without a user interface, which takes half the processor time of the one with it. */
const SHELL = '/usr/bin/chromium-headless-shell'
/** Browsers of npm packages are downloads that may not be available. */
const executablePath = process.env['CHROMIUM'] ?? (existsSync(SHELL) ? SHELL : '/usr/bin/chromium')

export default defineConfig({
  testDir: 'e2e',
  outputDir: 'test-results',
  fullyParallel: true,
  workers: Number(process.env['WORKERS'] ?? 2),
  // Both only end a hang: other programs may use the processors.
  timeout: 120_000,
  expect: { timeout: 20_000 },
  // A test that passes in the second attempt only is listed as flaky.
  retries: process.env['CI'] ? 1 : 0,
  reporter: 'line',
  use: {
    launchOptions: { executablePath, args: ['--no-sandbox'] },
    viewport: { width: 1280, height: 860 },
    locale: 'en-US',
    // A trace takes a fifth of the time.
    trace: process.env['TRACE'] === undefined ? 'off' : 'retain-on-failure',
  },
})
