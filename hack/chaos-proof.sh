#!/usr/bin/env bash
# Proves that `make chaos` and the simulation detect broken promises. The program is built with the feature `broken`. Chaos runs four times, two at a time.
# RELAYBOOK_BROKEN selects another promise to break each time. Chaos must detect it, with the right kind of violation.
# Early in the plan of this seed, creates and outcome writes are lost. Each of these faults ends with a kill. A slow machine can have too few
# requests by then. So a run that finds nothing is followed by longer ones. One detection proves it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seed=1053954
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

chaos=(${CARGO:-cargo} test --locked --quiet --features broken --test chaos)
"${chaos[@]}" --no-run

# Runs chaos with one broken promise. The arguments: what is broken, and the kinds of violation of which one must be found.
prove() {
  local broken=$1 kinds=$2 log=$logs/$1 found='' seconds
  for seconds in 12 45 120; do
    if RELAYBOOK_BROKEN=$broken "${chaos[@]}" -- --seed "$seed" --seconds "$seconds" --replicas 1 --must-find "$kinds" >"$log" 2>&1; then
      found=1
      break
    fi
  done
  if [[ -z $found ]]; then
    cat "$log" >&2
    printf 'chaos-proof: %s was NOT detected\n' "$broken" >&2
    return 1
  fi
  # One program reads the whole log: in a pipe, a reader that stops early ends the others with an error if the log is long.
  awk -v kinds="^  (finding +)?(${kinds//,/|})" -v told="chaos-proof: $broken is detected as ${kinds//,/ or }:" \
    'tolower($0) ~ kinds && !/ 0$/ && !found++ { $1 = $1; print told, $0 }' "$log"
}

# Runs two proofs side by side. The arguments: those of both.
pair() {
  local failed=0
  prove "$1" "$2" & local first=$!
  prove "$3" "$4" & local second=$!
  wait "$first" || failed=1
  wait "$second" || failed=1
  return $failed
}

pair outcome-before-request audit next-before-outcome order
# A kill can be before the request or after it: the delivery is then missing, or it was sent and is not recorded.
pair cursor-before-create missing,audit cursor-before-outcome missing,audit

# The simulation must find the same broken promises. It must also find three that chaos hardly ever finds. An unanswered write was not carried out,
# nobody continues a retry after a hand-over, or a create was refused.
simulation=(${CARGO:-cargo} test --locked --quiet --workspace --features broken --test simulation)
"${simulation[@]}" --no-run
for broken in outcome-before-request next-before-outcome cursor-before-create cursor-before-outcome unanswered-is-written retried-is-forgotten \
  refused-is-recorded; do
  found=$(RELAYBOOK_BROKEN=$broken "${simulation[@]}" -- --histories 1000 --shrinks 0 --must-find | grep '^simulation:') || {
    printf 'chaos-proof: the simulation did NOT detect %s\n' "$broken" >&2
    exit 1
  }
  printf 'chaos-proof: %s: %s\n' "$broken" "$found"
done
