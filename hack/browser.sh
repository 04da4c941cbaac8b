#!/usr/bin/env bash
# Prepares the tests of the audit page, and prints the path of Chromium. The packages of npm are those of the lock file. Chromium comes from
# the system: a package of the distribution gets its security updates, and Playwright downloads nothing.
#
#   hack/browser.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../tests/page/browser"

chromium=${RELAYBOOK_CHROMIUM:-}
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  [[ -n $chromium ]] || chromium=$(type -P "$name" || true)
done
if [[ -z $chromium ]]; then
  printf 'page: there is no Chromium; install the package chromium, or set RELAYBOOK_CHROMIUM to its path\n' >&2
  exit 1
fi
if ! cmp -s package-lock.json node_modules/.lock; then
  printf 'page: installing Playwright from npm, without its browsers\n' >&2
  PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --ignore-scripts --loglevel=error >&2
  cp package-lock.json node_modules/.lock
fi
printf '%s\n' "$chromium"
