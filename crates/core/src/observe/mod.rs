//! What the status of an application object reports. Pure: no clock, no I/O.
//!
//! In: one object of any kind from the API server, or `None` if it does not exist, and the pipeline's revision path, if any. The caller
//! sets `types`, from which the kind is read. The rest is JSON of any shape, because a remote cluster may contain anything.
//! Out: an [`Observation`]: kstatus, the running and the attempted revision, the configuration beside it, the Git repository, the reason, and whether it
//! has drifted. The change log decides
//! what counts as a change. For kinds that need other objects, [`see`] reads each object, and [`combine`] combines the results. [`reader`]
//! identifies the rules for a kind.
//!
//! Two things depend on what was observed before, which only the caller knows. An error can be about an earlier revision ([`Errors`]). A
//! label can belong to something that is not staged ([`IfStaged`]).
//!
//! `traits`: labels and owners, by which objects are selected. `record`: labels, annotations and fields that a pipeline records with changes.
//!
//! `kstatus` contains the rules for every kind, `kinds` those of each kind. `revision`: the format of revisions. `path`: the revision path.
//! `view`: safe access to the JSON.

mod errors;
mod kinds;
mod kstatus;
mod path;
mod record;
mod revision;
mod traits;
mod view;
mod whole;

use std::sync::Arc;

use kube_core::DynamicObject;
use sha2::{Digest as _, Sha256};

use relaybook_text::prefix;

pub use errors::Errors;
pub use kinds::parts_of;
use kinds::{Reading, Rules, status_path};
pub use path::{RevisionPath, RevisionPathError};
pub use record::{RecordError, Recorder, is_public_annotation};
use relaybook_api::Status;
use relaybook_api::pipeline::Recorded;
use relaybook_api::values::revision::cut as cut_revision;
pub use traits::{FleetTraits, Labels, Traits};
use view::View;
pub use whole::{EventOrigin, Family, Member, Parent, Part, Parts, Relation, combine};

/// Maximum length of a message in bytes.
const MAX_MESSAGE: usize = 1024;
/// Maximum length of a reason in bytes.
const MAX_REASON: usize = 128;
/// Number of hexadecimal digits of a path's hash in a reader's name.
const PATH_HASH: usize = 8;
/// The edition of the rules for paths into the status. It increases as that of a kind does.
const STATUS_PATH_EDITION: &str = "/2";

/// What the status of an application object reports now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observation {
    /// The kstatus. An object never results in `Unknown`. That status is for objects on a cluster that cannot be read.
    pub status: Status,
    /// The revision that runs. Empty if the object does not report it. At most 256 bytes.
    pub revision: String,
    /// The revision that the object tries to run. Empty if the object does not report it. At most 256 bytes.
    pub attempted_revision: String,
    /// What runs beside the revision: of a `HelmRelease` digests of its values, of a workload the images of its init containers. Empty for
    /// other kinds, or if the object does not report it. At most 256 bytes. See [`relaybook_api::values::configuration`].
    pub configuration: String,
    /// The configuration that the object tries to run.
    pub attempted_configuration: String,
    /// Address of the Git repository that the status is about, without credentials. Empty if the object does not name one. At most 256 bytes.
    pub repository: String,
    /// One word for the cause, for machines. Empty if `Current`. Cut at 128 bytes.
    pub reason: String,
    /// A sentence for people about the cause, cut at 1 KiB at a character boundary. If `Current`, it is empty, or it contains the number of
    /// running replicas of a workload.
    pub message: String,
    /// Whether the cluster differs from what was declared.
    pub drifted: bool,
    /// Whether drift is currently unknown. Then the previous drift state is kept.
    pub drift_unknown: bool,
    /// Whether it is suspended or paused. Then the previous state is kept until it resumes. The other fields have the values that they
    /// would have without the suspension, so that the first observation has a baseline.
    pub suspended: bool,
    /// The errors that it shows, and that can be about an earlier revision than the attempted one.
    pub errors: Errors,
    /// What it reports if its label belongs to what is staged. `None`: it has no such label, or it is known whether the label does.
    pub if_staged: Option<Arc<IfStaged>>,
    /// What the pipeline records of it with a change. It never is a change.
    pub recorded: Option<Arc<Recorded>>,
}

/// What an object reports if its label belongs to what is staged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IfStaged {
    /// Identifies the label and what is staged.
    pub id: String,
    /// The observation in that case.
    pub said: Arc<Observation>,
}

impl Observation {
    /// Whether its controller has not observed the current spec yet. Then reason and message report nothing else.
    #[must_use]
    pub fn is_unobserved(&self) -> bool {
        kstatus::is_unobserved(self.status, &self.reason)
    }

    /// The same observation without what is never a change: reason, message, and what is recorded.
    #[must_use]
    pub fn without_text(&self) -> Self {
        let if_staged = self.if_staged.as_ref().map(|known| {
            let said = Arc::new(known.said.without_text());
            Arc::new(IfStaged { id: known.id.clone(), said })
        });
        Self { reason: String::new(), message: String::new(), if_staged, recorded: None, ..self.clone() }
    }
}

/// What is read from an object, and what it contributes if it is read together with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadObject {
    /// Its own observation, as if there were no other objects.
    pub observation: Observation,
    /// What it contributes if it is read together with others. `None`: it is read alone.
    pub relation: Option<Relation>,
}

impl ReadObject {
    /// Returns the result for an object that does not exist.
    #[must_use]
    pub fn nothing() -> Self {
        see(None, None, None)
    }
}

/// Reads an application object alone. `None`: it does not exist. With a path, the revision is the value at that path.
#[must_use]
pub fn observe(object: Option<&DynamicObject>, revision_path: Option<&RevisionPath>) -> Observation {
    see(object, revision_path, None).observation
}

/// Reads an application object, also with what it contributes if it is read together with others, and with what `recorder` reads of it.
#[must_use]
pub fn see(object: Option<&DynamicObject>, revision_path: Option<&RevisionPath>, recorder: Option<&Recorder>) -> ReadObject {
    let Some(object) = object else {
        let observation = Observation {
            status: Status::NotFound,
            reason: "NotFound".to_owned(),
            message: "the application object does not exist".to_owned(),
            ..Observation::default()
        };
        return ReadObject { observation, relation: None };
    };
    let view = View::new(object);
    let mut reading = (Rules::of_object(object).read)(&view);
    if let Some(path) = revision_path {
        reading = at(path, object, reading);
    }
    let verdict = kstatus::terminating(&view).unwrap_or(reading.verdict);
    let observation = Observation {
        status: verdict.status,
        revision: cut_revision(reading.running),
        attempted_revision: cut_revision(reading.tried),
        configuration: cut_revision(reading.configuration),
        attempted_configuration: cut_revision(reading.tried_configuration),
        repository: reading.repository,
        reason: prefix(&verdict.reason, MAX_REASON).to_owned(),
        message: prefix(&verdict.message, MAX_MESSAGE).to_owned(),
        drifted: reading.drifted || kstatus::drifted(&view),
        drift_unknown: reading.drift_unknown,
        suspended: reading.suspended,
        errors: reading.errors,
        if_staged: None,
        recorded: recorder.and_then(|recorder| recorder.read(object)),
    };
    match reading.relation {
        Some(Relation::Parent(parent)) => {
            match parent.saying(&observation, revision_path.map(|path| path.below_status().is_some())) {
                Some(mut parent) => {
                    let alone = combine(&mut parent, &[]);
                    ReadObject { observation: alone, relation: Some(Relation::Parent(parent)) }
                }
                None => ReadObject { observation, relation: None },
            }
        }
        part => ReadObject { observation, relation: part },
    }
}

/// A reading with the revision at a path. Outside of the status, it is the attempted revision, and it runs once the object is `Current`.
fn at(path: &RevisionPath, object: &DynamicObject, reading: Reading) -> Reading {
    let value = path.find(object);
    if let Some(below_status) = path.below_status() {
        return status_path::read(object.types.as_ref(), below_status, &View::new(object), value, reading);
    }
    let running = if reading.verdict.status == Status::Current { value.clone() } else { String::new() };
    Reading { running, tried: value, ..reading }
}

/// Returns a name for the rules of a kind with their edition, and for the path of the revision. If the name changes, states that the old
/// rules settled cannot be compared with new states, and Relaybook takes a new baseline.
#[must_use]
pub fn reader(api_version: &str, kind: &str, revision_path: Option<&str>) -> String {
    let rules = Rules::of(api_version, kind).reader;
    let Some(path) = revision_path else { return rules.to_owned() };
    let first = path.trim_start_matches(|c: char| !c.is_alphabetic());
    let edition = if first.starts_with("status") { STATUS_PATH_EDITION } else { "" };
    format!("{rules}@{}{edition}", &hex::encode(Sha256::digest(path))[..PATH_HASH])
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
