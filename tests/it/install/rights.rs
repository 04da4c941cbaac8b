//! The permissions that the chart grants, as the API server reports them: all that the program needs, and no others.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{SETS, client, kubeconfig, of_set, room};

/// Every call that the program makes, by resource: `RESOURCE.GROUP: verbs`. Each resource that is not in this list is an application
/// object, for which only `OTHERS` is allowed.
const CALLS: [&str; 13] = [
    "pipelines.relaybook.dev: get list watch create patch delete",
    "pipelinesets.relaybook.dev: get list watch create patch delete",
    "pipelinesets/status.relaybook.dev: patch",
    "pipelines/status.relaybook.dev: patch",
    "notifications.relaybook.dev: get list watch",
    "notifications/status.relaybook.dev: patch",
    "deliveries.relaybook.dev: get list watch create patch delete",
    "promotions.relaybook.dev: get list watch create patch delete",
    "promotions/status.relaybook.dev: patch",
    "events.events.k8s.io: create patch",
    "leases.coordination.k8s.io: get list watch create update",
    "secrets.: list watch",
    "configmaps.: get list watch create patch",
];
const OTHERS: &str = "list watch";

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn no_unused_permission_is_granted() {
    for set in SETS {
        let release = of_set(set);
        assert!(!release.rules().is_empty());
        for (namespace, rule) in release.rules() {
            assert!(!rule.to_string().contains('*'), "{set}: {rule}");
            assert!(rule.get("nonResourceURLs").is_none(), "{set}: {rule}");
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let known = CALLS.iter().find_map(|call| call.strip_prefix(&format!("{resource}.{group}: ")));
                    let used: BTreeSet<_> = known.unwrap_or(OTHERS).split(' ').collect();
                    let given: BTreeSet<_> = texts(&rule["verbs"]).into_iter().collect();
                    assert!(given.is_subset(&used), "{set}: {rule}: more than {used:?}");
                    // ConfigMaps are written, or read by name, only in the release's own namespace and only with `resourceNames`.
                    let named = !texts(&rule["resourceNames"]).is_empty() && namespace == Some(release.namespace.as_str());
                    let sensitive = resource == "configmaps" && !given.is_subset(&BTreeSet::from(["list", "watch"]));
                    assert!(!sensitive || named, "{set}: {rule}");
                }
            }
        }
    }
}

/// Checks what the service account of a value set may do, and what it may not do.
async fn holds(set: &str, allowed: &[&str], refused: &[&str]) {
    let release = of_set(set);
    room(&client().await, release).await;
    if release.of("ServiceAccount").next().is_none() {
        // The account is not part of the chart. Its permissions can be checked although it does not exist.
        assert_eq!(release.account(), "robot");
    }
    let account = release.grant(kubeconfig()).await;
    for words in allowed {
        assert!(account.may(words).await, "{set}: may not {words}");
    }
    for words in refused {
        assert!(!account.may(words).await, "{set}: may {words}");
    }
}

/// What Relaybook may not do, however it is installed.
const NEVER: [&str; 28] = [
    "update pipelines.relaybook.dev team-a",
    "deletecollection pipelines.relaybook.dev team-a",
    "create pipelinesets.relaybook.dev team-a",
    "patch pipelinesets.relaybook.dev team-a",
    "update pipelines.relaybook.dev/status team-a",
    "patch notifications.relaybook.dev team-a",
    "delete notifications.relaybook.dev team-a",
    "update deliveries.relaybook.dev team-a",
    "patch deliveries.relaybook.dev/status team-a",
    "deletecollection deliveries.relaybook.dev team-a",
    "update promotions.relaybook.dev team-a",
    "update promotions.relaybook.dev/status team-a",
    "deletecollection promotions.relaybook.dev team-a",
    "get secrets team-a",
    "create secrets team-a",
    "update secrets team-a",
    "patch configmaps team-a",
    "update configmaps team-a",
    "create pods team-a",
    "list pods team-a",
    "create pods/exec team-a",
    "create serviceaccounts/token team-a",
    "patch deployments.apps team-a",
    "get deployments.apps team-a",
    "list namespaces",
    "list nodes",
    "list customresourcedefinitions.apiextensions.k8s.io",
    "bind clusterroles.rbac.authorization.k8s.io",
];

/// What Relaybook may not do either if it makes no pipelines.
const WITHOUT_SETS: [&str; 5] = [
    "patch pipelines.relaybook.dev team-a",
    "create pipelines.relaybook.dev team-a",
    "delete pipelines.relaybook.dev team-a",
    "list pipelinesets.relaybook.dev team-a",
    "patch pipelinesets.relaybook.dev/status team-a apps",
];

#[tokio::test]
async fn a_cluster_wide_installation_has_its_permissions_and_no_forbidden_ones() {
    let own = "own-default";
    let allowed = [
        "list pipelines.relaybook.dev",
        "watch pipelines.relaybook.dev",
        "get pipelines.relaybook.dev team-a shop",
        "patch pipelines.relaybook.dev/status team-a shop",
        "create pipelines.relaybook.dev team-a",
        "patch pipelines.relaybook.dev team-a shop",
        "delete pipelines.relaybook.dev team-a shop",
        "watch pipelinesets.relaybook.dev",
        "patch pipelinesets.relaybook.dev/status team-a apps",
        &format!("create pipelinesets.relaybook.dev {own}"),
        &format!("delete pipelinesets.relaybook.dev {own} follow-deployments"),
        "patch notifications.relaybook.dev/status team-a chat",
        "create deliveries.relaybook.dev team-a",
        "delete deliveries.relaybook.dev team-a shop-1",
        "patch deliveries.relaybook.dev team-a shop-1",
        "watch promotions.relaybook.dev",
        "create promotions.relaybook.dev team-a",
        "patch promotions.relaybook.dev team-a shop-prod",
        "patch promotions.relaybook.dev/status team-a shop-prod",
        "delete promotions.relaybook.dev team-a shop-prod",
        "create events.events.k8s.io team-a",
        "patch events.events.k8s.io team-a",
        "list secrets team-a",
        "watch secrets team-a chat",
        "list configmaps team-a",
        "watch deployments.apps",
        "list jobs.batch",
        "list helmreleases.helm.toolkit.fluxcd.io",
        "list gitopsclusters.gitops.weave.works",
        "watch bundles.fleet.cattle.io team-a",
        "list helmops.fleet.cattle.io",
        "list clusters.fleet.cattle.io",
        &format!("create leases.coordination.k8s.io {own}"),
        &format!("update leases.coordination.k8s.io {own} relaybook-dispatch"),
        &format!("update leases.coordination.k8s.io {own} relaybook-promote"),
        &format!("get configmaps {own} relaybook-config"),
        &format!("create configmaps {own} relaybook-config-last-good"),
        &format!("patch configmaps {own} relaybook-config-last-good"),
        &format!("get configmaps {own} relaybook-info"),
        &format!("create configmaps {own} relaybook-info"),
        &format!("patch configmaps {own} relaybook-info"),
    ];
    let refused = [
        &format!("update leases.coordination.k8s.io {own} somebody-else") as &str,
        &format!("get leases.coordination.k8s.io {own} somebody-else"),
        "create leases.coordination.k8s.io team-a",
        &format!("get configmaps {own} another"),
        &format!("patch configmaps {own} relaybook-config"),
        &format!("delete configmaps {own} relaybook-config-last-good"),
        &format!("create configmaps {own} another"),
        "get configmaps team-a relaybook-config",
        "list ocirepositories.source.toolkit.fluxcd.io",
    ];
    holds("default", &allowed, &[&refused[..], &NEVER[..]].concat()).await;
}

#[tokio::test]
async fn a_namespaced_installation_has_its_permissions_and_no_forbidden_ones() {
    let own = "own-namespaced";
    let allowed = [
        "list pipelines.relaybook.dev team-a",
        "watch pipelines.relaybook.dev team-b",
        "patch pipelines.relaybook.dev/status team-b shop",
        "create pipelines.relaybook.dev team-b",
        "list pipelinesets.relaybook.dev team-b",
        "create promotions.relaybook.dev team-b",
        "patch promotions.relaybook.dev/status team-b shop-prod",
        "list secrets team-a",
        "list deployments.apps team-b",
        "create events.events.k8s.io team-a",
        // For cluster-wide notifications.
        &format!("list deliveries.relaybook.dev {own}"),
        &format!("create deliveries.relaybook.dev {own}"),
        &format!("patch deliveries.relaybook.dev {own}"),
        &format!("list secrets {own}"),
        &format!("create events.events.k8s.io {own}"),
        &format!("update leases.coordination.k8s.io {own} relaybook-pipeline"),
    ];
    let refused = [
        "list pipelines.relaybook.dev",
        "list secrets",
        "list configmaps",
        "list deployments.apps",
        "list secrets infra",
        "list pipelines.relaybook.dev infra",
        "create pipelines.relaybook.dev infra",
        &format!("create pipelines.relaybook.dev {own}"),
        "create deliveries.relaybook.dev infra",
        "patch deliveries.relaybook.dev infra",
        "list promotions.relaybook.dev",
        "create promotions.relaybook.dev infra",
        &format!("list promotions.relaybook.dev {own}"),
        "list helmreleases.helm.toolkit.fluxcd.io team-a",
        "create leases.coordination.k8s.io team-a",
        &format!("list pipelines.relaybook.dev {own}"),
        &format!("list deployments.apps {own}"),
    ];
    holds("namespaced", &allowed, &[&refused[..], &NEVER[..]].concat()).await;
}

#[tokio::test]
async fn an_installation_with_listed_secrets_reads_no_others() {
    let allowed = [
        "list secrets team-a chat",
        "watch secrets team-a audit-hmac",
        "list secrets team-b",
        "list configmaps team-a texts",
        "watch configmaps infra texts",
        "list configmaps own-secrets-listed relaybook-config",
        "list pipelines.relaybook.dev",
    ];
    let refused = [
        "list secrets",
        "list secrets team-a",
        "list secrets team-a another",
        "list secrets infra",
        "list secrets own-secrets-listed",
        "list configmaps team-a",
        "list configmaps team-b",
        "list configmaps own-secrets-listed",
    ];
    holds("secrets-listed", &allowed, &[&refused[..], &NEVER[..]].concat()).await;
}

#[tokio::test]
async fn an_installation_without_secrets_reads_none() {
    let allowed = ["list pipelines.relaybook.dev", "list deployments.apps", "get configmaps own-minimal relaybook-config"];
    let refused = [
        "list secrets team-a",
        "list secrets own-minimal",
        "list configmaps team-a",
        "list kustomizations.kustomize.toolkit.fluxcd.io",
    ];
    holds("minimal", &allowed, &[&refused[..], &NEVER[..], &WITHOUT_SETS[..]].concat()).await;
}

#[tokio::test]
async fn the_dispatcher_alone_has_its_permissions_and_no_forbidden_ones() {
    let allowed = [
        "list pipelines.relaybook.dev team-a",
        "create deliveries.relaybook.dev team-a",
        "update leases.coordination.k8s.io own-isolated relaybook-dispatch",
        "list secrets team-a",
    ];
    let refused = [
        "list deployments.apps team-a",
        "list clusters.cluster.x-k8s.io team-a",
        "update leases.coordination.k8s.io own-isolated relaybook-pipeline",
        "list configmaps team-a",
        "list promotions.relaybook.dev team-a",
        "patch promotions.relaybook.dev/status team-a shop-prod",
    ];
    holds("isolated", &allowed, &[&refused[..], &NEVER[..], &WITHOUT_SETS[..]].concat()).await;
}

#[tokio::test]
async fn the_pipeline_controller_alone_has_its_permissions_and_no_forbidden_ones() {
    let own = "own-observer";
    let allowed = [
        "list pipelines.relaybook.dev",
        "patch pipelines.relaybook.dev/status team-a shop",
        "list deployments.apps",
        "list clusters.cluster.x-k8s.io",
        "list promotions.relaybook.dev",
        "watch promotions.relaybook.dev team-a",
        "list secrets team-a",
        "create events.events.k8s.io team-a",
        &format!("update leases.coordination.k8s.io {own} relaybook-pipeline"),
        &format!("patch configmaps {own} relaybook-info"),
    ];
    let refused = [
        "create promotions.relaybook.dev team-a",
        "patch promotions.relaybook.dev team-a shop-prod",
        "patch promotions.relaybook.dev/status team-a shop-prod",
        "list notifications.relaybook.dev team-a",
        "patch notifications.relaybook.dev/status team-a chat",
        "list deliveries.relaybook.dev team-a",
        "create deliveries.relaybook.dev team-a",
        "patch deliveries.relaybook.dev team-a shop-1",
        "list configmaps team-a",
        &format!("get configmaps {own} relaybook-config"),
        &format!("create configmaps {own} relaybook-config-last-good"),
        &format!("update leases.coordination.k8s.io {own} relaybook-dispatch"),
    ];
    holds("observer", &allowed, &[&refused[..], &NEVER[..]].concat()).await;
}

#[tokio::test]
async fn the_promotion_controller_alone_has_its_permissions_and_no_forbidden_ones() {
    let own = "own-promoter";
    let allowed = [
        "list pipelines.relaybook.dev",
        "watch pipelines.relaybook.dev team-a",
        "list promotions.relaybook.dev",
        "create promotions.relaybook.dev team-a",
        "patch promotions.relaybook.dev team-a shop-prod",
        "patch promotions.relaybook.dev/status team-a shop-prod",
        "delete promotions.relaybook.dev team-a shop-prod",
        // What receivers answer to its requests.
        "list deliveries.relaybook.dev team-a",
        "create events.events.k8s.io team-a",
        // The credentials of repositories.
        "list secrets team-a",
        "watch secrets team-a deploy-bot",
        &format!("update leases.coordination.k8s.io {own} relaybook-promote"),
        &format!("patch configmaps {own} relaybook-info"),
    ];
    let refused = [
        "patch pipelines.relaybook.dev/status team-a shop",
        "list notifications.relaybook.dev team-a",
        "patch deliveries.relaybook.dev team-a",
        "create deliveries.relaybook.dev team-a",
        "list deployments.apps team-a",
        "list clusters.cluster.x-k8s.io team-a",
        "get secrets team-a deploy-bot",
        "list configmaps team-a",
        &format!("get configmaps {own} relaybook-config"),
        &format!("update leases.coordination.k8s.io {own} relaybook-dispatch"),
    ];
    holds("promoter", &allowed, &[&refused[..], &NEVER[..], &WITHOUT_SETS[..]].concat()).await;
}
