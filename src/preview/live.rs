//! Notifications and pipelines as a cluster has them.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::PreviewError;
use crate::api::delivery::PipelineRef;
use crate::api::refs::{ClusterAppRef, ConfigMapKey};
use crate::api::target::{TargetInfo, targets};
use crate::api::{Notification, Pipeline};
use crate::config::layers::{Layer, Spot, of_pipeline};
use crate::config::{Text, flatten};
use crate::render::Scene;

/// A Notification.
pub async fn notification(client: &Client, namespace: &str, name: &str) -> Result<Notification, PreviewError> {
    get(client, namespace, name).await
}

/// A Pipeline.
pub async fn pipeline(client: &Client, namespace: &str, name: &str) -> Result<Pipeline, PreviewError> {
    get(client, namespace, name).await
}

/// All Notifications of a namespace.
pub async fn notifications(client: &Client, namespace: &str) -> Result<Vec<Notification>, PreviewError> {
    let api: Api<Notification> = Api::namespaced(client.clone(), namespace);
    let what = format!("the Notifications of {namespace}");
    let list = api.list(&ListParams::default()).await.map_err(|e| PreviewError::Read { what, source: Box::new(e) })?;
    Ok(list.items)
}

async fn get<K>(client: &Client, namespace: &str, name: &str) -> Result<K, PreviewError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let what = format!("{} {namespace}/{name}", K::kind(&()));
    api.get(name).await.map_err(|e| PreviewError::Read { what, source: Box::new(e) })
}

/// What the ConfigMaps hold that these notifications refer to.
pub async fn texts(client: &Client, all: &[Notification]) -> Result<HashMap<ConfigMapKey, Text>, PreviewError> {
    let mut texts = HashMap::new();
    for key in all.iter().flat_map(crate::config::config_maps) {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &key.namespace);
        let what = format!("ConfigMap {}", key.object());
        let object = api.get_opt(&key.name).await.map_err(|e| PreviewError::Read { what, source: Box::new(e) })?;
        let text = match object.map(|object| object.data.unwrap_or_default().remove(&key.key)) {
            None => Text::NoConfigMap,
            Some(None) => Text::NoKey,
            Some(Some(text)) => Text::Found(Arc::from(text)),
        };
        texts.insert(key, text);
    }
    Ok(texts)
}

/// Which environment and which target of the spec this is, the first if none is named.
fn place(pipeline: &Pipeline, target: Option<&str>, cluster: &str) -> Result<(usize, usize, TargetInfo), PreviewError> {
    let all = targets(&pipeline.spec, cluster);
    let environments = pipeline.spec.environments.iter().enumerate();
    let places = environments.flat_map(|(e, environment)| (0..environment.targets.len()).map(move |t| (e, t)));
    let known = all.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = places.zip(all).find(|(_, info)| target.is_none_or(|name| info.name == name));
    found.map(|((e, t), info)| (e, t, info)).ok_or_else(|| PreviewError::NoTarget {
        pipeline: pipeline.name_any(),
        target: target.unwrap_or("at all").to_owned(),
        known,
    })
}

/// A notification with what a pipeline and its target lay over it.
pub fn layered(
    notification: &Notification,
    pipeline: &Pipeline,
    target: Option<&str>,
    cluster: &str,
) -> Result<Notification, PreviewError> {
    let (environment, index, info) = place(pipeline, target, cluster)?;
    let spot = Spot { environment, index, target: &info.name };
    let namespace = pipeline.namespace().unwrap_or_default();
    let own = of_pipeline(&pipeline.spec, &namespace, &notification.name_any(), spot);
    if own.is_empty() {
        return Ok(notification.clone());
    }
    let layers: Vec<_> = std::iter::once(Layer::of_notification(notification)).chain(own).collect();
    let problem = |problem| PreviewError::Notification { name: notification.name_any(), problem };
    Ok(Notification { spec: flatten(&layers).map_err(problem)?, ..notification.clone() })
}

/// A scene of a pipeline's target, the first if none is named: its own names, labels and revisions.
pub fn scene(
    pipeline: &Pipeline,
    target: Option<&str>,
    cluster: &str,
    notification: &Notification,
) -> Result<Scene, PreviewError> {
    let (_, _, found) = place(pipeline, target, cluster)?;
    let mut scene = Scene::sample((notification.name_any(), notification.namespace().unwrap_or_default()));
    scene.pipeline = PipelineRef {
        namespace: pipeline.namespace().unwrap_or_default(),
        name: pipeline.name_any(),
        uid: pipeline.uid().unwrap_or_default(),
    };
    scene.labels.clone_from(pipeline.labels());
    scene.annotations.clone_from(pipeline.annotations());
    scene.subject = found.as_subject();
    if let Some((runs, tried)) = revisions(pipeline, &found) {
        (scene.old, scene.new) = (runs, tried);
    }
    Ok(scene)
}

/// What runs at a target, and what it tries to run; none while nothing has been seen there.
fn revisions(pipeline: &Pipeline, target: &TargetInfo) -> Option<(String, String)> {
    let environments = &pipeline.status.as_ref()?.environments;
    let environment = environments.iter().find(|e| e.name == target.environment)?;
    let same = |app: &ClusterAppRef| app.namespace == target.namespace && app.name == target.app.name;
    let seen = environment.targets.iter().find(|t| same(&t.cluster_app_ref))?;
    let tried = if seen.attempted_revision.is_empty() { &seen.revision } else { &seen.attempted_revision };
    Some((seen.revision.clone(), tried.clone())).filter(|(_, tried)| !tried.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{NotificationSpec, TransitionType};

    fn shop() -> Pipeline {
        serde_json::from_value(json!({
            "apiVersion": "pennant.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "shop", "namespace": "team-b", "uid": "u", "labels": {"team": "b"}},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                     "environments": [{"name": "dev", "targets": [{"namespace": "x"}]},
                                      {"name": "prod", "targets": [{"namespace": "y"}]}]},
            "status": {"environments": [{"name": "prod", "targets": [{
                "clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "y"},
                "status": "InProgress", "ready": false, "revision": "1", "attemptedRevision": "2",
            }]}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_scene_has_the_names_and_revisions_of_its_target() {
        let notification = Notification::new("n", NotificationSpec::default());
        let data = |target| scene(&shop(), target, "c", &notification).unwrap().transition(TransitionType::Failed);
        let prod = data(Some("prod/c/y"));
        assert_eq!((prod.revision.as_str(), prod.running_revision.as_str(), prod.environment.as_str()), ("2", "1", "prod"));
        assert_eq!((prod.pipeline.labels["team"].as_str(), prod.target.app.kind.as_str()), ("b", "Deployment"));
        let dev = data(None);
        assert_eq!(dev.environment, "dev");
        assert!(dev.revision.starts_with("main@sha1:"), "nothing has been seen there: {}", dev.revision);
        let error = scene(&shop(), Some("prod/c/z"), "c", &notification).unwrap_err().to_string();
        assert!(error.contains("prod/c/z") && error.contains("dev/c/x, prod/c/y"), "{error}");
    }
}
