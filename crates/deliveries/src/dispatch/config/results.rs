//! The results, by place. Plain values.
//!
//! In: compiled results. Out: each result, until there is a newer one for its place. A place is an owner and the name of a notification.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::config_maps::ConfigMaps;
use super::sources::{Sources, Texts, are_stale};
use relaybook_api::ObjectName;
use relaybook_settings::config::EffectiveNotification;
use relaybook_settings::config::snapshot::{Based, Overridden};

/// What defines a notification, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// The global configuration. It has cluster-wide notifications.
    Global,
    /// A namespace. It has Notifications.
    Namespace(String),
    /// The pipeline with this uid. It has layers.
    Pipeline(String),
}

/// The place of a result: its owner, and the name of the notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) owner: Owner,
    pub(super) name: String,
}

impl Place {
    pub(super) fn new(owner: Owner, name: &str) -> Self {
        Self { owner, name: name.to_owned() }
    }

    /// Returns the Notification at this place.
    pub(super) fn notification(&self) -> Option<ObjectName> {
        let Owner::Namespace(namespace) = &self.owner else { return None };
        Some(ObjectName::new(namespace, &self.name))
    }

    /// Returns the uid of the pipeline that has layers at this place.
    pub(super) fn pipeline(&self) -> Option<&String> {
        let Owner::Pipeline(uid) = &self.owner else { return None };
        Some(uid)
    }
}

/// A compiled result, and its sources.
pub(super) struct Compiled {
    pub(super) sources: Sources,
    pub(super) texts: Texts,
    pub(super) result: Effective,
}

/// What was compiled.
pub(super) enum Effective {
    /// A Notification, or a cluster-wide notification.
    Notification(Based),
    Layers(Arc<Overridden>),
}

impl Compiled {
    /// Whether a compilation from these sources now would give the same result.
    pub(super) fn is_current(&self, sources: &Sources, config_maps: &ConfigMaps) -> bool {
        self.sources == *sources && !are_stale(config_maps, &self.texts)
    }

    /// Whether the result uses this ConfigMap, and any text that it uses has changed since.
    pub(super) fn is_stale(&self, config_maps: &ConfigMaps, config_map: &ObjectName) -> bool {
        self.texts.iter().any(|(key, _)| key.object() == *config_map) && are_stale(config_maps, &self.texts)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<EffectiveNotification>> {
        let (based, layers) = match &self.result {
            Effective::Notification(based) => (Some(based), None),
            Effective::Layers(layers) => (None, Some(layers)),
        };
        based.into_iter().flat_map(Based::all).chain(layers.into_iter().flat_map(|layers| layers.all()))
    }
}

/// The state of a place. The old result stays until there is a new one, so that the ConfigMaps and Secrets that it refers to are still
/// watched.
#[derive(Default)]
pub(super) struct Entry {
    /// Whether layers must be compiled. Then they have a job.
    pub(super) is_due: bool,
    pub(super) compiled: Option<Compiled>,
}

impl Entry {
    pub(super) fn layers(&self) -> Option<&Arc<Overridden>> {
        let Effective::Layers(layers) = &self.compiled.as_ref()?.result else { return None };
        Some(layers)
    }
}

/// All results.
#[derive(Default)]
pub(super) struct Results(HashMap<Owner, BTreeMap<String, Entry>>);

impl Results {
    pub(super) fn get(&self, owner: &Owner, name: &str) -> Option<&Entry> {
        self.0.get(owner)?.get(name)
    }

    /// Returns the entry of a place, or a new one.
    pub(super) fn entry(&mut self, place: &Place) -> &mut Entry {
        self.0.entry(place.owner.clone()).or_default().entry(place.name.clone()).or_default()
    }

    pub(super) fn remove(&mut self, place: &Place) {
        if let Some(entries) = self.0.get_mut(&place.owner)
            && entries.remove(&place.name).is_some()
            && entries.is_empty()
        {
            self.0.remove(&place.owner);
        }
    }

    /// Removes all entries of an owner.
    pub(super) fn remove_all(&mut self, owner: &Owner) {
        self.0.remove(owner);
    }

    /// Returns the entries of an owner, by name.
    pub(super) fn of(&self, owner: &Owner) -> impl Iterator<Item = (&String, &Entry)> {
        self.0.get(owner).into_iter().flatten()
    }

    /// Returns the places for which `is` returns true.
    pub(super) fn places(&self, is: impl Fn(&Owner, &str, &Entry) -> bool) -> Vec<Place> {
        let all = self.0.iter().flat_map(|(owner, entries)| entries.iter().map(move |(name, entry)| (owner, name, entry)));
        let those = all.filter(|(owner, name, entry)| is(owner, name, entry));
        those.map(|(owner, name, _)| Place::new(owner.clone(), name)).collect()
    }

    /// Returns the compiled results.
    pub(super) fn compiled(&self) -> impl Iterator<Item = &Compiled> {
        self.0.values().flat_map(BTreeMap::values).filter_map(|entry| entry.compiled.as_ref())
    }
}
