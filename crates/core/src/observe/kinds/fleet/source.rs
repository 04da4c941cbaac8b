//! `GitRepo` and `HelmOp`: the sources from which Fleet deploys.
//!
//! Both write a new revision at once, and the results of their deployments some seconds later. So their own counts are not read. Instead,
//! their Bundles show the revision and the result.

use super::{
    Condition, Errors, Family, GROUP, HELM_OP_NAME, Parent, REPO, Reading, Rules, Verdict, View, corrects_drift, unobserved,
};

pub(crate) static GIT_REPO: Rules = Rules { group: GROUP, kind: "GitRepo", reader: "fleet-gitrepo/4", read: git_repo };

pub(crate) static HELM_OP: Rules = Rules { group: GROUP, kind: "HelmOp", reader: "fleet-helmop/3", read: helm_op };

/// The condition of the last check for a new version.
const POLLED: &str = "Polled";
/// The reason if the job has failed that reads the repository.
const JOB_FAILED: &str = "GitJobFailed";

fn git_repo(view: &View<'_>) -> Reading {
    let (job, commit) = (view.text("/status/gitJobStatus"), view.text("/status/commit"));
    let verdict = refused(view, &["Accepted", "GitPolling"]).unwrap_or_else(|| match job {
        _ if commit.is_empty() => Verdict::in_progress("GitUpdating", "the repository was not read yet"),
        "" | "Current" => Verdict::current(),
        "Failed" => Verdict::failed(JOB_FAILED, "the job that reads the repository has failed"),
        _ => Verdict::in_progress("GitUpdating", "the job that reads the repository is not finished"),
    });
    let errors = job_errors(view, job, commit, &verdict);
    with_bundles(view, verdict, REPO, commit).showing(errors)
}

/// Returns the error of the job. Fleet writes a new commit before the result of its job.
fn job_errors(view: &View<'_>, job: &str, commit: &str, verdict: &Verdict) -> Errors {
    let mut errors = Errors::default();
    if job == "Failed" {
        let stalled = view.condition("Stalled");
        errors.add(&[job, stalled.map_or("", |c| c.message), stalled.map_or("", |c| c.updated)], commit);
        errors.decide = verdict.reason == JOB_FAILED;
    }
    errors
}

fn helm_op(view: &View<'_>) -> Reading {
    let verdict = refused(view, &["Accepted", POLLED]).unwrap_or_else(Verdict::current);
    with_bundles(view, verdict, HELM_OP_NAME, view.text("/status/version"))
}

/// Returns the problem that its own status reports, if any. `Stalled` is not read: until Fleet 0.16 it can stay long after an outage, and
/// whenever it is right, another condition or the job reports the same. Nor is `Ready`: it is written some seconds late.
fn refused(view: &View<'_>, conditions: &[&str]) -> Option<Verdict> {
    if !view.has_status() {
        return Some(Verdict::in_progress("NoStatus", "its controller has not written a status yet"));
    }
    if let Some(unobserved) = unobserved(view) {
        return Some(unobserved);
    }
    let refused = |type_: &&str| {
        // Without polling, the condition can be false without an error.
        let is_off = |condition: &Condition<'_>| *type_ == POLLED && condition.message.is_empty();
        view.condition(type_).filter(|condition| condition.is_false() && !is_off(condition))
    };
    conditions.iter().find_map(refused).map(|failed| Verdict::failed_as(&failed))
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
