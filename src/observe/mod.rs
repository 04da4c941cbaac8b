//! What an application object's status says: pure, no clock, no I/O.
//!
//! In: one object of any kind from the API server, or `None` if it does not exist. Its kind is read from `types`, which the caller must
//! have set. The rest is JSON of any shape, because a remote cluster may contain anything. Also the path of the revision, if the pipeline
//! sets one.
//! Out: an [`Observation`]: kstatus, the running and the attempted revision, the reason, and whether it has drifted. The change log
//! decides what counts as a change. [`reader`] identifies the rules for a kind. For kinds that need other objects, [`see`] reads each of
//! them, and [`fn@whole`] combines the results.
//!
//! `kstatus` has the rules for any kind, and `kinds` those of each kind in its own file. `revision` has the format of revisions, `path`
//! the revision path of a pipeline, and `view` safe access to the JSON.

mod kinds;
mod kstatus;
mod path;
mod revision;
mod view;
mod whole;

use kube::core::DynamicObject;
use sha2::{Digest as _, Sha256};

use crate::api::Status;
pub use kinds::parts_of;
use kinds::{Reading, Rules};
pub use path::{RevisionPath, RevisionPathError};
use view::View;
pub use whole::{Came, Family, Member, Parent, Part, Parts, Ties, whole};

/// Maximum length of a message in bytes.
const MAX_MESSAGE: usize = 1024;
/// Maximum length of a reason in bytes.
const MAX_REASON: usize = 128;
/// Number of hexadecimal digits of a path's hash in a reader's name.
const PATH_HASH: usize = 8;

/// What an application object's status says now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// kstatus. `Unknown` never comes out of an object: it is what a cluster gives that cannot be asked.
    pub status: Status,
    /// The revision that runs; empty where the object does not say, at most 256 bytes.
    pub revision: String,
    /// The revision that it tries to run; empty where the object does not say, at most 256 bytes.
    pub attempted_revision: String,
    /// One word on why, for machines; empty when `Current`, cut at 128 bytes.
    pub reason: String,
    /// A sentence on why, for people, cut at 1 KiB on a character's boundary. When `Current` it is empty, or says how many replicas
    /// of a workload run.
    pub message: String,
    /// Whether it runs something else than was declared.
    pub drifted: bool,
    /// Whether that is unknown at present: then the earlier state is kept.
    pub drift_unknown: bool,
    /// Suspended or paused: the previous state stands until it goes on. The other fields say what they would if it were not, so
    /// that a first sight has a baseline.
    pub suspended: bool,
}

impl Observation {
    /// Whether its controller has not observed the current spec yet. Then reason and message say only that.
    #[must_use]
    pub fn is_unobserved(&self) -> bool {
        kstatus::is_unobserved(self.status, &self.reason)
    }
}

/// What an object says, and what of it counts where it is read together with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it says by itself, as if there were no others.
    pub observation: Observation,
    /// Absent of an object that is read alone.
    pub ties: Option<Box<Ties>>,
}

impl Seen {
    /// What is seen of an object that does not exist.
    #[must_use]
    pub fn nothing() -> Self {
        see(None, None)
    }
}

/// Reads an application object by itself; `None` is one that does not exist. With a path, the revision is what stands there.
#[must_use]
pub fn observe(object: Option<&DynamicObject>, revision_path: Option<&RevisionPath>) -> Observation {
    see(object, revision_path).observation
}

/// The same, with what counts of it where it is read together with others.
#[must_use]
pub fn see(object: Option<&DynamicObject>, revision_path: Option<&RevisionPath>) -> Seen {
    let Some(object) = object else {
        let observation = Observation {
            status: Status::NotFound,
            reason: "NotFound".to_owned(),
            message: "the application object does not exist".to_owned(),
            ..Observation::default()
        };
        return Seen { observation, ties: None };
    };
    let view = View::new(object);
    let mut reading = (Rules::of_object(object).read)(&view);
    if let Some(path) = revision_path {
        reading = at(path, object, reading);
    }
    let verdict = kstatus::terminating(&view).unwrap_or(reading.verdict);
    let observation = Observation {
        status: verdict.status,
        revision: revision::bounded(reading.running),
        attempted_revision: revision::bounded(reading.tried),
        reason: cut(verdict.reason, MAX_REASON),
        message: cut(verdict.message, MAX_MESSAGE),
        drifted: reading.drifted || kstatus::drifted(&view),
        drift_unknown: reading.drift_unknown,
        suspended: reading.suspended,
    };
    match reading.ties.map(|ties| *ties) {
        Some(Ties::Parent(parent)) => match parent.saying(&observation, revision_path.map(RevisionPath::is_in_status)) {
            Some(mut parent) => {
                let alone = whole(&mut parent, &[]);
                Seen { observation: alone, ties: Some(Box::new(Ties::Parent(parent))) }
            }
            None => Seen { observation, ties: None },
        },
        part => Seen { observation, ties: part.map(Box::new) },
    }
}

/// A reading with the revision at a path. In the status, it is the running and the attempted revision. Elsewhere it is the attempted one,
/// and it runs once the object is `Current`.
fn at(path: &RevisionPath, object: &DynamicObject, reading: Reading) -> Reading {
    let tried = path.find(object);
    let runs = path.is_in_status() || reading.verdict.status == Status::Current;
    Reading { running: if runs { tried.clone() } else { String::new() }, tried, ..reading }
}

/// Identifies the rules for a kind, with their edition, and the path of its revision. When it changes, states that were settled by the
/// old rules cannot be compared, and a new baseline is taken.
#[must_use]
pub fn reader(api_version: &str, kind: &str, revision_path: Option<&str>) -> String {
    let rules = Rules::of(api_version, kind).reader;
    match revision_path {
        Some(path) => format!("{rules}@{}", &hex::encode(Sha256::digest(path))[..PATH_HASH]),
        None => rules.to_owned(),
    }
}

fn cut(mut text: String, max: usize) -> String {
    text.truncate(text.floor_char_boundary(max));
    text
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
