#!/usr/bin/env bash
# Fuzzes each target for its share of so many seconds: fuzz/run.sh SECONDS, or tries inputs again, with each target:
# fuzz/run.sh FILE... What is learned stays in target/fuzz/corpus. CARGO_FUZZ names the program, of the version in the Makefile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

: "${CARGO_FUZZ:=cargo-fuzz}"
out=$PWD/target/fuzz
targets=(template address)
# Stable Rust has no sanitizers, and safe Rust little for them to find: bounds, panics and the target's own checks are enough.
# `--dev` for the profile in Cargo.toml, which is quick to compile.
# Comparisons are not traced: that costs more tries than it saves, since the words of templates are in the dictionary.
options=(--dev --sanitizer none --no-trace-compares --fuzz-dir "$PWD/fuzz" --target-dir "$out")

# What was locked is what is built, which cargo-fuzz itself does not insist on.
cargo fetch --quiet --locked --manifest-path fuzz/Cargo.toml
printf 'fuzz: compiling; with nothing cached that takes about 5 minutes on two cores\n'
began=$SECONDS
for target in "${targets[@]}"; do
  "$CARGO_FUZZ" fuzz build "${options[@]}" "$target"
done
printf 'fuzz: built in %d s\n' $((SECONDS - began))

# The stack of a worker thread, which is smaller than that of a main thread.
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
    -timeout=10 -rss_limit_mb=1024 -artifact_prefix="$found/$target-" -print_final_stats=1 || {
    printf 'fuzz: the input that failed is in target/fuzz/found; try it again with make fuzz INPUT=FILE,\n' >&2
    printf 'fuzz: and once it is mended, keep it in fuzz/regressions under a name that says what it was\n' >&2
    exit 1
  }
done
