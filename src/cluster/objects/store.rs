//! What all caches know, and who wants to know it: plain data behind one lock.

mod kin;

use std::collections::{HashMap, HashSet};

use tokio_util::sync::CancellationToken;

use super::cache::{Cache, CacheId, CacheKey, ObjectName, Phase, Tracked, name_of, not_synced, object_of};
use crate::api::Status;
use crate::api::values::refs::ClusterRef;
use crate::cluster::remote::kubeconfig::is_same_cluster;
use crate::cluster::{Application, Now, PipelineKey, Reading, Reason, Scope};
use crate::observe::{Came, Family, Seen, Ties, observe};

/// What changes for the watches when a pipeline says what it needs.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Declared {
    /// Caches to begin.
    pub started: Vec<(CacheId, CancellationToken)>,
    /// Caches that nobody needs any more; each with the mark by which it can be ended later.
    pub idle: Vec<(CacheId, u64)>,
}

/// Everything that is known.
pub(in crate::cluster) struct Store {
    scope: Scope,
    caches: HashMap<CacheKey, Cache>,
    needs: HashMap<PipelineKey, HashSet<Application>>,
    wanted_by: HashMap<Application, HashSet<PipelineKey>>,
    /// Who needs something of a cache, and how much.
    needed_by: HashMap<CacheKey, HashMap<PipelineKey, usize>>,
    /// By the cache of their parts: the objects that somebody refers to and that are read with a family of parts.
    parents: HashMap<CacheKey, HashMap<Family, HashSet<Application>>>,
    /// The same by object.
    family_of: HashMap<Application, (CacheKey, Family)>,
    /// By remote cluster: which one it is, so that a reference that leads to another is noticed.
    identities: HashMap<ClusterRef, String>,
    /// Sequence numbers, lives and marks; they rise over all caches, so that none returns when a cache is made again.
    counter: u64,
}

impl Store {
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            caches: HashMap::new(),
            needs: HashMap::new(),
            wanted_by: HashMap::new(),
            needed_by: HashMap::new(),
            parents: HashMap::new(),
            family_of: HashMap::new(),
            identities: HashMap::new(),
            counter: 0,
        }
    }

    /// Replaces what a pipeline needs.
    pub fn declare(&mut self, pipeline: &PipelineKey, refs: HashSet<Application>, parent: &CancellationToken) -> Declared {
        let mut declared = Declared::default();
        let old = self.needs.remove(pipeline).unwrap_or_default();
        for object in refs.difference(&old) {
            if self.wanted_by.entry(object.clone()).or_default().insert(pipeline.clone()) {
                self.enrol(object, pipeline);
                self.want(object, parent, &mut declared);
            }
        }
        for object in old.difference(&refs) {
            self.strike(object, pipeline);
            let Some(by) = self.wanted_by.get_mut(object) else { continue };
            by.remove(pipeline);
            if by.is_empty() {
                self.wanted_by.remove(object);
                self.unwant(object, &mut declared);
            }
        }
        if !refs.is_empty() {
            self.needs.insert(pipeline.clone(), refs);
        }
        declared
    }

    /// Sets the cluster that a reference resolves to. If it is another one, the data of its caches are useless: they restart, and their
    /// objects have no past. Returns the watches to start; later events of the old watches belong to the old cluster.
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
        self.begin_anew(|key| key.cluster.as_ref() == Some(cluster), parent)
    }

    /// Nobody needs anything of this cluster any more.
    pub fn forget(&mut self, cluster: &ClusterRef) {
        self.identities.remove(cluster);
    }

    /// How many objects a cache knows.
    pub fn len(&self, id: &CacheId) -> usize {
        self.cache(id).map_or(0, |cache| cache.objects.len())
    }

    /// Forgets all objects of a cache, and says why: what is not known any more is not gone. Returns whether the reason is new, and
    /// who wants to know.
    pub fn empty(&mut self, id: &CacheId, reason: Reason, message: &str) -> (bool, Vec<PipelineKey>) {
        if let Some(cache) = self.caches.get_mut(&id.key).filter(|c| c.life == id.life) {
            cache.clear();
        }
        self.set_phase(id, Phase::Unknown(reason, message.to_owned()))
    }

    /// Restarts all caches: their data may be older than what another replica has seen and written. Returns the watches to start.
    pub fn renew(&mut self, parent: &CancellationToken) -> Vec<(CacheId, CancellationToken)> {
        self.begin_anew(|_| true, parent)
    }

    /// Restarts these caches empty. Returns the watches to start.
    fn begin_anew(
        &mut self,
        which: impl Fn(&CacheKey) -> bool,
        parent: &CancellationToken,
    ) -> Vec<(CacheId, CancellationToken)> {
        let mut started = Vec::new();
        for (key, cache) in self.caches.iter_mut().filter(|(key, _)| which(key)) {
            cache.stop.cancel();
            self.counter += 1;
            (cache.life, cache.stop) = (self.counter, parent.child_token());
            cache.phase = not_synced();
            cache.clear();
            started.push((CacheId { key: key.clone(), life: cache.life }, cache.stop.clone()));
        }
        started
    }

    /// One more pipeline refers to an object.
    fn want(&mut self, object: &Application, parent: &CancellationToken, declared: &mut Declared) {
        if self.wanted_by.get(object).is_some_and(|by| by.len() > 1) {
            return;
        }
        for key in self.all_caches(object) {
            if !self.caches.contains_key(&key) {
                let (life, stop) = (self.next(), parent.child_token());
                self.caches.insert(key.clone(), Cache::new(life, stop.clone()));
                declared.started.push((CacheId { key: key.clone(), life }, stop));
            }
            let Some(cache) = self.caches.get_mut(&key) else { continue };
            cache.wanted += 1;
            cache.idle = None;
        }
        self.begin_ring(object);
    }

    /// No pipeline refers to an object any more.
    fn unwant(&mut self, object: &Application, declared: &mut Declared) {
        self.leave(object);
        let Some(key) = self.locate(object) else { return };
        let name = name_of(object);
        if let Some(cache) = self.caches.get_mut(&key) {
            if cache.objects.get(&name).is_some_and(|t| t.current.status == Status::NotFound) {
                cache.objects.remove(&name);
            } else if let Some(tracked) = cache.objects.get_mut(&name) {
                tracked.ring = None;
            }
        }
        for key in self.all_caches(object) {
            let mark = self.next();
            let Some(cache) = self.caches.get_mut(&key) else { continue };
            cache.wanted -= 1;
            if cache.wanted == 0 {
                cache.idle = Some(mark);
                declared.idle.push((CacheId { key, life: cache.life }, mark));
            }
        }
    }

    /// Ends a cache that nobody has needed since it was marked. Returns whether it did.
    pub fn expire(&mut self, id: &CacheId, mark: u64) -> bool {
        // No mark is used twice. Its life may be another one, if all caches were restarted meanwhile.
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

    /// Whether a kind that is needed of this cluster may not be listed or watched there.
    pub fn is_forbidden(&self, cluster: &ClusterRef) -> bool {
        let refused = |cache: &Cache| matches!(cache.phase, Phase::Unknown(Reason::Forbidden, _));
        self.caches.iter().any(|(key, cache)| key.cluster.as_ref() == Some(cluster) && refused(cache))
    }

    /// The pipelines that need something of this cluster.
    pub fn pipelines_of(&self, cluster: &ClusterRef) -> Vec<PipelineKey> {
        let concerned = self.wanted_by.iter().filter(|(object, _)| object.object.cluster_ref.as_ref() == Some(cluster));
        concerned.flat_map(|(_, by)| by).cloned().collect::<HashSet<_>>().into_iter().collect()
    }

    /// Says why the caches of this cluster that have not been filled yet are not; it may pass. Returns who wants to know.
    pub fn unfilled(&mut self, cluster: &ClusterRef, message: &str) -> Vec<PipelineKey> {
        let of = self.caches.iter().filter(|(key, cache)| key.cluster.as_ref() == Some(cluster) && cache.is_filling());
        let ids: Vec<CacheId> = of.map(|(key, cache)| CacheId { key: key.clone(), life: cache.life }).collect();
        let phase = Phase::Unknown(Reason::CacheSlow, message.to_owned());
        ids.iter().flat_map(|id| self.set_phase(id, phase.clone()).1).collect::<HashSet<_>>().into_iter().collect()
    }

    /// Says that a cache takes long to be filled, if that is all that is wrong with it. Returns who wants to know.
    pub fn slow(&mut self, id: &CacheId) -> Vec<PipelineKey> {
        if self.cache(id).is_none_or(|cache| cache.phase != not_synced()) {
            return Vec::new();
        }
        self.set_phase(id, Phase::Unknown(Reason::CacheSlow, "the objects are still being listed".to_owned())).1
    }

    /// Takes in what an object says. Returns who wants to know.
    pub fn record(&mut self, id: &CacheId, name: ObjectName, seen: Seen, came: Came) -> Vec<PipelineKey> {
        let Some(cache) = self.caches.get_mut(&id.key).filter(|c| c.life == id.life) else { return Vec::new() };
        let touched = cache.tie(&name, seen.ties.as_deref());
        let was_unread = cache.unread.remove(&name).then(|| name.0.clone());
        let mut wake = self.record_own(id, name, seen, came);
        wake.extend(self.reconsider_families(&id.key, &touched, was_unread.as_deref()));
        wake
    }

    /// The same, as far as it is about the object alone.
    fn record_own(&mut self, id: &CacheId, name: ObjectName, seen: Seen, came: Came) -> Vec<PipelineKey> {
        let (seq, object) = (self.next(), object_of(&id.key, &name));
        let by = self.wanted_by.get(&object);
        let Some(cache) = self.caches.get_mut(&id.key) else { return Vec::new() };
        if by.is_none() && seen.observation.status == Status::NotFound {
            cache.objects.remove(&name);
            return Vec::new();
        }
        let created = came == Came::Changed
            && cache.objects.get(&name).is_none_or(|t| t.ties.is_none() && t.current.status == Status::NotFound);
        let tracked = cache.objects.entry(name).or_insert_with(|| Tracked::unseen(by.is_some()));
        let was_unreadable = std::mem::take(&mut tracked.unreadable);
        let came = if created { Came::Created } else { came };
        tracked.ties = seen.ties.map(|ties| Box::new(ties.following(tracked.ties.as_deref(), came)));
        if matches!(tracked.ties.as_deref(), Some(Ties::Parent(_))) {
            return if by.is_some() { self.enter(&object, was_unreadable) } else { Vec::new() };
        }
        let wakes = (tracked.say(seq, seen.observation) || was_unreadable) && cache.phase == Phase::Synced;
        let wake = if wakes { by.into_iter().flatten().cloned().collect() } else { Vec::new() };
        self.leave(&object);
        wake
    }

    /// An object is there, and cannot be read: what it said last is not what it says, and it is not gone. Returns who wants to
    /// know.
    pub fn unreadable(&mut self, id: &CacheId, name: &ObjectName) -> Vec<PipelineKey> {
        let by = self.wanted_by.get(&object_of(&id.key, name));
        let Some(cache) = self.caches.get_mut(&id.key).filter(|c| c.life == id.life) else { return Vec::new() };
        let tracked = cache.objects.entry(name.clone()).or_insert_with(|| Tracked::unseen(by.is_some()));
        let is_news = !std::mem::replace(&mut tracked.unreadable, true);
        let part = tracked.ties.as_deref().and_then(Ties::as_part);
        let touched = part.map_or(&[][..], |part| part.families()).to_vec();
        let wakes = is_news && cache.phase == Phase::Synced;
        let mut wake: Vec<_> = by.into_iter().flatten().filter(|_| wakes).cloned().collect();
        let unread = tracked.seq == 0 && tracked.ties.is_none() && cache.unread.insert(name.clone());
        wake.extend(self.reconsider_families(&id.key, &touched, unread.then_some(name.0.as_str())));
        wake
    }

    /// A list has ended: what it did not hold is gone, and the cache can be relied on. Returns who wants to know: with `all`,
    /// everyone.
    pub fn listed(&mut self, id: &CacheId, seen: &HashSet<ObjectName>, all: bool) -> Vec<PipelineKey> {
        let Some(cache) = self.cache(id) else { return Vec::new() };
        let gone: Vec<ObjectName> = cache.objects.keys().filter(|n| !seen.contains(*n)).cloned().collect();
        let mut wake = HashSet::new();
        for name in gone {
            wake.extend(self.record(id, name, Seen::nothing(), Came::Listed));
        }
        wake.extend(self.set_phase(id, Phase::Synced).1);
        wake.extend(self.reconsider_all(&id.key));
        if all {
            wake.extend(self.concerned(&id.key));
        }
        wake.into_iter().collect()
    }

    /// Says how a cache is doing. Returns whether that is new, and who wants to know.
    pub fn set_phase(&mut self, id: &CacheId, phase: Phase) -> (bool, Vec<PipelineKey>) {
        let Some(cache) = self.caches.get_mut(&id.key).filter(|c| c.life == id.life && !c.phase.covers(&phase)) else {
            return (false, Vec::new());
        };
        cache.phase = phase;
        (true, self.concerned(&id.key))
    }

    /// The pipelines that need something of this cache.
    fn concerned(&self, key: &CacheKey) -> Vec<PipelineKey> {
        self.needed_by.get(key).into_iter().flat_map(HashMap::keys).cloned().collect()
    }

    /// The pipelines that need something of a cache that cannot be relied on.
    pub fn blind(&self, id: &CacheId) -> Vec<PipelineKey> {
        if self.is_synced(id) { Vec::new() } else { self.concerned(&id.key) }
    }

    /// Whether what the cache knows can be relied on.
    pub fn is_synced(&self, id: &CacheId) -> bool {
        self.cache(id).is_some_and(|c| c.phase == Phase::Synced)
    }

    /// Whether the cache is being filled for the first time.
    pub fn is_filling(&self, id: &CacheId) -> bool {
        self.cache(id).is_some_and(Cache::is_filling)
    }

    /// What is known of an object, and what it said after `after`.
    pub fn read(&self, object: &Application, after: u64) -> Reading {
        let unknown = |reason, message: &str| Now::Unknown { reason, message: message.to_owned() };
        let cluster = object.object.cluster_ref.as_ref().and_then(|cluster| self.identities.get(cluster));
        let cluster = cluster.cloned().unwrap_or_default();
        let nothing =
            |now| Reading { observations: Vec::new(), now, seq: 0, came: None, overflowed: false, cluster: cluster.clone() };
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
                unknown(Reason::Unreadable, "the object does not parse")
            }
            Phase::Synced => match tracked.and_then(|tracked| self.without_parts(object, tracked)) {
                Some((reason, message)) => unknown(reason, &message),
                None => Now::Known(tracked.map_or_else(|| observe(None, None), |t| t.current.clone())),
            },
        };
        Reading {
            observations: ring.iter().flat_map(|r| &r.said).filter(|(seq, _)| *seq > after).cloned().collect(),
            now,
            seq: tracked.map_or(0, |t| t.seq),
            came: tracked.filter(|t| t.seq > after).map(|t| t.came),
            overflowed: ring.is_some_and(|r| r.lost > after),
            cluster,
        }
    }

    /// What is known of all objects of a kind, whatever the namespace, by caches that have listed everything.
    pub fn listed_of(&self, kind: &CacheKey) -> impl Iterator<Item = (&ObjectName, &Tracked)> {
        let same = |key: &CacheKey| CacheKey { namespace: None, ..key.clone() } == *kind;
        let caches = self.caches.iter().filter(move |(key, cache)| cache.phase == Phase::Synced && same(key));
        caches.flat_map(|(_, cache)| &cache.objects)
    }

    /// The highest sequence number that was given.
    pub fn seq(&self) -> u64 {
        self.counter
    }

    /// How many caches there are, and how many objects they know.
    pub fn counts(&self) -> (usize, usize) {
        (self.caches.len(), self.caches.values().map(|c| c.objects.len()).sum())
    }

    fn cache(&self, id: &CacheId) -> Option<&Cache> {
        self.caches.get(&id.key).filter(|c| c.life == id.life)
    }

    fn next(&mut self) -> u64 {
        // By the wall clock, because a later reader needs the time; the clock may be set back.
        let clock = u64::try_from(crate::api::now().as_microsecond()).unwrap_or_default();
        self.counter = clock.max(self.counter + 1);
        self.counter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::values::refs::ClusterAppRef;
    use crate::cluster::objects::cache::RING;
    use crate::observe::Observation;

    fn pipeline(name: &str) -> PipelineKey {
        PipelineKey { namespace: "team".into(), name: name.into() }
    }

    fn app(kind: &str, namespace: &str, name: &str) -> Application {
        let object = ClusterAppRef {
            api_version: "v1".into(),
            kind: kind.into(),
            name: name.into(),
            namespace: namespace.into(),
            cluster_ref: None,
        };
        Application { object, revision_path: None }
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
            Self { store: Store::new(scope), parent: CancellationToken::new() }
        }

        fn need(&mut self, name: &str, refs: &[Application]) -> Declared {
            self.store.declare(&pipeline(name), refs.iter().cloned().collect(), &self.parent)
        }

        /// Declares the object `a` and lets its cache list `says` of it.
        fn synced(&mut self, says: Option<Observation>) -> CacheId {
            let id = self.need("p", &[app("K", "ns", "a")]).started.remove(0).0;
            let mut seen = HashSet::new();
            if let Some(obs) = says {
                assert!(self.record(&id, "a", obs).is_empty(), "nobody is woken before the list has ended");
                seen.insert(("ns".to_owned(), "a".to_owned()));
            }
            assert_eq!(self.store.listed(&id, &seen, false), [pipeline("p")]);
            id
        }

        fn record(&mut self, id: &CacheId, name: &str, obs: Observation) -> Vec<PipelineKey> {
            let seen = Seen { observation: obs, ties: None };
            self.store.record(id, ("ns".to_owned(), name.to_owned()), seen, Came::Changed)
        }

        fn said(&self, after: u64) -> Vec<String> {
            self.store.read(&app("K", "ns", "a"), after).observations.into_iter().map(|(_, o)| o.revision).collect()
        }
    }

    #[test]
    fn one_cache_for_each_kind_and_namespace_that_is_watched() {
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
    fn what_came_and_went_is_still_seen() {
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
    fn words_wake_but_take_no_place() {
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
    fn more_than_can_be_kept_says_so() {
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
    fn absent_gone_and_back() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(None);
        let reading = bench.store.read(&app("K", "ns", "a"), 0);
        assert_eq!((reading.seq, reading.observations.len()), (0, 0));
        assert!(matches!(reading.now, Now::Known(Observation { status: Status::NotFound, .. })));
        bench.record(&id, "a", runs("1", ""));
        bench.record(&id, "a", observe(None, None));
        bench.record(&id, "a", runs("2", ""));
        assert_eq!(bench.said(0), ["1", "", "2"]);
    }

    #[test]
    fn an_object_that_is_referred_to_later_is_found_at_once_and_without_a_past() {
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
    fn ended_only_if_nobody_came_back() {
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
    fn trouble_wakes_those_concerned_and_hides_what_is_known() {
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
    fn what_is_let_go_is_not_gone() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(Some(runs("1", "")));
        assert_eq!(bench.store.empty(&id, Reason::TooManyObjects, "too many"), (true, vec![pipeline("p")]));
        assert_eq!((bench.store.counts(), bench.store.is_synced(&id)), ((1, 0), false));
        let now = bench.store.read(&app("K", "ns", "a"), 0).now;
        assert!(matches!(now, Now::Unknown { reason: Reason::TooManyObjects, .. }), "{now:?}");
        assert_eq!(bench.store.empty(&id, Reason::TooManyObjects, "too many"), (false, vec![]));
    }

    #[test]
    fn an_object_that_cannot_be_read_is_there_and_what_it_said_stands() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.synced(Some(runs("1", "")));
        let name = |name: &str| ("ns".to_owned(), name.to_owned());
        assert_eq!(bench.store.unreadable(&id, &name("a")), [pipeline("p")]);
        assert_eq!(bench.store.unreadable(&id, &name("a")), []);
        let read = |bench: &Bench, name| bench.store.read(&app("K", "ns", name), 0);
        let unreadable = |reading: &Reading| matches!(reading.now, Now::Unknown { reason: Reason::Unreadable, .. });
        assert!(unreadable(&read(&bench, "a")) && bench.said(0) == ["1"]);
        assert_eq!(bench.record(&id, "a", runs("1", "")), [pipeline("p")], "the same as before, and it can be read again");
        assert_eq!((read(&bench, "a").now, bench.said(0)), (Now::Known(runs("1", "")), vec!["1".to_owned()]));
        // One that was never read, and is referred to later.
        assert_eq!(bench.store.unreadable(&id, &name("b")), []);
        bench.need("q", &[app("K", "ns", "b")]);
        let reading = read(&bench, "b");
        assert!(unreadable(&reading) && reading.observations.is_empty() && reading.seq == 0, "{reading:?}");
        assert_eq!(bench.store.listed(&id, &[name("a")].into(), false), [pipeline("q")]);
        assert!(matches!(read(&bench, "b").now, Now::Known(Observation { status: Status::NotFound, .. })), "it is gone");
    }

    #[test]
    fn another_cluster_begins_anew_and_hears_nothing_of_the_old_one() {
        let mut bench = Bench::new(Scope::All);
        let id = bench.need("p", &[far("a")]).started.remove(0).0;
        let cluster = id.key.cluster.clone().unwrap();
        let parent = CancellationToken::new();
        let identify = |bench: &mut Bench, identity: &str| bench.store.identify(&cluster, identity, &parent);
        assert_eq!(identify(&mut bench, "one.x").len(), 0, "it was none before");
        let name = ("ns".to_owned(), "a".to_owned());
        bench.record(&id, "a", runs("1", ""));
        bench.store.listed(&id, &[name.clone()].into(), true);
        assert_eq!(identify(&mut bench, "two.x").len(), 0, "the same under another address");
        assert!(bench.store.is_synced(&id));

        let (again, stop) = identify(&mut bench, "three.y").remove(0);
        assert!(!stop.is_cancelled() && again.key == id.key && again.life != id.life);
        // The last page of the old cluster's list.
        bench.record(&id, "a", runs("1", ""));
        assert_eq!(bench.store.listed(&id, &[name].into(), true), []);
        let reading = bench.store.read(&far("a"), 0);
        assert!(matches!(reading.now, Now::Unknown { reason: Reason::CacheNotSynced, .. }), "{reading:?}");
        assert_eq!((reading.observations.len(), bench.store.counts()), (0, (1, 0)));
        assert_eq!(bench.store.listed(&again, &HashSet::new(), true), [pipeline("p")]);
    }

    fn far(name: &str) -> Application {
        let kind = crate::api::values::refs::ClusterKind::Secret;
        let cluster = ClusterRef { api_version: None, kind, name: "eu".into(), namespace: Some("team".into()) };
        let mut app = app("K", "ns", name);
        app.object.cluster_ref = Some(cluster);
        app
    }

    #[test]
    fn other_clusters_are_watched_everywhere_and_end_with_their_last_cache() {
        let mut bench = Bench::new(Scope::new(&["elsewhere".to_owned()]));
        let id = bench.need("p", &[far("a"), far("b")]).started.remove(0).0;
        assert_eq!((id.key.namespace.as_ref(), bench.store.counts().0), (None, 1));
        let cluster = id.key.cluster.clone().unwrap();
        bench.need("q", &[far("a")]);
        let mut concerned = bench.store.pipelines_of(&cluster);
        concerned.sort();
        assert_eq!(concerned, [pipeline("p"), pipeline("q")]);
        bench.need("q", &[]);
        let (idle, mark) = bench.need("p", &[]).idle.remove(0);
        assert!(!bench.store.expire(&idle, mark - 1) && bench.store.has(&cluster));
        assert!(bench.store.expire(&idle, mark) && !bench.store.has(&cluster));
    }

    #[test]
    fn what_is_still_being_filled_says_why_and_that_it_takes_long() {
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
        assert_eq!(bench.store.unfilled(&cluster, "why"), [pipeline("p")]);
        let now = bench.store.read(&far("a"), 0).now;
        assert_eq!(now, Now::Unknown { reason: Reason::CacheSlow, message: "why".to_owned() }, "it may pass");
        assert_eq!(bench.store.slow(&id), [], "there is a better reason");
        bench.store.set_phase(&id, Phase::Unknown(Reason::Timeout, "so long".to_owned()));
        assert_eq!(bench.store.unfilled(&cluster, "why"), [], "it has not passed");
        assert_eq!(reason(&bench), Some(Reason::Timeout));
        assert_eq!(bench.store.listed(&id, &HashSet::new(), false), [pipeline("p")]);
        assert_eq!(bench.store.unfilled(&cluster, "why"), [], "what was seen stands");
        assert_eq!(bench.store.listed(&id, &HashSet::new(), false), []);
        assert_eq!(bench.store.listed(&id, &HashSet::new(), true), [pipeline("p")]);
        assert!(!bench.store.is_forbidden(&cluster));
        bench.store.set_phase(&id, Phase::Unknown(Reason::Forbidden, "no".to_owned()));
        assert!(bench.store.is_forbidden(&cluster));
    }
}
