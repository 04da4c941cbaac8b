//! Reads Notifications, pipelines and the global configuration from a cluster.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};

use super::PreviewError;
use super::laid::place;
use relaybook_api::global::KEY;
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_api::{Notification, ObjectName, Pipeline, Promotion};
use relaybook_promotions::request::command::{ListError, of_pipeline};
use relaybook_settings::config::{Global, Text};
use relaybook_settings::manifests::global::{Wrong, parse};
use relaybook_settings::render::SampleContext;

/// Maximum number of reported problems of the global configuration.
const MAX_REPORTED: usize = 3;

/// Why the current global configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GlobalUnavailable {
    /// The permission to read it is missing.
    #[error("no permission to read it; grant get on configmaps in {0}")]
    Forbidden(String),
    /// The ConfigMap does not have the key of the configuration.
    #[error("there is no key {KEY} in its data; the controller keeps the last valid version")]
    NoKey,
    /// The configuration is invalid.
    #[error("{KEY}: {}; the controller keeps the last valid version", first(.0))]
    Wrong(Vec<Wrong>),
}

fn first(wrongs: &[Wrong]) -> String {
    let told: Vec<_> = wrongs.iter().take(MAX_REPORTED).map(ToString::to_string).collect();
    let more = wrongs.len().saturating_sub(MAX_REPORTED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", told.join("; "))
}

/// Why the promotions of a pipeline cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PromotionsUnavailable {
    /// The permission to list them is missing.
    #[error("no permission to read promotions in {0}; grant list on promotions")]
    Forbidden(String),
    /// The API server does not know the kind.
    #[error("the CRD of Promotions is not installed; apply the output of `relaybook crds`")]
    NoKind,
}

/// Reads the global configuration from a ConfigMap. It is empty if the ConfigMap does not exist. The inner error means that it cannot be
/// used. Commands then continue without it.
pub async fn global(client: &Client, of: &ObjectName) -> Result<Result<Global, GlobalUnavailable>, PreviewError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &of.namespace);
    match api.get_opt(&of.name).await {
        Ok(object) => Ok(from_config_map(object, &of.namespace)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Err(GlobalUnavailable::Forbidden(of.namespace.clone()))),
        Err(e) => Err(PreviewError::Read { what: format!("ConfigMap {of}"), source: Box::new(e) }),
    }
}

fn from_config_map(object: Option<ConfigMap>, namespace: &str) -> Result<Global, GlobalUnavailable> {
    let Some(object) = object else { return Ok(Global::default()) };
    let text = object.data.unwrap_or_default().remove(KEY).ok_or(GlobalUnavailable::NoKey)?;
    parse(&text, namespace).map_err(GlobalUnavailable::Wrong)
}

/// Reads a Notification, if it exists.
pub async fn notification(client: &Client, namespace: &str, name: &str) -> Result<Option<Notification>, PreviewError> {
    let api: Api<Notification> = Api::namespaced(client.clone(), namespace);
    api.get_opt(name).await.map_err(|e| unread::<Notification>(namespace, name, e))
}

/// Reads a Pipeline.
pub async fn pipeline(client: &Client, namespace: &str, name: &str) -> Result<Pipeline, PreviewError> {
    let api: Api<Pipeline> = Api::namespaced(client.clone(), namespace);
    api.get(name).await.map_err(|e| unread::<Pipeline>(namespace, name, e))
}

/// Reads all Notifications of a namespace.
pub async fn notifications(client: &Client, namespace: &str) -> Result<Vec<Notification>, PreviewError> {
    let api: Api<Notification> = Api::namespaced(client.clone(), namespace);
    let what = format!("the Notifications of {namespace}");
    let list = api.list(&ListParams::default()).await.map_err(|e| PreviewError::Read { what, source: Box::new(e) })?;
    Ok(list.items)
}

/// Reads all Notifications of the namespace of a pipeline, and of its layer namespace.
pub async fn notifications_of(client: &Client, pipeline: &Pipeline) -> Result<Vec<Notification>, PreviewError> {
    let namespace = pipeline.namespace().unwrap_or_default();
    let mut all = notifications(client, &namespace).await?;
    if let Some(other) = pipeline.spec.other_layer_namespace(&namespace) {
        all.extend(notifications(client, other).await?);
    }
    Ok(all)
}

/// Reads the promotions of a pipeline. The inner error means that they cannot be read. Commands then continue without them.
pub async fn promotions(
    client: &Client,
    pipeline: &Pipeline,
) -> Result<Result<Vec<Promotion>, PromotionsUnavailable>, PreviewError> {
    let namespace = pipeline.namespace().unwrap_or_default();
    match of_pipeline(client, pipeline).await {
        Ok(all) => Ok(Ok(all)),
        Err(ListError(error)) => match *error {
            kube::Error::Api(status) if status.code == 403 => Ok(Err(PromotionsUnavailable::Forbidden(namespace))),
            kube::Error::Api(status) if status.code == 404 => Ok(Err(PromotionsUnavailable::NoKind)),
            error => Err(PreviewError::Read { what: format!("the promotions of {namespace}"), source: Box::new(error) }),
        },
    }
}

fn unread<K: Resource<DynamicType = ()>>(namespace: &str, name: &str, error: kube::Error) -> PreviewError {
    PreviewError::Read { what: format!("{} {namespace}/{name}", K::kind(&())), source: Box::new(error) }
}

/// Returns the keys of a Secret whose values are headers. `None`: the Secret does not exist or cannot be read, as without the permission.
pub async fn keys(client: &Client, secret: &ObjectName) -> Option<Vec<String>> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace);
    let found = api.get_opt(&secret.name).await.ok()??;
    Some(found.data.unwrap_or_default().into_keys().collect())
}

/// Reads the values of these keys of ConfigMaps.
pub async fn texts(
    client: &Client,
    keys: impl IntoIterator<Item = ConfigMapKey>,
) -> Result<HashMap<ConfigMapKey, Text>, PreviewError> {
    let mut texts = HashMap::new();
    for key in keys {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &key.namespace);
        let object = api.get_opt(&key.name).await.map_err(|e| unread::<ConfigMap>(&key.namespace, &key.name, e))?;
        let text = match object.map(|object| object.data.unwrap_or_default().remove(&key.key)) {
            None => Text::NoConfigMap,
            Some(None) => Text::NoKey,
            Some(Some(text)) => Text::Found(Arc::from(text)),
        };
        texts.insert(key, text);
    }
    Ok(texts)
}

/// Returns the data of a target of a pipeline: names, labels and revisions. Without a name, it is the first target.
pub fn sample_context(
    pipeline: &Pipeline,
    target: Option<&str>,
    cluster: &str,
    notification: &str,
) -> Result<SampleContext, PreviewError> {
    let found = place(pipeline, target, cluster)?;
    Ok(SampleContext::of_target(pipeline, &found, cluster, notification))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use relaybook_api::TransitionType;

    fn shop() -> Pipeline {
        serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
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
    fn a_sample_has_the_names_and_revisions_of_its_target() {
        let data = |target| sample_context(&shop(), target, "c", "n").unwrap().transition(TransitionType::Failed);
        let prod = data(Some("prod/c/y"));
        assert_eq!((prod.revision.as_str(), prod.running_revision.as_str(), prod.environment.as_str()), ("2", "1", "prod"));
        assert_eq!((prod.pipeline.labels["team"].as_str(), prod.target.app.kind.as_str()), ("b", "Deployment"));
        let mut elsewhere = shop();
        elsewhere.status.as_mut().unwrap().environments[0].targets[0].cluster_app_ref.kind = "StatefulSet".to_owned();
        let other = sample_context(&elsewhere, Some("prod/c/y"), "c", "n").unwrap().transition(TransitionType::Failed);
        assert!(other.revision.starts_with("main@sha1:"), "another object was observed: {}", other.revision);
        let promoted =
            sample_context(&shop(), Some("prod/c/y"), "c", "n").unwrap().transition(TransitionType::PromotionRequested);
        let sentence = "shop 2 is requested for prod (from dev)";
        assert_eq!((promoted.promotion.previous.as_str(), promoted.message.as_str()), ("1", sentence));
        let dev = data(None);
        assert_eq!(dev.environment, "dev");
        assert!(dev.revision.starts_with("main@sha1:"), "nothing has been seen there: {}", dev.revision);
        let error = sample_context(&shop(), Some("prod/c/z"), "c", "n").unwrap_err().to_string();
        assert!(error.contains("prod/c/z") && error.contains("dev/c/x, prod/c/y"), "{error}");
    }

    #[test]
    fn an_invalid_global_configuration_is_refused_with_the_reason() {
        let held = |text: &str| -> Option<ConfigMap> {
            Some(serde_json::from_value(json!({"metadata": {"name": "c"}, "data": {"config.yaml": text}})).unwrap())
        };
        assert!(from_config_map(None, "n").is_ok());
        assert!(from_config_map(held("notifications: [{name: a}]"), "n").unwrap().get("a").is_some());
        let error = from_config_map(Some(ConfigMap::default()), "n").unwrap_err().to_string();
        assert!(error.starts_with("there is no key config.yaml"), "{error}");
        let error = from_config_map(held("a: 1\nb: 1\nc: 1\nd: 1\n"), "n").unwrap_err().to_string();
        assert!(error.starts_with("config.yaml: line 1, column 1: a: unknown field"), "{error}");
        assert!(error.contains("and 1 more; the controller keeps the last valid version"), "{error}");
    }
}
