#!/usr/bin/env bash
# Writes the first inputs of a target into a folder. The target `template` gets the built-in templates, and the examples
# of docs/templates.md and docs/template-gallery.md. The target `address` gets the addresses of
# tests/data/addresses.txt, and times. The target `setters` gets files with markers in places that are edited and in places
# that are refused. The target `git` gets the answers of Git for a small repository. The target `convert` gets the inputs of the tests of Flux,
# and conditions, templates and selectors of Argo CD. targets/TARGET.rs describes the format of an input.
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

if [[ $target == convert ]]; then
  cp crates/tools/src/convert/testdata/*.yaml "$folder"
  rm "$folder"/*.out.yaml
  number=0
  # parts CONDITION TEMPLATE SELECTOR
  parts() {
    number=$((number + 1))
    printf '%s\037%s\037%s' "$@" >"$folder/argocd-$number"
  }
  failed="app.status.operationState != nil and app.status.operationState.phase in ['Error', 'Failed']"
  parts "$failed" '{{.app.metadata.name}} failed: {{.app.status.operationState.message}}' 'team in (red, blue),!quiet'
  parts "not (app.status.health.status != 'Degraded')" '{{if eq .serviceType "slack"}}:x:{{else}}x{{end}} {{ .app.metadata.labels.team | default "-" | upper }}' 'team=red'
  parts "app.status.sync.status == 'OutOfSync' || app.metadata.labels['a.b/c'] matches '^x'" '{"a": {{quote .app.status.sync.revision}}, "b": "{{ trunc 7 .app.status.sync.revision }}"}' 'a!=b'
  parts 'app.metadata.deletionTimestamp != nil' '{{- /* c */ -}}{{range .app.status.conditions}}x{{end}}{{printf "%s-%v" .context.url .recipient}}{{ternary "a" "b" (contains "x" .app.metadata.name)}}' ''
  printf 'fuzz: %d seeds\n' "$(find "$folder" -type f | wc -l)"
  exit
fi

if [[ $target == git ]]; then
  export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
  export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com
  repository=$(mktemp -d)
  trap 'rm -rf "$repository"' EXIT
  git init -q -b main "$repository"
  mkdir -p "$repository/apps/prod"
  printf 'version: 1 # x\n' >"$repository/apps/prod/a.yaml"
  seq 200 | sed 's/^/- /' >"$repository/b.yml"
  git -C "$repository" add -A
  git -C "$repository" commit -qm one
  sed -i 's/^- 7$/- seven/' "$repository/b.yml"
  git -C "$repository" commit -qam two
  head=$(git -C "$repository" rev-parse HEAD)
  # line TEXT: a packet line
  line() { printf '%04x%s' $((${#1} + 4)) "$1"; }
  separate() { printf '\377\000\377'; }
  # pack OPTION...: the objects that these options of rev-list name
  pack() {
    printf '\376'
    git -C "$repository" rev-list --objects "$@" HEAD | git -C "$repository" pack-objects -q --stdout --delta-base-offset
  }
  for filter in blob:none blob:limit=1m; do
    {
      line 'version 2' && line 'ls-refs=unborn' && line 'fetch=shallow filter' && line 'object-format=sha1' && printf 0000
      separate
      line "$head HEAD" && line "$head refs/heads/main" && printf 0000
      separate
      pack --max-count=1 --filter="$filter"
      separate
      pack
      separate
      pack --filter=tree:0
      separate
      printf '%04x%s\0%s' $((${#head} + 17 + 1 + 31)) "$head refs/heads/main" ' report-status side-band-64k' && printf 0000
      separate
      line 'unpack ok' && line 'ok refs/heads/main' && printf 0000
    } >"$folder/${filter%%:*}-${filter##*[:=]}"
  done
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
