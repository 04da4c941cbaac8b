//! The global configuration as layers: the defaults of every notification, and the cluster-wide notifications. Also the forges and links. Pure.
//!
//! In: a parsed [`GlobalConfig`], and its namespace. Out: [`Global`], which returns the layers below a Notification of a namespace for a
//! pipeline, and what an edit changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use globset::{Glob, GlobSet, GlobSetBuilder};

use super::layers::{Layer, Source};
use super::selector::PipelineSelector;
use crate::render::Web;
use relaybook_api::Notification;
use relaybook_api::global::{GlobalConfig, GlobalNotification};

/// The global configuration, with its selectors and globs compiled.
#[derive(Clone, Debug, Default)]
pub struct Global {
    defaults: Option<Arc<Layer>>,
    notifications: BTreeMap<String, Arc<ClusterWide>>,
    web: Arc<Web>,
}

/// A cluster-wide notification.
#[derive(Clone, Debug)]
pub struct ClusterWide {
    /// The pipelines that it applies to.
    pub reach: Reach,
    layer: Layer,
    written: GlobalNotification,
}

/// The pipelines that a cluster-wide notification applies to.
#[derive(Clone, Debug)]
pub struct Reach {
    namespaces: Option<GlobSet>,
    selector: PipelineSelector,
}

/// The parts of the global configuration for one notification. Two are equal if they point to the same values in memory, see
/// [`Global::reuse`].
#[derive(Clone, Debug, Default)]
pub struct GlobalParts {
    defaults: Option<Arc<Layer>>,
    /// The cluster-wide notification.
    pub cluster_wide: Option<Arc<ClusterWide>>,
}

impl PartialEq for GlobalParts {
    fn eq(&self, other: &Self) -> bool {
        is_same(self.defaults.as_ref(), other.defaults.as_ref())
            && is_same(self.cluster_wide.as_ref(), other.cluster_wide.as_ref())
    }
}

impl GlobalParts {
    /// Removes the cluster-wide notification if it does not meet a condition.
    #[must_use]
    pub fn only_if(self, fulfils: impl Fn(&ClusterWide) -> bool) -> Self {
        Self { cluster_wide: self.cluster_wide.filter(|cluster_wide| fulfils(cluster_wide)), ..self }
    }

    /// The layers, with a Notification as the most specific layer.
    #[must_use]
    pub fn layers(&self, notification: Option<&Notification>) -> Vec<Layer> {
        stack(self.defaults.as_deref(), self.cluster_wide.as_deref(), notification)
    }
}

/// Whether both point to the same value in memory, or both are `None`.
#[must_use]
pub fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

fn stack(defaults: Option<&Layer>, cluster_wide: Option<&ClusterWide>, notification: Option<&Notification>) -> Vec<Layer> {
    let global = cluster_wide.map(|cluster_wide| cluster_wide.layer.clone());
    defaults.cloned().into_iter().chain(global).chain(notification.map(Layer::of_notification)).collect()
}

/// What an edit has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edited {
    /// The defaults, or the links, which apply to every notification.
    Everything,
    /// These notifications. The set can be empty.
    Names(BTreeSet<String>),
}

impl Reach {
    /// Whether it applies to pipelines of this namespace that have the right labels.
    #[must_use]
    pub fn covers(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|globs| globs.is_match(namespace))
    }

    /// Whether it applies to this pipeline.
    #[must_use]
    pub fn selects(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        self.covers(namespace) && self.selector.selects(labels)
    }
}

/// An invalid field, and the message about it.
pub type FieldError = (String, String);

impl Global {
    /// Compiles a configuration. Its references resolve in `namespace`, the namespace of its ConfigMap.
    pub fn new(config: &GlobalConfig, namespace: &str) -> Result<Self, FieldError> {
        let layer = |source, settings: &_| Layer::of_settings(source, namespace, settings);
        let defaults = config.defaults.as_ref().map(|settings| Arc::new(layer(Source::Defaults, settings)));
        let mut notifications = BTreeMap::new();
        for (index, written) in config.notifications.iter().enumerate() {
            let cluster_wide = ClusterWide {
                reach: reach(written).map_err(|(field, message)| (format!("notifications[{index}].{field}"), message))?,
                layer: Layer::of(Source::Global, namespace, &written.layer),
                written: written.clone(),
            };
            if notifications.insert(written.layer.name.clone(), Arc::new(cluster_wide)).is_some() {
                let message = format!("{} occurs twice; remove one", written.layer.name);
                return Err((format!("notifications[{index}].name"), message));
            }
        }
        let web = Arc::new(Web::compile(&config.forges, &config.links, namespace)?);
        Ok(Self { defaults, notifications, web })
    }

    /// The forges, and the links that templates can use.
    #[must_use]
    pub fn web(&self) -> &Arc<Web> {
        &self.web
    }

    /// The cluster-wide notifications, by name.
    pub fn notifications(&self) -> impl Iterator<Item = (&String, &ClusterWide)> {
        self.notifications.iter().map(|(name, cluster_wide)| (name, &**cluster_wide))
    }

    /// The cluster-wide notification with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ClusterWide> {
        self.notifications.get(name).map(|cluster_wide| &**cluster_wide)
    }

    /// The parts for notifications with this name.
    #[must_use]
    pub fn part(&self, name: &str) -> GlobalParts {
        GlobalParts { defaults: self.defaults.clone(), cluster_wide: self.notifications.get(name).cloned() }
    }

    /// Replaces each value that equals its value in `old` with the value of `old`. So a comparison of pointers finds changes.
    #[must_use]
    pub fn reuse(mut self, old: &Self) -> Self {
        if self.defaults == old.defaults {
            self.defaults.clone_from(&old.defaults);
        }
        for (name, cluster_wide) in &mut self.notifications {
            if let Some(known) = old.notifications.get(name).filter(|known| known.written == cluster_wide.written) {
                *cluster_wide = known.clone();
            }
        }
        self
    }

    /// Whether it has a layer for a notification with this name in this namespace.
    #[must_use]
    pub fn concerns(&self, name: &str, namespace: &str) -> bool {
        self.defaults.is_some() || self.get(name).is_some_and(|cluster_wide| cluster_wide.reach.covers(namespace))
    }

    /// The layers below those of the pipeline itself. They are the defaults, the cluster-wide notification if it selects the pipeline, and
    /// the Notification of its namespace. The caller passes `cluster_wide` only if the cluster-wide notification is one of them.
    #[must_use]
    pub fn layers_below(&self, cluster_wide: Option<&ClusterWide>, notification: Option<&Notification>) -> Vec<Layer> {
        stack(self.defaults.as_deref(), cluster_wide, notification)
    }

    /// What differs in `new`.
    #[must_use]
    pub fn edited(&self, new: &Self) -> Edited {
        if self.defaults != new.defaults || self.web != new.web {
            return Edited::Everything;
        }
        let names = self.notifications.keys().chain(new.notifications.keys());
        let written = |global: &Self, name: &str| global.get(name).map(|cluster_wide| cluster_wide.written.clone());
        Edited::Names(names.filter(|name| written(self, name) != written(new, name)).cloned().collect())
    }
}

fn reach(written: &GlobalNotification) -> Result<Reach, FieldError> {
    let selector = PipelineSelector::parse(written.pipeline_selector.as_ref());
    let selector = selector.map_err(|e| ("pipelineSelector".to_owned(), e.to_string()))?;
    let Some(globs) = &written.namespaces else { return Ok(Reach { namespaces: None, selector }) };
    let mut set = GlobSetBuilder::new();
    for (index, glob) in globs.iter().enumerate() {
        let compiled = Glob::new(glob).map_err(|e| (format!("namespaces[{index}]"), format!("not a glob: {}", e.kind())))?;
        set.add(compiled);
    }
    let namespaces = set.build().map_err(|e| ("namespaces".to_owned(), format!("too large: {}", e.kind())))?;
    Ok(Reach { namespaces: Some(namespaces), selector })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn global(config: Value) -> Result<Global, FieldError> {
        Global::new(&serde_json::from_value(config).unwrap(), "relaybook-system")
    }

    #[test]
    fn a_cluster_wide_notification_selects_pipelines_by_namespace_and_label() {
        let config = json!({"notifications": [
            {"name": "all"}, {"name": "teams", "namespaces": ["team-?", "x*"]},
            {"name": "some", "pipelineSelector": {"matchLabels": {"tier": "1"}}},
        ]});
        let global = global(config).unwrap();
        let tier = BTreeMap::from([("tier".to_owned(), "1".to_owned())]);
        for (name, namespace, labels, is) in [
            ("all", "any", &BTreeMap::new(), true),
            ("teams", "team-a", &BTreeMap::new(), true),
            ("teams", "team-ab", &tier, false),
            ("teams", "xyz", &tier, true),
            ("some", "any", &tier, true),
            ("some", "any", &BTreeMap::new(), false),
        ] {
            assert_eq!(global.get(name).unwrap().reach.selects(namespace, labels), is, "{name} {namespace}");
        }
        assert!(global.concerns("teams", "team-a") && !global.concerns("teams", "prod") && !global.concerns("none", "a"));
    }

    #[test]
    fn an_edit_affects_only_changed_notifications_unless_the_defaults_change() {
        let names = |names: &[&str]| Edited::Names(names.iter().map(ToString::to_string).collect());
        let two = json!([{"name": "a"}, {"name": "b", "suspend": true}]);
        let old = json!({"defaults": {"suspend": false}, "notifications": two});
        for (new, edited) in [
            (old.clone(), names(&[])),
            (json!({"defaults": {"suspend": true}, "notifications": two}), Edited::Everything),
            (json!({"notifications": two}), Edited::Everything),
            (
                json!({"defaults": {"suspend": false}, "notifications": [{"name": "b"}, {"name": "c"}]}),
                names(&["a", "b", "c"]),
            ),
            (
                json!({"defaults": {"suspend": false}, "notifications": [{"name": "b", "suspend": true}, {"name": "a", "namespaces": ["x"]}]}),
                names(&["a"]),
            ),
        ] {
            let (before, after) = (global(old.clone()).unwrap(), global(new.clone()).unwrap());
            assert_eq!(before.edited(&after), edited, "{new}");
            let after = after.reuse(&before);
            for name in ["a", "b", "c"] {
                let is_kept = matches!(&edited, Edited::Names(names) if !names.contains(name));
                assert_eq!(before.part(name) == after.part(name), is_kept, "{new} {name}");
            }
        }
    }

    #[test]
    fn an_edit_of_links_affects_everything_and_compiles_nothing_again() {
        let old = json!({"notifications": [{"name": "a"}], "links": {"argo": "https://a.example/"}});
        for (more, is_edited) in [
            (json!({}), false),
            (json!({"links": {"argo": "https://b.example/"}}), true),
            (json!({"links": {}}), true),
            (json!({"forges": [{"host": "git.example.com", "type": "gitea"}]}), true),
        ] {
            let mut new = old.as_object().unwrap().clone();
            new.extend(more.as_object().unwrap().clone());
            let (before, after) = (global(old.clone()).unwrap(), global(Value::Object(new)).unwrap());
            assert_eq!(before.edited(&after) == Edited::Everything, is_edited, "{more}");
            assert_eq!(before.part("a"), after.reuse(&before).part("a"), "{more}");
        }
        let (at, _) = global(json!({"links": {"pipeline": "https://a.example/"}})).unwrap_err();
        assert_eq!(at, "links.pipeline");
    }

    #[test]
    fn an_invalid_notification_is_refused_with_its_field() {
        for (notification, field) in [
            (json!({"name": "b", "namespaces": ["a", "[x"]}), "notifications[1].namespaces[1]"),
            (json!({"name": "a"}), "notifications[1].name"),
            (
                json!({"name": "b", "pipelineSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
                "notifications[1].pipelineSelector",
            ),
        ] {
            let (at, _) = global(json!({"notifications": [{"name": "a"}, notification]})).unwrap_err();
            assert_eq!(at, field);
        }
    }
}
