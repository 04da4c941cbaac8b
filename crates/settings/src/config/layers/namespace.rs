//! The layer of another namespace: a Notification of the `layerNamespace` of a pipeline.
//!
//! In: a pipeline and a Notification. Out: whether the Notification is a layer of the pipeline, and the layer. Both sides must agree. The
//! author of the pipeline names the namespace, because its Notifications change what the pipeline sends, with the credentials of the layers
//! below. The author of the Notification names the namespaces of pipelines, because the layer brings its own credentials.

use std::collections::BTreeMap;

use kube_core::ResourceExt as _;

use super::{Layer, Source};
use crate::config::PipelineSelector;
use relaybook_api::{Notification, PipelineSpec};

/// The fields that such a layer does not set. Its selector only decides whether it applies. How long and in which order deliveries are kept
/// is decided in the namespace that stores them.
const NOT_LAID: [&str; 2] = ["pipelineSelector", "delivery"];

/// Whether a Notification is a layer of this pipeline, over the notification of the same name. An invalid selector counts as selecting the
/// pipeline.
#[must_use]
pub fn is_layer_of(
    notification: &Notification,
    spec: &PipelineSpec,
    (namespace, labels): (&str, &BTreeMap<String, String>),
) -> bool {
    let of = |other: &str| notification.metadata.namespace.as_deref() == Some(other);
    spec.other_layer_namespace(namespace).is_some_and(of)
        && notification.spec.pipeline_namespaces.iter().flatten().any(|accepted| accepted == namespace)
        && PipelineSelector::parse(notification.spec.pipeline_selector.as_ref()).map_or(true, |it| it.selects(labels))
}

impl Layer {
    /// The layer that a Notification is for pipelines of another namespace.
    #[must_use]
    pub fn of_layer_namespace(notification: &Notification) -> Self {
        let own = Self::of_notification(notification);
        let source = Source::LayerNamespace(format!("{}/{}", own.namespace, notification.name_any()));
        let value = own.value.into_iter().filter(|(field, _)| !NOT_LAID.contains(&field.as_str())).collect();
        Self { source, value, ..own }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_layer_namespace_applies_only_if_pipeline_and_notification_name_each_other() {
        let labels = BTreeMap::from([("workspace".to_owned(), "team-a".to_owned())]);
        let selector = |team: &str| json!({"matchLabels": {"workspace": team}});
        for (layer_namespace, accepted, selector, is) in [
            (json!("team-a"), json!(["platform"]), json!(null), true),
            (json!("team-a"), json!(["other", "platform"]), selector("team-a"), true),
            (json!("team-a"), json!(["platform"]), selector("team-b"), false),
            (json!("team-a"), json!(["other"]), json!(null), false),
            (json!("team-a"), json!(null), json!(null), false),
            (json!("team-b"), json!(["platform"]), json!(null), false),
            (json!(null), json!(["platform"]), json!(null), false),
            (json!("platform"), json!(["platform"]), json!(null), false),
        ] {
            let spec: PipelineSpec =
                serde_json::from_value(json!({"environments": [], "layerNamespace": layer_namespace})).unwrap();
            let notification: Notification = serde_json::from_value(json!({
                "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification", "metadata": {"name": "chat", "namespace": "team-a"},
                "spec": {"pipelineNamespaces": accepted, "pipelineSelector": selector},
            }))
            .unwrap();
            assert_eq!(
                is_layer_of(&notification, &spec, ("platform", &labels)),
                is,
                "{layer_namespace} {accepted} {selector}"
            );
        }
    }

    #[test]
    fn a_notification_of_the_layer_namespace_does_not_set_delivery_or_selection() {
        let notification: Notification = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification", "metadata": {"name": "chat", "namespace": "team-a"},
            "spec": {
                "pipelineNamespaces": ["platform"], "pipelineSelector": {}, "suspend": true, "triggers": [],
                "delivery": {"ordering": "Pipeline"}, "endpoint": {"url": "https://chat.example.com/in"},
            },
        }))
        .unwrap();
        let layer = Layer::of_layer_namespace(&notification);
        assert_eq!((layer.source.to_string().as_str(), layer.namespace.as_str()), ("Notification team-a/chat", "team-a"));
        assert_eq!(layer.value.keys().collect::<Vec<_>>(), ["endpoint", "suspend", "triggers"]);
    }
}
