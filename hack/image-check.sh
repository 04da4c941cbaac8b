#!/usr/bin/env bash
# Proves that the program needs only the files of the image. It runs in a read-only root directory with only these
# files, without /proc and /dev, as the user of the Dockerfile. First the commands run that need no cluster, then
# `relaybook run` as in a Pod. It uses a real API server, and receivers with TLS that it resolves by name.
#
#   hack/image-check.sh [FILE]    FILE: an existing static program. By default it is built, without optimisation
#
# Requires Linux, Rust, Go, binutils, util-linux, and either root or the permission to create user namespaces.
set -euo pipefail
self=$(realpath "${BASH_SOURCE[0]}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

LAUNCHER=${LAUNCHER:-$PWD/target/control-plane}
NAME_SERVER=127.53.53.53
# A time zone 13 hours from UTC, in the form that needs no time zone database, to detect times that are not in UTC.
ZONE=HERE-13

say() { printf 'image-check: %s\n' "$*"; }
fail() {
  printf 'image-check: %s\n' "$*" >&2
  exit 1
}

# --- starting and stopping processes ----------------------------------------------------------------------------------

work=${IMAGE_CHECK:-$(mktemp -d)}
log=$work/relaybook.log
pids=()

cleanup() {
  local code=$? pid
  set +e
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
  wait 2>/dev/null
  if ((code != 0)) && [[ -s $log ]]; then
    printf 'The last lines of the log of relaybook:\n' >&2
    tail -n 30 "$log" >&2
    [[ ! -s $work/world.log ]] || { printf 'The last lines of the log of the receivers and the name server:\n' >&2; tail -n 30 "$work/world.log" >&2; }
  fi
  rm -rf "$work"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# --- build, before the namespaces are created, because it may need the network ------------------------------------------

if [[ ${1:-} != in-namespace ]]; then
  chmod 0755 "$work"
  if [[ -n ${1:-} ]]; then cp "$1" "$work/relaybook"; else PROFILE=${PROFILE:-dev} bash hack/image.sh binary "$work"; fi
  # Reduce the size, because the program is copied twice. No one debugs it.
  strip "$work/relaybook"
  (cd hack/image && go build -buildvcs=false -o "$work/world" .)
  # Only root can change the root directory and bind the port of a name server. Other users become root in a namespace.
  ((EUID == 0)) || IMAGE_CHECK=$work exec unshare --user --map-root-user --net --mount bash "$self" in-namespace
fi

# --- running the program ----------------------------------------------------------------------------------------------

user=$(sed -n 's/^USER //p' Dockerfile)
[[ $user =~ ^[1-9][0-9]*:[1-9][0-9]*$ ]] || fail "the USER of the Dockerfile is '$user'; it must be numeric (UID:GID) and not root"
read -ra settings < <(sed -n 's/^ENV //p' Dockerfile)

as_user=(chroot --userspec="$user" --groups= "$work/now")
if [[ ${1:-} == in-namespace ]]; then
  ip link set lo up
  # This namespace has only one user, but a nested namespace can map it to another number.
  as_user=(unshare --user --map-user="${user%:*}" --map-group="${user#*:}" --root "$work/now")
fi

# inside ROOT [NAME=VALUE...] -- ARGUMENTS: replaces this shell by the program, in that root. The environment has only
# the variables of the image and those that are given here.
inside() {
  local root=$1 environment=()
  shift
  while [[ $1 != -- ]]; do
    environment+=("$1")
    shift
  done
  shift
  # The root is mounted read-only in its own mount namespace, so the mount disappears with the process.
  exec unshare --mount bash -c '
    set -e
    mount --bind "$1" "$2"
    mount -o remount,bind,ro,nosuid,nodev "$2"
    shift 2
    exec "$@"' inside "$root" "$work/now" \
    env -i PATH="$PATH" TZ="$ZONE" "${settings[@]}" "${environment[@]}" setpriv --no-new-privs "${as_user[@]}" /relaybook "$@"
}
image() { (inside "$work/image" -- "$@"); }

# await SECONDS WHAT COMMAND...: repeats the command until it succeeds.
await() {
  local limit=$((SECONDS + $1)) what=$2 pid
  shift 2
  until "$@"; do
    for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null || fail "a process ended unexpectedly while the check waited for $what"; done
    ((SECONDS < limit)) || fail "timed out waiting for $what"
    sleep 0.1
  done
}

# same WHAT EXPECTED FOUND
same() { [[ $2 == "$3" ]] || fail "$1: expected
$2
found
$3"; }

# --- the program without a cluster --------------------------------------------------------------------------------------

static() {
  ! readelf --dynamic "$work/relaybook" | grep -E 'NEEDED|RPATH|RUNPATH' || fail 'the program needs shared libraries'
  ! readelf --program-headers --wide "$work/relaybook" | grep INTERP || fail 'the program needs a dynamic linker'
  say "static: no library, no dynamic linker; $(($(stat -c %s "$work/relaybook") / 1048576)) MiB"
}

files() {
  mkdir "$work/now"
  BINARY=$work/relaybook bash hack/image.sh root "$work/image"
  same 'the files of the image' "$(printf '%s\n' etc/nsswitch.conf etc/ssl/certs/ca-certificates.crt relaybook)" \
    "$(cd "$work/image" && find . -not -type d | sed 's#^\./##' | LC_ALL=C sort)"
  say "files: the program, $(grep -c 'BEGIN CERT' "$work/image/etc/ssl/certs/ca-certificates.crt") CA certificates, nsswitch.conf"
}

commands() {
  local lines
  image --help | grep -q '^Usage: relaybook' || fail 'relaybook --help prints no usage'
  lines=$(grep -vhE '^(---|# Generated)' crds/*.yaml | LC_ALL=C sort)
  same 'the CRDs that relaybook crds prints' "$lines" "$(image crds | grep -vE '^(---|# Generated)' | LC_ALL=C sort)"
  image render -f - --allow-http --output json <examples/3-notifications.yaml >"$work/rendered.json"
  grep -q '"trigger": *"Deployed"' "$work/rendered.json" || fail 'relaybook render renders no message for Deployed'
  image lint - <examples/2-pipeline.yaml 2>&1 | grep -q 'no problems' || fail 'relaybook lint finds problems in examples/2-pipeline.yaml'
  say 'commands: --help, crds, render and lint work'
}

# --- the program in a pod -----------------------------------------------------------------------------------------------

start_control_plane() {
  local info
  coproc launcher_io { exec "$LAUNCHER" run --quiet 2>"$work/control-plane.log"; }
  pids+=("$!")
  read -r -t 120 -u "${launcher_io[0]}" info || fail 'the control plane did not start'
  field() { sed -E 's/.*"'"$1"'":"([^"]*)".*/\1/' <<<"$info"; }
  KUBECONFIG=$(field kubeconfig) server=$(field server) kubectl=$(field kubectl)
  export KUBECONFIG
}
kubectl() { "$kubectl" "$@"; }

# The receivers and the name server.
start_world() {
  mkfifo "$work/stdin"
  "$work/world" "$work" "$NAME_SERVER:53" <"$work/stdin" >"$work/world.log" 2>&1 &
  pids+=("$!")
  # The process ends when this script ends for any reason, because its stdin is then closed.
  exec {world_stdin}>"$work/stdin"
  await 60 'the receivers to listen' grep -q '^port' "$work/world.log"
  port=$(sed -n 's/^port //p' "$work/world.log")
}
requests() { sed -n 's/^request \([a-z]*\) .*/\1/p' "$work/world.log" | LC_ALL=C sort; }

# Copies the root of the image and adds what a kubelet adds. /etc/hosts has two of the receivers; only the name server
# knows the other two. The file of CA certificates has the CA of one receiver, and the folder has the CA of another one.
make_pod() {
  local pod=$work/pod account=$work/pod/var/run/secrets/kubernetes.io/serviceaccount
  cp -a "$work/image" "$pod"
  printf '127.0.0.1 localhost\n127.0.0.1 bundle.relaybook.test secret.relaybook.test\n' >"$pod/etc/hosts"
  printf 'search team-a.svc.cluster.local\nnameserver %s\noptions ndots:5\n' "$NAME_SERVER" >"$pod/etc/resolv.conf"
  chmod u+w "$pod/etc/ssl/certs/ca-certificates.crt"
  cat "$work/bundle.pem" >>"$pod/etc/ssl/certs/ca-certificates.crt"
  cp "$work/extra.pem" "$pod/etc/relaybook/ca/extra.crt"
  mkdir -p "$account"
  kubectl config view --raw --minify -o jsonpath='{.users[0].user.token}' >"$account/token"
  kubectl config view --raw --minify -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$account/ca.crt"
  printf relaybook-system >"$account/namespace"
  chmod 0444 "$account"/*
}

notification() { # NAME MORE-OF-THE-ENDPOINT
  printf '%s\n' --- 'apiVersion: relaybook.dev/v1alpha1' 'kind: Notification' "metadata: {name: $1, namespace: team-a}" 'spec:' \
    '  triggers: [{type: Deployed}]' "  endpoint: {url: 'https://$1.relaybook.test:$port/$1'${2:-}}" '  template: {builtin: generic}'
}

apply() {
  image crds | kubectl apply --server-side -f - >/dev/null
  kubectl wait --for=condition=Established crd --all --timeout=30s >/dev/null
  for namespace in relaybook-system team-a; do kubectl create namespace $namespace >/dev/null; done
  kubectl create secret generic authority -n team-a --from-file=ca.crt="$work/secret.pem" >/dev/null
  kubectl create deployment web -n team-a --image=web:1.0.0 >/dev/null
  rolled_out
  {
    printf '%s\n' 'apiVersion: relaybook.dev/v1alpha1' 'kind: Pipeline' 'metadata: {name: web, namespace: team-a}' 'spec:' \
      '  appRef: {apiVersion: apps/v1, kind: Deployment, name: web}' '  environments: [{name: dev, targets: [{namespace: team-a}]}]'
    notification bundle
    notification extra
    notification secret ', tls: {caFrom: {secretKeyRef: {name: authority, key: ca.crt}}}'
    notification stranger
  } | kubectl apply -f - >/dev/null
}

# Does the part of the deployment controller: reports that all replicas of the current generation run.
rolled_out() {
  local generation
  generation=$(kubectl get deployment web -n team-a -o jsonpath='{.metadata.generation}')
  kubectl patch deployment web -n team-a --subresource=status --type=merge -p '{"status": {"observedGeneration": '"$generation"',
    "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1, "conditions": [
    {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
    {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]}}' >/dev/null
}

http_ok() (
  exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
  printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$2" >&3
  read -r -t 2 _ status _ <&3 && [[ $status == 200 ]]
) 2>/dev/null

free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 10000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

start_relaybook() {
  local http address=${server#https://}
  http=$(free_port)
  inside "$work/pod" KUBERNETES_SERVICE_HOST="${address%:*}" KUBERNETES_SERVICE_PORT="${address##*:}" POD_NAME=relaybook-0 \
    POD_NAMESPACE=relaybook-system -- run --http-addr "127.0.0.1:$http" --allow-destination 127.0.0.0/8 \
    >"$log" 2>&1 {world_stdin}>&- &
  relaybook=$!
  pids+=("$relaybook")
  await 60 'the program to be ready' http_ok "$http" /readyz
}

# Checks what the kernel reports about the process.
confined() {
  local status=/proc/$relaybook/status
  grep -qE "^Uid:\s+([0-9]+)\s+\1\s+\1\s+\1$" "$status" || fail 'the program can change its user'
  # In a user namespace, this shell sees another number.
  [[ ${1:-} == in-namespace ]] || same 'the user of the program' "${user%:*}" "$(awk '$1 == "Uid:" { print $2 }' "$status")"
  same 'the capabilities of the program' 0000000000000000 "$(awk '$1 == "CapEff:" { print $2 }' "$status")"
  awk '$5 == "/" && $6 ~ /(^|,)ro(,|$)/ { found = 1 } END { exit !found }' "/proc/$relaybook/mountinfo" || fail 'the root directory of the program is writable'
  # Names have been resolved at this point. For that, the C library could have loaded a library.
  same 'the files that the program has mapped' relaybook "$(awk '$6 ~ "^/" { sub(".*/", "", $6); print $6 }' "/proc/$relaybook/maps" | sort -u)"
}

# delivery NOTIFICATION FIELD
delivery() { kubectl get deliveries -n team-a -l "relaybook.dev/notification=$1" -o jsonpath="{.items[*].status.$2}"; }
told() { [[ $(delivery "$1" outcome) == Delivered ]]; }
refused() { [[ $(delivery stranger attempts) =~ ^[1-9] ]]; }

runs() {
  start_control_plane
  start_world
  make_pod
  apply
  start_relaybook
  kubectl wait --for=condition=Ready -n team-a --timeout=60s pipelines.relaybook.dev,notifications.relaybook.dev --all >/dev/null
  kubectl set image deployment/web web=web:2.0.0 -n team-a >/dev/null
  rolled_out
  for name in bundle extra secret; do await 60 "the delivery to $name" told $name; done
  await 60 'an attempt to send to the stranger' refused
  same 'the receivers that got a request' "$(printf '%s\n' bundle extra secret)" "$(requests)"
  same 'the reason why the stranger got no request' TlsFailed "$(delivery stranger reason)"
  grep -q '^request .*"time":"[^"]*Z"' "$work/world.log" || fail 'the time in the requests is not in UTC'
  same 'the names that the name server was asked for' "$(printf '%s\n' extra.relaybook.test stranger.relaybook.test)" \
    "$(sed -n 's/^name //p' "$work/world.log" | grep '^[a-z]*\.relaybook\.test$' | LC_ALL=C sort -u)"
  confined "$@"
  say 'run: ready; sent to receivers with CA certificates in the bundle, a mounted file and a Secret; refused the stranger'
  say 'names: two from /etc/hosts, two from the name server; no library was loaded'
}

stops() {
  local code=0
  kill -TERM "$relaybook"
  wait "$relaybook" || code=$?
  unset "pids[$((${#pids[@]} - 1))]"
  same 'the exit code after SIGTERM' 0 "$code"
  say 'stop: exited with 0 after SIGTERM'
}

static
files
commands
runs "$@"
stops
say 'all checks passed'
