import { defineConfig } from '@playwright/test'

/** Debian's Chromium: browsers of npm packages are downloads that may not be available. */
const executablePath = process.env['CHROMIUM'] ?? '/usr/bin/chromium'

export default defineConfig({
  testDir: 'e2e',
  outputDir: 'test-results',
  workers: 1,
  timeout: 60_000,
  retries: 0,
  reporter: 'line',
  use: {
    launchOptions: { executablePath, args: ['--no-sandbox'] },
    viewport: { width: 1280, height: 860 },
    locale: 'en-US',
    trace: 'retain-on-failure',
  },
})
