#!/usr/bin/env bash
# Proves that `make chaos` detects broken promises. The program is built with the feature `broken` and runs four times.
# PENNANT_BROKEN selects another promise to break each time. Chaos must detect it, with the right kind of violation.
# Early in the plan of this seed, creates and outcome writes are lost. Each of these faults ends with a kill.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

prove() {
  local broken=$1 kinds=$2 seed=$3
  if ! PENNANT_BROKEN=$broken ${CARGO:-cargo} test --locked --quiet --features broken --test chaos -- \
    --seed "$seed" --seconds 12 --replicas 1 --must-find "$kinds" >"$log" 2>&1; then
    cat "$log" >&2
    printf 'chaos-proof: %s was NOT detected\n' "$broken" >&2
    return 1
  fi
  printf 'chaos-proof: %-24s is detected as %s: ' "$broken" "${kinds//,/ or }"
  # One program reads the log to its end: a pipe to a program that stops earlier ends with an error if the log is long.
  awk -v kinds="^  (${kinds//,/|})" 'tolower($0) ~ kinds && !/ 0$/ && !found++ { $1 = $1; print }' "$log"
}

prove outcome-before-request audit 1053954
prove next-before-outcome order 1053954
prove cursor-before-create missing 1053954
# A kill can be before the request or after it: the delivery is then missing, or it was sent and is not recorded.
prove cursor-before-outcome missing,audit 1053954
