//! `GitRepo` and `HelmOp`: the sources from which Fleet deploys.
//!
//! Both write a new revision at once, and the results of their deployments some seconds later. So their own counts are not read. Instead,
//! their Bundles show the revision and the result.

use super::{
    Condition, Family, GROUP, HELM_OP_NAME, Parent, REPO, Reading, Rules, Verdict, View, corrects_drift, unobserved,
};

pub(in super::super) static GIT_REPO: Rules =
    Rules { group: GROUP, kind: "GitRepo", reader: "fleet-gitrepo/3", read: git_repo };

pub(in super::super) static HELM_OP: Rules = Rules { group: GROUP, kind: "HelmOp", reader: "fleet-helmop/2", read: helm_op };

fn git_repo(view: &View<'_>) -> Reading {
    let (job, commit) = (view.text("/status/gitJobStatus"), view.text("/status/commit"));
    // After an outage of the Git server, `Stalled` stays until the next commit.
    let verdict = refused(view, &["Accepted", "GitPolling"]).unwrap_or_else(|| match job {
        _ if commit.is_empty() => Verdict::in_progress("GitUpdating", "the repository was not read yet"),
        "" | "Current" => Verdict::current(),
        "Failed" => Verdict::failed("GitJobFailed", "the job that reads the repository has failed"),
        _ => Verdict::in_progress("GitUpdating", "the job that reads the repository is not finished"),
    });
    with_bundles(view, verdict, REPO, commit)
}

fn helm_op(view: &View<'_>) -> Reading {
    let stalled = || view.condition_true("Stalled").map(|stalled| Verdict::failed_as(&stalled));
    let verdict = refused(view, &["Accepted", "Polled"]).or_else(stalled).unwrap_or_else(Verdict::current);
    with_bundles(view, verdict, HELM_OP_NAME, view.text("/status/version"))
}

/// Returns the problem that its own status reports, if any.
fn refused(view: &View<'_>, conditions: &[&str]) -> Option<Verdict> {
    if !view.has_status() {
        return Some(Verdict::in_progress("NoStatus", "its controller has not written a status yet"));
    }
    if let Some(unobserved) = unobserved(view) {
        return Some(unobserved);
    }
    let refused = conditions.iter().filter_map(|type_| view.condition(type_)).find(Condition::is_false);
    refused.map(|failed| Verdict::failed_as(&failed))
}

fn with_bundles(view: &View<'_>, verdict: Verdict, label: &'static str, revision: &str) -> Reading {
    let (namespace, name) = view.place();
    let bundles = Family::labelled(namespace, label, name);
    Reading::declared(verdict, revision).suspended(view.flag("/spec/paused")).related(Parent::of_revision(
        bundles,
        revision,
        corrects_drift(view),
    ))
}
