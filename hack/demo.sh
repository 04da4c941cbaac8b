#!/usr/bin/env bash
# Demonstrates Relaybook. It uses a real API server, real rollouts of a Deployment in two environments, and
# two receivers, one of which is unavailable most of the time. A third receiver plays a CI, which carries out a promotion
# after its approval. The figures at the end come from the receivers' logs.
#
#   hack/demo.sh              runs the demo and cleans up
#   DEMO=keep hack/demo.sh    keeps everything running until Ctrl-C, to try things out
#
# Requires only Go, Rust and bash 5.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/demo-common.sh"

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

[[ ${CLUSTER:-} != current ]] || fail 'it needs a control plane of its own; make try CLUSTER=current uses another cluster'
began=$SECONDS
say "${bold}Relaybook demo${plain}: a Deployment in two environments, two receivers, one of them unavailable."
build

step '1. A Kubernetes control plane, the CRDs, the application at 1.0.0'
start_control_plane
kubectl apply -f examples/1-app >/dev/null
for environment in dev prod; do rolled_out $environment; done
say "  $(field server), $(kubectl get pods -A --no-headers | wc -l) pods are running"

step '2. The controller, a Pipeline, two Notifications; the audit receiver is down'
start_receiver chat 0
start_receiver audit 0
chat_port=$(port_of chat) audit_port=$(port_of audit)
stop audit # it was started only to get a port
http_port=$(free_port) hooks_port=$(free_port)
start_relaybook
kubectl apply -f examples/2-pipeline.yaml >/dev/null
sed -e "s/127.0.0.1:8081/127.0.0.1:$chat_port/" -e "s/127.0.0.1:8082/127.0.0.1:$audit_port/" \
  examples/3-notifications.yaml | kubectl apply -f - >/dev/null
kubectl wait --for=condition=Ready -n team-a --timeout=60s \
  pipelines.relaybook.dev/web notifications.relaybook.dev/chat notifications.relaybook.dev/audit >/dev/null
at_install=$(requests chat)
say "  all Ready; $at_install requests, because running applications are not a change"

image=web
step '3. Version 2.0.0, in dev and then in prod'
for environment in dev prod; do
  kubectl set image deployment/web "web=$image:2.0.0" -n web-$environment >/dev/null
  rolled_out $environment
  await 30 "the message about 2.0.0 in $environment" received chat $environment 'Deployed 2.0.0'
done
show chat
await 30 'the Deliveries for the audit receiver' recorded audit 4

step '4. The controller is killed (SIGKILL), and started again'
waiting=$(deliveries audit '<none>')
kill -9 "${pids[relaybook]}"
wait "${pids[relaybook]}" 2>/dev/null || true
start_relaybook
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
show chat

step '6. Version 4.0.0 fixes it'
roll_out 4.0.0 node-0
await 60 'the message about 4.0.0' received chat dev 'Deployed 4.0.0'
show chat

step '7. The audit receiver comes back, and refuses the first request'
await 30 'the Deliveries for the audit receiver' recorded audit 8
waited=$(deliveries audit '<none>')
at_outage=$(distinct chat)
start_receiver audit "$audit_port" --fail-first 1
all_delivered
say "  $waited deliveries were waiting; it has them all after $(requests audit) requests"

# approve: sends a signed approval of the promotion that waits. Without curl and openssl, `relaybook approve` approves it.
approve() {
  local waiting body signature
  if [[ -z $(type -P curl) || -z $(type -P openssl) ]]; then
    say "  $RELAYBOOK approve web prod -n team-a"
    "$RELAYBOOK" approve web prod -n team-a >/dev/null
    return
  fi
  waiting=$(kubectl get pipeline web -n team-a -o jsonpath='{range .status.environments[?(@.name=="prod")].waitingApproval}"revision":"{.revision}","promotion":"{.promotion}","promotionUid":"{.promotionUid}"{end}')
  body='{"namespace":"team-a","pipeline":"web","environment":"prod",'$waiting',"at":"'$(date -u +%Y-%m-%dT%H:%M:%SZ)'"}'
  signature=$(printf 'relaybook-approval-v1\n%s' "$body" | openssl dgst -sha256 -hmac "$approval_key" -r | cut -d ' ' -f 1)
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
kubectl wait --for=condition=Ready -n team-a --timeout=60s notifications.relaybook.dev/ci >/dev/null
approval_key=$(od -An -N 32 -t x1 /dev/urandom | tr -d ' \n')
kubectl create secret generic approvals -n team-a --type=relaybook.dev/inbound --from-literal=hmac-key="$approval_key" >/dev/null
kubectl apply -f - <<<"$promotion" >/dev/null
await 60 'the promotion to wait for an approval' received ci prod 'PromotionPending 4.0.0'
show ci
kubectl get promotions -n team-a

step '9. A signed request approves it; the CI rolls it out in prod'
approve
await 30 'the request to the CI' received ci prod 'PromotionRequested 4.0.0'
play_ci
await 60 'the promotion to finish' received ci prod 'PromotionFinished 4.0.0'
show ci
kubectl get promotions -n team-a
await 30 'the message about 4.0.0 in prod' received chat prod 'Deployed 4.0.0'
await 30 'the Deliveries of the promotion' recorded ci 3
await 30 'the Deliveries for the chat' recorded chat 10
await 30 'the Deliveries for the audit receiver' recorded audit 10
all_delivered

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

hints() {
  say "  kubectl set image deployment/web web=$image:5.0.0 -n web-dev"
  say "  $RELAYBOOK promotions -n team-a; $RELAYBOOK approve web prod -n team-a"
  say "  kubectl get deliveries -n team-a --watch"
  say "  kubectl describe notifications -n team-a"
}
keep chat.log audit.log ci.log
