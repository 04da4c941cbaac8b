# The cluster of the current context of kubectl, for `make try` and `make demo` with CLUSTER=current. hack/demo-common.sh reads this file.
#
# What the cluster has stays as it is: the script creates the CRDs of Relaybook and four namespaces, and fails if one of them exists. At the end
# it deletes what it has created, and nothing else. The name of the context must be one of a cluster on this machine, or the user repeats it. The
# address of the server does not show where the cluster is: a tunnel or a proxy also listens on loopback.

namespaces=(relaybook-system team-a web-dev web-prod)
# The image is small, waits for a signal, and has the tags 3.5 to 3.9. A tag that does not exist breaks the rollout. With a node that does
# not exist, the garbage collector of pods would delete the pod, and the Deployment would make progress again.
image=registry.k8s.io/pause v1=3.5 v2=3.6 v3=missing v4=3.7 v5=3.8
node='' v3_node='' # the scheduler chooses
rollout_limit=180  # the image is pulled
context=''
created=() # what leave_cluster deletes: the kind and the name of each object

# check_cluster: copies the current context, so that another choice in another terminal changes nothing here, and refuses what is not safe. It
# only reads, so that a refusal comes before the build.
check_cluster() {
  local found
  type -P kubectl >/dev/null || fail 'kubectl is missing'
  (umask 077 && kubectl config view --minify --flatten --raw >"$work/kubeconfig") || fail 'kubectl has no current context'
  export KUBECONFIG=$work/kubeconfig
  unset RELAYBOOK_CONTEXT
  context=$(kubectl config current-context)
  cluster="The cluster of $context"
  server=$(kubectl config view -o 'jsonpath={.clusters[0].cluster.server}')
  say "The cluster is that of the context ${bold}$context${plain}, at $server"
  if [[ $context != kind-* && $context != k3d-* && $context != minikube* && ${CLUSTER_CONFIRM:-} != "$context" ]]; then
    fail "the context is not one of kind, k3d or minikube; to use it, repeat its name: CLUSTER_CONFIRM='$context'"
  fi
  found=$(kubectl get --filename crds --ignore-not-found --output name --request-timeout=10s &&
    kubectl get namespace "${namespaces[@]}" --ignore-not-found --output name --request-timeout=10s) ||
    fail 'the cluster does not answer, or you may not read its CRDs and namespaces'
  [[ -z $found ]] || fail "the cluster already has this:
$found
Relaybook is installed there, or a run of this script was killed. Only if it was killed, delete these objects with kubectl."
}

# create ARGUMENTS...: creates one object, and notes its name. It fails if the object exists, also if somebody has just created it.
# Ctrl-C waits until the name is noted.
create() {
  created+=("$(trap '' INT && kubectl create "$@" --output name)") || fail "this could not be created: $*"
}

# enter_cluster: creates the CRDs, the namespaces and the application.
enter_cluster() {
  local file namespace environment
  for file in crds/*.yaml; do create --filename "$file"; done
  for namespace in "${namespaces[@]}"; do create namespace "$namespace"; done
  kubectl wait --for=condition=Established --filename crds --timeout=60s >/dev/null
  # The file begins with the namespace. Here, a scheduler chooses the node, and the image must exist.
  for environment in dev prod; do
    sed -e '1,/^---$/d' -e '/nodeName: node-0/d' -e "s|image: web:1.0.0|image: $image:$v1|" \
      -e 's/progressDeadlineSeconds: 5/progressDeadlineSeconds: 30/' "examples/1-app/$environment.yaml" | kubectl create -f - >/dev/null
  done
}

# leave_cluster: deletes what enter_cluster has created. The processes have ended.
leave_cluster() {
  ((${#created[@]} > 0)) || return 0
  local kind name those code=0
  say "Deleting from $context: ${created[*]##*/}"
  # The namespaces first, because the API server finds their objects by the CRDs.
  for kind in namespace customresourcedefinition; do
    those=()
    for name in "${created[@]}"; do [[ $name != "$kind"* ]] || those+=("$name"); done
    ((${#those[@]} == 0)) || kubectl delete "${those[@]}" --ignore-not-found --timeout=120s >/dev/null || code=1
  done
  ((code == 0)) || printf '%sNot all of them are deleted; look with kubectl, in the context %s%s\n' "$red" "$context" "$plain" >&2
}
