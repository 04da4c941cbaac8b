// Chromium is that of the system, because a browser cannot be downloaded everywhere. The tests share one cluster, so they run one after the
// other: first those that take screenshots, before anything is changed.
import { defineConfig } from '@playwright/test';

export default defineConfig({
  testDir: '.',
  outputDir: '../../../target/page/results',
  globalSetup: './setup.mjs',
  workers: 1,
  fullyParallel: false,
  retries: 0,
  forbidOnly: true,
  // Only a failing test waits for so long.
  timeout: 240_000,
  expect: { timeout: 30_000 },
  reporter: [['list']],
  use: {
    viewport: { width: 1280, height: 800 },
    locale: 'en-GB',
    timezoneId: 'Europe/Berlin',
    launchOptions: {
      executablePath: process.env.RELAYBOOK_CHROMIUM,
      // The tests run as root in containers, where the sandbox of Chromium cannot be used.
      args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-background-networking', '--disable-component-update'],
    },
  },
});
