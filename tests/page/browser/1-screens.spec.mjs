// Every screen: what it shows, that axe finds nothing, that it fits from 320 to 2560 pixels, and a screenshot in both colour schemes.
import AxeBuilder from '@axe-core/playwright';

import { delivery, expect, own, ownState, results, test } from './place.mjs';

test.use({ storageState: ownState });

/** Each screen: its name, its path, and a text that it must show. */
async function screens() {
  return [
    ['overview', '/', 'Needs attention'],
    ['overview-teams', '/?group=team', 'Group by'],
    ['pipeline', '/pipelines/shop/checkout', 'What happened, and who was notified'],
    ['delivery', `/deliveries/shop/${await delivery('shop', 'team-chat', '')}`, 'Before it in its lane'],
    ['notification', '/notifications/payments/records', 'check the template with'],
    ['receivers', '/receivers', 'http://chat.example.com'],
    ['pending', '/pending', 'Next attempt'],
    ['parked', '/parked', 'Resend the selected'],
    ['clusters', '/clusters', 'Offline'],
    ['search', '/search?q=2.4.0', 'Who was notified'],
  ];
}

for (const scheme of ['light', 'dark']) {
  test(`screenshots are taken, and axe finds nothing, ${scheme}`, async ({ browser }) => {
    test.setTimeout(180_000);
    const context = await browser.newContext({ storageState: ownState, colorScheme: scheme, viewport: { width: 1280, height: 800 }, timezoneId: 'Europe/Berlin', locale: 'en-GB' });
    const page = await context.newPage();
    for (const [name, path, text] of await screens()) {
      await page.goto(own + path);
      await expect(page.getByText(text).first(), name).toBeAttached();
      await page.screenshot({ path: `${results}/${name}-${scheme}.png`, fullPage: true });
      const { violations } = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']).analyze();
      const found = violations.map(({ id, nodes }) => `${name}: ${id}: ${nodes.map((node) => node.target.join(' ')).slice(0, 3).join(', ')}`);
      expect(found).toEqual([]);
    }
    await context.close();
  });
}

test('every screen fits from 320 to 2560 pixels', async ({ page }) => {
  test.setTimeout(180_000);
  for (const [name, path, text] of await screens()) {
    await page.goto(own + path);
    await expect(page.getByText(text).first(), name).toBeAttached();
    for (const width of [320, 480, 768, 1280, 2560]) {
      await page.setViewportSize({ width, height: 900 });
      const excess = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      expect(excess, `${name} at ${width}`).toBeLessThanOrEqual(0);
    }
    await page.setViewportSize({ width: 320, height: 900 });
    await page.screenshot({ path: `${results}/narrow-${name}.png` });
  }
});

test('the overview shows what is wrong first, and filters are in the address', async ({ page }) => {
  await page.goto(`${own}/`);
  const rows = page.locator('table.matrix tr.line');
  await expect(rows.first()).toContainText('Failed');
  await expect(page.getByRole('heading', { name: 'Notifications that need attention' })).toBeVisible();
  await expect(page.getByRole('alert')).toContainText('Clusters that do not answer: shop.us-1');
  await page.getByLabel('Namespace').fill('payments');
  await page.getByRole('button', { name: 'Show' }).click();
  await expect(page).toHaveURL(/namespace=payments/);
  await expect(rows).toHaveCount(2);
  await page.getByLabel('Name, application or revision').fill('invoices');
  await page.getByRole('button', { name: 'Show' }).click();
  await expect(rows).toHaveCount(1);
  await page.goBack();
  await expect(rows).toHaveCount(2);
  await page.goForward();
  await expect(rows).toHaveCount(1);
  await page.getByRole('link', { name: 'Remove the filters' }).click();
  await expect(rows.nth(2)).toBeVisible();
});

test('the header and the title name the cluster and the server', async ({ page }) => {
  for (const path of ['/', '/receivers', '/pipelines/shop/checkout', '/what']) {
    await page.goto(own + path);
    await expect(page.locator('header .place'), path).toHaveText(/^in-cluster · .*127\.0\.0\.1:\d+$/);
    await expect(page, path).toHaveTitle(/ · in-cluster · .* · Relaybook$/);
  }
});

test('30 pipelines fit on a screen of 1080 pixels', async ({ page }) => {
  await page.setViewportSize({ width: 1920, height: 1080 });
  const html = await (await page.goto(`${own}/`)).text();
  const [line] = html.match(/<tr class="line">.*?<\/tr><tr class="more">.*?<\/tr>/s);
  const body = html.replace(/<tbody>.*<\/tbody>/s, () => `<tbody>${line.repeat(30)}</tbody>`).replace(/<div class="banner".*?<\/div>/gs, '');
  await page.route((url) => url.pathname === '/', (route) => route.fulfill({ contentType: 'text/html', body }));
  await page.goto(`${own}/`);
  const boxes = await page.locator('tr.line').evaluateAll((rows) => rows.map((row) => {
    const { height, bottom } = row.getBoundingClientRect();
    return { height, bottom };
  }));
  expect(boxes).toHaveLength(30);
  expect(Math.max(...boxes.map(({ height }) => height))).toBeLessThanOrEqual(30);
  expect(boxes[29].bottom).toBeLessThanOrEqual(1080);
});

test('the details of a pipeline open with the keyboard, and stay open when changes come', async ({ page }) => {
  await page.goto(`${own}/?namespace=shop`);
  const summary = page.locator('summary[aria-label="Details of shop/checkout"]');
  const details = page.locator('tr.more', { hasText: 'Back-off pulling image' });
  await expect(details).toBeHidden();
  await summary.focus();
  await page.keyboard.press('Enter');
  await expect(details).toBeVisible();
  const { violations } = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']).analyze();
  expect(violations.map(({ id }) => id)).toEqual([]);
  const read = page.waitForResponse((answer) => answer.url().includes('/?namespace=shop'));
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await read;
  await expect(details).toBeVisible();
  await expect(summary).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(details).toBeHidden();
});

test('the number on a tile is that of the lines behind it, and a tile is a link as a whole', async ({ page }) => {
  for (const label of ['Failed', 'Other problems', 'Gone, drifted or unknown', 'In progress', 'Current']) {
    // Pipelines change meanwhile.
    await expect(async () => {
      await page.goto(`${own}/`);
      const tile = page.locator(`.tile a[aria-label^="${label}: "]`);
      const [count, href] = [Number(await tile.innerText()), await tile.getAttribute('href')];
      await page.goto(own + href);
      expect(await page.locator('tr.line').count(), label).toBe(count);
    }).toPass();
  }
  await page.goto(`${own}/`);
  await page.locator('.tile', { hasText: 'Pending deliveries' }).click();
  await expect(page).toHaveURL(`${own}/pending`);
  await expect(page.getByRole('heading', { level: 1, name: 'Pending' })).toBeVisible();
  await expect(page.locator('tbody tr', { hasText: '401 Unauthorized' }).first()).toBeVisible();
});

test('pipelines are grouped by their team, and the filters keep that', async ({ page }) => {
  await page.goto(`${own}/`);
  await page.getByRole('link', { name: 'Team', exact: true }).click();
  await expect(page).toHaveURL(/group=team/);
  await expect(page.locator('tr.group', { hasText: 'payments' })).toContainText('2 pipelines');
  await expect(page.locator('tr.group').first()).toContainText('shop');
  await page.getByLabel('Namespace').fill('payments');
  await page.getByRole('button', { name: 'Show' }).click();
  await expect(page).toHaveURL(/group=team/);
  await expect(page.locator('tr.group')).toHaveCount(1);
});

test('the overview has the last changes and messages', async ({ page }) => {
  await page.goto(`${own}/`);
  const recent = page.locator('section.recent');
  await expect(recent.locator('li').first()).toBeVisible();
  expect(await recent.locator('li:not(.none)').count()).toBeLessThanOrEqual(20);
  const [at, text] = await recent.locator('time').first().evaluate((time) => [time.dateTime, time.textContent]);
  expect(text).toBe(new Date(at).toLocaleTimeString('en-GB', { timeZone: 'Europe/Berlin', timeStyle: 'medium' }));
});

test('a pipeline shows its timeline, and a mark leads to its delivery', async ({ page }) => {
  await page.goto(`${own}/pipelines/payments/ledger`);
  await expect(page.locator('.timeline .bars').first()).toBeVisible();
  await expect(page.locator('.timeline [data-zone]')).toHaveText('Europe/Berlin');
  await expect(page.locator('.legend').first()).toContainText('in progress');
  await page.goto(`${own}/pipelines/shop/checkout`);
  await expect(page.getByText('Back-off pulling image').first()).toBeVisible();
  const wanted = page.locator('.marks g[aria-label*="Not wanted"]').first();
  await expect(wanted).toHaveAttribute('aria-label', /only for the environments prod|no trigger has the type/);
  const mark = page.locator('.marks a').first();
  await mark.focus();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { level: 1, name: /^Delivery/ })).toBeVisible();
  await page.goBack();
  await page.getByRole('link', { name: '15 min' }).click();
  await expect(page).toHaveURL(/range=15m/);
});

test('a pending delivery says what it waits for, and masks credentials', async ({ page }) => {
  await page.goto(`${own}/deliveries/shop/${await delivery('shop', 'team-chat', '')}`);
  await expect(page.locator('p.lead')).toContainText(/because of 401 Unauthorized/);
  await expect(page.locator('pre.request')).toContainText('authorization: ***');
  await expect(page.locator('pre.request')).not.toContainText('abcdefgh');
  await expect(page.getByText('invalid_auth').first()).toBeVisible();
});

test('a notification without pipelines is a warning, and settings name their layer', async ({ page }) => {
  await page.goto(`${own}/notifications/payments/unused`);
  await expect(page.locator('p.notice.warn', { hasText: 'NoPipeline' })).toContainText('or the labels');
  await page.goto(`${own}/notifications/payments/records`);
  const field = page.locator('table.settings tr', { hasText: 'endpoint/url' });
  await expect(field).toContainText('Notification payments/records');
  await expect(page.getByText('Delivered and parked, at most')).toBeVisible();
});

test('clusters that do not answer come first, with the pipelines that they affect', async ({ page }) => {
  await page.goto(`${own}/clusters`);
  await expect(page.locator('tbody tr').first()).toContainText('us-1');
  await expect(page.locator('tbody tr').first()).toContainText('shop/search');
  await expect(page.locator('tbody tr', { hasText: 'eu-1' })).toContainText('Reachable');
});

test('the search finds a revision by a part of it, where it runs, and who was notified', async ({ page }) => {
  await page.goto(`${own}/`);
  await page.getByPlaceholder('Revision').fill('7.1.0');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/\/search\?q=7\.1\.0/);
  await expect(page.locator('section', { hasText: 'Where it is' })).toContainText('payments/ledger');
  await expect(page.locator('section', { hasText: 'Who was notified' })).toContainText('commit-status');
});

test('bad input gets a page that says so', async ({ page }) => {
  for (const [path, status, words] of [
    ['/pipelines/shop/nowhere', 404, 'Pipeline shop/nowhere does not exist'],
    ['/deliveries/shop/nothing', 404, 'Delivery shop/nothing does not exist'],
    ['/notifications/shop/nobody', 404, 'Notification shop/nobody does not exist'],
    ['/what', 404, 'There is no such page'],
    ['/pipelines/a/b/c', 404, 'There is no such page'],
    ['/?state=purple', 200, 'state is not one of all, wrong, failed'],
    ['/?namespace=UPPER', 200, 'namespace is not the name of a namespace'],
    ['/?page=99', 200, 'There are only 1 pages'],
    ['/pipelines/shop/checkout?from=yesterday', 200, 'from is not a time such as'],
    ['/parked?after=nonsense', 200, 'continue key is not valid'],
  ]) {
    const answer = await page.goto(own + path);
    expect(answer.status(), path).toBe(status);
    await expect(page.getByText(words).first(), path).toBeVisible();
    await expect(page.locator('body')).not.toContainText(/panicked|RUST_BACKTRACE|src\/page/);
  }
});
