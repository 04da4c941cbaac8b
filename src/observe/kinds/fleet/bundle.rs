//! `Bundle`: the combined state of its deployments on all clusters.
//!
//! Fleet counts the deployments first, updates them, and then writes the counts with the new generation. So for a moment, deployments that
//! have just started count as ready. Fleet counts unavailable deployments afterwards. So a Bundle is `Current` only if none is unavailable
//! in any partition.

use serde_json::Value;

use super::{
    COMMIT, Family, GROUP, HELM_OP_NAME, Part, REPO, Reading, Relation, Rules, Status, Verdict, View, corrects_drift, count,
    summary,
};

pub(in super::super) static BUNDLE: Rules = Rules { group: GROUP, kind: "Bundle", reader: "fleet-bundle/3", read };

fn read(view: &View<'_>) -> Reading {
    let (verdict, revision) = (rolled_out(view), revision(view));
    let revision = if revision.is_empty() { view.text("/status/resourcesSha256Sum") } else { revision };
    Reading::declared(verdict, revision)
        .drifted(count(view, "modified") > 0 && !corrects_drift(view))
        .suspended(view.flag("/spec/paused"))
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
    // For example, the values of a cluster cannot be rendered. Fleet does not observe the generation then, and the deployments stay as they are.
    if let Some(failed) = view.condition("Ready").filter(|ready| ready.is_false() && ready.reason == "Error") {
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
