//! What one cache knows: plain data.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::values::refs::{ClusterAppRef, ClusterRef};
use crate::cluster::{Application, Reason};
use crate::observe::{Family, Observation, Ties};

/// Maximum number of different observations of an object that are kept until they are read.
pub(in crate::cluster) const RING: usize = 16;

/// One watch: of a kind, on a cluster, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::cluster) struct CacheKey {
    /// The cluster; `None`: the local one.
    pub cluster: Option<ClusterRef>,
    /// Where the revision stands, for those who ask for another place than the kind has.
    pub revision_path: Option<String>,
    /// API version of the kind.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The namespace, or all.
    pub namespace: Option<String>,
}

/// One life of a cache. A watch that was stopped may still deliver something to a successor of the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct CacheId {
    /// What it watches.
    pub key: CacheKey,
    /// Which life it is.
    pub life: u64,
}

/// Namespace and name of an object.
pub(in crate::cluster) type ObjectName = (String, String);

/// How a cache is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Phase {
    /// It has listed everything.
    Synced,
    /// It has not, or what it knows can no longer be relied on.
    Unknown(Reason, String),
}

impl Phase {
    /// Whether the other problem says nothing new. A cluster can be unreachable in many ways, one after the other, and its refusals can
    /// have ever new texts. Neither is a change.
    pub fn covers(&self, other: &Self) -> bool {
        let away = |reason: &Reason| matches!(reason, Reason::Timeout | Reason::Unreachable);
        match (self, other) {
            (Self::Unknown(a, _), Self::Unknown(b, _)) if away(a) && away(b) => true,
            (Self::Unknown(Reason::Forbidden, _), Self::Unknown(Reason::Forbidden, _)) => true,
            _ => self == other,
        }
    }
}

/// What one cache knows.
pub(in crate::cluster) struct Cache {
    /// Which life it is.
    pub life: u64,
    /// Ends its watch.
    pub stop: CancellationToken,
    /// How it is doing.
    pub phase: Phase,
    /// What it knows.
    pub objects: HashMap<ObjectName, Tracked>,
    /// How many objects of this cache somebody refers to.
    pub wanted: usize,
    /// Set when nobody does.
    pub idle: Option<u64>,
    /// Of objects that are parts of others: which of them belong together.
    pub families: HashMap<Family, BTreeSet<ObjectName>>,
    /// Objects that could never be read, so that nobody knows where they belong.
    pub unread: BTreeSet<ObjectName>,
}

impl Cache {
    /// Nothing is known yet.
    pub fn new(life: u64, stop: CancellationToken) -> Self {
        let (objects, families) = (HashMap::new(), HashMap::new());
        let unread = BTreeSet::new();
        Self { life, stop, phase: not_synced(), objects, wanted: 0, idle: None, families, unread }
    }

    /// Forgets all objects.
    pub fn clear(&mut self) {
        self.objects.clear();
        self.families.clear();
        self.unread.clear();
    }

    /// Says where an object belongs from now on. The families in which that, or the object, may have changed.
    pub fn tie(&mut self, name: &ObjectName, ties: Option<&Ties>) -> Vec<Family> {
        let families_of =
            |ties: Option<&Ties>| ties.and_then(Ties::as_part).map_or(&[][..], |part| part.families()).to_vec();
        let before = families_of(self.objects.get(name).and_then(|tracked| tracked.ties.as_deref()));
        let mut touched = families_of(ties);
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

    /// Whether it is being filled for the first time.
    pub fn is_filling(&self) -> bool {
        matches!(&self.phase, Phase::Unknown(reason, _) if reason.is_filling())
    }
}

/// One object.
pub(in crate::cluster) struct Tracked {
    /// What it says now.
    pub current: Observation,
    /// Its place among what all objects said; 0 before anything was seen.
    pub seq: u64,
    /// When it came to say what it says now.
    pub came: Instant,
    /// Whether what it says now cannot be read: `current` is what it said last.
    pub unreadable: bool,
    /// Only where somebody refers to it.
    pub ring: Option<Ring>,
    /// What of it counts where it is read together with others; `current` is then what they say together.
    pub ties: Option<Box<Ties>>,
}

impl Tracked {
    /// Nothing has been seen of it yet.
    pub fn unseen(wanted: bool) -> Self {
        let ring = wanted.then(Ring::default);
        Self { current: Observation::default(), seq: 0, came: Instant::now(), unreadable: false, ring, ties: None }
    }

    /// Takes in what it says. Whether that is news.
    pub fn say(&mut self, seq: u64, obs: Observation) -> bool {
        if self.seq > 0 && self.current == obs {
            return false;
        }
        if let Some(ring) = self.ring.as_mut() {
            ring.push(seq, &obs);
        }
        self.current = obs;
        (self.seq, self.came) = (seq, Instant::now());
        true
    }
}

/// The last different things that an object said.
#[derive(Default)]
pub(in crate::cluster) struct Ring {
    /// Each with its place, oldest first.
    pub said: VecDeque<(u64, Observation)>,
    /// Sequence number of the newest that had to go.
    pub lost: u64,
}

impl Ring {
    /// Adds what differs from the last in more than words.
    pub fn push(&mut self, seq: u64, obs: &Observation) {
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

/// It is being filled for the first time.
pub(in crate::cluster) fn not_synced() -> Phase {
    Phase::Unknown(Reason::CacheNotSynced, "the objects are being listed".to_owned())
}

/// Whether two observations say the same, whatever their words.
fn same_but_words(a: &Observation, b: &Observation) -> bool {
    let strip = |o: &Observation| Observation { reason: String::new(), message: String::new(), ..o.clone() };
    strip(a) == strip(b)
}

pub(in crate::cluster) fn name_of(object: &Application) -> ObjectName {
    (object.object.namespace.clone(), object.object.name.clone())
}

pub(in crate::cluster) fn object_of(key: &CacheKey, (namespace, name): &ObjectName) -> Application {
    let object = ClusterAppRef {
        api_version: key.api_version.clone(),
        kind: key.kind.clone(),
        namespace: namespace.clone(),
        name: name.clone(),
        cluster_ref: key.cluster.clone(),
    };
    Application { object, revision_path: key.revision_path.clone() }
}
