#!/usr/bin/env bash
# Runs each command of docs/tutorial.md, against what `make try` starts, and checks at the end that every message was delivered in order.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
rm -f .demo/env
bash hack/try.sh >"$work/try.log" 2>&1 </dev/null &
try=$!
cleanup() {
  local code=$?
  trap - EXIT
  kill -TERM "$try" 2>/dev/null && wait "$try" || true
  ((code == 0)) || tail -n 40 "$work"/*.log >&2
  rm -rf "$work"
  exit "$code"
}
trap cleanup EXIT

printf 'tutorial: starting\n'
until [[ -s .demo/env ]]; do
  kill -0 "$try" 2>/dev/null || { printf 'tutorial: make try ended\n' >&2; exit 1; }
  sleep 0.5
done
source .demo/env
awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' docs/tutorial.md | grep -vE '^(make try|source \.demo/env)' >"$work/steps"
printf 'tutorial: running %s lines\n' "$(wc -l <"$work/steps")"
timeout 300 bash -euo pipefail -x "$work/steps" >"$work/steps.log" 2>&1

# sent: the types and revisions of each environment, in order.
sent() {
  kubectl get deliveries -n team-a --sort-by=.spec.serial --no-headers \
    -o custom-columns=E:.spec.subject.environment,T:.spec.type,R:.spec.to.revision,O:.status.outcome |
    awk -v environment="$1" '$1 == environment { printf "%s%s %s %s", sep, $2, $3, $4; sep = ", " }'
}
await_sent() {
  local limit=$((SECONDS + 60))
  until [[ $(sent "$1") == "$2" ]]; do
    ((SECONDS < limit)) || { printf 'tutorial: %s has\n  %s\nexpected\n  %s\n' "$1" "$(sent "$1")" "$2" >&2; exit 1; }
    sleep 0.5
  done
}
d=Delivered
await_sent dev "Progressing 2.0.0 $d, Deployed 2.0.0 $d, Progressing 3.0.0 $d, Failed 3.0.0 $d, Progressing 4.0.0 $d, Deployed 4.0.0 $d, Progressing 5.0.0 $d, Deployed 5.0.0 $d"
relaybook status -n team-a --exit-code
printf 'tutorial: all is well\n'
