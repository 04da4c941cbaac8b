#!/usr/bin/env bash
# Installs the program as a plugin of kubectl with the real krew: from an archive and a manifest as docs/releases.md describes. Runs the plugin
# on a real API server, and uninstalls it. It needs no network, because krew gets the manifest and the archive as files.
#
#   hack/krew-check.sh [FILE]    FILE: an existing program. By default it is built, without optimisation
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'krew-check: %s\n' "$*"; }
fail() {
  say "$*" >&2
  exit 1
}
work=$(mktemp -d)
launcher_pid=''
cleanup() {
  local code=$?
  [[ -z $launcher_pid ]] || { kill "$launcher_pid" && wait "$launcher_pid"; } 2>/dev/null || true
  ((code == 0)) || tail -n 30 "$work"/*.log >&2 2>/dev/null
  rm -rf "$work"
  exit "$code"
}
trap cleanup EXIT

# --- the archives and the manifest --------------------------------------------------------------------------------------

program=${1:-$(bash hack/program.sh)}
krew=$(bash hack/tool.sh krew)
version=$(awk -F '"' '/^version = / { print $2; exit }' Cargo.toml)
mkdir -p "$work"/{this,other,archives,bin,krew/index}
strip -o "$work/this/relaybook" "$program"
# The archives of other platforms are placeholders. If krew took one of their SHA-256, it would refuse the archive of this platform.
: >"$work/other/relaybook"
archive=$work/archives/relaybook-$version-$(go env GOHOSTOS)-$(go env GOHOSTARCH).tar.gz
for folder in other this; do cp LICENSE "$work/$folder"; done
for platform in {linux,darwin}-{amd64,arm64}; do
  tar -czf "$work/archives/relaybook-$version-$platform.tar.gz" -C "$work/other" relaybook LICENSE
done
tar -czf "$archive" -C "$work/this" relaybook LICENSE
site=https://example.com
node hack/release/krew.mjs --version "$version" --url "$site/v$version" --homepage "$site" "$work/archives" >"$work/relaybook.yaml"
sed -E "s/( sha256: ).*/\1$(printf 'f%.0s' {1..64})/" "$work/relaybook.yaml" >"$work/wrong.yaml"

# --- a control plane with a Pipeline ------------------------------------------------------------------------------------

coproc launcher_io { exec "${LAUNCHER:-target/control-plane}" run --quiet 2>"$work/control-plane.log"; }
launcher_pid=$!
read -r -t 120 -u "${launcher_io[0]}" info || fail 'the control plane did not start'
field() { sed -E 's/.*"'"$1"'":"([^"]*)".*/\1/' <<<"$info"; }
export KUBECONFIG KREW_ROOT=$work/krew KREW_NO_UPGRADE_CHECK=1
KUBECONFIG=$(field kubeconfig)
PATH=$KREW_ROOT/bin:$work/bin:$(dirname "$(field kubectl)"):$PATH
"$program" crds | kubectl apply --server-side -f - >/dev/null
kubectl wait --for=condition=Established crd --all --timeout=30s >/dev/null
kubectl create namespace team-a >/dev/null
kubectl apply -f examples/2-pipeline.yaml >/dev/null

# --- krew ---------------------------------------------------------------------------------------------------------------

ln -s "$krew" "$work/bin/kubectl-krew"
# krew uninstalls nothing while the folder of its indexes is empty. It ignores files there.
: >"$KREW_ROOT/index/none"
krew() { kubectl krew "$@" >>"$work/krew.log" 2>&1; }
absent() { [[ ! -e $KREW_ROOT/store/relaybook && ! -L $KREW_ROOT/bin/kubectl-relaybook ]] || fail "$1"; }

! krew install --manifest "$work/wrong.yaml" --archive "$archive" || fail 'krew accepts an archive with another SHA-256'
grep -q 'checksum does not match' "$work/krew.log" || fail 'krew refuses a wrong SHA-256 for another reason'
absent 'krew has installed a refused archive'
krew install --manifest "$work/relaybook.yaml" --archive "$archive" || fail 'krew does not install the archive'
[[ $(kubectl relaybook version --client) =~ ^program\ +"$version"$ ]] || fail 'kubectl relaybook version prints another version'
[[ $(kubectl relaybook status --help) == *'Usage: kubectl relaybook status'* ]] || fail 'the plugin has another name in its help'
kubectl relaybook status -n team-a >"$work/status.log"
grep -qE '^web +dev ' "$work/status.log" || fail 'kubectl relaybook status does not show the Pipeline'
krew uninstall relaybook || fail 'krew does not uninstall the plugin'
absent 'krew has left files of the plugin'
say 'krew installs, runs and uninstalls the plugin, and refuses a wrong SHA-256'
