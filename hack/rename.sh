#!/usr/bin/env bash
# Gives the product another name: in all tracked files, in their paths, and in what is generated from them. The API group is a domain that
# the publisher must own (docs/releases.md).
#
#   hack/rename.sh NAME GROUP PREFIX           such as hack/rename.sh signalbook signalbook.example sb
#   RENAME_ONLY=1 hack/rename.sh … [TREE]      changes the files of a checkout, and generates nothing
#
# PREFIX begins the short names of kubectl: PREFIXp are Pipelines, PREFIXn Notifications, PREFIXps PipelineSets. The present names are read from
# the sources, so the script can run again, and in a checkout of an older version.
set -euo pipefail
name=${1:?the name is missing} group=${2:?the API group is missing} prefix=${3:?the prefix of short names is missing}
cd "${4:-$(dirname "${BASH_SOURCE[0]}")/..}"

if [[ ! $name =~ ^[a-z][a-z0-9]{2,19}$ || ! $group =~ ^[a-z][a-z0-9]*([.][a-z][a-z0-9]*)+$ || ! $prefix =~ ^[a-z]{2}$ ]]; then
  printf 'rename: NAME has 3 to 20 lower-case letters and digits, GROUP is a domain without hyphens, PREFIX has two letters\n' >&2
  exit 1
fi
constant() { sed -nE "s/^ *$1 = \"([^\"]+)\".*/\1/p" "$2" | head -n 1; }
old_name=$(constant default-run Cargo.toml)
api=crates/api/src
[[ -d $api ]] || api=src/api
old_group=$(constant group "$api/notification.rs")
old_short=$(for kind in pipeline notification pipeline_set; do constant shortname "$api/$kind.rs"; done)
reversed() { tr . '\n' <<<"$1" | tac | paste -sd .; }

# In texts of other languages, a dot of the group can follow backslashes. They stay.
program=$(
  from=${old_group//./'(\\*)[.]'}
  printf 's/\\b%s\\b/%s/g\n' "$(reversed "$old_group" | sed 's/[.]/[.]/g')" "$(reversed "$group")"
  printf 's/\\b%s\\b/%s/g\n' "$from" "${group//./'\1.'}"
  for short in $old_short; do
    case $short in *ps) new=${prefix}ps ;; *n) new=${prefix}n ;; *) new=${prefix}p ;; esac
    printf 's/\\b%s\\b/%s/g\n' "$short" "$new"
  done
  printf 's/%s/%s/g\ns/%s/%s/g\ns/%s/%s/g\n' "$old_name" "$name" "${old_name^}" "${name^}" "${old_name^^}" "${name^^}"
)
printf 'rename: %s (%s) becomes %s (%s)\n' "$old_name" "$old_group" "$name" "$group"
# The history keeps its names, except in links to what is renamed.
git ls-files -z -- ':!CHANGELOG.md' | xargs -0 grep -lIZ '' -- | xargs -0 sed -Ei "$program"
sed -Ei ":again; s/(\]\([^)]*)$old_name/\1$name/; t again" CHANGELOG.md
git ls-files | while IFS= read -r path; do
  new=$(sed -E "$program" <<<"$path")
  [[ $new == "$path" ]] || { mkdir -p "${new%/*}" && git mv "$path" "$new"; }
done
# The spelling checker must know the new name, and the old one in the changelog.
words=hack/prose/vocabulary.txt
printf '%s\n' "$old_name" "$name" >>"$words"
LC_ALL=C sort -fuo "$words" "$words"
find . -type d -empty -not -path './.git*' -not -path './target*' -delete
[[ -z ${RENAME_ONLY:-} ]] || exit 0
if git grep -qiI "$old_name" -- ':!CHANGELOG.md' ":!$words"; then
  printf 'rename: the old name is still in these lines:\n' >&2
  git grep -niI "$old_name" -- ':!CHANGELOG.md' ":!$words" >&2
  exit 1
fi
cargo fmt --all
make crds receivers reference chart snapshots
