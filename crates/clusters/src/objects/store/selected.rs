//! Objects that pipelines select without naming them: which caches a selection needs, and which objects it contains now.
//!
//! In: selections, and the traits of each object that is recorded. Out: the selected objects, and the pipelines to wake when one of them
//! changes, comes or goes. An object keeps its observations from the event on with which a selection begins to contain it. So nothing is
//! lost between this event and the reconcile that makes it a target.
//!
//! Whether a `BundleDeployment` of Fleet is selected depends on its `Cluster` and on `ClusterGroups`, too. So an event of these decides
//! again about the `BundleDeployments` of the cluster. A `Cluster` that is deleted decides nothing: Fleet then deletes its
//! `BundleDeployments`, and each of these deletions counts.

mod contents;
mod membership;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Declared, Store};
use crate::Scope;
use crate::objects::cache::{CacheId, CacheKey};
use relaybook_api::ObjectName;
use relaybook_api::pipeline::source::FLEET_VERSION;
use relaybook_api::values::kind::ObjectKind;
use relaybook_api::values::refs::ClusterAppRef;
use relaybook_core::reading::selection::{Joined, Selection};
use relaybook_core::reading::{Application, Follower};

/// All selections.
#[derive(Default)]
pub(super) struct Selections {
    all: HashMap<Arc<Selection>, Kept>,
    /// By pipeline: its selections.
    by_pipeline: HashMap<Follower, HashSet<Arc<Selection>>>,
    /// By cache: the selections whose objects it contains.
    objects_in: HashMap<CacheKey, Vec<Arc<Selection>>>,
    /// By cache of `Clusters` or `ClusterGroups`: the selections that depend on them.
    clusters_in: HashMap<CacheKey, Vec<Arc<Selection>>>,
}

/// One selection.
struct Kept {
    by: HashSet<Follower>,
    /// The objects that it contains, by cache.
    members: HashMap<CacheKey, BTreeMap<Arc<ObjectName>, (Joined, u64)>>,
    needs: Needs,
}

/// The caches that a selection needs.
#[derive(Clone, Default)]
struct Needs {
    /// Caches of the objects.
    objects: Vec<CacheKey>,
    /// Caches of their parts.
    parts: Vec<CacheKey>,
    /// Caches of `Clusters`.
    clusters: Vec<CacheKey>,
    /// Caches of `ClusterGroups`.
    groups: Vec<CacheKey>,
    /// Caches of the object that all selected objects come from.
    sources: Vec<CacheKey>,
}

impl Needs {
    fn all(&self) -> impl Iterator<Item = &CacheKey> {
        self.objects.iter().chain(&self.parts).chain(self.of_others())
    }

    /// Caches of objects that tell something about the selected ones.
    fn of_others(&self) -> impl Iterator<Item = &CacheKey> {
        self.clusters.iter().chain(&self.groups).chain(&self.sources)
    }
}

impl Store {
    /// Replaces the selections of a pipeline.
    pub fn select(
        &mut self,
        pipeline: &Follower,
        selections: HashSet<Arc<Selection>>,
        parent: &CancellationToken,
    ) -> Declared {
        let mut declared = Declared::default();
        let old = self.selections.by_pipeline.remove(pipeline).unwrap_or_default();
        for selection in selections.difference(&old) {
            self.begin_selection(pipeline, selection, parent, &mut declared);
        }
        for selection in old.difference(&selections) {
            self.end_selection(pipeline, selection, &mut declared);
        }
        if !selections.is_empty() {
            self.selections.by_pipeline.insert(pipeline.clone(), selections);
        }
        declared
    }

    fn begin_selection(
        &mut self,
        pipeline: &Follower,
        selection: &Arc<Selection>,
        parent: &CancellationToken,
        declared: &mut Declared,
    ) {
        let is_new = !self.selections.all.contains_key(selection);
        if is_new {
            for namespace in selection.namespaces.iter().flatten() {
                self.admit(&object_like(selection, &selection.kind, namespace));
            }
            let needs = self.needs_of(selection);
            for key in needs.all() {
                self.retain_cache(key, parent, declared);
            }
            for key in needs.objects.iter().chain(needs.of_others()) {
                self.keep_traits(key, parent, declared);
            }
            for key in &needs.objects {
                self.selections.objects_in.entry(key.clone()).or_default().push(selection.clone());
            }
            for key in needs.of_others() {
                self.selections.clusters_in.entry(key.clone()).or_default().push(selection.clone());
            }
            let kept = Kept { by: HashSet::new(), members: HashMap::new(), needs };
            self.selections.all.insert(selection.clone(), kept);
        }
        if let Some(kept) = self.selections.all.get_mut(selection) {
            kept.by.insert(pipeline.clone());
            for key in kept.needs.all() {
                *self.needed_by.entry(key.clone()).or_default().entry(pipeline.clone()).or_default() += 1;
            }
        }
        if is_new {
            self.decide_all(selection, Joined::Listed);
        }
    }

    fn end_selection(&mut self, pipeline: &Follower, selection: &Arc<Selection>, declared: &mut Declared) {
        let Some(kept) = self.selections.all.get_mut(selection) else { return };
        kept.by.remove(pipeline);
        let needs = kept.needs.clone();
        for key in needs.all() {
            self.uncount(key, pipeline);
        }
        if self.selections.all.get(selection).is_some_and(|kept| !kept.by.is_empty()) {
            return;
        }
        let kept = self.selections.all.remove(selection);
        let forget = |of: &mut HashMap<CacheKey, Vec<Arc<Selection>>>, key: &CacheKey| {
            if let Some(all) = of.get_mut(key) {
                all.retain(|other| other != selection);
                if all.is_empty() {
                    of.remove(key);
                }
            }
        };
        for key in &needs.objects {
            forget(&mut self.selections.objects_in, key);
        }
        for key in needs.of_others() {
            forget(&mut self.selections.clusters_in, key);
        }
        for (key, members) in kept.into_iter().flat_map(|kept| kept.members) {
            for name in members.keys() {
                self.end_ring(&key, name);
            }
        }
        for key in needs.all() {
            self.release_cache(key, declared);
        }
    }

    /// Returns all selections, by pipeline or set.
    pub(super) fn all_selections(&self) -> impl Iterator<Item = (&Follower, &HashSet<Arc<Selection>>)> {
        self.selections.by_pipeline.iter()
    }

    /// Returns the caches that a selection has requested.
    pub(super) fn caches_of(&self, selection: &Arc<Selection>) -> impl Iterator<Item = &CacheKey> {
        self.selections.all.get(selection).into_iter().flat_map(|kept| kept.needs.all())
    }

    /// Returns the caches that a selection needs.
    fn needs_of(&self, selection: &Selection) -> Needs {
        let namespaces: Vec<String> = match &self.scope {
            Scope::Namespaces(watched) if selection.cluster_ref.is_none() => {
                let selected =
                    |namespace: &&String| selection.namespaces.as_ref().is_none_or(|all| all.contains(*namespace));
                watched.iter().filter(selected).cloned().collect()
            }
            Scope::All | Scope::Namespaces(_) => self.namespaces_elsewhere(selection),
        };
        let mut needs = Needs::default();
        for namespace in &namespaces {
            let all = self.all_caches(&object_like(selection, &selection.kind, namespace));
            let mut all = all.into_iter();
            needs.objects.extend(all.next());
            needs.parts.extend(all);
        }
        if let Some(fleet) = &selection.fleet {
            let of = |kind: &'static str, namespace: &String| self.locate(&fleet_object(selection, kind, namespace));
            needs.clusters.extend(namespaces.iter().filter_map(|namespace| of("Cluster", namespace)));
            if !fleet.groups.is_empty() {
                needs.groups.extend(of("ClusterGroup", &fleet.workspace));
            }
        }
        if let Some(source) = &selection.source {
            needs.sources.extend(self.locate(&fleet_object(selection, source.kind, &source.namespace)));
        }
        for keys in [&mut needs.objects, &mut needs.parts, &mut needs.clusters, &mut needs.groups] {
            let mut seen = HashSet::new();
            keys.retain(|key| seen.insert(key.clone()));
        }
        needs
    }

    /// Makes a cache keep traits. If it has objects already, it restarts, because their traits are not known.
    fn keep_traits(&mut self, key: &CacheKey, parent: &CancellationToken, declared: &mut Declared) {
        let Some(cache) = self.caches.get_mut(key) else { return };
        if std::mem::replace(&mut cache.keeps_traits, true) || declared.started.iter().any(|(id, _)| id.key == *key) {
            return;
        }
        declared.started.extend(self.restart_caches(|other| other == key, parent));
    }

    /// Whether the objects of this cache have traits.
    pub fn keeps_traits(&self, id: &CacheId) -> bool {
        self.cache(id).is_some_and(|cache| cache.keeps_traits)
    }

    /// Whether any selection contains this object.
    pub(super) fn is_selected(&self, key: &CacheKey, name: &ObjectName) -> bool {
        self.selecting(key, name).next().is_some()
    }

    /// Returns the pipelines that select this object.
    pub(super) fn selecting<'a>(&'a self, key: &'a CacheKey, name: &'a ObjectName) -> impl Iterator<Item = &'a Follower> {
        let selections = self.selections.objects_in.get(key).into_iter().flatten();
        let kept = selections.filter_map(|selection| self.selections.all.get(selection));
        let containing = kept.filter(move |kept| kept.members.get(key).is_some_and(|members| members.contains_key(name)));
        containing.flat_map(|kept| &kept.by)
    }

    /// Removes the members of a cache that has lost its objects.
    pub(super) fn clear_members(&mut self, key: &CacheKey) {
        for selection in self.selections.objects_in.get(key).cloned().unwrap_or_default() {
            if let Some(kept) = self.selections.all.get_mut(&selection) {
                kept.members.remove(key);
            }
        }
    }
}

/// Returns an object of another kind of Fleet.
fn fleet_object(selection: &Selection, kind: &'static str, namespace: &str) -> Application {
    let kind = &ObjectKind::known(FLEET_VERSION, kind);
    Application { object: object_like(selection, kind, namespace).object, ..Application::default() }
}

/// Returns an object of a kind in the cluster of a selection.
fn object_like(selection: &Selection, kind: &ObjectKind, namespace: &str) -> Application {
    let object = ClusterAppRef {
        api_version: kind.api_version().to_owned(),
        kind: kind.kind().to_owned(),
        name: String::new(),
        namespace: namespace.to_owned(),
        cluster_ref: selection.cluster_ref.clone(),
    };
    let (revision_path, cluster_path) = (selection.revision_path.clone(), selection.cluster_path.clone());
    Application { object, revision_path, cluster_path, record: selection.record.clone() }
}
