// Who sees what: the page in the cluster, where the token of a person decides.
import { delivery, expect, kubectl, own, ownState, place, test } from './place.mjs';

async function signIn(page, token, path = '/') {
  await page.goto(place.public + path);
  await page.getByLabel('Token of the cluster').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

test('nobody sees anything without a token, and a wrong one is refused', async ({ page }) => {
  expect((await page.goto(`${place.public}/pipelines/shop/checkout`)).status()).toBe(401);
  await expect(page.locator('body')).not.toContainText('Back-off');
  await signIn(page, 'not-a-token');
  await expect(page.getByText('The API server does not accept this token.')).toBeVisible();
});

test('a person signs in, sees what the token may read, and signs out', async ({ page, context }) => {
  await signIn(page, place.tokens.shop, '/pipelines/shop/checkout');
  await expect(page.getByRole('heading', { name: 'Pipeline shop/checkout' })).toBeVisible();
  const cookies = await context.cookies(place.public);
  expect(cookies).toHaveLength(1);
  expect(cookies[0]).toMatchObject({ name: '__Host-relaybook', httpOnly: true, secure: true, sameSite: 'Strict' });
  expect(cookies[0].value).not.toContain(place.tokens.shop.split('.')[1]);
  await expect(page.locator('.who')).toContainText('system:serviceaccount:default:shop');
  await page.goto(`${place.public}/`);
  await expect(page.getByText('No permission: needs list on pipelines in all namespaces.')).toBeVisible();
  await page.getByLabel('Namespace').fill('shop');
  await page.getByRole('button', { name: 'Show' }).click();
  await expect(page.locator('table.matrix tr.line')).toHaveCount(4);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
  expect(await context.cookies(place.public)).toHaveLength(0);
});

test('another team sees nothing of this team', async ({ page }) => {
  const secret = /checkout|storefront|recommendations|team-chat|Back-off|invalid_auth/;
  await signIn(page, place.tokens.payments);
  const foreign = await delivery('shop', 'team-chat', '');
  for (const path of ['/pipelines/shop/storefront', `/deliveries/shop/${foreign}`, '/notifications/shop/approvals', '/?namespace=shop',
    '/receivers?namespace=shop', '/pending?namespace=shop', '/parked?namespace=shop', '/clusters?namespace=shop', '/search?q=2.4.0&namespace=shop',
    '/', '/receivers', '/pending', '/parked', '/clusters', '/search?q=2.4.0']) {
    await page.goto(place.public + path);
    await expect(page.getByText(/No permission: needs/).first(), path).toBeVisible();
    expect((await page.locator('#live').innerText()).replaceAll(foreign, '').replace(/shop\/storefront/g, ''), path).not.toMatch(secret);
  }
});

test('a promotion is approved by a person who may, and by nobody else', async ({ page: _unused, browser }) => {
  const approved = () => kubectl('get', 'promotions', '-n', 'shop', '-o', 'jsonpath={.items[?(@.spec.pipelineRef.name=="recommendations")].spec.approved}');
  const approve = async (token) => {
    const context = await browser.newContext();
    const page = await context.newPage();
    await signIn(page, token, '/?namespace=shop');
    await expect(page.getByRole('heading', { name: 'Promotions that wait for an approval' })).toBeVisible();
    await page.getByRole('button', { name: /^Approve .*1\.9\.0 for prod of shop\/recommendations$/ }).click();
    await expect(page.getByRole('heading', { level: 1, name: 'Pipeline shop/recommendations' })).toBeVisible();
    await expect(page).toHaveURL(`${place.public}/pipelines/shop/recommendations`);
    const words = await page.locator('#live').innerText();
    await context.close();
    return words;
  };
  expect(await approve(place.tokens.reader)).toContain('No permission: needs patch on promotions in shop.');
  expect(await approved()).not.toContain('true');
  expect(await approve(place.tokens.shop)).toMatch(/The promotion of .*1\.9\.0 to prod is approved\./);
  expect(await approved()).toContain('true');
});

test('a link from another site leads to the page after one more load', async ({ page, context }) => {
  await signIn(page, place.tokens.shop);
  await context.route('http://chat.example.com/', (route) => route.fulfill({
    contentType: 'text/html', body: `<a href="${place.public}/pipelines/shop/search">a card in a chat room</a>`,
  }));
  const other = await context.newPage();
  await other.goto('http://chat.example.com/');
  await other.getByText('a card in a chat room').click();
  await expect(other.getByRole('heading', { name: 'Pipeline shop/search' })).toBeVisible();
});

test('a page of another site can neither send a form nor frame the page', async ({ page: _unused, browser }) => {
  const context = await browser.newContext({ storageState: ownState });
  const page = await context.newPage();
  await context.route('http://evil.example.com/', (route) => route.fulfill({
    contentType: 'text/html',
    body: `<form id="f" method="post" action="${own}/parked/resend"><input name="delivery" value="hostile/x"></form>
      <iframe src="${own}/"></iframe><script>setTimeout(() => document.getElementById('f').submit(), 500)</script>`,
  }));
  await page.goto('http://evil.example.com/');
  await page.waitForURL(`${own}/**`);
  await expect(page.locator('body')).toContainText('The request comes from another site.');
  await context.close();
});

test('an account that is deleted loses the page', async ({ page }) => {
  test.setTimeout(150_000);
  await kubectl('create', 'serviceaccount', 'leaver', '-n', 'default');
  await kubectl('create', 'rolebinding', 'leaver', '-n', 'shop', '--clusterrole=page-reader', '--serviceaccount=default:leaver');
  const token = (await kubectl('create', 'token', 'leaver', '-n', 'default')).trim();
  await signIn(page, token, '/pipelines/shop/checkout');
  await expect(page.locator('body[data-connected]')).toBeAttached();
  await kubectl('delete', 'serviceaccount', 'leaver', '-n', 'default');
  await expect(page.getByText('Signed out. Reload the page to sign in.')).toBeVisible({ timeout: 60_000 });
  await page.reload();
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
  await expect(page.locator('body')).not.toContainText('checkout-6d9f');
});
