//! The objects of the configuration, and the results that were compiled from them. Plain values, without I/O.
//!
//! In: the current objects. Out: the sources of each result, and which results were compiled from others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use super::budget::Turns;
use super::layer_job::LayerJob;
use super::results::{Entry, Owner, Place, Results};
use super::sources::{Site, Sources};
use crate::outbox::PipelineIndex;
use relaybook_api::{Notification, ObjectName, Time};
use relaybook_settings::config::layers::is_layer_of;
use relaybook_settings::config::snapshot::{Layered, Overridden};
use relaybook_settings::config::{EffectiveNotification, Global, PipelineSelector};
use relaybook_settings::reach::replaces_triggers;

/// The global configuration in force. If the current ConfigMap is not in force, also the problem with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct GlobalState {
    /// `None`: nothing valid has been read since the start.
    pub(crate) in_force: Option<Arc<Global>>,
    /// Why the current ConfigMap is not in force.
    pub(crate) problem: Option<String>,
}

impl GlobalState {
    /// Returns the configuration in force, or an empty one while it is unknown.
    pub(crate) fn global(&self) -> Arc<Global> {
        self.in_force.clone().unwrap_or_default()
    }

    /// Returns what applies instead of an invalid ConfigMap, for messages.
    pub(crate) fn instead(&self) -> &'static str {
        match self.in_force {
            Some(_) => "keeping the last valid version",
            None => "until it is valid, cluster-wide notifications wait and no defaults apply",
        }
    }
}

/// All known objects and results.
#[derive(Default)]
pub(super) struct State {
    pub(super) global: GlobalState,
    pub(super) notifications: HashMap<ObjectName, Known>,
    /// By namespace of pipelines, the Notifications of other namespaces that accept to be layers there.
    pub(super) accepting: HashMap<String, BTreeSet<ObjectName>>,
    /// The pipelines that have layers or a layer namespace, by uid.
    pub(super) sites: HashMap<String, Arc<Site>>,
    pub(super) results: Results,
    pub(super) turns: Turns<LayerJob>,
}

/// A Notification.
pub(super) struct Known {
    pub(super) notification: Arc<Notification>,
    /// When its current spec was first seen.
    pub(super) since: Time,
}

impl State {
    pub(super) fn global(&self) -> Arc<Global> {
        self.global.global()
    }

    /// Returns the current sources of a result. `None`: there is nothing to compile.
    pub(super) fn sources(&self, owner: &Owner, name: &str) -> Option<Sources> {
        match owner {
            Owner::Global => {
                let global = self.global().part(name);
                global.cluster_wide.is_some().then(|| Sources { global, ..Sources::default() })
            }
            Owner::Namespace(namespace) => {
                let known = self.notifications.get(&ObjectName::new(namespace, name))?;
                let global = self.global().part(name).only_if(|found| found.reach.covers(namespace));
                Some(Sources { global, notification: Some(known.notification.clone()), ..Sources::default() })
            }
            Owner::Pipeline(uid) => {
                let site = self.sites.get(uid)?;
                let sources = self.beneath(site, name);
                (sources.laid.is_some() || site.has_layer(name)).then_some(sources)
            }
        }
    }

    /// Returns the sources of the layers of a pipeline: what is below them, and the pipeline.
    pub(super) fn beneath(&self, site: &Arc<Site>, name: &str) -> Sources {
        let namespace = site.place.namespace.as_str();
        let global = self.global().part(name).only_if(|found| found.reach.selects(namespace, &site.labels));
        let of = |namespace: &str| Some(self.notifications.get(&ObjectName::new(namespace, name))?.notification.clone());
        // A Notification that does not select this pipeline does not override the cluster-wide one.
        let notification = of(namespace).filter(|n| global.cluster_wide.is_none() || selects(n, &site.labels));
        // A layer alone is no notification.
        let is_over = global.cluster_wide.is_some() || notification.is_some();
        let laid = site.layer_namespace().filter(|_| is_over).and_then(of);
        let laid = laid.filter(|n| is_layer_of(n, &site.spec, (namespace, &site.labels)));
        Sources { global, notification, laid, site: Some(site.clone()) }
    }

    /// Whether a result was compiled from other sources than the current ones, or is missing.
    fn is_outdated(&self, owner: &Owner, name: &str) -> bool {
        let known = self.results.get(owner, name);
        match self.sources(owner, name) {
            None => known.is_some(),
            Some(sources) => known.and_then(|k| k.compiled.as_ref()).is_none_or(|compiled| compiled.sources != sources),
        }
    }

    /// Returns the places of all outdated results.
    pub(super) fn outdated(&self) -> Vec<Place> {
        let global = self.global();
        let cluster_wide = global.notifications().map(|(name, _)| Place::new(Owner::Global, name));
        let laid = self
            .sites
            .values()
            .flat_map(|site| self.laid(site).map(move |name| Place::new(Owner::Pipeline(site.uid.clone()), name)));
        let is_new = |place: &Place| self.results.get(&place.owner, &place.name).is_none();
        let new = cluster_wide.chain(laid).filter(|place| is_new(place) && self.is_outdated(&place.owner, &place.name));
        self.results.places(|owner, name, _| self.is_outdated(owner, name)).into_iter().chain(new).collect()
    }

    /// Returns the places of the outdated results of which this Notification is a source: its own, and those of layers.
    pub(super) fn outdated_by(&self, at: &ObjectName) -> Vec<Place> {
        let ObjectName { namespace, name } = at;
        let is_over = |site: &&Arc<Site>| {
            let other = site.layer_namespace();
            let is_source = site.place.namespace == *namespace || other == Some(namespace.as_str());
            is_source && (other.is_some() || site.has_layer(name))
        };
        let layers = self.sites.values().filter(is_over).map(|site| Owner::Pipeline(site.uid.clone()));
        let owners = iter::once(Owner::Namespace(namespace.clone())).chain(layers);
        owners.filter(|owner| self.is_outdated(owner, name)).map(|owner| Place::new(owner, name)).collect()
    }

    /// Marks layers to be compiled, and removes the results that have no sources any more. Returns the places of those.
    pub(super) fn mark(&mut self, places: &[Place], now: Duration) -> Vec<Place> {
        let mut gone = Vec::new();
        for place in places {
            let Some(sources) = self.sources(&place.owner, &place.name) else {
                self.results.remove(place);
                gone.push(place.clone());
                continue;
            };
            let is_due = &mut self.results.entry(place).is_due;
            if place.pipeline().is_some() && !std::mem::replace(is_due, true) {
                self.turns.add(sources.payer(), LayerJob::new(place.clone()), now);
            }
        }
        gone
    }

    /// Returns the sources of layers that must be compiled.
    pub(super) fn due(&self, place: &Place) -> Option<Sources> {
        self.results.get(&place.owner, &place.name).filter(|entry| entry.is_due)?;
        self.sources(&place.owner, &place.name)
    }

    /// Returns the pipelines with layers at these places, by uid.
    pub(super) fn pipelines_of(&self, places: &[Place]) -> BTreeMap<String, ObjectName> {
        let uids = places.iter().filter_map(Place::pipeline);
        uids.filter_map(|uid| Some((uid.clone(), self.sites.get(uid)?.place.clone()))).collect()
    }

    /// Returns the names of the Notifications that can be layers of a pipeline.
    pub(super) fn laid<'a>(&'a self, site: &'a Site) -> impl Iterator<Item = &'a String> {
        let accepting = self.accepting.get(&site.place.namespace).into_iter().flatten();
        accepting.filter(move |at| site.layer_namespace() == Some(at.namespace.as_str())).map(|at| &at.name)
    }

    /// Whether the layer of a whole pipeline, or of its layer namespace, replaces the triggers of this Notification.
    pub(super) fn replaces_triggers(&self, pipeline: &str, at: &ObjectName) -> bool {
        let Some(site) = self.sites.get(pipeline) else { return false };
        let laid = || self.beneath(site, &at.name).laid.filter(|laid| ObjectName::of(&**laid) != *at);
        replaces_triggers(&site.spec, &at.name) || laid().is_some_and(|laid| laid.spec.triggers.is_some())
    }

    /// Puts or removes a Notification. Returns `true` if there was one before.
    pub(super) fn put_notification(&mut self, at: &ObjectName, known: Option<Known>) -> bool {
        let others = |known: &Known| known.notification.spec.pipeline_namespaces.clone().unwrap_or_default();
        let (new, old) = (known.as_ref().map(others), self.notifications.remove(at));
        for other in old.as_ref().map(others).into_iter().flatten() {
            if let Some(places) = self.accepting.get_mut(&other) {
                places.remove(at);
            }
        }
        for other in new.into_iter().flatten() {
            self.accepting.entry(other).or_default().insert(at.clone());
        }
        self.accepting.retain(|_, places| !places.is_empty());
        self.notifications.extend(known.map(|known| (at.clone(), known)));
        old.is_some()
    }

    /// Returns the results of a pipeline's layers, with placeholders for layers that are not compiled yet.
    pub(super) fn layered(&self, uid: &str, pipeline_index: &PipelineIndex) -> Layered {
        let Some(site) = self.sites.get(uid) else { return Layered::default() };
        let known = |(name, entry): (&String, &Entry)| {
            let compiled = entry.layers().filter(|_| !entry.is_due).cloned();
            let placeholder = || Arc::new(self.placeholder(site, name, entry, pipeline_index));
            (name.clone(), compiled.unwrap_or_else(placeholder))
        };
        self.results.of(&Owner::Pipeline(uid.to_owned())).map(known).collect()
    }

    /// Returns a placeholder for layers that are not compiled yet. It has the same namespaces as before, so deliveries that a running
    /// reconcile still records go to the same namespace.
    fn placeholder(&self, site: &Arc<Site>, name: &str, entry: &Entry, pipeline_index: &PipelineIndex) -> Overridden {
        let sources = self.beneath(site, name);
        let waits = self.turns.waits(sources.payer());
        let at = |home: &str| Arc::new(EffectiveNotification::compiling(sources.uid(), home, waits));
        let former = entry.layers();
        let base = pipeline_index.base(&site.place.namespace, name, &site.labels);
        let before = former.and_then(|former| former.rest.as_ref()).or(base.as_ref());
        let rest = at(before.map_or(&site.place.namespace, |before| &before.home));
        let elsewhere = former.into_iter().flat_map(|former| &former.subjects).filter(|(_, n)| n.home != rest.home);
        let subjects: HashMap<_, _> = elsewhere.map(|(subject, n)| (subject.clone(), at(&n.home))).collect();
        Overridden { rest: Some(rest), subjects }
    }
}

fn selects(notification: &Notification, labels: &BTreeMap<String, String>) -> bool {
    let selector = PipelineSelector::parse(notification.spec.pipeline_selector.as_ref());
    selector.map_or(true, |selector| selector.selects(labels))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::dispatch::config::results::{Compiled, Effective};
    use relaybook_api::global::GlobalConfig;

    const NOW: Duration = Duration::ZERO;

    impl State {
        fn configure(&mut self, config: Value) {
            let config: GlobalConfig = serde_json::from_value(config).unwrap();
            let global = Global::new(&config, "relaybook-system").unwrap().reuse(&self.global());
            self.global.in_force = Some(Arc::new(global));
        }

        fn notify(&mut self, namespace: &str, name: &str, spec: &Value) {
            let object = json!({
                "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification", "spec": spec,
                "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")},
            });
            let (at, notification) = (ObjectName::new(namespace, name), Arc::new(serde_json::from_value(object).unwrap()));
            self.put_notification(&at, Some(Known { notification, since: Time::UNIX_EPOCH }));
            let outdated = self.outdated_by(&at);
            self.mark(&outdated, NOW);
        }

        fn pipeline(&mut self, namespace: &str, uid: &str, spec: &Value) {
            let mut whole = json!({"environments": []});
            whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let site = Site {
                uid: uid.to_owned(),
                place: ObjectName::new(namespace, uid),
                generation: None,
                labels: BTreeMap::new(),
                spec: serde_json::from_value(whole).unwrap(),
                targets: Vec::new(),
            };
            self.sites.insert(uid.to_owned(), Arc::new(site));
            let names = self.sites[uid].spec.notifications.iter().map(|layer| layer.name.clone());
            let places: Vec<_> = names.map(|name| Place::new(Owner::Pipeline(uid.to_owned()), &name)).collect();
            self.mark(&places, NOW);
        }

        /// Compiles all outdated results. Returns their places.
        fn renewed(&mut self) -> Vec<String> {
            let outdated = self.outdated();
            self.mark(&outdated, NOW);
            for place in &outdated {
                let Some(sources) = self.sources(&place.owner, &place.name) else { continue };
                let result = Effective::Layers(Arc::default());
                let compiled = Some(Compiled { sources, texts: Vec::new(), result });
                *self.results.entry(place) = Entry { is_due: false, compiled };
            }
            shown(&outdated)
        }
    }

    fn shown(places: &[Place]) -> Vec<String> {
        let show = |place: &Place| match &place.owner {
            Owner::Global => format!("cluster-wide {}", place.name),
            Owner::Namespace(of) | Owner::Pipeline(of) => format!("{of} {}", place.name),
        };
        let mut all: Vec<_> = places.iter().map(show).collect();
        all.sort_unstable();
        all
    }

    /// A cluster-wide notification and Notifications of the same name, below layers of two pipelines.
    fn state() -> State {
        let mut state = State::default();
        state.configure(json!({"notifications": [{"name": "hook", "namespaces": ["team-*"]}]}));
        for (namespace, name) in [("team-a", "hook"), ("team-a", "other"), ("team-c", "hook")] {
            state.notify(namespace, name, &json!({}));
        }
        state.notify("platform", "hook", &json!({"pipelineNamespaces": ["team-a"]}));
        state.pipeline("team-a", "p1", &json!({"notifications": [{"name": "hook"}], "layerNamespace": "platform"}));
        state.pipeline("team-b", "p2", &json!({"notifications": [{"name": "hook"}, {"name": "own"}]}));
        state.renewed();
        state
    }

    #[test]
    fn a_result_is_outdated_if_one_of_its_sources_has_changed() {
        type Change = fn(&mut State);
        let table: [(Change, &[&str]); 13] = [
            (|_| {}, &[]),
            (|state| state.configure(json!({"notifications": [{"name": "hook", "namespaces": ["team-*"]}]})), &[]),
            (|state| state.notify("team-a", "other", &json!({})), &["team-a other"]),
            (|state| state.notify("team-a", "hook", &json!({})), &["p1 hook", "team-a hook"]),
            (|state| state.notify("team-b", "hook", &json!({})), &["p2 hook", "team-b hook"]),
            (|state| state.notify("team-c", "hook", &json!({})), &["team-c hook"]),
            (
                |state| state.notify("platform", "hook", &json!({"pipelineNamespaces": ["team-a"]})),
                &["p1 hook", "platform hook"],
            ),
            (|state| state.notify("platform", "other", &json!({"pipelineNamespaces": ["team-b"]})), &["platform other"]),
            (
                |state| state.notify("platform", "other", &json!({"pipelineNamespaces": ["team-a"]})),
                &["p1 other", "platform other"],
            ),
            (
                |state| {
                    state.configure(json!({"notifications": [{"name": "hook", "suspend": true, "namespaces": ["team-*"]}]}));
                },
                &["cluster-wide hook", "p1 hook", "p2 hook", "team-a hook", "team-c hook"],
            ),
            (
                |state| {
                    let notifications = json!([{"name": "hook", "namespaces": ["team-*"]}, {"name": "own"}]);
                    state.configure(json!({"notifications": notifications}));
                },
                &["cluster-wide own", "p2 own"],
            ),
            (
                |state| {
                    let notifications = json!([{"name": "hook", "namespaces": ["team-*"]}]);
                    state.configure(json!({"defaults": {"suspend": true}, "notifications": notifications}));
                },
                &[
                    "cluster-wide hook",
                    "p1 hook",
                    "p2 hook",
                    "p2 own",
                    "platform hook",
                    "team-a hook",
                    "team-a other",
                    "team-c hook",
                ],
            ),
            (|state| state.pipeline("team-b", "p2", &json!({"notifications": [{"name": "own"}]})), &["p2 hook", "p2 own"]),
        ];
        for (number, (change, outdated)) in table.into_iter().enumerate() {
            let mut state = state();
            change(&mut state);
            assert_eq!(state.renewed(), outdated, "{number}");
            assert!(state.outdated().is_empty(), "{number}");
        }
    }

    #[test]
    fn a_notification_makes_only_its_own_result_and_layers_outdated() {
        for (namespace, name) in
            [("team-a", "hook"), ("team-a", "other"), ("platform", "hook"), ("team-b", "hook"), ("x", "new")]
        {
            let at = ObjectName::new(namespace, name);
            let mut state = state();
            state.notify(namespace, name, &json!({}));
            assert_eq!(shown(&state.outdated_by(&at)), shown(&state.outdated()), "{at} is put");
            state.renewed();
            state.put_notification(&at, None);
            assert_eq!(shown(&state.outdated_by(&at)), shown(&state.outdated()), "{at} is removed");
        }
    }

    #[test]
    fn a_layer_of_another_namespace_is_compiled_only_over_a_notification_and_with_its_budget() {
        let mut state = State::default();
        state.notify("platform", "hook", &json!({"pipelineNamespaces": ["team-a"]}));
        state.pipeline("team-a", "p1", &json!({"layerNamespace": "platform"}));
        assert_eq!(state.renewed(), ["platform hook"]);
        state.notify("team-a", "hook", &json!({}));
        assert_eq!(state.renewed(), ["p1 hook", "team-a hook"]);
        let payer = |state: &State| state.sources(&Owner::Pipeline("p1".to_owned()), "hook").map(|s| s.payer().to_owned());
        assert_eq!(payer(&state).as_deref(), Some("platform"));
        let at = ObjectName::new("team-a", "hook");
        state.put_notification(&at, None);
        let outdated = state.outdated_by(&at);
        assert_eq!(shown(&state.mark(&outdated, NOW)), ["p1 hook", "team-a hook"], "both are removed");
        assert_eq!((payer(&state), state.outdated()), (None, Vec::new()));
        state.pipeline("team-a", "p1", &json!({"layerNamespace": "platform", "notifications": [{"name": "hook"}]}));
        assert_eq!(payer(&state).as_deref(), Some("team-a"), "a layer alone is over nothing");
    }
}
