#!/usr/bin/env bash
# Runs the behaviour tests with only the permissions of the chart, first for the whole cluster and then for single namespaces.
# The arguments select tests. Both runs are then side by side, because a few tests mostly wait. ONLY=cluster or ONLY=namespaced makes one run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests=(${CARGO:-cargo} test --locked --no-fail-fast --test it)
"${tests[@]}" --no-run

# Runs the tests with one kind of permissions. The arguments: the kind, and which tests. The audit page makes its calls with the tokens of
# people, and its tests expect that the API server refuses some of them.
run() {
  printf 'rights: %s\n' "$1"
  RELAYBOOK_TEST_RIGHTS=$1 "${tests[@]}" -- --skip install:: --skip page:: "${@:2}"
}

if [[ -n ${ONLY:-} ]]; then
  run "$ONLY" "$@"
elif (($# == 0)); then
  failed=0
  run cluster || failed=1
  run namespaced || failed=1
  exit "$failed"
else
  logs=$(mktemp -d)
  # Both runs share the machine.
  export RELAYBOOK_TEST_ALWAYS=1
  # Each run is a process group of its own, which ends with this script. Its output is shown in any case.
  set -m
  run cluster "$@" >"$logs/cluster" 2>&1 & cluster=$!
  run namespaced "$@" >"$logs/namespaced" 2>&1 & namespaced=$!
  finish() {
    kill -- "-$cluster" "-$namespaced" 2>/dev/null || true
    cat "$logs/cluster" "$logs/namespaced"
    rm -rf "$logs"
  }
  trap finish EXIT
  failed=0
  wait "$cluster" || failed=1
  wait "$namespaced" || failed=1
  exit "$failed"
fi
