#!/usr/bin/env bash
# Runs the behaviour tests with only the permissions of the chart, first for the whole cluster and then for single namespaces.
# The arguments select tests. Both runs are then side by side, because a few tests mostly wait. ONLY=cluster or ONLY=namespaced makes one run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests=(${CARGO:-cargo} test --locked --no-fail-fast --test it)
"${tests[@]}" --no-run

# Runs the tests with one kind of permissions. The arguments: the kind, and which tests.
run() {
  printf 'rights: %s\n' "$1"
  PENNANT_TEST_RIGHTS=$1 "${tests[@]}" -- --skip install:: "${@:2}"
}

if [[ -n ${ONLY:-} ]]; then
  run "$ONLY" "$@"
elif (($# == 0)); then
  run cluster
  run namespaced
else
  logs=$(mktemp -d)
  trap 'rm -rf "$logs"' EXIT
  run cluster "$@" >"$logs/cluster" 2>&1 & cluster=$!
  run namespaced "$@" >"$logs/namespaced" 2>&1 & namespaced=$!
  failed=0
  wait "$cluster" || failed=1
  wait "$namespaced" || failed=1
  cat "$logs/cluster" "$logs/namespaced"
  exit "$failed"
fi
