//! The targets of a pipeline, spelled out, with the names by which people and the change log know them. Pure.

use super::delivery::{AppObject, Subject, SubjectKind, SubjectTarget};
use super::pipeline::PipelineSpec;
use super::refs::AppRef;

/// One target with everything that it takes from the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetInfo {
    /// Its environment.
    pub environment: String,
    /// Namespace of the application object.
    pub namespace: String,
    /// Name of the cluster.
    pub cluster: String,
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
            target: Some(SubjectTarget { namespace: self.namespace.clone(), cluster: self.cluster.clone(), app }),
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
            let mut name = format!("{}/{cluster}/{}", environment.name, target.namespace);
            if app.name != spec.app_ref.name {
                name.push('/');
                name.push_str(&app.name);
            }
            all.push(TargetInfo {
                environment: environment.name.clone(),
                namespace: target.namespace.clone(),
                cluster: cluster.to_owned(),
                app,
                subject: format!("target/{name}"),
                name,
            });
        }
    }
    all
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
}
