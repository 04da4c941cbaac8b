//! Five layers, each with its own receiver; and pipelines of one name in two namespaces, one of which is deleted and created again.

use relaybook_api::{Notification, Pipeline};
use serde_json::{Value, json};

use super::{Stage, everywhere, homes};
use crate::support::world::apps::Kind;
use crate::support::world::{BODY, pipeline};
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

/// A URL, a template and credentials that identify their layer.
fn says(who: &str, receiver: &Receiver) -> Value {
    let body = BODY.replacen('{', &format!(r#"{{"by": "{who}", "#), 1);
    json!({
        "endpoint": {
            "url": receiver.url("/hook/{{target.app.name}}"),
            "auth": {"token": {"secretKeyRef": {"name": who, "key": "key"}}},
        },
        "template": {"inline": {"body": body}},
    })
}

fn named(name: &str, mut spec: Value) -> Value {
    spec["name"] = json!(name);
    spec
}

#[tokio::test]
async fn the_most_specific_of_five_layers_wins_field_by_field() {
    let system = World::new("global-five-sys").await;
    let team = World::beside("global-five", &system).await;
    let whose = ["global", "notification", "pipeline", "environment", "target"];
    let receivers: Vec<_> = whose.iter().map(|_| Receiver::start()).collect();
    let says = |at: usize| says(whose[at], &receivers[at]);
    for (who, world) in whose.iter().zip([&system, &team, &team, &team, &team]) {
        world.secret(who, json!({"key": format!("token of the {who}")})).await;
    }
    let stage = Stage { system, team };
    let Stage { system, team } = &stage;
    // Each notification is overridden by one layer more than the one before it. Fields that no layer overrides have the value of the global
    // configuration.
    let triggers = json!([{"type": "Deployed"}]);
    let of_global = |name: &str| {
        let mut spec = named(name, says(0));
        spec["triggers"] = triggers.clone();
        spec["endpoint"]["headers"] = json!({"X-Org": "acme"});
        spec
    };
    let names = ["hook-0", "hook-1", "hook-2", "hook-3", "hook-4"];
    stage.configure(&json!({"notifications": names.map(of_global)})).await;
    for name in &names[1..] {
        team.create::<Notification>(json!({"metadata": {"name": name}, "spec": says(1)})).await;
    }
    for app in ["web", "quiet"] {
        team.deploy(app, "1").await;
    }
    let mut shop = pipeline(&team.ns, "shop", Kind::Deployment, &["dev/web", "dev/quiet"]);
    let over = |from: usize, at: usize| names[from..].iter().map(|name| named(name, says(at))).collect::<Vec<_>>();
    shop["spec"]["notifications"] = json!(over(2, 2));
    shop["spec"]["environments"][0]["notifications"] = json!(over(3, 3));
    shop["spec"]["environments"][0]["targets"][0]["notifications"] = json!(over(4, 4));
    let silent: Vec<_> = names.iter().map(|name| json!({"name": name, "triggers": []})).collect();
    shop["spec"]["environments"][0]["targets"][1]["notifications"] = json!(silent);
    team.create::<Pipeline>(shop).await;
    let _relaybook = stage.start().await;
    for name in names {
        stage.cursor("shop", name, "global").await;
    }
    for app in ["web", "quiet"] {
        team.ship(app, "2").await;
    }
    team.observed_at("shop", "2", &["web", "quiet"]).await;
    team.fence("shop", &names).await;

    let mut oracle = receivers[1..].iter().fold(Oracle::new(team, &receivers[0]), Oracle::and);
    for name in names {
        oracle = oracle.lane(&format!("shop/{name}/dev/web"), &["Deployed 2"]);
    }
    oracle.check().await;
    for (receiver, who) in receivers.iter().zip(whose) {
        let request = &receiver.to("/hook/web")[0];
        let told = [request.json()["by"].as_str().unwrap().to_owned(), request.header("authorization").to_owned()];
        assert_eq!(told, [who.to_owned(), format!("Bearer token of the {who}")]);
        assert_eq!(request.header("x-org"), "acme", "{who}");
    }
    let kept = futures::future::join_all(names.map(|name| homes(team, name))).await;
    assert_eq!(kept[0].as_slice(), std::slice::from_ref(&system.ns));
    assert!(kept[2..].iter().all(|homes| *homes == [team.ns.clone()]), "{kept:?}");
}

#[tokio::test]
async fn pipelines_with_one_name_in_two_namespaces_are_independent() {
    let stage = Stage::new("global-twins").await;
    let Stage { system, team } = &stage;
    let twin = World::beside("global-twins-b", system).await;
    for app in ["web", "api"] {
        twin.deploy(app, "1").await;
    }
    let receiver = Receiver::start();
    stage.configure(&json!({"notifications": [everywhere("audit", &receiver, json!({}))]})).await;
    for world in [team, &twin] {
        world.pipeline("shop", &["dev/web", "prod/api"]).await;
    }
    let mut options = stage.options();
    options.watch.push(twin.ns.clone());
    let _relaybook = Relaybook::with(system, options).await;
    for world in [team, &twin] {
        world.settled().await;
        begun(world).await;
    }
    ship(&[team, &twin], "2").await;
    for world in [team, &twin] {
        world.fence("shop", &["audit"]).await;
    }
    // One of the pipelines is deleted and created again.
    twin.delete::<Pipeline>("shop").await;
    ship(&[team, &twin], "3").await;
    team.fence("shop", &["audit"]).await;
    twin.pipeline("shop", &["dev/web", "prod/api"]).await;
    twin.settled().await;
    begun(&twin).await;
    ship(&[team, &twin], "4").await;
    for world in [team, &twin] {
        world.fence("shop", &["audit"]).await;
    }
    let mut oracle = Oracle::new(team, &receiver);
    for target in ["dev/web", "prod/api"] {
        let path = format!("shop/audit/{target}");
        oracle = oracle.lane(&path, &["Deployed 2", "Deployed 3", "Deployed 4"]);
        oracle = oracle.lane_in(&twin.ns, &path, &["Deployed 2", "Deployed 4"]);
    }
    oracle.check().await;
}

/// Waits until pipeline `shop` has its cursor.
async fn begun(world: &World) {
    eventually("the cursor of audit", async || {
        let dispatched = world.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
        if dispatched.cursors.len() == 1 { Ok(()) } else { Err(format!("{:?}", dispatched.cursors)) }
    })
    .await;
}

async fn ship(worlds: &[&World], tag: &str) {
    for world in worlds {
        for app in ["web", "api"] {
            world.ship(app, tag).await;
        }
        if world.api::<Pipeline>().get_opt("shop").await.unwrap().is_some() {
            world.observed_at("shop", tag, &["web", "api"]).await;
        }
    }
}
