#!/usr/bin/env bash
# Builds the program without optimisation, and prints its path. It builds it together with a test. Otherwise Cargo would compile common
# dependencies twice, because tests enable other features.
#
#   hack/program.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --locked --quiet --bin relaybook --test architecture
printf '%s\n' "${CARGO_TARGET_DIR:-$PWD/target}/debug/relaybook"
