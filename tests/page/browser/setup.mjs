// Opens the first address of `relaybook page` once, as its user would, and keeps the cookie for all tests.
import { mkdir } from 'node:fs/promises';
import { chromium } from '@playwright/test';

import { place, results } from './place.mjs';

export default async function setup(config) {
  await mkdir(results, { recursive: true });
  const browser = await chromium.launch(config.projects[0].use.launchOptions);
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(place.own);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await context.storageState({ path: `${results}/own.json` });
  await browser.close();
}
