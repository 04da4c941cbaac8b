//! What a selection needs to know about an object: its labels, its owners, and the cluster that it is about.
//!
//! In: an object. Out: its [`Traits`]. Thousands of objects have the same labels, so each label is kept once ([`Labels`]).

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::{DynamicObject, Expression, Selector};

use relaybook_text::prefix;

use super::RevisionPath;
use relaybook_api::Time;
use relaybook_api::pipeline::source::{FLEET_GROUP, FleetCluster};
use relaybook_api::values::kind::ObjectKind;

/// Maximum number of labels of an object that are kept. An object with more is selected by the first ones, by key.
const MAX_LABELS: usize = 64;
/// Maximum number of owners that are kept.
const MAX_OWNERS: usize = 8;
/// Maximum length of the name of a cluster, in bytes.
const MAX_CLUSTER: usize = 253;
/// Maximum length of the address of a repository, in bytes.
const MAX_REPOSITORY: usize = 2048;
/// Maximum length of a time, in bytes.
const MAX_TIME: usize = 64;
/// Number of labels in the table from which on it is searched for unused ones.
const SWEEP: usize = 4096;

/// The group of the kinds of Fleet.
/// The `Cluster` of a `BundleDeployment`. Fleet overwrites this label and the next, so users of a cluster cannot set them.
const CLUSTER: &str = "fleet.cattle.io/cluster";
/// The namespace of that `Cluster`.
const CLUSTER_NAMESPACE: &str = "fleet.cattle.io/cluster-namespace";
/// The Bundle of a `BundleDeployment`.
const BUNDLE: &str = "fleet.cattle.io/bundle-name";

/// One label.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Label {
    key: Box<str>,
    value: Box<str>,
}

/// A table of labels, so that equal ones are in memory once.
#[derive(Debug, Default)]
pub struct Labels {
    table: HashSet<Arc<Label>>,
    texts: HashSet<Arc<str>>,
    kept: usize,
}

impl Labels {
    fn label(&mut self, key: &str, value: &str) -> Arc<Label> {
        let label = Label { key: key.into(), value: value.into() };
        if let Some(known) = self.table.get(&label) {
            return known.clone();
        }
        let label = Arc::new(label);
        self.table.insert(label.clone());
        label
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }

    /// Removes what no object has any more, if the table has doubled since the last time.
    fn sweep(&mut self) {
        if self.table.len() + self.texts.len() < 2 * self.kept + SWEEP {
            return;
        }
        self.table.retain(|label| Arc::strong_count(label) > 1);
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.kept = self.table.len() + self.texts.len();
    }
}

/// What a selection needs to know about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    labels: Box<[Arc<Label>]>,
    owners: Box<[(Arc<str>, Arc<str>)]>,
    /// `creationTimestamp`, in seconds of Unix time.
    created: Option<i64>,
    /// The value at the path of the cluster.
    pub cluster: Option<Arc<str>>,
    /// For some kinds of Fleet: what other objects need to know about it.
    pub fleet: Option<Box<FleetTraits>>,
}

/// What is kept of an object of Fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetTraits {
    /// The requirements of a `ClusterGroup`. `None`: its selector is not valid.
    Group(Option<Vec<Expression>>),
    /// The repository of a `GitRepo` or a `HelmOp`.
    Repository(String),
    /// When the agent of a `Cluster` last reported, as it wrote it. Empty: never.
    LastSeen(String),
}

impl Traits {
    /// Reads the traits of an object. `path`: the path of the cluster that it is about.
    pub fn of(object: &DynamicObject, path: Option<&RevisionPath>, table: &mut Labels) -> Self {
        table.sweep();
        let meta = &object.metadata;
        let labels = meta.labels.iter().flatten().take(MAX_LABELS).map(|(key, value)| table.label(key, value)).collect();
        let owners = meta.owner_references.iter().flatten().take(MAX_OWNERS);
        let owners = owners.map(|owner| (table.text(&owner.kind), table.text(&owner.name))).collect();
        let created = meta.creation_timestamp.as_ref().map(|created| created.0.as_second());
        let cluster = path.map(|path| path.find(object)).filter(|cluster| !cluster.is_empty());
        let cluster = cluster.map(|cluster| table.text(prefix(&cluster, MAX_CLUSTER)));
        Self { labels, owners, created, cluster, fleet: fleet(object).map(Box::new) }
    }

    /// Whether another object has the same labels.
    #[must_use]
    pub fn same_labels(&self, other: &Self) -> bool {
        self.labels == other.labels
    }

    /// Returns all labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|label| (&*label.key, &*label.value))
    }

    /// Returns the value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.binary_search_by(|label| (*label.key).cmp(key)).ok().map(|at| &*self.labels[at].value)
    }

    /// Whether the object has an owner of this kind with this name.
    #[must_use]
    pub fn is_owned_by(&self, kind: &str, name: &str) -> bool {
        self.owners.iter().any(|(of, owner)| &**of == kind && &**owner == name)
    }

    /// Returns `creationTimestamp`.
    #[must_use]
    pub fn created(&self) -> Option<Time> {
        Time::from_second(self.created?).ok()
    }

    /// Returns namespace and name of the `Cluster` of Fleet that a `BundleDeployment` is about.
    #[must_use]
    pub fn fleet_cluster(&self) -> Option<(&str, &str)> {
        Some((self.label(CLUSTER_NAMESPACE)?, self.label(CLUSTER)?))
    }

    /// Returns the same as an owned value.
    #[must_use]
    pub fn fleet_cluster_name(&self) -> Option<FleetCluster> {
        self.fleet_cluster().map(|(namespace, name)| FleetCluster { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Returns the name of the bundle of a `BundleDeployment`.
    #[must_use]
    pub fn bundle(&self) -> Option<&str> {
        self.label(BUNDLE)
    }
}

/// Reads what other objects need to know about an object of Fleet.
fn fleet(object: &DynamicObject) -> Option<FleetTraits> {
    let types = object.types.as_ref()?;
    let kind = ObjectKind::parse(&types.api_version, &types.kind).ok().filter(|kind| kind.group() == FLEET_GROUP)?;
    let text = |pointer: &str, max: usize| {
        let text = object.data.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default();
        prefix(text, max).to_owned()
    };
    match kind.kind() {
        "ClusterGroup" => {
            let selector = object.data.pointer("/spec/selector").cloned().unwrap_or_default();
            let selector: Option<LabelSelector> = serde_json::from_value(selector).ok()?;
            // Fleet selects no cluster for a group without a selector.
            let requirements = selector.and_then(|selector| Selector::try_from(selector).ok());
            Some(FleetTraits::Group(requirements.map(|selector| selector.into_iter().collect())))
        }
        "GitRepo" => Some(FleetTraits::Repository(text("/spec/repo", MAX_REPOSITORY))),
        "HelmOp" => Some(FleetTraits::Repository(text("/spec/helm/repo", MAX_REPOSITORY))),
        "Cluster" => Some(FleetTraits::LastSeen(text("/status/agent/lastSeen", MAX_TIME))),
        _ => None,
    }
}
