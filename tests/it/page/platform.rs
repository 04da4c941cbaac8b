//! What the page shows of the global configuration: deliveries that are recorded in the namespace of the controllers, and layers that apply to
//! a whole environment.

use kube::ResourceExt as _;
use relaybook_api::{Delivery, Outcome, Pipeline};
use serde_json::json;

use super::person::{OwnPage, ask, token};
use crate::global_config::{Stage, everywhere};
use crate::support::own_page;
use crate::support::relaybook::Options;
use crate::support::{Receiver, Relaybook, Reply, eventually};

fn is(outcome: Outcome) -> impl Fn(&Delivery) -> bool {
    move |d| d.status.as_ref().and_then(|status| status.outcome) == Some(outcome)
}

/// The URL of `chat` is in the defaults, and `records` is cluster-wide and refused by its receiver. So all deliveries are recorded in the
/// namespace of the controllers.
async fn refused(ns: &str, receiver: &Receiver) -> Stage {
    let stage = Stage::new(ns).await;
    receiver.always("/records/web", Reply::status(400));
    let defaults = json!({"endpoint": {"url": receiver.url("/chat/{{type}}")}});
    stage.configure(&json!({"defaults": defaults, "notifications": [everywhere("records", receiver, json!({}))]})).await;
    let body = r#"{"text": "{{type}} {{environment}} {{revision}}"}"#;
    let spec = json!({
        "triggers": [{"type": "Deployed"}, {"type": "EnvironmentReady"}],
        "template": {"inline": {"body": body}},
    });
    stage.team.create::<relaybook_api::Notification>(json!({"metadata": {"name": "chat"}, "spec": spec})).await;
    stage.team.pipeline("shop", &["dev/web", "prod/api"]).await;
    let header = |value: &str| json!([{"name": "chat", "endpoint": {"headers": {"X-Layer": value}}}]);
    let mut environments = serde_json::to_value(stage.team.get_pipeline("shop").await.spec.environments).unwrap();
    for environment in environments.as_array_mut().unwrap() {
        environment["notifications"] = header(environment["name"].as_str().unwrap());
    }
    stage.team.patch::<Pipeline>("shop", json!({"spec": {"environments": environments}})).await;
    stage
}

#[tokio::test]
async fn deliveries_that_are_recorded_elsewhere_are_on_every_screen_of_their_team() {
    let receiver = Receiver::start();
    let stage = refused("page-platform", &receiver).await;
    let (team, home) = (&stage.team.ns, &stage.system.ns);
    let _relaybook = stage.start().await;
    stage.ship("2").await;
    let parked = stage.team.delivery("Deployed 2", |d| d.spec.notification == "records" && is(Outcome::Parked)(d)).await;
    let sent = stage.team.delivery("Deployed 2", |d| d.spec.notification == "chat" && is(Outcome::Delivered)(d)).await;
    assert_eq!((parked.namespace().as_ref(), sent.namespace().as_ref()), (Some(home), Some(home)));
    let page = OwnPage::start(&stage.system.kubeconfig, &["--controller-namespace", home]).await;
    let link = format!("/deliveries/{home}/{}", parked.name_any());
    for path in [
        format!("/pipelines/{team}/shop"),
        format!("/notifications/{team}/records"),
        format!("/parked?namespace={team}"),
        format!("/search?q=2&namespace={team}"),
    ] {
        let seen = page.get(&path).await;
        assert!(seen.status == 200 && seen.body.contains(&link), "{path}: {}", seen.body);
    }
    let seen = page.get(&format!("/pipelines/{team}/shop")).await.body;
    let command = format!("relaybook audit -n {home} -l relaybook.dev/pipeline-namespace={team} --pipeline shop");
    assert!(seen.contains(&command) && seen.contains(&format!("href=\"/notifications/{team}/chat\"")), "{seen}");
    let seen = page.get(&format!("/notifications/{team}/chat")).await.body;
    assert!(seen.contains(&format!("/deliveries/{home}/{}", sent.name_any())), "{seen}");
    let seen = page.get(&format!("/notifications/{team}/records")).await.body;
    assert!(seen.contains("verdict bad") && seen.contains("Parked: 1."), "{seen}");
    // No Notification object counts it, and the overview does not say that nothing is wrong.
    for path in ["/".to_owned(), format!("/?namespace={team}")] {
        let seen = page.get(&path).await.body;
        assert!(seen.contains("Cluster-wide") && !seen.contains("Nothing is wrong"), "{path}: {seen}");
    }
    // Somebody who may only read the namespace of the team sees that something is missing.
    let token = token(&stage.team, "member", &["get", "list", "watch"]).await;
    let args = vec!["--page-addr=127.0.0.1:0".to_owned()];
    let serving = Relaybook::with(&stage.system, Options { args, pod: Some("page"), ..Options::of(&stage.system) }).await;
    let url = super::person::url(serving.page_address().await, &format!("/pipelines/{team}/shop"));
    let seen = ask(&url, &[("authorization", &format!("Bearer {token}"))], None).await.body;
    assert!(seen.contains(&format!("The deliveries that are recorded in {home} are left out, too")), "{seen}");
    assert!(!seen.contains(&link), "{seen}");
}

#[tokio::test]
async fn the_request_of_a_delivery_about_an_environment_has_the_layers_of_the_environment() {
    let receiver = Receiver::start();
    let stage = refused("page-layers", &receiver).await;
    let _relaybook = stage.start().await;
    stage.ship("2").await;
    let ready =
        stage.team.delivery("EnvironmentReady 2", |d| d.spec.subject.name == "prod" && is(Outcome::Delivered)(d)).await;
    let page = OwnPage::start(&stage.system.kubeconfig, &["--controller-namespace", &stage.system.ns]).await;
    let path = format!("/deliveries/{}/{}", stage.system.ns, ready.name_any());
    let seen = page.get(&path).await.body;
    assert!(seen.contains("x-layer: prod") && !seen.contains("x-layer: dev"), "{seen}");
    let sent = receiver.to("/chat/EnvironmentReady");
    let layers: Vec<_> = sent.iter().map(|request| request.header("x-layer").to_owned()).collect();
    assert!(layers.contains(&"prod".to_owned()), "{layers:?}");
}

#[tokio::test]
async fn commands_for_another_context_name_it() {
    let stage = Stage::new("page-flags").await;
    let page = own_page::OwnPage::start(&stage.system.kubeconfig, &["--as", "system:admin", "--as-group", "system:masters"]);
    let cookie = page.enter().await;
    let seen = eventually("the overview", async || {
        let seen = ask(&format!("{}/", page.origin()), &[("cookie", &cookie)], None).await;
        if seen.status == 200 { Ok(seen.body) } else { Err(seen.body) }
    })
    .await;
    assert!(seen.contains("need these flags: <code>--as system:admin --as-group system:masters</code>"), "{seen}");
    // The header and the title name the cluster and the server.
    assert!(seen.matches(" · 127.0.0.1:").count() >= 2 && seen.contains("class=\"place\""), "{seen}");
}
