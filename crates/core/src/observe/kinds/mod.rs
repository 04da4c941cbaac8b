//! Selects the rules for each kind.
//!
//! In: an API version and a kind. Out: the [`Rules`] for it, which produce a [`Reading`] of an object. Each kind, or group of kinds with
//! the same rules, has a file here with its rules and a table of tests: object → observation. `docs/contributing/kinds.md` explains how to add a
//! kind. `status_path`: what a revision path into the status gives.

mod argo;
mod canary;
mod fleet;
mod flux;
mod flux_source;
mod general;
mod helm_release;
mod job;
mod knative;
mod kustomization;
mod rollout;
pub(super) mod status_path;
mod workloads;

use kube_core::DynamicObject;

use super::errors::Errors;
use super::kstatus::Verdict;
use super::revision;
use super::view::View;
use super::whole::{Parts, Relation};
use relaybook_api::Status;
use relaybook_api::values::kind::ObjectKind;

/// The kinds with rules of their own. If several match, the first one applies.
const KINDS: [&Rules; 19] = [
    &workloads::DEPLOYMENT,
    &workloads::STATEFUL_SET,
    &workloads::DAEMON_SET,
    &job::JOB,
    &kustomization::KUSTOMIZATION,
    &helm_release::HELM_RELEASE,
    &flux_source::SOURCE,
    &flux_source::IMAGE_POLICY,
    &flux_source::IMAGE_UPDATE,
    &flux::ANY,
    &argo::APPLICATION,
    &rollout::ROLLOUT,
    &canary::CANARY,
    &fleet::BUNDLE_DEPLOYMENT,
    &fleet::BUNDLE,
    &fleet::GIT_REPO,
    &fleet::HELM_OP,
    &fleet::CLUSTER,
    &knative::SERVICE,
];

/// How objects of one kind are read.
#[derive(Debug)]
pub(super) struct Rules {
    /// The API group. With a leading dot: any group that ends with it.
    group: &'static str,
    /// The kind. Empty: any kind of the group.
    kind: &'static str,
    /// Name and edition of the rules. The number increases if an edit gives the same object another status, revision or drift. It does not
    /// increase if only the reason or message differs, because texts never count as a change.
    pub(super) reader: &'static str,
    /// Reads an object. Deletion is handled elsewhere.
    pub(super) read: fn(&View<'_>) -> Reading,
}

impl Rules {
    /// Returns the rules for a group and a kind. The version does not matter.
    pub(super) fn of(api_version: &str, kind: &str) -> &'static Self {
        let Ok(kind) = ObjectKind::parse(api_version, kind) else { return &general::ANY };
        KINDS.into_iter().find(|rules| rules.match_(kind.group(), kind.kind())).unwrap_or(&general::ANY)
    }

    pub(super) fn of_object(object: &DynamicObject) -> &'static Self {
        object.types.as_ref().map_or(&general::ANY, |t| Self::of(&t.api_version, &t.kind))
    }

    fn match_(&self, group: &str, kind: &str) -> bool {
        let in_group = if self.group.starts_with('.') { group.ends_with(self.group) } else { group == self.group };
        in_group && (self.kind.is_empty() || kind == self.kind)
    }
}

/// The result of the rules of a kind for an object. Deletion is handled elsewhere.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) verdict: Verdict,
    /// The revision that runs. Empty if unknown.
    pub(super) running: String,
    /// The attempted revision. Empty if unknown. If `Current`, it is the revision that runs.
    pub(super) tried: String,
    /// The configuration that runs. Empty if the kind has none, or if unknown.
    pub(super) configuration: String,
    /// The attempted configuration.
    pub(super) tried_configuration: String,
    /// Address of the Git repository that the status is about, as it may be stored. Empty if the kind has none, or if unknown.
    pub(super) repository: String,
    pub(super) suspended: bool,
    /// Whether the kind's own fields report drift. Conditions that report drift are checked for every kind.
    pub(super) drifted: bool,
    /// Whether these fields currently do not report whether there is drift.
    pub(super) drift_unknown: bool,
    /// The errors that it shows, and that can be about an earlier revision.
    pub(super) errors: Errors,
    /// What the object contributes if it is read together with objects of another kind.
    pub(super) relation: Option<Relation>,
}

impl Reading {
    /// A reading of an object whose status contains both revisions.
    fn named(verdict: Verdict, running: &str, tried: &str) -> Self {
        Self {
            verdict,
            running: running.to_owned(),
            tried: tried.to_owned(),
            configuration: String::new(),
            tried_configuration: String::new(),
            repository: String::new(),
            suspended: false,
            drifted: false,
            drift_unknown: false,
            errors: Errors::default(),
            relation: None,
        }
    }

    /// A reading of an object whose status contains no revision. The declared revision is the attempted one, and it runs once the object is
    /// `Current`.
    fn declared(verdict: Verdict, tried: &str) -> Self {
        let running = if verdict.status == Status::Current { tried } else { "" };
        Self::named(verdict, running, tried)
    }

    /// Adds the configuration that runs, and the attempted one.
    fn configured(self, configuration: String, tried_configuration: String) -> Self {
        Self { configuration, tried_configuration, ..self }
    }

    /// Adds the images of init containers. They run once the object is `Current`.
    fn with_init_images(self, view: &View<'_>) -> Self {
        let tried = revision::of_init_images(view);
        let running = if self.verdict.status == Status::Current { tried.clone() } else { String::new() };
        self.configured(running, tried)
    }

    /// Adds the Git repository.
    fn of_repository(self, repository: String) -> Self {
        Self { repository, ..self }
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

    fn showing(self, errors: Errors) -> Self {
        Self { errors, ..self }
    }

    fn related(self, relation: Relation) -> Self {
        Self { relation: Some(relation), ..self }
    }
}

/// The kind of the parts that objects of a kind are read with. `None`: the kind is read alone. `has_path`: whether the pipeline sets a
/// revision path.
#[must_use]
pub fn parts_of(kind: &ObjectKind, has_path: bool) -> Option<Parts> {
    fleet::parts_of(kind.group(), kind.kind()).filter(|parts| !(parts.elsewhere && has_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &str = include_str!("../../../../../docs/observing.md");

    #[test]
    fn every_kind_has_a_row_in_the_documentation() {
        let rows: Vec<&str> = DOCS.lines().filter(|line| line.starts_with("| [")).collect();
        for rules in KINDS.iter().filter(|rules| !rules.kind.is_empty()) {
            assert!(rows.iter().any(|row| row.contains(&format!("[{}]", rules.kind))), "{}", rules.kind);
        }
    }

    /// The files with the rules of kinds, and the first column of their rows in the table of conditions. Fleet is not among them.
    const FILES: [(&str, &str); 9] = [
        (include_str!("argo.rs"), "Application"),
        (include_str!("canary.rs"), "Canary"),
        (include_str!("flux.rs"), "Kustomization, HelmRelease, others of Flux"),
        (include_str!("helm_release.rs"), "HelmRelease"),
        (include_str!("job.rs"), "Job"),
        (include_str!("knative.rs"), "Service (Knative)"),
        (include_str!("kustomization.rs"), "Kustomization"),
        (include_str!("rollout.rs"), "Rollout"),
        (include_str!("workloads.rs"), "Deployment"),
    ];

    #[test]
    fn every_condition_has_a_row_in_the_documentation() {
        let table = DOCS.split("### Conditions").nth(1).and_then(|rest| rest.split("\n### ").next()).unwrap();
        let columns = |line: &'static str| line.split(" | ").map(|cell| cell.trim_start_matches("| ")).collect::<Vec<_>>();
        let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| ")).map(columns).collect();
        for (text, kind) in FILES {
            let code = text.split("#[cfg(test)]").next().unwrap();
            let calls = ["condition(\"", "condition_true(\""].iter().flat_map(|call| code.split(call).skip(1));
            let read: std::collections::BTreeSet<_> = calls.map(|rest| rest.split('"').next().unwrap()).collect();
            let of_kind = |row: &&Vec<&'static str>| row[0] == kind;
            let documented = rows.iter().filter(of_kind).flat_map(|row| row[1].split('`').skip(1).step_by(2));
            let documented: std::collections::BTreeSet<_> = documented.filter(|type_| *type_ != "Error").collect();
            assert_eq!(documented, read, "{kind}");
        }
    }

    #[test]
    fn every_entry_of_the_table_of_kinds_can_be_selected() {
        for rules in KINDS {
            let group = if rules.group.starts_with('.') { format!("any{}", rules.group) } else { rules.group.to_owned() };
            let kind = if rules.kind.is_empty() { "Any" } else { rules.kind };
            assert_eq!(Rules::of(&format!("{group}/v1"), kind).reader, rules.reader);
        }
    }
}
