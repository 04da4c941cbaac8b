#!/usr/bin/env bash
# Writes the software bill of materials of the program to target/sbom/relaybook.cdx.json, in the format CycloneDX
# (https://cyclonedx.org), and checks it against Cargo.lock. The same commit gives the same file.
#
#   CARGO_CYCLONEDX=FILE hack/sbom.sh [PROGRAM]   with PROGRAM, also checks that the crates whose paths it contains are listed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tool=${CARGO_CYCLONEDX:?set it to the path of cargo-cyclonedx}
out=target/sbom/relaybook.cdx.json
name=relaybook-sbom-$$

host=$(rustc -vV | sed -n 's/^host: //p')
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
mkdir -p target/sbom
# `cargo-cyclonedx` can write only next to each Cargo.toml. The file of the program lists all crates.
trap 'rm -f "$name.json" crates/*/"$name.json" target/sbom/*.tmp' EXIT
"$tool" cyclonedx --quiet --format json --spec-version 1.5 --target "$host" --no-build-deps --override-filename "$name"
# The crates that are compiled into the program, without build dependencies and without those that only tests need.
cargo tree --locked --edges normal --target "$host" --prefix none --format '{p}' | sed 's/ (.*//' | sort -u >target/sbom/tree.tmp
: >target/sbom/program.tmp
if [[ -n ${1:-} ]]; then
  # With the options of hack/image.sh, the paths of crates in the program have this form.
  LC_ALL=C grep -aoE '/crates/[A-Za-z0-9_-]+-[0-9]+\.[0-9]+\.[0-9][A-Za-z0-9.+-]*/' "$1" | sed -E 's#^/crates/##; s#/$##' |
    sort -u >target/sbom/program.tmp
  [[ -s target/sbom/program.tmp ]] || { printf 'sbom: %s contains no paths of crates; was it built by hack/image.sh?\n' "$1" >&2; exit 1; }
fi
node hack/sbom.mjs "$name.json" "$out" target/sbom/tree.tmp target/sbom/program.tmp
