//! Two teams, their pipelines, and receivers of which some do not answer as they should.
//!
//! The team `shop` has a storefront that runs well, a checkout whose rollout fails in production, a search that is being updated, and
//! recommendations that wait for an approval. The team `payments` has a ledger and invoices. Its receiver of audit lines refuses them.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use relaybook_api::{Notification, Pipeline};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::control_plane::ControlPlane;
use crate::support::receiver::Reply;
use crate::support::{Receiver, World, eventually};

/// The pause between two rollouts, so that the timeline has some width.
const PAUSE: Duration = Duration::from_millis(2500);

/// The namespaces with applications.
const PLACES: [&str; 7] =
    ["shop-dev", "shop-staging", "shop-prod", "shop-eu", "payments-dev", "payments-prod", "hostile-prod"];

/// The whole scenario.
pub struct Scenario {
    /// The namespace of Relaybook.
    pub system: World,
    /// The receivers, as a proxy for all names.
    pub receivers: Receiver,
    shop: World,
    payments: World,
    hostile: World,
    places: BTreeMap<&'static str, World>,
    _control_plane: ControlPlane,
}

/// Texts that would do something in a page that does not escape them.
const HOSTILE: &str =
    "</title><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'><svg onload=window.hacked=1>";

impl Scenario {
    /// Starts the control plane, and creates the namespaces with their applications.
    pub async fn begin() -> Self {
        let control_plane = tokio::task::spawn_blocking(ControlPlane::start).await.unwrap().expect("a control plane");
        let on = async |name: &str| World::on(&control_plane.kubeconfig, name).await;
        let (system, shop, payments) = (on("relaybook-system").await, on("shop").await, on("payments").await);
        let hostile = on("hostile").await;
        let mut places = BTreeMap::new();
        for name in PLACES {
            places.insert(name, on(name).await);
        }
        let receivers = Receiver::start();
        receivers.decide(|request| match request.path.as_str() {
            path if path.contains("chat.example.com") => {
                Reply::status(401).body("{\"ok\":false,\"error\":\"invalid_auth\"}").after(Duration::from_millis(35))
            }
            path if path.contains("records.example.com") => {
                Reply::status(400).body("{\"error\":\"field `environment` is not known\"}").after(Duration::from_millis(12))
            }
            path if path.contains("hostile.example.com") => Reply::status(400).body(HOSTILE),
            _ => Reply::status(201).body("{\"state\":\"created\"}").after(Duration::from_millis(20)),
        });
        Self { system, receivers, shop, payments, hostile, places, _control_plane: control_plane }
    }

    fn place(&self, name: &str) -> &World {
        &self.places[name]
    }

    /// Creates pipelines and notifications, and lets the applications change.
    pub async fn play(&self) {
        self.deploy().await;
        self.notify().await;
        self.follow().await;
        self.roll_out().await;
    }

    async fn deploy(&self) {
        for (place, apps) in [
            ("shop-dev", &["storefront", "checkout", "search", "recommendations"][..]),
            ("shop-staging", &["storefront", "checkout", "search"]),
            ("shop-prod", &["storefront", "checkout", "search", "recommendations"]),
            ("shop-eu", &["storefront"]),
            ("payments-dev", &["ledger", "invoices"]),
            ("payments-prod", &["ledger", "invoices"]),
            ("hostile-prod", &["web"]),
        ] {
            for app in apps {
                self.place(place).deploy(app, "2.3.0").await;
            }
        }
    }

    async fn notify(&self) {
        let slow = json!({"retry": {"initial": "20s", "max": "2m"}});
        let body = |text: &str| json!({"inline": {"body": format!("{{\"text\": \"{text}\"}}")}});
        let commit = json!([{"type": "Deployed"}, {"type": "Failed"}, {"type": "Progressing"}, {"type": "Recovered"}]);
        let status = body("{{pipeline.name}} {{revision}}: {{type}} in {{environment}}");
        for (world, name, spec) in [
            (
                &self.shop,
                "commit-status",
                json!({"triggers": commit, "endpoint": {"url": "http://git.example.com/api/v1/statuses"}, "template": status}),
            ),
            (
                &self.shop,
                "team-chat",
                json!({
                    "triggers": [{"type": "Failed"}, {"type": "Deployed", "environments": ["prod"]}],
                    "endpoint": {"url": "http://chat.example.com/hooks/shop", "headers": {"Authorization": "Bearer abcdefgh"}},
                    "template": body("{{pipeline.name}} {{revision}} {{type}}: {{message}}"), "delivery": slow,
                }),
            ),
            (
                &self.shop,
                "approvals",
                json!({
                    "triggers": [{"type": "PromotionPending"}], "endpoint": {"url": "http://git.example.com/api/v1/issues"},
                    "template": body("{{promotion.revision}} waits for {{environment}}"),
                }),
            ),
            (
                &self.payments,
                "commit-status",
                json!({"triggers": commit, "endpoint": {"url": "http://git.example.com/api/v1/statuses"}, "template": status}),
            ),
            (
                &self.payments,
                "records",
                json!({
                    "triggers": [{"type": "Deployed"}, {"type": "Failed"}], "endpoint": {"url": "http://records.example.com/v2/changes"},
                    "template": body("{{pipeline.name}} {{environment}} {{revision}}"),
                }),
            ),
            (
                &self.payments,
                "unused",
                json!({
                    "pipelineSelector": {"matchLabels": {"team": "nobody"}}, "triggers": [{"type": "Failed"}],
                    "endpoint": {"url": "http://pager.example.com/events"}, "template": body("{{message}}"),
                }),
            ),
        ] {
            world.create::<Notification>(json!({"metadata": {"name": name}, "spec": spec})).await;
        }
    }

    async fn follow(&self) {
        let text = std::fs::read_to_string(&self.system.kubeconfig).expect("a kubeconfig");
        self.shop.secret("eu-1", json!({"kubeconfig": text})).await;
        self.shop.secret("us-1", json!({"kubeconfig": elsewhere(&text)})).await;
        let environments = |names: &[(&str, &str)]| -> Value {
            names.iter().map(|(name, place)| json!({"name": name, "targets": [{"namespace": place}]})).collect()
        };
        let all = [("dev", "shop-dev"), ("staging", "shop-staging"), ("prod", "shop-prod")];
        let mut storefront = environments(&all);
        let eu = json!({"namespace": "shop-eu", "clusterRef": {"kind": "Secret", "name": "eu-1"}});
        storefront[2]["targets"].as_array_mut().unwrap().push(eu);
        let mut search = environments(&all);
        let us = json!({"namespace": "shop-prod", "clusterRef": {"kind": "Secret", "name": "us-1"}});
        search[2]["targets"].as_array_mut().unwrap().push(us);
        let mut recommendations = environments(&[("dev", "shop-dev"), ("prod", "shop-prod")]);
        recommendations[1]["promotion"] = json!({"manual": true, "strategy": {"notification": {}}});
        let both = [("dev", "payments-dev"), ("prod", "payments-prod")];
        for (world, name, app, environments) in [
            (&self.shop, "storefront", "storefront", storefront),
            (&self.shop, "checkout", "checkout", environments(&all)),
            (&self.shop, "search", "search", search),
            (&self.shop, "recommendations", "recommendations", recommendations),
            (&self.payments, "ledger", "ledger", environments(&both)),
            (&self.payments, "invoices", "invoices", environments(&both)),
        ] {
            let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": app});
            let labels = json!({"team": world.ns});
            let spec = json!({"appRef": app, "environments": environments});
            world.create::<Pipeline>(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).await;
            observed(world, name).await;
        }
    }

    async fn roll_out(&self) {
        let (dev, staging, prod) = (self.place("shop-dev"), self.place("shop-staging"), self.place("shop-prod"));
        for app in ["storefront", "checkout"] {
            dev.roll_out(app, "2.4.0").await;
        }
        sleep(PAUSE).await;
        for app in ["storefront", "checkout"] {
            dev.finish(app).await;
        }
        self.place("payments-dev").ship("ledger", "7.1.0").await;
        sleep(PAUSE).await;
        for app in ["storefront", "checkout"] {
            staging.roll_out(app, "2.4.0").await;
        }
        sleep(PAUSE).await;
        for app in ["storefront", "checkout"] {
            staging.finish(app).await;
        }
        self.place("payments-prod").ship("ledger", "7.1.0").await;
        dev.ship("recommendations", "1.9.0").await;
        sleep(PAUSE).await;
        for app in ["storefront", "checkout"] {
            prod.roll_out(app, "2.4.0").await;
        }
        self.place("shop-eu").ship("storefront", "2.4.0").await;
        sleep(PAUSE).await;
        prod.finish("storefront").await;
        prod.fail(
            "checkout",
            "ReplicaSet \"checkout-6d9f\" has timed out progressing: Back-off pulling image registry.example/app:2.4.0",
        )
        .await;
        dev.ship("search", "0.31.2").await;
        sleep(PAUSE).await;
        staging.roll_out("search", "0.31.2").await;
        self.place("payments-dev").ship("invoices", "3.0.1").await;
        self.place("payments-prod").ship("invoices", "3.0.1").await;
        sleep(PAUSE).await;
    }

    /// Returns objects whose texts would do something in a page that does not escape them. A test creates them.
    pub fn hostile(&self) -> Value {
        let template = json!({"inline": {"body": "{{message}} {{revision}}", "contentType": "text/plain"}});
        let spec = json!({"triggers": [{"type": "Failed"}], "endpoint": {"url": "http://hostile.example.com/echo"}, "template": template});
        let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let environments = json!([{"name": "prod", "targets": [{"namespace": "hostile-prod"}]}]);
        let version = "relaybook.dev/v1alpha1";
        let object = |kind: &str, name: &str, spec: Value| {
            let metadata = json!({"name": name, "namespace": self.hostile.ns, "annotations": {"example.com/note": HOSTILE}});
            json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
        };
        let items = [
            object("Notification", "echo", spec),
            object("Pipeline", "web", json!({"appRef": app, "environments": environments})),
        ];
        json!({"message": HOSTILE, "manifests": {"apiVersion": "v1", "kind": "List", "items": items}})
    }

    /// Rolls out a revision of the ledger in its development environment every two seconds. Never returns.
    pub async fn load(&self) {
        for build in 1.. {
            sleep(Duration::from_secs(2)).await;
            // A call that fails on a busy machine is one change less.
            let (world, tag) = (self.place("payments-dev"), format!("7.2.0-build.{build}"));
            if world.try_roll_out("ledger", &tag).await.is_ok() {
                let _ = world.try_finish("ledger").await;
            }
        }
    }
}

/// Returns a kubeconfig of a cluster that does not answer: its port is closed.
fn elsewhere(kubeconfig: &str) -> String {
    let start = kubeconfig.find("https://127.0.0.1:").expect("a server on loopback") + "https://127.0.0.1:".len();
    let digits = kubeconfig[start..].chars().take_while(char::is_ascii_digit).count();
    format!("{}1{}", &kubeconfig[..start], &kubeconfig[start + digits..])
}

async fn observed(world: &World, pipeline: &str) {
    eventually(&format!("{pipeline} is observed"), async || {
        let status = world.get_pipeline(pipeline).await.status.unwrap_or_default();
        let targets: Vec<_> = status.environments.iter().flat_map(|environment| &environment.targets).collect();
        let is_known = !targets.is_empty() && targets.iter().any(|target| target.settled.is_some());
        if is_known { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
}
