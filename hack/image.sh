#!/usr/bin/env bash
# The image and its parts. The Dockerfile and the check of an empty root build by this file too, so all have the same flags.
#
#   hack/image.sh binary FOLDER     builds the static program into FOLDER/pennant; PROFILE=dev: without optimisation
#   hack/image.sh root FOLDER       lays out all files of the image in FOLDER, the program among them
#   hack/image.sh build             builds the image pennant:VERSION by docker, podman or buildah, whichever is there
#   hack/image.sh archive           makes target/image/pennant.tar, an OCI archive, by buildah and out of what is on this machine:
#                                   no base image is fetched. BINARY=FILE is a static program that is there already
#
# VERSION, REVISION and SOURCE_DATE_EPOCH say what it is; they default to those of the last commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  printf 'image: %s\n' "$*" >&2
  exit 1
}

version() { sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml; }
VERSION=${VERSION:-$(version)}
REVISION=${REVISION:-$(git describe --always --abbrev=40 --exclude='*' --dirty 2>/dev/null || echo unknown)}
# An empty word, as an unset build argument is one, is no time.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

# paths OPTION TARGET-FOLDER: with that option of a compiler, has the paths of this machine replaced by others; one a line.
paths() {
  local sysroot commit registry home=${CARGO_HOME:-$HOME/.cargo}
  sysroot=$(rustc --print sysroot)
  commit=$(rustc -vV | sed -n 's/^commit-hash: //p')
  printf -- "$1=%s\n" "$PWD=/pennant" "$2=/target"
  # rustc writes where the library's sources are installed, if they are.
  printf -- "$1=%s\n" "$sysroot/lib/rustlib/src/rust=/rustc/$commit"
  # One folder for each registry; its name is made of the address.
  for registry in "$home"/registry/src/*/; do printf -- "$1=%s\n" "${registry%/}=/crates"; done
}

# The second: random numbers by the system call. By itself the crate looks for it in the shared C library, finds none, and opens
# /dev/urandom instead.
static=('-Ctarget-feature=+crt-static' '--cfg=getrandom_backend="linux_getrandom"')

binary() {
  local out=$1 host folder profile=${PROFILE:-release} target=${CARGO_TARGET_DIR:-$PWD/target}
  host=$(rustc -vV | sed -n 's/^host: //p')
  [[ $host == *-linux-* ]] || fail "a static program is made on Linux; here, build with the Dockerfile"
  [[ $target == /* ]] || target=$PWD/$target
  if [[ $profile == dev ]]; then folder=debug; else folder=$profile; fi
  # The folders of the registry are there once it has been fetched.
  cargo fetch --locked --quiet --target "$host"
  # Naming the target keeps the flags away from build scripts and macros, which cannot be static. mimalloc records when it was
  # compiled. With the commit's time, it would have to be compiled again for each.
  env CARGO_INCREMENTAL=0 SOURCE_DATE_EPOCH=0 \
    CARGO_ENCODED_RUSTFLAGS="$({ printf '%s\n' "${static[@]}"; paths --remap-path-prefix "$target"; } | paste -sd $'\x1f' -)" \
    "CFLAGS_${host//-/_}=${CFLAGS:-} $(paths -ffile-prefix-map "$target" | paste -sd ' ' -)" \
    cargo build --locked --bin pennant --profile "$profile" --target "$host" --target-dir "$target"
  mkdir -p "$out"
  # Not over a program that may be running.
  rm -f "$out/pennant"
  cp "$target/$host/$folder/pennant" "$out/pennant"
}

# root FOLDER: exactly the files of the image. The times are fixed here, for not every engine can.
root() {
  local out=$1 authorities=${CERTIFICATES:-/etc/ssl/certs/ca-certificates.crt}
  [[ ! -e $out || -z $(ls -A "$out") ]] || fail "$out is not empty"
  [[ -s $authorities ]] || fail "no certificate authorities in $authorities; CERTIFICATES names another file"
  # An empty folder, where users can mount their own CA certificates.
  mkdir -p "$out/etc/ssl/certs" "$out/etc/pennant/ca"
  if [[ -n ${BINARY:-} ]]; then
    cp "$BINARY" "$out/pennant"
  else
    binary "$out"
  fi
  cp -L "$authorities" "$out/etc/ssl/certs/ca-certificates.crt"
  # Said, not left to the C library's default; it names only what is built into the program.
  printf 'hosts: files dns\n' >"$out/etc/nsswitch.conf"
  chmod 0555 "$out/pennant"
  find "$out" -type d -exec chmod 0755 {} +
  find "$out/etc" -type f -exec chmod 0444 {} +
  find "$out" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# Where the sources are, if that is an address which others can open.
source_address() { git remote get-url origin 2>/dev/null | sed -nE 's#^(https://)([^@/]*@)?(.*)$#\1\3#p' | sed 's/\.git$//'; }

labels() {
  printf -- '--build-arg\n%s\n' "VERSION=$VERSION" "REVISION=$REVISION" "SOURCE=${SOURCE-$(source_address)}" \
    "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH" ${RUST:+"RUST=$RUST"}
}

engine() {
  local engine
  if docker info >/dev/null 2>&1; then
    echo docker
    return
  fi
  for engine in podman buildah; do
    if command -v "$engine" >/dev/null; then
      echo "$engine"
      return
    fi
  done
  fail 'neither docker (with its daemon), podman nor buildah is there'
}

build() {
  local with arguments
  with=$(engine)
  mapfile -t arguments < <(labels)
  # Docker reads the time from the build argument; the others need an option.
  [[ $with == docker ]] || arguments+=(--timestamp "$SOURCE_DATE_EPOCH" --format oci)
  "$with" build "${arguments[@]}" --tag "pennant:$VERSION" .
}

# The last stage of the Dockerfile, over the files that were laid out here in place of the stage before.
archive() {
  local work arguments out=target/image/pennant.tar
  command -v buildah >/dev/null || fail 'this takes buildah'
  mkdir -p target/image
  work=$(mktemp -d "$PWD/target/image/work-XXXXXX")
  # shellcheck disable=SC2064 # as it is now
  trap "rm -rf '$work'" EXIT
  root "$work/root/image"
  sed -n '/^FROM scratch/,$p' Dockerfile >"$work/Dockerfile"
  mapfile -t arguments < <(labels)
  # Storage of its own, so that no daemon, no root and no other image has a part in it.
  local buildah=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs)
  "${buildah[@]}" build --quiet --isolation chroot --format oci --timestamp "$SOURCE_DATE_EPOCH" --identity-label=false \
    "${arguments[@]}" --build-context build="$work/root" --file "$work/Dockerfile" --tag "pennant:$VERSION" "$work/root" >/dev/null
  "${buildah[@]}" push --quiet --digestfile "$work/digest" "pennant:$VERSION" "oci:$work/layout:pennant:$VERSION"
  # Not by buildah, which writes down when it did.
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    -C "$work/layout" -cf "$out" .
  printf '%s %s\n' "$out" "$(cat "$work/digest")"
}

case ${1:-} in
  binary) binary "${2:?a folder}" ;;
  root) root "${2:?a folder}" ;;
  build) build ;;
  archive) archive ;;
  *) fail 'see the head of the file' ;;
esac
