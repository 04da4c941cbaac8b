//! The chart's admission policy: only Pennant creates and writes Deliveries. Users with permission can redeliver and delete them.

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
    own.create(&PostParams::default(), &delivery("team-a", "one")).await.expect("the controller creates");
    let status = Patch::Merge(json!({"status": {"outcome": "Delivered", "attempts": 1}}));
    own.patch_status("one", &PatchParams::default(), &status).await.expect("the controller writes the status");

    for (what, result) in [
        (
            "status",
            all.patch_status("one", &PatchParams::default(), &Patch::Merge(json!({"status": {"outcome": null}}))).await,
        ),
        ("spec", all.patch("one", &PatchParams::default(), &Patch::Merge(json!({"spec": {"order": 0}}))).await),
    ] {
        let error = result.expect_err(what).to_string();
        assert!(error.contains("only Pennant creates") || error.contains("cannot be edited"), "{what}: {error}");
    }
    let wish = Patch::Merge(json!({"metadata": {"annotations": {"pennant.dev/redeliver": "1"}, "labels": {"a": "b"}}}));
    all.patch("one", &PatchParams::default(), &wish).await.expect("anybody may ask for it to be sent again");
    all.delete("one", &DeleteParams::default()).await.expect("anybody may delete it");
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
