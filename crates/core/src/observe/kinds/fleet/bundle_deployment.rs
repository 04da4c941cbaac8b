//! `BundleDeployment`: one bundle on one cluster.
//!
//! Three IDs show the progress of a rollout. The *applied* ID is what the agent has applied. The *wanted* ID is what the agent must apply.
//! The *staged* ID becomes the wanted one when its partition is due. An ID ends with a hash of the cluster's options, so the same commit
//! has another ID on each cluster. So the revision is the commit. Fleet writes it as a label in the same write as the staged ID.
//!
//! But while earlier partitions are not available, Fleet stages nothing in later ones, and still writes the new label there. So a new label
//! beside an unchanged staged ID counts only when the Bundle reports that it has staged that commit everywhere.
//!
//! The agent leaves an error in the status until it has processed the next deployment, and for ever if that fails with the same words. So an
//! error is about the wanted ID only if it was not there for another one.

use super::{
    BUNDLE_NAME, BUNDLE_NAMESPACE, COMMIT, CONTENT, Condition, Errors, Family, GROUP, Parent, Reading, Rules, Status,
    Verdict, View, WAITS_REASON, corrects_drift, is_any_broken, is_waiting,
};

pub(crate) static BUNDLE_DEPLOYMENT: Rules =
    Rules { group: GROUP, kind: "BundleDeployment", reader: "fleet-bundledeployment/4", read };

/// The ID that is applied, the ID that must be applied, and the ID that is next.
struct Ids<'a> {
    applied: &'a str,
    wanted: &'a str,
    staged: &'a str,
}

fn read(view: &View<'_>) -> Reading {
    let (applied, wanted) = (view.text("/status/appliedDeploymentID"), view.text("/spec/deploymentID"));
    let staged = match view.text("/spec/stagedDeploymentID") {
        "" => wanted,
        staged => staged,
    };
    let ids = Ids { applied, wanted, staged };
    let (commit, tried) = (view.label(COMMIT), tried(view, &ids));
    let is_applied = applied == wanted && wanted == staged && not_installed(view).is_none();
    let running = if is_applied { tried } else { "" };
    let watched = view.flag("/status/ready") || !view.list("/status/modifiedStatus").is_empty();
    let drifted = applied == wanted && watched && !view.flag("/status/nonModified") && !corrects_drift(view);
    let held_back = view.flag("/spec/offSchedule") && staged != wanted;
    let verdict = deployed(view, &ids);
    let errors = errors(view, &ids, &verdict);
    let reading = Reading::named(verdict, running, tried)
        .drifted(drifted)
        .showing(errors)
        .suspended(view.flag("/spec/paused") || held_back);
    if commit.is_empty() {
        return reading;
    }
    let bundle = Family::named(view.label(BUNDLE_NAMESPACE), view.label(BUNDLE_NAME));
    reading.related(Parent::labelled(bundle, commit, staged, has_content(view, &ids)))
}

/// Whether what is staged is also wanted, and has the content that belongs to the label. Fleet writes the label of the content with that of
/// the commit. The first part of an ID is the content.
fn has_content(view: &View<'_>, ids: &Ids<'_>) -> bool {
    let content = ids.staged.split_once(':').map_or(ids.staged, |(content, _)| content);
    ids.staged == ids.wanted && !content.is_empty() && content == view.label(CONTENT)
}

/// Returns the error with which the agent refused a deployment. The status does not show which one.
fn errors(view: &View<'_>, ids: &Ids<'_>, verdict: &Verdict) -> Errors {
    let mut errors = Errors::default();
    if ids.applied != ids.wanted
        && verdict.status == Status::Failed
        && let Some(refused) = view.condition("Deployed")
    {
        errors.add(&[refused.message, refused.updated], ids.wanted);
        errors.decide = true;
    }
    errors
}

/// Returns the commit. Without a commit (no `GitRepo` created it), returns the version of the chart, or else the staged ID.
fn tried<'a>(view: &View<'a>, ids: &Ids<'a>) -> &'a str {
    let options = if ids.staged == ids.wanted { "/spec/options/helm/version" } else { "/spec/stagedOptions/helm/version" };
    let all = [view.label(COMMIT), view.text(options), ids.staged];
    all.into_iter().find(|one| !one.is_empty()).unwrap_or_default()
}

/// Derives the state from the same fields and in the same order as Fleet does.
fn deployed(view: &View<'_>, ids: &Ids<'_>) -> Verdict {
    if !view.has_status() {
        return Verdict::in_progress("NoStatus", "the agent of its cluster has not written a status yet");
    }
    let applied = ids.applied == ids.wanted;
    let refused = view.condition("Deployed").filter(|c| !applied && c.is_false());
    match refused {
        Some(refused) if refused.reason == WAITS_REASON || is_waiting(refused.message) => {
            return Verdict::in_progress("DependencyNotReady", refused.message);
        }
        Some(refused) => return Verdict::failed("ErrApplied", refused.message),
        None if !applied => return Verdict::in_progress("WaitApplied", "the agent has not applied this deployment yet"),
        None => {}
    }
    if let Some(failed) = not_installed(view) {
        return Verdict::failed("NotInstalled", failed.message);
    }
    if let Some(blind) = view.condition("Monitored").filter(Condition::is_false) {
        return Verdict::in_progress("NotMonitored", blind.message);
    }
    if !view.flag("/status/ready") {
        return not_ready(view);
    }
    if ids.staged != ids.wanted {
        return Verdict::in_progress("OutOfSync", "the staged content is not deployed on this cluster yet");
    }
    Verdict::current()
}

/// Returns the condition with the reason why the wanted deployment is not installed. The agent reports errors that a repetition does not
/// correct in this way, and does not repeat the deployment: the old version runs.
fn not_installed<'a>(view: &View<'a>) -> Option<Condition<'a>> {
    view.condition("Installed").filter(|c| c.is_false() && !view.flag("/status/ready"))
}

fn not_ready(view: &View<'_>) -> Verdict {
    let words = view.condition("Ready").map_or("", |c| c.message);
    if is_any_broken(view.list("/status/nonReadyStatus")) {
        return Verdict::failed("NotReady", words);
    }
    Verdict::in_progress("NotReady", words)
}
