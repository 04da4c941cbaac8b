#!/usr/bin/env bash
# Fuzzes all targets, or runs all targets with the given inputs. The corpus stays in target/fuzz/corpus.
#
#   fuzz/run.sh SECONDS     fuzzes; each target gets an equal share of the time
#   fuzz/run.sh FILE...     runs these inputs
#
# CARGO_FUZZ is the path of cargo-fuzz, in the version that the Makefile names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

: "${CARGO_FUZZ:=cargo-fuzz}"
out=$PWD/target/fuzz
targets=(template address setters git convert)
# Stable Rust has no sanitizers, and they would find little in safe Rust. Bounds checks, panics and the checks of the
# target are enough. `--dev` selects the profile in Cargo.toml, which is quick to compile. Comparisons are not traced,
# because tracing costs more tries than it saves: the words of templates are in the dictionary.
options=(--dev --sanitizer none --no-trace-compares --fuzz-dir "$PWD/fuzz" --target-dir "$out")

# Fails if Cargo.lock is not up to date, because cargo-fuzz does not check that.
cargo fetch --quiet --locked --manifest-path fuzz/Cargo.toml
printf 'fuzz: compiling; without a cache this takes about 5 minutes on two cores\n'
began=$SECONDS
for target in "${targets[@]}"; do
  "$CARGO_FUZZ" fuzz build "${options[@]}" "$target"
done
printf 'fuzz: built in %d s\n' $((SECONDS - began))

# Limits the stack to that of a worker thread, which is smaller than that of the main thread.
ulimit -s 2048
for target in "${targets[@]}"; do
  corpus=$out/corpus/$target seeds=$out/seeds/$target found=$out/found
  mkdir -p "$corpus" "$found"
  inputs=("$@")
  bounds=()
  if [[ ${1:-} =~ ^[0-9]+$ ]]; then
    bash fuzz/seeds.sh "$target" "$seeds"
    inputs=("$corpus" "$seeds" fuzz/regressions)
    bounds=(-max_total_time=$(($1 / ${#targets[@]})) -max_len=8192)
  fi
  if [[ $target == template ]]; then
    bounds+=(-dict=fuzz/handlebars.dict)
  fi
  "$CARGO_FUZZ" fuzz run "${options[@]}" "$target" "${inputs[@]}" -- "${bounds[@]}" \
    -timeout=30 -rss_limit_mb=1024 -artifact_prefix="$found/$target-" -print_final_stats=1 || {
    printf 'fuzz: the input that failed is in target/fuzz/found; make fuzz INPUT=FILE runs it again;\n' >&2
    printf 'fuzz: once the problem is fixed, keep the input in fuzz/regressions under a name that describes the problem\n' >&2
    exit 1
  }
done
