//! Tests the global configuration: its defaults and notifications for all namespaces, and what happens when it is edited, invalid or
//! deleted.

mod broken;
mod edits;
mod faults;
mod last_sent;
mod layers;
mod twins;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use relaybook_api::{Delivery, Outcome};
use serde_json::{Value, json};

use crate::support::relaybook::Options;
use crate::support::world;
use crate::support::{Receiver, Relaybook, World, eventually};

const MAP: &str = "relaybook-config";

/// The controller's own namespace, and the namespace of a team. Only the latter is watched.
pub struct Stage {
    pub system: World,
    pub team: World,
}

impl Stage {
    pub async fn new(ns: &str) -> Self {
        let system = World::new(&format!("{ns}-sys")).await;
        let team = World::beside(ns, &system).await;
        for app in ["web", "api"] {
            team.deploy(app, "1").await;
        }
        Self { system, team }
    }

    fn options(&self) -> Options {
        Options { watch: vec![self.team.ns.clone()], ..Options::of(&self.system) }
    }

    pub async fn start(&self) -> Relaybook {
        let relaybook = Relaybook::with(&self.system, self.options()).await;
        self.team.settled().await;
        relaybook
    }

    /// Writes the global configuration, whether it exists or not.
    pub async fn configure(&self, config: &Value) {
        self.configure_text(&config.to_string()).await;
    }

    async fn configure_text(&self, text: &str) {
        let data = json!({"data": {"config.yaml": text}});
        if self.system.api::<ConfigMap>().get_opt(MAP).await.expect("read").is_some() {
            self.system.patch::<ConfigMap>(MAP, data).await;
        } else {
            let mut object = data;
            object["metadata"] = json!({"name": MAP});
            self.system.create::<ConfigMap>(object).await;
        }
    }

    /// Waits until a pipeline has the cursor of a notification with this value as its uid.
    async fn cursor(&self, pipeline: &str, notification: &str, uid: &str) {
        eventually(&format!("the cursor of {notification} in {pipeline}"), async || {
            let dispatched = self.team.get_pipeline(pipeline).await.status.and_then(|s| s.dispatched).unwrap_or_default();
            let ours = dispatched.cursors.iter().any(|c| c.notification == notification && c.uid == uid);
            ours.then_some(()).ok_or_else(|| format!("{:?}", dispatched.cursors))
        })
        .await;
    }

    /// Ships a tag of both applications, and waits until it is in the log.
    pub async fn ship(&self, tag: &str) {
        for app in ["web", "api"] {
            self.team.ship(app, tag).await;
        }
        self.team.observed_at("shop", tag, &["web", "api"]).await;
    }

    /// Waits for a Warning about the ConfigMap. Returns its note.
    async fn warning(&self, reason: &str) -> String {
        eventually(&format!("Event {reason} about the ConfigMap"), async || {
            let all = self.system.api::<Event>().list(&ListParams::default()).await.expect("listed");
            let about = |e: &&Event| {
                let regarding = e
                    .regarding
                    .as_ref()
                    .is_some_and(|r| r.kind.as_deref() == Some("ConfigMap") && r.name.as_deref() == Some(MAP));
                regarding && e.type_.as_deref() == Some("Warning") && e.reason.as_deref() == Some(reason)
            };
            let found = all.iter().filter(about).last().map(|e| e.note.clone().unwrap_or_default());
            found.ok_or_else(|| format!("{:?}", all.iter().map(|e| (&e.reason, &e.note)).collect::<Vec<_>>()))
        })
        .await
    }
}

/// Returns a complete cluster-wide notification.
pub fn everywhere(name: &str, receiver: &Receiver, over: Value) -> Value {
    let mut all = over;
    let mut spec =
        world::notification(name, &receiver.url(&format!("/{name}/{{{{target.app.name}}}}")), all.take())["spec"].take();
    spec["name"] = json!(name);
    spec
}

/// Returns the namespaces in which the deliveries of a notification are stored, without repeats.
async fn homes(team: &World, notification: &str) -> Vec<String> {
    let all = team.deliveries().await;
    let those = all.iter().filter(|d| d.spec.notification == notification);
    let mut homes: Vec<_> = those.filter_map(|d| d.metadata.namespace.clone()).collect();
    homes.sort();
    homes.dedup();
    homes
}

fn is(outcome: Outcome) -> impl Fn(&Delivery) -> bool {
    move |d| d.status.as_ref().and_then(|s| s.outcome) == Some(outcome)
}
