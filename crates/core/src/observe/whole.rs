//! Objects of two kinds that are read together, because neither kind alone reports which revision runs.
//!
//! In: a [`Parent`] and its parts, each read by the rules of its own kind. Out: their combined observation ([`combine`]). A [`Family`]
//! identifies the parts that belong to a parent. A [`Part`] knows the families to which it belongs.
//!
//! The parts must meet one of two conditions. All of them must run the revision of their parent ([`Parent::of_revision`]). Or one of them
//! must confirm that the parent's label belongs to the staged revision, because the label can be newer ([`Parent::labelled`]).

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use relaybook_text::prefix;

use super::errors::Errors;
use super::{IfStaged, Observation};
use relaybook_api::Status;

/// Number of hexadecimal digits that identify a label with what is staged.
const ID: usize = 16;

/// The objects that belong to one parent: the object in a namespace with a name, or the objects with a label value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Family {
    /// Their namespace.
    pub namespace: String,
    /// How the objects are identified.
    by: By,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum By {
    Name(String),
    Label(&'static str, String),
}

impl Family {
    /// The single object with this name.
    pub(super) fn named(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), by: By::Name(name.to_owned()) }
    }

    /// A family for tests of other modules.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn test(namespace: &str, name: &str) -> Self {
        Self::named(namespace, name)
    }

    /// All objects with this label.
    pub(super) fn labelled(namespace: &str, label: &'static str, value: &str) -> Self {
        Self { namespace: namespace.to_owned(), by: By::Label(label, value.to_owned()) }
    }
}

/// How the event arrived with the current state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOrigin {
    /// In a list. States between the previous one and this one can be missing.
    Listed,
    /// In a watch event right after the previous state.
    Changed,
    /// In the watch event of its creation.
    Created,
}

/// What an object contributes if it is read together with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It is read with its parts.
    Parent(Parent),
    /// It is a part of others.
    Part(Part),
}

impl Relation {
    /// The data of a parent, if the object is one.
    #[must_use]
    pub const fn as_parent(&self) -> Option<&Parent> {
        match self {
            Self::Parent(parent) => Some(parent),
            Self::Part(_) => None,
        }
    }

    /// The data of a part, if the object is one.
    #[must_use]
    pub const fn as_part(&self) -> Option<&Part> {
        match self {
            Self::Part(part) => Some(part),
            Self::Parent(_) => None,
        }
    }

    /// Carries over from the previous state what is known about the label of a parent.
    #[must_use]
    pub fn following(mut self, before: Option<&Self>, origin: EventOrigin) -> Self {
        if let Self::Parent(Parent { requirement: Requirement::Label(label), .. }) = &mut self {
            let before = before.and_then(Self::as_parent).and_then(|parent| match &parent.requirement {
                Requirement::Label(label) => Some(label),
                Requirement::Revision(_) => None,
            });
            label.knowledge = match (before, origin) {
                (Some(before), _) if (&before.commit, &before.staged) == (&label.commit, &label.staged) => before.knowledge,
                // Fleet writes the staged ID and the label in one write.
                (Some(before), EventOrigin::Changed) if before.staged == label.staged => Knowledge::Alone,
                (Some(_), EventOrigin::Changed) | (None, EventOrigin::Created) => Knowledge::Confirmed,
                _ => Knowledge::Unknown,
            };
        }
        self
    }
}

/// An object that is read with its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    family: Arc<Family>,
    /// Its own observation. `Current` if nothing in its own status prevents that.
    own: Arc<Observation>,
    requirement: Requirement,
}

/// The condition that the parts must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Revision(Revision),
    Label(Label),
}

/// All parts run this revision and are `Current`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Revision {
    wanted: String,
    /// Whether modifications are corrected automatically. Then they are not drift.
    corrects_drift: bool,
    /// Whether the revision is from the status. Then it is the running revision, regardless of the parts.
    in_status: bool,
}

/// A label that can be newer than the staged revision.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Label {
    commit: String,
    staged: String,
    /// Whether the content of the staged revision is that of the label. Its options can still be others.
    has_content: bool,
    knowledge: Knowledge,
}

/// What is known about a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    /// It came with the staged revision, or a part has confirmed it since.
    Confirmed,
    /// It came without a staged revision.
    Alone,
    /// Its arrival was not seen.
    Unknown,
}

impl Label {
    /// Identifies the label and the staged revision.
    fn id(&self) -> String {
        let both = Sha256::new().chain_update(&self.commit).chain_update([0]).chain_update(&self.staged);
        hex::encode(both.finalize())[..ID].to_owned()
    }
}

impl Parent {
    /// A parent that runs a revision when all of its parts run it.
    pub(super) fn of_revision(family: Family, revision: &str, corrects_drift: bool) -> Relation {
        let revision = Revision { wanted: revision.to_owned(), corrects_drift, in_status: false };
        let requirement = Requirement::Revision(revision);
        Relation::Parent(Self { family: Arc::new(family), own: Arc::default(), requirement })
    }

    /// A parent whose label belongs to the staged revision if a part confirms it. `has_content`: whether the content of the staged revision
    /// is that of the label.
    pub(super) fn labelled(family: Family, commit: &str, staged: &str, has_content: bool) -> Relation {
        let (commit, staged) = (commit.to_owned(), staged.to_owned());
        let label = Label { commit, staged, has_content, knowledge: Knowledge::Unknown };
        let requirement = Requirement::Label(label);
        Relation::Parent(Self { family: Arc::new(family), own: Arc::default(), requirement })
    }

    /// The family of its parts.
    #[must_use]
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Replaces its family by an equal one that other parents have, too. There can be tens of thousands of parents.
    pub fn share_family(&mut self, family: &Arc<Family>) {
        self.family = family.clone();
    }

    /// Replaces its own observation by an equal one that others have, too.
    pub fn share_own(&mut self, shared: impl FnOnce(&Observation) -> Arc<Observation>) {
        self.own = shared(&self.own);
    }

    /// Returns an identifier of its label and the staged revision, if the label is confirmed.
    #[must_use]
    pub fn confirmed(&self) -> Option<String> {
        match &self.requirement {
            Requirement::Label(label) if label.knowledge == Knowledge::Confirmed => Some(label.id()),
            Requirement::Label(_) | Requirement::Revision(_) => None,
        }
    }

    /// Adds its own observation. `path`: `None` if the pipeline sets no revision path, otherwise whether that path leads into the status.
    /// With a path, the label is not used and needs no confirmation. So the result for a parent with a label is then `None`.
    pub(super) fn saying(mut self, own: &Observation, path: Option<bool>) -> Option<Self> {
        match (&mut self.requirement, path) {
            (Requirement::Label(_), Some(_)) => return None,
            (Requirement::Revision(revision), Some(in_status)) => revision.in_status = in_status,
            (_, None) => {}
        }
        self.own = Arc::new(own.clone());
        Some(self)
    }
}

/// An object that is a part of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    families: Vec<Family>,
    /// The revision that it was created from.
    revision: String,
    /// Whether everything that belongs to it is staged at that revision.
    staged: bool,
}

impl Part {
    pub(super) fn of_families(families: Vec<Family>, revision: &str, staged: bool) -> Relation {
        Relation::Part(Self { families, revision: revision.to_owned(), staged })
    }

    /// The families to which it belongs.
    #[must_use]
    pub fn families(&self) -> &[Family] {
        &self.families
    }
}

/// A part as it was last read.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its own observation, and what it contributes. `None`: it cannot be read.
    pub read: Option<(&'a Observation, &'a Part)>,
}

/// The kind of the parts of a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The kind. Its API version is the same as that of the parent.
    pub kind: &'static str,
    /// Whether the parts can be in another namespace than their parent.
    pub elsewhere: bool,
}

/// Combines a parent and its parts into one observation. `members` contains all parts of its family, in a stable order. The parent
/// remembers that a part has confirmed its label.
#[must_use]
pub fn combine(parent: &mut Parent, members: &[Member<'_>]) -> Observation {
    match &mut parent.requirement {
        Requirement::Revision(revision) => of_revision(&parent.own, revision, members),
        Requirement::Label(label) => {
            let confirms = |part: &Part| part.staged && part.revision == label.commit;
            if members.iter().any(|member| member.read.is_some_and(|(_, part)| confirms(part))) {
                label.knowledge = Knowledge::Confirmed;
            }
            of_label(&parent.own, label)
        }
    }
}

fn of_revision(own: &Observation, required: &Revision, members: &[Member<'_>]) -> Observation {
    let drifts = |member: &Member<'_>| member.read.is_some_and(|(said, _)| said.drifted);
    let drifted = own.drifted || (!required.corrects_drift && members.iter().any(drifts));
    let said = Observation { drifted, errors: errors(own, required, members), ..own.clone() };
    let Some((status, reason, message)) = (own.status == Status::Current).then(|| in_the_way(required, members)).flatten()
    else {
        return said;
    };
    let revision = if required.in_status { own.revision.clone() } else { String::new() };
    Observation { status, reason, message: prefix(&message, super::MAX_MESSAGE).to_owned(), revision, ..said }
}

/// Returns the errors of a parent and of its parts.
fn errors(own: &Observation, required: &Revision, members: &[Member<'_>]) -> Errors {
    let mut errors = own.errors.clone();
    let mut decide = true;
    for (said, part) in members.iter().filter_map(|member| member.read) {
        errors.add_part(&said.errors, part.revision != required.wanted);
        decide &= said.status != Status::Failed || said.errors.decide;
    }
    errors.decide = if own.status == Status::Failed { own.errors.decide } else { decide && errors.is_any() };
    errors
}

/// Returns why the parts do not run the revision of their parent: status, reason and message.
fn in_the_way(required: &Revision, members: &[Member<'_>]) -> Option<(Status, String, String)> {
    let waits = |reason: &str, message: String| Some((Status::InProgress, reason.to_owned(), message));
    if members.is_empty() {
        return waits("NotObserved", "none of its Bundles exists yet".to_owned());
    }
    if let Some(member) = members.iter().find(|member| member.read.is_none()) {
        return waits("NotObserved", format!("Bundle {} cannot be read", member.name));
    }
    let read = || members.iter().filter_map(|member| member.read.map(|(said, part)| (member.name, said, part)));
    if let Some((name, _, part)) = read().find(|(_, _, part)| part.revision != required.wanted) {
        let found = match part.revision.as_str() {
            "" => "has no revision".to_owned(),
            revision => format!("is at revision {revision}"),
        };
        return waits("BundleNotUpdated", format!("Bundle {name} {found}; expected {}", required.wanted));
    }
    let failed = read().find(|(_, said, _)| said.status == Status::Failed);
    let (name, said, _) = failed.or_else(|| read().find(|(_, said, _)| said.status != Status::Current))?;
    let status = if said.status == Status::Failed { Status::Failed } else { Status::InProgress };
    Some((status, said.reason.clone(), format!("Bundle {name}: {}", said.message)))
}

/// Returns the observation of an object with a label. If it is not known whether the label belongs to what is staged, a failure counts if at
/// least the content is the same.
fn of_label(own: &Arc<Observation>, label: &Label) -> Observation {
    let same_content = label.has_content && label.knowledge == Knowledge::Unknown;
    match own.status {
        _ if label.knowledge == Knowledge::Confirmed => (**own).clone(),
        Status::Failed if same_content => (**own).clone(),
        Status::Terminating | Status::NotFound | Status::Unknown => (**own).clone(),
        Status::Current | Status::Failed => Observation {
            status: Status::InProgress,
            reason: "NotStaged".to_owned(),
            message: format!("the Bundle has not staged commit {} on this cluster yet", label.commit),
            ..unconfirmed(own, label)
        },
        Status::InProgress => unconfirmed(own, label),
    }
}

/// Returns its own observation without a running revision, with what it is if the label belongs to what is staged.
fn unconfirmed(own: &Arc<Observation>, label: &Label) -> Observation {
    let known = IfStaged { id: label.id(), said: own.clone() };
    Observation { revision: String::new(), if_staged: Some(Arc::new(known)), ..(**own).clone() }
}
