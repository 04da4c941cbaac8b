//! A minute or more without the API server. What may be sent in this time is limited by the Lease, and by outcomes that cannot be written.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use relaybook_api::Delivery;
use serde_json::json;

use super::{Stage, is};
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::{Oracle, Relaybook, Reply, World};

/// Named by the state of their lane when the API server is cut off: a request in flight, nothing pending, a retry that is due soon, a retry
/// that is due later than the Lease allows, and retries that always fail.
const APPS: [&str; 5] = ["flying", "resting", "soon", "later", "failing"];
const LEASE: &str = "relaybook-dispatch";

/// What happens to the Lease during the cut.
#[derive(Clone, Copy, PartialEq)]
enum Meanwhile {
    /// It stays valid.
    Lasts,
    /// It is deleted, and no other replica acquires it.
    Deleted,
    /// It expires, and no other replica acquires it.
    RunsOut,
}

#[tokio::test]
async fn a_minute_without_the_api_server_allows_one_request_per_lane() {
    tokio::join!(
        cut_off("cut-minute", Duration::from_mins(1), Meanwhile::Lasts),
        cut_off("cut-deleted", Duration::from_mins(1), Meanwhile::Deleted),
        cut_off("cut-runs-out", Duration::from_secs(97), Meanwhile::RunsOut),
    );
}

async fn cut_off(ns: &str, span: Duration, meanwhile: Meanwhile) {
    let hook = json!({"endpoint": {"timeout": "60s"}, "delivery": {"retry": {"initial": "300ms", "max": "1s"}}});
    let stage = Stage::new(ns, &APPS, hook).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let (gate, start) = (Gate::new(), Gate::new());
    receiver.script("/hook/flying", [Reply::status(200).behind(&gate)]);
    // The times until these retries begin just before the cut, whatever the machine needs before.
    receiver.script("/hook/soon", [Reply::status(503).header("retry-after", "10").behind(&start)]);
    // An attempt can take 60 s, and for that the membership lasts 90 s after its last renewal. 40 s after that renewal no attempt may start.
    receiver.script("/hook/later", [Reply::status(503).header("retry-after", "45").behind(&start)]);
    receiver.always("/hook/failing", Reply::status(500));
    // Another process observes without the proxy, so new changes keep arriving.
    let _observer = Relaybook::with(world, Options { controllers: "pipeline", ..Options::of(world) }).await;
    let dispatcher = Relaybook::with(world, Options { controllers: "dispatch", ..stage.options() }).await;
    world.settled().await;
    let epoch = lease(world).await.spec.and_then(|s| s.lease_transitions);
    stage.ship("2").await;
    stage.ship("3").await;
    stage.recorded(2 * APPS.len()).await;
    receiver.wait("/hook/flying", 1).await;
    receiver.wait("/hook/resting", 2).await;
    world.delivery("Deployed 3", |d| about(d, "resting") && d.status.as_ref().is_some_and(|s| s.outcome.is_some())).await;
    start.open();
    for app in ["soon", "later", "failing"] {
        waits(world, app).await;
    }

    proxy.cut();
    let before = counts(&stage);
    gate.open();
    if meanwhile == Meanwhile::Deleted {
        world.delete_any::<Lease>(LEASE).await;
    }
    stage.ship("4").await;
    tokio::time::sleep(span).await;
    let since: BTreeMap<_, _> =
        counts(&stage).into_iter().map(|(app, count)| (app, count - before.get(app).unwrap_or(&0))).collect();
    // A request in flight at the moment of the cut can arrive after it.
    assert!(since["failing"] <= 2, "{since:?}");
    let others: Vec<_> = ["flying", "resting", "soon", "later"].iter().map(|app| since[app]).collect();
    assert_eq!(others, [0, 0, 1, 0], "{ns}: {since:?}");
    assert!(dispatcher.log().contains("request for the Lease failed"));

    receiver.always("/hook/failing", Reply::status(200));
    proxy.heal();
    // The pauses between retries can have become 30 s long.
    stage.passed().await;
    world.fence("shop", &["hook"]).await;
    let steps = ["Deployed 2", "Deployed 3", "Deployed 4"];
    let oracle = Oracle::new(world, receiver);
    APPS.iter().fold(oracle, |o, app| o.lane(&format!("shop/hook/dev/{app}"), &steps)).check().await;
    let all = counts(&stage);
    assert_eq!(["flying", "resting", "soon", "later"].map(|app| all[app]), [3, 3, 4, 4], "{ns}: {all:?}");
    let now = lease(world).await;
    let (holder, again) = now.spec.map(|s| (s.holder_identity.unwrap_or_default(), s.lease_transitions)).unwrap();
    assert!(!holder.is_empty() && again >= epoch, "{ns}: {holder} {again:?}");
    // Leadership ends if the Lease is deleted. If it expires and no other replica acquires it, its holder stays the leader.
    let paused = dispatcher.log().contains("lost leadership");
    assert_eq!(paused, meanwhile == Meanwhile::Deleted, "{ns}");
}

async fn lease(world: &World) -> Lease {
    world.api::<Lease>().get(LEASE).await.expect("the Lease is there")
}

fn about(delivery: &Delivery, app: &str) -> bool {
    delivery.spec.subject.target.as_ref().is_some_and(|t| t.app.name == app)
}

/// Waits until the first delivery for this application has failed and waits for its retry.
async fn waits(world: &World, app: &str) {
    let tried = |d: &Delivery| d.status.as_ref().is_some_and(|s| s.attempts > 0 && s.next_attempt_time.is_some());
    let delivery = world.delivery("Deployed 2", |d| about(d, app) && tried(d)).await;
    assert!(is(&delivery, "Deployed 2"), "{}", delivery.name_any());
}

/// Returns the number of requests by application.
fn counts(stage: &Stage) -> BTreeMap<&'static str, usize> {
    APPS.iter().map(|app| (*app, stage.receiver.to(&format!("/hook/{app}")).len())).collect()
}
