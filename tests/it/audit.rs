//! Tests `relaybook audit` and the table of kubectl: what was sent, when, and what the receiver answered.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use futures::{StreamExt as _, stream};
use relaybook_api::{Delivery, Notification, Time};
use serde_json::{Value, json};

use crate::support::relaybook::{command, items};
use crate::support::{Oracle, Receiver, Relaybook, Reply, World};

/// Runs `relaybook audit -o json`. Returns the items of its list.
async fn audit(world: &World, args: &[&str]) -> Vec<Value> {
    let output = command(world, &[&["audit", "-o", "json"], args].concat()).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    items(&output.stdout)
}

/// Returns the latest time in a row.
fn last(row: &Value) -> Time {
    let times = ["recorded", "lastAttempt", "settled"].map(|field| row[field].as_str().map(|time| time.parse().unwrap()));
    times.into_iter().flatten().max().expect("it was recorded")
}

/// Returns the table of deliveries that kubectl shows: the names of its columns, with those of `-o wide` marked, and its rows.
async fn kubectl(world: &World) -> (Vec<String>, Vec<Vec<Value>>) {
    let path = format!("/apis/relaybook.dev/v1alpha1/namespaces/{}/deliveries", world.ns);
    let request = http::Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = world.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let name = |column: &Value| {
        let wide = if column["priority"] == 0 { "" } else { " (wide)" };
        format!("{}{wide}", column["name"].as_str().unwrap())
    };
    let cells = |row: &Value| row["cells"].as_array().unwrap().clone();
    (
        table["columnDefinitions"].as_array().unwrap().iter().map(name).collect(),
        table["rows"].as_array().unwrap().iter().map(cells).collect(),
    )
}

#[tokio::test]
async fn the_audit_shows_the_current_state_of_deliveries() {
    let world = World::new("told").await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", [Reply::status(200).body("thanks"), Reply::status(400).body("nope")]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    world
        .notification(
            "held",
            &receiver,
            json!({"suspend": true, "triggers": [{"type": "Deployed", "environments": ["dev"]}]}),
        )
        .await;
    let _relaybook = Relaybook::start(&world).await;
    world.observed("shop").await;
    for name in ["hook", "held"] {
        world.ready(name).await;
    }
    world.ship("web", "2").await;
    world
        .delivery("Deployed 2", |d| d.spec.notification == "hook" && d.status.as_ref().is_some_and(|s| s.outcome.is_some()))
        .await;
    world.ship("web", "3").await;
    world.fence("shop", &["hook"]).await;
    world.delivery("Deployed 3", |d| d.spec.notification == "held").await;
    world
        .delivery("Deployed 3", |d| d.spec.notification == "hook" && d.status.as_ref().is_some_and(|s| s.outcome.is_some()))
        .await;

    let (ns, own) = (world.ns.as_str(), ["-n", "told", "--pipeline", "shop"]);
    let row = |row: &Value| {
        let cell = |field: &str| row[field].as_str().unwrap_or("nothing").to_owned();
        format!("{} {} {}", cell("notification"), cell("revision"), cell("outcome"))
    };
    let rows = |all: Vec<Value>| all.iter().map(row).collect::<Vec<_>>();
    let all = audit(&world, &own).await;
    let times: Vec<_> = all.iter().map(last).collect();
    assert!(times.iter().rev().is_sorted(), "the newest comes first: {times:?}");
    let all = rows(all);
    let expected = ["held 3 Pending", "held 2 Pending", "hook 2 Delivered", "hook 3 Parked"];
    assert!(expected.iter().all(|one| all.contains(&(*one).to_owned())) && all.len() == 5, "{all:?}");
    let parked = audit(&world, &["-n", ns, "--outcome", "parked"]).await;
    assert_eq!(parked.len(), 1);
    assert_eq!(
        (&parked[0]["answer"], &parked[0]["code"], &parked[0]["response"], &parked[0]["attempts"]),
        (&json!("400 Bad Request: nope"), &json!(400), &json!("nope"), &json!(1))
    );
    assert_eq!(
        parked[0]["name"],
        world.delivery("Deployed 3", |d| d.spec.notification == "hook").await.metadata.name.unwrap()
    );
    assert_eq!(rows(audit(&world, &["-n", ns, "--outcome", "Pending"]).await), expected[..2]);
    assert_eq!(audit(&world, &["-n", ns, "--notification", "hook", "--since", "1h"]).await.len(), 3);
    assert_eq!(audit(&world, &["-n", ns, "--pipeline", "other"]).await.len(), 0);
    assert_eq!(audit(&world, &["pipeline/shop", "-n", ns]).await.len(), 5);
    assert_eq!(audit(&world, &["other", "-n", ns]).await.len(), 0);
    let printed = async |output: &str| {
        let output = command(&world, &["audit", "shop", "-n", ns, "--outcome", "parked", "-o", output]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let named = parked[0]["name"].as_str().unwrap();
    assert_eq!(printed("name").await, format!("delivery.relaybook.dev/{named}\n"));
    let yaml = printed("yaml").await;
    assert!(yaml.starts_with("apiVersion: v1\nkind: List\nitems:\n") && yaml.contains(named), "{yaml}");
    let wide = printed("wide").await;
    assert!(wide.contains("   shop   ") && wide.contains("   ReceiverRejected"), "{wide}");
    let none = command(&world, &["audit", "other", "-n", ns, "-o", "name"]).await;
    assert_eq!((none.stdout.as_slice(), none.stderr.as_slice()), (&b""[..], &b"no deliveries found\n"[..]));

    let table =
        command(&world, &["audit", "-A", "--pipeline", "shop", "--notification", "hook", "--outcome", "parked"]).await;
    let table = String::from_utf8(table.stdout).unwrap();
    // The width of a column depends on the deliveries of other tests.
    let head: Vec<_> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(head, ["NAMESPACE", "NAME", "LAST", "SUBJECT", "REVISION", "OUTCOME", "ANSWER"], "{table}");
    let name = parked[0]["name"].as_str().unwrap();
    let words = [name, "hook", "Parked", "400 Bad Request: nope"];
    assert!(table.lines().any(|line| line.starts_with("told ") && words.iter().all(|word| line.contains(word))), "{table}");
    let pending = command(&world, &["audit", "-n", ns, "--outcome", "Pending"]).await;
    let pending = String::from_utf8(pending.stdout).unwrap();
    assert!(pending.lines().count() == 3 && pending.lines().skip(1).all(|line| line.contains("   Pending ")), "{pending}");

    let (columns, shown) = kubectl(&world).await;
    let at = |name: &str| columns.iter().position(|column| column == name).unwrap_or_else(|| panic!("{name}: {columns:?}"));
    let row = shown.iter().find(|cells| cells[at("Name")] == name).expect("it is in the table");
    let cell = |name: &str| row[at(name)].as_str().unwrap_or_default();
    assert_eq!((cell("Notification"), cell("Outcome"), cell("Error (wide)")), ("hook", "Parked", "400 Bad Request"));
    assert!(!cell("Last Attempt").is_empty(), "{row:?}");

    world.patch::<Notification>("held", json!({"spec": {"suspend": false}})).await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3 [Parked]"])
        .lane("shop/held/dev/web", &["Deployed 2", "Deployed 3"])
        .check()
        .await;
}

#[tokio::test]
async fn the_audit_shows_more_than_one_page() {
    let world = World::new("pages").await;
    let delivery = |n: i64| {
        json!({"metadata": {"name": format!("shop-hook-{n:05}")}, "spec": {
            "notification": "hook", "pipelineRef": {"namespace": "pages", "name": "shop", "uid": "u"},
            "subject": {"kind": "Target", "name": "dev/in-cluster/web", "environment": "dev"}, "lane": "target/dev/in-cluster/web",
            "order": n, "serial": n, "type": "Deployed", "time": "2025-01-01T00:00:00Z",
            "from": {"status": "Current"}, "to": {"status": "Current", "revision": n.to_string()},
        }})
    };
    stream::iter(1..=1100).for_each_concurrent(16, async |n| drop(world.create::<Delivery>(delivery(n)).await)).await;
    let rows = audit(&world, &["-n", "pages"]).await;
    let place = |row: &Value| (last(row), row["revision"].as_str().unwrap().parse::<i64>().unwrap());
    let places: Vec<_> = rows.iter().map(place).collect();
    assert!(places.iter().rev().is_sorted(), "the newest comes first, and of one second the newest of the lane: {places:?}");
    let revisions: BTreeSet<_> = places.iter().map(|(_, revision)| *revision).collect();
    assert_eq!((rows.len(), revisions), (1100, (1..=1100).collect()));
    // A reader that closes the pipe early does not make the command fail.
    let mut child = Command::new(env!("CARGO_BIN_EXE_relaybook"))
        .args(["audit", "-n", "pages"])
        .env("KUBECONFIG", &world.kubeconfig)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert!(first.starts_with("NAME") && ended.status.success(), "{first} {}", String::from_utf8_lossy(&ended.stderr));
}

#[tokio::test]
async fn watch_prints_deliveries_as_they_change() {
    let world = World::new("looks-on").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_relaybook"))
        .args(["audit", "-n", "looks-on", "--watch", "-o", "json", "--outcome", "delivered"])
        .env("KUBECONFIG", &world.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let seen = tokio::task::spawn_blocking(move || {
        let told = lines.map_while(Result::ok).map(|line| serde_json::from_str::<Value>(&line).unwrap());
        told.map(|row| row["revision"].as_str().unwrap().to_owned()).find(|revision| revision == "3")
    });
    world.ship("web", "2").await;
    world.ship("web", "3").await;
    let found = tokio::time::timeout(crate::support::wait::DEADLINE, seen).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found.expect("revision 3 is printed in time").unwrap().as_deref(), Some("3"));

    // The existing deliveries come first, with the newest last, because later changes are printed below.
    let mut child = Command::new(env!("CARGO_BIN_EXE_relaybook"))
        .args(["audit", "-n", "looks-on", "--watch"])
        .env("KUBECONFIG", &world.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let seen = tokio::task::spawn_blocking(move || lines.map_while(Result::ok).take(3).collect::<Vec<_>>());
    let seen = tokio::time::timeout(crate::support::wait::DEADLINE, seen).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let seen = seen.expect("it is printed in time").unwrap();
    assert!(seen[0].starts_with("NAME ") && seen[1].contains("   2   ") && seen[2].contains("   3   "), "{seen:#?}");
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]).check().await;
}
