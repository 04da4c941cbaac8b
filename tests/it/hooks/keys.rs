//! A Secret with which no request can be signed is named by the status of its pipeline, an Event, `explain` and `check`. The answer of the hook
//! stays the same for everybody.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use relaybook_api::Pipeline;
use relaybook_api::conditions::{Condition, get};
use serde_json::json;

use super::{KEY, Stage, approval, post};
use crate::support::eventually;
use crate::support::relaybook::command;

/// Waits until the condition about the hooks of a pipeline has this reason. `None`: until it is absent.
async fn hooks_ready(stage: &Stage, pipeline: &str, reason: Option<&str>) -> Option<Condition> {
    eventually(&format!("HooksReady of {pipeline} is {reason:?}"), async || {
        let conditions = stage.world.get_pipeline(pipeline).await.status.unwrap_or_default().conditions;
        let found = get(&conditions, "HooksReady").cloned();
        let is = found.as_ref().map(|condition| condition.reason.as_str()) == reason;
        if is { Ok(found) } else { Err(format!("{conditions:?}")) }
    })
    .await
}

#[tokio::test]
async fn a_secret_that_cannot_sign_is_named() {
    let stage = Stage::new("hooks-keys").await;
    let world = &stage.world;
    world.secret("opaque", json!({"hmac-key": KEY})).await;
    stage.inbound("short", json!({"hmac-key": "too-short"})).await;
    stage.inbound("keyless", json!({"key": KEY})).await;
    for (name, secret) in [("typeless", "opaque"), ("brief", "short"), ("bare", "keyless"), ("missing", "nowhere")] {
        stage.suspended(name, secret).await;
    }
    let (mut relaybook, hooks) = stage.relaybook().await;
    for (name, reason, message) in [
        ("typeless", "SecretTypeInvalid", "approvals to prod are refused: Secret hooks-keys/opaque has the type Opaque"),
        ("brief", "KeyInvalid", "Secret hooks-keys/short has no key of 16 to 1024 bytes, and hmac-key is shorter or longer"),
        ("bare", "KeyMissing", "Secret hooks-keys/keyless has no key whose name begins with hmac-key"),
        ("missing", "SecretMissing", "Secret hooks-keys/nowhere does not exist"),
    ] {
        let condition = hooks_ready(&stage, name, Some(reason)).await.unwrap();
        assert!(condition.message.contains(message), "{name}: {}", condition.message);
        assert!(!condition.message.contains("too-short"), "no value is shown");
    }
    hooks_ready(&stage, "shop", None).await;
    eventually("an Event names the Secret", async || {
        let all = world.api::<Event>().list(&ListParams::default()).await.expect("listed").items;
        let is = |e: &&Event| {
            let of = e.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
            (of, e.reason.as_deref(), e.type_.as_deref()) == (Some("missing"), Some("HooksNotReady"), Some("Warning"))
        };
        let notes: Vec<_> = all.iter().filter(is).filter_map(|e| e.note.clone()).collect();
        if notes.iter().any(|note| note.contains("nowhere does not exist")) { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await;
    let explained = command(world, &["explain", "missing", "-n", &world.ns, "--allow-http"]).await;
    let text = String::from_utf8(explained.stdout).unwrap();
    let line = "# hooks: approvals to prod are refused: Secret hooks-keys/nowhere does not exist";
    assert!(text.lines().any(|shown| shown == line), "{text}");
    let checked = command(world, &["check", "--controller-namespace", &world.ns, "--watch-namespace", &world.ns]).await;
    let text = format!("{}{}", String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(
        text.contains("WARN    Pipeline hooks-keys/missing: hooks refuse every request: ")
            && text.contains("nowhere does not exist"),
        "{text}"
    );
    assert!(!text.contains("Pipeline hooks-keys/shop"), "{text}");
    // The answer shows nothing of it.
    let (path, body) = (format!("/approval/{}/typeless", world.ns), br#"{"environment": "prod"}"#);
    let answer = post(hooks, &path, &[("X-Signature", &approval(KEY, body))], body).await;
    assert_eq!(answer.status, 401);

    // The Secret is created, and another one is created again with the type.
    stage.inbound("nowhere", json!({"hmac-key": KEY})).await;
    hooks_ready(&stage, "missing", None).await;
    world.delete::<Secret>("opaque").await;
    hooks_ready(&stage, "typeless", Some("SecretMissing")).await;
    stage.inbound("opaque", json!({"hmac-key": KEY})).await;
    hooks_ready(&stage, "typeless", None).await;
    // It stays during a restart, and goes with the hook.
    let before = hooks_ready(&stage, "brief", Some("KeyInvalid")).await;
    relaybook.restart().await;
    world.settled().await;
    assert_eq!(hooks_ready(&stage, "brief", Some("KeyInvalid")).await, before);
    let mut environments = serde_json::to_value(world.get_pipeline("brief").await.spec.environments).unwrap();
    environments[1].as_object_mut().unwrap().remove("promotion");
    world.patch::<Pipeline>("brief", json!({"spec": {"environments": environments}})).await;
    hooks_ready(&stage, "brief", None).await;
}
