#!/usr/bin/env bash
# Builds a tool of the checks from its Go module, and prints the path of the program. hack/tools/NAME/go.mod has the
# version. Each version is built once, and kept in the user's cache folder.
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
[[ -n $package && -n $version ]] || { printf '%s: go.mod has no tool line, or no version for it\n' "$name" >&2; exit 1; }
folder=${XDG_CACHE_HOME:-$HOME/.cache}/relaybook/tools/$name-${version#v}/bin
if [[ ! -x $folder/$name ]]; then
  printf '%s: building %s into %s, once; about 2 minutes on two cores\n' "$name" "$version" "$folder" >&2
  mkdir -p "$folder"
  # Build in a temporary folder and rename the result, so that other processes never see an incomplete program.
  work=$(mktemp -d "$folder/.build-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  CGO_ENABLED=0 GOWORK=off go build -mod=readonly -trimpath -ldflags '-s -w' -o "$work/$name" "$package" >&2
  mv -f "$work/$name" "$folder/$name"
fi
printf '%s\n' "$folder/$name"
