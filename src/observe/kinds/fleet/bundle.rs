//! `Bundle`: what its deployments on all clusters come to.
//!
//! Fleet counts the deployments first, moves them on, and then writes the counts with the new generation: for a moment all are ready
//! that have just begun. How many are unavailable is counted afterwards, so that must be none, in no partition.

use serde_json::Value;

use super::{
    COMMIT, Family, GROUP, HELM_OP_NAME, Part, REPO, Reading, Rules, Status, Ties, Verdict, View, corrects_drift, count,
    summary,
};

pub(in super::super) static BUNDLE: Rules = Rules { group: GROUP, kind: "Bundle", reader: "fleet-bundle/2", read };

fn read(view: &View<'_>) -> Reading {
    let (verdict, revision) = (rolled_out(view), revision(view));
    let revision = if revision.is_empty() { view.text("/status/resourcesSha256Sum") } else { revision };
    Reading::declared(verdict, revision)
        .drifted(count(view, "modified") > 0 && !corrects_drift(view))
        .suspended(view.flag("/spec/paused"))
        .tied(part(view))
}

/// The commit that it was made from, or the version of the chart; empty of one that nobody has made from either.
fn revision<'a>(view: &View<'a>) -> &'a str {
    match (view.label(COMMIT), view.label(HELM_OP_NAME)) {
        ("", "") => "",
        ("", _) => view.text("/spec/helm/version"),
        (commit, _) => commit,
    }
}

fn rolled_out(view: &View<'_>) -> Verdict {
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

/// What counts of it for its `GitRepo`, its `HelmOp` and its deployments.
fn part(view: &View<'_>) -> Box<Ties> {
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
    Part::tied(families, revision(view), observed && all_reached)
}

fn number(view: &View<'_>, field: &str) -> i64 {
    view.int(&format!("/status/{field}")).unwrap_or(0)
}
