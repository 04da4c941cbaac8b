//! The chart's admission policy: only Relaybook creates Deliveries and writes their spec and status. Users with permission can annotate,
//! label and delete them. A patch deletes and keeps nothing. `tests/it/edited.rs` tests what the schema alone rejects.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Client, Config, ResourceExt as _};
use relaybook_api::{Delivery, Pipeline, PipelineSet, Promotion};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{namespaces, render};
use crate::support::control_plane::{self, ControlPlane};
use crate::support::eventually;

fn delivery(namespace: &str, name: &str) -> Delivery {
    let state = json!({"status": "Current", "revision": "1"});
    let object = json!({
        "metadata": {"name": name},
        "spec": {
            "notification": "hook", "pipelineRef": {"namespace": namespace, "name": "shop", "uid": "u"},
            "subject": {"kind": "Target", "name": "dev/in-cluster/x"}, "lane": "target/dev/in-cluster/x",
            "order": 1, "serial": 1, "type": "Deployed", "time": "2026-01-01T00:00:00Z", "from": state, "to": state,
        },
    });
    serde_json::from_value(object).expect("a Delivery")
}

/// Returns a client with a kubeconfig. `user`: the account as which it acts.
async fn as_user(kubeconfig: &Path, user: Option<&str>) -> Client {
    let file = kube::config::Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let mut config =
        Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await.expect("a config");
    config.auth_info.impersonate = user.map(str::to_owned);
    Client::try_from(config).expect("a client")
}

/// A control plane for these tests, because the policy applies to all of it. Each test has its own namespace there.
fn kubeconfig() -> &'static Path {
    static PLANE: OnceLock<ControlPlane> = OnceLock::new();
    crate::support::turn::wait();
    &PLANE.get_or_init(|| ControlPlane::start().expect("a control plane")).kubeconfig
}

/// Creates a namespace under the policy. Returns a client that may do everything, and the kubeconfig of the controller's account.
async fn installed(namespace: &str) -> (Client, &'static Path) {
    static ACCOUNT: OnceCell<PathBuf> = OnceCell::const_new();
    let admin = control_plane::client(kubeconfig()).await;
    namespaces(&admin, &["relaybook-system", namespace]).await;
    (admin, ACCOUNT.get_or_init(install).await.as_path())
}

/// Installs the policy. Returns the kubeconfig of the controller's account.
async fn install() -> PathBuf {
    let release = render("relaybook", "relaybook-system", &json!({}));
    let account = release.as_its_account(kubeconfig()).await;
    let policy = |object: &Value| object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmission"));
    assert_eq!(release.objects.iter().filter(|object| policy(object)).count(), 2);
    release.apply(kubeconfig(), false, policy).unwrap_or_else(|why| panic!("the policy is refused: {why}"));
    account
}

/// Waits until the policy is in force. Returns how it refuses a Delivery.
async fn in_force(deliveries: &Api<Delivery>, namespace: &str) -> String {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the policy is in force", async || match deliveries.create(&dry, &delivery(namespace, "probe")).await {
        Ok(_) => Err("created".to_owned()),
        Err(error) => Ok(error.to_string()),
    })
    .await
}

#[tokio::test]
async fn only_the_controller_creates_deliveries() {
    let (admin, account) = installed("team-a").await;
    let all: Api<Delivery> = Api::namespaced(admin, "team-a");
    let refused = in_force(&all, "team-a").await;
    assert!(
        refused.contains("only Relaybook creates Deliveries") && refused.contains("relaybook.dev/redeliver"),
        "{refused}"
    );

    let own: Api<Delivery> = Api::namespaced(as_user(account, None).await, "team-a");
    let params = PatchParams::default();
    let settled = json!({"outcome": "Delivered", "attempts": 1});
    let mut direct = delivery("team-a", "direct");
    direct.status = serde_json::from_value(settled.clone()).expect("a status");
    let stored = own.create(&PostParams::default(), &direct).await.expect("the controller creates it with its outcome");
    assert_eq!(stored.status, direct.status, "the API server keeps the status of a create");
    for name in ["new", "pending", "settled"] {
        own.create(&PostParams::default(), &delivery("team-a", name)).await.expect("the controller creates");
    }
    for (name, status) in [("pending", json!({"attempts": 1, "reason": "ReceiverError"})), ("settled", settled)] {
        let patch = Patch::Merge(json!({"status": status}));
        let stored = own.patch(name, &params, &patch).await.expect("the controller writes the status");
        assert!(stored.status.is_some_and(|status| status.attempts == 1), "{name}");
    }

    // The schema accepts these changes of the status, so the policy has to refuse them.
    let redelivered = json!({"value": "1", "time": "2026-01-01T00:00:00Z"});
    for (name, change) in [
        ("new", json!({"status": {"attempts": 1}})),
        ("new", json!({"status": {"outcome": "Canceled"}})),
        ("new", json!({"status": {}})),
        ("pending", json!({"status": {"reason": "Forged"}})),
        ("pending", json!({"status": {"outcome": "Delivered"}})),
        ("pending", json!({"status": {"attempts": 2}, "metadata": {"annotations": {"relaybook.dev/redeliver": "1"}}})),
        ("settled", json!({"status": {"outcome": null, "redelivered": redelivered}})),
        ("direct", json!({"status": {"outcome": null, "redelivered": redelivered}})),
    ] {
        let error = all.patch(name, &params, &Patch::Merge(&change)).await.expect_err("refused").to_string();
        assert!(error.contains("only Relaybook creates"), "{name}: {change}: {error}");
    }
    let error = all.patch("new", &params, &Patch::Merge(json!({"spec": {"order": 0}}))).await.expect_err("spec").to_string();
    assert!(error.contains("only Relaybook creates") || error.contains("cannot be edited"), "{error}");

    let wish = Patch::Merge(json!({"metadata": {"annotations": {"relaybook.dev/redeliver": "1"}, "labels": {"a": "b"}}}));
    for name in ["new", "pending", "settled", "direct"] {
        all.patch(name, &params, &wish).await.expect("anybody may ask for it to be sent again");
        all.delete(name, &DeleteParams::default()).await.expect("anybody may delete it");
    }
}

fn typed<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("an object")
}

fn promotion(name: &str) -> Value {
    let pipeline = json!({"name": "shop", "uid": "u"});
    let spec = json!({"pipelineRef": pipeline, "environment": "prod", "from": "dev", "revision": "2", "occasion": 1});
    json!({"metadata": {"name": name, "labels": {"relaybook.dev/pipeline": "shop"}}, "spec": spec})
}

/// Returns a pipeline with an owner. `set`: the set that made it, or an empty text.
fn pipeline(namespace: &str, name: &str, owner: &Value, set: &str) -> Value {
    let labels = json!({"relaybook.dev/pipeline-set": "apps"});
    let source = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": "x"});
    let made_by = Some(json!({"name": set, "source": source})).filter(|_| !set.is_empty());
    json!({"metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}, "spec": {
        "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
        "environments": [{"name": "prod", "targets": [{"namespace": namespace}]}],
        "pipelineSet": made_by,
    }})
}

/// Sends a patch, and returns why it is refused, or an empty text.
async fn refused<K>(all: &Api<K>, name: &str, change: &Value) -> String
where
    K: Clone + DeserializeOwned + Debug,
{
    let result = all.patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

/// A namespace under the policy, and its objects: Deliveries and Promotions `one` and `fore`, Pipelines `one`, `fore` and `taken` that a set
/// has made, and the Pipeline `mine`.
struct Stage {
    namespace: &'static str,
    deliveries: Api<Delivery>,
    promotions: Api<Promotion>,
    pipelines: Api<Pipeline>,
    /// The reference to the set.
    owner: Value,
}

impl Stage {
    async fn new(namespace: &'static str) -> Self {
        let (admin, account) = installed(namespace).await;
        let stage = Self {
            namespace,
            deliveries: Api::namespaced(admin.clone(), namespace),
            promotions: Api::namespaced(admin.clone(), namespace),
            pipelines: Api::namespaced(admin.clone(), namespace),
            owner: owner(&admin, namespace).await,
        };
        in_force(&stage.deliveries, namespace).await;
        let own: Api<Delivery> = Api::namespaced(as_user(account, None).await, namespace);
        let post = PostParams::default();
        for name in ["one", "fore"] {
            let mut object = delivery(namespace, name);
            object.labels_mut().insert("relaybook.dev/pipeline".to_owned(), "shop".to_owned());
            own.create(&post, &object).await.expect("a Delivery");
            stage.promotions.create(&post, &typed(promotion(name))).await.expect("a person starts a promotion");
        }
        for (name, set) in [("one", "apps"), ("fore", "apps"), ("taken", "apps"), ("mine", "")] {
            let object = pipeline(namespace, name, &stage.owner, set);
            stage.pipelines.create(&post, &typed(object)).await.expect("a Pipeline");
        }
        stage
    }

    /// Sends a patch to the Delivery, the Promotion and the Pipeline of this name.
    async fn refused(&self, name: &str, change: &Value) -> [String; 3] {
        [
            refused(&self.deliveries, name, change).await,
            refused(&self.promotions, name, change).await,
            refused(&self.pipelines, name, change).await,
        ]
    }
}

/// Creates a set, and returns the reference to it.
async fn owner(admin: &Client, namespace: &str) -> Value {
    let environment = json!({"name": "prod", "targets": [{"namespace": namespace}]});
    let template = json!({"metadata": {"name": "{{name}}"}, "spec": {"environments": [environment]}});
    let generator = json!({"objects": {"apiVersion": "apps/v1", "kind": "Deployment"}});
    let set = json!({"metadata": {"name": "apps"}, "spec": {"generators": [generator], "template": template}});
    let sets: Api<PipelineSet> = Api::namespaced(admin.clone(), namespace);
    let set = sets.create(&PostParams::default(), &typed(set)).await.expect("a set");
    json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "PipelineSet", "name": "apps", "uid": set.uid(), "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// With a reference to an owner that does not exist, the garbage collector of Kubernetes deletes an object. With a finalizer, it stays.
#[tokio::test]
async fn a_patch_of_owners_finalizers_or_reserved_metadata_is_refused() {
    let stage = Stage::new("team-b").await;
    let owner = &stage.owner;
    let gone =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"});
    let mut renamed = owner.clone();
    renamed["name"] = json!("gone");
    let held = json!(["example.com/held"]);
    for (field, metadata) in [
        ("ownerReferences", json!({"ownerReferences": [gone]})),
        ("ownerReferences", json!({"ownerReferences": [owner, gone]})),
        ("ownerReferences", json!({"ownerReferences": [renamed]})),
        ("finalizers", json!({"finalizers": held})),
        ("finalizers", json!({"finalizers": ["foregroundDeletion"]})),
        ("annotations", json!({"annotations": {"relaybook.dev/approved-by": "hook"}})),
        ("annotations", json!({"annotations": {"relaybook.dev/applied": "0"}})),
    ] {
        let change = json!({"metadata": metadata});
        for why in stage.refused("one", &change).await {
            assert!(why.contains(&format!("metadata.{field}")), "{change}: {why}");
        }
        assert_eq!(refused(&stage.pipelines, "mine", &change).await, "", "{change}: no set made it");
    }
    for (label, value, are_refused) in [
        ("relaybook.dev/pipeline", json!("other"), [true, true, false]),
        ("relaybook.dev/pipeline", Value::Null, [true, true, false]),
        ("relaybook.dev/environment", json!("prod"), [true, true, false]),
        ("relaybook.dev/test", json!("true"), [true, true, false]),
        ("velero.io/exclude-from-backup", json!("false"), [true, true, false]),
        ("relaybook.dev/pipeline-set", json!("b"), [false, false, true]),
        ("relaybook.dev/pipeline-set", Value::Null, [false, false, true]),
    ] {
        let found = stage.refused("one", &json!({"metadata": {"labels": {label: value}}})).await;
        assert_eq!(found.each_ref().map(|why| why.contains("metadata.labels")), are_refused, "{label}: {found:?}");
    }
    for metadata in [json!({"ownerReferences": [gone]}), json!({"finalizers": held})] {
        let mut object = promotion("two");
        json_patch::merge(&mut object["metadata"], &metadata);
        let created = stage.promotions.create(&PostParams::default(), &typed(object)).await;
        let why = created.expect_err("refused").to_string();
        assert!(why.contains("cannot add"), "{metadata}: {why}");
    }
}

/// The control plane has no garbage collector, so this test makes its calls: see `pkg/controller/garbagecollector` of Kubernetes.
#[tokio::test]
async fn users_and_the_garbage_collector_are_not_restricted_by_the_policy() {
    let stage = Stage::new("team-c").await;
    let none = [""; 3];
    let all = json!({"metadata": {"labels": {"mine": "a"}, "annotations": {"a/b": "c"}}});
    assert_eq!(stage.refused("one", &all).await, none);
    let wish = json!({"metadata": {"annotations": {"relaybook.dev/redeliver": "1"}}});
    assert_eq!(refused(&stage.deliveries, "one", &wish).await, "");
    let wish = json!({"metadata": {"annotations": {"relaybook.dev/retry": "1"}}, "spec": {"approved": true}});
    assert_eq!(refused(&stage.promotions, "one", &wish).await, "");
    let edit = json!({"spec": {"environments": [{"name": "live", "targets": [{"namespace": stage.namespace}]}]}});
    assert_eq!(refused(&stage.pipelines, "one", &edit).await, "");
    let labels = json!({"relaybook.dev/pipeline-set": null});
    let leaves = json!({"metadata": {"ownerReferences": null, "labels": labels}, "spec": {"pipelineSet": null}});
    assert_eq!(refused(&stage.pipelines, "taken", &leaves).await, "", "a pipeline is taken out of its set");

    // The API server itself sets the finalizers of these deletions.
    for policy in [PropagationPolicy::Foreground, PropagationPolicy::Orphan] {
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        stage.deliveries.delete("fore", &params).await.expect("deleted");
        stage.promotions.delete("fore", &params).await.expect("deleted");
        stage.pipelines.delete("fore", &params).await.expect("deleted");
    }
    let kept = stage.deliveries.get("fore").await.expect("it is there");
    assert_eq!(kept.finalizers().len(), 1, "{:?}", kept.metadata);
    let account = "system:serviceaccount:kube-system:generic-garbage-collector";
    let collector = as_user(kubeconfig(), Some(account)).await;
    let collector = Stage {
        deliveries: Api::namespaced(collector.clone(), stage.namespace),
        promotions: Api::namespaced(collector.clone(), stage.namespace),
        pipelines: Api::namespaced(collector, stage.namespace),
        ..stage
    };
    assert_eq!(collector.refused("fore", &json!({"metadata": {"finalizers": []}})).await, none);
    assert!(collector.deliveries.get_opt("fore").await.unwrap().is_none());
    assert!(collector.promotions.get_opt("fore").await.unwrap().is_none());
    assert!(collector.pipelines.get_opt("fore").await.unwrap().is_none());
    // What it does to the pipelines of a set that is deleted.
    let mut unblocked = collector.owner.clone();
    unblocked["blockOwnerDeletion"] = json!(false);
    for owners in [json!([unblocked]), json!([])] {
        let change = json!({"metadata": {"ownerReferences": owners}});
        assert_eq!(refused(&collector.pipelines, "one", &change).await, "", "{change}");
    }
}

#[test]
fn a_namespaced_installation_has_no_admission_policy() {
    for values in [
        json!({"watchNamespaces": ["team-a"]}),
        json!({"admissionPolicy": {"enabled": false}}),
        json!({"controllers": ["pipeline"], "pipelineSets": {"enabled": false}}),
    ] {
        let release = render("relaybook", "relaybook-system", &values);
        assert_eq!(
            release.of("ValidatingAdmissionPolicy").count() + release.of("ValidatingAdmissionPolicyBinding").count(),
            0,
            "{values}"
        );
    }
}

#[test]
fn a_policy_protects_what_its_release_writes() {
    for (values, expected) in [
        (json!({}), "deliveries promotions pipelines"),
        (json!({"pipelineSets": {"enabled": false}}), "deliveries promotions"),
        (json!({"controllers": ["dispatch"]}), "deliveries"),
        (json!({"controllers": ["promote"]}), "promotions"),
        (json!({"controllers": ["pipeline"]}), "pipelines"),
    ] {
        let release = render("relaybook", "relaybook-system", &values);
        let policy = release.of("ValidatingAdmissionPolicy").next().expect("a policy");
        let rules = policy["spec"]["matchConstraints"]["resourceRules"].as_array().expect("rules");
        let kinds: Vec<_> = rules.iter().map(|rule| rule["resources"][0].as_str().expect("a resource")).collect();
        assert_eq!(kinds.join(" "), expected, "{values}");
    }
}
