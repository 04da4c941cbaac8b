#!/usr/bin/env bash
# Upgrades Relaybook under load, one replica after the other, and then downgrades it. Fails if a delivery is lost,
# repeated or out of order, or if a test of a notification comes twice or as a real message. The old version is
# REVISION. By default it is the last tag or, if there is no tag, the commit before this one. It is built in a separate
# work tree, with the dependencies that are already built for tests.
#
#   hack/upgrade.sh [REVISION]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}

before=${1:-$(git describe --tags --abbrev=0 HEAD~1 2>/dev/null || git rev-parse --verify --quiet HEAD~1 || true)}
if [[ -z $before ]]; then
  printf 'upgrade: this clone has no tag and no earlier commit; name a revision, or fetch more commits\n' >&2
  exit 1
fi
commit=$(git rev-parse --short "$before^{commit}")
tree=$PWD/target/upgrade/tree
program=$PWD/target/upgrade/relaybook-$commit
if [[ ! -x $program ]]; then
  printf 'upgrade: building %s, which takes a minute or two\n' "$commit"
  git worktree prune
  rm -rf "$tree"
  mkdir -p "${tree%/*}"
  trap 'git worktree remove --force "$tree" >/dev/null 2>&1 || true' EXIT
  git worktree add --quiet --detach --force "$tree" "$commit"
  # A version with another name is built with this one, as after the move of docs/upgrading.md.
  name=$(sed -nE 's/^default-run = "(.*)"/\1/p' Cargo.toml)
  if ! grep -q "^default-run = \"$name\"" "$tree/Cargo.toml"; then
    read -r group prefix < <(sed -nE 's/^ *group = "(.*)",/\1/p; s/^ *shortname = "(..)n",/\1/p' crates/api/src/notification.rs | paste -sd ' ')
    RENAME_ONLY=1 bash hack/rename.sh "$name" "$group" "$prefix" "$tree"
  fi
  (cd "$tree" && CARGO_TARGET_DIR=$OLDPWD/target $cargo build --locked --quiet --bin relaybook --test architecture)
  cp target/debug/relaybook "$program"
  # The build has replaced the crates and the program of this version in target/debug. Cargo builds them again, because the files that it
  # notes for them are gone. While they exist, it uses the old crates for this version: for a file below target/, it compares only that file.
  git worktree remove --force "$tree"
fi
printf 'upgrade: from %s, under load; about 2 minutes\n' "$commit"
$cargo test --locked --test chaos -- --before "$program" ${SEED:+--seed "$SEED"}
