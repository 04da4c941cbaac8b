//! Tests the fault proxy itself: calls fail as its rules say, and no others.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::support::{Fault, Proxy, World, control_plane};

#[tokio::test]
async fn the_fault_proxy_applies_its_rules() {
    let world = World::new("faults-proxy").await;
    let proxy = Proxy::start(&world.kubeconfig, "faults-proxy").await;
    let api: Api<ConfigMap> = Api::namespaced(control_plane::client(&proxy.kubeconfig).await, &world.ns);
    let create = async |name: &str| {
        let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        api.create(&PostParams::default(), &object).await
    };
    let exists = async |name: &str| world.api::<ConfigMap>().get_opt(name).await.unwrap().is_some();
    create("first").await.unwrap();

    let lost = proxy.rule(|call| call.method == "POST", Fault::Times(1, Box::new(Fault::LoseAnswer)));
    create("answer").await.unwrap_err();
    assert!(exists("answer").await, "only the answer was lost");
    create("then").await.unwrap();
    assert_eq!(proxy.hits(lost), 2);
    proxy.remove(lost);

    let lost = proxy.rule(|call| call.method == "POST", Fault::LoseRequest);
    create("request").await.unwrap_err();
    assert!(!exists("request").await);
    proxy.remove(lost);

    proxy.rule(|call| call.method == "POST", Fault::Refuse(403));
    let refused = create("refused").await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
    assert!(!exists("refused").await);

    proxy.cut();
    api.get("first").await.unwrap_err();
    proxy.freeze();
    tokio::time::timeout(std::time::Duration::from_millis(200), api.get("first")).await.unwrap_err();
    proxy.heal();
    api.get("first").await.unwrap();
}
