#!/usr/bin/env bash
# Writes what the program is made of, as CycloneDX (https://cyclonedx.org), to target/sbom/pennant.cdx.json, and checks it against
# Cargo.lock. The same commit makes the same file.
#
#   CARGO_CYCLONEDX=FILE hack/sbom.sh [PROGRAM]   the program's own word is checked too: the crates that its paths name
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tool=${CARGO_CYCLONEDX:?which program}
out=target/sbom/pennant.cdx.json
name=pennant-sbom-$$

host=$(rustc -vV | sed -n 's/^host: //p')
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
mkdir -p target/sbom
# It writes beside Cargo.toml and nowhere else.
trap 'rm -f "$name.json" target/sbom/*.tmp' EXIT
"$tool" cyclonedx --quiet --format json --spec-version 1.5 --target "$host" --no-build-deps --override-filename "$name"
# What is compiled for the program: not what builds it, and not what only tests need.
cargo tree --locked --edges normal --target "$host" --prefix none --format '{p}' | sed 's/ (.*//' | sort -u >target/sbom/tree.tmp
: >target/sbom/program.tmp
if [[ -n ${1:-} ]]; then
  # Paths as hack/image.sh has the compiler write them.
  LC_ALL=C grep -aoE '/crates/[A-Za-z0-9_-]+-[0-9]+\.[0-9]+\.[0-9][A-Za-z0-9.+-]*/' "$1" | sed -E 's#^/crates/##; s#/$##' |
    sort -u >target/sbom/program.tmp
  [[ -s target/sbom/program.tmp ]] || { printf 'sbom: %s names no crate; was it built by hack/image.sh?\n' "$1" >&2; exit 1; }
fi
node hack/sbom.mjs "$name.json" "$out" target/sbom/tree.tmp target/sbom/program.tmp
