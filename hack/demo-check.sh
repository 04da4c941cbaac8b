#!/usr/bin/env bash
# Checks `make demo CLUSTER=current`: it shows its promises, and deletes what it has created and nothing else, also after Ctrl-C. The
# cluster is a control plane of this script, which plays what is missing there: a scheduler, and the controller of namespaces.
set -euo pipefail
unset CLUSTER DEMO
source "$(dirname "${BASH_SOURCE[0]}")/demo-common.sh"
logs+=(play demo)

# play: binds new pods to the node, and deletes namespaces as soon as they are Terminating.
play() {
  local namespace
  set +e # the next round tries again
  while sleep 0.2; do
    # A pod whose image does not exist stays Pending, as in a real cluster.
    kubectl get pods -A --field-selector=spec.nodeName= --no-headers \
      -o 'custom-columns=N:.metadata.namespace,P:.metadata.name,I:.spec.containers[0].image' |
      awk '$3 !~ /:missing$/ {
        printf "---\n{apiVersion: v1, kind: Binding, metadata: {namespace: %s, name: %s}, target: {kind: Node, name: node-0}}\n", $1, $2
      }' >"$work/bindings"
    [[ ! -s $work/bindings ]] || kubectl create -f "$work/bindings"
    for namespace in $(kubectl get namespaces --field-selector=status.phase=Terminating -o 'jsonpath={.items[*].metadata.name}'); do
      # The reads matter, too: the API server may keep a CRD for minutes if nobody has read its resources before it is deleted.
      kubectl delete "all$(kubectl get crds -o 'jsonpath={range .items[*]},{.metadata.name}{end}')" --all -n "$namespace" &&
        kubectl get namespace "$namespace" -o json | sed '/"kubernetes"$/d' | kubectl replace --raw "/api/v1/namespaces/$namespace/finalize" -f -
    done
  done
}

# demo RECEIVER: runs the demo. It fails if the demo fails, and ends the script if the demo leaves something, or deletes something else.
demo() {
  local left code=0
  CLUSTER=current RELAYBOOK=$RELAYBOOK RECEIVER=$1 bash hack/demo.sh >"$work/demo.log" 2>&1 </dev/null || code=$?
  grep -q '^Deleting from kind-check: ' "$work/demo.log" || fail 'it has created nothing'
  left=$(kubectl get namespaces,crds -o name | grep -vE '/(default|kube-.*)$')
  [[ $left == namespace/other ]] || fail "instead of only the namespace other, the cluster has: $left"
  return "$code"
}

build
launch
cp "$KUBECONFIG" "$work/kubeconfig" && KUBECONFIG=$work/kubeconfig
kubectl config rename-context admin kind-check >/dev/null
kubectl create namespace other >/dev/null
start play play
# Instead of a receiver, a program that does what Ctrl-C does. Its parent is the demo.
printf '#!/bin/sh\nkill -INT "$PPID"\n' >"$work/ctrl-c" && chmod +x "$work/ctrl-c"
if demo "$work/ctrl-c"; then fail 'it went on after Ctrl-C'; fi
demo "$RECEIVER" || fail "it ended with the exit code $?"
grep -q '^The promises, and what this run showed' "$work/demo.log"
printf 'demo-check: all is well\n'
