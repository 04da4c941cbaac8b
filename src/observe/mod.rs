//! What an application object's status says: pure, no clock, no I/O.
//!
//! In: one object of any kind as the API server gave it, or `None` where there is none. Its kind is read from `types`, which
//! the caller must have set; the rest is JSON of any shape, for a remote cluster may hold anything. And where in it the
//! revision stands, if the pipeline says so.
//! Out: an [`Observation`]: kstatus, the revision that runs and the one that is tried, why, and whether it has drifted. What of
//! it counts as a change is the change log's to say. [`reader`] names the rules that read a kind. Of kinds that say it only
//! together, [`see`] gives what each says, and [`fn@whole`] puts that together.
//!
//! `kstatus` holds the rules for any kind, `kinds` those of each kind in a file of its own, `revision` how revisions are
//! written down, `path` how a pipeline says where they stand, `view` safe access to the JSON.

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

/// At most so many bytes of a message are kept.
const MAX_MESSAGE: usize = 1024;
/// At most so many bytes of a reason are kept.
const MAX_REASON: usize = 128;
/// So many hexadecimal digits of its hash stand for a path in a reader's name.
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
    /// Whether that cannot be told at present: then what was known of it stands.
    pub drift_unknown: bool,
    /// Suspended or paused: the previous state stands until it goes on. The other fields say what they would if it were not, so
    /// that a first sight has a baseline.
    pub suspended: bool,
}

impl Observation {
    /// Whether its controller has not looked at the present spec yet. Then reason and message say only that.
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

/// A reading with the revision that a path finds: in the status it is what runs and what is tried; elsewhere it is what is
/// tried, and it runs once the object is `Current`.
fn at(path: &RevisionPath, object: &DynamicObject, reading: Reading) -> Reading {
    let tried = path.find(object);
    let runs = path.is_in_status() || reading.verdict.status == Status::Current;
    Reading { running: if runs { tried.clone() } else { String::new() }, tried, ..reading }
}

/// Names the rules that read a kind, with their edition, and the path that its revision is read from: when it changes, what
/// was settled under the old rules is no measure for the new ones, and a new baseline is taken.
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
