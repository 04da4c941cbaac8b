//! Fleet (<https://fleet.rancher.io/ref-status-fields>,
//! <https://github.com/rancher/fleet/tree/main/pkg/apis/fleet.cattle.io/v1alpha1>).
//!
//! In: an object of Fleet. Out: a reading, and its relation to other objects. A `BundleDeployment` is one bundle on one cluster, and shows
//! what it runs there. A `Bundle` and a `Cluster` count their deployments. A `GitRepo` and a `HelmOp` count too, but seconds late, and not
//! by revision. So they are read with their Bundles, each of which has its source revision.
//!
//! A modification in the cluster is drift and not a failure, although Fleet does not count it as ready. It is not drift if Fleet corrects
//! it automatically.

mod bundle;
mod bundle_deployment;
mod cluster;
mod source;

use serde_json::Value;

use super::super::errors::Errors;
use super::super::kstatus::{Verdict, unobserved};
use super::super::view::{Condition, View};
use super::super::whole::{Family, Parent, Part, Parts, Relation};
use super::{Reading, Rules};
use relaybook_api::Status;

pub(super) use bundle::BUNDLE;
pub(super) use bundle_deployment::BUNDLE_DEPLOYMENT;
pub(super) use cluster::CLUSTER;
pub(super) use source::{GIT_REPO, HELM_OP};

const GROUP: &str = "fleet.cattle.io";

/// The commit of a Bundle. Fleet copies it to each `BundleDeployment`.
const COMMIT: &str = "fleet.cattle.io/commit";
/// The content of a Bundle. Fleet writes it on each `BundleDeployment`.
const CONTENT: &str = "fleet.cattle.io/content-name";
/// The `GitRepo` of a Bundle.
const REPO: &str = "fleet.cattle.io/repo-name";
/// The `HelmOp` of a Bundle.
const HELM_OP_NAME: &str = "fleet.cattle.io/fleet-helm-name";
/// The Bundle of a `BundleDeployment`.
const BUNDLE_NAME: &str = "fleet.cattle.io/bundle-name";
/// The namespace of that Bundle.
const BUNDLE_NAMESPACE: &str = "fleet.cattle.io/bundle-namespace";

/// The agent reports a dependency that is not ready as a deployment error. Until Fleet 0.16, only the first text distinguishes it from other
/// errors. From Fleet 0.17 on, it is the second text, with a reason of its own.
const WAITS: [&str; 2] = ["dependent bundle(s) are not ready", "waiting for dependent bundle(s)"];
/// This reason. Such a deployment has this state in the summary of its Bundle, so it does not count as failed there.
const WAITS_REASON: &str = "WaitingForDependency";

/// With this text, the agent reports that it could not install a deployment, and counts the deployment as applied nevertheless.
const NOT_INSTALLED: &str = "not installed: ";

/// Returns the kind of the parts of this kind. The Bundle of a `BundleDeployment` only confirms its label, so it is not needed with a
/// revision path.
pub(crate) fn parts_of(group: &str, kind: &str) -> Option<Parts> {
    match kind {
        "GitRepo" | "HelmOp" if group == GROUP => Some(Parts { kind: "Bundle", elsewhere: false }),
        "BundleDeployment" if group == GROUP => Some(Parts { kind: "Bundle", elsewhere: true }),
        _ => None,
    }
}

/// Whether Fleet corrects modifications automatically.
fn corrects_drift(view: &View<'_>) -> bool {
    view.flag("/spec/correctDrift/enabled")
}

/// Returns the combined state of all deployments.
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
    if view.list("/status/summary/nonReadyResources").iter().any(has_failed) {
        return Verdict::failed("NotReady", words);
    }
    let (ready, modified) = (count(view, "ready"), count(view, "modified"));
    let desired = count(view, "desiredReady");
    if ready.saturating_add(modified) < desired {
        let message = if words.is_empty() { format!("{ready} of {desired} ready") } else { words.to_owned() };
        return Verdict::in_progress("NotReady", message);
    }
    match condition {
        // Something other than its deployments prevents readiness. A modified deployment is not such a reason.
        Some(ready) if !ready.is_true() && modified == 0 => Verdict::in_progress("NotReady", words),
        _ => Verdict::current(),
    }
}

/// Returns how many deployments with an error only wait for a dependency. Counts only the listed ones.
fn waiting(view: &View<'_>) -> i64 {
    i64::try_from(refused(view).filter(|message| is_waiting(message)).count()).unwrap_or(i64::MAX)
}

/// Whether a deployment error only reports a dependency that is not ready.
fn is_waiting(message: &str) -> bool {
    WAITS.iter().any(|text| message.contains(text))
}

/// Returns the errors of the listed deployments that were not applied.
fn refused<'a>(view: &View<'a>) -> impl Iterator<Item = &'a str> {
    let text = |entry: &'a Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let listed = view.list("/status/summary/nonReadyResources").iter();
    listed.filter(move |entry| text(entry, "bundleState") == "ErrApplied").map(move |entry| text(entry, "message"))
}

/// Whether a listed deployment has failed: its chart is not installed, or one of its resources is broken. Only those that are `NotReady` run what
/// they must run. The others still show the errors of the deployment before.
fn has_failed(entry: &Value) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let resources = entry.get("nonReadyStatus").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    text("bundleState") == "NotReady" && (text("message").starts_with(NOT_INSTALLED) || is_any_broken(resources))
}

/// Whether Fleet marks one of these resources with a permanent error.
fn is_any_broken(resources: &[Value]) -> bool {
    resources.iter().any(|resource| {
        let flag = |key| resource.pointer(key).and_then(Value::as_bool).unwrap_or_default();
        flag("/summary/error") && !flag("/summary/transitioning")
    })
}

fn count(view: &View<'_>, state: &str) -> i64 {
    view.int(&format!("/status/summary/{state}")).unwrap_or(0)
}

#[cfg(test)]
mod tests;
