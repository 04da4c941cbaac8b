//! `relaybook render` shows exactly the request that Relaybook sends, without the credentials.

use k8s_openapi::api::core::v1::ConfigMap;
use relaybook_api::Pipeline;
use relaybook_api::notification::Builtin;
use serde_json::{Value, json};

use crate::support::relaybook::{Options, command};
use crate::support::{Receiver, Relaybook, World, eventually};

fn stdout(output: &std::process::Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test]
async fn render_of_a_live_pipeline_shows_what_is_sent() {
    let world = World::new("shown").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.secret("hook", json!({"token": "s3cr3t-t0ken"})).await;
    let over = json!({"endpoint": {"auth": {"token": {"secretKeyRef": {"name": "hook", "key": "token"}}}}});
    let body = r#"{"revision": "{{revision}}", "target": "{{target.name}}", "type": "{{type}}", "status": "{{status}}"}"#;
    world.notification("hook", &receiver, over).await;
    world.patch::<relaybook_api::Notification>("hook", json!({"spec": {"template": {"inline": {"body": body}}}})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.ship("web", "2").await;
    let sent = receiver.wait("/hook/web", 1).await;

    let ns = world.ns.as_str();
    let target = "dev/in-cluster/shown/web";
    let live = ["render", "rbn/hook", "-n", ns, "--pipeline", "rbp/shop", "--target", target, "--allow-http"];
    let shown = command(&world, &[&live[..], &["--trigger", "deployed", "-o", "json"]].concat()).await;
    let shown = stdout(&shown);
    assert_eq!((shown[0]["trigger"].as_str(), shown[0]["method"].as_str()), (Some("Deployed"), Some("POST")));
    assert_eq!(shown[0]["url"], receiver.url("/hook/web"));
    assert_eq!(shown[0]["body"].as_str().unwrap().as_bytes(), sent[0].body);
    assert_eq!(shown[0]["headers"]["authorization"], "Bearer ***");

    // `--send-to` sends to another receiver, without credentials.
    let own = Receiver::start();
    let to = own.url("/mine?a=b");
    let posted = command(&world, &[&live[..], &["--trigger", "Failed", "--send-to", &to]].concat()).await;
    let (words, text) = (String::from_utf8_lossy(&posted.stderr), String::from_utf8_lossy(&posted.stdout));
    assert!(posted.status.success() && words.contains("200 after"), "{words}");
    assert!(words.contains("not sent, because they can be credentials: authorization"), "{words}");
    assert!(text.contains("POST ") && !text.contains("s3cr3t-t0ken"), "{text}");
    let mine = &own.to("/mine?a=b")[0];
    assert_eq!((mine.json()["type"].as_str(), mine.json()["revision"].as_str()), (Some("Failed"), Some("2")));
    assert!(!mine.headers.contains_key("authorization"), "{:?}", mine.headers);
    assert_eq!(receiver.to("/hook/web").len(), 1, "render sends nothing to the receiver of the notification");
}

#[tokio::test]
async fn render_with_the_global_configuration_shows_what_is_sent() {
    let (platform, team) = (World::new("shown-global").await, World::new("shown-team").await);
    let receiver = Receiver::start();
    team.deploy("web", "1").await;
    team.pipeline("shop", &["dev/web"]).await;
    let layers =
        json!({"spec": {"notifications": [{"name": "audit", "endpoint": {"headers": {"X-Team": "{{target.namespace}}"}}}]}});
    team.patch::<Pipeline>("shop", layers).await;
    // The template is in the namespace of the global configuration.
    let body = r#"{"of": "{{notification.namespace}}", "revision": "{{revision}}", "target": "{{target.name}}"}"#;
    platform.create::<ConfigMap>(json!({"metadata": {"name": "texts"}, "data": {"body": body}})).await;
    let global = format!(
        "defaults: {{template: {{configMapKeyRef: {{name: texts, key: body, contentType: application/json}}}}}}\n\
         notifications: [{{name: audit, triggers: [{{type: Deployed}}], endpoint: {{url: \"{}\"}}}}]\n",
        receiver.url("/audit/{{target.app.name}}")
    );
    platform.create::<ConfigMap>(json!({"metadata": {"name": "relaybook-config"}, "data": {"config.yaml": global}})).await;
    let _relaybook = Relaybook::with(&platform, Options { watch: vec![team.ns.clone()], ..Options::of(&platform) }).await;
    team.settled().await;
    eventually("the cursor of audit", async || {
        let dispatched = team.get_pipeline("shop").await.status.unwrap_or_default().dispatched.unwrap_or_default();
        let begun = dispatched.cursors.iter().any(|cursor| cursor.notification == "audit");
        begun.then_some(()).ok_or_else(|| format!("{:?}", dispatched.cursors))
    })
    .await;
    team.ship("web", "2").await;
    let sent = receiver.wait("/audit/web", 1).await;

    let of = ["render", "audit", "-n", "shown-team", "--controller-namespace", "shown-global", "--allow-http", "-o", "json"];
    let pipeline = ["--pipeline", "shop", "--target", "dev/in-cluster/shown-team/web"];
    let shown = stdout(&command(&team, &[&of[..], &pipeline].concat()).await);
    assert_eq!((shown.as_array().map(Vec::len), shown[0]["trigger"].as_str()), (Some(1), Some("Deployed")));
    assert_eq!(shown[0]["url"], receiver.url("/audit/web"));
    assert_eq!(shown[0]["body"].as_str().unwrap().as_bytes(), sent[0].body);
    assert_eq!((shown[0]["headers"]["x-team"].as_str(), sent[0].header("x-team")), (Some("shown-team"), "shown-team"));

    // A cluster-wide notification can only be rendered for a pipeline.
    let alone = command(&team, &of).await;
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(alone.status.code() == Some(1) && said.contains("--pipeline"), "{said}");
}

#[tokio::test]
async fn render_reports_missing_objects() {
    let world = World::new("not-shown").await;
    let receiver = Receiver::start();
    world.notification("hook", &receiver, json!({})).await;
    let ns = world.ns.as_str();
    for (args, words) in [
        (&["render", "other", "-n", ns][..], &["Notification not-shown/other", "not found"][..]),
        (&["render", "hook", "-n", ns, "--pipeline", "shop", "--allow-http"], &["Pipeline not-shown/shop", "not found"]),
        (&["render", "hook", "-n", ns], &["spec.endpoint.url", "--allow-http"]),
        (&["render", "-f", "/does/not/exist.yaml"], &["/does/not/exist.yaml", "cannot be read"]),
        (&["templates", "show", "slak"], &["slak", "slack"]),
    ] {
        let output = command(&world, args).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = if words.contains(&"not found") { 5 } else { 1 };
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(code), true), "{args:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn render_works_with_files_only() {
    let world = World::new("from-files").await;
    let folder = crate::support::tmp().join("from-files");
    std::fs::create_dir_all(&folder).unwrap();
    let (notification, texts) = (folder.join("notification.yaml"), folder.join("texts.yaml"));
    std::fs::write(
        &notification,
        "{apiVersion: relaybook.dev/v1alpha1, kind: Notification, metadata: {name: deploys}, spec: {triggers: [{type: Failed}], \
         endpoint: {url: 'https://example.com/{{environment}}'}, template: {configMapKeyRef: {name: texts, key: body}}}}",
    )
    .unwrap();
    std::fs::write(
        &texts,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: texts}, data: {body: '{\"a\": \"{{type}}\"}'}}",
    )
    .unwrap();
    let (notification, texts) = (notification.to_str().unwrap(), texts.to_str().unwrap());
    let text = command(&world, &["render", "-f", notification, "-f", texts]).await;
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("# deploys: Failed\nPOST https://example.com/prod\n"), "{text}");
    assert!(text.ends_with("\n\n{\n  \"a\": \"Failed\"\n}\n"), "{text}");
    let json =
        stdout(&command(&world, &["render", "-f", notification, "-f", texts, "--trigger", "Removed", "-o", "json"]).await);
    assert_eq!((json[0]["trigger"].as_str(), json[0]["body"].as_str()), (Some("Removed"), Some(r#"{"a": "Removed"}"#)));

    let answer = folder.join("answer.txt");
    std::fs::write(&answer, "HTTP/2 503\n\nbusy").unwrap();
    let answer = answer.to_str().unwrap();
    let judged = command(&world, &["render", "-f", notification, "-f", texts, "--answer", answer]).await;
    let judged = String::from_utf8(judged.stdout).unwrap();
    assert!(judged.ends_with("\n\nanswer: 503 Service Unavailable: retried, ReceiverError\n"), "{judged}");

    let alone = command(&world, &["render", "-f", notification]).await;
    let said = String::from_utf8(alone.stderr).unwrap();
    assert!(alone.status.code() == Some(1) && said.contains("ConfigMap default/texts is not among the files"), "{said}");
    let listed = command(&world, &["templates"]).await;
    let lines = String::from_utf8(listed.stdout).unwrap().lines().count();
    assert_eq!(lines, 1 + Builtin::ALL.len(), "a header, and one line for each template");
}
