#!/usr/bin/env bash
# Builds the image and its parts. The Dockerfile and hack/image-check.sh also use this script, so all builds have the
# same flags.
#
#   hack/image.sh binary FOLDER     builds the static program as FOLDER/relaybook; PROFILE=dev: without optimisation
#   hack/image.sh root FOLDER       writes all files of the image to FOLDER, including the program
#   hack/image.sh build             builds the image relaybook:VERSION with docker, podman or buildah, the first that is available
#   hack/image.sh archive           builds the OCI archive target/image/relaybook.tar with buildah, from files of this machine:
#                                   no base image is fetched. BINARY=FILE uses an existing static program
#
# VERSION, REVISION and SOURCE_DATE_EPOCH set the labels and the times of files. By default they come from Cargo.toml
# and the last commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  printf 'image: %s\n' "$*" >&2
  exit 1
}

version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml; }
VERSION=${VERSION:-$(version)}
REVISION=${REVISION:-$(git describe --always --abbrev=40 --exclude='*' --dirty 2>/dev/null || echo unknown)}
# An unset build argument is an empty string, which is not a time either.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

# paths OPTION TARGET-FOLDER: prints compiler options that replace the paths of this machine by fixed ones, one a line.
paths() {
  local sysroot commit registry home=${CARGO_HOME:-$HOME/.cargo}
  sysroot=$(rustc --print sysroot)
  commit=$(rustc -vV | sed -n 's/^commit-hash: //p')
  printf -- "$1=%s\n" "$PWD=/relaybook" "$2=/target"
  # If the sources of the standard library are installed, rustc writes their path into the program.
  printf -- "$1=%s\n" "$sysroot/lib/rustlib/src/rust=/rustc/$commit"
  # Each registry has a folder, whose name is derived from its address.
  for registry in "$home"/registry/src/*/; do printf -- "$1=%s\n" "${registry%/}=/crates"; done
}

# The second flag makes the crate `getrandom` use the system call. By default it looks for a function of the shared C
# library, finds none, and opens /dev/urandom instead.
static=('-Ctarget-feature=+crt-static' '--cfg=getrandom_backend="linux_getrandom"')

binary() {
  local out=$1 host folder profile=${PROFILE:-release} target=${CARGO_TARGET_DIR:-$PWD/target}
  host=$(rustc -vV | sed -n 's/^host: //p')
  [[ $host == *-linux-* ]] || fail "a static program can be built only on Linux; on this system, build with the Dockerfile"
  [[ $target == /* ]] || target=$PWD/$target
  if [[ $profile == dev ]]; then folder=debug; else folder=$profile; fi
  # The folders of the registries exist only after a fetch.
  cargo fetch --locked --quiet --target "$host"
  # With an explicit target, the flags do not apply to build scripts and macros, which cannot be static. mimalloc
  # records when it was compiled. With the time of the commit, it would be compiled again for each commit.
  env CARGO_INCREMENTAL=0 SOURCE_DATE_EPOCH=0 \
    CARGO_ENCODED_RUSTFLAGS="$({ printf '%s\n' "${static[@]}"; paths --remap-path-prefix "$target"; } | paste -sd $'\x1f' -)" \
    "CFLAGS_${host//-/_}=${CFLAGS:-} $(paths -ffile-prefix-map "$target" | paste -sd ' ' -)" \
    cargo build --locked --bin relaybook --profile "$profile" --target "$host" --target-dir "$target"
  mkdir -p "$out"
  # Remove the old file first, because the file of a running program cannot be overwritten.
  rm -f "$out/relaybook"
  cp "$target/$host/$folder/relaybook" "$out/relaybook"
}

# root FOLDER: writes exactly the files of the image. It also sets their times, because not every engine can.
root() {
  local out=$1 authorities=${CERTIFICATES:-/etc/ssl/certs/ca-certificates.crt}
  [[ ! -e $out || -z $(ls -A "$out") ]] || fail "$out is not empty"
  [[ -s $authorities ]] || fail "no CA certificates in $authorities; set CERTIFICATES to another file"
  # An empty folder, where users can mount their own CA certificates.
  mkdir -p "$out/etc/ssl/certs" "$out/etc/relaybook/ca"
  if [[ -n ${BINARY:-} ]]; then
    cp "$BINARY" "$out/relaybook"
  else
    binary "$out"
  fi
  cp -L "$authorities" "$out/etc/ssl/certs/ca-certificates.crt"
  # Set explicitly, not left to the default of the C library. It names only sources that are linked into the program.
  printf 'hosts: files dns\n' >"$out/etc/nsswitch.conf"
  chmod 0555 "$out/relaybook"
  find "$out" -type d -exec chmod 0755 {} +
  find "$out/etc" -type f -exec chmod 0444 {} +
  find "$out" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# The address of the repository, if it is an https address, which others can open. It is printed without credentials.
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
  fail 'this requires docker (with a running daemon), podman or buildah'
}

build() {
  local with arguments
  with=$(engine)
  mapfile -t arguments < <(labels)
  # Docker reads the time from the build argument; the others need an option.
  [[ $with == docker ]] || arguments+=(--timestamp "$SOURCE_DATE_EPOCH" --format oci)
  "$with" build "${arguments[@]}" --tag "relaybook:$VERSION" .
}

# Runs only the last stage of the Dockerfile. `root` writes the files that it would get from the first stage.
archive() {
  local work arguments out=target/image/relaybook.tar
  command -v buildah >/dev/null || fail 'this requires buildah'
  mkdir -p target/image
  work=$(mktemp -d "$PWD/target/image/work-XXXXXX")
  # shellcheck disable=SC2064 # expand $work now
  trap "rm -rf '$work'" EXIT
  root "$work/root/image"
  sed -n '/^FROM scratch/,$p' Dockerfile >"$work/Dockerfile"
  mapfile -t arguments < <(labels)
  # Separate storage, so that this requires no daemon and no root, and other images have no effect.
  local buildah=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs)
  "${buildah[@]}" build --quiet --isolation chroot --format oci --timestamp "$SOURCE_DATE_EPOCH" --identity-label=false \
    "${arguments[@]}" --build-context build="$work/root" --file "$work/Dockerfile" --tag "relaybook:$VERSION" "$work/root" >/dev/null
  "${buildah[@]}" push --quiet --digestfile "$work/digest" "relaybook:$VERSION" "oci:$work/layout:relaybook:$VERSION"
  # Not with buildah, which would record the current time.
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    -C "$work/layout" -cf "$out" .
  printf '%s %s\n' "$out" "$(cat "$work/digest")"
}

case ${1:-} in
  binary) binary "${2:?a folder}" ;;
  root) root "${2:?a folder}" ;;
  build) build ;;
  archive) archive ;;
  *) fail 'usage: hack/image.sh binary FOLDER | root FOLDER | build | archive' ;;
esac
