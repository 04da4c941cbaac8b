//! Names of generated targets and of their clusters, and how the status records them.
//!
//! In: a target; the text of a cluster. Out: names, and the part of the status that describes how a target came to be.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

use crate::pipeline::plan::PlannedSelection;
use relaybook_api::ObjectName;
use relaybook_api::pipeline::GeneratedTarget;
use relaybook_api::pipeline::source::FleetCluster;
use relaybook_api::pipeline::target::{Entry, TargetInfo};

/// Maximum length of the name of a cluster that is used as it is.
const MAX_CLUSTER: usize = 253;

/// Returns the part of the status that describes how a target came to be.
pub fn record(info: &TargetInfo) -> Option<GeneratedTarget> {
    let Entry::Generated(from) = info.entry else { return None };
    let about = info.cluster_ref.as_ref().filter(|_| info.cluster_ref != info.object_cluster);
    let fleet_cluster =
        about.map(|about| FleetCluster { namespace: about.namespace.clone().unwrap_or_default(), name: about.name.clone() });
    let from = u32::try_from(from).unwrap_or(u32::MAX);
    Some(GeneratedTarget { from, name: info.name.clone(), cluster: info.cluster.clone(), fleet_cluster })
}

/// Returns the name of a cluster, or its hash if it contains other characters than letters, digits, `.` and `-`.
pub(super) fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    if name.len() <= MAX_CLUSTER && name.chars().all(is_plain) {
        return name.to_owned();
    }
    hex::encode(Sha256::digest(name))[..16].to_owned()
}

/// Returns the recorded objects of an entry, by namespace and name.
pub fn names(recorded: &[TargetInfo], planned: &PlannedSelection) -> BTreeSet<ObjectName> {
    let is_of =
        |info: &&TargetInfo| info.environment_index == planned.environment && info.entry == Entry::Generated(planned.from);
    recorded.iter().filter(is_of).map(|info| ObjectName::new(&info.namespace, &info.app.name)).collect()
}
