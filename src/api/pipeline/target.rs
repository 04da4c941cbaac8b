//! The targets of a pipeline, spelled out, with the names by which people and the change log know them. Pure.

use std::collections::BTreeSet;

use super::PipelineSpec;
use crate::api::delivery::{AppObject, Subject, SubjectKind, SubjectTarget};
use crate::api::values::refs::{AppRef, ClusterRef};

/// The pipeline itself, as the change log names it.
pub const PIPELINE: &str = "pipeline";

/// One target with everything that it takes from the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetInfo {
    /// Its environment.
    pub environment: String,
    /// Namespace of the application object.
    pub namespace: String,
    /// Name of the cluster, as in the target's own name.
    pub cluster: String,
    /// The cluster, as the pipeline writes it; `None`: the local one.
    pub cluster_ref: Option<ClusterRef>,
    /// The application object.
    pub app: AppRef,
    /// As people see it: `ENVIRONMENT/CLUSTER/NAMESPACE`, with `/APP` where the target names another.
    pub name: String,
    /// As the change log names it: `target/` and the name.
    pub subject: String,
}

impl TargetInfo {
    /// What deliveries about it are about.
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
            }),
        }
    }
}

/// All targets in spec order. Two may have the same name; whoever observes them refuses that.
#[must_use]
pub fn targets(spec: &PipelineSpec, cluster: &str) -> Vec<TargetInfo> {
    let mut all = Vec::new();
    for environment in &spec.environments {
        for target in &environment.targets {
            let app = spec.app_ref.overlaid(target.app_ref.as_ref());
            let cluster = target.cluster_ref.as_ref().map_or_else(|| cluster.to_owned(), ClusterRef::full_name);
            let mut name = format!("{}/{cluster}/{}", environment.name, target.namespace);
            if app.name != spec.app_ref.name {
                name.push('/');
                name.push_str(&app.name);
            }
            all.push(TargetInfo {
                environment: environment.name.clone(),
                namespace: target.namespace.clone(),
                cluster,
                cluster_ref: target.cluster_ref.clone(),
                app,
                subject: format!("target/{name}"),
                name,
            });
        }
    }
    all
}

/// Everything of a pipeline that changes are about, as the change log names it: targets, environments, clusters but the local one,
/// and the pipeline.
#[must_use]
pub fn subjects(spec: &PipelineSpec, cluster: &str) -> BTreeSet<String> {
    let targets = targets(spec, cluster);
    let clusters = targets.iter().filter_map(|t| t.cluster_ref.as_ref()).map(ClusterRef::subject);
    let environments = spec.environments.iter().map(|e| format!("environment/{}", e.name));
    let others: Vec<_> = clusters.chain(environments).chain([PIPELINE.to_owned()]).collect();
    targets.into_iter().map(|t| t.subject).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_overrides() {
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
        assert_eq!(all[1].subject, "target/dev/in-cluster/a/api");
        assert_eq!((all[2].app.kind.as_str(), all[2].app.name.as_str()), ("StatefulSet", "web"));
    }

    #[test]
    fn everything_that_changes_are_about() {
        let cluster = serde_json::json!({"kind": "GitopsCluster", "name": "eu", "namespace": "fleet"});
        let spec: PipelineSpec = serde_json::from_value(serde_json::json!({
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "environments": [
                {"name": "dev", "targets": [{"namespace": "a"}]},
                {"name": "prod", "targets": [{"namespace": "a", "clusterRef": cluster}, {"namespace": "b", "clusterRef": cluster}]},
            ],
        }))
        .unwrap();
        let all: Vec<_> = subjects(&spec, "c").into_iter().collect();
        let targets = ["target/dev/c/a", "target/prod/fleet.eu/a", "target/prod/fleet.eu/b"];
        assert_eq!(all, [&["cluster/fleet.eu", "environment/dev", "environment/prod", "pipeline"][..], &targets].concat());
    }
}
