//! The Notifications of another namespace are layers of a pipeline, if both sides say so.

use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use relaybook_api::conditions::{DELIVERING, READY};
use relaybook_api::{Notification, Pipeline, PipelineSet};
use serde_json::{Value, json};

use super::{attempts, body, lay, reason, signed, template, told, trouble, troubles};
use crate::support::relaybook::Options;
use crate::support::world::apps::Kind;
use crate::support::world::{self};
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

/// Starts Relaybook for two namespaces.
async fn start(world: &World, other: &World, args: &[&str]) -> Relaybook {
    let watch = vec![world.ns.clone(), other.ns.clone()];
    let args = args.iter().map(ToString::to_string).collect();
    Relaybook::with(world, Options { watch, args, ..Options::of(world) }).await
}

/// Waits until the status of a Notification has this number of pipelines and this reason of `Ready`.
async fn is_layer_of(world: &World, name: &str, pipelines: i64, reason: &str) -> String {
    let holds = |condition: &relaybook_api::conditions::Condition| condition.reason == reason;
    let ready = world.condition(name, READY, holds).await;
    eventually(&format!("{name} is a layer of {pipelines} pipelines"), async || {
        let status = world.get_notification(name).await.status.unwrap_or_default();
        if status.pipelines == pipelines { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    ready.message
}

fn token(secret: &str) -> Value {
    json!({"token": {"secretKeyRef": {"name": secret, "key": "key"}}})
}

#[tokio::test]
async fn a_team_can_change_what_a_pipeline_of_the_platform_sends() {
    let platform = World::new("layers-platform").await;
    let team = World::on(&platform.kubeconfig, "layers-workspace").await;
    let (base, theirs) = (Receiver::start(), Receiver::start());
    platform.deploy("web", "1").await;
    platform.deploy("db", "1").await;
    platform.secret("platform", json!({"key": "platform"})).await;
    team.secret("team", json!({"key": "team"})).await;
    let by_platform = json!({"template": template("platform"), "endpoint": {"auth": token("platform")}});
    platform.notification("hook", &base, by_platform).await;
    let mut followed = world::pipeline(&platform.ns, "shop", Kind::Deployment, &["dev/web"]);
    followed["spec"]["layerNamespace"] = json!(team.ns);
    platform.create::<Pipeline>(followed).await;
    platform.pipeline("other", &["dev/db"]).await;
    // A notification of the team for its own pipelines. It does not name the namespace of the platform.
    let own = json!({"template": template("team")});
    let hook = team.notification("hook", &theirs, json!({"template": template("team")})).await;
    let mut relaybook = start(&platform, &team, &[]).await;
    for name in ["shop", "other"] {
        platform.observed(name).await;
        platform.cursor(name, "hook").await;
    }
    platform.ship("web", "2").await;
    base.wait("/hook/web", 1).await;
    assert_eq!(signed(&base, "/hook/web"), ["platform"]);

    // The Notification becomes a layer. It is no notification of the team any more, because it is not complete.
    let spec = json!([
        {"op": "add", "path": "/spec/pipelineNamespaces", "value": [platform.ns]},
        {"op": "remove", "path": "/spec/endpoint"}, {"op": "remove", "path": "/spec/triggers"},
        {"op": "replace", "path": "/spec/template", "value": own["template"]},
    ]);
    let patch = kube::api::Patch::Json::<()>(serde_json::from_value(spec).unwrap());
    team.api::<Notification>().patch("hook", &kube::api::PatchParams::default(), &patch).await.unwrap();
    is_layer_of(&team, "hook", 1, "Configured").await;
    platform.ship("web", "3").await;
    platform.ship("db", "2").await;
    base.wait("/hook/web", 2).await;
    base.wait("/hook/db", 1).await;
    assert_eq!(signed(&base, "/hook/web"), ["platform", "team"]);
    assert_eq!(signed(&base, "/hook/db"), ["platform"], "the other pipeline has no layer namespace");
    assert!(base.log().iter().all(|request| request.header("authorization") == "Bearer platform"));
    let (_, explained, _) = platform.command(&["explain", "shop", "hook", "--allow-http"]).await;
    let author = format!("Notification {}/hook", team.ns);
    assert!(explained.contains(&author), "{explained}");
    let (code, rendered, error) = platform.command(&["render", "hook", "--pipeline", "shop", "--allow-http"]).await;
    assert!(code == Some(0) && rendered.contains(r#""by": "team""#), "{rendered}{error}");

    // Another receiver gets no credentials of the platform. The team sees why on its own object.
    let elsewhere =
        |auth: Value| json!({"spec": {"endpoint": {"url": theirs.url("/hook/{{target.app.name}}"), "auth": auth}}});
    team.patch::<Notification>("hook", elsewhere(json!(null))).await;
    let said = trouble(&platform, "hook", None, "CredentialOriginMismatch").await;
    assert!(said.message.contains(&author), "{}", said.message);
    is_layer_of(&team, "hook", 1, "TargetsNotReady").await;
    platform.ship("web", "4").await;
    told(&platform, "hook", "web", "Deployed 4", |d| reason(d) == "CredentialOriginMismatch" && attempts(d) == 0).await;
    assert_eq!(theirs.connections(), 0);
    team.patch::<Notification>("hook", elsewhere(token("team"))).await;
    theirs.wait("/hook/web", 1).await;
    is_layer_of(&team, "hook", 1, "Configured").await;
    relaybook.kill9();
    platform.ship("web", "5").await;
    relaybook.start_again().await;
    theirs.wait("/hook/web", 2).await;
    assert!(theirs.log().iter().all(|request| request.header("authorization") == "Bearer team"));
    assert_eq!(signed(&theirs, "/hook/web"), ["team", "team"]);
    assert!(team.deliveries_in(&team.ns).await.is_empty(), "deliveries are in the namespace of the pipeline");

    // Without the Notification of the team, that of the platform applies again.
    team.api::<Notification>().delete(&hook.name_any(), &DeleteParams::default()).await.unwrap();
    platform.fence("shop", &["hook"]).await;
    platform.ship("web", "6").await;
    base.wait("/hook/web", 3).await;
    assert_eq!(signed(&base, "/hook/web"), ["platform", "team", "platform"]);
    let steps = ["2", "3", "4", "5", "6"].map(|tag| format!("Deployed {tag}"));
    let steps = steps.each_ref().map(String::as_str);
    let oracle = Oracle::new(&platform, &base).and(&theirs).after_a_crash().lane("shop/hook/dev/web", &steps);
    oracle.lane("other/hook/dev/db", &["Deployed 2"]).check().await;
}

#[tokio::test]
async fn nobody_uses_notifications_of_a_namespace_that_did_not_accept_it() {
    let stranger = World::new("layers-stranger").await;
    let victim = World::on(&stranger.kubeconfig, "layers-victim").await;
    let (base, theirs) = (Receiver::start(), Receiver::start());
    stranger.deploy("web", "1").await;
    victim.secret("token", json!({"key": "secret"})).await;
    stranger.notification("hook", &base, json!({"template": template("stranger")})).await;
    let complete = json!({
        "template": template("victim"), "endpoint": {"auth": token("token")}, "pipelineNamespaces": ["layers-platform-of-others"],
    });
    victim.notification("hook", &theirs, complete).await;
    let mut pipeline = world::pipeline(&stranger.ns, "shop", Kind::Deployment, &["dev/web"]);
    pipeline["spec"]["layerNamespace"] = json!(victim.ns);
    // A layer of the pipeline, so that its layers are compiled.
    lay(&mut pipeline, "dev", json!([{"name": "hook", "template": {"inline": {"body": body("environment")}}}]));
    stranger.create::<Pipeline>(pipeline).await;
    let relaybook = start(&stranger, &victim, &[]).await;
    stranger.observed("shop").await;
    stranger.cursor("shop", "hook").await;
    stranger.ship("web", "2").await;
    base.wait("/hook/web", 1).await;
    assert_eq!((signed(&base, "/hook/web"), theirs.connections()), (vec!["environment".to_owned()], 0));
    is_layer_of(&victim, "hook", 0, "NoPipeline").await;
    assert_eq!(troubles(&stranger).await, []);
    Oracle::new(&stranger, &base).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
    drop(relaybook);

    // An accepted layer that is over nothing has no effect, and says so.
    let accepted = json!({"spec": {"pipelineNamespaces": [stranger.ns], "endpoint": null, "triggers": null}});
    victim.patch::<Notification>("hook", accepted).await;
    victim
        .create::<Notification>(
            json!({"metadata": {"name": "alone"}, "spec": {"pipelineNamespaces": [stranger.ns], "suspend": true}}),
        )
        .await;
    let relaybook = start(&stranger, &victim, &["--no-cross-namespace-refs"]).await;
    let refused = |condition: &relaybook_api::conditions::Condition| condition.reason == "CrossNamespaceLayer";
    let refused = stranger.pipeline_condition("shop", READY, refused).await;
    assert!(refused.message.contains("layerNamespace layers-victim"), "{}", refused.message);
    is_layer_of(&victim, "hook", 0, "NoPipeline").await;
    drop(relaybook);

    let watch = vec![stranger.ns.clone()];
    let relaybook = Relaybook::with(&stranger, Options { watch, ..Options::of(&stranger) }).await;
    let unwatched = |condition: &relaybook_api::conditions::Condition| condition.reason == "NamespaceNotWatched";
    let unwatched = stranger.pipeline_condition("shop", READY, unwatched).await;
    assert!(unwatched.message.contains("--watch-namespace"), "{}", unwatched.message);
    drop(relaybook);

    let _relaybook = start(&stranger, &victim, &[]).await;
    is_layer_of(&victim, "hook", 1, "Configured").await;
    let message = is_layer_of(&victim, "alone", 0, "NoPipeline").await;
    assert!(message.contains(&stranger.ns) && message.contains("spec.layerNamespace"), "{message}");
    let condition = victim.condition("alone", DELIVERING, |condition| condition.reason == "Suspended").await;
    assert!(condition.message.contains("suspend"), "{}", condition.message);
    let dispatched = stranger.get_pipeline("shop").await.status.and_then(|status| status.dispatched).unwrap_or_default();
    let names: Vec<_> = dispatched.cursors.iter().map(|cursor| cursor.notification.as_str()).collect();
    assert_eq!(names, ["hook"], "a layer alone is no notification");
}

#[tokio::test]
async fn a_set_gives_each_pipeline_the_layer_namespace_of_its_source() {
    let platform = World::new("layers-set").await;
    let team = World::on(&platform.kubeconfig, "layers-set-team").await;
    let receiver = Receiver::start();
    team.deploy_with("web", "1", json!({"follow": "yes"})).await;
    platform.notification("hook", &receiver, json!({"template": template("platform")})).await;
    let layer = json!({"pipelineNamespaces": [platform.ns], "template": template("team")});
    team.create::<Notification>(json!({"metadata": {"name": "hook"}, "spec": layer})).await;
    let app = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    let mut objects = app.clone();
    json_patch::merge(&mut objects, &json!({"namespaces": ["*"], "selector": {"matchLabels": {"follow": "yes"}}}));
    let mut app_ref = app;
    app_ref["name"] = json!("{{name}}");
    let template = json!({
        "metadata": {"name": "{{namespace}}.{{name}}"},
        "spec": {
            "layerNamespace": "{{namespace}}", "appRef": app_ref,
            "environments": [{"name": "dev", "targets": [{"namespace": "{{namespace}}"}]}],
        },
    });
    let set = json!({"metadata": {"name": "all"}, "spec": {"generators": [{"objects": objects}], "template": template}});
    platform.create::<PipelineSet>(set).await;
    let _relaybook = start(&platform, &team, &[]).await;
    let name = format!("{}.web", team.ns);
    eventually("the pipeline", async || {
        let api: Api<Pipeline> = platform.api();
        let found = api.get_opt(&name).await.map_err(|e| e.to_string())?.ok_or("no pipeline")?;
        assert_eq!(found.spec.layer_namespace.as_deref(), Some(team.ns.as_str()));
        Ok(())
    })
    .await;
    platform.observed(&name).await;
    platform.cursor(&name, "hook").await;
    is_layer_of(&team, "hook", 1, "Configured").await;
    team.ship("web", "2").await;
    receiver.wait("/hook/web", 1).await;
    assert_eq!(signed(&receiver, "/hook/web"), ["team"]);
}
