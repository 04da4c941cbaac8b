//! The layers below the layers of a pipeline, and the result of all layers.
//!
//! In: the global configuration, a pipeline, and Notifications of its namespace and of its layer namespace. Out: the layers that the controller puts below the
//! pipeline's own layers, and the effective notification that it computes from all layers.

use kube_core::ResourceExt as _;

use crate::config::layers::{Layer, Source, is_layer_of};
use crate::config::{EffectiveNotification, Given, Global, PipelineSelector, resolve, resolve_layers};
use relaybook_api::{Notification, Pipeline};

/// Returns the layers below, least specific first. `notifications` contains the Notifications with this name in the pipeline's namespace and
/// in its layer namespace; others are ignored. `None`: the notification does not apply to the pipeline, whatever the pipeline's own layers
/// contain.
#[must_use]
pub fn layers_below<'a>(
    global: &Global,
    pipeline: &Pipeline,
    name: &str,
    notifications: impl IntoIterator<Item = &'a Notification>,
) -> Option<Vec<Layer>> {
    let (namespace, labels) = (pipeline.namespace().unwrap_or_default(), pipeline.labels());
    let cluster_wide = global.get(name).filter(|cluster_wide| cluster_wide.reach.selects(&namespace, labels));
    // A Notification with an invalid selector counts as selecting the pipeline, so that its problem is reported.
    let selects = |n: &&Notification| {
        let selector = PipelineSelector::parse(n.spec.pipeline_selector.as_ref());
        selector.map_or(true, |selector| selector.selects(labels))
    };
    let named: Vec<_> = notifications.into_iter().filter(|n| n.metadata.name.as_deref() == Some(name)).collect();
    let notification = named.iter().copied().find(|n| n.metadata.namespace.as_deref() == Some(&namespace));
    let applies = notification.filter(selects);
    // A Notification that does not select this pipeline does not override the cluster-wide notification.
    let is_excluded = cluster_wide.is_none() && notification.is_some() && applies.is_none();
    // A layer alone is no notification.
    let is_over = cluster_wide.is_some() || applies.is_some();
    let laid = named.into_iter().find(|n| is_over && is_layer_of(n, &pipeline.spec, (&namespace, labels)));
    let below = || global.layers_below(cluster_wide, applies).into_iter().chain(laid.map(Layer::of_layer_namespace));
    (!is_excluded).then(|| below().collect())
}

/// Whether these layers contain a notification, and not only defaults.
#[must_use]
pub fn has_notification(layers: &[Layer]) -> bool {
    layers.iter().any(|layer| layer.source > Source::Defaults)
}

/// Returns the result of the layers for pipelines of this namespace, as the controller computes it. If a Notification is the only layer, it
/// is resolved alone.
#[must_use]
pub fn effective_notification(layers: &[Layer], namespace: &str, given: &Given<'_>) -> EffectiveNotification {
    if let [Layer { source: Source::Notification, namespace: own, value, .. }] = layers
        && let Ok(spec) = serde_json::from_value(value.clone().into())
    {
        let mut notification = Notification::new("", spec);
        notification.metadata.namespace = Some(own.clone());
        return resolve(&notification, given);
    }
    resolve_layers(layers, namespace, "", given)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifests::global::parse;

    #[test]
    fn layers_below_a_pipeline_are_those_that_select_it() {
        let global = "defaults: {suspend: false}\nnotifications:\n- name: audit\n  namespaces: [team-a]\n- name: b\n  namespaces: [x]\n";
        let global = parse(global, "relaybook-system").unwrap();
        let pipeline: Pipeline = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "shop", "namespace": "team-a", "labels": {"team": "a"}},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "environments": []},
        }))
        .unwrap();
        let of = |name: &str, labels: Option<&str>| {
            let notification = labels.map(|team| -> Notification {
                serde_json::from_value(json!({
                    "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification",
                    "metadata": {"name": name, "namespace": "team-a"}, "spec": {"pipelineSelector": {"matchLabels": {"team": team}}},
                }))
                .unwrap()
            });
            let layers = layers_below(&global, &pipeline, name, notification.as_ref())?;
            Some((has_notification(&layers), layers.into_iter().map(|layer| layer.source).collect::<Vec<_>>()))
        };
        let (defaults, global, own) = (Source::Defaults, Source::Global, Source::Notification);
        assert_eq!(of("audit", None), Some((true, vec![defaults.clone(), global.clone()])));
        assert_eq!(of("audit", Some("a")), Some((true, vec![defaults.clone(), global.clone(), own.clone()])));
        assert_eq!(of("audit", Some("b")), Some((true, vec![defaults.clone(), global])));
        assert_eq!(of("b", Some("a")), Some((true, vec![defaults.clone(), own])));
        assert_eq!(of("b", Some("b")), None);
        assert_eq!(of("b", None), Some((false, vec![defaults])));
    }

    #[test]
    fn a_notification_of_the_layer_namespace_is_over_that_of_the_pipelines_namespace() {
        let pipeline: Pipeline = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "shop", "namespace": "platform"},
            "spec": {"layerNamespace": "team-a", "environments": []},
        }))
        .unwrap();
        let notification = |namespace: &str, name: &str, accepted: &[&str]| -> Notification {
            serde_json::from_value(json!({
                "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification",
                "metadata": {"name": name, "namespace": namespace}, "spec": {"pipelineNamespaces": accepted},
            }))
            .unwrap()
        };
        let (own, laid) = (notification("platform", "chat", &[]), notification("team-a", "chat", &["platform"]));
        let sources = |all: &[Notification]| {
            let layers = layers_below(&Global::default(), &pipeline, "chat", all).unwrap();
            layers.iter().map(|layer| layer.source.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(sources(&[laid.clone(), own.clone()]), ["the Notification", "Notification team-a/chat"]);
        assert!(sources(std::slice::from_ref(&laid)).is_empty(), "a layer alone is no notification");
        for other in [
            notification("team-b", "chat", &["platform"]),
            notification("team-a", "chat", &[]),
            notification("team-a", "b", &["platform"]),
        ] {
            assert_eq!(sources(&[own.clone(), other]), ["the Notification"]);
        }
    }
}
