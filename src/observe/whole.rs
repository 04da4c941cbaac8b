//! Objects of two kinds that are read together, for neither says by itself what runs.
//!
//! In: a [`Parent`] as its rules have read it, and its parts as theirs have. Out: what they say together ([`whole`]). Which parts
//! belong to a parent is its [`Family`], and a [`Part`] knows the families to which it belongs.
//!
//! Two things are asked of the parts. They must all run the revision of their parent ([`Parent::of_revision`]). Or they confirm that
//! a label, which may be newer than what it stands on, is of the revision that was staged ([`Parent::labelled`]).

use super::Observation;
use crate::api::Status;

/// The objects that belong to one parent: those in a namespace that have a name, or a label with a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Family {
    /// Their namespace.
    pub namespace: String,
    /// By what they belong together.
    by: By,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum By {
    Name(String),
    Label(&'static str, String),
}

impl Family {
    /// The one object of this name.
    pub(super) fn named(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), by: By::Name(name.to_owned()) }
    }

    /// All objects with this label.
    pub(super) fn labelled(namespace: &str, label: &'static str, value: &str) -> Self {
        Self { namespace: namespace.to_owned(), by: By::Label(label, value.to_owned()) }
    }
}

/// How an event came of which an object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// In a list: what it said in between was not seen.
    Listed,
    /// Right after what it said before.
    Changed,
    /// Right after it was created.
    Created,
}

/// What of an object counts where it is read together with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ties {
    /// It is read with its parts.
    Parent(Parent),
    /// It is a part of others.
    Part(Part),
}

impl Ties {
    /// The parent, of an object that is one.
    #[must_use]
    pub const fn as_parent(&self) -> Option<&Parent> {
        match self {
            Self::Parent(parent) => Some(parent),
            Self::Part(_) => None,
        }
    }

    /// The part, of an object that is one.
    #[must_use]
    pub const fn as_part(&self) -> Option<&Part> {
        match self {
            Self::Part(part) => Some(part),
            Self::Parent(_) => None,
        }
    }

    /// The same, with what was known of the object before.
    #[must_use]
    pub fn following(mut self, before: Option<&Self>, came: Came) -> Self {
        if let Self::Parent(Parent { asks: Asks::Label(label), .. }) = &mut self {
            let before = before.and_then(Self::as_parent).and_then(|parent| match &parent.asks {
                Asks::Label(label) => Some(label),
                Asks::Revision(_) => None,
            });
            label.believed = match before {
                Some(before) if (&before.commit, &before.staged) == (&label.commit, &label.staged) => before.believed,
                // Fleet writes what it stages and the label together.
                Some(before) => came == Came::Changed && before.staged != label.staged,
                None => came == Came::Created,
            };
        }
        self
    }
}

/// An object that is read with its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    family: Family,
    /// What it says by itself: `Current` where nothing of its own is in the way.
    own: Observation,
    asks: Asks,
}

/// What is asked of the parts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asks {
    Revision(Revision),
    Label(Label),
}

/// All parts run it, and are `Current`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Revision {
    wanted: String,
    /// There may be no part at all.
    may_be_none: bool,
    /// What was modified is put right without anybody.
    corrects_drift: bool,
    /// The revision stands in the status, and so it is what runs whatever the parts say.
    in_status: bool,
}

/// It may be newer than what was staged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Label {
    commit: String,
    staged: String,
    /// It came with what was staged, or was confirmed since.
    believed: bool,
}

impl Parent {
    /// One that runs a revision when all of its parts do.
    pub(super) fn of_revision(family: Family, revision: &str, may_be_none: bool, corrects_drift: bool) -> Box<Ties> {
        let revision = Revision { wanted: revision.to_owned(), may_be_none, corrects_drift, in_status: false };
        Box::new(Ties::Parent(Self { family, own: Observation::default(), asks: Asks::Revision(revision) }))
    }

    /// One whose label is that of the staged revision if its part confirms it.
    pub(super) fn labelled(family: Family, commit: &str, staged: &str) -> Box<Ties> {
        let label = Label { commit: commit.to_owned(), staged: staged.to_owned(), believed: false };
        Box::new(Ties::Parent(Self { family, own: Observation::default(), asks: Asks::Label(label) }))
    }

    /// Which parts are its own.
    #[must_use]
    pub const fn family(&self) -> &Family {
        &self.family
    }

    /// The same with what it says by itself. `path`: whether its revision stands in its status, where a pipeline names the place;
    /// then no label is read, and nothing needs to be confirmed.
    pub(super) fn saying(mut self, own: &Observation, path: Option<bool>) -> Option<Self> {
        match (&mut self.asks, path) {
            (Asks::Label(_), Some(_)) => return None,
            (Asks::Revision(revision), Some(in_status)) => revision.in_status = in_status,
            (_, None) => {}
        }
        self.own = own.clone();
        Some(self)
    }
}

/// An object that is a part of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    families: Vec<Family>,
    /// The revision that it was made from.
    revision: String,
    /// Whether all that belongs to it has been staged at that revision.
    staged: bool,
}

impl Part {
    pub(super) fn tied(families: Vec<Family>, revision: &str, staged: bool) -> Box<Ties> {
        Box::new(Ties::Part(Self { families, revision: revision.to_owned(), staged }))
    }

    /// The families to which it belongs.
    #[must_use]
    pub fn families(&self) -> &[Family] {
        &self.families
    }
}

/// A part as it was read last.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it says by itself, and what of it counts; `None` if it cannot be read.
    pub read: Option<(&'a Observation, &'a Part)>,
}

/// The kind of the parts of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Of the same API version.
    pub kind: &'static str,
    /// Whether they may be in another namespace than their parent.
    pub elsewhere: bool,
}

/// What a parent and its parts say together. `members` has all parts of its family, in an order that stays. What they confirm is
/// remembered in the parent.
#[must_use]
pub fn whole(parent: &mut Parent, members: &[Member<'_>]) -> Observation {
    match &mut parent.asks {
        Asks::Revision(revision) => of_revision(&parent.own, revision, members),
        Asks::Label(label) => {
            let confirms = |part: &Part| part.staged && part.revision == label.commit;
            label.believed |= members.iter().any(|member| member.read.is_some_and(|(_, part)| confirms(part)));
            if label.believed { parent.own.clone() } else { unconfirmed(&parent.own, &label.commit) }
        }
    }
}

fn of_revision(own: &Observation, asked: &Revision, members: &[Member<'_>]) -> Observation {
    let drifts = |member: &Member<'_>| member.read.is_some_and(|(said, _)| said.drifted);
    let drifted = own.drifted || (!asked.corrects_drift && members.iter().any(drifts));
    let said = Observation { drifted, ..own.clone() };
    let Some((status, reason, message)) = (own.status == Status::Current).then(|| in_the_way(asked, members)).flatten()
    else {
        return said;
    };
    let revision = if asked.in_status { own.revision.clone() } else { String::new() };
    Observation { status, reason, message: super::cut(message, super::MAX_MESSAGE), revision, ..said }
}

/// What keeps the parts from being the revision of their parent: status, reason, message.
fn in_the_way(asked: &Revision, members: &[Member<'_>]) -> Option<(Status, String, String)> {
    let waits = |reason: &str, message: String| Some((Status::InProgress, reason.to_owned(), message));
    if members.is_empty() {
        let nothing = "none of its Bundles exists yet".to_owned();
        return if asked.may_be_none { None } else { waits("NotObserved", nothing) };
    }
    if let Some(member) = members.iter().find(|member| member.read.is_none()) {
        return waits("NotObserved", format!("Bundle {} cannot be read", member.name));
    }
    let read = || members.iter().filter_map(|member| member.read.map(|(said, part)| (member.name, said, part)));
    if let Some((name, _, part)) = read().find(|(_, _, part)| part.revision != asked.wanted) {
        let of = if part.revision.is_empty() { "of no revision" } else { part.revision.as_str() };
        return waits("BundleNotUpdated", format!("Bundle {name} is {of}, not {}", asked.wanted));
    }
    let failed = read().find(|(_, said, _)| said.status == Status::Failed);
    let (name, said, _) = failed.or_else(|| read().find(|(_, said, _)| said.status != Status::Current))?;
    let status = if said.status == Status::Failed { Status::Failed } else { Status::InProgress };
    Some((status, said.reason.clone(), format!("Bundle {name}: {}", said.message)))
}

/// What an object says whose label is not believed.
fn unconfirmed(own: &Observation, commit: &str) -> Observation {
    match own.status {
        Status::Current | Status::Failed => Observation {
            status: Status::InProgress,
            revision: String::new(),
            reason: "NotStaged".to_owned(),
            message: format!("the Bundle has not staged {commit} here"),
            ..own.clone()
        },
        Status::InProgress => Observation { revision: String::new(), ..own.clone() },
        Status::Terminating | Status::NotFound | Status::Unknown => own.clone(),
    }
}
