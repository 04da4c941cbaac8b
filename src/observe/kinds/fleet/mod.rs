//! Fleet (<https://fleet.rancher.io/ref-status-fields>,
//! <https://github.com/rancher/fleet/tree/main/pkg/apis/fleet.cattle.io/v1alpha1>).
//!
//! In: one of its objects. Out: a reading, and its relation to others. A `BundleDeployment` is one bundle on one cluster, and shows what
//! it runs there. A `Bundle` and a `Cluster` count theirs. A `GitRepo` and a `HelmOp` count too, but seconds late, and not by revision.
//! So they are read with their Bundles, each of which has its source revision.
//!
//! What was modified in the cluster is drift and no failure, though Fleet does not count it as ready; and it is no drift where
//! Fleet corrects it by itself.

mod bundle;
mod bundle_deployment;
mod cluster;
mod source;

use serde_json::Value;

use super::super::kstatus::{Verdict, unobserved};
use super::super::view::{Condition, View};
use super::super::whole::{Family, Parent, Part, Parts, Ties};
use super::{Reading, Rules};
use crate::api::Status;

pub(super) use bundle::BUNDLE;
pub(super) use bundle_deployment::BUNDLE_DEPLOYMENT;
pub(super) use cluster::CLUSTER;
pub(super) use source::{GIT_REPO, HELM_OP};

const GROUP: &str = "fleet.cattle.io";

/// The commit of a Bundle. Fleet copies it to each `BundleDeployment`.
const COMMIT: &str = "fleet.cattle.io/commit";
/// The `GitRepo` of a Bundle.
const REPO: &str = "fleet.cattle.io/repo-name";
/// The `HelmOp` of a Bundle.
const HELM_OP_NAME: &str = "fleet.cattle.io/fleet-helm-name";
/// The Bundle of a `BundleDeployment`.
const BUNDLE_NAME: &str = "fleet.cattle.io/bundle-name";
/// And its namespace.
const BUNDLE_NAMESPACE: &str = "fleet.cattle.io/bundle-namespace";

/// The agent reports a dependency that is not ready as an error of the deployment, and only these words tell it from others.
const WAITS: &str = "dependent bundle(s) are not ready";

/// The kind of the parts of this one. Those of a `BundleDeployment` are asked about its label, which no other revision needs.
pub(in super::super) fn parts_of(group: &str, kind: &str) -> Option<Parts> {
    match kind {
        "GitRepo" | "HelmOp" if group == GROUP => Some(Parts { kind: "Bundle", elsewhere: false }),
        "BundleDeployment" if group == GROUP => Some(Parts { kind: "Bundle", elsewhere: true }),
        _ => None,
    }
}

/// Whether Fleet puts right by itself what was modified.
fn corrects_drift(view: &View<'_>) -> bool {
    view.flag("/spec/correctDrift/enabled")
}

/// What the states of all deployments come to.
fn summary(view: &View<'_>) -> Verdict {
    if !view.has_status() {
        return Verdict::in_progress("NoStatus", "its controller has not written a status yet");
    }
    if let Some(unobserved) = unobserved(view) {
        return unobserved;
    }
    let condition = view.condition("Ready");
    let words = condition.map_or("", |c| c.message);
    if count(view, "errApplied") > waiting(view) {
        return Verdict::failed("ErrApplied", words);
    }
    let (ready, modified) = (count(view, "ready"), count(view, "modified"));
    let desired = count(view, "desiredReady");
    if ready.saturating_add(modified) < desired {
        let message = if words.is_empty() { format!("{ready} of {desired} ready") } else { words.to_owned() };
        return Verdict::in_progress("NotReady", message);
    }
    match condition {
        // Something else than its deployments keeps it: what was modified is no reason.
        Some(ready) if !ready.is_true() && modified == 0 => Verdict::in_progress("NotReady", words),
        _ => Verdict::current(),
    }
}

/// How many of those with an error only wait for a dependency, as far as they are listed.
fn waiting(view: &View<'_>) -> i64 {
    let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let waits = |entry: &&Value| text(entry, "bundleState") == "ErrApplied" && text(entry, "message").contains(WAITS);
    i64::try_from(view.list("/status/summary/nonReadyResources").iter().filter(waits).count()).unwrap_or(i64::MAX)
}

fn count(view: &View<'_>, state: &str) -> i64 {
    view.int(&format!("/status/summary/{state}")).unwrap_or(0)
}

#[cfg(test)]
mod tests;
