#!/usr/bin/env bash
# Demonstrates Relaybook. It uses a real API server, real rollouts of a Deployment in two environments, and
# two receivers, one of which is unavailable most of the time. A third receiver plays a CI, which carries out a promotion
# after its approval. The figures at the end come from the receivers' logs.
#
#   hack/demo.sh                    runs the demo and cleans up
#   DEMO=keep hack/demo.sh          keeps everything running until Ctrl-C, to try things out
#   CLUSTER=current hack/demo.sh    uses the cluster of the current context of kubectl; see hack/demo-current.sh
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

began=$SECONDS
say "${bold}Relaybook demo${plain}: a Deployment in two environments, two receivers, one of them unavailable."
check_cluster
build

step "1. $cluster, the CRDs, the application at $v1"
enter_cluster
for environment in dev prod; do rolled_out $environment; done
say "  $server, $(kubectl get pods -A -l app=web --no-headers | wc -l) pods are running"

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

step "3. Version $v2, in dev and then in prod"
for environment in dev prod; do
  kubectl set image deployment/web "web=$image:$v2" -n web-$environment >/dev/null
  rolled_out $environment
  await 30 "the message about $v2 in $environment" received chat $environment "Deployed $v2"
done
show chat
await 30 'the Deliveries for the audit receiver' recorded audit 4

step '4. The controller is killed (SIGKILL), and started again'
waiting=$(deliveries audit '<none>')
kill -9 "${pids[relaybook]}"
wait "${pids[relaybook]}" 2>/dev/null || true
start_relaybook
say "  $waiting deliveries to the audit were waiting"

# roll_out VERSION NODE: changes the Deployment in dev. On a node that does not exist, or with such an image, the new pod never starts, and
# the rollout fails after progressDeadlineSeconds. An empty node removes the field.
roll_out() {
  kubectl patch deployment web -n web-dev -p \
    '{"spec":{"template":{"spec":{"nodeName":"'"$2"'","containers":[{"name":"web","image":"'"$image:$1"'"}]}}}}' >/dev/null
}
step "5. Version $v3 breaks in dev"
roll_out $v3 "$v3_node"
await $rollout_limit 'the message about the failure' received chat dev "Failed $v3"
show chat

step "6. Version $v4 fixes it"
roll_out $v4 "$node"
await $rollout_limit "the message about $v4" received chat dev "Deployed $v4"
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
  waiting=$(kubectl get pipelines.relaybook.dev web -n team-a -o jsonpath='{range .status.environments[?(@.name=="prod")].waitingApproval}"revision":"{.revision}","promotion":"{.promotion}","promotionUid":"{.promotionUid}"{end}')
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
step "8. Promotion: dev runs $v4, and prod waits for an approval"
start_receiver ci 0
promotion=$(sed -e "s/127.0.0.1:8083/127.0.0.1:$(port_of ci)/" examples/4-promotion.yaml)
# The Notification first, so that it reports what the Pipeline then starts.
awk '/^---$/ { exit } { print }' <<<"$promotion" | kubectl apply -f - >/dev/null
kubectl wait --for=condition=Ready -n team-a --timeout=60s notifications.relaybook.dev/ci >/dev/null
approval_key=$(od -An -N 32 -t x1 /dev/urandom | tr -d ' \n')
kubectl create secret generic approvals -n team-a --type=relaybook.dev/inbound --from-literal=hmac-key="$approval_key" >/dev/null
kubectl apply -f - <<<"$promotion" >/dev/null
await 60 'the promotion to wait for an approval' received ci prod "PromotionPending $v4"
show ci
kubectl get promotions.relaybook.dev -n team-a

step '9. A signed request approves it; the CI rolls it out in prod'
approve
await 30 'the request to the CI' received ci prod "PromotionRequested $v4"
play_ci
await $rollout_limit 'the promotion to finish' received ci prod "PromotionFinished $v4"
show ci
kubectl get promotions.relaybook.dev -n team-a
await 30 "the message about $v4 in prod" received chat prod "Deployed $v4"
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
  check $receiver dev "Progressing $v2,Deployed $v2,Progressing $v3,Failed $v3,Progressing $v4,Deployed $v4"
  check $receiver prod "Progressing $v2,Deployed $v2,Progressing $v4,Deployed $v4"
done
check ci prod "PromotionPending $v4,PromotionRequested $v4,PromotionFinished $v4"
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
promise 'Promoted once' "$v4 went to prod after one signed approval, by one request to the CI."
promise 'Visible' "The table above; the longest wait took $most attempts, and each object has the reason."
say
say "Done in $((SECONDS - began)) s."

hints() {
  say "  kubectl set image deployment/web web=$image:$v5 -n web-dev"
  say "  $RELAYBOOK promotions -n team-a; $RELAYBOOK approve web prod -n team-a"
  say "  kubectl get deliveries -n team-a --watch"
  say "  kubectl describe notifications -n team-a"
}
keep chat.log audit.log ci.log
