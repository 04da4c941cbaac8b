//! What a selection contains now, for the pipeline that made it.
//!
//! In: a selection, and the objects that the pipeline knows already. Out: its objects, and whether some can be missing.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Needs, fleet_object};
use crate::Scope;
use crate::objects::cache::{Phase, object_of};
use crate::objects::store::Store;
use relaybook_api::ObjectName;
use relaybook_api::pipeline::source::TargetOrigin;
use relaybook_core::observe::{FleetTraits, Traits};
use relaybook_core::reading::selection::{Joined, Selected, Selecting, Selection, Source, SourceObject, Sources};
use relaybook_core::reading::{Application, Reason};

/// Maximum number of objects, other than known ones, that are returned for one selection.
const MOST: usize = 512;

impl Store {
    /// Returns the objects of a selection: all that are `known`, and the first others.
    pub fn selected(&self, selection: &Arc<Selection>, known: &BTreeSet<ObjectName>) -> Selecting {
        let Some(kept) = self.selections.all.get(selection) else {
            let why = (Reason::CacheNotSynced, "no pipeline has requested these objects yet".to_owned());
            return Selecting { incomplete: Some(why), ..Selecting::default() };
        };
        let mut selecting = Selecting { incomplete: self.incomplete(selection, &kept.needs), ..Selecting::default() };
        let mut others = 0;
        for key in &kept.needs.objects {
            let Some(cache) = self.caches.get(key) else { continue };
            for (name, (joined, seq)) in kept.members.get(key).into_iter().flatten() {
                let Some(traits) = cache.objects.get(name).and_then(|tracked| tracked.traits.as_deref()) else { continue };
                selecting.total += 1;
                selecting.newest = selecting.newest.max(traits.created());
                if known.contains(name) || others < MOST {
                    others += usize::from(!known.contains(name));
                    selecting.objects.push(selected(object_of(key, name), traits, (*joined, *seq)));
                }
            }
            // Objects that are known, and whose cluster is deleted: after a restart nothing decides whether they are selected.
            for name in known.iter().filter(|name| !self.contains(selection, key, name)) {
                let Some(traits) = cache.objects.get(name).and_then(|tracked| tracked.traits.as_deref()) else { continue };
                if self.is_in(selection, key, name, true).is_none() {
                    selecting.total += 1;
                    selecting.objects.push(selected(object_of(key, name), traits, (Joined::Moved, 0)));
                }
            }
        }
        selecting.source = selection.source.as_ref().map(|source| self.origin(selection, source));
        if let Some(fleet) = selection.fleet.as_ref().filter(|_| selecting.incomplete.is_none()) {
            let missing = fleet.groups.iter().filter(|group| self.group(fleet, selection, group).is_none());
            selecting.missing_groups = missing.cloned().collect();
        }
        selecting
    }

    /// Returns the objects of a selection of a `PipelineSet`, at most `most`.
    pub fn sources(&self, selection: &Arc<Selection>, most: usize) -> Sources {
        let Some(kept) = self.selections.all.get(selection) else {
            let why = (Reason::CacheNotSynced, "no set has requested these objects yet".to_owned());
            return Sources { incomplete: Some(why), ..Sources::default() };
        };
        let mut sources = Sources { incomplete: self.incomplete(selection, &kept.needs), ..Sources::default() };
        for key in &kept.needs.objects {
            let Some(cache) = self.caches.get(key) else { continue };
            for (name, (joined, _)) in kept.members.get(key).into_iter().flatten() {
                let Some(traits) = cache.objects.get(name).and_then(|tracked| tracked.traits.as_deref()) else { continue };
                sources.total += 1;
                sources.newest = sources.newest.max(traits.created());
                if sources.objects.len() < most {
                    sources.objects.push(source(name, traits, *joined));
                }
            }
        }
        sources.objects.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        sources
    }

    /// Whether a selection contains an object now.
    pub fn is_source(&self, selection: &Arc<Selection>, object: &Application) -> bool {
        let name = ObjectName::new(&object.object.namespace, &object.object.name);
        self.locate(object).is_some_and(|key| self.contains(selection, &key, &name))
    }

    /// Returns why objects of a selection can be missing.
    fn incomplete(&self, selection: &Selection, needs: &Needs) -> Option<(Reason, String)> {
        if let (Scope::Namespaces(watched), Some(all), None) = (&self.scope, &selection.namespaces, &selection.cluster_ref)
            && let Some(unwatched) = all.iter().find(|namespace| !watched.contains(*namespace))
        {
            let message = format!("namespace {unwatched} is not one of the watched namespaces");
            return Some((Reason::NamespaceNotWatched, message));
        }
        let clusters = needs.clusters.iter().filter(|_| selection.needs_clusters());
        needs.objects.iter().chain(clusters).chain(&needs.groups).find_map(|key| match &self.caches.get(key)?.phase {
            Phase::Synced => None,
            Phase::Unknown(reason, message) => Some((*reason, message.clone())),
        })
    }

    /// Returns the object that all selected objects come from.
    fn origin(&self, selection: &Selection, source: &Source) -> TargetOrigin {
        let Source { kind, namespace, name } = source;
        let key = self.locate(&fleet_object(selection, kind, namespace));
        let cache = key.and_then(|key| self.caches.get(&key));
        let traits = cache.and_then(|cache| cache.objects.get(&ObjectName::new(namespace, name))?.traits.as_ref());
        let repository = match traits.and_then(|traits| traits.fleet.as_deref()) {
            Some(FleetTraits::Repository(repository)) => repository.clone(),
            _ => String::new(),
        };
        TargetOrigin { kind: (*kind).to_owned(), name: name.clone(), repository }
    }
}

fn source(ObjectName { namespace, name }: &ObjectName, traits: &Traits, joined: Joined) -> SourceObject {
    SourceObject {
        namespace: namespace.clone(),
        name: name.clone(),
        labels: traits.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        joined,
        created: traits.created(),
    }
}

fn selected(object: Application, traits: &Traits, (joined, seq): (Joined, u64)) -> Selected {
    Selected {
        object,
        joined,
        seq,
        created: traits.created(),
        fleet_cluster: traits.fleet_cluster_name(),
        cluster: traits.cluster.clone(),
        bundle: traits.bundle().map(str::to_owned),
    }
}
