#!/usr/bin/env bash
# Demonstrates Pennant in a minute. It uses a real API server, real rollouts of a Deployment in two environments, and
# two receivers, one of which is unavailable most of the time. A third receiver plays a CI, which carries out a promotion
# after its approval. Every wait is for a condition and has a deadline. The figures at the end come from the receivers'
# logs.
#
#   hack/demo.sh              runs the demo and cleans up
#   DEMO=keep hack/demo.sh    keeps everything running until Ctrl-C, to try things out
#
# Requires only Go, Rust and bash 5. PENNANT and RECEIVER are paths of programs to use instead of building them.
set -euo pipefail
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
launcher_pid=''

cleanup() {
  local code=$? name
  set +e
  trap '' INT TERM
  stop "${!pids[@]}"
  if [[ -n $launcher_pid ]]; then
    # The launcher stops its children and removes their data. If this script is killed, the end of its stdin stops it.
    kill "$launcher_pid" 2>/dev/null
    wait "$launcher_pid" 2>/dev/null
  fi
  if ((code == 0 || code == 130)); then
    rm -rf "$work"
  else
    printf 'Logs are kept in %s\n' "$work" >&2
    for name in pennant control-plane; do
      if [[ -s $work/$name.log ]]; then
        printf '\n%sThe last lines of %s:%s\n' "$bold" "$work/$name.log" "$plain" >&2
        tail -n 30 "$work/$name.log" >&2
      fi
    done
  fi
  rmdir .demo 2>/dev/null
  exit "$code"
}
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

start_pennant() {
  start pennant "$PENNANT" run --namespace pennant-system --http-addr "127.0.0.1:$http_port" \
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

# messages NAME ENVIRONMENT: prints "Type revision" of each accepted message, in order of arrival, without repetitions.
messages() {
  awk -F '\t' '$3 == 200 && !seen[$4]++ { print $6 }' "$work/$1.tsv" | case $1 in
    chat) sed -nE 's/.*"text":"[^ ]+ ([^ ]+) in ('"$2"'): ([A-Za-z]+)[."].*/\3 \1/p' ;;
    audit | ci)
      sed -nE '/"environment":"'"$2"'"/s/.*"revision":"([^"]*)".*"type":"([^"]*)".*/\2 \1/p'
      ;;
  esac
}
received() { messages "$1" "$2" | grep -Fx "$3" >/dev/null; }
requests() { awk 'END { print NR }' "$work/$1.tsv"; }
accepted() { awk -F '\t' '$3 == 200' "$work/$1.tsv" | wc -l; }
distinct() { awk -F '\t' '$3 == 200 && !seen[$4]++' "$work/$1.tsv" | wc -l; }

shown=0
show_chat() {
  awk -F '\t' -v from="$shown" 'NR > from { print "  chat  #" $1 "  " $7 }' "$work/chat.tsv" | sed "s/.*/$dim&$plain/"
  shown=$(requests chat)
}

show_ci() { awk -F '\t' '{ print "  ci    #" $1 "  " $7 }' "$work/ci.tsv" | tail -n "$1" | sed "s/.*/$dim&$plain/"; }

# deliveries NOTIFICATION OUTCOME: prints their number. The outcome `<none>` means pending, `any` means all.
deliveries() {
  kubectl get deliveries -n team-a --no-headers \
    -o custom-columns=NOTIFICATION:.spec.notification,OUTCOME:.status.outcome 2>/dev/null |
    awk -v n="$1" -v o="$2" '$1 == n && (o == "any" || $2 == o)' | wc -l
}
recorded() { (($(deliveries "$1" any) >= $2)); }

# --- build -------------------------------------------------------------------------------------------------------------

began=$SECONDS
say "${bold}Pennant demo${plain}: a Deployment in two environments, two receivers, one of them unavailable."
launcher=$work/control-plane
(cd hack/control-plane && go build -o "$launcher" .)
# In parallel with the Rust build, because both have parts that use only one core.
"$launcher" build >/dev/null &
pids[build]=$!
if [[ -z ${PENNANT:-} || -z ${RECEIVER:-} ]]; then
  say "Building Pennant without optimisation, as the tests do. The first time, this takes some minutes."
  cargo build --quiet --locked --bin pennant
  (cd hack/receiver && go build -buildvcs=false -o "$work/receiver" .)
fi
wait "${pids[build]}" || fail 'the control plane could not be built'
unset 'pids[build]'
PENNANT=${PENNANT:-${CARGO_TARGET_DIR:-target}/debug/pennant}
RECEIVER=${RECEIVER:-$work/receiver}

# --- run ---------------------------------------------------------------------------------------------------------------

step '1. A Kubernetes control plane, the CRDs, the application at 1.0.0'
coproc launcher_io { exec "$launcher" run --rollouts --quiet 2>"$work/control-plane.log"; }
launcher_pid=$!
read -r -t 120 -u "${launcher_io[0]}" info || fail 'the control plane did not start'
field() { sed -E 's/.*"'"$1"'":"([^"]*)".*/\1/' <<<"$info"; }
KUBECONFIG=$(field kubeconfig)
export KUBECONFIG
PATH=$(dirname "$(field kubectl)"):$PATH

"$PENNANT" crds | kubectl apply --server-side -f - >/dev/null
kubectl wait --for=condition=Established crd --all --timeout=30s >/dev/null
kubectl create namespace pennant-system >/dev/null
kubectl apply -f examples/1-app.yaml >/dev/null
for namespace in web-dev web-prod; do
  kubectl rollout status deployment/web -n $namespace --timeout=60s >/dev/null
done
say "  $(field server), $(kubectl get pods -A --no-headers | wc -l) pods are running"

step '2. The controller, a Pipeline, two Notifications; the audit receiver is down'
start_receiver chat 0
start_receiver audit 0
chat_port=$(port_of chat) audit_port=$(port_of audit)
stop audit # it was started only to get a port
http_port=$(free_port) hooks_port=$(free_port)
start_pennant
kubectl apply -f examples/2-pipeline.yaml >/dev/null
sed -e "s/127.0.0.1:8081/127.0.0.1:$chat_port/" -e "s/127.0.0.1:8082/127.0.0.1:$audit_port/" \
  examples/3-notifications.yaml | kubectl apply -f - >/dev/null
kubectl wait --for=condition=Ready -n team-a --timeout=60s \
  pipelines.pennant.dev/web notifications.pennant.dev/chat notifications.pennant.dev/audit >/dev/null
at_install=$(requests chat)
say "  all Ready; $at_install requests, because running applications are not a change"

image=web
step '3. Version 2.0.0, in dev and then in prod'
for environment in dev prod; do
  kubectl set image deployment/web "web=$image:2.0.0" -n web-$environment >/dev/null
  kubectl rollout status deployment/web -n web-$environment --timeout=60s >/dev/null
  await 30 "the message about 2.0.0 in $environment" received chat $environment 'Deployed 2.0.0'
done
show_chat
await 30 'the Deliveries for the audit receiver' recorded audit 4

step '4. The controller is killed (SIGKILL), and started again'
waiting=$(deliveries audit '<none>')
kill -9 "${pids[pennant]}"
wait "${pids[pennant]}" 2>/dev/null || true
start_pennant
say "  $waiting deliveries to the audit were waiting"

# roll_out VERSION NODE: changes the Deployment in dev. On a node that does not exist, the new pod never starts, and the
# rollout fails after progressDeadlineSeconds.
roll_out() {
  kubectl patch deployment web -n web-dev -p \
    '{"spec":{"template":{"spec":{"nodeName":"'"$2"'","containers":[{"name":"web","image":"'"$image:$1"'"}]}}}}' >/dev/null
}
step '5. Version 3.0.0 breaks in dev'
roll_out 3.0.0 no-such-node
await 60 'the message about the failure' received chat dev 'Failed 3.0.0'
show_chat

step '6. Version 4.0.0 fixes it'
roll_out 4.0.0 node-0
await 60 'the message about 4.0.0' received chat dev 'Deployed 4.0.0'
show_chat

step '7. The audit receiver comes back, and refuses the first request'
await 30 'the Deliveries for the audit receiver' recorded audit 8
waited=$(deliveries audit '<none>')
at_outage=$(distinct chat)
start_receiver audit "$audit_port" --fail-first 1
kubectl wait --for=jsonpath='{.status.outcome}'=Delivered deliveries --all -n team-a --timeout=60s >/dev/null
say "  $waited deliveries were waiting; it has them all after $(requests audit) requests"

# approve: sends a signed approval of the promotion that waits. Without curl and openssl, `pennant approve` approves it.
approve() {
  local waiting body signature
  if [[ -z $(type -P curl) || -z $(type -P openssl) ]]; then
    say "  $PENNANT approve web prod -n team-a"
    "$PENNANT" approve web prod -n team-a >/dev/null
    return
  fi
  waiting=$(kubectl get pipeline web -n team-a -o jsonpath='{range .status.environments[?(@.name=="prod")].waitingApproval}"revision":"{.revision}","promotion":"{.promotion}","promotionUid":"{.promotionUid}"{end}')
  body='{"namespace":"team-a","pipeline":"web","environment":"prod",'$waiting',"at":"'$(date -u +%Y-%m-%dT%H:%M:%SZ)'"}'
  signature=$(printf 'pennant-approval-v1\n%s' "$body" | openssl dgst -sha256 -hmac "$approval_key" -r | cut -d ' ' -f 1)
  say "  curl http://127.0.0.1:$hooks_port/approval/team-a/web -H 'X-Signature: sha256=${signature:0:8}…' --data '$body'"
  curl -fsS --noproxy '*' "http://127.0.0.1:$hooks_port/approval/team-a/web" -H "X-Signature: sha256=$signature" --data-binary "$body"
}
# play_ci: rolls out the revision of the last request in its environment, as a CI would.
play_ci() {
  local request
  request=$(awk -F '\t' '$6 ~ /"type":"PromotionRequested"/ { body = $6 } END { print body }' "$work/ci.tsv")
  field_of() { sed -E 's/.*"'"$1"'":"([^"]*)".*/\1/' <<<"$request"; }
  kubectl set image deployment/web "web=$image:$(field_of revision)" -n "web-$(field_of environment)" >/dev/null
}
step '8. Promotion: dev runs 4.0.0, and prod waits for an approval'
start_receiver ci 0
promotion=$(sed -e "s/127.0.0.1:8083/127.0.0.1:$(port_of ci)/" examples/4-promotion.yaml)
# The Notification first, so that it reports what the Pipeline then starts.
awk '/^---$/ { exit } { print }' <<<"$promotion" | kubectl apply -f - >/dev/null
kubectl wait --for=condition=Ready -n team-a --timeout=60s notifications.pennant.dev/ci >/dev/null
approval_key=$(od -An -N 32 -t x1 /dev/urandom | tr -d ' \n')
kubectl create secret generic approvals -n team-a --type=pennant.dev/inbound --from-literal=hmac-key="$approval_key" >/dev/null
kubectl apply -f - <<<"$promotion" >/dev/null
await 60 'the promotion to wait for an approval' received ci prod 'PromotionPending 4.0.0'
show_ci 1
kubectl get promotions -n team-a

step '9. A signed request approves it; the CI rolls it out in prod'
approve
await 30 'the request to the CI' received ci prod 'PromotionRequested 4.0.0'
play_ci
await 60 'the promotion to finish' received ci prod 'PromotionFinished 4.0.0'
show_ci 2
kubectl get promotions -n team-a
await 30 'the message about 4.0.0 in prod' received chat prod 'Deployed 4.0.0'
await 30 'the Deliveries of the promotion' recorded ci 3
await 30 'the Deliveries for the chat' recorded chat 10
await 30 'the Deliveries for the audit receiver' recorded audit 10
kubectl wait --for=jsonpath='{.status.outcome}'=Delivered deliveries --all -n team-a --timeout=60s >/dev/null

step 'kubectl get deliveries -n team-a --sort-by=.spec.serial'
kubectl get deliveries -n team-a --sort-by=.spec.serial

# --- count -------------------------------------------------------------------------------------------------------------

wrong=0 lanes=0
check() { # RECEIVER ENVIRONMENT MESSAGES: counts an error unless exactly these messages came, in this order
  local got
  got=$(messages "$1" "$2" | paste -sd , -)
  lanes=$((lanes + 1))
  if [[ $got != "$3" ]]; then
    wrong=$((wrong + 1))
    printf '%s%s, %s\n  expected %s\n  received %s%s\n' "$red" "$1" "$2" "$3" "$got" "$plain" >&2
  fi
}
for receiver in chat audit; do
  check $receiver dev 'Progressing 2.0.0,Deployed 2.0.0,Progressing 3.0.0,Failed 3.0.0,Progressing 4.0.0,Deployed 4.0.0'
  check $receiver prod 'Progressing 2.0.0,Deployed 2.0.0,Progressing 4.0.0,Deployed 4.0.0'
done
check ci prod 'PromotionPending 4.0.0,PromotionRequested 4.0.0,PromotionFinished 4.0.0'
((wrong == 0)) || fail "$wrong of $lanes lanes do not have the expected messages"
if cut -f 7 "$work/chat.tsv" | grep -qE '\\|generation'; then fail 'a chat message contains a backslash or the word generation, so it is not human-readable'; fi

objects=$(kubectl get deliveries -n team-a --no-headers | wc -l)
messages_received=$(($(distinct chat) + $(distinct audit) + $(distinct ci)))
twice=$(($(accepted chat) + $(accepted audit) + $(accepted ci) - messages_received))
((objects == messages_received)) || fail "$objects Delivery objects, but $messages_received messages were received"
first=$(awk -F '\t' 'NR == 1 { print $4 }' "$work/audit.tsv")
attempts_of_first=$(awk -F '\t' -v id="$first" '$4 == id' "$work/audit.tsv" | wc -l)
most=$(kubectl get deliveries -n team-a -o custom-columns=A:.status.attempts --no-headers | sort -n | tail -n 1)

promise() { printf '  %s%-15s%s %s\n' "$green" "$1" "$plain" "$2"; }
step 'The promises, and what this run showed'
promise 'Recorded first' "$objects Delivery objects, $messages_received messages received; $waiting of them waited through a SIGKILL of the controller."
promise 'In order' "$lanes lanes, each with exactly the messages that belong to it, none before its turn."
promise 'At least once' "The message that was answered 503 came $attempts_of_first times with one webhook-id; $twice accepted messages came twice."
promise 'Isolated' "The chat had $at_outage messages before the audit receiver, with $waited waiting, was up again."
promise 'Quiet' "$at_install requests at installation, none after the restart except for new changes."
promise 'Promoted once' "4.0.0 went to prod after one signed approval, by one request to the CI."
promise 'Visible' "The table above; the longest wait took $most attempts, and each object has the reason."
say
say "Done in $((SECONDS - began)) s."

if [[ ${DEMO:-} == keep ]]; then
  trap 'exit 0' INT
  step 'Everything keeps running until Ctrl-C. In another terminal:'
  say "  export KUBECONFIG=$KUBECONFIG"
  say "  export PATH=\"$(dirname "$(field kubectl)"):\$PATH\""
  say "  kubectl set image deployment/web web=$image:5.0.0 -n web-dev"
  say "  $PENNANT promotions -n team-a; $PENNANT approve web prod -n team-a"
  say "  kubectl get deliveries -n team-a --watch"
  say "  kubectl describe notifications -n team-a"
  say
  say "Logs are in $work. Requests, as they come:"
  # cleanup stops it like the other processes. Its output goes to the terminal.
  tail -q -n 0 -F "$work/chat.log" "$work/audit.log" "$work/ci.log" 2>/dev/null &
  pids[tail]=$!
  while kill -0 "${pids[pennant]}" 2>/dev/null && kill -0 "$launcher_pid" 2>/dev/null; do
    wait -n "${pids[pennant]}" "$launcher_pid" || true
  done
  fail 'the controller or the control plane ended unexpectedly'
fi
