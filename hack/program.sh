#!/usr/bin/env bash
# Builds the program without optimisation, and prints where it is. Together with a test, because what the dependencies of tests ask
# of those of the program would otherwise have both compiled twice: the same crates with other features are other crates.
#
#   hack/program.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --locked --quiet --bin pennant --test architecture
printf '%s\n' "${CARGO_TARGET_DIR:-$PWD/target}/debug/pennant"
