// Changes that appear without a reload, the page without its script, and actions.
import { apply, breakDown, delivery, expect, kubectl, own, ownState, place, ship, test } from './place.mjs';

test.use({ storageState: ownState });

const connected = (page) => expect(page.locator('body[data-connected]')).toBeAttached();

test('a rollout appears on the open overview', async ({ page }) => {
  await page.goto(`${own}/?namespace=payments`);
  await connected(page);
  const tag = `3.1.${Date.now() % 100000}`;
  await ship('payments-dev', 'invoices', tag);
  const from = Date.now();
  await expect(page.locator('tr.line', { hasText: 'invoices' })).toContainText(tag, { timeout: 60_000 });
  test.info().annotations.push({ type: 'live update', description: `${Date.now() - from} ms after the change` });
  console.log(`    the overview showed the change ${Date.now() - from} ms after it was made`);
});

test('a delivery appears on the open pipeline, and what a person types is kept', async ({ page }) => {
  await page.goto(`${own}/pipelines/payments/ledger`);
  await connected(page);
  await page.getByText('Other times').click();
  const before = await page.locator('section', { hasText: 'Newest deliveries' }).locator('tbody tr').first().innerText();
  await expect(async () => {
    expect(await page.locator('section', { hasText: 'Newest deliveries' }).locator('tbody tr').first().innerText()).not.toBe(before);
  }).toPass();
  await expect(page.getByLabel('From (UTC)')).toBeVisible();
  await page.getByLabel('From (UTC)').fill('2026-01-01T00:00:00Z');
  await page.waitForResponse((answer) => answer.url().includes('/pipelines/'), { timeout: 6_000 }).catch(() => {});
  await expect(page.getByLabel('From (UTC)')).toHaveValue('2026-01-01T00:00:00Z');
});

test('a link that is pressed while a change comes is followed', async ({ page }) => {
  await page.goto(`${own}/pipelines/payments/ledger`);
  await connected(page);
  const link = page.locator('section', { hasText: 'Newest deliveries' }).locator('tbody a').first();
  await link.hover();
  await page.mouse.down();
  // The list changes until the press, and not during it.
  const href = await link.getAttribute('href');
  await page.evaluate(() => { window.readings = 0; const { fetch } = window; window.fetch = (...all) => { window.readings += 1; return fetch(...all); }; });
  await page.waitForFunction(() => again);
  expect(await page.evaluate(() => window.readings)).toBe(0);
  await page.mouse.up();
  await expect(page).toHaveURL(new URL(href, own).href);
});

test('a hidden page closes its stream', async ({ page }) => {
  await page.goto(`${own}/`);
  await connected(page);
  await page.evaluate(() => {
    Object.defineProperty(document, 'hidden', { value: true, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  });
  await expect(page.locator('body[data-connected]')).toHaveCount(0);
  await page.evaluate(() => {
    Object.defineProperty(document, 'hidden', { value: false, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  });
  await connected(page);
});

test('times are in the zone of the reader', async ({ page }) => {
  await page.goto(`${own}/deliveries/shop/${await delivery('shop', 'team-chat', '')}`);
  const time = page.locator('time[data-moment]').first();
  const there = new Date(await time.getAttribute('datetime'));
  const here = there.toLocaleString('en-GB', { timeZone: 'Europe/Berlin', timeStyle: 'short' });
  await expect(time).toContainText(here);
});

test.describe('without the script', () => {
  test.use({ javaScriptEnabled: false });

  test('every screen, the filters and the search work', async ({ page: _unused, browser }) => {
    const context = await browser.newContext({ storageState: ownState, javaScriptEnabled: false });
    const page = await context.newPage();
    for (const path of ['/', '/pipelines/shop/checkout', '/notifications/shop/team-chat', '/receivers', '/pending', '/parked', '/clusters', '/search?q=2.4']) {
      expect((await page.goto(own + path)).status(), path).toBe(200);
      await expect(page.locator('h1')).toBeVisible();
    }
    await page.goto(`${own}/`);
    await page.getByLabel('Namespace').fill('shop');
    await page.getByRole('button', { name: 'Show' }).click();
    await expect(page.locator('table.matrix tr.line')).toHaveCount(4);
    await page.locator('summary[aria-label="Details of shop/checkout"]').click();
    await expect(page.locator('tr.more', { hasText: 'Back-off pulling image' })).toBeVisible();
    await expect(page.locator('time[data-age]').first()).toContainText(/ago$/);
    await expect(page.locator('#zone')).toHaveText('Times are in UTC.');
    await page.getByPlaceholder('Revision').fill('2.4.0');
    await page.getByRole('button', { name: 'Search' }).click();
    await expect(page.getByText('shop/storefront').first()).toBeVisible();
    await context.close();
  });

  test('deliveries are sent again', async ({ browser }) => {
    const context = await browser.newContext({ storageState: ownState, javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(`${own}/parked?namespace=payments`);
    await page.locator('input[name=delivery]').first().check();
    await page.getByRole('button', { name: 'Resend the selected' }).click();
    await expect(page.getByText('Redeliveries requested: 1.')).toBeVisible();
    const annotated = await kubectl('get', 'deliveries', '-n', 'payments', '-o', 'jsonpath={.items[*].metadata.annotations}');
    expect(annotated).toContain('relaybook.dev/redeliver');
    await page.goto(page.url());
    await expect(page).toHaveURL(`${own}/parked`);
    await expect(page.getByRole('heading', { level: 1, name: 'Parked' })).toBeVisible();
    await context.close();
  });

  test('a test is confirmed and sent', async ({ browser }) => {
    const context = await browser.newContext({ storageState: ownState, javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(`${own}/notifications/payments/commit-status`);
    await page.getByRole('button', { name: 'Send test' }).click();
    await page.getByRole('checkbox').check();
    await page.getByRole('button', { name: 'Send this test' }).click();
    await expect(page.getByText(/^Test for /)).toBeVisible();
    await context.close();
  });
});

test('the address of an action leads to its screen', async ({ page }) => {
  const name = await delivery('payments', 'records', 'Parked');
  for (const [path, screen] of [
    ['/parked/resend?namespace=payments', '/parked?namespace=payments'],
    [`/deliveries/payments/${name}/resend`, `/deliveries/payments/${name}`],
    ['/notifications/payments/records/test', '/notifications/payments/records'],
    ['/pipelines/shop/recommendations/approve', '/pipelines/shop/recommendations'],
  ]) {
    expect((await page.goto(own + path)).status(), path).toBe(200);
    await expect(page, path).toHaveURL(own + screen);
  }
  expect((await page.goto(`${own}/what/resend`)).status()).toBe(404);
});

test('the focus stays on its delivery when another one appears above it, and is lost when it disappears', async ({ page }) => {
  const html = await (await page.goto(`${own}/parked?namespace=payments`)).text();
  await connected(page);
  const [row, value] = html.match(/<tr><td class="select">.*?value="([^"]*)".*?<\/tr>/s);
  const other = row.replace(`value="${value}"`, 'value="payments/another"');
  let shown = html.replace(row, () => other + row);
  await page.route((url) => url.pathname === '/parked', (route) => route.fulfill({ contentType: 'text/html', body: shown }));
  const readAgain = () => page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  const box = page.locator(`input[value="${value}"]`);
  await box.focus();
  await readAgain();
  await expect(page.locator('input[value="payments/another"]')).toBeVisible();
  await expect(box).toBeFocused();
  await page.keyboard.press('Space');
  expect(await page.locator('input[name=delivery]:checked').evaluateAll((boxes) => boxes.map((one) => one.value))).toEqual([value]);
  shown = html.replace(row, () => other);
  await readAgain();
  await expect(box).toHaveCount(0);
  expect(await page.evaluate(() => document.activeElement === document.body)).toBe(true);
});

test('a page whose stream is refused says that its changes are late', async ({ page }) => {
  let streams = 0;
  await page.route((url) => url.pathname === '/events', (route) => {
    streams += 1;
    return streams > 1 ? route.continue() : route.fulfill({ status: 503, contentType: 'text/plain', body: 'Too many pages are open.\n' });
  });
  await page.goto(`${own}/`);
  await expect(page.locator('#connection')).toContainText('Changes are shown some seconds late.');
  await connected(page);
  await expect(page.locator('#connection')).toBeEmpty();
});

test('one delivery is sent again, and many with progress', async ({ page }) => {
  const name = await delivery('payments', 'records', 'Parked');
  await page.goto(`${own}/deliveries/payments/${name}`);
  await page.getByRole('button', { name: 'Resend' }).click();
  await expect(page.getByText('A redelivery was requested.')).toBeVisible();
  await expect(page).toHaveURL(`${own}/deliveries/payments/${name}`);
  const sent = [];
  page.on('request', (request) => { if (request.method() === 'POST') sent.push(request.url()); });
  await page.reload();
  await expect(page.getByRole('heading', { level: 1, name: /^Delivery/ })).toBeVisible();
  await expect(page.getByText('A redelivery was requested.')).toHaveCount(0);
  expect(sent).toEqual([]);
  await expect(async () => {
    expect(await kubectl('get', 'delivery', name, '-n', 'payments', '-o', 'jsonpath={.status.redelivered.value}')).not.toBe('');
  }).toPass();
  await page.goto(`${own}/parked?namespace=payments`);
  await expect(async () => {
    await page.reload();
    expect(await page.locator('input[name=delivery]').count()).toBeGreaterThan(11);
  }).toPass({ timeout: 60_000 });
  await page.locator('input[name=delivery]').last().check();
  await page.getByRole('button', { name: 'Resend the selected' }).click();
  await expect(page.getByText('Redeliveries requested: 1.')).toBeVisible();
  await expect(page).toHaveURL(`${own}/parked?namespace=payments`);
  // On the page with the result, whose address was that of the action.
  await page.getByRole('button', { name: 'Select all on this page' }).click();
  await page.getByRole('button', { name: 'Resend the selected' }).click();
  await expect(page.locator('#done')).toContainText(/Redeliveries requested: \d+\./, { timeout: 120_000 });
  await expect(page.getByRole('heading', { level: 1, name: 'Parked' })).toBeVisible();
});

test('a test is sent after its confirmation, and its result is shown', async ({ page }) => {
  await page.goto(`${own}/notifications/payments/commit-status`);
  await page.getByRole('button', { name: 'Send test' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Send this test?' })).toBeVisible();
  await expect(page).toHaveURL(`${own}/notifications/payments/commit-status`);
  await expect(page.getByText(/neither the body nor the URL uses the field test/)).toBeVisible();
  // The browser requires the box.
  await page.getByRole('button', { name: 'Send this test' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Send this test?' })).toBeVisible();
  await page.getByLabel('The receiver acts on it as on a real message').check();
  await page.getByRole('button', { name: 'Send this test' }).click();
  await expect(page.getByText(/^Test for /)).toBeVisible({ timeout: 60_000 });
  await expect(page.getByRole('heading', { level: 1, name: /^Notification/ })).toBeVisible();
});

test('a test that can be canceled was not sent', async ({ page }) => {
  await page.goto(`${own}/notifications/payments/commit-status`);
  await page.getByRole('button', { name: 'Send test' }).click();
  await page.getByRole('link', { name: 'Cancel' }).click();
  await expect(page.getByRole('heading', { level: 1, name: /^Notification/ })).toBeVisible();
  await expect(page.getByText(/^Test /)).toHaveCount(0);
});

test('a test that no trigger matches is refused', async ({ page }) => {
  await page.goto(`${own}/notifications/shop/approvals`);
  await page.getByRole('button', { name: 'Send test' }).click();
  await expect(page.getByText(/^Test was not sent: no trigger of Notification approvals matches/)).toBeVisible({ timeout: 60_000 });
  await expect(page.getByText(/A test is never about a promotion/)).toBeVisible();
  await expect(page.getByRole('button', { name: 'Send this test' })).toHaveCount(0);
});

async function hostile() {
  await apply(place.hostile.manifests);
  await kubectl('wait', '--for=condition=Ready', 'pipelines.relaybook.dev/web', 'notifications.relaybook.dev/echo', '-n', 'hostile', '--timeout=60s');
  await breakDown('hostile-prod', 'web', `6.6.${Date.now() % 1000}`, place.hostile.message);
  await expect(async () => expect(await delivery('hostile', 'echo', 'Parked')).not.toBe('')).toPass({ timeout: 60_000 });
}

test('texts of the cluster and of receivers are only texts', async ({ page }) => {
  await hostile();
  for (const path of ['/', '/pipelines/hostile/web', '/notifications/hostile/echo', '/parked?namespace=hostile', '/search?q=6.6.6',
    `/deliveries/hostile/${await delivery('hostile', 'echo', 'Parked')}`,
    `/search?q=${encodeURIComponent('"><script>hacked=1</script>')}`,
    `/?q=${encodeURIComponent("'\"><img src=x onerror=hacked=1>")}`]) {
    expect((await page.goto(own + path)).status(), path).toBe(200);
    await expect(page.locator('h1')).toBeVisible();
    expect(await page.evaluate(() => globalThis.hacked ?? null), path).toBe(null);
    expect(await page.locator('#live script, #live img, #live [onerror], #live [onload]').count(), path).toBe(0);
  }
  await expect(page.getByText('Overview').first()).toBeVisible();
});
