//! Objects that are restored from a backup cause no second request. A Delivery that is restored without its status looks as if it was
//! never sent, and its creation time is later than everything that Relaybook has recorded.

use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use relaybook_api::{Delivery, Outcome, Pipeline};
use serde_json::{Value, json};

use crate::support::{Receiver, Relaybook, World, eventually};

/// Returns a Delivery as a backup tool restores it that does not restore the status.
fn without_status(delivery: &Delivery) -> Value {
    json!({"metadata": {"name": delivery.name_any(), "labels": delivery.labels()}, "spec": delivery.spec})
}

fn ended(outcome: Outcome) -> impl Fn(&Delivery) -> bool {
    move |delivery| delivery.status.as_ref().and_then(|s| s.outcome) == Some(outcome)
}

#[tokio::test]
async fn a_delivery_that_lost_its_status_is_not_sent_again() {
    let world = World::new("restored").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.ship("web", "2").await;
    let sent = world.delivery("Deployed 2", ended(Outcome::Delivered)).await;
    world.fence("shop", &["hook"]).await;
    assert_eq!(sent.labels().get("velero.io/exclude-from-backup").map(String::as_str), Some("true"));

    relaybook.stop().await;
    world.delete::<Delivery>(&sent.name_any()).await;
    world.younger("shop").await;
    world.create::<Delivery>(without_status(&sent)).await;
    relaybook.start_again().await;
    eventually("the restored object is deleted", async || {
        let there = world.api::<Delivery>().get_opt(&sent.name_any()).await.expect("read");
        there.map_or(Ok(()), |d| Err(format!("{:?}", d.status)))
    })
    .await;
    world.settled().await;
    world.fence("shop", &["hook"]).await;
    let requests = || receiver.to("/hook/web").len();
    assert_eq!(requests(), 1, "the restored delivery is not sent again");

    // Everything is restored, so the pipeline is a new object with the same name.
    relaybook.stop().await;
    world.delete::<Pipeline>("shop").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.create::<Delivery>(without_status(&sent)).await;
    relaybook.start_again().await;
    let canceled = world.delivery("Deployed 2", ended(Outcome::Canceled)).await;
    assert_eq!(canceled.status.unwrap().reason.as_deref(), Some("PipelineGone"));
    world.settled().await;
    world.fence("shop", &["hook"]).await;
    assert_eq!(requests(), 1, "the delivery of the old pipeline is not sent again");

    // The documented step after an etcd snapshot was restored: the status of the pipeline is deleted.
    relaybook.stop().await;
    let nothing = Patch::Merge(json!({"status": null}));
    world.api::<Pipeline>().patch_status("shop", &PatchParams::default(), &nothing).await.expect("taken");
    assert_eq!(world.get_pipeline("shop").await.status, None);
    relaybook.start_again().await;
    world.settled().await;
    let begun = world.get_pipeline("shop").await.status.unwrap_or_default().log.expect("a log");
    assert!(begun.first > sent.spec.serial + 1000, "the log starts at the current time: {begun:?}");
    world.fence("shop", &["hook"]).await;
    assert_eq!(requests(), 1, "nothing is sent for the new log");
}
