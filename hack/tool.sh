#!/usr/bin/env bash
# Builds a program that the checks of this repository use from its Go module, once, and prints where it is. Its version is that
# of hack/tools/NAME/go.mod; what is built is kept in the user's cache folder, by version.
#
#   hack/tool.sh helm
set -euo pipefail
name=${1:?usage: hack/tool.sh NAME}
cd "$(dirname "${BASH_SOURCE[0]}")/tools/$name"

package=$(awk '$1 == "tool" { print $2 }' go.mod)
version=$(awk -v package="$package" '
  { sub(/^require /, "") }
  index(package, $1 "/") == 1 && length($1) > longest { longest = length($1); version = $2 }
  END { print version }
' go.mod)
[[ -n $package && -n $version ]] || { printf '%s: go.mod says no tool, or no version of it\n' "$name" >&2; exit 1; }
folder=${XDG_CACHE_HOME:-$HOME/.cache}/pennant/tools/$name-${version#v}/bin
if [[ ! -x $folder/$name ]]; then
  printf '%s: building %s into %s, once; about 2 minutes on two cores\n' "$name" "$version" "$folder" >&2
  mkdir -p "$folder"
  # Beside its place and renamed, so that nobody ever sees half a one.
  work=$(mktemp -d "$folder/.build-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  CGO_ENABLED=0 GOWORK=off go build -mod=readonly -trimpath -ldflags '-s -w' -o "$work/$name" "$package" >&2
  mv -f "$work/$name" "$folder/$name"
fi
printf '%s\n' "$folder/$name"
