//! The snapshot: the effective notifications of all pipelines, as of one moment.
//!
//! In: the effective notifications of Notifications, of cluster-wide notifications and of the layers of pipelines. Out: the effective
//! notification that applies to a subject of a pipeline. The most specific wins: the pipeline's own layers, then the Notification of the
//! namespace, then the cluster-wide one.

mod layered;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use layered::{Applied, Based, EffectiveClusterWide, Layered, Overridden};

use super::EffectiveNotification;

/// Labels of a pipeline.
type Labels = BTreeMap<String, String>;

/// The effective notifications of all pipelines.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// By namespace and name.
    notifications: HashMap<String, BTreeMap<String, Based>>,
    cluster_wide: BTreeMap<String, EffectiveClusterWide>,
    /// By the uid of the pipeline.
    layered: HashMap<String, Layered>,
    version: u64,
}

impl Snapshot {
    /// A number that changes with every change of an effective notification.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Puts or removes a Notification. Returns `true` if there was one before.
    pub fn put_notification(&mut self, namespace: &str, name: &str, notification: Option<Based>) -> bool {
        let of_namespace = self.notifications.entry(namespace.to_owned()).or_default();
        let is_removed = notification.is_none();
        let had = match notification {
            Some(notification) => of_namespace.insert(name.to_owned(), notification).is_some(),
            None => of_namespace.remove(name).is_some(),
        };
        if of_namespace.is_empty() {
            self.notifications.remove(namespace);
        }
        self.version += u64::from(had || !is_removed);
        had
    }

    /// Puts or removes a cluster-wide notification.
    pub fn put_cluster_wide(&mut self, name: &str, cluster_wide: Option<EffectiveClusterWide>) {
        self.version += 1;
        match cluster_wide {
            Some(cluster_wide) => drop(self.cluster_wide.insert(name.to_owned(), cluster_wide)),
            None => drop(self.cluster_wide.remove(name)),
        }
    }

    /// Puts the result of the layers of a pipeline. An empty result removes the previous one.
    pub fn put_layers(&mut self, uid: &str, layered: Layered) {
        if layered.is_empty() {
            self.version += u64::from(self.layered.remove(uid).is_some());
        } else {
            self.version += 1;
            self.layered.insert(uid.to_owned(), layered);
        }
    }

    /// The Notification with this name.
    #[must_use]
    pub fn notification(&self, namespace: &str, name: &str) -> Option<&Based> {
        self.notifications.get(namespace)?.get(name)
    }

    /// The names of the Notifications of a namespace.
    pub fn names_in(&self, namespace: &str) -> impl Iterator<Item = &String> {
        self.notifications.get(namespace).into_iter().flat_map(BTreeMap::keys)
    }

    /// The effective notification for a pipeline, without the pipeline's own layers.
    #[must_use]
    pub fn base(&self, namespace: &str, name: &str, labels: &Labels) -> Option<&Arc<EffectiveNotification>> {
        let cluster_wide = self.cluster_wide.get(name).filter(|e| e.reach.selects(namespace, labels)).map(|e| &e.effective);
        match self.notification(namespace, name) {
            Some(based) => Some(based.of(cluster_wide, labels)),
            None => cluster_wide,
        }
    }

    /// The effective notification for a subject of a pipeline. The first argument is the pipeline as (uid, namespace, labels).
    #[must_use]
    pub fn effective(
        &self,
        (uid, namespace, labels): (&str, &str, &Labels),
        name: &str,
        subject: &str,
    ) -> Option<&Arc<EffectiveNotification>> {
        let layered = self.layered.get(uid).and_then(|layered| layered.get(name)?.of(subject));
        layered.or_else(|| self.base(namespace, name, labels))
    }

    /// All notifications that can apply to a pipeline, by name.
    #[must_use]
    pub fn applied(&self, (uid, namespace, labels): (&str, &str, &Labels)) -> BTreeMap<String, Applied> {
        let names = self.names_in(namespace).chain(self.cluster_wide.keys());
        let base = |name: &String| Some((name.clone(), self.base(namespace, name, labels)?.clone()));
        let mut all: BTreeMap<String, Applied> =
            names.filter_map(base).map(|(name, base)| (name, Applied { base: Some(base), layered: None })).collect();
        for (name, layered) in self.layered.get(uid).into_iter().flat_map(Layered::iter) {
            all.entry(name.clone()).or_default().layered = Some(layered.clone());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{Given, Global, resolve_layers};
    use relaybook_api::global::GlobalConfig;

    fn effective(uid: &str) -> Arc<EffectiveNotification> {
        Arc::new(resolve_layers(&[], "team-a", uid, &Given::nothing()))
    }

    #[test]
    fn the_most_specific_effective_notification_wins() {
        let config: GlobalConfig =
            serde_json::from_value(json!({"notifications": [{"name": "n", "namespaces": ["team-*"]}]})).unwrap();
        let global = Global::new(&config, "relaybook-system").unwrap();
        let reach = global.get("n").unwrap().reach.clone();
        let cluster_wide = EffectiveClusterWide { reach, effective: effective("cluster-wide") };
        let of = |alone: &str, over: Option<&str>| Based { alone: effective(alone), over: over.map(effective) };
        let one_target = || {
            let subjects = HashMap::from([("target/a".to_owned(), effective("target"))]);
            std::iter::once(("n".to_owned(), Arc::new(Overridden { rest: None, subjects }))).collect::<Layered>()
        };
        let mut snapshot = Snapshot::default();
        let labels = Labels::new();
        let uid = |snapshot: &Snapshot, namespace: &str, subject: &str| {
            snapshot.effective(("p", namespace, &labels), "n", subject).map(|n| n.uid.clone()).unwrap_or_default()
        };
        assert_eq!((uid(&snapshot, "team-a", "target/a"), snapshot.version()), (String::new(), 0));
        snapshot.put_cluster_wide("n", Some(cluster_wide));
        assert_eq!(uid(&snapshot, "team-a", "target/a"), "cluster-wide");
        assert_eq!(uid(&snapshot, "prod", "target/a"), "", "it does not cover this namespace");
        assert!(!snapshot.put_notification("team-a", "n", Some(of("alone", Some("over")))));
        assert_eq!(uid(&snapshot, "team-a", "target/a"), "over");
        snapshot.put_layers("p", one_target());
        assert_eq!(uid(&snapshot, "team-a", "target/a"), "target");
        assert_eq!(uid(&snapshot, "team-a", "target/b"), "over", "the layers do not name this target");
        let applied = &snapshot.applied(("p", "team-a", &labels))["n"];
        let each = ["target/a", "target/b", "pipeline"].map(|subject| applied.of(subject).map(|n| n.uid.as_str()));
        assert_eq!(each, [Some("target"), Some("over"), Some("over")]);
        snapshot.put_cluster_wide("n", None);
        assert_eq!(uid(&snapshot, "team-a", "target/b"), "alone");
        assert!(snapshot.put_notification("team-a", "n", None));
        assert_eq!(
            (uid(&snapshot, "team-a", "target/b"), uid(&snapshot, "team-a", "target/a")),
            (String::new(), "target".to_owned())
        );
        snapshot.put_layers("p", Layered::default());
        let version = snapshot.version();
        snapshot.put_layers("p", Layered::default());
        assert!(!snapshot.put_notification("team-a", "n", None));
        assert_eq!((uid(&snapshot, "team-a", "target/a"), snapshot.version()), (String::new(), version));
    }
}
