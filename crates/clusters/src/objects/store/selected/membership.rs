//! Which objects a selection contains. An event of an object decides about it. An event of a `Cluster` or a `ClusterGroup` of Fleet decides again
//! about the objects that depend on it.
//!
//! In: the traits of an object before and after an event. Out: the members of each selection, and the pipelines to wake.

use std::collections::HashSet;
use std::sync::Arc;

use kube::core::Expression;

use super::fleet_object;
use crate::objects::cache::{CacheKey, Phase, Ring, Tracked, object_of};
use crate::objects::store::Store;
use relaybook_api::ObjectName;
use relaybook_core::observe::{EventOrigin, FleetTraits, Relation, Traits};
use relaybook_core::reading::selection::{FleetClusters, Joined, OfCluster, Selection};
use relaybook_core::reading::{Follower, FollowerKind};

impl Store {
    /// Updates the traits of an object, and what depends on them. `None`: it does not exist. Returns the pipelines whose selections have
    /// changed.
    pub(crate) fn update_traits(
        &mut self,
        key: &CacheKey,
        name: &ObjectName,
        traits: Option<&Traits>,
        origin: EventOrigin,
    ) -> HashSet<Follower> {
        let Some(cache) = self.caches.get_mut(key).filter(|cache| cache.keeps_traits) else { return HashSet::new() };
        let is_synced = cache.phase == Phase::Synced;
        let before = match cache.objects.get_mut(name) {
            Some(tracked) => std::mem::replace(&mut tracked.traits, traits.cloned().map(Box::new)),
            None if traits.is_none() => return HashSet::new(),
            None => {
                let tracked = Tracked { traits: traits.cloned().map(Box::new), ..Tracked::unseen(false) };
                cache.objects.insert(Arc::new(name.clone()), Box::new(tracked));
                None
            }
        };
        let is_created = is_synced && before.is_none() && traits.is_some() && origin == EventOrigin::Changed;
        if let Some(tracked) = cache.objects.get_mut(name) {
            tracked.is_created = is_created || (tracked.is_created && before.is_some());
        }
        let joined = match (&before, is_created) {
            (_, true) => Joined::Created,
            (None, false) => Joined::Listed,
            (Some(_), false) => Joined::Moved,
        };
        // The pipelines of a set depend on the labels of its sources.
        let is_relabeled = before.as_deref().zip(traits).is_some_and(|(before, now)| !before.same_labels(now));
        let mut wake = HashSet::new();
        for selection in self.selections.objects_in.get(key).cloned().unwrap_or_default() {
            let is_changed = self.decide(&selection, key, name, joined);
            if is_synced && (is_changed || is_relabeled) {
                let by = self.selections.all.get(&selection).into_iter().flat_map(|kept| &kept.by);
                wake.extend(by.filter(|by| is_changed || by.kind == FollowerKind::PipelineSet).cloned());
            }
        }
        wake.extend(self.update_check_in(key, name, traits));
        if is_synced {
            wake.extend(self.update_cluster(key, name, before.as_deref(), traits));
        }
        wake
    }

    /// Notes whether the agent of a `Cluster` has reported. Returns the pipelines that waited for it.
    fn update_check_in(&mut self, key: &CacheKey, name: &ObjectName, now: Option<&Traits>) -> HashSet<Follower> {
        if !self.selections.clusters_in.contains_key(key) {
            return HashSet::new();
        }
        match now.map(|now| now.fleet.as_deref()) {
            Some(Some(FleetTraits::LastSeen(last))) => self.note_check_in(name, last),
            None if key.kind.kind() == "Cluster" => self.forget_check_in(name),
            _ => HashSet::new(),
        }
    }

    /// Decides again about the objects that depend on a `Cluster` or a `ClusterGroup`.
    fn update_cluster(
        &mut self,
        key: &CacheKey,
        name: &ObjectName,
        before: Option<&Traits>,
        now: Option<&Traits>,
    ) -> HashSet<Follower> {
        let Some(selections) = self.selections.clusters_in.get(key).cloned() else { return HashSet::new() };
        let mut wake = HashSet::new();
        for selection in selections {
            let changed = if let Some(source) = selection.source.as_ref().filter(|source| source.kind == key.kind.kind()) {
                (&source.namespace, &source.name) == (&name.namespace, &name.name)
                    && before.map(|t| &t.fleet) != now.map(|t| &t.fleet)
            } else if key.kind.kind() == "ClusterGroup" {
                let is_named = selection.fleet.as_ref().is_some_and(|fleet| fleet.groups.contains(&name.name));
                is_named && before.map(|t| &t.fleet) != now.map(|t| &t.fleet) && {
                    self.decide_all(&selection, Joined::Moved);
                    true
                }
            } else {
                let differ = selection.needs_clusters() && !same_labels(before, now) && now.is_some();
                differ && self.decide_cluster(&selection, name, before.is_none())
            };
            if changed {
                wake.extend(self.selections.all.get(&selection).into_iter().flat_map(|kept| kept.by.iter().cloned()));
            }
        }
        wake
    }

    /// Decides again about the objects of one `Cluster`. `is_new`: the `Cluster` was not known before.
    fn decide_cluster(&mut self, selection: &Arc<Selection>, cluster: &ObjectName, is_new: bool) -> bool {
        let mut changed = false;
        for key in self.selections.all.get(selection).map(|kept| kept.needs.objects.clone()).unwrap_or_default() {
            let Some(cache) = self.caches.get(&key) else { continue };
            let is_there = |tracked: &Tracked| {
                tracked.traits.as_ref().and_then(|t| t.fleet_cluster())
                    == Some((cluster.namespace.as_str(), cluster.name.as_str()))
            };
            let there = cache.objects.iter().filter(|(_, tracked)| is_there(tracked));
            let there: Vec<(Arc<ObjectName>, Joined)> = there
                .map(|(name, tracked)| {
                    let joined = match (is_new, tracked.is_created) {
                        (true, true) => Joined::Created,
                        (true, false) => Joined::Listed,
                        (false, _) => Joined::Moved,
                    };
                    (name.clone(), joined)
                })
                .collect();
            for (name, joined) in there {
                changed |= self.decide(selection, &key, &name, joined);
            }
        }
        changed
    }

    /// Decides about all objects of a selection.
    pub(super) fn decide_all(&mut self, selection: &Arc<Selection>, joined: Joined) {
        for key in self.selections.all.get(selection).map(|kept| kept.needs.objects.clone()).unwrap_or_default() {
            let Some(cache) = self.caches.get(&key) else { continue };
            for name in cache.objects.keys().cloned().collect::<Vec<_>>() {
                self.decide(selection, &key, &name, joined);
            }
        }
    }

    /// Decides again about all objects that depend on this cache, after its list. Returns the pipelines that select them.
    pub(crate) fn decide_after_list(&mut self, key: &CacheKey) -> HashSet<Follower> {
        let selections = self.selections.clusters_in.get(key).cloned().unwrap_or_default();
        for selection in &selections {
            self.decide_all(selection, Joined::Listed);
        }
        let kept = selections.iter().filter_map(|selection| self.selections.all.get(selection));
        kept.flat_map(|kept| kept.by.iter().cloned()).collect()
    }

    /// Decides whether a selection contains an object. Returns whether that has changed.
    fn decide(&mut self, selection: &Arc<Selection>, key: &CacheKey, name: &ObjectName, joined: Joined) -> bool {
        let was = self.contains(selection, key, name);
        let Some(is) = self.is_in(selection, key, name, was) else { return false };
        if is == was {
            return false;
        }
        let seq = self.next();
        let known = self.caches.get(key).and_then(|cache| cache.objects.get_key_value(name)).map(|(known, _)| known.clone());
        let Some(kept) = self.selections.all.get_mut(selection) else { return false };
        let members = kept.members.entry(key.clone()).or_default();
        if is {
            members.insert(known.unwrap_or_else(|| Arc::new(name.clone())), (joined, seq));
            self.begin_selected_ring(key, name);
        } else {
            members.remove(name);
            self.end_ring(key, name);
        }
        true
    }

    pub(super) fn contains(&self, selection: &Arc<Selection>, key: &CacheKey, name: &ObjectName) -> bool {
        let members = self.selections.all.get(selection).and_then(|kept| kept.members.get(key));
        members.is_some_and(|members| members.contains_key(name))
    }

    /// Returns whether a selection contains an object. `None`: it stays as it is, because its cluster is not known.
    pub(super) fn is_in(&self, selection: &Selection, key: &CacheKey, name: &ObjectName, was: bool) -> Option<bool> {
        let traits = self.caches.get(key)?.objects.get(name).and_then(|tracked| tracked.traits.as_deref());
        let Some(traits) = traits.filter(|traits| selection.selects(&name.namespace, &name.name, traits)) else {
            return Some(false);
        };
        let Some(fleet) = &selection.fleet else { return Some(true) };
        let Some((namespace, cluster)) = traits.fleet_cluster() else { return Some(false) };
        let known = self.fleet_cluster(selection, namespace, cluster);
        if known.is_none() && was {
            return None;
        }
        let of = OfCluster { name: cluster, namespace, traits: known };
        Some(fleet.selects(of, |group| self.group(fleet, selection, group)))
    }

    /// Returns the traits of a `Cluster`.
    fn fleet_cluster(&self, selection: &Selection, namespace: &str, name: &str) -> Option<&Traits> {
        let cache = self.caches.get(&self.locate(&fleet_object(selection, "Cluster", namespace))?)?;
        cache.objects.get(&ObjectName::new(namespace, name))?.traits.as_deref()
    }

    /// Returns the requirements of a `ClusterGroup`.
    pub(super) fn group(&self, fleet: &FleetClusters, selection: &Selection, name: &str) -> Option<&[Expression]> {
        let namespace = fleet.workspace.as_str();
        let cache = self.caches.get(&self.locate(&fleet_object(selection, "ClusterGroup", namespace))?)?;
        let traits = cache.objects.get(&ObjectName::new(namespace, name))?.traits.as_ref()?;
        match traits.fleet.as_deref()? {
            FleetTraits::Group(requirements) => requirements.as_deref(),
            FleetTraits::Repository(_) | FleetTraits::LastSeen(_) => None,
        }
    }

    /// Starts to keep the observations of an object.
    fn begin_selected_ring(&mut self, key: &CacheKey, name: &ObjectName) {
        let Some(tracked) = self.caches.get_mut(key).and_then(|cache| cache.objects.get_mut(name)) else { return };
        if tracked.ring.is_some() {
            return;
        }
        let mut ring = Ring::default();
        if matches!(tracked.relation.as_deref(), Some(Relation::Parent(_))) {
            (tracked.ring, tracked.seq) = (Some(ring), 0);
            self.register_parent(key, name, false);
            return;
        }
        if tracked.seq > 0 {
            ring.push(tracked.seq, &tracked.current);
        }
        tracked.ring = Some(ring);
    }

    /// Stops to keep the observations of an object that no pipeline names or selects any more.
    pub(super) fn end_ring(&mut self, key: &CacheKey, name: &ObjectName) {
        if self.wanted_by.contains_key(&object_of(key, name)) || self.is_selected(key, name) {
            return;
        }
        self.parents.remove(key, name);
        if let Some(tracked) = self.caches.get_mut(key).and_then(|cache| cache.objects.get_mut(name)) {
            tracked.ring = None;
        }
    }
}

/// Whether an object has the same labels as before.
fn same_labels(before: Option<&Traits>, now: Option<&Traits>) -> bool {
    matches!((before, now), (Some(before), Some(now)) if before.same_labels(now))
}
