#!/usr/bin/env bash
# Runs Relaybook to try it, until Ctrl-C: a control plane in which Deployments roll out, the controller, a chat that a browser shows, and the
# audit page. docs/tutorial.md walks through it. Another terminal gets kubectl and relaybook with `source .demo/env`.
#
#   hack/try.sh                    starts a control plane of its own
#   CLUSTER=current hack/try.sh    uses the cluster of the current context of kubectl; see hack/demo-current.sh
#
# Requires only Go, Rust and bash 5.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/demo-common.sh"

began=$SECONDS
tools=$work/bin
check_cluster
build
enter_cluster
[[ -z $launcher_pid ]] || tools+=:$(dirname "$(field kubectl)")
http_port=$(free_port) hooks_port=$(free_port)
start_relaybook
# A rollout that ends later would be the first change.
for environment in dev prod; do rolled_out $environment; done
kubectl apply -f examples/2-pipeline.yaml >/dev/null
start page "$RELAYBOOK" page --no-open
await 20 'the address of the page' grep -q '^http://' "$work/page.log"
start_receiver chat 0 --page "$(grep -m 1 '^http://' "$work/page.log")"
# The file begins with the Notification of the chat.
awk '/^---$/ { exit } { print }' examples/3-notifications.yaml | sed "s/127.0.0.1:8081/127.0.0.1:$(port_of chat)/" | kubectl apply -f - >/dev/null
kubectl wait --for=condition=Ready -n team-a --timeout=60s pipelines.relaybook.dev/web notifications.relaybook.dev/chat >/dev/null

mkdir -p "$work/bin"
ln -sf "$RELAYBOOK" "$work/bin/relaybook"
# `chat refuse` and `chat accept` do what the button on the page does. curl may not be installed.
cat >"$work/bin/chat" <<END
#!/usr/bin/env bash
set -euo pipefail
case \${1:-} in refuse) body=refuse=true ;; accept) body=refuse=false ;; *) echo 'chat refuse or chat accept' >&2; exit 2 ;; esac
exec 3<>/dev/tcp/127.0.0.1/$(port_of chat)
printf 'POST /-/refuse HTTP/1.0\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %s\r\n\r\n%s' \${#body} "\$body" >&3
read -r _ status _ <&3
[[ \$status == 303 ]]
END
chmod +x "$work/bin/chat"
cat >.demo/env <<END
export KUBECONFIG=$KUBECONFIG
export PATH="$tools:\$PATH"
export CONTROLLER=$work/controller.pid
END
echo "${pids[relaybook]}" >"$work/controller.pid"

step "Relaybook runs, after $((SECONDS - began)) s. Open this address in a browser; it leads to the audit page:"
say "  http://127.0.0.1:$(port_of chat)/"
say
say 'docs/tutorial.md has the next steps. In another terminal, in this folder:'
say '  source .demo/env        # kubectl and relaybook for this cluster'
[[ -n $launcher_pid ]] || say "Here, the application has the image $image. The end of docs/tutorial.md says which commands differ."
say "Ctrl-C ends everything. Logs are in $work."
trap 'rm -f .demo/env; exit 0' INT TERM
while :; do
  for name in "${!pids[@]}"; do
    kill -0 "${pids[$name]}" 2>/dev/null && continue
    [[ $name == relaybook ]] || fail "$name ended unexpectedly"
    # In a cluster, the Deployment starts it again.
    wait "${pids[$name]}" || true
    say 'The controller ended, and is started again.'
    start_relaybook
    echo "${pids[relaybook]}" >"$work/controller.pid"
  done
  [[ -z $launcher_pid ]] || kill -0 "$launcher_pid" 2>/dev/null || fail 'the control plane ended unexpectedly'
  sleep 0.2
done
