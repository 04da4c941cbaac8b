//! Which objects a pipeline or a `PipelineSet` selects without naming them. Pure.
//!
//! In: what a pipeline selects; the [`Traits`] of an object, and those of the Fleet `Cluster` that it is about. Out: whether the object is
//! selected.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use globset::GlobSet;
use kube_core::Expression;
use sha2::{Digest as _, Sha256};

use crate::observe::Traits;
use relaybook_api::Time;
use relaybook_api::pipeline::Record;
use relaybook_api::pipeline::source::{Chunk, FleetCluster, OwnedBy, TargetOrigin};
use relaybook_api::values::kind::ObjectKind;
use relaybook_api::values::refs::ClusterRef;

use super::{Application, Reason};

/// Objects of one kind on one cluster. Two selections with the same `id` are equal.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Identifies the selection. It is derived from all other fields.
    pub id: String,
    /// The cluster that contains the objects, with its namespace. `None`: the local one.
    pub cluster_ref: Option<ClusterRef>,
    /// The kind.
    pub kind: ObjectKind,
    /// Path of the revision. `None`: the default of the kind.
    pub revision_path: Option<String>,
    /// Path of the name of the cluster that an object is about.
    pub cluster_path: Option<String>,
    /// What is recorded of an object with a change.
    pub record: Option<Arc<Record>>,
    /// Namespaces of the objects. `None`: all.
    pub namespaces: Option<BTreeSet<String>>,
    /// Name of the object. `None`: any.
    pub name: Option<String>,
    /// All of these must match the labels of an object.
    pub labels: Vec<Expression>,
    /// An object must have this owner.
    pub owner: Option<OwnedBy>,
    /// For `BundleDeployments` of Fleet: on which clusters.
    pub fleet: Option<FleetClusters>,
    /// Only a part of these objects.
    pub chunk: Option<Chunk>,
    /// The object of Fleet that all selected objects come from.
    pub source: Option<Source>,
}

/// A `GitRepo` or a `HelmOp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Which clusters of Fleet a selection is about.
#[derive(Clone, Debug)]
pub struct FleetClusters {
    /// The Fleet workspace: the namespace of the groups.
    pub workspace: String,
    /// All of these must match the labels of the `Cluster`.
    pub labels: Vec<Expression>,
    /// The `Cluster` must be in one of these `ClusterGroups`. Empty: in any or none.
    pub groups: BTreeSet<String>,
    /// Globs for its name. `None`: any.
    pub names: Option<GlobSet>,
}

impl PartialEq for Selection {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Selection {}

impl Hash for Selection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

/// How an object began to be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It was in a list. It can have been there before.
    Listed,
    /// It was created while its kind was watched.
    Created,
    /// It was there before, and was not selected.
    Moved,
}

/// One selected object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The object.
    pub object: Application,
    /// How it began to be selected.
    pub joined: Joined,
    /// Sequence number of the event with which it began to be selected. Its observations from then on are kept.
    pub seq: u64,
    /// Its `creationTimestamp`.
    pub created: Option<Time>,
    /// The `Cluster` of Fleet that it is about.
    pub fleet_cluster: Option<FleetCluster>,
    /// The value at the path of the cluster. `None`: no path, or no value.
    pub cluster: Option<Arc<str>>,
    /// The bundle of a `BundleDeployment`.
    pub bundle: Option<String>,
}

/// The objects of one selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selecting {
    /// The selected objects, by namespace and name; at most some hundred that are not targets yet.
    pub objects: Vec<Selected>,
    /// Number of all selected objects.
    pub total: usize,
    /// The newest `creationTimestamp` of all selected objects.
    pub newest: Option<Time>,
    /// Why objects can be missing. `None`: the selection is complete.
    pub incomplete: Option<(Reason, String)>,
    /// The object that they come from, with the address of its repository.
    pub source: Option<TargetOrigin>,
    /// `ClusterGroups` that the selection names and that do not exist.
    pub missing_groups: Vec<String>,
}

/// One object that a `PipelineSet` selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceObject {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// How it began to be selected.
    pub joined: Joined,
    /// Its `creationTimestamp`.
    pub created: Option<Time>,
}

/// The objects that a `PipelineSet` selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The objects, by namespace and name.
    pub objects: Vec<SourceObject>,
    /// Number of all selected objects.
    pub total: usize,
    /// The newest `creationTimestamp` of all selected objects.
    pub newest: Option<Time>,
    /// Why objects can be missing. `None`: the selection is complete.
    pub incomplete: Option<(Reason, String)>,
}

/// When the agent of a `Cluster` of Fleet last reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckIn {
    /// Time since this report was first seen, by our clock.
    pub since: Duration,
    /// How old the report was then, by the clock of the agent. `None`: the report came while Relaybook was watching.
    pub age_before: Option<Duration>,
    /// The usual time between two reports, of those that came while Relaybook was watching.
    pub interval: Option<Duration>,
}

/// What is known about the `Cluster` of Fleet that a `BundleDeployment` is about.
#[derive(Clone, Copy, Debug)]
pub struct OfCluster<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its labels. `None`: it is not known.
    pub traits: Option<&'a Traits>,
}

impl Selection {
    /// Returns the selection of all objects of a kind on the local cluster. Its `id` is empty.
    #[must_use]
    pub fn of_kind(kind: ObjectKind) -> Self {
        Self {
            id: String::new(),
            cluster_ref: None,
            kind,
            revision_path: None,
            cluster_path: None,
            record: None,
            namespaces: None,
            name: None,
            labels: Vec::new(),
            owner: None,
            fleet: None,
            chunk: None,
            source: None,
        }
    }

    /// Whether the selection depends on the labels of `Clusters` of Fleet.
    #[must_use]
    pub fn needs_clusters(&self) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| !fleet.labels.is_empty() || !fleet.groups.is_empty())
    }

    /// Whether an object is selected, apart from the cluster that it is about.
    #[must_use]
    pub fn selects(&self, namespace: &str, name: &str, traits: &Traits) -> bool {
        self.name.as_ref().is_none_or(|only| only == name)
            && self.namespaces.as_ref().is_none_or(|namespaces| namespaces.contains(namespace))
            && all_match(&self.labels, traits)
            && self.owner.as_ref().is_none_or(|owner| traits.is_owned_by(&owner.kind, &owner.name))
            && self.chunk.is_none_or(|chunk| self.chunk_of(namespace, name, traits, chunk.of) == chunk.index)
    }

    /// Returns the part that an object belongs to. All `BundleDeployments` of a cluster are in one part.
    fn chunk_of(&self, namespace: &str, name: &str, traits: &Traits, of: u32) -> u32 {
        let cluster = traits.fleet_cluster().filter(|_| self.fleet.is_some());
        let (namespace, name) = cluster.unwrap_or((namespace, name));
        chunk_of(&format!("{namespace}/{name}"), of)
    }
}

impl FleetClusters {
    /// Whether a cluster is selected. `groups`: the selectors of the groups that exist.
    #[must_use]
    pub fn selects<'g>(&self, cluster: OfCluster<'_>, groups: impl Fn(&str) -> Option<&'g [Expression]>) -> bool {
        let by_name = |names: &GlobSet| {
            names.is_match(cluster.name) || names.is_match(format!("{}.{}", cluster.namespace, cluster.name))
        };
        if !self.names.as_ref().is_none_or(by_name) {
            return false;
        }
        if self.labels.is_empty() && self.groups.is_empty() {
            return true;
        }
        let Some(traits) = cluster.traits else { return false };
        let in_group = |group: &String| groups(group).is_some_and(|labels| all_match(labels, traits));
        all_match(&self.labels, traits)
            && (self.groups.is_empty() || (cluster.namespace == self.workspace && self.groups.iter().any(in_group)))
    }
}

/// Returns the part of `of` parts that a key belongs to. With one part more, only the keys of the new part move.
///
/// This is the jump consistent hash (<https://arxiv.org/abs/1406.2294>) of the first 8 bytes of a SHA-256. Pipelines depend on it, so it must
/// not change.
fn chunk_of(key: &str, of: u32) -> u32 {
    let mut state = Sha256::digest(key).iter().take(8).fold(0_u64, |all, byte| (all << 8) | u64::from(*byte));
    let (mut chunk, mut next) = (0_u32, 0_u64);
    while next < u64::from(of) {
        chunk = u32::try_from(next).unwrap_or(0);
        state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        // (chunk + 1) * 2^31 / (the upper 31 bits of the state + 1)
        next = ((u64::from(chunk) + 1) << 31) / ((state >> 33) + 1);
    }
    chunk
}

/// Whether labels match all requirements, by the rules of Kubernetes
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>).
fn all_match(requirements: &[Expression], traits: &Traits) -> bool {
    requirements.iter().all(|requirement| match requirement {
        Expression::In(key, values) => traits.label(key).is_some_and(|value| values.contains(value)),
        Expression::NotIn(key, values) => traits.label(key).is_none_or(|value| !values.contains(value)),
        Expression::Equal(key, wanted) => traits.label(key) == Some(wanted),
        Expression::NotEqual(key, unwanted) => traits.label(key) != Some(unwanted),
        Expression::Exists(key) => traits.label(key).is_some(),
        Expression::DoesNotExist(key) => traits.label(key).is_none(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_chunk_moves_keys_only_into_the_new_chunk() {
        let keys: Vec<String> = (0..3_000).map(|number| format!("fleet-default/edge-{number}")).collect();
        let mut before: Vec<u32> = vec![0; keys.len()];
        for of in 2..=64 {
            let now: Vec<u32> = keys.iter().map(|key| chunk_of(key, of)).collect();
            let moved = before.iter().zip(&now).filter(|(before, now)| before != now);
            assert!(moved.clone().all(|(_, now)| *now == of - 1), "{of}");
            let (moved, fair) = (moved.count(), keys.len() / of as usize);
            assert!((fair / 2..fair * 2).contains(&moved), "{of}: {moved} of {fair}");
            before = now;
        }
        // Pipelines have these chunks.
        assert_eq!(["a/b", "fleet-default/eu-1", "fleet-default/eu-2"].map(|key| chunk_of(key, 15)), [2, 12, 14]);
    }
}
