//! The targets of a pipeline with all their fields, their display names and their names in the change log. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::source::{GeneratedFrom, TargetOrigin, TargetSource};
use super::{EnvironmentStatus, PipelineSpec, PipelineStatus, Record, TargetStatus};
use crate::delivery::{AppObject, Subject, SubjectKind, SubjectTarget};
use crate::values::refs::{AppRef, ClusterRef};
use crate::{LogSubject, Pipeline};

/// The entry of an environment that a target comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The entry of `targets` with this index.
    Listed(usize),
    /// The entry of `targetsFrom` with this index.
    Generated(usize),
}

impl Default for Entry {
    fn default() -> Self {
        Self::Listed(0)
    }
}

/// One target with all fields that it inherits from the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetInfo {
    /// Its environment.
    pub environment: String,
    /// Namespace of the application object.
    pub namespace: String,
    /// Name of the cluster, as in the name of the target.
    pub cluster: String,
    /// The cluster that the target is about. `None`: the local cluster, or a cluster that only a name is known of.
    pub cluster_ref: Option<ClusterRef>,
    /// The cluster that contains the application object, as written in the pipeline. `None`: the local cluster.
    pub object_cluster: Option<ClusterRef>,
    /// The application object.
    pub app: AppRef,
    /// The object of Fleet that the target comes from.
    pub source: Option<TargetOrigin>,
    /// Index of the environment in the spec.
    pub environment_index: usize,
    /// The entry of the environment that the target comes from.
    pub entry: Entry,
    /// For a generated target: path of the name of the cluster, with which its object is watched.
    pub cluster_path: Option<String>,
    /// What changes contain of the application object.
    pub record: Option<Arc<Record>>,
    /// Display name: `ENVIRONMENT/CLUSTER/NAMESPACE`, with `/APP` if the target names another application.
    pub name: String,
}

impl TargetInfo {
    /// Returns the subject in the change log.
    #[must_use]
    pub fn log_subject(&self) -> LogSubject<'_> {
        LogSubject::Target(&self.name)
    }

    /// Returns the subject of deliveries about this target.
    #[must_use]
    pub fn as_subject(&self) -> Subject {
        let app = AppObject {
            api_version: self.app.api_version.clone(),
            kind: self.app.kind.clone(),
            name: self.app.name.clone(),
        };
        Subject {
            kind: SubjectKind::Target,
            name: self.name.clone(),
            environment: self.environment.clone(),
            cluster_ref: None,
            target: Some(SubjectTarget {
                namespace: self.namespace.clone(),
                cluster: self.cluster.clone(),
                cluster_ref: self.cluster_ref.clone(),
                app,
                source: self.source.clone(),
            }),
        }
    }
}

impl Subject {
    /// Returns the name of the application object of a target, if the name of the target contains it. Other targets of the pipeline can then
    /// have other applications.
    #[must_use]
    pub fn own_app(&self) -> Option<&str> {
        let target = self.target.as_ref()?;
        let (environment, cluster) = (self.environment.as_str(), target.cluster.as_str());
        let place = self.name.strip_prefix(environment)?.strip_prefix('/')?.strip_prefix(cluster)?.strip_prefix('/')?;
        (place != target.namespace).then_some(target.app.name.as_str())
    }
}

/// Returns the targets that the spec lists, in its order. Two targets can have the same name. The pipeline controller refuses such a spec.
#[must_use]
pub fn targets(spec: &PipelineSpec, cluster: &str) -> Vec<TargetInfo> {
    (0..spec.environments.len()).flat_map(|index| listed(spec, index, cluster)).collect()
}

/// Returns targets that `targetsFrom` could generate, one for each combination of settings that an entry has: on a cluster that no override
/// matches, and on one for each override. No such object needs to exist.
#[must_use]
pub fn possible_targets(spec: &PipelineSpec) -> Vec<TargetInfo> {
    let mut all = Vec::new();
    for (environment_index, environment) in spec.environments.iter().enumerate() {
        for (index, from) in environment.targets_from.iter().enumerate() {
            let globs = from.overrides.iter().filter_map(|over| over.clusters.first());
            // A glob matches itself with letters in the place of its wildcards.
            let clusters = globs.map(|glob| glob.replace(['*', '?'], "x"));
            for cluster in std::iter::once(String::new()).chain(clusters) {
                let name = format!("{}/targetsFrom[{index}]", environment.name);
                let name = if cluster.is_empty() { name } else { format!("{name}/{cluster}") };
                all.push(TargetInfo {
                    environment: environment.name.clone(),
                    cluster,
                    environment_index,
                    entry: Entry::Generated(index),
                    name,
                    ..TargetInfo::default()
                });
            }
        }
    }
    all
}

/// Returns all targets of a pipeline: for each environment those that the spec lists, and then those that `targetsFrom` has generated, as
/// the status records them.
#[must_use]
pub fn targets_of(pipeline: &Pipeline, cluster: &str) -> Vec<TargetInfo> {
    let (spec, status) = (&pipeline.spec, pipeline.status.as_ref());
    let all = (0..spec.environments.len()).flat_map(|index| {
        let generated = status.map(|status| generated(spec, status, index)).unwrap_or_default();
        listed(spec, index, cluster).into_iter().chain(generated)
    });
    all.collect()
}

/// Returns the targets that one environment of the spec lists.
fn listed(spec: &PipelineSpec, environment_index: usize, cluster: &str) -> Vec<TargetInfo> {
    let (environment, record) = (&spec.environments[environment_index], spec.recorded());
    let info = |(index, target): (usize, &super::Target)| {
        let app = spec.app_ref.overlaid(target.app_ref.as_ref());
        let cluster = target.cluster_ref.as_ref().map_or_else(|| cluster.to_owned(), ClusterRef::full_name);
        let mut name = format!("{}/{cluster}/{}", environment.name, target.namespace);
        if app.name != spec.app_ref.name {
            name.push('/');
            name.push_str(&app.name);
        }
        TargetInfo {
            environment: environment.name.clone(),
            namespace: target.namespace.clone(),
            cluster,
            cluster_ref: target.cluster_ref.clone(),
            object_cluster: target.cluster_ref.clone(),
            app,
            source: None,
            environment_index,
            entry: Entry::Listed(index),
            cluster_path: None,
            record: record.clone(),
            name,
        }
    };
    environment.targets.iter().enumerate().map(info).collect()
}

/// Returns the targets that the status records for `targetsFrom` of one environment.
fn generated(spec: &PipelineSpec, status: &PipelineStatus, environment_index: usize) -> Vec<TargetInfo> {
    let environment = &spec.environments[environment_index];
    if environment.targets_from.is_empty() {
        return Vec::new();
    }
    let Some(known) = status.environments.iter().find(|known| known.name == environment.name) else { return Vec::new() };
    let (entries, record) = (Entries::new(&environment.targets_from, known), spec.recorded());
    let info = |target: &TargetStatus| {
        let from = entries.find(target.generated.as_ref()?.from)?;
        let info = recorded(target, &environment.name, environment_index, (from, &environment.targets_from[from]), known)?;
        Some(TargetInfo { record: record.clone(), ..info })
    };
    known.targets.iter().filter_map(info).collect()
}

/// Returns a recorded target of an entry of `targetsFrom`.
fn recorded(
    target: &TargetStatus,
    environment: &str,
    environment_index: usize,
    (from, entry): (usize, &TargetSource),
    known: &EnvironmentStatus,
) -> Option<TargetInfo> {
    let (object, generated) = (&target.cluster_app_ref, target.generated.as_ref()?);
    let source = known.generated.iter().find(|of| of.from == generated.from).and_then(|of| of.source.clone());
    let fleet_cluster = generated.fleet_cluster.as_ref().map(super::source::FleetCluster::reference);
    let names_another = entry.objects.as_ref().is_some_and(|objects| objects.cluster.is_some());
    let lives = object.cluster_ref.clone().filter(|lives| !names_another || lives.full_name() == generated.cluster);
    Some(TargetInfo {
        environment: environment.to_owned(),
        namespace: object.namespace.clone(),
        cluster: generated.cluster.clone(),
        cluster_ref: fleet_cluster.or(lives),
        object_cluster: object.cluster_ref.clone(),
        app: AppRef {
            api_version: object.api_version.clone(),
            kind: object.kind.clone(),
            name: object.name.clone(),
            revision_path: entry.objects.as_ref().and_then(|objects| objects.revision_path.clone()),
        },
        source,
        environment_index,
        entry: Entry::Generated(from),
        cluster_path: entry.objects.as_ref().and_then(|objects| objects.cluster.clone()),
        record: None,
        name: generated.name.clone(),
    })
}

/// Finds the entry of `targetsFrom` in the current spec that a recorded target comes from. Entries can be edited and moved before the status
/// is written again.
pub struct Entries<'a> {
    /// The hash of each entry of the spec.
    selections: Vec<String>,
    recorded: &'a [GeneratedFrom],
}

impl<'a> Entries<'a> {
    /// Compares the entries of a spec with what the status records of them.
    #[must_use]
    pub fn new(entries: &[TargetSource], known: &'a EnvironmentStatus) -> Self {
        Self { selections: entries.iter().map(TargetSource::selection).collect(), recorded: &known.generated }
    }

    /// Returns the index in the spec of the entry that was recorded with this index. If no entry selects the same, the entry with this index
    /// was edited. `None`: it was removed.
    #[must_use]
    pub fn find(&self, from: u32) -> Option<usize> {
        let index = usize::try_from(from).ok()?;
        let recorded = self.recorded.iter().find(|of| of.from == from).map(|of| &of.selection);
        if recorded.is_none_or(|recorded| self.selections.get(index) == Some(recorded)) {
            return Some(index).filter(|index| *index < self.selections.len());
        }
        let moved = self.selections.iter().position(|selection| Some(selection) == recorded);
        // An entry that was edited in its place selects what no entry selected before.
        let is_known = |selection: &String| self.recorded.iter().any(|of| of.selection == *selection);
        let edited = || self.selections.get(index).filter(|selection| !is_known(selection)).map(|_| index);
        moved.or_else(edited)
    }
}

/// Returns the names of all subjects of a pipeline in the change log: targets, environments and the promotions to them, clusters except the
/// local one, and the pipeline.
#[must_use]
pub fn subjects(pipeline: &Pipeline, cluster: &str) -> BTreeSet<String> {
    let targets = targets_of(pipeline, cluster);
    let clusters: Vec<_> = targets.iter().filter_map(|t| t.cluster_ref.as_ref()).map(ClusterRef::full_name).collect();
    let environments = pipeline.spec.environments.iter();
    let environments = environments.flat_map(|e| [LogSubject::Environment(&e.name), LogSubject::Promotion(&e.name)]);
    let clusters = clusters.iter().map(|name| LogSubject::Cluster(name));
    let targets = targets.iter().map(TargetInfo::log_subject);
    let all = targets.chain(environments).chain(clusters).chain([LogSubject::Pipeline]);
    all.map(|subject| subject.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_names_and_overridden_fields() {
        let spec: PipelineSpec = serde_json::from_value(serde_json::json!({
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "environments": [
                {"name": "dev", "targets": [{"namespace": "a"}, {"namespace": "a", "appRef": {"name": "api"}}]},
                {"name": "prod", "targets": [{"namespace": "b", "appRef": {"kind": "StatefulSet"}}]},
            ],
        }))
        .unwrap();
        let all = targets(&spec, "in-cluster");
        let names: Vec<_> = all.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["dev/in-cluster/a", "dev/in-cluster/a/api", "prod/in-cluster/b"]);
        assert_eq!((all[2].app.kind.as_str(), all[2].app.name.as_str()), ("StatefulSet", "web"));
        let own: Vec<_> = all.iter().map(|target| target.as_subject().own_app().map(str::to_owned)).collect();
        assert_eq!(own, [None, Some("api".to_owned()), None]);
        assert_eq!(Subject { name: "dev".to_owned(), ..Subject::default() }.own_app(), None);
    }

    #[test]
    fn subjects_lists_everything_that_can_change() {
        let cluster = serde_json::json!({"kind": "GitopsCluster", "name": "eu", "namespace": "fleet"});
        let spec: PipelineSpec = serde_json::from_value(serde_json::json!({
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "environments": [
                {"name": "dev", "targets": [{"namespace": "a"}]},
                {"name": "prod", "targets": [{"namespace": "a", "clusterRef": cluster}, {"namespace": "b", "clusterRef": cluster}]},
            ],
        }))
        .unwrap();
        let all: Vec<_> = subjects(&Pipeline::new("p", spec), "c").into_iter().collect();
        let targets = ["target/dev/c/a", "target/prod/fleet.eu/a", "target/prod/fleet.eu/b"];
        let environments = ["environment/dev", "environment/prod"];
        let promotions = ["promotion/dev", "promotion/prod"];
        assert_eq!(all, [&["cluster/fleet.eu"][..], &environments, &["pipeline"], &promotions, &targets].concat());
    }
}
