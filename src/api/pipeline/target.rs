//! The targets of a pipeline with all their fields, their display names and their names in the change log. Pure.

use std::collections::BTreeSet;

use super::PipelineSpec;
use crate::api::delivery::{AppObject, Subject, SubjectKind, SubjectTarget};
use crate::api::values::refs::{AppRef, ClusterRef};

/// The name of the pipeline itself in the change log.
pub const PIPELINE: &str = "pipeline";

/// The prefix of the names of the promotions to an environment in the change log.
pub const PROMOTION: &str = "promotion/";

/// Returns the name of the promotions to an environment in the change log.
#[must_use]
pub fn promotion(environment: &str) -> String {
    format!("{PROMOTION}{environment}")
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
    /// The cluster, as written in the pipeline. `None`: the local cluster.
    pub cluster_ref: Option<ClusterRef>,
    /// The application object.
    pub app: AppRef,
    /// Display name: `ENVIRONMENT/CLUSTER/NAMESPACE`, with `/APP` if the target names another application.
    pub name: String,
    /// Name in the change log: `target/` and the display name.
    pub subject: String,
}

impl TargetInfo {
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
            }),
        }
    }
}

/// Returns all targets in spec order. Two targets can have the same name. The pipeline controller refuses such a spec.
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

/// Returns the names of all subjects of a pipeline in the change log: targets, environments and the promotions to them, clusters except the
/// local one, and the pipeline.
#[must_use]
pub fn subjects(spec: &PipelineSpec, cluster: &str) -> BTreeSet<String> {
    let targets = targets(spec, cluster);
    let clusters = targets.iter().filter_map(|t| t.cluster_ref.as_ref()).map(ClusterRef::subject);
    let environments = spec.environments.iter().map(|e| format!("environment/{}", e.name));
    let promotions = spec.environments.iter().map(|e| promotion(&e.name));
    let others: Vec<_> = clusters.chain(environments).chain(promotions).chain([PIPELINE.to_owned()]).collect();
    targets.into_iter().map(|t| t.subject).chain(others).collect()
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
        assert_eq!(all[1].subject, "target/dev/in-cluster/a/api");
        assert_eq!((all[2].app.kind.as_str(), all[2].app.name.as_str()), ("StatefulSet", "web"));
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
        let all: Vec<_> = subjects(&spec, "c").into_iter().collect();
        let targets = ["target/dev/c/a", "target/prod/fleet.eu/a", "target/prod/fleet.eu/b"];
        let environments = ["environment/dev", "environment/prod"];
        let promotions = ["promotion/dev", "promotion/prod"];
        assert_eq!(all, [&["cluster/fleet.eu"][..], &environments, &["pipeline"], &promotions, &targets].concat());
    }
}
