#!/usr/bin/env bash
# Runs stages one after the other: each argument is a make target with its variables. Prints the duration of each stage. Fails if a stage
# fails, or if the stages have changed the working tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

before=$(git status --porcelain 2>/dev/null || true)
for stage in "$@"; do
  printf 'ci: make %s\n' "$stage"
  TIMEFORMAT="ci: make $stage took %0R s, and %0U + %0S s of processor time"
  # A stage is a target and its variables, separated by spaces. `eval` keeps the quotes around the values of variables.
  time eval "${MAKE:-make} --no-print-directory $stage"
done
after=$(git status --porcelain 2>/dev/null || true)
if [[ $after != "$before" ]]; then
  printf 'ci: the checks have changed the working tree:\n%s\n' "$after" >&2
  exit 1
fi
printf 'ci: all is well\n'
