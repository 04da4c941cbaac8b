#!/usr/bin/env bash
# Builds Gitea from its Go module, and prints the path of the program. hack/tools/gitea/go.mod has the version. Each version is built once,
# and kept in the user's cache folder, with the files that the program reads: they are in ../static, seen from its folder. Requires Go, and
# a C compiler for SQLite.
#
#   hack/gitea.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/tools/gitea"

say() { printf 'gitea: %s\n' "$*" >&2; }

module=code.gitea.io/gitea
version=$(awk -v module="$module" '$1 == module { print $2 }' go.mod)
[[ -n $version ]] || { say "go.mod has no version of $module"; exit 1; }
folder=${XDG_CACHE_HOME:-$HOME/.cache}/relaybook/tools/gitea-${version#v}
program=$folder/bin/gitea

# One process builds, and others wait for it. Without flock, each builds its own, and the last one stays.
lock() {
  command -v flock >/dev/null || return 0
  exec 9>"$folder/lock"
  local began=$SECONDS
  until flock -w 20 9; do
    say "another process is building Gitea; waiting for it ($((SECONDS - began)) s)"
  done
  # Left by processes that were killed. While we hold the lock, no other process builds.
  rm -rf "$folder"/.build-*
}

# Builds in a temporary folder and renames the results, the program last. So other processes never see an incomplete one.
build() {
  say "building $version into $folder."
  say 'this happens once; on two cores it needs about 4 minutes.'
  work=$(mktemp -d "$folder/.build-XXXXXX")
  compiler=
  trap '[[ -z $compiler ]] || kill "$compiler" 2>/dev/null || true; rm -rf "$work"' EXIT
  trap 'exit 1' INT TERM HUP
  CGO_ENABLED=1 GOWORK=off go build -v -mod=readonly -trimpath -tags 'sqlite sqlite_unlock_notify' \
    -ldflags "-s -w -X main.Version=${version#v}" -o "$work/gitea" "$module" >"$work/log" 2>&1 9>&- &
  compiler=$!
  local began=$SECONDS said=$SECONDS
  while kill -0 "$compiler" 2>/dev/null; do
    if ((SECONDS - said >= 20)); then
      said=$SECONDS
      # With -v, a line without a space is the path of a package that was compiled.
      say "still building: $((SECONDS - began)) s, $(grep -vc ' ' "$work/log" || true) packages compiled"
    fi
    sleep 0.5
  done
  if ! wait "$compiler"; then
    say 'go build failed:'
    grep ' ' "$work/log" | tail -n 40 >&2
    exit 1
  fi
  compiler=

  local source
  source=$(GOWORK=off go list -mod=readonly -m -f '{{.Dir}}' "$module")
  mkdir "$work/static"
  cp -R "$source/options" "$source/public" "$source/templates" "$work/static/"
  chmod -R u+w "$work/static"
  mkdir -p "$folder/bin"
  rm -rf "$folder/static"
  mv "$work/static" "$folder/static"
  mv -f "$work/gitea" "$program"
  say "built in $((SECONDS - began)) s; kept in $folder"
}

if [[ ! -x $program ]]; then
  mkdir -p "$folder"
  lock
  [[ -x $program ]] || build
fi
printf '%s\n' "$program"
