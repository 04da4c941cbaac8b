//! `Bundle`: the combined state of its deployments on all clusters.
//!
//! Fleet counts the deployments first, updates them, and then writes the counts with the new generation. So for a moment, deployments that
//! have just started count as ready. Fleet counts unavailable deployments afterwards. So a Bundle is `Current` only if none is unavailable
//! in any partition.
//!
//! A deployment counts as failed until its agent has processed the next one, so an error can be about the generation before.

use serde_json::Value;

use super::{
    COMMIT, Condition, Errors, Family, GROUP, HELM_OP_NAME, Part, REPO, Reading, Relation, Rules, Status, Verdict, View,
    corrects_drift, count, has_failed, is_waiting, refused, summary, unobserved,
};

/// Fleet lists only the first deployments that are not ready. This is the error of all others.
const NOT_LISTED: &str = "";
/// The states of deployments that are not ready.
const STATES: [&str; 7] = ["ErrApplied", "Modified", "NotReady", "OutOfSync", "Pending", "WaitApplied", super::WAITS_REASON];

pub(crate) static BUNDLE: Rules = Rules { group: GROUP, kind: "Bundle", reader: "fleet-bundle/4", read };

fn read(view: &View<'_>) -> Reading {
    let (verdict, revision) = (rolled_out(view), revision(view));
    let revision = if revision.is_empty() { view.text("/status/resourcesSha256Sum") } else { revision };
    Reading::declared(verdict, revision)
        .drifted(count(view, "modified") > 0 && !corrects_drift(view))
        .suspended(view.flag("/spec/paused"))
        .showing(errors(view))
        .related(part(view))
}

/// Returns the commit that it was created from, or the version of the chart. Returns an empty string if it was created from neither.
fn revision<'a>(view: &View<'a>) -> &'a str {
    match (view.label(COMMIT), view.label(HELM_OP_NAME)) {
        ("", "") => "",
        ("", _) => view.text("/spec/helm/version"),
        (commit, _) => commit,
    }
}

fn rolled_out(view: &View<'_>) -> Verdict {
    if let Some(failed) = targeting(view) {
        return Verdict::failed_as(&failed);
    }
    let counted = summary(view);
    let behind = |partition: &Value| partition.get("unavailable").and_then(Value::as_i64).unwrap_or(0) > 0;
    let unavailable = number(view, "unavailable") > 0
        || number(view, "unavailablePartitions") > number(view, "maxUnavailablePartitions")
        || view.list("/status/partitions").iter().any(behind);
    if counted.status == Status::Current && unavailable {
        return Verdict::in_progress("RolloutUnderWay", "not all of its deployments are up to date and available");
    }
    counted
}

/// Returns the condition with the reason why Fleet cannot determine the deployments. For example, the values of a cluster cannot be rendered.
/// Fleet does not observe the generation then, and the deployments stay as they are. When it can determine them again, the reason can stay
/// beside a message that counts them.
fn targeting<'a>(view: &View<'a>) -> Option<Condition<'a>> {
    view.condition("Ready").filter(|ready| ready.is_false() && ready.reason == "Error" && !is_count(ready.message))
}

/// Whether a message counts deployments by their state, such as `WaitApplied(3) [Cluster …`.
fn is_count(message: &str) -> bool {
    message
        .split_once('(')
        .is_some_and(|(state, count)| STATES.contains(&state) && count.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the errors that can be about the generation before: those of its deployments, and that of Fleet itself.
fn errors(view: &View<'_>) -> Errors {
    let about = |generation: Option<i64>| generation.map(|generation| generation.to_string()).unwrap_or_default();
    let observed = about(view.int("/status/observedGeneration"));
    let mut deployments = Errors::default();
    let failed = refused(view).filter(|message| !is_waiting(message));
    failed.for_each(|message| deployments.add(&[message], &observed));
    let listed = i64::try_from(refused(view).count()).unwrap_or(i64::MAX);
    if count(view, "errApplied") > listed {
        deployments.add(&[NOT_LISTED], &observed);
    }
    if let Some(failed) = targeting(view) {
        let mut errors = deployments.all_old();
        errors.add(&[failed.message, failed.updated], &about(view.generation()));
        errors.decide = true;
        return errors;
    }
    if unobserved(view).is_some() {
        return deployments.all_old();
    }
    let listed = view.list("/status/summary/nonReadyResources");
    deployments.decide = deployments.is_any() && !listed.iter().any(has_failed);
    deployments
}

/// Returns what it contributes to its `GitRepo`, its `HelmOp` and its deployments.
fn part(view: &View<'_>) -> Relation {
    let (namespace, name) = view.place();
    let mut families = vec![Family::named(namespace, name)];
    for label in [REPO, HELM_OP_NAME] {
        let owner = view.label(label);
        if !owner.is_empty() {
            families.push(Family::labelled(namespace, label, owner));
        }
    }
    let observed = view.int("/status/observedGeneration").is_some_and(|observed| Some(observed) == view.generation());
    let all_reached = number(view, "unavailablePartitions") <= number(view, "maxUnavailablePartitions");
    Part::of_families(families, revision(view), observed && all_reached)
}

fn number(view: &View<'_>, field: &str) -> i64 {
    view.int(&format!("/status/{field}")).unwrap_or(0)
}
