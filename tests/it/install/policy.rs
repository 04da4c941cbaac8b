//! The chart's admission policy: only Pennant creates Deliveries and writes their spec and status. Users with permission can annotate,
//! label and delete them. `tests/it/edited.rs` tests what the schema alone rejects.

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use pennant::api::Delivery;
use serde_json::json;

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

#[tokio::test]
async fn only_the_controller_creates_deliveries() {
    // A separate control plane, because the policy applies to all of it.
    let plane = ControlPlane::start().expect("a control plane");
    let admin = control_plane::client(&plane.kubeconfig).await;
    namespaces(&admin, &["pennant-system", "team-a"]).await;
    let release = render("pennant", "pennant-system", &json!({}));
    let account = release.as_its_account(&plane.kubeconfig).await;
    let policy =
        |object: &serde_json::Value| object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmission"));
    assert_eq!(release.objects.iter().filter(|object| policy(object)).count(), 2);
    release.apply(&plane.kubeconfig, false, policy).unwrap_or_else(|why| panic!("the policy is refused: {why}"));

    let all: Api<Delivery> = Api::namespaced(admin, "team-a");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let refused =
        eventually("the policy is in force", async || match all.create(&dry, &delivery("team-a", "probe")).await {
            Ok(_) => Err("created".to_owned()),
            Err(error) => Ok(error.to_string()),
        })
        .await;
    assert!(refused.contains("only Pennant creates Deliveries") && refused.contains("pennant.dev/redeliver"), "{refused}");

    let config = kube::config::Kubeconfig::read_from(&account).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await.expect("a config");
    let own: Api<Delivery> = Api::namespaced(Client::try_from(config).expect("a client"), "team-a");
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
        ("pending", json!({"status": {"attempts": 2}, "metadata": {"annotations": {"pennant.dev/redeliver": "1"}}})),
        ("settled", json!({"status": {"outcome": null, "redelivered": redelivered}})),
        ("direct", json!({"status": {"outcome": null, "redelivered": redelivered}})),
    ] {
        let error = all.patch(name, &params, &Patch::Merge(&change)).await.expect_err("refused").to_string();
        assert!(error.contains("only Pennant creates"), "{name}: {change}: {error}");
    }
    let error = all.patch("new", &params, &Patch::Merge(json!({"spec": {"order": 0}}))).await.expect_err("spec").to_string();
    assert!(error.contains("only Pennant creates") || error.contains("cannot be edited"), "{error}");

    let wish = Patch::Merge(json!({"metadata": {"annotations": {"pennant.dev/redeliver": "1"}, "labels": {"a": "b"}}}));
    for name in ["new", "pending", "settled", "direct"] {
        all.patch(name, &params, &wish).await.expect("anybody may ask for it to be sent again");
        all.delete(name, &DeleteParams::default()).await.expect("anybody may delete it");
    }
}

#[test]
fn a_namespaced_installation_has_no_admission_policy() {
    for values in [
        json!({"watchNamespaces": ["team-a"]}),
        json!({"admissionPolicy": {"enabled": false}}),
        json!({"controllers": ["pipeline"]}),
    ] {
        let release = render("pennant", "pennant-system", &values);
        assert_eq!(
            release.of("ValidatingAdmissionPolicy").count() + release.of("ValidatingAdmissionPolicyBinding").count(),
            0,
            "{values}"
        );
    }
}
