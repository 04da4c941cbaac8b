//! Pure: a notification with all its layers, from the global configuration to the layers of a target.

use std::sync::Arc;

use kube::ResourceExt as _;

use super::PreviewError;
use relaybook_api::delivery::{Subject, SubjectKind};
use relaybook_api::pipeline::target::{TargetInfo, targets_of};
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_api::{Notification, NotificationSpec, Pipeline, TransitionType};
use relaybook_settings::config::layers::{Layer, of_environment, of_target, of_whole_pipeline};
use relaybook_settings::config::{Given, Global, Problem, Sending, Text, flatten};
use relaybook_settings::manifests::{effective_notification, has_notification, layers_below};
use relaybook_settings::render::Web;

/// The layers of one notification, least specific first.
#[derive(Clone, Debug, PartialEq)]
pub struct LayeredNotification {
    /// Name of the notification.
    pub name: String,
    /// The namespace of the pipeline.
    pub namespace: String,
    layers: Vec<Layer>,
    web: Arc<Web>,
}

impl LayeredNotification {
    /// Returns the layers of a Notification for a pipeline that it selects in its namespace. They include the layer of the cluster-wide
    /// notification with its name.
    #[must_use]
    pub fn without_pipeline(global: &Global, notification: &Notification) -> Self {
        let (name, namespace) = (notification.name_any(), notification.namespace().unwrap_or_default());
        let cluster_wide = global.get(&name).filter(|cluster_wide| cluster_wide.reach.covers(&namespace));
        let layers = global.layers_below(cluster_wide, Some(notification));
        Self { name, namespace, layers, web: global.web().clone() }
    }

    /// Returns the layers for a target of a pipeline, or for its first target. `notifications` contains the Notifications with this name.
    pub fn for_target(
        global: &Global,
        name: &str,
        notifications: &[Notification],
        pipeline: &Pipeline,
        target: Option<&str>,
        cluster: &str,
    ) -> Result<Self, PreviewError> {
        let info = place(pipeline, target, cluster)?;
        let own = of_target(&pipeline.spec, &pipeline.namespace().unwrap_or_default(), name, &info);
        Self::over(own, global, name, notifications, pipeline)
    }

    /// Returns the layers for what a delivery is about. Those of targets apply to targets only, and those of an environment not to the
    /// pipeline or a cluster.
    pub fn for_subject(
        global: &Global,
        name: &str,
        notifications: &[Notification],
        pipeline: &Pipeline,
        subject: &Subject,
        cluster: &str,
    ) -> Result<Self, PreviewError> {
        let namespace = pipeline.namespace().unwrap_or_default();
        let (spec, environments) = (&pipeline.spec, &pipeline.spec.environments);
        let own = match subject.kind {
            SubjectKind::Target => of_target(spec, &namespace, name, &place(pipeline, Some(&subject.name), cluster)?),
            SubjectKind::Environment => {
                let at = environments.iter().position(|environment| environment.name == subject.environment);
                // Beyond the end, there is no environment, and only the layers of the pipeline apply.
                of_environment(spec, &namespace, name, at.unwrap_or(environments.len()))
            }
            SubjectKind::Cluster | SubjectKind::Pipeline => of_whole_pipeline(spec, &namespace, name).into_iter().collect(),
        };
        Self::over(own, global, name, notifications, pipeline)
    }

    /// Returns the result of the layers, as users write a spec.
    pub(super) fn spec(&self) -> Result<NotificationSpec, Problem> {
        flatten(&self.layers)
    }

    /// Adds the layers of a pipeline to those below.
    fn over(
        own: Vec<Layer>,
        global: &Global,
        name: &str,
        notifications: &[Notification],
        pipeline: &Pipeline,
    ) -> Result<Self, PreviewError> {
        let namespace = pipeline.namespace().unwrap_or_default();
        let layers = layers_below(global, pipeline, name, notifications).map(|below| [below, own].concat());
        match layers.filter(|layers| has_notification(layers)) {
            Some(layers) => Ok(Self { name: name.to_owned(), namespace, layers, web: global.web().clone() }),
            None => Err(PreviewError::NoSuchNotification { pipeline: pipeline.name_any(), name: name.to_owned() }),
        }
    }

    /// Returns the forges and the links of the global configuration.
    #[must_use]
    pub fn web(&self) -> &Arc<Web> {
        &self.web
    }

    /// Returns the keys of ConfigMaps that the notification refers to.
    #[must_use]
    pub fn config_maps(&self) -> Vec<ConfigMapKey> {
        let given = Given { allow_http: true, text: &|_| Text::Unknown };
        effective_notification(&self.layers, &self.namespace, &given).config_maps
    }

    /// Returns the compiled settings, and the transitions that the notification reports.
    pub(super) fn compiled(&self, given: &Given<'_>) -> Result<(Sending, Vec<TransitionType>), Problem> {
        let effective = effective_notification(&self.layers, &self.namespace, given);
        let sending = effective.intake.and(effective.sending)?;
        let reported = self.spec()?.triggers.into_iter().flatten().map(|trigger| trigger.type_).collect();
        Ok((sending, reported))
    }
}

/// Returns the target with this name, or the first target.
pub(super) fn place(pipeline: &Pipeline, target: Option<&str>, cluster: &str) -> Result<TargetInfo, PreviewError> {
    let all = targets_of(pipeline, cluster);
    let known = all.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = all.into_iter().find(|info| target.is_none_or(|name| info.name == name));
    found.ok_or_else(|| match target {
        Some(target) => PreviewError::NoTarget { pipeline: pipeline.name_any(), target: target.to_owned(), known },
        None => PreviewError::NoTargets(pipeline.name_any()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preview::previews;
    use relaybook_settings::manifests::global::parse;
    use relaybook_settings::render::SampleContext;

    const GLOBAL: &str = "
defaults:
  template: {configMapKeyRef: {name: texts, key: body, contentType: text/plain}}
notifications:
- name: audit
  pipelineSelector: {matchLabels: {team: a}}
  triggers: [{type: Deployed}]
  endpoint: {url: https://audit.example.com/in}
";

    fn shop(team: &str) -> Pipeline {
        serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "shop", "namespace": "team-a", "labels": {"team": team}},
            "spec": {
                "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "notifications": [{"name": "audit", "endpoint": {"headers": {"X-Team": "a"}}}],
                "environments": [{"name": "dev", "targets": [{"namespace": "x"}, {"namespace": "y", "notifications": [{"name": "own"}]}]}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_notification_of_the_global_configuration_is_shown_for_a_pipeline() {
        let global = parse(GLOBAL, "relaybook-system").unwrap();
        let layered = LayeredNotification::for_target(&global, "audit", &[], &shop("a"), None, "c").unwrap();
        let keys: Vec<_> = layered.config_maps().iter().map(ToString::to_string).collect();
        assert_eq!(keys, ["relaybook-system/texts, key body"]);
        let text = |key: &ConfigMapKey| {
            assert_eq!(key.namespace, "relaybook-system");
            Text::Found("{{type}} for {{notification.namespace}}".into())
        };
        let context = SampleContext::sample((layered.name.clone(), layered.namespace.clone()));
        let shown = previews(&layered, &[], &Given { allow_http: false, text: &text }, &context).unwrap();
        assert_eq!((shown.len(), shown[0].url.as_str()), (1, "https://audit.example.com/in"));
        assert_eq!((shown[0].body.as_str(), shown[0].headers["x-team"].as_str()), ("Deployed for team-a", "a"));
    }

    #[test]
    fn without_a_pipeline_only_global_layers_for_the_namespace_are_below() {
        let global =
            parse(&GLOBAL.replace("  pipelineSelector", "  namespaces: [team-*]\n  pipelineSelector"), "n").unwrap();
        for (name, namespace, layers) in [("audit", "team-a", 3), ("audit", "prod", 2), ("other", "team-a", 2)] {
            let mut notification = Notification::new(name, relaybook_api::NotificationSpec::default());
            notification.metadata.namespace = Some(namespace.to_owned());
            assert_eq!(
                LayeredNotification::without_pipeline(&global, &notification).layers.len(),
                layers,
                "{namespace}/{name}"
            );
        }
    }

    #[test]
    fn a_notification_that_does_not_apply_is_not_shown() {
        let global = parse(GLOBAL, "relaybook-system").unwrap();
        for (name, team, target, applies) in [
            ("audit", "a", None, true),
            // The layer of the pipeline with this name is then a separate notification. Only the defaults are below it.
            ("audit", "b", None, true),
            ("own", "a", None, false),
            ("own", "a", Some("dev/c/y"), true),
            ("other", "a", None, false),
        ] {
            let layered = LayeredNotification::for_target(&global, name, &[], &shop(team), target, "c");
            assert_eq!(layered.is_ok(), applies, "{name} {team} {target:?}");
        }
        let notification: Notification = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification", "metadata": {"name": "audit", "namespace": "team-a"},
            "spec": {"pipelineSelector": {"matchLabels": {"team": "c"}}},
        }))
        .unwrap();
        let error =
            LayeredNotification::for_target(&global, "audit", std::slice::from_ref(&notification), &shop("b"), None, "c")
                .unwrap_err()
                .to_string();
        assert!(error.contains("no notification audit applies to Pipeline shop"), "{error}");
    }
}
