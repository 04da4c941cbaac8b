//! Tests `relaybook explain`: the effective notification of each target, and the layer that set each field.

use k8s_openapi::api::core::v1::ConfigMap;
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use crate::support::relaybook::command;
use crate::support::{Fault, Proxy, Receiver, Relaybook, World, eventually};

#[tokio::test]
async fn explain_shows_each_field_with_its_layer() {
    let world = World::new("explained").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web", "prod/web"]).await;
    let over = json!({"endpoint": {"headers": {"X-Api-Key": "literal"}, "auth": {"token": {"secretKeyRef": {"name": "a", "key": "b"}}}}});
    world.notification("hook", &receiver, over).await;
    let layers = json!({"spec": {"notifications": [{"name": "hook", "endpoint": {"timeout": "7s"}}]}});
    world.patch::<Pipeline>("shop", layers).await;
    let ns = world.ns.as_str();
    let explain = |more: &'static [&'static str]| {
        let args = [&["explain", "pipeline.relaybook.dev/shop", "-n", ns, "--allow-http"][..], more].concat();
        let world = &world;
        async move { command(world, &args).await }
    };

    let shown = explain(&["notification/hook", "--target", "prod/in-cluster/explained/web"]).await;
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let line = |word: &str| text.lines().find(|line| line.trim_start().starts_with(word)).unwrap_or_default().to_owned();
    assert!(line("timeout:").contains("\"7s\"") && line("timeout:").ends_with("# Pipeline explained/shop"), "{text}");
    assert!(line("url:").ends_with("# Notification explained/hook"), "{text}");
    assert!(line("connectTimeout:").ends_with("# default"), "{text}");
    assert!(!text.contains("literal"), "{text}");

    let shown: Value = serde_json::from_slice(&explain(&["-o", "json"]).await.stdout).unwrap();
    let all = shown.as_array().unwrap();
    assert_eq!(all.len(), 1, "all targets have the same layers: {shown}");
    let targets = all[0]["targets"].as_array().unwrap();
    for target in ["dev/in-cluster/explained/web", "prod/in-cluster/explained/web"] {
        assert!(targets.contains(&json!(target)), "{targets:?}");
    }
    assert_eq!(all[0]["fields"]["/endpoint/timeout"], "Pipeline explained/shop");
    assert!(all[0].get("problem").is_none(), "{shown}");

    // For a target without an application object, that is shown next to its effective notification.
    let spec =
        json!({"spec": {"environments": [{"name": "dev", "targets": [{"namespace": ns, "appRef": {"name": "wbe"}}]}]}});
    world.patch::<Pipeline>("shop", spec).await;
    let _relaybook = Relaybook::start(&world).await;
    world.pipeline_condition("shop", "Ready", |c| c.reason == "TargetNotFound").await;
    let text = String::from_utf8(explain(&["hook"]).await.stdout).unwrap();
    let words = "# dev/in-cluster/explained/wbe: TargetNotFound: Deployment wbe does not exist in namespace explained";
    assert!(text.lines().any(|line| line.starts_with(words)), "{text}");
    let shown: Value = serde_json::from_slice(&explain(&["-o", "json"]).await.stdout).unwrap();
    assert_eq!(shown[0]["unobserved"]["dev/in-cluster/explained/wbe"]["reason"], "TargetNotFound");

    for (args, words) in [
        (&["hook", "--target", "test/in-cluster/explained/web"][..], "has no target"),
        (&["other"][..], "no notification other applies"),
    ] {
        let failed = explain(args).await;
        let told = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(failed.status.code() == Some(1) && told.contains(words), "{told}");
    }
}

const GLOBAL: &str = "
defaults: {endpoint: {connectTimeout: 3s}}
notifications:
- name: audit
  namespaces: [explained-t*]
  triggers: [{type: Deployed}]
  endpoint: {url: https://audit.example.com/in}
  template: {builtin: cloudevents}
- name: elsewhere
  namespaces: [prod]
";

#[tokio::test]
async fn explain_shows_the_global_configuration_if_it_can_be_read() {
    let platform = World::new("explained-global").await;
    let mut world = World::new("explained-team").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &Receiver::start(), json!({})).await;
    let explain = async |world: &World, more: &[&str]| {
        let args = ["explain", "shop", "-n", "explained-team", "--allow-http", "--controller-namespace", "explained-global"];
        let shown = command(world, &[&args[..], more].concat()).await;
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        let all: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        let said = String::from_utf8(shown.stderr).expect("text");
        // No controller runs in that namespace, so its configuration is unknown.
        let unknown = "relaybook: the configuration of the controller is unknown: ";
        let idle = "relaybook: No controller acts: ";
        let is_rest = |line: &&str| !line.starts_with(unknown) && !line.starts_with(idle);
        let rest = said.split_inclusive('\n').filter(is_rest).collect::<String>();
        assert!(said.len() > rest.len(), "{said}");
        (all, rest)
    };
    let names = |all: &Value| -> Vec<String> {
        all.as_array().unwrap().iter().map(|one| one["notification"].as_str().unwrap().to_owned()).collect()
    };

    let (all, said) = explain(&world, &["-o", "json"]).await;
    assert_eq!((names(&all), said.as_str()), (vec!["hook".to_owned()], ""), "a missing ConfigMap counts as empty");

    let data = json!({"metadata": {"name": "relaybook-config"}, "data": {"config.yaml": GLOBAL}});
    platform.create::<ConfigMap>(data).await;
    let (all, said) = explain(&world, &["-o", "json"]).await;
    assert_eq!((names(&all), said.as_str()), (vec!["audit".to_owned(), "hook".to_owned()], ""));
    assert_eq!(all[0]["fields"]["/endpoint/url"], "ConfigMap explained-global/relaybook-config, notification audit");
    assert_eq!(all[0]["fields"]["/template/parameters/type"], "default");
    assert_eq!(all[0]["spec"]["template"]["parameters"]["type"], "dev.relaybook.{{lower type}}");
    for one in all.as_array().unwrap() {
        assert_eq!(one["fields"]["/endpoint/connectTimeout"], "ConfigMap explained-global/relaybook-config, defaults");
        assert!(one.get("problem").is_none(), "{one}");
    }
    let (all, _) = explain(&world, &["-o", "json", "--config-map", "another"]).await;
    assert_eq!(names(&all), ["hook"]);

    let wrong = json!({"data": {"config.yaml": "defualts: {}\n"}});
    platform.patch::<ConfigMap>("relaybook-config", wrong).await;
    let (all, said) = explain(&world, &["-o", "json"]).await;
    assert_eq!(names(&all), ["hook"]);
    assert!(
        said.contains("config.yaml: line 1, column 1: defualts")
            && said.contains("the controller keeps the last valid version"),
        "{said}"
    );

    let proxy = Proxy::start(&world.kubeconfig, "explained-team").await;
    proxy.rule(|call| call.concerns("configmaps"), Fault::Refuse(403));
    world.kubeconfig.clone_from(&proxy.kubeconfig);
    let (all, said) = explain(&world, &["-o", "json"]).await;
    assert_eq!(names(&all), ["hook"]);
    assert!(said.contains("ConfigMap explained-global/relaybook-config: no permission to read it; grant get on configmaps in explained-global"), "{said}");
}

#[tokio::test]
async fn a_controller_that_is_gone_is_reported_by_check_and_by_explain() {
    let world = World::new("explained-gone").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.notification("hook", &receiver, json!({})).await;
    world.pipeline("shop", &["dev/web"]).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let explain = ["explain", "shop", "--controller-namespace", &world.ns];
    eventually("the controllers act", async || {
        let (_, checked, _) = world.command(&["check"]).await;
        let (code, _, warned) = world.command(&explain).await;
        let acts = format!("ok      controllers that act in namespace {}\n", world.ns);
        let is_well = checked.contains(&acts) && code == Some(0) && !warned.contains("No controller acts");
        if is_well { Ok(()) } else { Err(format!("{checked}\n{warned}")) }
    })
    .await;

    relaybook.stop().await;
    let held = "No controller acts: Lease relaybook-pipeline has no holder, Lease relaybook-dispatch has no holder";
    let words = format!("{held}. Nothing is observed or sent until one does. To see more: kubectl get leases,pods");
    let (code, checked, _) = world.command(&["check"]).await;
    let failed = format!(
        "FAILED  controllers that act in namespace {}: {held}, Lease relaybook-promote has no holder. Nothing is observed, sent \
         or promoted until one does.",
        world.ns
    );
    assert!(code == Some(1) && checked.contains(&failed), "{checked}");
    let (code, shown, warned) = world.command(&explain).await;
    assert!(code == Some(0) && shown.contains("hook") && warned.contains(&words), "{warned}");
}
