#!/usr/bin/env bash
# Makes the first inputs of the fuzzer, fuzz/seeds.sh FOLDER: the built-in templates, and the examples of docs/templates.md.
# The form of an input is in targets/template.rs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=$1
rm -rf "$folder"
mkdir -p "$folder"

# seed NAME CONTENT_TYPE <TEMPLATE
seed() {
  local letter
  case $2 in
    application/json*) letter=a ;;
    text/plain*) letter=b ;;
    text/html*) letter=c ;;
    application/x-www-form-urlencoded*) letter=d ;;
    *+json*) letter=e ;;
    *) letter=f ;;
  esac
  {
    printf '%s' "$letter"
    cat
    printf '\037a "b" <c> & *d*\né\037main@sha1:5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c\037team-a\037{{pipeline.name}}: {{type}}'
  } >"$folder/$1"
}

for body in templates/*.hbs; do
  metadata=${body%.hbs}.yaml
  name=$(basename "$body" .hbs)
  type=$(sed -n 's/^contentType: *//p' "$metadata")
  seed "$name" "${type:-application/json}" <"$body"
  # Path and headers.
  sed -n "s/^\(path\|  [A-Za-z-]*\): *[\"']\{0,1\}\(.*{{.*[^\"']\)[\"']\{0,1\}$/\2/p" "$metadata" | seed "$name-lines" text/plain
done

# Blocks of code, and code within lines, that hold a tag.
awk -v folder="$folder" '
  /^ *```/ { if (inside && block ~ /{{/) { n++; printf "%s", block > (folder "/.block-" n) } inside = !inside; block = ""; next }
  inside { block = block $0 "\n"; next }
  { while (match($0, /`[^`]*{{[^`]*`/)) { n++; printf "%s", substr($0, RSTART + 1, RLENGTH - 2) > (folder "/.block-" n); $0 = substr($0, RSTART + RLENGTH) } }
' docs/templates.md
for block in "$folder"/.block-*; do
  case $(head -c 1 "$block") in
    '{') seed "docs${block##*/.block}-json" application/json <"$block" ;;
  esac
  seed "docs${block##*/.block}" text/plain <"$block"
  rm "$block"
done
printf 'fuzz: %d seeds\n' "$(find "$folder" -type f | wc -l)"
