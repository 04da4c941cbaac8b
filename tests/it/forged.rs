//! Tests Deliveries that Relaybook has not created: none of them is ever sent, and none delays what Relaybook has recorded.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use relaybook_api::delivery::REDELIVER;
use relaybook_api::{Delivery, DeliverySpec, DeliveryStatus, Outcome, TransitionType};
use relaybook_deliveries::outbox::record::name;
use serde_json::json;

use crate::support::relaybook::Options;
use crate::support::world;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

/// A team, an attacker in another namespace, and the namespace of the controller with a token of the platform.
struct Stage {
    system: World,
    team: World,
    other: World,
    receiver: Receiver,
}

impl Stage {
    async fn new(ns: &str) -> Self {
        let system = World::new(&format!("{ns}-sys")).await;
        let team = World::beside(ns, &system).await;
        let other = World::beside(&format!("{ns}-other"), &system).await;
        let receiver = Receiver::start();
        system.secret("platform", json!({"token": "of the platform"})).await;
        team.secret("own", json!({"token": "of the team"})).await;
        let auth = |name: &str| json!({"endpoint": {"auth": {"token": {"secretKeyRef": {"name": name, "key": "token"}}}}});
        let url = receiver.url("/audit/{{target.app.name}}");
        let mut audit = world::notification("audit", &url, auth("platform"))["spec"].take();
        audit["name"] = json!("audit");
        let config = json!({"notifications": [audit]}).to_string();
        let map = json!({"metadata": {"name": "relaybook-config"}, "data": {"config.yaml": config}});
        system.create::<ConfigMap>(map).await;
        for world in [&team, &other] {
            world.deploy("web", "1").await;
            world.pipeline("shop", &["dev/web"]).await;
        }
        team.notification("hook", &receiver, auth("own")).await;
        Self { system, team, other, receiver }
    }

    async fn start(&self) -> Relaybook {
        let watch = vec![self.team.ns.clone(), self.other.ns.clone()];
        let relaybook = Relaybook::with(&self.system, Options { watch, ..Options::of(&self.system) }).await;
        for world in [&self.team, &self.other] {
            world.settled().await;
            eventually("the cursor of the cluster-wide notification", async || {
                let dispatched = world.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
                let there = dispatched.cursors.iter().any(|c| c.notification == "audit");
                there.then_some(()).ok_or_else(|| format!("{:?}", dispatched.cursors))
            })
            .await;
        }
        relaybook
    }

    /// Waits for a genuine delivery of the team. Returns its spec, from which forgeries are made.
    async fn genuine(&self, notification: &str) -> DeliverySpec {
        self.team.delivery("Deployed 2", |d| d.spec.notification == notification && is(d, Outcome::Delivered)).await.spec
    }

    /// Waits until none of these objects exists.
    async fn are_deleted(&self, forged: &[(String, String)]) {
        eventually("forged deliveries are deleted", async || {
            let mut left = Vec::new();
            for world in [&self.system, &self.team, &self.other] {
                let there = world.deliveries_in(&world.ns).await;
                let names: BTreeSet<_> = there.iter().map(kube::ResourceExt::name_any).collect();
                left.extend(forged.iter().filter(|(ns, name)| *ns == world.ns && names.contains(name)).cloned());
            }
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
}

fn is(delivery: &Delivery, outcome: Outcome) -> bool {
    delivery.status.as_ref().and_then(|s| s.outcome) == Some(outcome)
}

async fn make(world: &World, called: Option<&str>, spec: DeliverySpec) -> (String, String) {
    let name = called.map_or_else(|| name(&spec), str::to_owned);
    let object = Delivery::new(&name, spec);
    world.api::<Delivery>().create(&PostParams::default(), &object).await.expect("the API server accepts it");
    (world.ns.clone(), name)
}

/// Returns edited copies of a genuine delivery, each with a description of the edit.
fn edits(own: &DeliverySpec, serial: i64) -> Vec<(&'static str, DeliverySpec)> {
    let with = |edit: &dyn Fn(&mut DeliverySpec)| {
        let mut spec = own.clone();
        spec.to.message = "FORGED".into();
        spec.from.message = "FORGED".into();
        edit(&mut spec);
        spec
    };
    let at = |serial: i64| move |s: &mut DeliverySpec| (s.serial, s.order) = (serial, serial);
    vec![
        ("an earlier serial", with(&at(serial - 1))),
        ("a serial long before", with(&at(1))),
        ("the first of all", with(&at(0))),
        ("another transition", with(&|s| s.type_ = TransitionType::Failed)),
        ("at the head of the lane", with(&|s| (s.serial, s.order) = (serial - 2, 0))),
        ("in another lane", with(&|s| (s.serial, s.order, s.lane) = (serial - 3, serial - 3, "target/other".into()))),
        ("a timer", with(&|s| (s.serial, s.order, s.due) = (serial - 4, serial, Some(s.time)))),
        (
            "of the global configuration",
            with(&|s| (s.serial, s.order, s.notification_uid) = (serial - 5, serial - 5, "global".into())),
        ),
        ("an error", with(&|s| (s.serial, s.order, s.error) = (serial - 6, serial - 6, Some("FORGED".into())))),
        ("drift", with(&|s| s.type_ = TransitionType::Drifted)),
        ("of the pipeline's lane", with(&|s| (s.serial, s.order, s.lane) = (serial - 7, serial - 7, "pipeline".into()))),
    ]
}

#[tokio::test]
async fn a_forged_delivery_is_deleted_and_never_sent() {
    let stage = Stage::new("forged").await;
    let Stage { system: _, team, other, receiver } = &stage;
    let mut relaybook = stage.start().await;
    team.ship("web", "2").await;
    let (hook, audit) = (stage.genuine("hook").await, stage.genuine("audit").await);
    team.fence("shop", &["hook", "audit"]).await;
    let serial = hook.serial;
    let own_uid = other.get_pipeline("shop").await.metadata.uid.expect("a uid");

    let mut forged = Vec::new();
    for genuine in [&hook, &audit] {
        for (_, spec) in edits(genuine, serial) {
            // In the namespace of the pipeline, and in the namespace of the attacker.
            forged.push(make(team, None, spec.clone()).await);
            forged.push(make(other, None, spec.clone()).await);
            // With the uid of the attacker's own pipeline.
            let mut spec = spec;
            spec.pipeline_ref.uid.clone_from(&own_uid);
            forged.push(make(other, None, spec).await);
        }
        // Under another name.
        forged.push(make(team, Some(&format!("any-{}", genuine.notification)), genuine.clone()).await);
    }
    assert!(forged.len() >= 30, "{}", forged.len());
    stage.are_deleted(&forged).await;

    // A forgery for a change that is still to come is replaced by what Relaybook records for that change.
    let mut next = hook.clone();
    let last = team.get_pipeline("shop").await.status.and_then(|s| s.log).expect("a log").serial;
    (next.serial, next.order, next.to.message) = (last + 1, last + 1, "FORGED".into());
    make(team, None, next.clone()).await;
    (next.serial, next.order, next.type_) = (last + 2, last + 2, TransitionType::Progressing);
    let later = make(team, None, next).await;
    team.ship("web", "3").await;
    team.delivery("Deployed 3", |d| d.spec.notification == "hook" && is(d, Outcome::Delivered)).await;
    team.fence("shop", &["hook", "audit"]).await;
    stage.are_deleted(&[later]).await;

    // Forgeries that are created while Relaybook is stopped are not sent either, even with an annotation that requests a redelivery.
    relaybook.kill9();
    team.younger("shop").await;
    let mut away = Vec::new();
    for genuine in [&hook, &audit] {
        for (_, spec) in edits(genuine, serial) {
            away.push(make(team, None, spec).await);
        }
    }
    let wish = Patch::Merge(json!({"metadata": {"annotations": {REDELIVER: "1"}}}));
    for (_, name) in &away {
        team.api::<Delivery>().patch(name, &PatchParams::default(), &wish).await.expect("annotated");
    }
    relaybook.start_again().await;
    stage.are_deleted(&away).await;
    team.ship("web", "4").await;
    team.fence("shop", &["hook", "audit"]).await;
    Oracle::new(team, receiver)
        .after_a_crash()
        .lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3", "Deployed 4"])
        .lane("shop/audit/dev/web", &["Deployed 2", "Deployed 3", "Deployed 4"])
        .check()
        .await;
    let bodies: Vec<String> = receiver.log().iter().map(|request| request.json().to_string()).collect();
    assert!(bodies.iter().all(|body| !body.contains("FORGED")), "{bodies:?}");
    assert!(relaybook.metrics().await["relaybook_deliveries_foreign_total"] >= 20.0);
}

/// Without a status subresource, a client that creates a Delivery can also set its status.
#[tokio::test]
async fn a_forged_delivery_with_a_status_is_never_sent() {
    let stage = Stage::new("forged-status").await;
    let Stage { team, receiver, .. } = &stage;
    let mut relaybook = stage.start().await;
    team.ship("web", "2").await;
    let genuine = [stage.genuine("hook").await, stage.genuine("audit").await];
    team.fence("shop", &["hook", "audit"]).await;
    let attempted = DeliveryStatus { attempts: 1, ..DeliveryStatus::default() };
    let settled_time = Some(genuine[0].time);
    let parked = DeliveryStatus { outcome: Some(Outcome::Parked), settled_time, ..attempted.clone() };
    let forge = async |away: bool| {
        let mut forged = Vec::new();
        for genuine in &genuine {
            let from = genuine.serial - if away { 10 } else { 0 };
            for ((_, spec), status) in edits(genuine, from).into_iter().zip([&attempted, &parked].into_iter().cycle()) {
                let mut object = Delivery::new(&name(&spec), spec);
                object.status = Some(status.clone());
                object.metadata.annotations = Some([(REDELIVER.to_owned(), "1".to_owned())].into());
                let made = team.api::<Delivery>().create(&PostParams::default(), &object).await.expect("accepted");
                assert_eq!(made.status.as_ref(), Some(status));
                forged.push((team.ns.clone(), made.name_any()));
            }
        }
        forged
    };
    stage.are_deleted(&forge(false).await).await;
    relaybook.kill9();
    team.younger("shop").await;
    let away = forge(true).await;
    relaybook.start_again().await;
    stage.are_deleted(&away).await;
    team.ship("web", "3").await;
    team.fence("shop", &["hook", "audit"]).await;
    let steps = ["Deployed 2", "Deployed 3"];
    let oracle = Oracle::new(team, receiver).after_a_crash().lane("shop/hook/dev/web", &steps);
    oracle.lane("shop/audit/dev/web", &steps).check().await;
    let bodies: Vec<String> = receiver.log().iter().map(|request| request.json().to_string()).collect();
    assert!(bodies.iter().all(|body| !body.contains("FORGED")), "{bodies:?}");
}

/// A finalizer keeps the object. To the next process, it could look like a delivery that was recorded before.
#[tokio::test]
async fn a_forged_delivery_with_a_finalizer_is_never_sent() {
    let stage = Stage::new("forged-kept").await;
    let Stage { team, receiver, .. } = &stage;
    let mut relaybook = stage.start().await;
    team.ship("web", "2").await;
    let mut forged = Vec::new();
    for notification in ["hook", "audit"] {
        let mut spec = stage.genuine(notification).await;
        (spec.serial, spec.order, spec.to.message) = (spec.serial - 1, spec.serial - 1, "FORGED".into());
        let mut object = Delivery::new(&name(&spec), spec);
        object.metadata.finalizers = Some(vec!["example.com/kept".into()]);
        let stored = team.api::<Delivery>().create(&PostParams::default(), &object).await.expect("taken");
        forged.push(stored.name_any());
    }
    eventually("they are marked as deleted", async || {
        let there = team.deliveries_in(&team.ns).await;
        let left = there.iter().filter(|d| forged.contains(&d.name_any()) && d.metadata.deletion_timestamp.is_none());
        let left = left.count();
        if left == 0 { Ok(()) } else { Err(format!("{left} are not")) }
    })
    .await;
    for tag in ["3", "4"] {
        team.ship("web", tag).await;
        team.fence("shop", &["hook", "audit"]).await;
        relaybook.kill9();
        relaybook.start_again().await;
    }
    team.fence("shop", &["hook", "audit"]).await;
    let bodies: Vec<String> = receiver.log().iter().map(|request| request.json().to_string()).collect();
    assert!(bodies.iter().all(|body| !body.contains("FORGED")), "{bodies:?}");
    for name in &forged {
        let kept = team.api::<Delivery>().get(name).await.expect("a finalizer keeps it");
        assert_eq!(kept.status.and_then(|s| s.outcome), None);
        team.patch::<Delivery>(name, json!({"metadata": {"finalizers": null}})).await;
    }
    let forged: Vec<_> = forged.into_iter().map(|name| (team.ns.clone(), name)).collect();
    stage.are_deleted(&forged).await;
}

#[tokio::test]
async fn pending_deliveries_of_before_a_restart_are_still_sent() {
    let stage = Stage::new("unforged").await;
    let Stage { team, receiver, .. } = &stage;
    let mut relaybook = stage.start().await;
    for notification in ["hook", "audit"] {
        receiver.always(&format!("/{notification}/web"), Reply::status(503));
    }
    for tag in ["2", "3", "4"] {
        team.ship("web", tag).await;
        team.observed_at("shop", tag, &["web"]).await;
    }
    // All are recorded, and the log no longer contains them.
    eventually("the log is pruned", async || {
        team.fence("shop", &["hook", "audit"]).await;
        let log = team.get_pipeline("shop").await.status.and_then(|s| s.log).expect("a log");
        let left: Vec<_> = log.changes.iter().filter(|change| change.subject.ends_with("/web")).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{} changes", left.len())) }
    })
    .await;
    relaybook.kill9();
    relaybook.start_again().await;
    for notification in ["hook", "audit"] {
        receiver.always(&format!("/{notification}/web"), Reply::status(200));
    }
    team.fence("shop", &["hook", "audit"]).await;
    for notification in ["hook", "audit"] {
        team.delivery("Deployed 4", |d| d.spec.notification == notification && is(d, Outcome::Delivered)).await;
    }
    let steps = ["Deployed 2", "Deployed 3", "Deployed 4"];
    Oracle::new(team, receiver)
        .after_a_crash()
        .lane("shop/hook/dev/web", &steps)
        .lane("shop/audit/dev/web", &steps)
        .check()
        .await;
}

#[tokio::test]
async fn texts_that_relaybook_never_writes_are_rejected() {
    let world = World::new("forged-large").await;
    let spec = |message: usize, revision: usize| {
        let state =
            json!({"status": "Failed", "revision": "r".repeat(revision), "reason": "Why", "message": "m".repeat(message)});
        let object = json!({
            "metadata": {"name": "any"},
            "spec": {
                "notification": "hook", "pipelineRef": {"namespace": world.ns, "name": "shop", "uid": "u"},
                "subject": {"kind": "Target", "name": "dev/in-cluster/x"}, "lane": "target/dev/in-cluster/x",
                "order": 1, "serial": 1, "type": "Failed", "time": "2026-01-01T00:00:00Z", "from": state, "to": state,
            },
        });
        serde_json::from_value::<Delivery>(object).expect("a Delivery")
    };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    // The longest texts that Relaybook writes.
    world.api::<Delivery>().create(&dry, &spec(1024, 256)).await.expect("taken");
    for (message, revision) in [(30_000, 1), (1, 30_000)] {
        let refused = world.api::<Delivery>().create(&dry, &spec(message, revision)).await.expect_err("refused").to_string();
        assert!(refused.contains("Too long") || refused.contains("may not be more than"), "{refused}");
    }
}
