#!/usr/bin/env bash
# Writes the first inputs of a target into a folder. The target `template` gets the built-in templates, and the examples
# of docs/templates.md and docs/template-gallery.md. The target `address` gets the addresses of
# tests/data/addresses.txt, and times. targets/TARGET.rs describes the format of an input.
#
#   fuzz/seeds.sh TARGET FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=$1 folder=$2
rm -rf "$folder"
mkdir -p "$folder"

if [[ $target == address ]]; then
  {
    sed -n 's/^\(public\|other\) //p' tests/data/addresses.txt
    printf '%s\n' 0x7f.1 017700000001 127.0.0.1. %31%32%37.0.0.1 ①②⑦.0.0.1 127。0。0。1 localhost 10.0.0.1@127.0.0.1 \
      https://127.1:8443/x 3 99999999999999999999 'Sun, 06 Nov 1994 08:49:40 GMT' 'Sunday, 06-Nov-94 08:49:40 GMT' \
      'Sun Nov  6 08:49:40 1994'
  } | awk -v folder="$folder" '{ printf "%s", $0 > (folder "/" NR); close(folder "/" NR) }'
  printf 'fuzz: %d seeds\n' "$(find "$folder" -type f | wc -l)"
  exit
fi

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
  # The path and the headers of the template.
  sed -n "s/^\(path\|  [A-Za-z-]*\): *[\"']\{0,1\}\(.*{{.*[^\"']\)[\"']\{0,1\}$/\2/p" "$metadata" | seed "$name-lines" text/plain
done

# Code blocks and inline code that contain a template tag.
awk -v folder="$folder" '
  /^ *```/ { if (inside && block ~ /{{/) { n++; printf "%s", block > (folder "/.block-" n) } inside = !inside; block = ""; next }
  inside { block = block $0 "\n"; next }
  { while (match($0, /`[^`]*{{[^`]*`/)) { n++; printf "%s", substr($0, RSTART + 1, RLENGTH - 2) > (folder "/.block-" n); $0 = substr($0, RSTART + RLENGTH) } }
' docs/templates.md docs/template-gallery.md
for block in "$folder"/.block-*; do
  case $(head -c 1 "$block") in
    '{') seed "docs${block##*/.block}-json" application/json <"$block" ;;
  esac
  seed "docs${block##*/.block}" text/plain <"$block"
  rm "$block"
done
printf 'fuzz: %d seeds\n' "$(find "$folder" -type f | wc -l)"
