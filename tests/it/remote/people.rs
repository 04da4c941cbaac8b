//! What users see of remote targets with kubectl: Events and columns.

use std::collections::BTreeMap;

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use crate::support::remote::{Remote, pipeline, second};
use crate::support::{Receiver, Relaybook, World, eventually};

#[tokio::test]
async fn each_change_has_one_event_and_a_reconcile_without_change_has_none() {
    let world = World::new("remote-events").await;
    let west = Remote::of(&world, second(), "west").await;
    let receiver = Receiver::start();
    west.world.deploy("web", "1").await;
    pipeline(&world, "shop", &[("prod/web", Some(&west))]).await;
    world.notification("hook", &receiver, json!({})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    west.world.ship("web", "2").await;
    west.world.break_("web", "3", "no pods").await;
    world.fence("shop", &["hook"]).await;
    // Reconciles without a change: labels and messages are edited, and Relaybook is restarted.
    for n in 0..5 {
        world.patch::<Pipeline>("shop", json!({"metadata": {"labels": {"touched": n.to_string()}}})).await;
        west.world.fail("web", &format!("no pods, {n}")).await;
    }
    // An Event that is not written before the stop is lost, so the test waits for it.
    told(&world, "Failed").await;
    relaybook.restart().await;
    west.world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;

    let told = told(&world, "Recovered").await;
    let told: Vec<_> = told.iter().map(|(reason, type_, count)| (reason.as_str(), type_.as_str(), *count)).collect();
    assert!(told.iter().all(|(_, _, count)| *count == 1), "{told:?}");
    // It depends on timing whether the short Progressing after the restart is observed.
    let mut ended = told.clone();
    ended.retain(|(reason, ..)| *reason != "Progressing");
    assert!((2..=3).contains(&(told.len() - ended.len())), "{told:?}");
    assert_eq!(ended, [("Deployed", "Normal", 1), ("Failed", "Warning", 1), ("Recovered", "Normal", 1)]);
}

#[tokio::test]
async fn kubectl_get_shows_ready_targets_and_the_last_revision() {
    let world = World::new("remote-columns").await;
    let west = Remote::of(&world, second(), "west").await;
    world.deploy("dev", "1").await;
    for app in ["one", "two"] {
        west.world.deploy(app, "2").await;
    }
    let target = |app: &str| json!({"namespace": world.ns, "appRef": {"name": app}, "clusterRef": west.reference()});
    let dev = json!({"namespace": world.ns, "appRef": {"name": "dev"}});
    let spec = json!({
        "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "environments": [{"name": "dev", "targets": [dev]}, {"name": "prod", "targets": [target("one"), target("two")]}],
    });
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.observed("shop").await;
    columns(&world, "3/3", "2", "True").await;
    west.world.roll_out("two", "3").await;
    columns(&world, "2/3", "2", "True").await;
    west.world.finish("two").await;
    columns(&world, "3/3", "2,3", "True").await;
}

/// Waits until the table that kubectl shows has these values.
async fn columns(world: &World, targets: &str, revision: &str, ready: &str) {
    eventually(&format!("{targets}, {revision}, {ready}"), async || {
        let path = format!("/apis/relaybook.dev/v1alpha1/namespaces/{}/pipelines", world.ns);
        let request = http::Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
        let table: Value = world.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
        let names = table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap());
        let cells = table["rows"][0]["cells"].as_array().unwrap().clone();
        let shown: BTreeMap<_, _> = names.zip(&cells).collect();
        let want = [("Targets", targets), ("Revision", revision), ("Ready", ready)];
        assert!(shown.contains_key("Age"), "{shown:?}");
        let holds = want.iter().all(|(name, value)| shown.get(name).is_some_and(|cell| *cell == value));
        if holds { Ok(()) } else { Err(format!("{shown:?}")) }
    })
    .await;
}

/// Waits for the Event with reason `last`. Returns the Events of the target in order: reason, type and count.
async fn told(world: &World, last: &str) -> Vec<(String, String, i32)> {
    eventually(&format!("{last} has its Event"), async || {
        let api: Api<Event> = world.api();
        let mut all = api.list(&ListParams::default()).await.unwrap().items;
        all.retain(|e| e.note.as_ref().is_some_and(|n| n.starts_with("target prod/west/")));
        assert!(all.iter().all(|e| e.regarding.as_ref().unwrap().name.as_deref() == Some("shop")));
        // The names contain the serials, so they sort in order.
        all.sort_by_key(|e| e.metadata.name.clone());
        let told: Vec<_> = all.iter().map(|e| (e.reason.clone().unwrap(), e.type_.clone().unwrap(), count(e))).collect();
        if told.iter().any(|(reason, ..)| reason == last) { Ok(told) } else { Err(format!("{told:?}")) }
    })
    .await
}

/// Returns the number of occurrences of an Event.
fn count(event: &Event) -> i32 {
    event.series.as_ref().map_or(1, |s| s.count)
}
