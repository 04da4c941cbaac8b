//! A revision path into the status: which of the two revisions its value is.
//!
//! One value cannot be both what runs and what is tried, except while they are the same. A field of the status is what runs. What is tried is
//! the same if the rules of the kind find that the object tries what it runs. Otherwise it is unknown, and empty.
//!
//! In an Application of Argo CD, two fields are ahead of what runs: `sync` is what was compared with the cluster, and `sourceHydrator` is
//! what was hydrated (<https://argo-cd.readthedocs.io/en/stable/user-guide/source-hydrator/>).

use kube_core::TypeMeta;

use super::super::kstatus::Verdict;
use super::super::path::Step;
use super::super::view::View;
use super::{Reading, argo};
use relaybook_api::Status;
use relaybook_api::values::kind::ObjectKind;

/// A field of an Application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field<'a> {
    /// The revision, or that of the source at this position.
    Revision(Option<usize>),
    /// Another field of what was compared with the cluster.
    Compared,
    /// A field of this operation of the hydrator.
    Hydrated(&'a str),
}

/// Whether the rules of this kind know both revisions for a path, from the steps of the path below `status`.
pub(crate) fn is_known(kind: &ObjectKind, below_status: &[Step]) -> bool {
    field((kind.group(), kind.kind()), below_status).is_some()
}

/// Returns a reading with the value at a path into the status.
pub(crate) fn read(kind: Option<&TypeMeta>, below_status: &[Step], view: &View<'_>, value: String, own: Reading) -> Reading {
    let kind = kind.and_then(|kind| ObjectKind::parse(&kind.api_version, &kind.kind).ok());
    match kind.and_then(|kind| field((kind.group(), kind.kind()), below_status)) {
        Some(Field::Revision(None)) => own,
        Some(Field::Revision(Some(position))) => {
            let source = |all: &str| all.split(',').nth(position).unwrap_or_default().to_owned();
            Reading { running: source(&own.running), tried: source(&own.tried), ..own }
        }
        Some(Field::Compared) if !value.is_empty() => ahead(view, &compared(view), value, own),
        Some(Field::Hydrated(operation)) if !value.is_empty() => {
            ahead(view, view.text(&format!("/status/sourceHydrator/{operation}/hydratedSHA")), value, own)
        }
        _ => {
            let is_same = own.verdict.status == Status::Current || (!own.running.is_empty() && own.running == own.tried);
            Reading { tried: if is_same { value.clone() } else { String::new() }, running: value, ..own }
        }
    }
}

fn field<'a>(group_and_kind: (&str, &str), below_status: &'a [Step]) -> Option<Field<'a>> {
    if group_and_kind != ("argoproj.io", "Application") {
        return None;
    }
    let name = |step: &'a Step| if let Step::Name(name) = step { name.as_str() } else { "" };
    let names: Vec<&str> = below_status.iter().map(name).collect();
    match (names.as_slice(), below_status.last()) {
        (["sync", "revision"] | ["operationState", "syncResult", "revision"], _) => Some(Field::Revision(None)),
        (["sync", "revisions", ""] | ["operationState", "syncResult", "revisions", ""], Some(Step::Element(position))) => {
            Some(Field::Revision(Some(*position)))
        }
        (["sync", ..], _) => Some(Field::Compared),
        (["sourceHydrator", operation, ..], _) => Some(Field::Hydrated(operation)),
        _ => None,
    }
}

/// Returns a reading with a value that is ahead of what runs. It belongs to the commit `of`, and runs once the Application is healthy and in
/// sync with this commit.
fn ahead(view: &View<'_>, of: &str, value: String, own: Reading) -> Reading {
    let is_commit = |revision: &str| !of.is_empty() && revision == of;
    let was_current = own.verdict.status == Status::Current;
    let is_in_sync = was_current && view.text("/status/sync/status") == "Synced" && is_commit(&compared(view));
    let runs = is_in_sync || is_commit(&own.running);
    let tried = if was_current || is_commit(&own.tried) { value.clone() } else { String::new() };
    let verdict = if was_current && !runs {
        Verdict::in_progress("NotSynced", format!("'{value}' is not synced yet"))
    } else {
        own.verdict
    };
    Reading { running: if runs { value } else { String::new() }, tried, verdict, ..own }
}

/// Returns the revision that was compared with the cluster.
fn compared(view: &View<'_>) -> String {
    view.at("/status/sync").map_or_else(String::new, argo::revision)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::super::{Observation, RevisionPath, observe};

    fn at(kind: (&str, &str), path: &str, status: &Value) -> Observation {
        observe(Some(&object(kind, &json!({}), status)), Some(&RevisionPath::parse(path).unwrap()))
    }

    /// An Application with two sources that runs `a` and is in sync. Its status fields are overwritten by those of `more`.
    fn app(more: Value) -> Value {
        let revisions = |revision: &str| json!({"revisions": ["1.2", revision]});
        let base = json!({"health": {"status": "Healthy"}, "sync": with(&revisions("a"), json!({"status": "Synced"})),
            "history": [with(&json!({"id": 5}), revisions("a"))],
            "operationState": {"phase": "Succeeded", "message": "words", "syncResult": revisions("a")}});
        with(&base, more)
    }

    #[test]
    fn a_path_to_a_source_follows_the_rules_of_its_application() {
        let b = || json!({"revisions": ["1.2", "b"]});
        let out_of_sync = || with(&b(), json!({"status": "OutOfSync"}));
        let operation = |phase: &str| json!({"phase": phase, "message": "words", "syncResult": b()});
        for (name, more, want) in [
            ("in sync", json!({}), (Current, "a", "a")),
            ("compared with a new one", json!({"sync": out_of_sync()}), (Current, "a", "a")),
            ("syncs", json!({"sync": out_of_sync(), "operationState": operation("Running")}), (InProgress, "a", "b")),
            ("fails", json!({"sync": out_of_sync(), "operationState": operation("Failed")}), (Failed, "a", "b")),
            (
                "fails, and compares with another one",
                json!({"sync": {"status": "OutOfSync", "revisions": ["1.2", "c"]}, "operationState": operation("Failed")}),
                (Failed, "a", "b"),
            ),
            (
                "fails before its revision is known",
                json!({"sync": out_of_sync(), "operationState": {"phase": "Error", "syncResult": null,
                    "operation": {"sync": {"revisions": ["1.2", "main"]}}}}),
                (Failed, "a", ""),
            ),
        ] {
            for path in [".status.sync.revisions[1]", "$['status'].operationState.syncResult.revisions[ 1 ]"] {
                assert_eq!(summary(&at(APPLICATION, path, &app(more.clone()))), want, "{name} {path}");
            }
            let all = |one: &str| if one.is_empty() { String::new() } else { format!("1.2,{one}") };
            let seen = at(APPLICATION, ".status.sync.revision", &app(more));
            assert_eq!(summary(&seen), (want.0, &*all(want.1), &*all(want.2)), "{name}");
        }
        assert_eq!(summary(&at(APPLICATION, ".status.sync.revisions[2]", &app(json!({})))), (Current, "", ""));
    }

    /// An Application that was hydrated from the dry commit `d2` to the commit `h2`, and runs `h1`. Its status fields are overwritten by those
    /// of `more`.
    fn hydrated(more: Value) -> Value {
        let operation = |phase: &str, to: &str| json!({"phase": phase, "message": "words", "syncResult": {"revision": to}});
        let base = json!({"health": {"status": "Healthy"}, "sync": {"status": "Synced", "revision": "h1"},
            "history": [{"id": 5, "revision": "h1"}], "operationState": operation("Succeeded", "h1"),
            "sourceHydrator": {"lastSuccessfulOperation": {"drySHA": "d2", "hydratedSHA": "h2"},
                "currentOperation": {"drySHA": "d3", "phase": "Hydrating"}}});
        with(&base, more)
    }

    #[test]
    fn a_hydrated_commit_runs_once_it_is_synced() {
        let operation = |phase: &str, to: &str| json!({"phase": phase, "message": "words", "syncResult": {"revision": to}});
        let synced = |more: Value| {
            let base = json!({"sync": {"status": "Synced", "revision": "h2"}, "history": [{"id": 6, "revision": "h2"}],
                "operationState": operation("Succeeded", "h2")});
            hydrated(with(&base, more))
        };
        let out_of_sync = |to: &str| json!({"status": "OutOfSync", "revision": to});
        let health = |status: &str| json!({"health": {"status": status}});
        for (name, status, want) in [
            ("hydrated, and not compared yet", hydrated(json!({})), (InProgress, "", "d2")),
            ("hydrated, and out of sync", hydrated(json!({"sync": out_of_sync("h2")})), (InProgress, "", "d2")),
            ("its sync runs", hydrated(json!({"operationState": operation("Running", "h2")})), (InProgress, "", "d2")),
            (
                "its sync fails",
                hydrated(json!({"operationState": operation("Failed", "h2"), "sync": out_of_sync("h2")})),
                (Failed, "", "d2"),
            ),
            (
                "the sync before has failed",
                hydrated(json!({"operationState": operation("Failed", "h1"), "sync": out_of_sync("h2")})),
                (Failed, "", ""),
            ),
            ("synced, and not healthy yet", synced(health("Progressing")), (InProgress, "d2", "d2")),
            ("synced, and degraded", synced(health("Degraded")), (Failed, "d2", "d2")),
            ("synced", synced(json!({})), (Current, "d2", "d2")),
            ("synced, and drifted", synced(json!({"sync": out_of_sync("h2")})), (Current, "d2", "d2")),
            (
                "nothing is to be synced",
                hydrated(json!({"sync": {"status": "Synced", "revision": "h2"}})),
                (Current, "d2", "d2"),
            ),
        ] {
            let seen = at(APPLICATION, ".status.sourceHydrator.lastSuccessfulOperation.drySHA", &status);
            assert_eq!(summary(&seen), want, "{name}");
            // The commit that is being hydrated now is never the one that runs.
            let seen = at(APPLICATION, ".status.sourceHydrator.currentOperation.drySHA", &status);
            assert_eq!((seen.status == Current, seen.revision), (false, String::new()), "{name}");
        }
        let never = with(&hydrated(json!({})), json!({"sourceHydrator": null}));
        assert_eq!(
            summary(&at(APPLICATION, ".status.sourceHydrator.lastSuccessfulOperation.drySHA", &never)),
            (Current, "", "")
        );
    }

    #[test]
    fn a_compared_revision_runs_once_the_application_is_in_sync() {
        let path = ".status.sync.comparedTo.source.targetRevision";
        let compared = |status: &str, revision: &str| {
            hydrated(
                json!({"sync": {"status": status, "revision": revision, "comparedTo": {"source": {"targetRevision": "v2"}}}}),
            )
        };
        for (status, revision, want) in [
            ("OutOfSync", "h2", (InProgress, "", "v2")),
            ("Synced", "h2", (Current, "v2", "v2")),
            ("OutOfSync", "h1", (Current, "v2", "v2")),
        ] {
            assert_eq!(summary(&at(APPLICATION, path, &compared(status, revision))), want, "{status} {revision}");
        }
    }

    #[test]
    fn the_value_of_a_status_path_is_attempted_only_while_no_other_revision_is() {
        let ready = |status: &str| json!([condition("Ready", status, "Because", 2)]);
        let flux = |status: &str, tried: &str| {
            json!({"observedGeneration": 2, "lastAppliedRevision": "a", "lastAppliedOriginRevision": "origin-a",
                "lastAttemptedRevision": tried, "conditions": ready(status)})
        };
        let origin = ".status.lastAppliedOriginRevision";
        let widget = |status: &str| json!({"version": "1", "observedGeneration": 2, "conditions": ready(status)});
        for (kind, path, status, want) in [
            (KUSTOMIZATION, origin, flux("True", "a"), (Current, "origin-a", "origin-a")),
            (KUSTOMIZATION, origin, flux("True", "b"), (InProgress, "origin-a", "")),
            (KUSTOMIZATION, origin, flux("False", "b"), (Failed, "origin-a", "")),
            (KUSTOMIZATION, origin, flux("False", "a"), (Failed, "origin-a", "origin-a")),
            (KUSTOMIZATION, ".status.lastAttemptedRevision", flux("False", "b"), (Failed, "", "b")),
            (KUSTOMIZATION, ".status.lastAttemptedRevision", flux("True", "a"), (Current, "a", "a")),
            (OTHER, ".status.version", widget("True"), (Current, "1", "1")),
            (OTHER, ".status.version", widget("False"), (InProgress, "1", "")),
        ] {
            assert_eq!(summary(&at(kind, path, &status)), want, "{path}");
        }
    }
}
