//! The layers of a notification that set `suspend` themselves. Pure.
//!
//! A Notification is one layer of several. A Pipeline, an environment or a target overrides it. Where the Notification does not set
//! `suspend`, the global configuration decides. So a change of the Notification alone does not always suspend or resume.
//!
//! In: a Pipeline or the global configuration, and the name of a notification. Out: where `suspend` is set.

use kube::ResourceExt as _;
use serde_json::Value;

use relaybook_api::notification::NotificationLayer;
use relaybook_api::{Notification, Pipeline};
use relaybook_settings::config::Global;
use relaybook_settings::config::layers::{fold, names};

/// Returns the places in a Pipeline where a layer of this notification sets `suspend` to this value.
#[must_use]
pub fn layers(pipeline: &Pipeline, name: &str, value: bool) -> Vec<String> {
    let sets = |layers: &[NotificationLayer]| {
        layers.iter().any(|layer| layer.name == name && layer.settings.suspend == Some(value))
    };
    let (own, spec) = (pipeline.name_any(), &pipeline.spec);
    let mut found = Vec::new();
    if sets(&spec.notifications) {
        found.push(format!("Pipeline {own}"));
    }
    for environment in &spec.environments {
        if sets(&environment.notifications) {
            found.push(format!("environment {} of Pipeline {own}", environment.name));
        }
        let listed = environment.targets.iter().any(|target| sets(&target.notifications));
        let generated = environment
            .targets_from
            .iter()
            .any(|from| sets(&from.notifications) || from.overrides.iter().any(|over| sets(&over.notifications)));
        if listed || generated {
            found.push(format!("a target in environment {} of Pipeline {own}", environment.name));
        }
    }
    found
}

/// Returns the Pipeline if it has a layer for this notification.
#[must_use]
pub fn defines(pipeline: &Pipeline, name: &str) -> Vec<String> {
    if names(&pipeline.spec).contains(name) { vec![format!("Pipeline {}", pipeline.name_any())] } else { Vec::new() }
}

/// Whether the global configuration suspends a Notification of this namespace that does not set `suspend` itself.
#[must_use]
pub fn below(global: &Global, name: &str, namespace: &str) -> bool {
    let parts = global.part(name).only_if(|cluster_wide| cluster_wide.reach.covers(namespace));
    let folded = fold(&parts.layers(None), |_| ());
    folded.is_ok_and(|folded| folded.value.get("suspend") == Some(&Value::Bool(true)))
}

/// Whether a Notification sets the URL. If so, its Deliveries are in its own namespace. Otherwise they can be in that of the global
/// configuration.
#[must_use]
pub fn has_url(notification: &Notification) -> bool {
    notification.spec.endpoint.as_ref().is_some_and(|endpoint| endpoint.url.is_some() || endpoint.url_from.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use relaybook_api::global::GlobalConfig;

    #[test]
    fn each_layer_of_a_pipeline_is_found() {
        let layer = |name: &str, suspend: Value| json!([{"name": name, "suspend": suspend}]);
        let pipeline: Pipeline = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "web", "namespace": "team-a"},
            "spec": {
                "notifications": layer("chat", json!(true)),
                "environments": [
                    {"name": "dev", "targets": [{"namespace": "x"}], "notifications": layer("chat", json!(false))},
                    {"name": "prod", "targets": [{"namespace": "y", "notifications": layer("chat", json!(true))}],
                     "notifications": layer("audit", json!(true))},
                    {"name": "eu", "targetsFrom": [{"overrides": [{"clusters": ["*"], "notifications": layer("chat", json!(true))}]}]},
                ],
            },
        }))
        .unwrap();
        for (name, value, expected) in [
            (
                "chat",
                true,
                &[
                    "Pipeline web",
                    "a target in environment prod of Pipeline web",
                    "a target in environment eu of Pipeline web",
                ][..],
            ),
            ("chat", false, &["environment dev of Pipeline web"]),
            ("audit", true, &["environment prod of Pipeline web"]),
            ("audit", false, &[]),
            ("mail", true, &[]),
        ] {
            assert_eq!(layers(&pipeline, name, value), expected, "{name} {value}");
        }
        assert_eq!(defines(&pipeline, "audit"), ["Pipeline web"]);
        assert!(defines(&pipeline, "mail").is_empty());
    }

    #[test]
    fn the_global_configuration_can_suspend_what_a_notification_does_not_set() {
        let audit = |suspend: Value| json!([{"name": "audit", "namespaces": ["team-*"], "suspend": suspend}]);
        for (config, namespace, expected) in [
            (json!({}), "team-a", false),
            (json!({"defaults": {"suspend": true}}), "team-a", true),
            (json!({"notifications": audit(json!(true))}), "team-a", true),
            (json!({"notifications": audit(json!(true))}), "other", false),
            (json!({"defaults": {"suspend": true}, "notifications": audit(json!(false))}), "team-a", false),
        ] {
            let parsed: GlobalConfig = serde_json::from_value(config.clone()).unwrap();
            let global = Global::new(&parsed, "relaybook-system").unwrap();
            assert_eq!(below(&global, "audit", namespace), expected, "{config} {namespace}");
        }
    }
}
