#!/usr/bin/env bash
# Demonstrates a promotion by pull request. It uses a real API server, real rollouts of a Deployment in two environments, and a real Gitea
# with a repository that has their manifests. The script plays three parts. As a CI, it releases a version in dev. As a person, it merges the
# pull request. As a GitOps controller, it applies what is on the main branch. Relaybook does the rest.
#
#   hack/demo-promotions.sh              runs the demo and cleans up
#   DEMO=keep hack/demo-promotions.sh    keeps everything running until Ctrl-C, to try things out
#
# Requires only Go, Rust, a C compiler, Git and bash 5.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/demo-common.sh"
logs+=(gitea git gitops api)

# The settings of this machine's user must not change what Git does here. This also removes GIT_CONFIG_GLOBAL: Gitea writes to that file.
for name in "${!GIT_@}"; do unset "$name"; done
home=$work/gitea # of Gitea, and of every Git of this script
mkdir "$home"
git() {
  HOME=$home XDG_CONFIG_HOME=$home GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_SSL_CAINFO=$home/server.crt no_proxy='*' \
    command git "$@" 2>>"$work/git.log"
}

random() { od -An -N "$1" -t x1 /dev/urandom | tr -d ' \n'; }

# --- Gitea --------------------------------------------------------------------------------------------------------------

build_gitea() {
  (cd hack/request && go build -buildvcs=false -o "$work/request" .)
  # It says itself that it is still building.
  bash hack/gitea.sh >"$work/gitea.path" &
  pids[gitea-build]=$!
  wait "${pids[gitea-build]}" || fail 'Gitea could not be built'
  unset 'pids[gitea-build]'
  gitea=$(<"$work/gitea.path")
}

# run_gitea COMMAND...: replaces the process by Gitea.
run_gitea() {
  # In a container, the demo often runs as root, which Gitea otherwise refuses.
  exec env -u GOGC HOME="$home" GITEA_WORK_DIR="$home" GITEA_I_AM_BEING_UNSAFE_RUNNING_AS_ROOT=true "$gitea" "$@" --config "$home/app.ini"
}

# create_user NAME SCOPES: creates a user with a random password, and prints an access token.
create_user() {
  (run_gitea admin user create --username "$1" --email "$1@example.com" --password "$(<"$home/$1.password")" \
    --must-change-password=false --access-token --access-token-scopes "$2" 2>>"$work/gitea.log") |
    sed -n 's/^Access token was successfully created... //p' | grep .
}

# start_gitea: starts Gitea with a certificate of its own and with two users.
start_gitea() {
  forge=https://127.0.0.1:$(free_port)
  sed -e "s|@FOLDER@|$home|g" -e "s|@STATIC@|${gitea%/bin/gitea}/static|g" -e "s|@PORT@|${forge##*:}|g" \
    hack/tools/gitea/app.ini >"$home/app.ini"
  # The certificate is signed with its own key. It is the CA certificate that clients must trust.
  (cd "$home" && "$gitea" cert --host 127.0.0.1 --ecdsa-curve P256 --duration 48h && mv cert.pem server.crt && mv key.pem server.key) \
    2>>"$work/gitea.log"
  (run_gitea migrate) >>"$work/gitea.log" 2>&1
  for name in alice deploy-bot; do random 8 >"$home/$name.password"; done
  alice=$(create_user alice all)
  bot=$(create_user deploy-bot write:repository,write:issue)
  start gitea run_gitea web
  await 60 'Gitea to answer' is_up
  : >"$work/api.log"
}

# api METHOD FIELD PATH [BODY]: calls Gitea's API as Alice, and prints the answer, or its field if FIELD is not empty.
api() { "$work/request" --ca "$home/server.crt" --token "$alice" --field "$2" "$1" "$forge/api$3" "${@:4}" 2>>"$work/api.log"; }

is_up() { api GET '' /healthz >/dev/null; }
merges() { api POST '' "$1/merge" '{"Do": "merge"}' >/dev/null; }
pulls() { api GET '' '/v1/repos/alice/deploy/pulls?state=all' | awk -F '"merge_commit_sha":' 'NF { all += NF - 1 } END { print all + 0 }'; }

# create_repository: creates the repository alice/deploy with the manifests of both environments, and a hook that reports pull requests.
create_repository() {
  local repository=/v1/repos/alice/deploy environment
  api POST '' /v1/user/repos '{"name": "deploy", "default_branch": "main"}' >/dev/null
  api PUT '' $repository/collaborators/deploy-bot '{"permission": "write"}' >/dev/null
  git clone --quiet "${forge/:\/\//:\/\/alice:$alice@}/alice/deploy.git" "$work/ci"
  for environment in dev prod; do
    mkdir -p "$work/ci/apps/$environment"
    cp "examples/1-app/$environment.yaml" "$work/ci/apps/$environment/web.yaml"
  done
  in_ci config user.name Alice
  in_ci config user.email alice@example.com
  in_ci checkout --quiet -B main
  in_ci add apps
  in_ci commit --quiet --message 'web 1.0.0'
  in_ci push --quiet --set-upstream origin main
  api POST '' $repository/hooks '{"type": "gitea", "active": true, "events": ["pull_request"], "config": {"content_type": "json",
    "url": "http://127.0.0.1:'"$hooks_port"'/hooks/team-a/web", "secret": "'"$look_key"'"}}' >/dev/null
}

# --- the parts that the script plays --------------------------------------------------------------------------------------

in_ci() { git -C "$work/ci" "$@"; }

# release VERSION: what a CI does: sets the version of dev on the main branch.
release() {
  in_ci pull --quiet
  "$RELAYBOOK" setters "$work/ci/apps" --promotion team-a:web:dev --revision "$1" --write >/dev/null 2>&1
  in_ci commit --quiet --all --message "web $1 in dev"
  in_ci push --quiet
}

# follow: what a GitOps controller does: applies each new commit of the main branch. Its log has a line for each.
follow() {
  local applied='' head stopped=''
  trap 'stopped=1' TERM
  while [[ -z $stopped ]]; do
    head=$(git ls-remote "$forge/alice/deploy.git" refs/heads/main | cut -f 1) || head=''
    if [[ -n $head && $head != "$applied" ]] && apply "$head"; then
      applied=$head
      echo "applied $head"
    fi
    sleep 1
  done
}
apply() {
  git -C "$work/gitops" fetch --quiet origin main && git -C "$work/gitops" checkout --quiet --force "$1" &&
    kubectl apply --recursive -f "$work/gitops/apps" >/dev/null
}
applied() { grep -qx "applied $1" "$work/gitops.log"; }

# --- the promotion --------------------------------------------------------------------------------------------------------

# of_promotion PATH: prints a field of the only Promotion.
of_promotion() { kubectl get promotions -n team-a -o jsonpath="{.items[*]$1}"; }
in_phase() { [[ $(of_promotion .status.phase) == "$1" ]]; }
image_of() { kubectl get deployment web -n "web-$1" -o jsonpath='{.spec.template.spec.containers[0].image}'; }
runs() { [[ $(image_of "$1") == "web:$2" ]]; }
# received TYPE: whether the receiver has accepted a message of this type.
received() { awk -F '\t' -v type="$1" '$3 == 200 && index($6, "\"type\":\"" type "\"") { found = 1 } END { exit !found }' "$work/chat.tsv"; }
indented() { sed "s/.*/  $dim&$plain/"; }

[[ ${CLUSTER:-} != current ]] || fail 'it needs a control plane of its own; make try CLUSTER=current uses another cluster'
began=$SECONDS
say "${bold}Relaybook demo of promotions${plain}: a version goes from dev to prod by a pull request."
type -P git >/dev/null || fail 'git is missing'
build
build_gitea

step '1. A Kubernetes control plane, a Gitea, a repository with the manifests of dev and prod'
start_control_plane
say "  Kubernetes  $(field server)"
start_gitea
http_port=$(free_port) hooks_port=$(free_port) look_key=$(random 32)
create_repository
git clone --quiet --no-checkout "$forge/alice/deploy.git" "$work/gitops"
start gitops follow
say "  Gitea       $forge/alice/deploy"
(cd "$work/ci" && "$RELAYBOOK" setters apps 2>/dev/null) | indented
await 30 'the first commit to be applied' applied "$(in_ci rev-parse HEAD)"
for environment in dev prod; do rolled_out $environment; done
say '  Both environments run 1.0.0'

step '2. The controller, a Pipeline with a pull request to prod, a Notification'
start_receiver chat 0
start_relaybook
kubectl create secret generic deploy-bot -n team-a --from-literal=token="$bot" >/dev/null
kubectl create secret generic forge-ca -n team-a --from-file=ca.crt="$home/server.crt" >/dev/null
kubectl create secret generic looks -n team-a --type=relaybook.dev/inbound --from-literal=hmac-key="$look_key" >/dev/null
sed -e "s|https://127.0.0.1:3000/|$forge/|" -e "s/127.0.0.1:8081/127.0.0.1:$(port_of chat)/" examples/5-pull-request.yaml |
  kubectl apply -f - >/dev/null
kubectl wait --for=condition=Ready -n team-a --timeout=60s pipelines.relaybook.dev/web notifications.relaybook.dev/chat >/dev/null
say "  all Ready; $(pulls) pull requests, because running applications are not a change"

step '3. Version 2.0.0 in dev'
release 2.0.0
await 30 'version 2.0.0 to be applied in dev' runs dev 2.0.0
rolled_out dev
say '  The CI has pushed it, the GitOps controller has applied it, and dev runs it. prod has 1.0.0'

step '4. Relaybook opens a pull request to prod'
await 60 'the pull request' in_phase Open
await 30 'the message about the pull request' received PromotionOpened
number=$(of_promotion .status.pullRequest.number)
pull=/v1/repos/alice/deploy/pulls/$number
commit=$(of_promotion .status.commit.id)
in_ci pull --quiet
in_ci fetch --quiet
say "  $(of_promotion .status.pullRequest.url)"
say "  $(api GET title "$pull"), by $(api GET user.login "$pull")"
in_ci show --format='commit %h by %an' --unified=1 "$commit" | indented
changed=$(in_ci diff --numstat "origin/main...$commit")
[[ $changed == $'1\t1\tapps/prod/web.yaml' ]] || fail "the commit changes something else than one line in prod: $changed"
runs prod 1.0.0 || fail "prod has the image $(image_of prod) before somebody has merged the pull request"
[[ $(api GET head.sha "$pull") == "$commit" ]] || fail 'the pull request has another commit'
show chat
kubectl get promotions -n team-a

step '5. Alice merges the pull request'
# Until Gitea has checked for conflicts, it refuses.
await 30 'Gitea to merge the pull request' merges "$pull"
merge_commit=$(api GET merge_commit_sha "$pull")
say "  merged by $(api GET merged_by.login "$pull"), as ${merge_commit:0:10}"

step '6. The GitOps controller rolls it out in prod'
await 30 'the merge to be applied' applied "$merge_commit"
runs prod 2.0.0 || fail "prod has the image $(image_of prod)"
rolled_out prod
await 60 'the promotion to finish' in_phase Finished
await 30 'the message about the end' received PromotionFinished
show chat
kubectl get promotions -n team-a
await 30 'the Deliveries' recorded chat 2
all_delivered

step 'kubectl get deliveries -n team-a --sort-by=.spec.serial'
kubectl get deliveries -n team-a --sort-by=.spec.serial

# --- count --------------------------------------------------------------------------------------------------------------

steps=$(of_promotion '.status.steps[*].phase')
messages=$(sed -E 's/.*"type":"([^"]*)".*/\1/' "$work/chat.tsv" | paste -sd ' ')
[[ $(of_promotion .metadata.name | wc -w) == 1 ]] || fail 'there is more than one Promotion'
# If prod runs the revision before Relaybook sees the merge, the phase Merged is left out.
[[ $steps =~ ^Requested\ Open\ (Merged\ )?Finished$ ]] || fail "the promotion had the phases $steps"
[[ $(of_promotion .status.pullRequest.state) == merged ]] || fail 'the promotion does not show that its pull request is merged'
[[ $(of_promotion .status.pullRequest.mergeCommit) == "$merge_commit" ]] || fail 'the promotion names another merge commit'
(($(pulls) == 1)) || fail "there are $(pulls) pull requests"
[[ $messages == 'PromotionOpened PromotionFinished' ]] || fail "the receiver has the messages $messages"
(($(deliveries chat Delivered) == 2)) || fail 'there are not exactly 2 Deliveries'

step 'What this run showed'
promise 'Promoted once' "2.0.0 went to prod by 1 Promotion, 1 pull request and 1 commit, which changes 1 line."
promise 'Reviewed' 'prod kept 1.0.0 until a person had merged the pull request.'
promise 'Observed' "The phases were ${steps// /, }: the last one because prod runs 2.0.0."
promise 'Visible' 'The tables above: the Promotion, and a Delivery for each message.'
say
say "Done in $((SECONDS - began)) s."

hints() {
  say "  export GIT_SSL_CAINFO=$home/server.crt no_proxy=127.0.0.1"
  say "  cd $work/ci; git pull -q"
  say "  $(realpath "$RELAYBOOK") setters apps --promotion team-a:web:dev --revision 3.0.0 --write"
  say "  git commit -qam 'web 3.0.0 in dev'; git push -q"
  say '  kubectl get promotions -n team-a --watch'
  say
  say "The next pull request then waits for you. Sign in and merge it. The browser does not know the certificate."
  say "  $forge/alice/deploy/pulls"
  say "  user alice, password $(<"$home/alice.password")"
}
keep chat.log gitops.log
