//! The data of all caches, and the pipelines that depend on it. Plain data behind one lock.

mod check_in;
mod kin;
pub(super) mod narrow;
mod parents;
mod record;
mod selected;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::cache::{Cache, CacheId, CacheKey, Phase, Tracked, name_of, not_synced, unseen};
use crate::Scope;
use check_in::CheckIns;
use narrow::Narrow;
use parents::Parents;
use relaybook_api::values::refs::ClusterRef;
use relaybook_api::{ObjectName, Status};
use relaybook_core::reading::is_same_cluster;
use relaybook_core::reading::{Application, Follower, Now, Reading, Reason};
use selected::Selections;

/// Changes to the watches after a pipeline has declared what it needs.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    /// Caches whose watch must be started.
    pub started: Vec<(CacheId, CancellationToken)>,
    /// Caches that no pipeline needs. Each has the mark that [`Store::expire`] requires.
    pub idle: Vec<(CacheId, u64)>,
}

impl Declared {
    fn extend(&mut self, more: Self) {
        self.started.extend(more.started);
        self.idle.extend(more.idle);
    }
}

/// The data of all caches.
pub(crate) struct Store {
    scope: Scope,
    fleet_everywhere: bool,
    /// The kinds of other clusters that are watched by namespace.
    narrow: Narrow,
    caches: HashMap<CacheKey, Cache>,
    needs: HashMap<Follower, HashSet<Arc<Application>>>,
    wanted_by: HashMap<Arc<Application>, HashSet<Follower>>,
    /// By cache: the pipelines that need it, each with the number of objects for which it does.
    needed_by: HashMap<CacheKey, HashMap<Follower, usize>>,
    /// The named and selected objects that are read together with parts.
    parents: Parents,
    selections: Selections,
    check_ins: CheckIns,
    /// By reference: the identity of the remote cluster, so that a change to another cluster is detected.
    identities: HashMap<ClusterRef, String>,
    /// Source of sequence numbers, generations and marks. It increases across all caches, so a cache that is created again never repeats
    /// one.
    counter: u64,
}

impl Store {
    pub fn new(scope: Scope, fleet_everywhere: bool) -> Self {
        Self {
            scope,
            fleet_everywhere,
            narrow: Narrow::new(),
            caches: HashMap::new(),
            needs: HashMap::new(),
            wanted_by: HashMap::new(),
            needed_by: HashMap::new(),
            parents: Parents::default(),
            selections: Selections::default(),
            check_ins: CheckIns::new(),
            identities: HashMap::new(),
            counter: 0,
        }
    }

    /// Replaces the set of objects that a pipeline needs.
    pub fn declare(&mut self, pipeline: &Follower, refs: HashSet<Application>, parent: &CancellationToken) -> Declared {
        let mut declared = Declared::default();
        let old = self.needs.remove(pipeline).unwrap_or_default();
        let refs: HashSet<Arc<Application>> = refs.into_iter().map(|object| self.shared(object)).collect();
        for object in refs.difference(&old) {
            self.admit(object);
            if self.wanted_by.entry(object.clone()).or_default().insert(pipeline.clone()) {
                self.count_need(object, pipeline);
                self.retain_caches(object, parent, &mut declared);
            }
        }
        for object in old.difference(&refs) {
            self.uncount_need(object, pipeline);
            let Some(by) = self.wanted_by.get_mut(object) else { continue };
            by.remove(pipeline);
            if by.is_empty() {
                self.wanted_by.remove(object);
                self.release_caches(object, &mut declared);
            }
        }
        if !refs.is_empty() {
            self.needs.insert(pipeline.clone(), refs);
        }
        declared
    }

    /// Returns the object as other pipelines share it, because many pipelines can have many objects.
    fn shared(&self, object: Application) -> Arc<Application> {
        let known = self.wanted_by.get_key_value(&object).map(|(known, _)| known);
        known.cloned().unwrap_or_else(|| Arc::new(object))
    }

    /// Sets the cluster that a reference resolves to. If the cluster is another one, the data of its caches is invalid: they restart, and
    /// their objects have no past. Returns the watches to start. Later events of the old watches are ignored, because their generation is
    /// old.
    pub fn identify(
        &mut self,
        cluster: &ClusterRef,
        identity: &str,
        parent: &CancellationToken,
    ) -> Vec<(CacheId, CancellationToken)> {
        let before = self.identities.insert(cluster.clone(), identity.to_owned());
        if before.is_none_or(|before| is_same_cluster(&before, identity)) {
            return Vec::new();
        }
        self.restart_caches(|key| key.cluster.as_ref() == Some(cluster), parent)
    }

    /// Removes the identity of a cluster that no pipeline needs any more.
    pub fn forget(&mut self, cluster: &ClusterRef) {
        self.identities.remove(cluster);
        self.forget_narrow(cluster);
    }

    /// Returns the number of objects in a cache.
    pub fn len(&self, id: &CacheId) -> usize {
        self.cache(id).map_or(0, |cache| cache.objects.len())
    }

    /// Removes all objects of a cache and sets the reason. Unknown objects do not count as deleted. Returns whether the reason is new, and
    /// the pipelines that depend on the cache.
    pub fn empty(&mut self, id: &CacheId, reason: Reason, message: &str) -> (bool, Vec<Follower>) {
        if let Some(cache) = self.caches.get_mut(&id.key).filter(|c| c.generation == id.generation) {
            cache.clear();
            self.clear_members(&id.key);
        }
        self.set_phase(id, Phase::Unknown(reason, message.to_owned()))
    }

    /// Restarts all caches. Their data may be older than what another replica has observed and written. Returns the watches to start.
    pub fn renew(&mut self, parent: &CancellationToken) -> Vec<(CacheId, CancellationToken)> {
        self.restart_caches(|_| true, parent)
    }

    /// Restarts the selected caches without objects. Returns the watches to start.
    fn restart_caches(
        &mut self,
        which: impl Fn(&CacheKey) -> bool,
        parent: &CancellationToken,
    ) -> Vec<(CacheId, CancellationToken)> {
        let mut started: Vec<(CacheId, CancellationToken)> = Vec::new();
        for (key, cache) in self.caches.iter_mut().filter(|(key, _)| which(key)) {
            cache.stop.cancel();
            self.counter += 1;
            (cache.generation, cache.stop) = (self.counter, parent.child_token());
            cache.phase = not_synced();
            cache.clear();
            started.push((CacheId { key: key.clone(), generation: cache.generation }, cache.stop.clone()));
        }
        for (id, _) in &started {
            self.clear_members(&id.key);
        }
        started
    }

    /// Creates the caches of an object when the first pipeline refers to it.
    fn retain_caches(&mut self, object: &Application, parent: &CancellationToken, declared: &mut Declared) {
        if self.wanted_by.get(object).is_some_and(|by| by.len() > 1) {
            return;
        }
        for key in self.all_caches(object) {
            self.retain_cache(&key, parent, declared);
        }
        self.begin_ring(object);
    }

    /// Counts one need more for a cache, and creates it with the first.
    fn retain_cache(&mut self, key: &CacheKey, parent: &CancellationToken, declared: &mut Declared) {
        if !self.caches.contains_key(key) {
            let (generation, stop) = (self.next(), parent.child_token());
            self.caches.insert(key.clone(), Cache::new(generation, stop.clone()));
            declared.started.push((CacheId { key: key.clone(), generation }, stop));
        }
        if let Some(cache) = self.caches.get_mut(key) {
            cache.wanted += 1;
            cache.idle = None;
        }
    }

    /// Counts one need less for a cache.
    fn release_cache(&mut self, key: &CacheKey, declared: &mut Declared) {
        let mark = self.next();
        let Some(cache) = self.caches.get_mut(key) else { return };
        cache.wanted -= 1;
        if cache.wanted == 0 {
            cache.idle = Some(mark);
            declared.idle.push((CacheId { key: key.clone(), generation: cache.generation }, mark));
        }
    }

    /// Releases the caches of an object when no pipeline refers to it any more.
    fn release_caches(&mut self, object: &Application, declared: &mut Declared) {
        let Some(key) = self.locate(object) else { return };
        let name = name_of(object);
        let is_selected = self.is_selected(&key, &name);
        if !is_selected {
            self.parents.remove(&key, &name);
        }
        if let Some(cache) = self.caches.get_mut(&key).filter(|_| !is_selected) {
            if cache.objects.get(&name).is_some_and(|t| t.current.status == Status::NotFound) {
                cache.objects.remove(&name);
            } else if let Some(tracked) = cache.objects.get_mut(&name) {
                tracked.ring = None;
            }
        }
        for key in self.all_caches(object) {
            self.release_cache(&key, declared);
        }
    }

    /// Stops a cache that was not needed since it was marked. Returns whether it was stopped.
    pub fn expire(&mut self, id: &CacheId, mark: u64) -> bool {
        // No mark is used twice. The generation can differ, if all caches were restarted in the meantime.
        if self.caches.get(&id.key).is_some_and(|c| c.idle == Some(mark))
            && let Some(cache) = self.caches.remove(&id.key)
        {
            cache.stop.cancel();
            return true;
        }
        false
    }

    /// Whether there is a cache of this cluster.
    pub fn has(&self, cluster: &ClusterRef) -> bool {
        self.caches.keys().any(|key| key.cluster.as_ref() == Some(cluster))
    }

    /// Whether a kind that a pipeline needs from this cluster cannot be listed or watched there, because a permission is missing.
    pub fn is_forbidden(&self, cluster: &ClusterRef) -> bool {
        let refused = |cache: &Cache| cache.idle.is_none() && matches!(cache.phase, Phase::Unknown(Reason::Forbidden, _));
        self.caches.iter().any(|(key, cache)| key.cluster.as_ref() == Some(cluster) && refused(cache))
    }

    /// Returns the pipelines that need at least one object of this cluster.
    pub fn pipelines_of(&self, cluster: &ClusterRef) -> Vec<Follower> {
        let dependents = self.wanted_by.iter().filter(|(object, _)| object.object.cluster_ref.as_ref() == Some(cluster));
        dependents.flat_map(|(_, by)| by).cloned().collect::<HashSet<_>>().into_iter().collect()
    }

    /// Sets a message for the caches of this cluster whose initial list is not complete. The problem may be temporary. Returns the
    /// pipelines that depend on these caches.
    pub fn set_list_problem(&mut self, cluster: &ClusterRef, message: &str) -> Vec<Follower> {
        let of = self.caches.iter().filter(|(key, cache)| key.cluster.as_ref() == Some(cluster) && cache.is_filling());
        let ids: Vec<CacheId> = of.map(|(key, cache)| CacheId { key: key.clone(), generation: cache.generation }).collect();
        let phase = Phase::Unknown(Reason::CacheSlow, message.to_owned());
        ids.iter().flat_map(|id| self.set_phase(id, phase.clone()).1).collect::<HashSet<_>>().into_iter().collect()
    }

    /// Marks a cache as slow, if its initial list is not complete and no other problem is known. Returns the pipelines that depend on it.
    pub fn slow(&mut self, id: &CacheId) -> Vec<Follower> {
        if self.cache(id).is_none_or(|cache| cache.phase != not_synced()) {
            return Vec::new();
        }
        self.set_phase(id, Phase::Unknown(Reason::CacheSlow, "the objects are still being listed".to_owned())).1
    }

    /// Sets the phase of a cache. Returns whether it is new, and the pipelines that depend on the cache.
    pub fn set_phase(&mut self, id: &CacheId, phase: Phase) -> (bool, Vec<Follower>) {
        let Some(cache) = self.caches.get_mut(&id.key).filter(|c| c.generation == id.generation) else {
            return (false, Vec::new());
        };
        if cache.phase.covers(&phase) {
            return (false, Vec::new());
        }
        cache.phase = phase;
        (true, self.dependents(&id.key))
    }

    /// Returns the pipelines that depend on this cache.
    fn dependents(&self, key: &CacheKey) -> Vec<Follower> {
        self.needed_by.get(key).into_iter().flat_map(HashMap::keys).cloned().collect()
    }

    /// Returns the pipelines that depend on this cache, if it is not synced.
    pub fn dependents_if_unsynced(&self, id: &CacheId) -> Vec<Follower> {
        if self.is_synced(id) { Vec::new() } else { self.dependents(&id.key) }
    }

    /// Whether the data of the cache is complete and valid.
    pub fn is_synced(&self, id: &CacheId) -> bool {
        self.cache(id).is_some_and(|c| c.phase == Phase::Synced)
    }

    /// Whether the initial list of the cache is not complete.
    pub fn is_filling(&self, id: &CacheId) -> bool {
        self.cache(id).is_some_and(Cache::is_filling)
    }

    /// Returns the current state of an object, and its observations after the sequence number `after`.
    pub fn read(&self, object: &Application, after: u64) -> Reading {
        let unknown = |reason, message: &str| Now::Unknown { reason, message: message.to_owned() };
        let cluster = object.object.cluster_ref.as_ref().and_then(|cluster| self.identities.get(cluster));
        let cluster = cluster.cloned().unwrap_or_default();
        let nothing = |now| Reading {
            observations: Vec::new(),
            now,
            seq: 0,
            changed_at: None,
            overflowed: false,
            cluster: cluster.clone(),
            confirmed: String::new(),
        };
        let Some(key) = self.locate(object) else {
            let message = format!("namespace {} is not one of the watched namespaces", object.object.namespace);
            return nothing(unknown(Reason::NamespaceNotWatched, &message));
        };
        let Some(cache) = self.caches.get(&key) else {
            return nothing(unknown(Reason::CacheNotSynced, "no pipeline has requested this object yet"));
        };
        let tracked = cache.objects.get(&name_of(object));
        let ring = tracked.and_then(|t| t.ring.as_ref());
        let now = match &cache.phase {
            Phase::Unknown(reason, message) => unknown(*reason, message),
            Phase::Synced if tracked.is_some_and(|t| t.unreadable) => {
                unknown(Reason::Unreadable, "the object cannot be parsed")
            }
            Phase::Synced => match tracked.and_then(|tracked| self.without_parts(&key, tracked)) {
                Some((reason, message)) => unknown(reason, &message),
                None => Now::Known(tracked.map_or_else(|| unseen(object), |t| (*t.current).clone())),
            },
        };
        Reading {
            observations: ring
                .iter()
                .flat_map(|r| &r.observations)
                .filter(|(seq, _)| *seq > after)
                .map(|(seq, obs)| (*seq, (**obs).clone()))
                .collect(),
            now,
            seq: tracked.map_or(0, |t| t.seq),
            changed_at: tracked.filter(|t| t.seq > after).map(|t| t.changed_at.into_std()),
            overflowed: ring.is_some_and(|r| r.lost > after),
            cluster,
            confirmed: tracked.and_then(|t| t.relation.as_deref()?.as_parent()?.confirmed()).unwrap_or_default(),
        }
    }

    /// Returns the objects of a kind in all namespaces, from synced caches.
    pub fn listed_of(&self, kind: &CacheKey) -> impl Iterator<Item = (&ObjectName, &Tracked)> {
        let same = |key: &CacheKey| CacheKey { namespace: None, ..key.clone() } == *kind;
        let caches = self.caches.iter().filter(move |(key, cache)| cache.phase == Phase::Synced && same(key));
        caches.flat_map(|(_, cache)| &cache.objects).map(|(name, tracked)| (&**name, &**tracked))
    }

    /// Returns the highest sequence number so far.
    pub fn seq(&self) -> u64 {
        self.counter
    }

    /// Returns the number of caches and the number of their objects.
    pub fn counts(&self) -> (usize, usize) {
        (self.caches.len(), self.caches.values().map(|c| c.objects.len()).sum())
    }

    fn cache(&self, id: &CacheId) -> Option<&Cache> {
        self.caches.get(&id.key).filter(|c| c.generation == id.generation)
    }

    fn next(&mut self) -> u64 {
        // From the wall clock, because readers use it as a time. The maximum is needed because the clock may be set back.
        let clock = u64::try_from(relaybook_api::now().as_microsecond()).unwrap_or_default();
        self.counter = clock.max(self.counter + 1);
        self.counter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::cache::RING;
    use relaybook_api::pipeline::{Record, Recorded};
    use relaybook_api::values::refs::ClusterAppRef;
    use relaybook_core::observe::{EventOrigin, Observation, ReadObject, observe};

    fn pipeline(name: &str) -> Follower {
        Follower::pipeline("team", name)
    }

    fn app(kind: &str, namespace: &str, name: &str) -> Application {
        let object = ClusterAppRef {
            api_version: "v1".into(),
            kind: kind.into(),
            name: name.into(),
            namespace: namespace.into(),
            cluster_ref: None,
        };
        Application { object, ..Application::default() }
    }

    fn runs(revision: &str, message: &str) -> Observation {
        Observation {
            status: Status::Current,
            revision: revision.to_owned(),
            message: message.to_owned(),
            ..Observation::default()
        }
    }

    struct Bench {
        store: Store,
        parent: CancellationToken,
    }

    impl Bench {
        fn new(scope: Scope) -> Self {
            Self { store: Store::new(scope, false), parent: CancellationToken::new() }
        }

        fn need(&mut self, name: &str, refs: &[Application]) -> Declared {
            self.store.declare(&pipeline(name), refs.iter().cloned().collect(), &self.parent)
        }

        /// Declares the object `a`. Its cache completes a list with the observation `says`, or an empty list.
        fn synced(&mut self, says: Option<Observation>) -> CacheId {
            let id = self.need("p", &[app("K", "ns", "a")]).started.remove(0).0;
            let mut seen = HashSet::new();
            if let Some(obs) = says {
                assert!(self.record(&id, "a", obs).is_empty(), "nobody is woken before the list has ended");
                seen.insert(ObjectName::new("ns", "a"));
            }
            assert_eq!(self.store.listed(&id, &seen, false), [pipeline("p")]);
            id
        }

        fn record(&mut self, id: &CacheId, name: &str, obs: Observation) -> Vec<Follower> {
            let seen = ReadObject { observation: obs, relation: None };
            self.store.record(id, &ObjectName::new("ns", name), seen, EventOrigin::Changed)
        }

        fn said(&self, after: u64) -> Vec<String> {
            self.store.read(&app("K", "ns", "a"), after).observations.into_iter().map(|(_, o)| o.revision).collect()
        }
    }

    #[test]
    fn each_kind_and_watched_namespace_has_one_cache() {
        let refs = [app("K", "a", "x"), app("K", "b", "x"), app("K", "a", "y"), app("L", "a", "x")];
        let mut all = Bench::new(Scope::All);
        assert_eq!(all.need("p", &refs).started.len(), 2);
        assert_eq!(all.need("q", &refs).started.len(), 0);
        let mut some = Bench::new(Scope::new(&["a".to_owned(), "c".to_owned()]));
        assert_eq!(some.need("p", &refs).started.len(), 2);
        let Now::Unknown { reason, message } = some.store.read(&refs[1], 0).now else { panic!("b is not watched") };
        assert_eq!((reason, message.contains("namespace b")), (Reason::NamespaceNotWatched, true));
    }

    #[test]
    fn what_is_recorded_belongs_to_the_observation_of_a_state_and_is_kept_for_a_removal() {
        let named = |channel: &str| {
            let annotations = [("channel".to_owned(), channel.to_owned())].into();
            Some(Arc::new(Recorded { annotations, ..Recorded::default() }))
        };
        let said = |revision: &str, channel: &str| Observation { recorded: named(channel), ..runs(revision, "") };
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(Some(said("v1", "#red")));
        for (revision, channel) in [("v2", "#red"), ("v2", "#blue"), ("v3", "#blue")] {
            bench.record(&id, "a", said(revision, channel));
        }
        let read = |bench: &Bench| bench.store.read(&app("K", "ns", "a"), 0);
        let past: Vec<_> = read(&bench).observations.into_iter().map(|(_, obs)| (obs.revision, obs.recorded)).collect();
        let want = [("v1", "#red"), ("v2", "#red"), ("v3", "#blue")];
        assert_eq!(past, want.map(|(revision, channel)| (revision.to_owned(), named(channel))));
        let before = past.len();
        bench.record(&id, "a", said("v3", "#green"));
        assert_eq!(read(&bench).observations.len(), before, "another value is no other state");
        bench.record(&id, "a", observe(None, None));
        let Now::Known(gone) = read(&bench).now else { panic!("it is gone") };
        assert_eq!((gone.status, gone.recorded), (Status::NotFound, named("#green")), "the last value");
    }

    #[test]
    fn the_values_of_an_object_that_was_not_seen_are_missing() {
        let record = Record { labels: vec!["team".to_owned()], ..Record::default() };
        let recorded = Application { record: Some(Arc::new(record)), ..app("K", "ns", "a") };
        let cut = Some(Arc::new(Recorded { cut: true, ..Recorded::default() }));
        for (object, want) in [(recorded, cut), (app("K", "ns", "a"), None)] {
            let mut bench = Bench::new(Scope::All);
            let id = bench.need("p", std::slice::from_ref(&object)).started.remove(0).0;
            bench.store.listed::<ObjectName>(&id, &HashSet::new(), false);
            let now = |bench: &Bench| match bench.store.read(&object, 0).now {
                Now::Known(gone) => (gone.status, gone.recorded),
                Now::Unknown { message, .. } => panic!("{message}"),
            };
            assert_eq!(now(&bench), (Status::NotFound, want.clone()), "after a list");
            bench.record(&id, "a", observe(None, None));
            assert_eq!(now(&bench), (Status::NotFound, want), "after an event");
        }
    }

    #[test]
    fn pipelines_that_record_other_names_have_other_caches() {
        let record = |name: &str| Some(Arc::new(Record { labels: vec![name.to_owned()], ..Record::default() }));
        let recording = |name: &str| Application { record: record(name), ..app("K", "ns", "a") };
        let mut bench = Bench::new(Scope::All);
        assert_eq!(bench.need("p", &[app("K", "ns", "a")]).started.len(), 1);
        assert_eq!(bench.need("q", &[recording("team")]).started.len(), 1);
        assert_eq!(bench.need("r", &[recording("team")]).started.len(), 0);
        let started = bench.need("q", &[recording("tier")]).started.remove(0).0;
        bench.record(&started, "a", runs("v1", ""));
        assert_eq!(bench.store.listed(&started, &HashSet::from([ObjectName::new("ns", "a")]), false), [pipeline("q")]);
    }

    #[test]
    fn states_between_two_readings_are_still_read() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(Some(runs("1", "")));
        let first = bench.store.read(&app("K", "ns", "a"), 0).seq;
        for revision in ["2", "2", "1"] {
            bench.record(&id, "a", runs(revision, ""));
        }
        assert_eq!(bench.said(0), ["1", "2", "1"]);
        assert_eq!(bench.said(first), ["2", "1"]);
        let reading = bench.store.read(&app("K", "ns", "a"), first);
        assert_eq!((reading.now, reading.overflowed), (Now::Known(runs("1", "")), false));
        assert!(bench.said(reading.seq).is_empty());
    }

    #[test]
    fn a_new_message_alone_wakes_pipelines_and_adds_no_observation() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(Some(runs("1", "at first")));
        assert_eq!(bench.record(&id, "a", runs("1", "later")), [pipeline("p")]);
        assert_eq!(bench.record(&id, "a", runs("1", "later")), []);
        let reading = bench.store.read(&app("K", "ns", "a"), 0);
        assert_eq!(reading.observations.len(), 1);
        assert_eq!(reading.observations[0].1.message, "at first");
        assert_eq!(reading.now, Now::Known(runs("1", "later")));
    }

    #[test]
    fn a_reading_that_missed_observations_is_marked_as_overflowed() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(Some(runs("first", "")));
        let first = bench.store.read(&app("K", "ns", "a"), 0).seq;
        for i in 1..RING {
            bench.record(&id, "a", runs(&i.to_string(), ""));
        }
        assert!(!bench.store.read(&app("K", "ns", "a"), 0).overflowed);
        bench.record(&id, "a", runs("one more", ""));
        let reading = bench.store.read(&app("K", "ns", "a"), 0);
        assert!(reading.overflowed);
        assert_eq!(reading.observations.len(), RING);
        assert!(!bench.store.read(&app("K", "ns", "a"), first).overflowed, "what had to go was taken before");
    }

    #[test]
    fn creation_deletion_and_recreation_are_each_observed() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(None);
        let reading = bench.store.read(&app("K", "ns", "a"), 0);
        assert_eq!((reading.seq, reading.observations.len()), (0, 0));
        assert!(matches!(reading.now, Now::Known(Observation { status: Status::NotFound, .. })));
        bench.record(&id, "a", runs("1", ""));
        bench.record(&id, "a", observe(None, None));
        bench.record(&id, "a", runs("2", ""));
        assert_eq!(bench.said(0), ["", "1", "", "2"], "an object that is created was not there before");
    }

    #[test]
    fn an_object_that_is_referred_to_later_is_known_without_earlier_states() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(None);
        for revision in ["1", "2"] {
            assert_eq!(bench.record(&id, "b", runs(revision, "")), []);
        }
        bench.record(&id, "c", runs("1", ""));
        assert_eq!(bench.store.counts(), (1, 2));
        bench.need("q", &[app("K", "ns", "b")]);
        let reading = bench.store.read(&app("K", "ns", "b"), 0);
        assert_eq!((reading.observations.len(), reading.now), (1, Now::Known(runs("2", ""))));
        bench.record(&id, "c", observe(None, None));
        assert_eq!(bench.store.counts(), (1, 1), "what nobody refers to is not remembered");
    }

    #[test]
    fn an_idle_cache_ends_only_if_nobody_needs_it_again() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(Some(runs("1", "")));
        bench.need("q", &[app("K", "ns", "a")]);
        assert!(bench.need("p", &[]).idle.is_empty(), "q needs it");
        let (idle, mark) = bench.need("q", &[]).idle.remove(0);
        assert_eq!(idle, id);
        assert!(bench.need("p", &[app("K", "ns", "a")]).started.is_empty(), "it was still there");
        bench.store.expire(&idle, mark);
        assert_eq!(bench.store.counts().0, 1);
        let (idle, mark) = bench.need("p", &[]).idle.remove(0);
        let seq = bench.store.counter;
        bench.store.expire(&idle, mark);
        assert_eq!(bench.store.counts().0, 0);
        let (again, stop) = bench.need("p", &[app("K", "ns", "a")]).started.remove(0);
        assert!(!stop.is_cancelled());
        bench.record(&idle, "a", runs("late", ""));
        assert!(bench.said(0).is_empty(), "an earlier life says nothing");
        bench.record(&again, "a", runs("2", ""));
        assert!(bench.store.read(&app("K", "ns", "a"), seq).seq > seq, "sequence numbers never return");
    }

    #[test]
    fn a_failed_cache_wakes_its_pipelines_and_hides_current_states() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(Some(runs("1", "")));
        bench.need("other", &[app("L", "ns", "a")]);
        let phase = Phase::Unknown(Reason::KindNotFound, "no such kind".to_owned());
        assert_eq!(bench.store.set_phase(&id, phase.clone()), (true, vec![pipeline("p")]));
        assert_eq!(bench.store.set_phase(&id, phase), (false, vec![]));
        assert!(!bench.store.is_synced(&id));
        bench.record(&id, "a", runs("2", ""));
        let reading = bench.store.read(&app("K", "ns", "a"), 0);
        assert!(matches!(reading.now, Now::Unknown { reason: Reason::KindNotFound, .. }));
        assert_eq!(reading.observations.len(), 2, "what was said before can still be taken");
    }

    #[test]
    fn objects_of_an_emptied_cache_are_unknown_and_not_removed() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(Some(runs("1", "")));
        assert_eq!(bench.store.empty(&id, Reason::TooManyObjects, "too many"), (true, vec![pipeline("p")]));
        assert_eq!((bench.store.counts(), bench.store.is_synced(&id)), ((1, 0), false));
        let now = bench.store.read(&app("K", "ns", "a"), 0).now;
        assert!(matches!(now, Now::Unknown { reason: Reason::TooManyObjects, .. }), "{now:?}");
        assert_eq!(bench.store.empty(&id, Reason::TooManyObjects, "too many"), (false, vec![]));
    }

    #[test]
    fn an_unreadable_object_exists_and_keeps_its_earlier_observations() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(Some(runs("1", "")));
        let name = |name: &str| ObjectName::new("ns", name);
        assert_eq!(bench.store.unreadable(&id, &name("a")), [pipeline("p")]);
        assert_eq!(bench.store.unreadable(&id, &name("a")), []);
        let read = |bench: &Bench, name| bench.store.read(&app("K", "ns", name), 0);
        let unreadable = |reading: &Reading| matches!(reading.now, Now::Unknown { reason: Reason::Unreadable, .. });
        assert!(unreadable(&read(&bench, "a")) && bench.said(0) == ["1"]);
        assert_eq!(bench.record(&id, "a", runs("1", "")), [pipeline("p")], "the same as before, and it can be read again");
        assert_eq!((read(&bench, "a").now, bench.said(0)), (Now::Known(runs("1", "")), vec!["1".to_owned()]));
        // An object that could never be parsed, and that a pipeline refers to later.
        assert_eq!(bench.store.unreadable(&id, &name("b")), []);
        bench.need("q", &[app("K", "ns", "b")]);
        let reading = read(&bench, "b");
        assert!(unreadable(&reading) && reading.observations.is_empty() && reading.seq == 0, "{reading:?}");
        assert_eq!(bench.store.listed(&id, &[name("a")].into(), false), [pipeline("q")]);
        assert!(matches!(read(&bench, "b").now, Now::Known(Observation { status: Status::NotFound, .. })), "it is gone");
    }

    #[test]
    fn the_cache_of_a_replaced_cluster_is_empty_and_ignores_events_of_the_old_one() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.need("p", &[far("a")]).started.remove(0).0;
        let cluster = id.key.cluster.clone().unwrap();
        let parent = CancellationToken::new();
        let identify = |bench: &mut Bench, identity: &str| bench.store.identify(&cluster, identity, &parent);
        assert_eq!(identify(&mut bench, "one.x").len(), 0, "it was none before");
        let name = ObjectName::new("ns", "a");
        bench.record(&id, "a", runs("1", ""));
        bench.store.listed(&id, &[name.clone()].into(), true);
        assert_eq!(identify(&mut bench, "two.x").len(), 0, "the same under another address");
        assert!(bench.store.is_synced(&id));

        let (again, stop) = identify(&mut bench, "three.y").remove(0);
        assert!(!stop.is_cancelled() && again.key == id.key && again.generation != id.generation);
        // The last page of the old cluster's list.
        bench.record(&id, "a", runs("1", ""));
        assert_eq!(bench.store.listed(&id, &[name].into(), true), []);
        let reading = bench.store.read(&far("a"), 0);
        assert!(matches!(reading.now, Now::Unknown { reason: Reason::CacheNotSynced, .. }), "{reading:?}");
        assert_eq!((reading.observations.len(), bench.store.counts()), (0, (1, 0)));
        assert_eq!(bench.store.listed(&again, &HashSet::<ObjectName>::new(), true), [pipeline("p")]);
    }

    fn far(name: &str) -> Application {
        let kind = relaybook_api::values::refs::ClusterKind::Secret;
        let cluster = ClusterRef { api_version: None, kind, name: "eu".into(), namespace: Some("team".into()) };
        let mut app = app("K", "ns", name);
        app.object.cluster_ref = Some(cluster);
        app
    }

    #[test]
    fn remote_clusters_are_watched_in_all_namespaces_until_their_last_cache_ends() {
        let mut bench = Bench::new(Scope::new(&["elsewhere".to_owned()]));
        let id = bench.need("p", &[far("a"), far("b")]).started.remove(0).0;
        assert_eq!((id.key.namespace.as_ref(), bench.store.counts().0), (None, 1));
        let cluster = id.key.cluster.clone().unwrap();
        bench.need("q", &[far("a")]);
        let mut dependents = bench.store.pipelines_of(&cluster);
        dependents.sort();
        assert_eq!(dependents, [pipeline("p"), pipeline("q")]);
        bench.need("q", &[]);
        let (idle, mark) = bench.need("p", &[]).idle.remove(0);
        assert!(!bench.store.expire(&idle, mark - 1) && bench.store.has(&cluster));
        assert!(bench.store.expire(&idle, mark) && !bench.store.has(&cluster));
    }

    #[test]
    fn a_cache_that_fills_slowly_reports_that_and_the_problem_of_its_list() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.need("p", &[far("a")]).started.remove(0).0;
        let cluster = id.key.cluster.clone().unwrap();
        let reason = |bench: &Bench| match bench.store.read(&far("a"), 0).now {
            Now::Unknown { reason, .. } => Some(reason),
            Now::Known(_) => None,
        };
        assert_eq!(bench.store.slow(&id), [pipeline("p")]);
        assert_eq!(reason(&bench), Some(Reason::CacheSlow));
        assert_eq!(bench.store.slow(&id), [], "said once");
        assert_eq!(bench.store.set_list_problem(&cluster, "why"), [pipeline("p")]);
        let now = bench.store.read(&far("a"), 0).now;
        assert_eq!(now, Now::Unknown { reason: Reason::CacheSlow, message: "why".to_owned() }, "it may pass");
        assert_eq!(bench.store.slow(&id), [], "there is a better reason");
        bench.store.set_phase(&id, Phase::Unknown(Reason::Timeout, "so long".to_owned()));
        assert_eq!(bench.store.set_list_problem(&cluster, "why"), [], "it has not passed");
        assert_eq!(reason(&bench), Some(Reason::Timeout));
        assert_eq!(bench.store.listed(&id, &HashSet::<ObjectName>::new(), false), [pipeline("p")]);
        assert_eq!(bench.store.set_list_problem(&cluster, "why"), [], "what was seen stands");
        assert_eq!(bench.store.listed(&id, &HashSet::<ObjectName>::new(), false), []);
        assert_eq!(bench.store.listed(&id, &HashSet::<ObjectName>::new(), true), [pipeline("p")]);
        assert!(!bench.store.is_forbidden(&cluster));
        bench.store.set_phase(&id, Phase::Unknown(Reason::Forbidden, "no".to_owned()));
        assert!(bench.store.is_forbidden(&cluster));
    }
}
