//! Clusters that their agents register: they are offline when the agent has not reported for some time, by Relaybook's clock.

use std::time::Duration;

use futures::future::join_all;
use relaybook_api::Time;
use serde_json::json;

use super::hub::{Hub, environment};
use crate::support::{Oracle, Relaybook, eventually};

/// How often an agent of this test reports.
const EACH: Duration = Duration::from_millis(500);
/// Much longer than [`EACH`], because a busy machine delays reports.
const OFFLINE_AFTER: &str = "15s";
const HOUR: i64 = 3600;

impl Hub {
    /// Writes the report of an agent whose clock is off by some seconds.
    async fn report(&self, cluster: &str, off: i64) {
        let time = Time::from_millisecond(Time::now().as_millisecond() + 1000 * off).expect("a time");
        let status = json!({"agent": {"lastSeen": time.to_string()}});
        self.status("Cluster", &self.world.ns, cluster, status).await;
    }

    /// Does something while the agents of these clusters report.
    async fn while_reporting<T>(&self, reporting: &[(&str, i64)], something: impl Future<Output = T>) -> T {
        let report = async {
            loop {
                join_all(reporting.iter().map(|(cluster, off)| self.report(cluster, *off))).await;
                tokio::time::sleep(EACH).await;
            }
        };
        tokio::select! {
            done = something => done,
            () = report => unreachable!("it reports without end"),
        }
    }

    /// Waits until the status says whether a cluster is online. Meanwhile the agents of these clusters report.
    async fn is_online(&self, cluster: &str, online: bool, reporting: &[(&str, i64)]) {
        let what = format!("{cluster} is online: {online}");
        let told = eventually(&what, async || {
            let status = self.world.get_pipeline("shop").await.status.unwrap_or_default();
            let known = status.clusters.iter().find(|c| c.cluster_ref.name == cluster).map(|c| c.reachable);
            if known == Some(online) { Ok(()) } else { Err(format!("{known:?}")) }
        });
        self.while_reporting(reporting, told).await;
    }
}

#[tokio::test]
async fn a_cluster_is_offline_when_its_agent_is_silent_whatever_its_clock_says() {
    let clusters = ["ahead", "behind"];
    let mut hub = Hub::new("gen-fleet-offline", &clusters).await;
    let both = [("ahead", HOUR), ("behind", -HOUR)];
    hub.bundle("web", "c1").await;
    for (cluster, off) in both {
        hub.join(cluster, json!({})).await;
        hub.run("web", cluster, "c1").await;
        hub.report(cluster, off).await;
    }
    hub.pipeline(json!([environment("all", json!({"offlineAfter": OFFLINE_AFTER}), json!({}))])).await;
    let triggers = json!([{"type": "ClusterOffline"}, {"type": "ClusterOnline"}, {"type": "Deployed"}, {"type": "Removed"}]);
    let over = json!({"triggers": triggers, "endpoint": {"url": hub.receiver.url("/{{id}}")}});
    hub.world.notification("hook", &hub.receiver, over).await;
    let start = async {
        let relaybook = Relaybook::with(&hub.world, hub.options()).await;
        hub.world.ready("hook").await;
        hub.world.cursor("shop", "hook").await;
        relaybook
    };
    hub.relaybook = Some(hub.while_reporting(&both, start).await);
    for (cluster, _) in both {
        hub.is_online(cluster, true, &both).await;
    }
    hub.is_online("ahead", false, &both[1..]).await;
    // The targets stay as they are, and a restart changes nothing.
    let stays = async {
        hub.targets(&["all/ahead/web", "all/behind/web"]).await;
        hub.runs("web", "ahead", "c1").await;
    };
    hub.while_reporting(&both[1..], stays).await;
    let mut relaybook = hub.relaybook.take().expect("it runs");
    hub.while_reporting(&both[1..], relaybook.restart()).await;
    hub.relaybook = Some(relaybook);
    hub.is_online("behind", true, &both[1..]).await;
    hub.is_online("ahead", false, &both[1..]).await;
    hub.while_reporting(&both[1..], hub.world.fence("shop", &["hook"])).await;
    hub.is_online("ahead", true, &both).await;
    hub.is_online("behind", false, &both[..1]).await;
    hub.is_online("behind", true, &both).await;
    let steps = &["ClusterOffline", "ClusterOnline"];
    let check = async {
        hub.world.fence("shop", &["hook"]).await;
        let oracle = Oracle::new(&hub.world, &hub.receiver);
        oracle.lane("shop/hook//ahead", steps).lane("shop/hook//behind", steps).check().await;
    };
    hub.while_reporting(&both, check).await;
}
