//! Records what a watch has observed, and finds the pipelines that depend on it.
//!
//! In: the observation of one object, or the end of a list. Out: the pipelines to wake. Nobody is woken before the first list of a cache is
//! complete.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use super::Store;
use crate::objects::cache::{CacheId, Phase, object_of, unseen_values};
use relaybook_api::{ObjectName, Status};
use relaybook_core::observe::{EventOrigin, ReadObject, Relation, Traits, observe};
use relaybook_core::reading::Follower;

impl Store {
    /// Records what an event says about an object. `seen`: `None` if it cannot be parsed. Returns the pipelines that depend on it, and its
    /// name as the cache has it, so that it is in memory once.
    pub fn record_event(
        &mut self,
        id: &CacheId,
        name: ObjectName,
        seen: Option<(ReadObject, Option<Traits>)>,
        origin: EventOrigin,
    ) -> (Vec<Follower>, Arc<ObjectName>) {
        let wake = match seen {
            Some((seen, traits)) => self.record_with(id, &name, seen, traits.as_ref(), origin),
            None => self.unreadable(id, &name),
        };
        let known = self.cache(id).and_then(|cache| cache.objects.get_key_value(&name)).map(|(known, _)| known.clone());
        (wake, known.unwrap_or_else(|| Arc::new(name)))
    }

    /// Records what was observed of an object. Returns the pipelines that depend on it.
    pub fn record(&mut self, id: &CacheId, name: &ObjectName, seen: ReadObject, origin: EventOrigin) -> Vec<Follower> {
        self.record_with(id, name, seen, None, origin)
    }

    /// The same, with the traits by which the object is selected. `None`: it does not exist, or the cache keeps no traits.
    pub fn record_with(
        &mut self,
        id: &CacheId,
        name: &ObjectName,
        seen: ReadObject,
        traits: Option<&Traits>,
        origin: EventOrigin,
    ) -> Vec<Follower> {
        let Some(cache) = self.caches.get_mut(&id.key).filter(|c| c.generation == id.generation) else { return Vec::new() };
        let touched = cache.update_families(name, seen.relation.as_ref());
        let was_unread = cache.unread.remove(name).then(|| name.namespace.clone());
        let mut wake: Vec<_> = self.update_traits(&id.key, name, traits, origin).into_iter().collect();
        wake.extend(self.record_own(id, name, seen, origin));
        wake.extend(self.recombine_families(&id.key, &touched, was_unread.as_deref()));
        wake
    }

    /// Records an observation for the object itself, without the parents that it is a part of.
    fn record_own(&mut self, id: &CacheId, name: &ObjectName, mut seen: ReadObject, origin: EventOrigin) -> Vec<Follower> {
        let (absent, seq, key) = (self.next(), self.next(), &id.key);
        let is_named = self.wanted_by.contains_key(&object_of(key, name));
        let is_wanted = is_named || self.is_selected(key, name);
        let Some(cache) = self.caches.get_mut(key) else { return Vec::new() };
        if !is_named && seen.observation.status == Status::NotFound {
            cache.objects.remove(name);
            self.parents.remove(key, name);
            return Vec::new();
        }
        let created = origin == EventOrigin::Changed
            && cache.objects.get(name).is_none_or(|t| {
                // An entry without an observation was made for its traits, just now.
                let is_new = t.seq == 0 && !t.unreadable;
                t.relation.is_none() && (is_new || t.current.status == Status::NotFound)
            });
        if seen.observation.status == Status::NotFound {
            // The message about the removal goes to whom the object has named last.
            let last = cache.objects.get(name).filter(|tracked| tracked.seq > 0);
            let unseen = || unseen_values(key.record.as_ref());
            seen.observation.recorded = last.map_or_else(unseen, |tracked| tracked.current.recorded.clone());
        }
        let said = cache.observations.shared(&seen.observation);
        if let Some(Relation::Parent(parent)) = &mut seen.relation {
            parent.share_own(|own| cache.observations.shared(own));
        }
        let nothing = (created && cache.phase == Phase::Synced).then(|| cache.observations.shared(&observe(None, None)));
        let tracked = cache.tracked(name, is_wanted);
        if let (Some(nothing), Some(ring)) = (nothing, &mut tracked.ring)
            && tracked.seq == 0
        {
            // The status of a pipeline can have an earlier object of this name, which was deleted before the list.
            ring.push(absent, &nothing);
        }
        let was_unreadable = std::mem::take(&mut tracked.unreadable);
        let origin = if created { EventOrigin::Created } else { origin };
        tracked.relation = seen.relation.map(|relation| Box::new(relation.following(tracked.relation.as_deref(), origin)));
        if matches!(tracked.relation.as_deref(), Some(Relation::Parent(_))) {
            return if is_wanted { self.register_parent(key, name, was_unreadable) } else { Vec::new() };
        }
        let wakes = (tracked.record(seq, said) || was_unreadable) && cache.phase == Phase::Synced;
        self.parents.remove(key, name);
        if wakes && is_wanted { self.interested(key, name) } else { Vec::new() }
    }

    /// Records that an object exists and cannot be parsed. Its last observation is outdated, but the object is not deleted. Returns the
    /// pipelines that depend on it.
    pub fn unreadable(&mut self, id: &CacheId, name: &ObjectName) -> Vec<Follower> {
        let by = self.wanted_by.get(&object_of(&id.key, name));
        let Some(cache) = self.caches.get_mut(&id.key).filter(|c| c.generation == id.generation) else { return Vec::new() };
        let is_synced = cache.phase == Phase::Synced;
        let tracked = cache.tracked(name, by.is_some());
        let is_news = !std::mem::replace(&mut tracked.unreadable, true);
        let part = tracked.relation.as_deref().and_then(Relation::as_part);
        let touched = part.map_or(&[][..], |part| part.families()).to_vec();
        let wakes = is_news && is_synced;
        let mut wake: Vec<_> = by.into_iter().flatten().filter(|_| wakes).cloned().collect();
        let unread = tracked.seq == 0 && tracked.relation.is_none() && cache.unread.insert(name.clone());
        wake.extend(self.recombine_families(&id.key, &touched, unread.then_some(name.namespace.as_str())));
        wake
    }

    /// Completes a list: objects that it does not contain are gone, and the cache is synced. Returns the pipelines that are affected, or
    /// with `all` every pipeline that depends on the cache.
    pub fn listed<N>(&mut self, id: &CacheId, seen: &HashSet<N>, all: bool) -> Vec<Follower>
    where
        N: Borrow<ObjectName> + Eq + Hash,
    {
        let Some(cache) = self.cache(id) else { return Vec::new() };
        let gone = cache.objects.keys().filter(|name| !seen.contains::<ObjectName>(name));
        let gone: Vec<Arc<ObjectName>> = gone.cloned().collect();
        let mut wake = HashSet::new();
        for name in gone {
            wake.extend(self.record(id, &name, ReadObject::nothing(), EventOrigin::Listed));
        }
        wake.extend(self.set_phase(id, Phase::Synced).1);
        wake.extend(self.recombine_all(&id.key));
        wake.extend(self.decide_after_list(&id.key));
        if all {
            wake.extend(self.dependents(&id.key));
        }
        wake.into_iter().collect()
    }
}
