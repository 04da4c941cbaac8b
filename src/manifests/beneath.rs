//! The layers below the layers of a pipeline, and the result of all layers.
//!
//! In: the global configuration, a pipeline, and the Notification in its namespace. Out: the layers that the controller puts below the
//! pipeline's own layers, and the effective notification that it computes from all layers.

use kube::ResourceExt as _;

use crate::api::{Notification, Pipeline};
use crate::config::layers::{Layer, Source};
use crate::config::{EffectiveNotification, Given, Global, PipelineSelector, resolve, resolve_layers};

/// Returns the layers below, least specific first. `notification` is the Notification with this name in the pipeline's namespace. `None`:
/// the notification does not apply to the pipeline, whatever the pipeline's own layers contain.
#[must_use]
pub fn layers_below(
    global: &Global,
    pipeline: &Pipeline,
    name: &str,
    notification: Option<&Notification>,
) -> Option<Vec<Layer>> {
    let (namespace, labels) = (pipeline.namespace().unwrap_or_default(), pipeline.labels());
    let cluster_wide = global.get(name).filter(|cluster_wide| cluster_wide.reach.selects(&namespace, labels));
    // A Notification with an invalid selector counts as selecting the pipeline, so that its problem is reported.
    let selects = |n: &&Notification| {
        let selector = PipelineSelector::parse(n.spec.pipeline_selector.as_ref());
        selector.map_or(true, |selector| selector.selects(labels))
    };
    let applies = notification.filter(selects);
    // A Notification that does not select this pipeline does not override the cluster-wide notification.
    let is_excluded = cluster_wide.is_none() && notification.is_some() && applies.is_none();
    (!is_excluded).then(|| global.layers_below(cluster_wide, applies))
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
    fn who_speaks_of_a_pipeline() {
        let global = "defaults: {suspend: false}\nnotifications:\n- name: audit\n  namespaces: [team-a]\n- name: b\n  namespaces: [x]\n";
        let global = parse(global, "pennant-system").unwrap();
        let pipeline: Pipeline = serde_json::from_value(json!({
            "apiVersion": "pennant.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "shop", "namespace": "team-a", "labels": {"team": "a"}},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "environments": []},
        }))
        .unwrap();
        let of = |name: &str, labels: Option<&str>| {
            let notification = labels.map(|team| -> Notification {
                serde_json::from_value(json!({
                    "apiVersion": "pennant.dev/v1alpha1", "kind": "Notification",
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
}
