//! `pennant explain`: what holds for a target, and who said so.

use pennant::api::Pipeline;
use serde_json::{Value, json};

use crate::support::pennant::command;
use crate::support::{Receiver, World};

#[tokio::test]
async fn each_field_is_told_with_its_layer() {
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
        let args = [&["explain", "shop", "-n", ns, "--allow-http"][..], more].concat();
        let world = &world;
        async move { command(world, &args).await }
    };

    let shown = explain(&["hook", "--target", "prod/in-cluster/explained/web"]).await;
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

    for (args, words) in [
        (&["hook", "--target", "test/in-cluster/explained/web"][..], "has no target"),
        (&["other"][..], "no notification other applies"),
    ] {
        let failed = explain(args).await;
        let told = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(failed.status.code() == Some(1) && told.contains(words), "{told}");
    }
}
