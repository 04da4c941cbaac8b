//! Pure: the sample of a test, which is about the first target that a notification applies to.

use kube::ResourceExt as _;

use super::effect::{Marked, marked};
use super::{Named, TestRefusal};
use crate::preview::live::sample_context;
use crate::preview::{Known, LayeredNotification, PreviewError};
use relaybook_api::delivery::SubjectKind;
use relaybook_api::pipeline::target::{TargetInfo, targets_of};
use relaybook_api::values::permalink::PageUrl;
use relaybook_api::{NotificationSpec, Pipeline, TransitionType};
use relaybook_settings::config::layers::Layer;
use relaybook_settings::manifests::layers_below;
use relaybook_settings::render::Data;
use relaybook_settings::trigger::{Place, Triggers};

/// The kinds of subjects at a target, in the order in which a sample is looked for.
const KINDS: [SubjectKind; 4] = [SubjectKind::Target, SubjectKind::Environment, SubjectKind::Pipeline, SubjectKind::Cluster];

/// The sample of a test.
#[derive(Debug)]
pub struct TestSample {
    /// The notification with all its layers.
    pub notification: LayeredNotification,
    pub(super) named: Named,
    pub(super) data: Data,
    pub(super) marked: Marked,
}

/// Returns the sample for the first target of a pipeline that a notification applies to: its selectors and layers apply, and one of its
/// triggers matches. `Deployed` comes first, then the types in the order of the triggers. Fails if a test would change something.
pub fn test_sample(
    pipeline: &Pipeline,
    known: &Known<'_>,
    name: &str,
    page: Option<&PageUrl>,
) -> Result<TestSample, PreviewError> {
    let named = Named::new(name, pipeline);
    let Some(below) = layers_below(known.global, pipeline, name, known.notifications) else {
        return Err(TestRefusal::Nowhere(named).into());
    };
    let namespace = pipeline.namespace().unwrap_or_default();
    let with_place = |target: TargetInfo| (Place::of(&target, &namespace), target);
    let targets = targets_of(pipeline, known.cluster).into_iter().map(with_place).collect();
    let mut search = Search { pipeline, known, name, page, below, targets, seen: Vec::new() };
    match search.first()? {
        Found::Sample(found) => {
            let (Applied { notification, spec, .. }, data) = *found;
            match marked(&spec) {
                Ok(marked) => Ok(TestSample { notification, named, data, marked }),
                Err(change) => Err(TestRefusal::new(change, named).into()),
            }
        }
        Found::NoTrigger => Err(TestRefusal::NoTrigger(named).into()),
        Found::Nowhere => Err(TestRefusal::Nowhere(named).into()),
    }
}

/// The settings that apply to some subjects.
struct Applied {
    notification: LayeredNotification,
    spec: NotificationSpec,
    triggers: Triggers,
}

enum Found {
    Sample(Box<(Applied, Data)>),
    /// The notification applies to targets, but no trigger matches a sample for one of them.
    NoTrigger,
    Nowhere,
}

struct Search<'a> {
    pipeline: &'a Pipeline,
    known: &'a Known<'a>,
    name: &'a str,
    page: Option<&'a PageUrl>,
    below: Vec<Layer>,
    targets: Vec<(Place, TargetInfo)>,
    /// The settings so far. Most targets have the same layers.
    seen: Vec<Applied>,
}

impl Search<'_> {
    fn first(&mut self) -> Result<Found, PreviewError> {
        let mut found = Found::Nowhere;
        for index in 0..self.targets.len() {
            for kind in KINDS {
                let Some(at) = self.applied(index, kind)? else { continue };
                if kind == SubjectKind::Target {
                    found = Found::NoTrigger;
                }
                if let Some(data) = self.sample(at, index, kind)? {
                    return Ok(Found::Sample(Box::new((self.seen.swap_remove(at), data))));
                }
            }
        }
        Ok(found)
    }

    /// Returns the index of the settings for subjects of a kind at a target.
    fn applied(&mut self, index: usize, kind: SubjectKind) -> Result<Option<usize>, PreviewError> {
        let (_, target) = &self.targets[index];
        let layered = LayeredNotification::at(&self.below, self.name, self.pipeline, kind, target);
        let Some(notification) = layered else { return Ok(None) };
        if let Some(at) = self.seen.iter().position(|seen| seen.notification == notification) {
            return Ok(Some(at));
        }
        let wrong = |problem| PreviewError::Notification { name: self.name.to_owned(), problem };
        let spec = notification.spec().map_err(wrong)?;
        let triggers = Triggers::compile(spec.triggers.as_deref().unwrap_or_default()).map_err(|e| wrong(e.into()))?;
        self.seen.push(Applied { notification, spec, triggers });
        Ok(Some(self.seen.len() - 1))
    }

    /// Returns a transition that a trigger matches, as the dispatcher decides it.
    fn sample(&self, at: usize, index: usize, kind: SubjectKind) -> Result<Option<Data>, PreviewError> {
        let (applied, (place, target)) = (&self.seen[at], &self.targets[index]);
        // The local cluster is never offline.
        if kind == SubjectKind::Cluster && target.cluster_ref.is_none() {
            return Ok(None);
        }
        let types: Vec<_> = types(&applied.spec).into_iter().filter(|type_| type_.subject() == kind).collect();
        if types.is_empty() {
            return Ok(None);
        }
        let is_there = |other: &Place| match kind {
            SubjectKind::Target => other == place,
            SubjectKind::Environment => other.environment == place.environment,
            SubjectKind::Cluster => other.full_cluster == place.full_cluster,
            SubjectKind::Pipeline => true,
        };
        let places: Vec<_> = self.targets.iter().map(|(place, _)| place).filter(|other| is_there(other)).cloned().collect();
        let mut context = sample_context(self.pipeline, Some(&target.name), self.known.cluster, self.name)?;
        context.page = self.page.cloned();
        let mut samples = types.into_iter().map(|type_| context.transition(type_));
        Ok(samples.find(|data| {
            let wanted = applied.triggers.ask(data.type_, &places, || data.clone());
            // A condition that cannot be evaluated sends nothing.
            wanted.is_some_and(|wanted| wanted.error.is_none())
        }))
    }
}

/// Returns the types that a notification reports, with the usual one first.
fn types(spec: &NotificationSpec) -> Vec<TransitionType> {
    let mut types: Vec<_> = spec.triggers.iter().flatten().map(|trigger| trigger.type_).collect();
    types.sort_by_key(|type_| *type_ != TransitionType::Deployed);
    types
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use relaybook_api::{Notification, ObjectName};
    use relaybook_settings::config::Global;
    use relaybook_settings::manifests::global::parse;

    fn shop() -> Pipeline {
        let remote = json!({"kind": "Secret", "name": "eu-1"});
        serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "shop", "namespace": "team-a", "labels": {"team": "a"}},
            "spec": {
                "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "environments": [
                    {"name": "dev", "targets": [{"namespace": "x"}]},
                    {"name": "prod", "targets": [
                        {"namespace": "y"},
                        {"namespace": "z", "clusterRef": remote, "notifications": [{"name": "own", "triggers": [{"type": "Failed"}],
                            "template": {"builtin": "slack"}}]},
                    ]},
                ],
            },
        }))
        .unwrap()
    }

    fn sample(spec: &Value, name: &str, global: &Global) -> Result<TestSample, String> {
        let notification: Notification = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification",
            "metadata": {"name": "chat", "namespace": "team-a"}, "spec": spec,
        }))
        .unwrap();
        let config_map = ObjectName::new("n", "c");
        let notifications = [notification];
        let known = Known {
            global,
            config_map: &config_map,
            notifications: &notifications,
            cluster: "here",
            allow_http: false,
            egress: None,
        };
        test_sample(&shop(), &known, name, None).map_err(|error| error.to_string())
    }

    /// Each row: what is set beside the template, and the type and the subject of the sample.
    #[test]
    fn a_sample_is_for_the_first_target_that_the_notification_applies_to() {
        for (spec, type_, about) in [
            (json!({"triggers": [{"type": "Deployed"}]}), "Deployed", "dev/here/x"),
            (json!({"triggers": [{"type": "Deployed", "environments": ["prod"]}]}), "Deployed", "prod/here/y"),
            (
                json!({"triggers": [{"type": "Deployed", "environments": ["pr*"], "clusters": ["eu-1"]}]}),
                "Deployed",
                "prod/eu-1/z",
            ),
            (json!({"triggers": [{"type": "Deployed", "clusters": ["team-a.eu-1"]}]}), "Deployed", "prod/eu-1/z"),
            (json!({"triggers": [{"type": "Failed"}, {"type": "Deployed"}]}), "Deployed", "dev/here/x"),
            (json!({"triggers": [{"type": "Failed"}, {"type": "Removed"}]}), "Failed", "dev/here/x"),
            (
                json!({"triggers": [{"type": "Deployed", "environments": ["prod"]}, {"type": "Failed"}]}),
                "Failed",
                "dev/here/x",
            ),
            (json!({"triggers": [{"type": "Failed", "when": "environment == 'prod'"}]}), "Failed", "prod/here/y"),
            (
                json!({"triggers": [{"type": "Failed", "when": "pipeline.labels.squad == 'a'"}, {"type": "Removed"}]}),
                "Removed",
                "dev/here/x",
            ),
            (json!({"triggers": [{"type": "EnvironmentReady", "environments": ["prod"]}]}), "EnvironmentReady", "prod"),
            (json!({"triggers": [{"type": "EnvironmentReady", "clusters": ["eu-1"]}]}), "EnvironmentReady", "prod"),
            (json!({"triggers": [{"type": "PipelineReady", "clusters": ["eu-1"]}]}), "PipelineReady", "shop"),
            (json!({"triggers": [{"type": "ClusterOffline"}]}), "ClusterOffline", "eu-1"),
            (
                json!({"triggers": [{"type": "Deployed"}], "pipelineSelector": {"matchLabels": {"team": "a"}}}),
                "Deployed",
                "dev/here/x",
            ),
        ] {
            let mut spec = spec;
            spec["template"] = json!({"builtin": "slack"});
            let found = sample(&spec, "chat", &Global::default()).unwrap();
            assert_eq!((found.data.type_.as_str(), found.data.subject.name.as_str()), (type_, about), "{spec}");
            assert_eq!(found.marked, Marked::Text(relaybook_api::notification::Builtin::Slack));
        }
        let found = sample(&json!({}), "own", &Global::default()).unwrap();
        assert_eq!((found.data.type_, found.data.subject.name.as_str()), (TransitionType::Failed, "prod/eu-1/z"));
        let global = "notifications:\n- name: audit\n  triggers: [{type: Failed, environments: [prod]}]\n  template: {builtin: webex}\n";
        let found = sample(&json!({}), "audit", &parse(global, "n").unwrap()).unwrap();
        assert_eq!(found.data.subject.name, "prod/here/y");
    }

    #[test]
    fn without_a_matching_target_or_trigger_the_error_says_so() {
        let nowhere = "Notification chat applies to no target of Pipeline team-a/shop; check";
        let none = "no trigger of Notification chat matches a sample for Pipeline team-a/shop; check";
        for (spec, words) in [
            (json!({"triggers": [{"type": "Deployed"}], "pipelineSelector": {"matchLabels": {"team": "b"}}}), nowhere),
            (json!({"triggers": []}), none),
            (json!({"triggers": [{"type": "Deployed", "environments": ["production"]}]}), none),
            (json!({"triggers": [{"type": "Deployed", "environments": ["dev"], "clusters": ["eu-1"]}]}), none),
            (json!({"triggers": [{"type": "Failed", "when": "reason == 'Nothing'"}]}), none),
        ] {
            let mut spec = spec;
            spec["template"] = json!({"builtin": "slack"});
            let error = sample(&spec, "chat", &Global::default()).unwrap_err();
            assert!(error.starts_with(words), "{spec}: {error}");
        }
        let error = sample(&json!({}), "other", &Global::default()).unwrap_err();
        assert!(error.starts_with("Notification other applies to no target"), "{error}");
        let wrong = json!({"triggers": [{"type": "Deployed", "environments": ["[a"]}], "template": {"builtin": "slack"}});
        let error = sample(&wrong, "chat", &Global::default()).unwrap_err();
        assert!(error.contains("triggers[0].environments"), "{error}");
    }

    #[test]
    fn the_effective_settings_decide_whether_a_test_is_refused() {
        let triggers = json!([{"type": "Deployed"}]);
        let error = sample(&json!({"triggers": triggers, "template": {"builtin": "pagerduty"}}), "chat", &Global::default());
        let error = error.unwrap_err();
        for words in [
            "Notification chat uses pagerduty, so a test would open or resolve an alert; ",
            "`relaybook render chat -n team-a --pipeline shop`",
            "--send-to",
        ] {
            assert!(error.contains(words), "{error}");
        }
        let both = json!([{"type": "Deployed"}, {"type": "PromotionRequested"}]);
        let error = sample(&json!({"triggers": both, "template": {"inline": {"body": "{}"}}}), "chat", &Global::default());
        assert!(error.unwrap_err().contains("reports PromotionRequested, and its receiver can act on promotions; "));
        let global = parse("notifications:\n- name: chat\n  template: {builtin: github-commit-status}\n", "n").unwrap();
        let error = sample(&json!({"triggers": triggers}), "chat", &global).unwrap_err();
        assert!(error.contains("uses github-commit-status, so a test would set the status of a commit"), "{error}");
    }
}
