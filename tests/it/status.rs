//! Tests `relaybook status`: what is wrong, with its remedy, and what runs where.

mod burst;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use futures::future::join_all;
use relaybook_api::Notification;
use serde_json::{Value, json};

use crate::support::proxy::Call;
use crate::support::running::Running;
use crate::support::{Fault, Proxy, Receiver, Relaybook, World, eventually, wait};

#[tokio::test]
async fn status_shows_what_is_wrong_with_its_remedy_and_what_runs_where() {
    let mut world = World::new("status").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web", "prod/web"]).await;
    world.notification("chat", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let namespace = world.ns.clone();
    let status = ["status", "--controller-namespace", &namespace, "--exit-code"];
    eventually("nothing is wrong", async || {
        let (code, text, _) = world.command(&status).await;
        let is_well = text.starts_with("1 pipeline, 1 notification in status. No problems.\n");
        if code == Some(0) && is_well { Ok(()) } else { Err(text) }
    })
    .await;
    world.ship("web", "2").await;
    eventually("the table shows what runs, and what was sent", async || {
        let (_, text, _) = world.command(&status).await;
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let is = |row: &Vec<&str>| row.starts_with(&["shop", "prod", "1/1", "Current", "2"]) && row.contains(&"chat");
        if rows.iter().any(is) { Ok(()) } else { Err(text.clone()) }
    })
    .await;

    let over = json!({"spec": {"endpoint": {"url": null, "urlFrom": {"secretKeyRef": {"name": "nowhere", "key": "url"}}}}});
    world.patch::<Notification>("chat", over).await;
    world.condition("chat", "Ready", |condition| condition.reason == "SecretMissing").await;
    let (code, text, _) = world.command(&status).await;
    assert!(code == Some(1) && text.contains("PROBLEM  chat: cannot be sent: ") && text.contains("Secret"), "{text}");
    assert!(text.contains("\n  do     create the Secret or its key; Relaybook detects it\n"), "{text}");
    let (code, text, _) = world.command(&["status", "shop", "--controller-namespace", &namespace, "-o", "json"]).await;
    let screen: Value = serde_json::from_str(&text).unwrap();
    let finding = &screen["findings"][0];
    assert_eq!((code, &finding["reason"], &finding["name"]), (Some(0), &json!("SecretMissing"), &json!("chat")));
    assert_eq!(screen["targets"].as_array().unwrap().len(), 3, "{screen}");
    let (_, text, _) = world.command(&["status", "shop", "--controller-namespace", &namespace, "-o", "yaml"]).await;
    let same: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!((&same["targets"], &same["findings"][0]["reason"]), (&screen["targets"], &json!("SecretMissing")), "{text}");
    let (_, text, _) = world.command(&["status", "--controller-namespace", &namespace, "-o", "name"]).await;
    assert_eq!(text, "pipeline.relaybook.dev/shop\n");

    let (code, _, why) = world.command(&["status", "nope"]).await;
    assert!(code == Some(5) && why.contains("\"nope\" not found"), "{why}");

    // What may not be read is named, and the rest is shown.
    let proxy = Proxy::start(&world.kubeconfig, "status").await;
    proxy.rule(|call| call.concerns("deliveries") || call.concerns("leases"), Fault::Refuse(403));
    world.kubeconfig.clone_from(&proxy.kubeconfig);
    let (code, text, _) = world.command(&status).await;
    assert!(code == Some(1) && text.contains("PROBLEM  chat: ") && text.contains("shop"), "{text}");
    assert!(
        text.contains("not shown: pending deliveries: ") && text.contains("not shown: whether a controller acts: "),
        "{text}"
    );
}

#[tokio::test]
async fn watch_prints_one_object_for_each_change() {
    let world = World::new("status-watch").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("chat", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_relaybook"))
        .args(["status", "-n", "status-watch", "--watch", "--controller-namespace", "status-watch"])
        .env("KUBECONFIG", &world.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let seen = tokio::task::spawn_blocking(move || {
        let screens = lines.map_while(Result::ok).map(|line| serde_json::from_str::<Value>(&line).unwrap());
        screens.map(|screen| screen["environments"][0]["revision"].clone()).find(|revision| *revision == json!("2"))
    });
    world.ship("web", "2").await;
    let found = tokio::time::timeout(wait::DEADLINE, seen).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found.expect("revision 2 is printed in time").unwrap(), Some(json!("2")));
}

/// Returns the resource of a call that lists objects.
fn listed(call: &Call) -> Option<String> {
    const RESOURCES: [&str; 7] =
        ["pipelines", "notifications", "pipelinesets", "deliveries", "promotions", "leases", "configmaps"];
    let last = call.path.rsplit('/').next().filter(|last| RESOURCES.contains(last))?;
    (call.method == "GET" && !call.is_watch()).then(|| last.to_owned())
}

/// Maximum memory of the command with 200 pipelines, in KiB. This program is not optimised, and most of the memory is its own pages.
const MEMORY: u64 = 128 * 1024;

#[tokio::test]
async fn the_number_of_requests_does_not_grow_with_the_number_of_pipelines() {
    let mut world = World::new("status-many").await;
    let names: Vec<String> = (0..200).map(|number| format!("shop-{number:03}")).collect();
    for some in names.chunks(20) {
        join_all(some.iter().map(|name| world.pipeline(name, &["dev/web"]))).await;
    }
    let proxy = Proxy::start(&world.kubeconfig, "status-many").await;
    let lists: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let counted = Arc::clone(&lists);
    // The rule counts, and matches no call.
    let count = move |call: &Call| {
        if let Some(resource) = listed(call) {
            *counted.lock().expect("no panic before").entry(resource).or_default() += 1;
        }
        false
    };
    proxy.rule(count, Fault::Refuse(500));
    world.kubeconfig.clone_from(&proxy.kubeconfig);
    let (code, text, why) = world.command(&["status", "--controller-namespace", "status-many"]).await;
    assert_eq!(code, Some(0), "{why}");
    assert!(text.starts_with("200 pipelines, 0 notifications in status-many. ") && text.contains("shop-199"), "{text}");
    let lists = lists.lock().expect("no panic before").clone();
    let is_listed = |resource: &str| lists.get(resource).is_some_and(|count| *count > 0);
    assert!(["pipelines", "notifications", "pipelinesets", "deliveries"].into_iter().all(is_listed), "{lists:?}");
    assert!(lists.values().all(|count| *count <= 4), "{lists:?}");
    // The memory of a process can be read only while it runs, so this one does not end after its first output.
    let args = ["status", "-n", "status-many", "--watch", "--controller-namespace", "status-many"];
    let mut running = Running::piped(&world.kubeconfig, &args);
    let first = running.prints("the first object", |text| text.ends_with('\n'));
    let memory = running.peak_memory();
    assert!(first.contains("shop-199"), "{first}");
    assert!(memory < MEMORY, "{memory} KiB");
}
