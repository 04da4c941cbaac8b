//! The time at which each notification of a pipeline last sent, and the notification that last sent for each target: in the status, in the
//! table of kubectl, and in `relaybook explain`.

use std::collections::BTreeMap;

use relaybook_api::pipeline::Dispatched;
use relaybook_api::{Outcome, Pipeline, Time};
use serde_json::{Value, json};

use super::{MAP, Stage, everywhere};
use crate::support::relaybook::command;
use crate::support::{Oracle, Receiver, Reply, eventually};

#[tokio::test]
async fn each_notification_of_a_pipeline_shows_when_it_was_last_sent() {
    let stage = Stage::new("last-sent").await;
    let team = &stage.team;
    let receiver = Receiver::start();
    for app in ["web", "api"] {
        receiver.always(&format!("/silent/{app}"), Reply::status(400));
    }
    let of = |environments: &[&str]| json!({"triggers": [{"type": "Deployed", "environments": environments}]});
    stage.configure(&json!({"notifications": [everywhere("audit", &receiver, of(&["prod"]))]})).await;
    team.notification("hook", &receiver, of(&["dev", "fence"])).await;
    team.notification("silent", &receiver, json!({})).await;
    team.pipeline("shop", &["dev/web", "prod/api"]).await;
    // A notification that only the pipeline defines.
    let mut own = everywhere("own", &receiver, of(&["prod"]));
    own["endpoint"]["headers"] = json!({"x-by": "the pipeline"});
    team.patch::<Pipeline>("shop", json!({"spec": {"notifications": [own]}})).await;
    let mut relaybook = stage.start().await;
    stage.cursor("shop", "audit", "global").await;
    let uid = team.get_pipeline("shop").await.metadata.uid.expect("a uid");
    stage.cursor("shop", "own", &uid).await;
    let before = Time::now();

    stage.ship("2").await;
    let sent = ["audit", "hook", "own"];
    let dispatched = last_sent(&stage, |d| sent.iter().all(|name| time_of(d, name) >= Some(before))).await;
    assert_eq!(time_of(&dispatched, "silent"), None, "a receiver that refuses everything was never notified");
    let by: BTreeMap<_, _> = dispatched.last_sent.iter().map(|l| (l.subject.as_str(), l.notification.as_str())).collect();
    assert_eq!(by["target/dev/in-cluster/last-sent/web"], "hook");
    assert!(["audit", "own"].contains(&by["target/prod/in-cluster/last-sent/api"]), "{by:?}");
    let newest = dispatched.last_sent.iter().max_by_key(|last| last.time).expect("sent");
    assert_eq!(dispatched.last_sent_time, Some(newest.time));
    let holder = dispatched.last_sent.iter().any(|l| l.time == newest.time && l.notification == dispatched.last_sent_by);
    assert!(holder, "{dispatched:?}");

    // The process is killed, possibly before it has written the times. After a restart it reads them from the stored deliveries.
    let known = time_of(&dispatched, "hook");
    team.ship("web", "3").await;
    for (name, outcome) in [("hook", Outcome::Delivered), ("silent", Outcome::Parked)] {
        team.delivery("Deployed 3", |d| d.spec.notification == name && super::is(outcome)(d)).await;
    }
    relaybook.kill9();
    relaybook.start_again().await;
    let dispatched = last_sent(&stage, |d| time_of(d, "hook") > known).await;

    table_shows(&stage, &dispatched).await;
    explain_shows(&stage, &dispatched).await;
    team.fence("shop", &["hook"]).await;
    Oracle::new(team, &receiver)
        .lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"])
        .lane("shop/audit/prod/api", &["Deployed 2"])
        .lane("shop/own/prod/api", &["Deployed 2"])
        .lane("shop/silent/dev/web", &["Deployed 2 [Parked]", "Deployed 3 [Parked]"])
        .lane("shop/silent/prod/api", &["Deployed 2 [Parked]"])
        .check()
        .await;
}

fn time_of(dispatched: &Dispatched, notification: &str) -> Option<Time> {
    dispatched.cursors.iter().find(|cursor| cursor.notification == notification)?.last_sent_time
}

/// Waits until the dispatcher's part of the status meets this condition, and returns it.
async fn last_sent(stage: &Stage, holds: impl Fn(&Dispatched) -> bool) -> Dispatched {
    eventually("the times at which notifications were last sent", async || {
        let dispatched = stage.team.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
        if holds(&dispatched) { Ok(dispatched) } else { Err(format!("{:?} {:?}", dispatched.cursors, dispatched.last_sent)) }
    })
    .await
}

/// `kubectl get pipelines -o wide` shows the last time, its notification, and a summary of all targets.
async fn table_shows(stage: &Stage, dispatched: &Dispatched) {
    let shown = stage.team.columns("pipelines").await;
    let age = shown["Last Sent"].as_str().unwrap_or_default();
    assert!(age.ends_with('s') || age.ends_with('m'), "an age: {shown:?}");
    assert_eq!(shown["Sent By"], dispatched.last_sent_by.as_str());
    let summary = shown["Targets Sent"].as_str().unwrap_or_default();
    for last in &dispatched.last_sent {
        let target = last.subject.trim_start_matches("target/");
        assert!(summary.contains(&format!("{target} {} {:.0}", last.notification, last.time)), "{summary}");
    }
}

/// `relaybook explain` shows the same.
async fn explain_shows(stage: &Stage, dispatched: &Dispatched) {
    let (team, system) = (&stage.team, &stage.system);
    let args =
        ["explain", "shop", "-n", &team.ns, "--allow-http", "--controller-namespace", &system.ns, "--config-map", MAP];
    let text = String::from_utf8(command(team, &args).await.stdout).expect("UTF-8");
    for last in &dispatched.last_sent {
        let target = last.subject.trim_start_matches("target/");
        let line = format!("# {target}: last sent {} by {}", last.time, last.notification);
        assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
    }
    let json: Value =
        serde_json::from_slice(&command(team, &[&args[..], &["-o", "json"]].concat()).await.stdout).expect("JSON");
    for one in json.as_array().expect("a list") {
        let notification = one["notification"].as_str().expect("a name");
        let time = time_of(dispatched, notification).map(|time| time.to_string());
        assert_eq!(one["lastSentTime"].as_str().map(str::to_owned), time, "{notification}");
    }
}
