# What both demos need: output, processes, the builds, the cluster, the controller, the receivers. hack/demo.sh, hack/demo-promotions.sh and
# hack/try.sh read this file, which sets the working directory to the root of the repository.
#
# Every wait is for a condition and has a deadline. Programs such as curl, jq and openssl may not be installed, so nothing needs them.
# RELAYBOOK and RECEIVER are paths of programs to use instead of building them.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
  bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
  bold='' dim='' green='' red='' plain=''
fi
say() { printf '%s\n' "$*"; }
step() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
fail() {
  printf '%sThe demo failed: %s%s\n' "$red" "$*" "$plain" >&2
  exit 1
}

# --- starting and stopping processes ------------------------------------------------------------------------------------

mkdir -p .demo
work=$(mktemp -d "$PWD/.demo/run-XXXXXX")
declare -A pids=() # process ids by name, of the processes that this script has started
logs=(relaybook control-plane) # names of the logs whose end is shown if the demo fails
launcher_pid=''

cleanup() {
  local code=$? name
  set +e
  trap - ERR
  trap '' INT TERM
  stop "${!pids[@]}"
  if [[ -n $launcher_pid ]]; then
    # The launcher stops its children and removes their data. If this script is killed, the end of its stdin stops it.
    kill "$launcher_pid" 2>/dev/null
    wait "$launcher_pid" 2>/dev/null
  fi
  leave_cluster
  rm -f "$work/kubeconfig" # it has credentials
  if ((code == 0 || code == 130)); then
    rm -rf "$work"
  else
    printf 'Logs are kept in %s\n' "$work" >&2
    for name in "${logs[@]}"; do
      if [[ -s $work/$name.log ]]; then
        printf '\n%sThe last lines of %s:%s\n' "$bold" "$work/$name.log" "$plain" >&2
        tail -n 30 "$work/$name.log" >&2
      fi
    done
  fi
  rmdir .demo 2>/dev/null
  exit "$code"
}
leave_cluster() { :; }
trap cleanup EXIT
trap 'printf "%sThe demo failed at: %s%s\n" "$red" "$BASH_COMMAND" "$plain" >&2' ERR
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME COMMAND...: starts the command in the background. Its output goes to a log file.
start() {
  local name=$1
  shift
  "$@" >>"$work/$name.log" 2>&1 </dev/null &
  pids[$name]=$!
}

# stop NAME...: sends SIGTERM, waits up to 5 seconds, then sends SIGKILL.
stop() {
  local name limit
  for name; do kill "${pids[$name]}" 2>/dev/null || true; done
  for name; do
    limit=$((SECONDS + 5))
    while kill -0 "${pids[$name]}" 2>/dev/null && ((SECONDS < limit)); do sleep 0.1; done
    kill -9 "${pids[$name]}" 2>/dev/null || true
    wait "${pids[$name]}" 2>/dev/null || true
    unset "pids[$name]"
  done
}

# await SECONDS WHAT COMMAND...: repeats the command until it succeeds.
await() {
  local limit=$((SECONDS + $1)) what=$2 name
  shift 2
  until "$@"; do
    for name in "${!pids[@]}"; do
      kill -0 "${pids[$name]}" 2>/dev/null || fail "$name ended unexpectedly while the demo waited for $what"
    done
    ((SECONDS < limit)) || fail "timed out waiting for $what"
    sleep 0.1
  done
}

free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 10000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

# http_ok PORT PATH: succeeds if the status is 200. It does not use curl, which may not be installed.
http_ok() (
  exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
  printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$2" >&3
  read -r -t 2 _ status _ <&3 && [[ $status == 200 ]]
) 2>/dev/null

# --- what is built and started ------------------------------------------------------------------------------------------

# building NAME COMMAND...: builds in the background, and leaves the exit code in a file. `wait` would not do: on a system with few process
# IDs, bash forgets the exit code when one of its later processes gets the same ID.
building() {
  local name=$1
  shift
  {
    local code=0
    "$@" || code=$?
    echo "$code" >"$work/$name.code"
  } &
  pids[$name]=$!
}

# built NAME WHAT: waits for a build, and says every 20 seconds that it still runs.
built() {
  local began=$SECONDS said=$SECONDS
  until [[ -s $work/$1.code ]]; do
    if ((SECONDS - said >= 20)); then
      said=$SECONDS
      say "  still building $2: $((SECONDS - began)) s"
    fi
    sleep 0.2
  done
  [[ $(<"$work/$1.code") == 0 ]] || fail "$2 could not be built"
  unset "pids[$1]"
}

# build: builds the programs. The variables RELAYBOOK, RECEIVER and launcher are their paths.
build() {
  if [[ ${CLUSTER:-} != current ]]; then
    launcher=$work/control-plane
    (cd hack/control-plane && go build -o "$launcher" .)
    # In parallel with the Rust build, because both have parts that use only one core.
    building control-plane "$launcher" build >/dev/null
  fi
  # Where the tests were compiled, their dependencies are there. A new clone compiles them without optimisation, which needs half of the time.
  local target=${CARGO_TARGET_DIR:-target} profile=demo
  [[ -d $target/debug/deps ]] && profile=dev
  if [[ -z ${RELAYBOOK:-} || -z ${RECEIVER:-} ]]; then
    say 'Building Relaybook without optimisation. The first time, this takes some minutes.'
    building cargo cargo build --quiet --locked --bin relaybook --profile "$profile"
    (cd hack/receiver && go build -buildvcs=false -o "$work/receiver" .)
    built cargo Relaybook
  fi
  [[ ${CLUSTER:-} == current ]] || built control-plane 'the control plane'
  RELAYBOOK=${RELAYBOOK:-$target/${profile/dev/debug}/relaybook}
  # The demos also run it in other folders.
  RELAYBOOK=$(cd "$(dirname "$RELAYBOOK")" && pwd)/$(basename "$RELAYBOOK")
  RECEIVER=${RECEIVER:-$work/receiver}
}

# launch: starts a control plane, and sets KUBECONFIG and PATH for kubectl.
launch() {
  coproc launcher_io { exec "$launcher" run --rollouts --quiet 2>"$work/control-plane.log"; }
  launcher_pid=$!
  read -r -t 120 -u "${launcher_io[0]}" info || fail 'the control plane did not start'
  KUBECONFIG=$(field kubeconfig)
  export KUBECONFIG
  PATH=$(dirname "$(field kubectl)"):$PATH
  server=$(field server)
}

# start_control_plane: starts a control plane with the CRDs and the namespaces.
start_control_plane() {
  launch
  "$RELAYBOOK" crds | kubectl apply --server-side -f - >/dev/null
  kubectl wait --for=condition=Established crd --all --timeout=30s >/dev/null
  kubectl create namespace relaybook-system >/dev/null
  kubectl create namespace team-a >/dev/null
}
# field NAME: prints what the launcher says about the control plane.
field() { sed -E 's/.*"'"$1"'":"([^"]*)".*/\1/' <<<"$info"; }

# What the demo and `make try` use. For CLUSTER=current, hack/demo-current.sh sets all of it again, and defines leave_cluster again.
cluster='A Kubernetes control plane'
image=web v1=1.0.0 v2=2.0.0 v3=3.0.0 v4=4.0.0 v5=5.0.0 # of the application; v3 breaks
node=node-0 v3_node=no-such-node                       # of its pods
rollout_limit=60                                       # in seconds
check_cluster() { :; }
enter_cluster() {
  start_control_plane
  kubectl apply -f examples/1-app >/dev/null
}
case ${CLUSTER:-} in
  '') ;;
  current) source hack/demo-current.sh ;;
  *) fail "CLUSTER is $CLUSTER; it can only be current" ;;
esac

# rolled_out ENVIRONMENT: waits until the Deployment has rolled out there.
rolled_out() { kubectl rollout status deployment/web -n "web-$1" --timeout="${rollout_limit}s" >/dev/null; }

# start_relaybook: starts the controller on the ports http_port and hooks_port, and waits until it is ready.
start_relaybook() {
  start relaybook "$RELAYBOOK" run --namespace relaybook-system --http-addr "127.0.0.1:$http_port" \
    --hooks-addr "127.0.0.1:$hooks_port" --allow-http --allow-destination 127.0.0.0/8
  await 60 'the controller to be ready' http_ok "$http_port" /readyz
}

# start_receiver NAME PORT ARGUMENTS...: starts a receiver, and waits until it listens. port_of prints its port.
start_receiver() {
  local name=$1 port=$2
  shift 2
  : >"$work/$name.log"
  start "$name" "$RECEIVER" --port "$port" --record "$work/$name.tsv" "$@"
  await 10 "the receiver $name to listen" grep -q '^listening' "$work/$name.log"
}
port_of() { sed -n 's/^listening on .*://p' "$work/$1.log" | head -n 1; }

# --- the receivers' records: number, time, status code, webhook-id, path, body, text ------------------------------------

requests() { awk 'END { print NR }' "$work/$1.tsv"; }
accepted() { awk -F '\t' '$3 == 200' "$work/$1.tsv" | wc -l; }
distinct() { awk -F '\t' '$3 == 200 && !seen[$4]++' "$work/$1.tsv" | wc -l; }

# show NAME: prints the texts of the requests that came since the last call.
declare -A shown=()
show() {
  awk -F '\t' -v name="$1" -v from="${shown[$1]:-0}" 'NR > from { printf "  %-4s  #%s  %s\n", name, $1, $7 }' "$work/$1.tsv" |
    sed "s/.*/$dim&$plain/"
  shown[$1]=$(requests "$1")
}

# deliveries NOTIFICATION OUTCOME: prints their number. The outcome `<none>` means pending, `any` means all.
deliveries() {
  kubectl get deliveries -n team-a --no-headers \
    -o custom-columns=NOTIFICATION:.spec.notification,OUTCOME:.status.outcome 2>/dev/null |
    awk -v n="$1" -v o="$2" '$1 == n && (o == "any" || $2 == o)' | wc -l
}
recorded() { (($(deliveries "$1" any) >= $2)); }
all_delivered() {
  kubectl wait --for=jsonpath='{.status.outcome}'=Delivered deliveries --all -n team-a --timeout=60s >/dev/null
}

# --- the end ------------------------------------------------------------------------------------------------------------

promise() { printf '  %s%-15s%s %s\n' "$green" "$1" "$plain" "$2"; }

# keep RECEIVER...: if DEMO=keep, prints how to use the cluster, what `hints` prints, and the address of the page. Then it shows the requests
# that arrive, until Ctrl-C.
keep() {
  [[ ${DEMO:-} == keep ]] || return 0
  trap 'exit 0' INT
  step 'Everything keeps running until Ctrl-C. In another terminal:'
  say "  export KUBECONFIG=$KUBECONFIG"
  [[ -z $launcher_pid ]] || say "  export PATH=\"$(dirname "$(field kubectl)"):\$PATH\""
  hints
  # The page reads the same cluster. Its first address can be opened once, so it is printed and nothing else opens it.
  start page "$RELAYBOOK" page --no-open
  await 20 'the address of the page' grep -q '^http://' "$work/page.log"
  say
  say "${bold}To look at it in a browser: $(grep -m 1 '^http://' "$work/page.log")${plain}"
  say
  say "Logs are in $work. Requests, as they come:"
  # cleanup stops it like the other processes. Its output goes to the terminal.
  tail -q -n 0 -F "${@/#/$work/}" 2>/dev/null &
  pids[tail]=$!
  local name
  while :; do
    [[ -z $launcher_pid ]] || kill -0 "$launcher_pid" 2>/dev/null || fail 'the control plane ended unexpectedly'
    for name in "${!pids[@]}"; do
      kill -0 "${pids[$name]}" 2>/dev/null || fail "$name ended unexpectedly"
    done
    wait -n ${launcher_pid:+"$launcher_pid"} "${pids[@]}" || true
  done
}
