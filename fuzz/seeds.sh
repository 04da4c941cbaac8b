#!/usr/bin/env bash
# Writes the first inputs of a target into a folder. The target `template` gets the built-in templates, and the examples
# of docs/templates.md and docs/template-gallery.md. The target `address` gets the addresses of
# tests/data/addresses.txt, and times. The target `setters` gets files with markers in places that are edited and in places
# that are refused. targets/TARGET.rs describes the format of an input.
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

if [[ $target == setters ]]; then
  number=0
  # file REVISION TEXT, with the escapes of printf
  file() {
    number=$((number + 1))
    printf '%s\037%b' "$1" "$2" >"$folder/$number"
  }
  digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  commit=0123456789abcdef0123456789abcdef01234567
  tag='# {"$promotion": "a:b:c:tag"}'
  file 6.5.1 'apiVersion: v2\nspec:\n  chart:\n    version: 6.5.0 §\n    other: 1 # x\n'
  file 1.10 'a: 1 § # more\r\n# x\r\nb: "1" §\r\n---\r\n- x §\r\n- - y §'
  file 1.22.0 "spec:\\n  containers:\\n    - image: r.example.com:5000/web:1.0 $tag\\n      name: 'web' §\\n"
  file "1.2@$digest" "image: web@$digest # {\"\$promotion\": \"a:b:c:digest\"}\\nnewTag: '' $tag\\n"
  file "main@sha1:$commit" "ref:\\n  commit: $commit # {\"\$promotion\": \"a:b:c:commit\"}\\n"
  for text in 'a: {b: 1, c: 2} §' 'a: [\n  1 §\n]' 'a: |\n  b: 1 §' 'a: | §\n  b' 'a: &x 1 §\nb: *x' 'a: *x §' 'a: !!str 1 §' 'a:\n\tb: 1 §' \
    'a: §' '§' 'a: "x\n  y" §' 'a: &x\n  b: 1 §\nc:\n  <<: *x' '? a §\n: b §' '\0357\0273\0277a: 1 §' 'a: x#§' "a: 'it''s' §" 'a: 1 § §' \
    '%%YAML 1.1\n---\na: yes §' 'a: 1\rb: 2 §\r' 'a: .nan\nb: .inf §' '- §\n- ~ §' 'a: 1 # {$promotion: a:b:c}'; do
    file '*x: "y' "$text\\n"
  done
  printf 'fuzz: %d seeds\n' "$number"
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
