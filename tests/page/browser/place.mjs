// Where the page is, who can look at it, and how the cluster is changed.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { test as base, expect } from '@playwright/test';

export const place = JSON.parse(process.env.RELAYBOOK_PAGE);
export const own = new URL(place.own).origin;
export const results = fileURLToPath(new URL('../../../target/page', import.meta.url));
export const ownState = `${results}/own.json`;

const run = promisify(execFile);

/** Runs kubectl with all permissions. Returns its output. */
export async function kubectl(...words) {
  const { stdout } = await run(place.kubectl, words, { env: { ...process.env, KUBECONFIG: place.kubeconfig } });
  return stdout;
}

/** Applies objects with all permissions. */
export async function apply(objects) {
  const child = run(place.kubectl, ['apply', '-f', '-'], { env: { ...process.env, KUBECONFIG: place.kubeconfig } });
  child.child.stdin.end(JSON.stringify(objects));
  await child;
}

/** Lets the rollout of an image tag fail with a message, as the controller of Deployments would report it. */
export async function breakDown(namespace, app, tag, message) {
  const counts = { replicas: 2, availableReplicas: 1, unavailableReplicas: 1 };
  await ship(namespace, app, tag, { type: 'Progressing', status: 'False', reason: 'ProgressDeadlineExceeded', message }, counts);
}

/** Rolls out an image tag of a Deployment, and reports it as finished, as the controller of Deployments would. */
export async function ship(namespace, app, tag, progressing = {}, counts = {}) {
  const containers = [{ name: 'app', image: `registry.example/app:${tag}` }];
  await kubectl('patch', 'deployment', app, '-n', namespace, '-p', JSON.stringify({ spec: { template: { spec: { containers } } } }));
  const generation = Number(await kubectl('get', 'deployment', app, '-n', namespace, '-o', 'jsonpath={.metadata.generation}'));
  const at = new Date().toISOString().replace(/\.\d+Z/, 'Z');
  const condition = (type, reason) => ({ type, status: 'True', reason, message: reason, lastUpdateTime: at, lastTransitionTime: at });
  const status = {
    observedGeneration: generation, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1, unavailableReplicas: null, ...counts,
    conditions: [{ ...condition('Progressing', 'NewReplicaSetAvailable'), ...progressing }, condition('Available', 'MinimumReplicasAvailable')],
  };
  await kubectl('patch', 'deployment', app, '-n', namespace, '--subresource=status', '--type=merge', '-p', JSON.stringify({ status }));
}

/** The first delivery with this outcome (`` for pending) of a notification. */
export async function delivery(namespace, notification, outcome) {
  const names = await kubectl('get', 'deliveries', '-n', namespace, '-l', `relaybook.dev/notification=${notification}`,
    '--field-selector', `status.outcome=${outcome}`, '-o', 'jsonpath={.items[*].metadata.name}');
  return names.split(' ')[0];
}

/**
 * A test that fails if the page loads something from elsewhere, breaks its content security policy, has an error of the script, or runs a
 * script of the cluster.
 */
export const test = base.extend({
  page: async ({ page }, use) => {
    const wrong = [];
    page.on('console', (message) => {
      if (message.type() === 'error' && !/Failed to load resource|net::ERR/.test(message.text())) wrong.push(message.text());
    });
    page.on('pageerror', (error) => wrong.push(String(error)));
    page.on('request', (request) => {
      const { origin, protocol } = new URL(request.url());
      if (origin !== own && origin !== new URL(place.public).origin && protocol !== 'data:') wrong.push(`a request to ${request.url()}`);
    });
    await page.addInitScript(() => {
      globalThis.violations = [];
      document.addEventListener('securitypolicyviolation', (event) => globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
    });
    await use(page);
    const seen = page.isClosed() ? [] : await page.evaluate(() => [globalThis.violations ?? [], globalThis.hacked ?? null]).catch(() => []);
    expect(wrong, 'errors and requests to elsewhere').toEqual([]);
    if (seen.length > 0) expect(seen, 'violations of the policy, and scripts of the cluster').toEqual([[], null]);
  },
});

export { expect };
