//! Tests `relaybook check` for endpoints: a URL in a Secret, and addresses that the egress policy refuses.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::support::relaybook::command;
use crate::support::{Fault, Proxy, Receiver, World};

#[tokio::test]
async fn endpoints_to_which_nothing_can_be_sent_are_warnings_without_secrets() {
    let mut world = World::new("checked").await;
    let receiver = Receiver::start();
    world.secret("slack", json!({"url": "\"https://hooks.example.com/sesame\""})).await;
    let from = json!({"endpoint": {"url": null, "urlFrom": {"secretKeyRef": {"name": "slack", "key": "url"}}}});
    world.notification("chat", &receiver, from).await;
    world.notification("plain", &receiver, json!({})).await;
    let args = ["check", "--controller-namespace", "checked", "--watch-namespace", "checked"];
    let check = async |world: &World| {
        let output = command(world, &args).await;
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!text.contains("sesame"), "{text}");
        text
    };
    let quoted = "WARN    Notification checked/chat: nothing can be sent to its endpoint: Secret checked/slack, key url: is not a URL: \
                  remove the quotation marks\n  do    correct the value of the key in the Secret; Relaybook detects it\n";
    let plain =
        "WARN    Notification checked/plain: nothing can be sent to its endpoint: http is allowed only to a cluster-local";

    // Without a published policy, only the form of the URL is checked.
    let text = check(&world).await;
    assert!(text.contains(quoted) && !text.contains(plain), "{text}");
    assert!(text.contains("ok      egress policy of endpoints: not checked, ConfigMap relaybook-info not found"), "{text}");

    let settings = format!(
        "version: {}\nwatchNamespaces: []\nclusterName: in-cluster\nconfigMap: relaybook-config\nallowHttp: false\n\
         allowDestinations: []\ndenyDestinations: []\n",
        env!("CARGO_PKG_VERSION")
    );
    world.create::<ConfigMap>(json!({"metadata": {"name": "relaybook-info"}, "data": {"dispatch.yaml": settings}})).await;
    let text = check(&world).await;
    assert!(text.contains(quoted) && text.contains(plain), "{text}");

    let proxy = Proxy::start(&world.kubeconfig, "checked").await;
    proxy.rule(|call| call.concerns("secrets"), Fault::Refuse(403));
    world.kubeconfig.clone_from(&proxy.kubeconfig);
    let text = check(&world).await;
    assert!(text.contains("ok      URLs in 1 of 1 Secrets: not checked, the test refuses it\n"), "{text}");
    assert!(!text.contains("checked/chat") && text.contains(plain), "{text}");
}
