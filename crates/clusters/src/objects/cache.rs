//! The data of one cache. Plain data, without locks or I/O.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use relaybook_api::ObjectName;
use relaybook_api::pipeline::{Record, Recorded};
use relaybook_api::values::kind::ObjectKind;
use relaybook_api::values::refs::{ClusterAppRef, ClusterRef};
use relaybook_core::observe::{Family, Observation, Relation, Traits, observe};
use relaybook_core::reading::{Application, Reason};

/// Maximum number of different observations of an object that are kept until they are read.
pub(crate) const RING: usize = 16;
/// Number of observations in the table from which on it is searched for unused ones.
const SWEEP: usize = 1024;

/// Key of one watch: one kind on one cluster, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    /// The cluster. `None`: the local one.
    pub cluster: Option<ClusterRef>,
    /// Path of the revision. `None`: the default of the kind.
    pub revision_path: Option<String>,
    /// Path of the cluster that an object is about. `None`: only selections without such a path use the cache.
    pub cluster_path: Option<String>,
    /// What is recorded of the objects with changes.
    pub record: Option<Arc<Record>>,
    /// The kind.
    pub kind: ObjectKind,
    /// The namespace. `None`: all.
    pub namespace: Option<String>,
}

/// One generation of a cache. Late events of a stopped watch carry an old generation, so they do not reach the next cache with the same
/// key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheId {
    /// Key of the cache.
    pub key: CacheKey,
    /// Number of the generation.
    pub generation: u64,
}

/// State of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The list is complete and the data is valid.
    Synced,
    /// The initial list is not complete, or the data is no longer reliable.
    Unknown(Reason, String),
}

impl Phase {
    /// Whether a change to the other phase is not worth reporting. An unreachable cluster can fail in many ways, one after the other. The
    /// text of a refusal can differ each time. Neither counts as a change.
    pub fn covers(&self, other: &Self) -> bool {
        let away = |reason: &Reason| matches!(reason, Reason::Timeout | Reason::Unreachable);
        match (self, other) {
            (Self::Unknown(a, _), Self::Unknown(b, _)) if away(a) && away(b) => true,
            (Self::Unknown(Reason::Forbidden, _), Self::Unknown(Reason::Forbidden, _)) => true,
            _ => self == other,
        }
    }
}

/// One cache and its data.
pub(crate) struct Cache {
    /// Number of its generation.
    pub generation: u64,
    /// Stops its watch.
    pub stop: CancellationToken,
    /// Its state.
    pub phase: Phase,
    /// Their observations, each once.
    pub observations: Observations,
    /// The objects that it has observed.
    pub objects: HashMap<Arc<ObjectName>, Box<Tracked>>,
    /// Number of referenced objects whose observation needs this cache.
    pub wanted: usize,
    /// Mark for a later expiry. `Some` while no pipeline needs the cache.
    pub idle: Option<u64>,
    /// For objects that are parts of others: the members of each family.
    pub families: HashMap<Family, BTreeSet<ObjectName>>,
    /// Objects that could never be parsed, so their family is not known.
    pub unread: BTreeSet<ObjectName>,
    /// Whether the traits of the objects are kept, so that they can be selected.
    pub keeps_traits: bool,
}

impl Cache {
    /// Returns an empty cache that is not synced.
    pub fn new(generation: u64, stop: CancellationToken) -> Self {
        let (objects, families) = (HashMap::new(), HashMap::new());
        let unread = BTreeSet::new();
        let observations = Observations::default();
        Self {
            generation,
            stop,
            phase: not_synced(),
            observations,
            objects,
            wanted: 0,
            idle: None,
            families,
            unread,
            keeps_traits: false,
        }
    }

    /// Returns the entry of an object. `wanted`: a new entry keeps its observations.
    pub fn tracked(&mut self, name: &ObjectName, wanted: bool) -> &mut Tracked {
        let known = self.objects.get_key_value(name).map(|(known, _)| known.clone());
        let name = known.unwrap_or_else(|| Arc::new(name.clone()));
        self.objects.entry(name).or_insert_with(|| Box::new(Tracked::unseen(wanted)))
    }

    /// Removes all objects.
    pub fn clear(&mut self) {
        self.observations = Observations::default();
        self.objects.clear();
        self.families.clear();
        self.unread.clear();
    }

    /// Updates the families of an object. Returns the families in which the object or its membership may have changed.
    pub fn update_families(&mut self, name: &ObjectName, relation: Option<&Relation>) -> Vec<Family> {
        let families_of = |relation: Option<&Relation>| {
            relation.and_then(Relation::as_part).map_or(&[][..], |part| part.families()).to_vec()
        };
        let before = families_of(self.objects.get(name).and_then(|tracked| tracked.relation.as_deref()));
        let mut touched = families_of(relation);
        for family in &touched {
            self.families.entry(family.clone()).or_default().insert(name.clone());
        }
        for family in before.into_iter().filter(|family| !touched.contains(family)).collect::<Vec<_>>() {
            if let Some(members) = self.families.get_mut(&family) {
                members.remove(name);
                if members.is_empty() {
                    self.families.remove(&family);
                }
            }
            touched.push(family);
        }
        touched
    }

    /// Whether the initial list is not complete.
    pub fn is_filling(&self) -> bool {
        matches!(&self.phase, Phase::Unknown(reason, _) if reason.is_filling())
    }
}

/// A table of observations, so that equal ones are in memory once. Most objects of a kind are in the same state.
#[derive(Default)]
pub(crate) struct Observations {
    table: HashSet<Arc<Observation>>,
    kept: usize,
}

impl Observations {
    /// Returns the observation as the table has it.
    pub fn shared(&mut self, obs: &Observation) -> Arc<Observation> {
        if let Some(known) = self.table.get(obs) {
            return known.clone();
        }
        if self.table.len() >= 2 * self.kept + SWEEP {
            self.table.retain(|obs| Arc::strong_count(obs) > 1);
            self.kept = self.table.len();
        }
        let obs = Arc::new(obs.clone());
        self.table.insert(obs.clone());
        obs
    }
}

/// One object of a cache.
pub(crate) struct Tracked {
    /// The current observation.
    pub current: Arc<Observation>,
    /// Sequence number of the current observation. 0: never observed.
    pub seq: u64,
    /// Time at which the current observation was recorded.
    pub changed_at: Instant,
    /// Whether the current object cannot be parsed. `current` is then the last valid observation.
    pub unreadable: bool,
    /// Recent observations. `None` if no pipeline refers to the object.
    pub ring: Option<Ring>,
    /// Its role as parent or part of a family. For a parent, `current` is the combined observation of the parent and its parts.
    pub relation: Option<Box<Relation>>,
    /// By what it is selected. `None`: it does not exist, or the cache keeps no traits.
    pub traits: Option<Box<Traits>>,
    /// Whether it was created while the cache was synced.
    pub is_created: bool,
}

impl Tracked {
    /// Returns an entry for an object that has not been observed.
    pub fn unseen(wanted: bool) -> Self {
        let ring = wanted.then(Ring::default);
        Self {
            current: Arc::default(),
            seq: 0,
            changed_at: Instant::now(),
            unreadable: false,
            ring,
            relation: None,
            traits: None,
            is_created: false,
        }
    }

    /// Records an observation. Returns whether it differs from the previous one.
    pub fn record(&mut self, seq: u64, obs: Arc<Observation>) -> bool {
        if self.seq > 0 && self.current == obs {
            return false;
        }
        if let Some(ring) = self.ring.as_mut() {
            ring.push(seq, &obs);
        }
        self.current = obs;
        (self.seq, self.changed_at) = (seq, Instant::now());
        true
    }
}

/// The most recent different observations of an object.
#[derive(Default)]
pub(crate) struct Ring {
    /// The observations with their sequence numbers, oldest first.
    pub observations: VecDeque<(u64, Arc<Observation>)>,
    /// Sequence number of the newest observation that was dropped.
    pub lost: u64,
}

impl Ring {
    /// Adds an observation if it differs from the last one in more than reason, message and what is recorded.
    pub fn push(&mut self, seq: u64, obs: &Arc<Observation>) {
        if self.observations.back().is_some_and(|(_, last)| equal_ignoring_text(last, obs)) {
            return;
        }
        if self.observations.len() == RING
            && let Some((seq, _)) = self.observations.pop_front()
        {
            self.lost = seq;
        }
        if self.observations.is_empty() {
            // Most objects change rarely, and there can be many.
            self.observations = VecDeque::with_capacity(1);
        }
        self.observations.push_back((seq, obs.clone()));
    }
}

/// Returns the phase of a cache whose initial list is not complete.
pub(crate) fn not_synced() -> Phase {
    Phase::Unknown(Reason::CacheNotSynced, "the objects are being listed".to_owned())
}

/// Whether two observations are equal apart from reason, message and what is recorded.
fn equal_ignoring_text(a: &Observation, b: &Observation) -> bool {
    a.without_text() == b.without_text()
}

/// Returns the observation of an object that does not exist and was not seen before.
pub(crate) fn unseen(object: &Application) -> Observation {
    Observation { recorded: unseen_values(object.record.as_ref()), ..observe(None, None) }
}

/// Returns what is recorded of an object that was not seen. A condition can distinguish it from an object without values.
pub(crate) fn unseen_values(record: Option<&Arc<Record>>) -> Option<Arc<Recorded>> {
    record.map(|_| Arc::new(Recorded { cut: true, ..Recorded::default() }))
}

pub(crate) fn name_of(object: &Application) -> ObjectName {
    ObjectName::new(&object.object.namespace, &object.object.name)
}

pub(crate) fn object_of(key: &CacheKey, ObjectName { namespace, name }: &ObjectName) -> Application {
    let object = ClusterAppRef {
        api_version: key.kind.api_version().to_owned(),
        kind: key.kind.kind().to_owned(),
        namespace: namespace.clone(),
        name: name.clone(),
        cluster_ref: key.cluster.clone(),
    };
    let (revision_path, cluster_path) = (key.revision_path.clone(), key.cluster_path.clone());
    Application { object, revision_path, cluster_path, record: key.record.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_observations_are_kept_once_and_unused_ones_are_dropped() {
        let mut all = Observations::default();
        let at = |revision: usize| Observation { revision: revision.to_string(), ..Observation::default() };
        let first = all.shared(&at(0));
        assert!(Arc::ptr_eq(&first, &all.shared(&at(0))));
        for revision in 1..10 * SWEEP {
            all.shared(&at(revision));
        }
        assert!(all.table.len() <= 2 * SWEEP, "{}", all.table.len());
        assert!(Arc::ptr_eq(&first, &all.shared(&at(0))));
    }
}
