//! Relaybook works with the permissions of the chart: none of its calls is rejected. A rejected call would be noticed.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{kubeconfig, render};
use crate::support::relaybook::Options;
use crate::support::world::BODY;
use crate::support::{Proxy, Receiver, Relaybook, Reply, World, eventually};

/// The namespace of the release, and the namespace of a team.
struct Stage {
    own: World,
    team: World,
    receiver: Receiver,
}

impl Stage {
    async fn new(name: &str) -> Self {
        let own = World::on(kubeconfig(), &format!("{name}-own")).await;
        let team = World::beside(name, &own).await;
        let receiver = Receiver::start();
        team.deploy("web", "1").await;
        team.pipeline("shop", &["dev/web"]).await;
        team.secret("token", json!({"key": "open sesame"})).await;
        let auth = json!({"token": {"secretKeyRef": {"name": "token", "key": "key"}}});
        team.create::<ConfigMap>(json!({"metadata": {"name": "texts"}, "data": {"body": BODY}})).await;
        let from = json!({"name": "texts", "key": "body", "contentType": "application/json"});
        let template = json!({"inline": null, "configMapKeyRef": from});
        team.notification("hook", &receiver, json!({"endpoint": {"auth": auth}, "template": template})).await;
        own.secret("hmac", json!({"key": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})).await;
        let everywhere = json!({"notifications": [{
            "name": "audit",
            "triggers": [{"type": "Deployed"}],
            "endpoint": {
                "url": receiver.url("/audit/{{target.app.name}}"),
                "auth": {"token": {"secretKeyRef": {"name": "hmac", "key": "key"}}},
            },
            "template": {"inline": {"body": BODY}},
        }]});
        let data = json!({"config.yaml": everywhere.to_string()});
        own.create::<ConfigMap>(json!({"metadata": {"name": "relaybook-config"}, "data": data})).await;
        Self { own, team, receiver }
    }

    /// Starts Relaybook with the permissions of these values. The proxy shows which calls the API server rejects.
    async fn under(&self, values: &Value, watch: &[&World]) -> (Relaybook, Proxy) {
        Self::at(&self.own, Options::of(&self.own).controllers, values, watch).await
    }

    /// Does the same for these controllers, with `home` as their own namespace. All releases have the same name.
    async fn at(home: &World, controllers: &'static str, values: &Value, watch: &[&World]) -> (Relaybook, Proxy) {
        let release = render("relaybook", &home.ns, values);
        let account = release.as_its_account(kubeconfig()).await;
        let proxy = Proxy::start(&account, &home.ns).await;
        let watch = watch.iter().map(|world| world.ns.clone()).collect();
        let options = Options { watch, controllers, kubeconfig: Some(proxy.kubeconfig.clone()), ..Options::of(home) };
        (Relaybook::with(home, options).await, proxy)
    }

    /// Waits until both notifications have their cursor.
    async fn begun(&self) {
        let team = &self.team;
        team.settled().await;
        eventually("the cluster-wide notification has its cursor", async || {
            let dispatched = team.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
            let found = dispatched.cursors.iter().any(|cursor| cursor.notification == "audit");
            found.then_some(()).ok_or_else(|| format!("{:?}", dispatched.cursors))
        })
        .await;
    }

    /// Runs the two controllers as two releases, each in its own namespace.
    async fn lives_apart(&self) {
        let Self { own, team, receiver } = self;
        let beside = World::beside("lives-apart-observer", own).await;
        let values = |controllers: &str| json!({"watchNamespaces": [team.ns], "controllers": [controllers]});
        let (mut sender, of_sender) = Self::at(own, "dispatch", &values("dispatch"), &[team]).await;
        let (mut observer, of_observer) = Self::at(&beside, "pipeline", &values("pipeline"), &[team]).await;
        self.begun().await;
        team.ship("web", "2").await;
        team.fence("shop", &["hook", "audit"]).await;
        receiver.wait("/hook/web", 1).await;
        receiver.wait("/audit/web", 1).await;
        for (home, lease) in [(own, "relaybook-dispatch"), (&beside, "relaybook-pipeline")] {
            let all = home.api::<Lease>().list(&ListParams::default()).await.expect("listed");
            assert_eq!(all.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [lease]);
            let key = format!("{}.yaml", lease.trim_start_matches("relaybook-"));
            assert_eq!(published(home).await, [key]);
        }
        observer.stop().await;
        sender.stop().await;
        assert_eq!([of_observer.forbidden(), of_sender.forbidden()].concat(), [""; 0]);
    }

    /// Exercises each kind of call: deliveries that succeed and one that is parked, a Warning, the copy of the configuration, and a
    /// restart.
    async fn lives(&self, values: &Value, watch: &[&World]) {
        let Self { own, team, receiver } = self;
        receiver.script("/hook/web", [Reply::status(400)]);
        let (mut relaybook, proxy) = self.under(values, watch).await;
        self.begun().await;
        team.ship("web", "2").await;
        receiver.wait("/hook/web", 1).await;
        receiver.wait("/audit/web", 1).await;
        team.warning("hook", "DeliveryParked").await;
        relaybook.restart().await;
        team.ship("web", "3").await;
        receiver.wait("/hook/web", 2).await;
        receiver.wait("/audit/web", 2).await;
        team.fence("shop", &["hook", "audit"]).await;
        assert!(receiver.to("/hook/web").iter().all(|request| request.header("authorization") == "Bearer open sesame"));
        eventually("the last good configuration is kept", async || {
            let copy = own.api::<ConfigMap>().get_opt("relaybook-config-last-good").await.map_err(|e| e.to_string())?;
            copy.map(drop).ok_or_else(|| "there is none".to_owned())
        })
        .await;
        assert_eq!(published(own).await, ["dispatch.yaml", "pipeline.yaml"]);
        for lease in ["relaybook-pipeline", "relaybook-dispatch", "relaybook-promote"] {
            own.api::<Lease>().get(lease).await.expect("the Lease");
        }
        relaybook.stop().await;
        assert_eq!(proxy.forbidden(), [""; 0]);
    }
}

/// Returns the keys of the published configuration, one for each controller.
async fn published(home: &World) -> Vec<String> {
    let info = home.api::<ConfigMap>().get("relaybook-info").await.expect("published");
    info.data.unwrap_or_default().into_keys().collect()
}

#[tokio::test]
async fn the_permissions_of_the_chart_are_enough() {
    // One after the other, because the first installation watches all namespaces.
    let stage = Stage::new("lives-cluster").await;
    stage.lives(&json!({}), &[]).await;

    let stage = Stage::new("lives-namespaced").await;
    stage.lives(&json!({"watchNamespaces": [stage.team.ns]}), &[&stage.team]).await;

    let stage = Stage::new("lives-listed").await;
    let secrets = json!([
        {"namespace": stage.team.ns, "names": ["token"]},
        {"namespace": stage.own.ns, "names": ["hmac"]},
    ]);
    let texts = json!([{"namespace": stage.team.ns, "names": ["texts"]}]);
    let rbac = json!({
        "secrets": {"access": "listed", "listed": secrets},
        "configMaps": {"access": "listed", "listed": texts},
    });
    stage.lives(&json!({"watchNamespaces": [stage.team.ns], "rbac": rbac}), &[&stage.team]).await;

    Stage::new("lives-apart").await.lives_apart().await;

    // A rejected call is noticed: with one permission less there is one.
    let stage = Stage::new("lives-without").await;
    let values = json!({"watchNamespaces": [stage.team.ns], "rbac": {"secrets": {"access": "none"}}});
    let (_relaybook, proxy) = stage.under(&values, &[&stage.team]).await;
    stage.team.condition("hook", "Ready", |c| c.reason == "SecretUnreadable").await;
    assert!(proxy.forbidden().iter().any(|call| call.contains("/secrets")), "{:?}", proxy.forbidden());
}
