//! Writes of Fleet's controllers, in the order of their sources, replayed to the API server.
//!
//! `tests/data/fleet.jsonl` has one write in each line: the scenario, the function of Fleet that makes the write (`by`), the object, and the
//! body of the patch. `place` is `workspace`, or the cluster whose namespace contains the object. Fleet's controllers need clusters to deploy
//! to, so these are not recorded from running ones.

use serde::Deserialize;
use serde_json::{Value, json};

use super::hub::{Hub, environment};
use crate::support::Oracle;
use crate::support::world::all_triggers;

const CLUSTERS: [&str; 5] = ["c1", "c2", "c3", "c4", "c5"];
/// The lane of the environment itself.
const WHOLE: &str = "shop/hook/all/";

/// One write.
#[derive(Deserialize)]
struct Write {
    scenario: String,
    kind: String,
    place: String,
    name: String,
    #[serde(rename = "write")]
    how: String,
    body: Value,
}

fn recording() -> Vec<Write> {
    let lines = include_str!("../../data/fleet.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).expect("a write")).collect()
}

impl Hub {
    async fn replay(&self, write: &Write) {
        let namespace = if write.place == "workspace" { self.world.ns.clone() } else { self.namespace(&write.place) };
        let body = serde_json::from_str(&write.body.to_string().replace("WORKSPACE", &self.world.ns)).expect("JSON");
        match write.how.as_str() {
            "patch" => self.patch(&write.kind, &namespace, &write.name, body).await,
            _ => self.status(&write.kind, &namespace, &write.name, body).await,
        }
    }
}

/// Five clusters that run commit 1. Each has options of its own, so its deployment has an ID of its own.
async fn five(ns: &str) -> Hub {
    let mut hub = Hub::new(ns, &CLUSTERS).await;
    hub.bundle("web", "1").await;
    for cluster in CLUSTERS {
        hub.join(cluster, json!({})).await;
        hub.run("web", cluster, "1").await;
    }
    hub.pipeline(json!([environment("all", json!({}), json!({}))])).await;
    let mut triggers = all_triggers();
    let list = triggers["triggers"].as_array_mut().expect("a list");
    list.push(json!({"type": "EnvironmentReady", "environments": ["all"]}));
    let url = hub.receiver.url("/hook/{{default target.app.name \"none\"}}");
    triggers["endpoint"] = json!({"url": url});
    // Retention deletes deliveries beyond ten of a lane after a minute. A busy machine needs longer for one of the tests.
    triggers["delivery"] = json!({"retain": {"perLane": 1000}});
    hub.start(triggers).await;
    for cluster in CLUSTERS {
        hub.runs("web", cluster, "1").await;
    }
    hub
}

#[tokio::test]
async fn writes_of_fleet_one_by_one_are_all_reported() {
    let hub = five("gen-replay").await;
    for write in recording() {
        hub.replay(&write).await;
        hub.world.fence("shop", &["hook"]).await;
    }
    let mut oracle = Oracle::new(&hub.world, &hub.receiver).lane(WHOLE, &["EnvironmentReady 2", "EnvironmentReady 4"]);
    for cluster in CLUSTERS {
        // The error of commit 3 stays until the agent has processed commit 4, and is no failure of that one.
        let steps: &[&str] = if cluster == "c3" {
            &["Progressing 2", "Deployed 2", "Progressing 3", "Failed 3", "Progressing 4", "Deployed 4"]
        } else {
            &["Progressing 2", "Deployed 2", "Progressing 3", "Deployed 3", "Progressing 4", "Deployed 4"]
        };
        oracle = oracle.lane(&format!("shop/hook/all/web-{cluster}"), steps);
    }
    oracle.check().await;
}

#[tokio::test]
async fn writes_of_fleet_in_quick_succession_are_all_reported() {
    let hub = five("gen-burst").await;
    let all = recording();
    let first = all.iter().take_while(|write| write.scenario == all[0].scenario);
    for write in first {
        hub.replay(write).await;
    }
    for cluster in CLUSTERS {
        hub.runs("web", cluster, "2").await;
    }
    hub.world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&hub.world, &hub.receiver).lane(WHOLE, &["EnvironmentReady 2"]);
    let steps = &["Progressing 2", "Deployed 2"];
    let oracle = CLUSTERS.iter().fold(oracle, |o, cluster| o.lane(&format!("shop/hook/all/web-{cluster}"), steps));
    oracle.check().await;
}
