//! Layers over the global configuration: which layer wins, whose Secrets are read, and in which namespace the deliveries are stored.

use pennant::api::{Delivery, Pipeline};
use serde_json::json;

use super::{Stage, everywhere, homes};
use crate::support::{Oracle, Receiver, Reply, World};

#[tokio::test]
async fn a_cluster_wide_notification_applies_to_matching_pipelines() {
    let stage = Stage::new("global-match").await;
    let Stage { system, team } = &stage;
    let receiver = Receiver::start();
    let other = World::beside("global-match-other", system).await;
    for name in ["one", "two"] {
        other.deploy(name, "1").await;
    }
    system.secret("hmac", json!({"key": "of the system"})).await;
    team.secret("hmac", json!({"key": "of the team"})).await;
    let auth = json!({"endpoint": {"auth": {"token": {"secretKeyRef": {"name": "hmac", "key": "key"}}}}});
    let mut audit = everywhere("audit", &receiver, auth);
    audit["namespaces"] = json!(["global-match", "nobody-*"]);
    let mut some = everywhere("some", &receiver, json!({}));
    some["pipelineSelector"] = json!({"matchLabels": {"tier": "1"}});
    stage.configure(&json!({"notifications": [audit, some]})).await;
    team.pipeline("shop", &["dev/web", "prod/api"]).await;
    other.pipeline("first", &["dev/one"]).await;
    other.pipeline("second", &["dev/two"]).await;
    other.patch::<Pipeline>("first", json!({"metadata": {"labels": {"tier": "1"}}})).await;
    let mut options = stage.options();
    options.watch.push(other.ns.clone());
    let _pennant = crate::support::Pennant::with(system, options).await;
    team.settled().await;
    other.settled().await;
    stage.cursor("shop", "audit", "global").await;

    stage.ship("2").await;
    for app in ["one", "two"] {
        other.ship(app, "2").await;
    }
    team.fence("shop", &["audit"]).await;
    other.fence("first", &["some"]).await;
    // A changed label is enough: `second` is selected now, and `first` is not.
    other.patch::<Pipeline>("second", json!({"metadata": {"labels": {"tier": "1"}}})).await;
    other.patch::<Pipeline>("first", json!({"metadata": {"labels": {"tier": "2"}}})).await;
    let cursors = async |name: &str| {
        let dispatched = other.get_pipeline(name).await.status.and_then(|s| s.dispatched).unwrap_or_default();
        dispatched.cursors.into_iter().map(|c| c.notification).collect::<Vec<_>>()
    };
    crate::support::eventually("the cursors follow the labels", async || {
        let (first, second) = (cursors("first").await, cursors("second").await);
        if first.is_empty() && second == ["some"] { Ok(()) } else { Err(format!("{first:?} {second:?}")) }
    })
    .await;
    for app in ["one", "two"] {
        other.ship(app, "3").await;
    }
    other.fence("second", &["some"]).await;

    let oracle = Oracle::new(team, &receiver).lane("shop/audit/dev/web", &["Deployed 2"]);
    let oracle = oracle.lane("shop/audit/prod/api", &["Deployed 2"]);
    let oracle = oracle.lane_in(&other.ns, "first/some/dev/one", &["Deployed 2"]);
    oracle.lane_in(&other.ns, "second/some/dev/two", &["Deployed 3"]).check().await;
    assert_eq!(homes(team, "audit").await, std::slice::from_ref(&system.ns), "the namespace of the layer that sets the URL");
    assert_eq!(receiver.to("/audit/web")[0].header("authorization"), "Bearer of the system");
}

#[tokio::test]
async fn all_layers_merge_and_references_belong_to_their_layer() {
    let stage = Stage::new("global-fold").await;
    let Stage { system, team } = &stage;
    let (base, own) = (Receiver::start(), Receiver::start());
    for (world, whose) in [(system, "system"), (team, "team")] {
        world.secret("key", json!({"key": whose})).await;
    }
    let token = json!({"token": {"secretKeyRef": {"name": "key", "key": "key"}}});
    let defaults =
        json!({"endpoint": {"headers": {"X-Org": "acme", "X-Team": "none"}}, "delivery": {"retain": {"perLane": 3}}});
    let hook = everywhere("hook", &base, json!({"endpoint": {"auth": token, "headers": {"X-From": "global"}}}));
    stage.configure(&json!({"defaults": defaults, "notifications": [hook]})).await;
    // The team sets X-Team. One target sends to another URL with credentials of the team. The other target removes X-From.
    team.create::<pennant::api::Notification>(json!({
        "metadata": {"name": "hook"}, "spec": {"endpoint": {"headers": {"X-Team": "a"}}},
    }))
    .await;
    let mut shop = crate::support::world::pipeline(
        &team.ns,
        "shop",
        crate::support::world::apps::Kind::Deployment,
        &["dev/web", "prod/api"],
    );
    let elsewhere = own.url("/hook/{{target.app.name}}");
    shop["spec"]["environments"][1]["targets"][0]["notifications"] =
        json!([{"name": "hook", "endpoint": {"url": elsewhere, "auth": token}}]);
    shop["spec"]["environments"][0]["targets"][0]["notifications"] =
        json!([{"name": "hook", "remove": ["/endpoint/headers/X-From"]}]);
    team.create::<Pipeline>(shop).await;
    let _pennant = stage.start().await;
    stage.cursor("shop", "hook", "global").await;
    stage.ship("2").await;
    team.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(team, &base).and(&own).lane("shop/hook/dev/web", &["Deployed 2"]);
    oracle.lane("shop/hook/prod/api", &["Deployed 2"]).check().await;
    for (receiver, app, expected) in
        [(&base, "web", ["Bearer system", "acme", "a", ""]), (&own, "api", ["Bearer team", "acme", "a", "global"])]
    {
        let request = &receiver.to(&format!("/hook/{app}"))[0];
        assert_eq!(["authorization", "x-org", "x-team", "x-from"].map(|name| request.header(name)), expected, "{app}");
    }
    let home = async |app: &str| {
        let all = team.deliveries().await;
        let of = all.iter().find(|d| d.spec.subject.target.as_ref().is_some_and(|t| t.app.name == app)).unwrap();
        of.metadata.namespace.clone().unwrap()
    };
    assert_eq!((home("web").await, home("api").await), (system.ns.clone(), team.ns.clone()));

    // Credentials of the platform are not sent to a URL of the team.
    let mut stolen = serde_json::to_value(team.get_pipeline("shop").await).unwrap()["spec"].take();
    stolen["environments"][1]["targets"][0]["notifications"] =
        json!([{"name": "hook", "endpoint": {"url": own.url("/hook/api")}}]);
    team.patch::<Pipeline>("shop", json!({"spec": stolen})).await;
    let wrong = crate::support::eventually("the mismatch is reported", async || {
        let dispatched = team.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
        let found = dispatched.notifications.iter().find(|t| t.reason == "CredentialOriginMismatch").cloned();
        found.ok_or_else(|| format!("{:?}", dispatched.notifications))
    })
    .await;
    assert!(
        wrong.message.contains("the global configuration") && wrong.target.as_deref().unwrap().ends_with("api"),
        "{wrong:?}"
    );
}

#[tokio::test]
async fn a_response_to_platform_credentials_is_not_shown_to_a_team() {
    let stage = Stage::new("global-answers").await;
    let Stage { system, team } = &stage;
    let receiver = Receiver::start();
    system.secret("key", json!({"key": "t0ken-of-the-system"})).await;
    let token = json!({"token": {"secretKeyRef": {"name": "key", "key": "key"}}});
    let hook = everywhere("hook", &receiver, json!({"endpoint": {"auth": token}}));
    stage.configure(&json!({"notifications": [hook]})).await;
    let apps = [("web", "/hook/web", &system.ns), ("api", "/other/api", &team.ns)];
    for (_, path, _) in apps {
        receiver.always(path, Reply::status(200).body("you are t0ken-of-the-system, and here is more"));
    }
    // The team may use the credentials for another path of their origin. Then the Delivery is in the namespace of the team.
    let mut shop = crate::support::world::pipeline(
        &team.ns,
        "shop",
        crate::support::world::apps::Kind::Deployment,
        &["dev/web", "prod/api"],
    );
    shop["spec"]["environments"][1]["targets"][0]["notifications"] =
        json!([{"name": "hook", "endpoint": {"url": receiver.url("/other/{{target.app.name}}")}}]);
    team.create::<Pipeline>(shop).await;
    let _pennant = stage.start().await;
    stage.cursor("shop", "hook", "global").await;
    stage.ship("2").await;
    team.fence("shop", &["hook"]).await;
    let all = team.deliveries().await;
    let answers = apps.map(|(app, path, ns)| {
        assert_eq!(receiver.to(path)[0].header("authorization"), "Bearer t0ken-of-the-system", "{app}");
        let of = |d: &&Delivery| d.spec.subject.target.as_ref().is_some_and(|t| t.app.name == app);
        let delivery = all.iter().find(of).unwrap();
        assert_eq!(delivery.metadata.namespace.as_ref(), Some(ns), "{app}");
        let status = delivery.status.clone().unwrap();
        (status.status_code, status.response.unwrap_or_default())
    });
    let withheld = "(45 bytes, not kept: the credentials belong to another namespace)";
    assert_eq!(answers, [(Some(200), "you are ***, and here is more".to_owned()), (Some(200), withheld.to_owned())]);
}
