//! A notification with all its layers, from the global configuration to the layers of a target. Pure.

use kube::ResourceExt as _;

use super::PreviewError;
use crate::api::pipeline::target::{TargetInfo, targets};
use crate::api::values::refs::ConfigMapKey;
use crate::api::{Notification, Pipeline, TransitionType};
use crate::config::layers::{Layer, Spot, of_pipeline};
use crate::config::{Given, Global, Problem, Sending, Text, flatten};
use crate::manifests::{beneath, has_notification, understood};

/// The layers of one notification, least specific first.
#[derive(Clone, Debug)]
pub struct Laid {
    /// Its name.
    pub name: String,
    /// The namespace of the pipeline.
    pub namespace: String,
    layers: Vec<Layer>,
}

impl Laid {
    /// The layers of a Notification for a pipeline of its namespace that it selects. They include the cluster-wide notification of its name.
    #[must_use]
    pub fn alone(global: &Global, notification: &Notification) -> Self {
        let (name, namespace) = (notification.name_any(), notification.namespace().unwrap_or_default());
        let everywhere = global.get(&name).filter(|everywhere| everywhere.reach.covers(&namespace));
        let layers = global.beneath(everywhere, Some(notification));
        Self { name, namespace, layers }
    }

    /// The layers for a target of a pipeline, or for its first target. `notification` is the Notification of this name, if it exists.
    pub fn on(
        global: &Global,
        (name, notification): (&str, Option<&Notification>),
        pipeline: &Pipeline,
        target: Option<&str>,
        cluster: &str,
    ) -> Result<Self, PreviewError> {
        let (environment, index, info) = place(pipeline, target, cluster)?;
        let namespace = pipeline.namespace().unwrap_or_default();
        let own = of_pipeline(&pipeline.spec, &namespace, name, Spot { environment, index, target: &info.name });
        let layers = beneath(global, pipeline, name, notification).map(|beneath| [beneath, own].concat());
        match layers.filter(|layers| has_notification(layers)) {
            Some(layers) => Ok(Self { name: name.to_owned(), namespace, layers }),
            None => Err(PreviewError::NoSuchNotification { pipeline: pipeline.name_any(), name: name.to_owned() }),
        }
    }

    /// The keys of ConfigMaps that the notification refers to.
    #[must_use]
    pub fn config_maps(&self) -> Vec<ConfigMapKey> {
        let given = Given { allow_http: true, text: &|_| Text::Unknown };
        understood(&self.layers, &self.namespace, &given).config_maps
    }

    /// The compiled settings, and the transitions that the notification reports.
    pub(super) fn understood(&self, given: &Given<'_>) -> Result<(Sending, Vec<TransitionType>), Problem> {
        let effective = understood(&self.layers, &self.namespace, given);
        let sending = effective.intake.and(effective.sending)?;
        let reported = flatten(&self.layers)?.triggers.into_iter().flatten().map(|trigger| trigger.type_).collect();
        Ok((sending, reported))
    }
}

/// The indexes of the environment and the target in the spec, or those of the first target.
pub(super) fn place(
    pipeline: &Pipeline,
    target: Option<&str>,
    cluster: &str,
) -> Result<(usize, usize, TargetInfo), PreviewError> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifests::global::parse;
    use crate::preview::previews;
    use crate::render::Scene;

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
            "apiVersion": "pennant.dev/v1alpha1", "kind": "Pipeline",
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
    fn what_only_the_global_configuration_has_is_shown_of_a_pipeline() {
        let global = parse(GLOBAL, "pennant-system").unwrap();
        let laid = Laid::on(&global, ("audit", None), &shop("a"), None, "c").unwrap();
        let keys: Vec<_> = laid.config_maps().iter().map(ToString::to_string).collect();
        assert_eq!(keys, ["pennant-system/texts, key body"]);
        let text = |key: &ConfigMapKey| {
            assert_eq!(key.namespace, "pennant-system");
            Text::Found("{{type}} for {{notification.namespace}}".into())
        };
        let scene = Scene::sample((laid.name.clone(), laid.namespace.clone()));
        let shown = previews(&laid, &[], &Given { allow_http: false, text: &text }, &scene).unwrap();
        assert_eq!((shown.len(), shown[0].url.as_str()), (1, "https://audit.example.com/in"));
        assert_eq!((shown[0].body.as_str(), shown[0].headers["x-team"].as_str()), ("Deployed for team-a", "a"));
    }

    #[test]
    fn by_itself_it_lies_over_what_is_for_its_namespace() {
        let global =
            parse(&GLOBAL.replace("  pipelineSelector", "  namespaces: [team-*]\n  pipelineSelector"), "n").unwrap();
        for (name, namespace, layers) in [("audit", "team-a", 3), ("audit", "prod", 2), ("other", "team-a", 2)] {
            let mut notification = Notification::new(name, crate::api::NotificationSpec::default());
            notification.metadata.namespace = Some(namespace.to_owned());
            assert_eq!(Laid::alone(&global, &notification).layers.len(), layers, "{namespace}/{name}");
        }
    }

    #[test]
    fn what_does_not_apply_is_not_shown() {
        let global = parse(GLOBAL, "pennant-system").unwrap();
        for (name, team, target, applies) in [
            ("audit", "a", None, true),
            // Its own layer with that name is a separate notification there, which has only the defaults below it.
            ("audit", "b", None, true),
            ("own", "a", None, false),
            ("own", "a", Some("dev/c/y"), true),
            ("other", "a", None, false),
        ] {
            let laid = Laid::on(&global, (name, None), &shop(team), target, "c");
            assert_eq!(laid.is_ok(), applies, "{name} {team} {target:?}");
        }
        let notification: Notification = serde_json::from_value(json!({
            "apiVersion": "pennant.dev/v1alpha1", "kind": "Notification", "metadata": {"name": "audit", "namespace": "team-a"},
            "spec": {"pipelineSelector": {"matchLabels": {"team": "c"}}},
        }))
        .unwrap();
        let error = Laid::on(&global, ("audit", Some(&notification)), &shop("b"), None, "c").unwrap_err().to_string();
        assert!(error.contains("no notification audit applies to Pipeline shop"), "{error}");
    }
}
