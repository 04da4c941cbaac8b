//! Which rules read which kind.
//!
//! In: an API version and a kind. Out: the [`Rules`] that read it, which make a [`Reading`] of an object. A kind, or a family
//! that is read alike, has a file here with its rules and a table of tests, object → observation; `docs/observing.md` says how
//! to write another.

mod argo;
mod fleet;
mod flux;
mod general;
mod helm_release;
mod job;
mod knative;
mod kustomization;
mod workloads;

use kube::core::DynamicObject;

use super::kstatus::Verdict;
use super::view::View;
use super::whole::{Parts, Ties};
use crate::api::Status;

/// The kinds with rules of their own. Of two that match, the first one counts.
const KINDS: [&Rules; 14] = [
    &workloads::DEPLOYMENT,
    &workloads::STATEFUL_SET,
    &workloads::DAEMON_SET,
    &job::JOB,
    &kustomization::KUSTOMIZATION,
    &helm_release::HELM_RELEASE,
    &flux::ANY,
    &argo::APPLICATION,
    &fleet::BUNDLE_DEPLOYMENT,
    &fleet::BUNDLE,
    &fleet::GIT_REPO,
    &fleet::HELM_OP,
    &fleet::CLUSTER,
    &knative::SERVICE,
];

/// How one kind is read.
#[derive(Debug)]
pub(super) struct Rules {
    /// The API group; with a leading dot, any that ends so.
    group: &'static str,
    /// The kind; empty: any of the group.
    kind: &'static str,
    /// The rules' name and edition. An edit that gives the same object another status, revision or drift raises the number; one that
    /// gives it another reason or message does not, for words never count.
    pub(super) reader: &'static str,
    /// What they make of an object, deletion aside.
    pub(super) read: fn(&View<'_>) -> Reading,
}

impl Rules {
    /// By group and kind; the version decides nothing.
    pub(super) fn of(api_version: &str, kind: &str) -> &'static Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        KINDS.into_iter().find(|rules| rules.match_(group, kind)).unwrap_or(&general::ANY)
    }

    pub(super) fn of_object(object: &DynamicObject) -> &'static Self {
        object.types.as_ref().map_or(&general::ANY, |t| Self::of(&t.api_version, &t.kind))
    }

    fn match_(&self, group: &str, kind: &str) -> bool {
        let in_group = if self.group.starts_with('.') { group.ends_with(self.group) } else { group == self.group };
        in_group && (self.kind.is_empty() || kind == self.kind)
    }
}

/// What the rules of a kind make of an object, deletion aside.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) verdict: Verdict,
    /// The revision that runs; empty if unknown.
    pub(super) running: String,
    /// The revision that is tried; empty if unknown. When `Current`, the one that runs.
    pub(super) tried: String,
    pub(super) suspended: bool,
    /// What the kind's own fields say of drift; conditions that do are looked at for every kind.
    pub(super) drifted: bool,
    /// They do not say at present.
    pub(super) drift_unknown: bool,
    /// What counts where it is read together with objects of another kind.
    pub(super) ties: Option<Box<Ties>>,
}

impl Reading {
    /// Of an object whose status names both revisions.
    fn named(verdict: Verdict, running: &str, tried: &str) -> Self {
        let (running, tried) = (running.to_owned(), tried.to_owned());
        Self { verdict, running, tried, suspended: false, drifted: false, drift_unknown: false, ties: None }
    }

    /// Of an object whose status names no revision: what its spec declares is tried, and runs once it is `Current`.
    fn declared(verdict: Verdict, tried: &str) -> Self {
        let running = if verdict.status == Status::Current { tried } else { "" };
        Self::named(verdict, running, tried)
    }

    fn suspended(self, suspended: bool) -> Self {
        Self { suspended, ..self }
    }

    fn drifted(self, drifted: bool) -> Self {
        Self { drifted, ..self }
    }

    fn drift_unknown(self, drift_unknown: bool) -> Self {
        Self { drift_unknown, ..self }
    }

    fn tied(self, ties: Box<Ties>) -> Self {
        Self { ties: Some(ties), ..self }
    }
}

/// What objects of a kind are read with; `None` of a kind that is read alone. `has_path`: the pipeline says where the revision
/// stands.
#[must_use]
pub fn parts_of(api_version: &str, kind: &str, has_path: bool) -> Option<Parts> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    fleet::parts_of(group, kind).filter(|parts| !(parts.elsewhere && has_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &str = include_str!("../../../docs/observing.md");

    #[test]
    fn every_kind_has_a_row_in_the_documentation() {
        let rows: Vec<&str> = DOCS.lines().filter(|line| line.starts_with("| [")).collect();
        for rules in KINDS.iter().filter(|rules| !rules.kind.is_empty()) {
            assert!(rows.iter().any(|row| row.contains(&format!("[{}]", rules.kind))), "{}", rules.kind);
        }
    }

    #[test]
    fn every_kind_is_reached() {
        for rules in KINDS {
            let group = if rules.group.starts_with('.') { format!("any{}", rules.group) } else { rules.group.to_owned() };
            let kind = if rules.kind.is_empty() { "Any" } else { rules.kind };
            assert_eq!(Rules::of(&format!("{group}/v1"), kind).reader, rules.reader);
        }
    }
}
