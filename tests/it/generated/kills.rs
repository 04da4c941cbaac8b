//! Relaybook is killed at any time while clusters join and leave and a rollout is under way. Nothing is lost, and the order stays.

use std::time::Duration;

use serde_json::json;

use super::hub::{Hub, env, environment};
use crate::support::world::all_triggers;
use crate::support::{Oracle, eventually};

/// Number of kills, if `RELAYBOOK_KILLS` does not set another.
const KILLS: usize = 20;

/// Returns a pause of up to 400 ms that differs with each step.
fn pause(step: usize) -> Duration {
    Duration::from_millis(u64::try_from(step * 7919 % 401).expect("a small number"))
}

#[tokio::test]
async fn kills_during_joins_leaves_and_rollouts_lose_nothing() {
    let wanted = std::env::var("RELAYBOOK_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    // Two clusters, of which the second one leaves, take five kills.
    let clusters: Vec<String> = (0..wanted.div_ceil(5) * 2).map(|n| format!("c{n}")).collect();
    let mut hub = Hub::new("gen-kills", &clusters.iter().map(String::as_str).collect::<Vec<_>>()).await;
    hub.bundle("web", "c1").await;
    hub.pipeline(json!([environment("dev", env("dev"), json!({}))])).await;
    hub.start(all_triggers()).await;
    let mut kills = 0;
    for (step, cluster) in clusters.iter().enumerate() {
        hub.join(cluster, json!({"env": "dev"})).await;
        hub.deploy("web", cluster, "c1").await;
        kills += kill(&mut hub, pause(3 * step)).await;
        hub.runs_or_begins("web", cluster).await;
        hub.applied("web", cluster, "c1").await;
        kills += kill(&mut hub, pause(3 * step + 1)).await;
        hub.runs("web", cluster, "c1").await;
        if step % 2 == 1 {
            hub.undeploy("web", cluster).await;
            kills += kill(&mut hub, pause(3 * step + 2)).await;
            eventually(&format!("{cluster} has left"), async || {
                let names = hub.names().await;
                if names.iter().any(|name| name.contains(cluster.as_str())) { Err(format!("{names:?}")) } else { Ok(()) }
            })
            .await;
        }
    }
    hub.world.fence("shop", &["hook"]).await;
    let mut oracle = Oracle::new(&hub.world, &hub.receiver).after_crashes(kills);
    for (step, cluster) in clusters.iter().enumerate() {
        let steps: &[&str] = if step % 2 == 1 {
            &["Added c1", "Progressing c1", "Deployed c1", "Removed"]
        } else {
            &["Added c1", "Progressing c1", "Deployed c1"]
        };
        oracle = oracle.lane(&format!("shop/hook/dev/web-{cluster}"), steps);
    }
    oracle.check().await;
}

/// Kills Relaybook after a while, and starts it again.
async fn kill(hub: &mut Hub, after: Duration) -> usize {
    tokio::time::sleep(after).await;
    hub.relaybook().kill9();
    hub.relaybook().start_again().await;
    1
}
