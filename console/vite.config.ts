import { defineConfig } from 'vitest/config'

export default defineConfig({
  base: '/ui/',
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 600,
    rolldownOptions: {
      output: {
        codeSplitting: {
          // One chunk for what every editor shares, so that SQL, PromQL and JSON do not load it again.
          groups: [
            {
              name: 'editor',
              test: /node_modules\/(@codemirror\/(state|view|commands|language|autocomplete|lint)|@lezer\/(common|highlight|lr)|style-mod|w3c-keyname|crelt|@marijn)/,
            },
          ],
        },
      },
    },
  },
  server: {
    // `npm run dev` shows the sources against a running server.
    proxy: Object.fromEntries(
      ['/v1', '/api', '/metrics', '/health', '/ready', '/openapi.json'].map((path) => [
        path,
        process.env['ROPEWALK_URL'] ?? 'http://127.0.0.1:4780',
      ]),
    ),
  },
  test: {
    environment: 'happy-dom',
    include: ['test/**/*.test.{ts,tsx}'],
    testTimeout: 60_000,
  },
})
