//! What all caches know, and who wants to know it: plain data behind one lock.

use std::collections::{HashMap, HashSet, VecDeque};

use tokio_util::sync::CancellationToken;

use super::{Now, PipelineKey, Reading, Reason, Scope};
use crate::api::Status;
use crate::api::refs::ClusterAppRef;
use crate::observe::{Observation, observe};

/// So many different things that an object said are kept until they are asked for.
const RING: usize = 16;

/// One watch: of a kind, on a cluster, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    /// Name of the cluster.
    pub cluster: String,
    /// API version of the kind.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The namespace, or all.
    pub namespace: Option<String>,
}

/// One life of a cache. A watch that was stopped may still deliver something to a successor of the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CacheId {
    /// What it watches.
    pub key: CacheKey,
    life: u64,
}

/// Namespace and name of an object.
pub(super) type ObjectName = (String, String);

/// How a cache is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has listed everything.
    Synced,
    /// It has not, or what it knows can no longer be relied on.
    Unknown(Reason, String),
}

/// What changes for the watches when a pipeline says what it needs.
#[derive(Debug, Default)]
pub(super) struct Declared {
    /// Caches to begin.
    pub started: Vec<(CacheId, CancellationToken)>,
    /// Caches that nobody needs any more; each with the mark by which it can be ended later.
    pub idle: Vec<(CacheId, u64)>,
}

/// What one cache knows.
struct Cache {
    life: u64,
    stop: CancellationToken,
    phase: Phase,
    objects: HashMap<ObjectName, Tracked>,
    /// How many objects of this cache somebody refers to.
    wanted: usize,
    /// Set when nobody does.
    idle: Option<u64>,
}

/// One object.
struct Tracked {
    current: Observation,
    seq: u64,
    /// Only where somebody refers to it.
    ring: Option<Ring>,
}

/// The last different things that an object said.
#[derive(Default)]
struct Ring {
    said: VecDeque<(u64, Observation)>,
    /// Sequence number of the newest that had to go.
    lost: u64,
}

impl Ring {
    /// Adds what differs from the last in more than words.
    fn push(&mut self, seq: u64, obs: &Observation) {
        if self.said.back().is_some_and(|(_, last)| same_but_words(last, obs)) {
            return;
        }
        if self.said.len() == RING
            && let Some((seq, _)) = self.said.pop_front()
        {
            self.lost = seq;
        }
        self.said.push_back((seq, obs.clone()));
    }
}

fn not_synced() -> Phase {
    Phase::Unknown(Reason::CacheNotSynced, "the objects are being listed".to_owned())
}

/// Everything that is known.
pub(super) struct Store {
    cluster: String,
    scope: Scope,
    caches: HashMap<CacheKey, Cache>,
    needs: HashMap<PipelineKey, HashSet<ClusterAppRef>>,
    wanted_by: HashMap<ClusterAppRef, HashSet<PipelineKey>>,
    /// Sequence numbers, lives and marks; they rise over all caches, so that none returns when a cache is made again.
    counter: u64,
}

impl Store {
    pub fn new(cluster: String, scope: Scope) -> Self {
        Self { cluster, scope, caches: HashMap::new(), needs: HashMap::new(), wanted_by: HashMap::new(), counter: 0 }
    }

    /// Replaces what a pipeline needs.
    pub fn declare(&mut self, pipeline: &PipelineKey, refs: HashSet<ClusterAppRef>, parent: &CancellationToken) -> Declared {
        let mut declared = Declared::default();
        let old = self.needs.remove(pipeline).unwrap_or_default();
        for object in refs.difference(&old) {
            if self.wanted_by.entry(object.clone()).or_default().insert(pipeline.clone()) {
                self.want(object, parent, &mut declared);
            }
        }
        for object in old.difference(&refs) {
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

    /// Begins all caches anew: what they know may be older than what another replica has seen and written. The watches to begin.
    pub fn renew(&mut self, parent: &CancellationToken) -> Vec<(CacheId, CancellationToken)> {
        let mut started = Vec::new();
        for (key, cache) in &mut self.caches {
            cache.stop.cancel();
            self.counter += 1;
            (cache.life, cache.stop) = (self.counter, parent.child_token());
            cache.phase = not_synced();
            cache.objects.clear();
            started.push((CacheId { key: key.clone(), life: cache.life }, cache.stop.clone()));
        }
        started
    }

    /// One more pipeline refers to an object.
    fn want(&mut self, object: &ClusterAppRef, parent: &CancellationToken, declared: &mut Declared) {
        if self.wanted_by.get(object).is_some_and(|by| by.len() > 1) {
            return;
        }
        let Some(key) = self.locate(object) else { return };
        if !self.caches.contains_key(&key) {
            let (life, stop) = (self.next(), parent.child_token());
            let cache =
                Cache { life, stop: stop.clone(), phase: not_synced(), objects: HashMap::new(), wanted: 0, idle: None };
            self.caches.insert(key.clone(), cache);
            declared.started.push((CacheId { key: key.clone(), life }, stop));
        }
        let Some(cache) = self.caches.get_mut(&key) else { return };
        cache.wanted += 1;
        cache.idle = None;
        if let Some(tracked) = cache.objects.get_mut(&name_of(object)) {
            let mut ring = Ring::default();
            ring.push(tracked.seq, &tracked.current);
            tracked.ring = Some(ring);
        }
    }

    /// No pipeline refers to an object any more.
    fn unwant(&mut self, object: &ClusterAppRef, declared: &mut Declared) {
        let Some(key) = self.locate(object) else { return };
        let mark = self.next();
        let Some(cache) = self.caches.get_mut(&key) else { return };
        let name = name_of(object);
        if cache.objects.get(&name).is_some_and(|t| t.current.status == Status::NotFound) {
            cache.objects.remove(&name);
        } else if let Some(tracked) = cache.objects.get_mut(&name) {
            tracked.ring = None;
        }
        cache.wanted -= 1;
        if cache.wanted == 0 {
            cache.idle = Some(mark);
            declared.idle.push((CacheId { key, life: cache.life }, mark));
        }
    }

    /// Ends a cache that nobody has needed since it was marked.
    pub fn expire(&mut self, id: &CacheId, mark: u64) {
        if self.caches.get(&id.key).is_some_and(|c| c.life == id.life && c.idle == Some(mark))
            && let Some(cache) = self.caches.remove(&id.key)
        {
            cache.stop.cancel();
        }
    }

    /// Takes in what an object says. Returns who wants to know.
    pub fn record(&mut self, id: &CacheId, name: ObjectName, obs: Observation) -> Vec<PipelineKey> {
        let seq = self.next();
        let object = object_of(&id.key, &name);
        let by = self.wanted_by.get(&object);
        let Some(cache) = self.caches.get_mut(&id.key).filter(|c| c.life == id.life) else { return Vec::new() };
        if by.is_none() && obs.status == Status::NotFound {
            cache.objects.remove(&name);
            return Vec::new();
        }
        let ring = by.map(|_| Ring::default());
        let tracked = cache.objects.entry(name).or_insert_with(|| Tracked { current: Observation::default(), seq: 0, ring });
        if tracked.seq > 0 && tracked.current == obs {
            return Vec::new();
        }
        if let Some(ring) = tracked.ring.as_mut() {
            ring.push(seq, &obs);
        }
        tracked.current = obs;
        tracked.seq = seq;
        if cache.phase == Phase::Synced { by.into_iter().flatten().cloned().collect() } else { Vec::new() }
    }

    /// A list has ended: what it did not hold is gone, and the cache can be relied on. Returns who wants to know.
    pub fn listed(&mut self, id: &CacheId, seen: &HashSet<ObjectName>) -> Vec<PipelineKey> {
        let Some(cache) = self.cache(id) else { return Vec::new() };
        let gone: Vec<ObjectName> = cache.objects.keys().filter(|n| !seen.contains(*n)).cloned().collect();
        let mut wake = HashSet::new();
        for name in gone {
            wake.extend(self.record(id, name, observe(None)));
        }
        wake.extend(self.set_phase(id, Phase::Synced).1);
        wake.into_iter().collect()
    }

    /// Says how a cache is doing. Returns whether that is new, and who wants to know.
    pub fn set_phase(&mut self, id: &CacheId, phase: Phase) -> (bool, Vec<PipelineKey>) {
        let Some(cache) = self.caches.get_mut(&id.key).filter(|c| c.life == id.life && c.phase != phase) else {
            return (false, Vec::new());
        };
        cache.phase = phase;
        let concerned = self.wanted_by.iter().filter(|(object, _)| self.locate(object).as_ref() == Some(&id.key));
        (true, concerned.flat_map(|(_, by)| by).cloned().collect::<HashSet<_>>().into_iter().collect())
    }

    /// Whether what the cache knows can be relied on.
    pub fn is_synced(&self, id: &CacheId) -> bool {
        self.cache(id).is_some_and(|c| c.phase == Phase::Synced)
    }

    /// What is known of an object, and what it said after `after`.
    pub fn read(&self, object: &ClusterAppRef, after: u64) -> Reading {
        let unknown = |reason, message: &str| Now::Unknown { reason, message: message.to_owned() };
        let nothing = |now| Reading { observations: Vec::new(), now, seq: 0, overflowed: false };
        let Some(key) = self.locate(object) else {
            let message = format!("namespace {} is not among those that are watched", object.namespace);
            return nothing(unknown(Reason::NamespaceNotWatched, &message));
        };
        let Some(cache) = self.caches.get(&key) else {
            return nothing(unknown(Reason::CacheNotSynced, "nobody has asked for this object yet"));
        };
        let tracked = cache.objects.get(&name_of(object));
        let ring = tracked.and_then(|t| t.ring.as_ref());
        let now = match &cache.phase {
            Phase::Unknown(reason, message) => unknown(*reason, message),
            Phase::Synced => Now::Known(tracked.map_or_else(|| observe(None), |t| t.current.clone())),
        };
        Reading {
            observations: ring.iter().flat_map(|r| &r.said).filter(|(seq, _)| *seq > after).cloned().collect(),
            now,
            seq: tracked.map_or(0, |t| t.seq),
            overflowed: ring.is_some_and(|r| r.lost > after),
        }
    }

    /// The highest sequence number that was given.
    pub fn seq(&self) -> u64 {
        self.counter
    }

    /// How many caches there are, and how many objects they know.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.caches.len(), self.caches.values().map(|c| c.objects.len()).sum())
    }

    /// The cache that follows an object; `None` where nothing is watched.
    fn locate(&self, object: &ClusterAppRef) -> Option<CacheKey> {
        let namespace = match &self.scope {
            Scope::All => None,
            Scope::Namespaces(watched) => Some(watched.get(&object.namespace)?.clone()),
        };
        Some(CacheKey {
            cluster: self.cluster.clone(),
            api_version: object.api_version.clone(),
            kind: object.kind.clone(),
            namespace,
        })
    }

    fn cache(&self, id: &CacheId) -> Option<&Cache> {
        self.caches.get(&id.key).filter(|c| c.life == id.life)
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
}

/// Whether two observations say the same, whatever their words.
fn same_but_words(a: &Observation, b: &Observation) -> bool {
    let strip = |o: &Observation| Observation { reason: String::new(), message: String::new(), ..o.clone() };
    strip(a) == strip(b)
}

fn name_of(object: &ClusterAppRef) -> ObjectName {
    (object.namespace.clone(), object.name.clone())
}

fn object_of(key: &CacheKey, (namespace, name): &ObjectName) -> ClusterAppRef {
    ClusterAppRef {
        api_version: key.api_version.clone(),
        kind: key.kind.clone(),
        namespace: namespace.clone(),
        name: name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(name: &str) -> PipelineKey {
        PipelineKey { namespace: "team".into(), name: name.into() }
    }

    fn app(kind: &str, namespace: &str, name: &str) -> ClusterAppRef {
        ClusterAppRef { api_version: "v1".into(), kind: kind.into(), name: name.into(), namespace: namespace.into() }
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
            Self { store: Store::new("in-cluster".to_owned(), scope), parent: CancellationToken::new() }
        }

        fn need(&mut self, name: &str, refs: &[ClusterAppRef]) -> Declared {
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
            assert_eq!(self.store.listed(&id, &seen), [pipeline("p")]);
            id
        }

        fn record(&mut self, id: &CacheId, name: &str, obs: Observation) -> Vec<PipelineKey> {
            self.store.record(id, ("ns".to_owned(), name.to_owned()), obs)
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
        bench.record(&id, "a", observe(None));
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
        bench.record(&id, "c", observe(None));
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
}
