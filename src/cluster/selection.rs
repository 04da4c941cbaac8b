//! Which objects a pipeline selects without naming them. Pure.
//!
//! In: what a pipeline selects; the [`Traits`] of an object, and those of the Fleet `Cluster` that it is about. Out: whether the object is
//! selected.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use globset::GlobSet;
use kube::core::Expression;

use crate::api::Time;
use crate::api::pipeline::source::{FleetCluster, OwnedBy, TargetOrigin};
use crate::api::values::refs::ClusterRef;
use crate::observe::Traits;

use super::{Application, Reason};

/// Objects of one kind on one cluster. Two selections with the same `id` are equal.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Identifies the selection. It is derived from all other fields.
    pub id: String,
    /// The cluster that contains the objects, with its namespace. `None`: the local one.
    pub cluster_ref: Option<ClusterRef>,
    /// API version of the kind.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// Path of the revision. `None`: the default of the kind.
    pub revision_path: Option<String>,
    /// Path of the name of the cluster that an object is about.
    pub cluster_path: Option<String>,
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

/// When the agent of a `Cluster` of Fleet last reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckIn {
    /// Time since this report was first seen, by our clock.
    pub since: Duration,
    /// How old the report was then, by the clock of the agent. `None`: the report came while Pennant was looking.
    pub age_before: Option<Duration>,
    /// The usual time between two reports, of those that came while Pennant was looking.
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
