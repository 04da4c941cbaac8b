//! `relaybook suspend` and `relaybook resume`: what happens meanwhile waits, and is sent in order or dropped.

use kube::ResourceExt;
use relaybook_api::{Delivery, Notification, Pipeline};
use serde_json::json;

use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

/// Starts Relaybook with the pipeline `shop`, its target `dev/web`, and the notifications `hook` and `other`.
async fn stage(ns: &str) -> (World, Receiver, Relaybook) {
    let world = World::new(ns).await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    world.notification("other", &receiver, json!({})).await;
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;
    (world, receiver, relaybook)
}

/// Runs a command that must succeed. Returns its stdout and stderr.
async fn run(world: &World, args: &[&str]) -> (String, String) {
    let (code, out, err) = world.command(args).await;
    assert_eq!(code, Some(0), "{args:?}: {out}{err}");
    (out, err)
}

/// Waits until this number of deliveries of `hook` is pending, without attempts.
async fn waiting(world: &World, count: usize) {
    eventually(&format!("{count} deliveries wait"), async || {
        let all = world.deliveries().await;
        let is_pending = |d: &&Delivery| {
            let status = d.status.clone().unwrap_or_default();
            d.spec.notification == "hook" && status.outcome.is_none() && status.attempts == 0
        };
        let found = all.iter().filter(is_pending).count();
        if found == count { Ok(()) } else { Err(format!("{found}")) }
    })
    .await;
}

#[tokio::test]
async fn what_waits_is_sent_in_order_after_resume() {
    let (world, receiver, _relaybook) = stage("suspend-resume").await;
    let (out, _) = run(&world, &["suspend", "notification/hook"]).await;
    let resume = "Resume: relaybook resume notification/hook -n suspend-resume\n";
    assert_eq!(out, format!("hook is suspended. Changes are recorded and wait; 0 wait now. {resume}"));
    let version = world.get_notification("hook").await.metadata.generation;
    let (out, _) = run(&world, &["suspend", "hook"]).await;
    assert_eq!(out, "hook is already suspended\n");
    assert_eq!(world.get_notification("hook").await.metadata.generation, version, "nothing was written");
    world.condition("hook", "Delivering", |c| c.reason == "Suspended").await;

    let tags = ["2", "3", "4", "5", "6"];
    for tag in tags {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    world.fence("shop", &["other"]).await;
    // The change of the fence waits, too.
    waiting(&world, tags.len() + 1).await;
    assert!(receiver.to("/hook/web").is_empty() && receiver.to("/hook/fence").is_empty());

    // Nobody can answer without a terminal.
    let (code, out, err) = world.command(&["resume", "hook"]).await;
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("6 messages will be sent, the oldest from ") && err.contains("confirm with --yes"), "{err}");
    assert_eq!(world.get_notification("hook").await.spec.suspend, Some(true));

    let (out, _) = run(&world, &["resume", "hook", "--yes"]).await;
    let lines: Vec<_> = out.lines().collect();
    assert!(lines[0].starts_with("6 messages will be sent, the oldest from ") && lines[1] == "hook is resumed", "{out}");
    assert_eq!(world.get_notification("hook").await.spec.suspend, None, "a layer below may decide again");
    world.fence("shop", &["hook", "other"]).await;
    let (out, _) = run(&world, &["resume", "hook"]).await;
    assert_eq!(out, "hook is not suspended\n");
    // With nothing that waits, nobody is asked.
    run(&world, &["suspend", "hook"]).await;
    let (out, _) = run(&world, &["resume", "hook"]).await;
    assert_eq!(out, "hook is resumed\n");

    let all = tags.map(|tag| format!("Deployed {tag}"));
    let all = all.each_ref().map(String::as_str);
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &all).lane("shop/other/dev/web", &all).check().await;
    world.condition("hook", "Delivering", |c| c.reason == "Delivering").await;
}

#[tokio::test]
async fn what_waits_is_dropped_if_that_is_requested() {
    let (world, receiver, _relaybook) = stage("suspend-drop").await;
    run(&world, &["suspend", "hook"]).await;
    world.condition("hook", "Delivering", |c| c.reason == "Suspended").await;
    for tag in ["2", "3", "4"] {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    world.fence("shop", &["other"]).await;
    waiting(&world, 4).await;
    let names: Vec<_> =
        world.deliveries().await.iter().filter(|d| d.spec.notification == "hook").map(ResourceExt::name_any).collect();

    let (code, _, err) = world.command(&["resume", "hook", "--drop"]).await;
    assert!(code == Some(2) && err.contains("4 messages will be deleted and never sent"), "{err}");
    waiting(&world, 4).await;
    let (out, _) = run(&world, &["resume", "hook", "--drop", "--yes"]).await;
    assert!(out.starts_with("4 messages will be deleted and never sent, the oldest from "), "{out}");
    assert!(out.ends_with("\nhook is resumed\n"), "{out}");
    for name in &names {
        let line = format!("delivery.relaybook.dev/{name} in suspend-drop is deleted, and is never sent");
        assert!(out.lines().any(|said| said == line), "{name}: {out}");
    }
    // The lanes continue, and the audit has only what was sent.
    world.ship("web", "5").await;
    world.fence("shop", &["hook", "other"]).await;
    let other = ["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5"];
    let oracle = Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 5"]);
    oracle.lane("shop/other/dev/web", &other).check().await;
    assert_eq!(receiver.to("/hook/web").len(), 1);
}

#[tokio::test]
async fn what_a_layer_or_another_controller_decides_is_said() {
    let world = World::new("suspend-said").await;
    let receiver = Receiver::start();
    world.notification("hook", &receiver, json!({})).await;
    let flux = json!({"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"});
    world.patch::<Notification>("hook", json!({"metadata": {"labels": flux}})).await;
    world.pipeline("shop", &["dev/web"]).await;
    world.patch::<Pipeline>("shop", json!({"spec": {"notifications": [{"name": "hook", "suspend": true}]}})).await;
    let warning = "warning: Kustomization flux-system/apps sets this object back; change it in Git\n";
    let (out, err) = run(&world, &["suspend", "hook"]).await;
    assert!(out.starts_with("hook is suspended. ") && err.ends_with(warning), "{out}{err}");
    let (out, err) = run(&world, &["resume", "hook"]).await;
    assert!(out.starts_with("hook is no longer suspended by its Notification\n") && err.ends_with(warning), "{out}{err}");
    assert!(out.contains("\nhook is still suspended by Pipeline shop; "), "{out}");
    let (out, _) = run(&world, &["resume", "hook"]).await;
    assert!(out.starts_with("hook is not suspended by its Notification, so nothing was changed\n"), "{out}");

    world.patch::<Pipeline>("shop", json!({"spec": {"notifications": [{"name": "own"}]}})).await;
    for (args, code, words) in [
        (&["suspend", "own"][..], 5, "Notification suspend-said/own does not exist; only Pipeline shop defines own"),
        (&["suspend", "nope"], 5, "Notification suspend-said/nope does not exist; "),
        (&["suspend", "pipeline/shop"], 2, "Pipelines cannot be suspended; write promotions/shop"),
        (&["suspend", "hook", "prod"], 2, "an environment is only for promotions/PIPELINE"),
        (&["resume", "promotions/shop", "--drop"], 2, "--drop is only for a Notification"),
        (&["suspend", "promotions/nope"], 5, "Pipeline suspend-said/nope cannot be read"),
        (&["suspend", "promotions/shop"], 1, "Pipeline shop promotes nothing there"),
    ] {
        let (found, out, err) = world.command(args).await;
        assert_eq!((found, out.as_str()), (Some(code), ""), "{args:?}: {err}");
        assert!(err.contains(words), "{args:?}: {err}");
    }
}

#[tokio::test]
async fn promotions_are_suspended_where_their_policy_is() {
    let world = World::new("suspend-promotions").await;
    let policy = json!({"strategy": {"notification": {}}, "after": "1m"});
    let environment = |name: &str| json!({"name": name, "targets": [{"namespace": "suspend-promotions"}]});
    let mut prod = environment("prod");
    prod["promotion"] = policy.clone();
    world
        .create::<Pipeline>(json!({"metadata": {"name": "web"}, "spec": {
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "promotion": policy,
            "environments": [environment("dev"), environment("qa"), prod],
        }}))
        .await;
    let suspended = async || {
        let spec = world.get_pipeline("web").await.spec;
        let of = |policy: Option<&relaybook_api::promotion::PromotionPolicy>| policy.map(|policy| policy.suspend);
        (of(spec.promotion.as_ref()), of(spec.environments[2].promotion.as_ref()))
    };

    let (out, err) = run(&world, &["suspend", "promotions/web"]).await;
    let resume = "Resume: relaybook resume promotions/web -n suspend-promotions\n";
    assert_eq!(out, format!("promotions of web are suspended. Those that were requested continue. {resume}"));
    assert!(err.contains("prod has a promotion policy of its own, which is not suspended: relaybook suspend"), "{err}");
    assert_eq!(suspended().await, (Some(true), Some(false)));
    let (out, _) = run(&world, &["suspend", "promotions/web", "prod"]).await;
    assert!(out.starts_with("promotions of web to prod are suspended. "), "{out}");
    assert_eq!(suspended().await, (Some(true), Some(true)));
    let generation = world.get_pipeline("web").await.metadata.generation;
    let (out, _) = run(&world, &["suspend", "promotions/web", "prod"]).await;
    assert_eq!(out, "promotions of web to prod are already suspended\n");
    assert_eq!(world.get_pipeline("web").await.metadata.generation, generation, "nothing was written");

    let (out, _) = run(&world, &["resume", "promotions/web", "prod"]).await;
    assert_eq!(out, "promotions of web to prod are resumed\n");
    assert_eq!(suspended().await, (Some(true), Some(false)));
    let (out, err) = run(&world, &["resume", "promotions/web"]).await;
    assert_eq!((out.as_str(), err.as_str()), ("promotions of web are resumed\n", ""));
    assert_eq!(suspended().await, (Some(false), Some(false)));
    let spec = world.get_pipeline("web").await.spec;
    assert_eq!(spec.environments[2].promotion.as_ref().unwrap().after.as_deref(), Some("1m"), "the rest is unchanged");
    let (code, _, err) = world.command(&["suspend", "promotions/web", "qa"]).await;
    assert!(code == Some(1) && err.contains("so spec.promotion applies to it"), "{err}");
}
