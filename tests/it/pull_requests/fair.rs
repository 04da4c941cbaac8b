//! Slow repositories of one namespace delay no other namespace, also at the same Git server.

use std::time::Duration;

use futures::future::join_all;
use relaybook_api::promotion::Phase;
use serde_json::{Value, json};

use super::behind_proxy::soon;
use crate::support::forge_proxy::{Asked, ForgeProxy, Trouble};
use crate::support::git::GitServer;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::world::promotions::is;
use crate::support::{Oracle, Receiver, Relaybook, World};

/// Number of pipelines with a slow repository. Their requests time out one after the other, so they take minutes.
const SLOW: usize = 20;
/// Time limit for them when the server answers again.
const ALL: Duration = Duration::from_mins(4);

/// Returns a file with the value of `prod` of a pipeline.
fn release(world: &World, pipeline: &str) -> (String, String) {
    let marker = format!("{{\"$promotion\": \"{}:{pipeline}:prod\"}}", world.ns);
    (format!("apps/{pipeline}/release.yaml"), format!("version: \"1\" # {marker}\n"))
}

/// Returns a policy that pushes to a repository behind the proxy.
fn policy(proxy: &ForgeProxy, repository: &str, pipeline: &str) -> Value {
    let of = json!({"url": proxy.url(&format!("/{repository}.git")), "paths": [format!("apps/{pipeline}")]});
    let mut policy = json!({"strategy": {"commit": of}});
    json_patch::merge(&mut policy, &soon());
    policy
}

#[tokio::test]
async fn slow_repositories_of_a_namespace_delay_no_other_at_the_same_server() {
    let (slow, fine) = (World::new("fair-slow").await, World::new("fair-fine").await);
    let receiver = Receiver::start();
    fine.promotion_notification("hook", &receiver, json!({})).await;
    let server = GitServer::start();
    let names: Vec<_> = (0..SLOW).map(|n| format!("web-{n}")).collect();
    let files: Vec<_> = names.iter().map(|name| release(&slow, name)).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let of_slow = server.repository("slow", &files);
    let (path, text) = release(&fine, "web");
    let of_fine = server.repository("fine", &[(&path, &text)]);
    let proxy = ForgeProxy::start(&server.url(), reqwest::Client::builder().no_proxy().build().expect("a client"));
    let env = |policy| [("dev", Value::Null), ("prod", policy)];
    // The first one also creates what all of them share.
    slow.promoting(&names[0], &env(policy(&proxy, "slow", &names[0]))).await;
    join_all(names[1..].iter().map(async |name| slow.promoting(name, &env(policy(&proxy, "slow", name))).await)).await;
    fine.promoting("web", &env(policy(&proxy, "fine", "web"))).await;
    let watch = vec![slow.ns.clone(), fine.ns.clone()];
    let _relaybook = Relaybook::with(&fine, Options { watch, ..Options::of(&fine) }).await;
    slow.settled().await;
    fine.settled().await;

    // The server answers what it supports. Then it is silent.
    let gate = Gate::new();
    let is_of_slow = |asked: &Asked| asked.path.starts_with("/slow.git/");
    let held = proxy.rule(move |asked| is_of_slow(asked) && asked.method == "POST", Trouble::HoldRequest(gate.clone()));
    join_all(names.iter().map(async |name| slow.ship(&format!("{name}-dev"), "2").await)).await;
    proxy.hit(held, 1).await;
    fine.ship("web-dev", "2").await;
    let status = fine.promotion("web/prod 2", is(Phase::Merged)).await.status.unwrap_or_default();
    assert_eq!((status.attempts, status.reason.as_str()), (1, "Pushed"));
    let answered = proxy.log().into_iter().filter(|asked| is_of_slow(asked) && asked.method == "POST");
    assert_eq!(answered.filter(|asked| asked.status.is_some()).count(), 0, "the slow ones are still silent");
    assert_eq!(of_fine.subjects(), ["initial", "Promote web to prod: 2"]);
    fine.runs("web/prod", "2").await;
    fine.promotion("web/prod 2", is(Phase::Finished)).await;
    fine.promotion_fence("web", &["hook"]).await;
    let oracle = Oracle::new(&fine, &receiver);
    oracle.promotions("web", &["hook"], &["prod 2: Requested/Pushing, Merged/Pushed, Finished"]).check().await;

    // The server answers again. Each of the others is promoted once.
    proxy.remove(held);
    gate.open();
    for name in &names {
        slow.promotion_within(ALL, &format!("{name}/prod 2"), is(Phase::Merged)).await;
    }
    let mut subjects = of_slow.subjects();
    subjects.sort();
    subjects.dedup();
    assert_eq!(subjects.len(), 1 + SLOW, "{subjects:?}");
    assert_eq!(of_slow.subjects().len(), 1 + SLOW);
}
