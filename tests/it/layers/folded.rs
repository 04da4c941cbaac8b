//! The most specific layer wins, field by field.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::{attempts, begun, body, no_trouble, own, shop, signed, start, template, to, told, trouble};
use crate::support::{Oracle, Receiver, Reply, World, eventually};

const TARGETS: [&str; 5] = ["dev/web", "dev/quiet", "prod/api", "prod/db", "prod/one"];
const APPS: [&str; 5] = ["web", "quiet", "api", "db", "one"];

fn token(secret: &str) -> serde_json::Value {
    json!({"token": {"secretKeyRef": {"name": secret, "key": "key"}}})
}

#[tokio::test]
async fn every_layer_overrides_only_its_own_fields() {
    let world = World::new("layers-fold").await;
    let (base, prod, db, other) = (Receiver::start(), Receiver::start(), Receiver::start(), Receiver::start());
    for app in APPS {
        world.deploy(app, "1").await;
    }
    world.secret("base", json!({"key": "base"})).await;
    world.secret("prod", json!({"key": "prod"})).await;
    world.secret("login", json!({"username": "me", "password": "pw"})).await;
    let hook = json!({"endpoint": {"auth": token("base"), "headers": {"X-Team": "base", "X-Gone": "yes"}}});
    world.notification("hook", &base, hook).await;
    let path = "/hook/{{target.app.name}}";
    let of_pipeline = json!([
        {"name": "hook", "template": template("pipeline"), "endpoint": {"headers": {"x-team": "pipeline"}}},
        own("whole", &other),
    ]);
    let of_prod = json!([{
        "name": "hook", "remove": ["/endpoint/headers/X-Gone"],
        "endpoint": {"url": prod.url(path), "auth": token("prod")},
    }]);
    let login = json!({"basic": {"secretRef": {"name": "login"}}});
    let of_db = json!([{
        "name": "hook", "template": template("db"),
        "endpoint": {"url": db.url(path), "auth": login, "headers": {"X-Db": "yes"}},
    }]);
    let layers = [
        ("", of_pipeline),
        ("prod", of_prod),
        ("prod/db", of_db),
        ("dev/quiet", json!([{"name": "hook", "triggers": []}])),
        ("prod/one", json!([own("single", &other)])),
    ];
    shop(&world, &TARGETS, &layers).await;
    let _relaybook = start(&world).await;
    for app in APPS {
        world.ship(app, "2").await;
    }
    world.fence("shop", &["hook", "whole"]).await;

    let mut oracle =
        Oracle::new(&world, &base).and(&prod).and(&db).and(&other).lane("shop/single/prod/one", &["Deployed 2"]);
    for target in TARGETS {
        oracle = oracle.lane(&format!("shop/whole/{target}"), &["Deployed 2"]);
        if target != "dev/quiet" {
            oracle = oracle.lane(&format!("shop/hook/{target}"), &["Deployed 2"]);
        }
    }
    oracle.check().await;
    // Receiver and application, then the credentials, X-Team, X-Gone, X-Db, and the layer of the template.
    for (receiver, app, expected) in [
        (&base, "web", ["Bearer base", "pipeline", "yes", "", "pipeline"]),
        (&prod, "api", ["Bearer prod", "pipeline", "", "", "pipeline"]),
        (&prod, "one", ["Bearer prod", "pipeline", "", "", "pipeline"]),
        (&db, "db", ["Basic bWU6cHc=", "pipeline", "", "yes", "db"]),
    ] {
        let path = format!("/hook/{app}");
        let request = &receiver.to(&path)[0];
        let [auth, team, gone, own] = ["authorization", "x-team", "x-gone", "x-db"].map(|name| request.header(name));
        assert_eq!([auth, team, gone, own, &signed(receiver, &path)[0]], expected, "{app}");
    }
    no_trouble(&world).await;
}

#[tokio::test]
async fn a_config_map_that_only_a_layer_refers_to_is_watched() {
    let world = World::new("layers-map").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.deploy("api", "1").await;
    // After a minute, retention would delete deliveries beyond ten of a lane.
    world.notification("hook", &receiver, json!({"delivery": {"retain": {"perLane": 100}}})).await;
    let from_map = json!([{"name": "hook", "template": {"configMapKeyRef": {"name": "texts", "key": "web"}}}]);
    shop(&world, &["dev/web", "dev/api"], &[("dev/web", from_map)]).await;
    let _relaybook = start(&world).await;
    trouble(&world, "hook", Some("web"), "ConfigMapMissing").await;
    world.ship("web", "2").await;
    world.ship("api", "2").await;
    world.fence("shop", &["hook"]).await;
    told(&world, "hook", "web", "Deployed 2", |d| super::reason(d) == "ConfigMapMissing" && attempts(d) == 0).await;
    world.create::<ConfigMap>(json!({"metadata": {"name": "texts"}, "data": {"web": body("first")}})).await;
    receiver.wait("/hook/web", 1).await;
    no_trouble(&world).await;
    world.patch::<ConfigMap>("texts", json!({"data": {"web": body("second")}})).await;
    let mut steps = vec!["Deployed 2".to_owned()];
    let mut revision = 2;
    eventually("the second text is sent", async || {
        revision += 1;
        world.ship("web", &revision.to_string()).await;
        steps.push(format!("Deployed {revision}"));
        let all = receiver.wait("/hook/web", steps.len()).await;
        assert_eq!(all.len(), steps.len());
        let signed = signed(&receiver, "/hook/web");
        if signed.last().is_some_and(|by| by == "second") { Ok(()) } else { Err(format!("{signed:?}")) }
    })
    .await;
    assert_eq!(signed(&receiver, "/hook/web")[0], "first");
    assert_eq!(signed(&receiver, "/hook/api"), [""]);
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    let oracle = Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &steps);
    oracle.lane("shop/hook/dev/api", &["Deployed 2"]).check().await;
}

#[tokio::test]
async fn after_a_kill_deliveries_go_where_the_layers_point() {
    let world = World::new("layers-kill").await;
    let (base, there, other) = (Receiver::start(), Receiver::start(), Receiver::start());
    for (receiver, path) in [(&base, "/hook/web"), (&there, "/hook/api"), (&other, "/own/web")] {
        receiver.always(path, Reply::status(503));
    }
    world.deploy("web", "1").await;
    world.deploy("api", "1").await;
    world.notification("hook", &base, json!({})).await;
    let layers = [("", json!([own("own", &other)])), ("prod", to("hook", &there, "/hook/{{target.app.name}}"))];
    shop(&world, &["dev/web", "prod/api"], &layers).await;
    let mut relaybook = start(&world).await;
    begun(&world, "own").await;
    for tag in ["2", "3", "4"] {
        for app in ["web", "api"] {
            world.ship(app, tag).await;
            world.observed_at("shop", tag, &[app]).await;
        }
    }
    for (receiver, path) in [(&base, "/hook/web"), (&there, "/hook/api"), (&other, "/own/web")] {
        receiver.wait(path, 2).await;
    }
    relaybook.kill9();
    for (receiver, path) in [(&base, "/hook/web"), (&there, "/hook/api"), (&other, "/own/web")] {
        receiver.always(path, Reply::status(200));
    }
    relaybook.start_again().await;
    world.fence("shop", &["hook", "own"]).await;
    let mut oracle = Oracle::new(&world, &base).and(&there).and(&other).after_a_crash();
    for lane in ["shop/hook/dev/web", "shop/hook/prod/api", "shop/own/dev/web", "shop/own/prod/api"] {
        oracle = oracle.lane(lane, &["Deployed 2", "Deployed 3", "Deployed 4"]);
    }
    oracle.check().await;
    assert!(base.to("/hook/api").is_empty() && there.log().iter().all(|r| r.path == "/hook/api"));
    assert!(other.log().iter().all(|r| r.path.starts_with("/own/")));
}
