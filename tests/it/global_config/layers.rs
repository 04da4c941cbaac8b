//! Layers over the global configuration: which layer wins, whose Secrets are read, in which namespace the deliveries are stored, and what a
//! team is not shown.

use relaybook_api::pipeline::NotReadyNotification;
use relaybook_api::{Delivery, Notification, Outcome, Pipeline};
use serde_json::json;

use super::{Stage, everywhere, homes, is};
use crate::support::world::{self, apps::Kind};
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

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
    let _relaybook = Relaybook::with(system, options).await;
    team.settled().await;
    other.settled().await;
    stage.cursor("shop", "audit", "global").await;
    let cursors = async |name: &str| {
        let dispatched = other.get_pipeline(name).await.status.and_then(|s| s.dispatched).unwrap_or_default();
        dispatched.cursors.into_iter().map(|c| c.notification).collect::<Vec<_>>()
    };
    eventually("the cursor of the first pipeline", async || {
        let first = cursors("first").await;
        if first == ["some"] { Ok(()) } else { Err(format!("{first:?}")) }
    })
    .await;

    stage.ship("2").await;
    for app in ["one", "two"] {
        other.ship(app, "2").await;
    }
    team.fence("shop", &["audit"]).await;
    other.fence("first", &["some"]).await;
    // A changed label is enough: `second` is selected now, and `first` is not.
    other.patch::<Pipeline>("second", json!({"metadata": {"labels": {"tier": "1"}}})).await;
    other.patch::<Pipeline>("first", json!({"metadata": {"labels": {"tier": "2"}}})).await;
    eventually("the cursors follow the labels", async || {
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
    team.create::<Notification>(json!({
        "metadata": {"name": "hook"}, "spec": {"endpoint": {"headers": {"X-Team": "a"}}},
    }))
    .await;
    let mut shop = world::pipeline(&team.ns, "shop", Kind::Deployment, &["dev/web", "prod/api"]);
    let elsewhere = own.url("/hook/{{target.app.name}}");
    shop["spec"]["environments"][1]["targets"][0]["notifications"] =
        json!([{"name": "hook", "endpoint": {"url": elsewhere, "auth": token}}]);
    shop["spec"]["environments"][0]["targets"][0]["notifications"] =
        json!([{"name": "hook", "remove": ["/endpoint/headers/X-From"]}]);
    team.create::<Pipeline>(shop).await;
    let _relaybook = stage.start().await;
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
    let wrong = eventually("the mismatch is reported", async || {
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
    let mut shop = world::pipeline(&team.ns, "shop", Kind::Deployment, &["dev/web", "prod/api"]);
    shop["spec"]["environments"][1]["targets"][0]["notifications"] =
        json!([{"name": "hook", "endpoint": {"url": receiver.url("/other/{{target.app.name}}")}}]);
    team.create::<Pipeline>(shop).await;
    let _relaybook = stage.start().await;
    stage.cursor("shop", "hook", "global").await;
    stage.ship("2").await;
    team.fence("shop", &["hook"]).await;
    // The fence has a lane of its own.
    for (app, _, _) in apps {
        let about = |d: &Delivery| d.spec.subject.target.as_ref().is_some_and(|t| t.app.name == app);
        team.delivery("Deployed 2", |d| about(d) && is(Outcome::Delivered)(d)).await;
    }
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

/// Templates of a team refer, in every field and layer, to a parameter of the cluster-wide notification. No status and no Event shows its
/// value, and nothing is sent until the platform shares it.
#[tokio::test]
async fn a_platform_parameter_is_not_shown_to_teams() {
    const KEY: &str = "R0UT1NG-7f3a";
    let stage = Stage::new("global-parameter").await;
    let team = &stage.team;
    let (ours, theirs) = (Receiver::start(), Receiver::start());
    let config = |share: bool| {
        let parameters = json!({"routingKey": KEY, "room": KEY});
        let mut template = json!({"inline": {"body": world::BODY}, "parameters": parameters});
        if share {
            template["shareParameters"] = json!(true);
        }
        let audit = everywhere("audit", &ours, json!({ "template": template }));
        json!({"notifications": [audit, everywhere("plain", &ours, json!({}))]})
    };
    stage.configure(&config(false)).await;
    // An environment sets its own body, and a target sets its own header.
    let shop = |body: &str, header: &str| {
        let mut shop = world::pipeline(&team.ns, "shop", Kind::Deployment, &["dev/web", "prod/api"]);
        let body = world::BODY.replacen('{', &format!("{{\"room\": \"{body}\", "), 1);
        shop["spec"]["environments"][0]["notifications"] =
            json!([{"name": "audit", "template": {"inline": {"body": body}}}]);
        shop["spec"]["environments"][1]["targets"][0]["notifications"] =
            json!([{"name": "audit", "endpoint": {"headers": {"X-Room": header}}}]);
        shop
    };
    team.create::<Pipeline>(shop("{{commit parameters.routingKey}}", "{{commit parameters.room}}")).await;
    let _relaybook = Relaybook::with(&stage.system, stage.options()).await;
    stage.cursor("shop", "audit", "global").await;
    // Waits until a target reports `ParameterNotShared` with this word.
    let told = async |word: &str| {
        eventually(&format!("ParameterNotShared with {word}"), async || {
            let dispatched = team.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
            let all = dispatched.notifications.iter().filter(|t| t.name == "audit");
            for trouble in all.clone() {
                assert!(!trouble.message.contains(KEY), "{trouble:?}");
            }
            let is = |t: &&NotReadyNotification| t.reason == "ParameterNotShared" && t.message.contains(word);
            let found = all.clone().find(is).filter(|t| t.message.contains("shareParameters: true"));
            found.map(drop).ok_or_else(|| format!("{:?}", all.collect::<Vec<_>>()))
        })
        .await;
    };
    stage.ship("2").await;
    told("spec.template.inline.body").await;
    told("spec.endpoint.headers[X-Room]").await;
    // A comparison would reveal the value bit by bit.
    let compares = json!({"X-Found": "{{#if (eq parameters.room \"R\")}}yes{{/if}}"});
    team.notification("audit", &ours, json!({"endpoint": {"url": null, "headers": compares}, "template": null})).await;
    told("spec.endpoint.headers[X-Found]").await;
    // A receiver of the team would get the value at once.
    let foreign = json!({"url": theirs.url("/{{commit parameters.room}}"), "headers": null});
    team.patch::<Notification>("audit", json!({"spec": {"endpoint": foreign}})).await;
    told("spec.endpoint.url").await;
    stage.ship("3").await;
    team.fence("shop", &["plain"]).await;
    for world in [&stage.system, team] {
        for event in
            world.api::<k8s_openapi::api::events::v1::Event>().list(&kube::api::ListParams::default()).await.unwrap()
        {
            assert!(!event.note.as_deref().unwrap_or_default().contains(KEY), "{event:?}");
        }
    }
    for delivery in team.deliveries().await {
        let status = delivery.status.unwrap_or_default();
        let text = serde_json::to_string(&status).unwrap();
        assert!(!text.contains(KEY) && (delivery.spec.notification != "audit" || status.outcome.is_none()), "{text}");
    }
    let notification = serde_json::to_string(&team.get_notification("audit").await.status).unwrap();
    let pipeline = serde_json::to_string(&team.get_pipeline("shop").await.status).unwrap();
    assert!(!notification.contains(KEY) && !pipeline.contains(KEY), "{notification} {pipeline}");
    assert!(theirs.log().is_empty() && ours.log().iter().all(|r| !r.path.starts_with("/audit")), "{:?}", ours.log());

    // The platform shares the parameter, and the pending deliveries are sent. The Notification of the team would then be valid, so Relaybook
    // first has to know that it is gone.
    team.patch::<Pipeline>("shop", shop("{{parameters.room}}", "{{parameters.room}}")).await;
    team.observed("shop").await;
    team.delete::<Notification>("audit").await;
    eventually("nothing is sent to the URL of the team", async || {
        let dispatched = team.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
        let found = dispatched.notifications.iter().find(|t| t.message.contains("spec.endpoint.url"));
        found.map_or(Ok(()), |trouble| Err(format!("{trouble:?}")))
    })
    .await;
    stage.configure(&config(true)).await;
    let (web, api) = (ours.wait("/audit/web", 2).await, ours.wait("/audit/api", 2).await);
    assert!(web.iter().all(|r| r.json()["room"] == KEY) && api.iter().all(|r| r.header("x-room") == KEY));
    team.fence("shop", &["plain", "audit"]).await;
    let steps = ["Deployed 2", "Deployed 3"];
    let lanes = ["plain/dev/web", "plain/prod/api", "audit/dev/web", "audit/prod/api"];
    let oracle =
        lanes.into_iter().fold(Oracle::new(team, &ours), |oracle, lane| oracle.lane(&format!("shop/{lane}"), &steps));
    oracle.check().await;
}
