//! Chooses the sample of a test. Pure.
//!
//! In: a pipeline, a notification as it applies to it, and the request. Out: a transition that one of the triggers matches, as the
//! dispatcher decides it, or why there is none. A test is never about a promotion, because receivers act on promotions.

use std::sync::Arc;

use kube::ResourceExt as _;

use crate::dispatch::derive::Wants;
use crate::dispatch::derive::subjects::Subjects;
use crate::dispatch::references::reference;
use crate::dispatch::subject::wants;
use crate::outbox::{Applied, PipelineFacts, TestSend};
use relaybook_api::delivery::{self, Family, PipelineRef, SubjectKind, TEST_LANE};
use relaybook_api::notification::TestRequest;
use relaybook_api::pipeline::target::{TargetInfo, targets_of};
use relaybook_api::values::names::hash;
use relaybook_api::values::refs::ClusterRef;
use relaybook_api::{DeliverySpec, LogSubject, Pipeline, Time, TransitionType};
use relaybook_settings::config::{EffectiveNotification, Marking, Sending};
use relaybook_settings::render::{Data, SampleContext, Severity, Texts};
use relaybook_settings::trigger::Triggers;

/// The kinds of subjects at a target, in the order in which a sample is looked for.
const KINDS: [SubjectKind; 4] = [SubjectKind::Target, SubjectKind::Environment, SubjectKind::Pipeline, SubjectKind::Cluster];

/// Returns the name of the Delivery of a test. Tests of Notifications of all namespaces can be stored in one namespace.
pub(super) fn delivery_name(namespace: &str, name: &str, id: &str) -> String {
    delivery::name(&DeliverySpec {
        notification: name.to_owned(),
        lane: lane(namespace, name, id),
        test: true,
        ..DeliverySpec::default()
    })
}

fn lane(namespace: &str, name: &str, id: &str) -> String {
    format!("{TEST_LANE}{}", &hash(&[namespace, name, id])[..16])
}

/// The pipeline and the notification of a test.
pub(super) struct Of<'a> {
    pub(super) pipeline: &'a Pipeline,
    /// The notification as it applies to the pipeline.
    pub(super) applied: &'a Applied,
    /// Namespace and name of the Notification.
    pub(super) notification: (&'a str, &'a str),
    /// The name of the local cluster.
    pub(super) cluster: &'a str,
    pub(super) now: Time,
}

/// What a test sends.
pub(super) struct Sample {
    /// The transition.
    pub(super) spec: DeliverySpec,
    /// The settings with which it is sent.
    pub(super) effective: Arc<EffectiveNotification>,
    context: Box<SampleContext>,
}

impl Sample {
    /// Returns what is sent. `shown_in`: the namespace of the Notification.
    pub(super) fn send<'a>(
        &'a self,
        shown_in: &'a str,
        sending: &'a Sending,
        facts: &'a PipelineFacts,
        resolves: bool,
    ) -> TestSend<'a> {
        let closes = if resolves { self.closing() } else { None };
        TestSend { spec: self.spec.clone(), closes, home: &self.effective.home, shown_in, sending, facts }
    }

    /// Returns the transition that closes the alert of this one.
    fn closing(&self) -> Option<DeliverySpec> {
        let type_ = match self.spec.type_ {
            TransitionType::Failed => TransitionType::Recovered,
            TransitionType::Drifted => TransitionType::DriftCorrected,
            TransitionType::ClusterOffline => TransitionType::ClusterOnline,
            _ => return None,
        };
        Some(of_test(self.context.delivery(type_), &self.spec))
    }
}

/// Returns a sample with the identity of a test.
fn of_test(sample: DeliverySpec, like: &DeliverySpec) -> DeliverySpec {
    DeliverySpec {
        notification_uid: like.notification_uid.clone(),
        pipeline_ref: like.pipeline_ref.clone(),
        subject: like.subject.clone(),
        lane: like.lane.clone(),
        time: like.time,
        test: true,
        ..sample
    }
}

/// Returns the sample for the first target with a matching trigger, or why there is none.
pub(super) fn sample(of: &Of<'_>, request: &TestRequest) -> Result<Sample, String> {
    let (pipeline, name) = (reference(of.pipeline), of.notification.1);
    let targets = targets_of(of.pipeline, of.cluster);
    let is_wanted = |target: &&TargetInfo| request.target.as_ref().is_none_or(|wanted| target.name == *wanted);
    let wanted: Vec<_> = targets.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let names: Vec<_> = targets.iter().take(10).map(|target| target.name.as_str()).collect();
        let wanted = request.target.as_deref().unwrap_or_default();
        return Err(format!("Pipeline {} has no target {wanted}; it has {}", pipeline.name, names.join(", ")));
    }
    let subjects = Subjects::new(of.pipeline, of.cluster, &pipeline);
    let search = Search { of, reference: &pipeline, request, subjects };
    let (mut is_applied, mut unclear) = (false, None);
    for target in wanted {
        for kind in KINDS {
            match search.at(target, kind) {
                At::Found(sample) => return Ok(*sample),
                At::Unclear(why) => unclear = unclear.or(Some(why)),
                At::NoTrigger => is_applied = true,
                At::Nothing => {}
            }
        }
    }
    if let Some(why) = unclear {
        return Err(why);
    }
    let of = format!("Pipeline {}/{}", pipeline.namespace, pipeline.name);
    Err(match request.type_ {
        _ if !is_applied => format!("Notification {name} applies to no target of {of}; check its layers"),
        Some(type_) if type_.family() == Family::Promotion => {
            format!("a test cannot be about a promotion; choose another type than {}", type_.as_str())
        }
        Some(type_) => format!("no trigger of Notification {name} matches {} of {of}", type_.as_str()),
        None => format!(
            "no trigger of Notification {name} matches a sample for {of}; check the types, environments, clusters and conditions (`when`) of its triggers. A test is never about a promotion"
        ),
    })
}

enum At {
    Found(Box<Sample>),
    Unclear(String),
    /// The notification applies, but no trigger matches.
    NoTrigger,
    Nothing,
}

struct Search<'a> {
    of: &'a Of<'a>,
    reference: &'a PipelineRef,
    request: &'a TestRequest,
    subjects: Subjects,
}

impl Search<'_> {
    fn at(&self, target: &TargetInfo, kind: SubjectKind) -> At {
        let cluster = target.cluster_ref.as_ref().map(ClusterRef::full_name);
        let subject = match (kind, &cluster) {
            (SubjectKind::Target, _) => target.log_subject(),
            (SubjectKind::Environment, _) => LogSubject::Environment(&target.environment),
            (SubjectKind::Pipeline, _) => LogSubject::Pipeline,
            (SubjectKind::Cluster, Some(name)) => LogSubject::Cluster(name),
            // The local cluster is never offline.
            (SubjectKind::Cluster, None) => return At::Nothing,
        };
        let subject = subject.to_string();
        let Of { pipeline, applied, notification: (namespace, name), cluster, now } = *self.of;
        let Some(effective) = applied.of(&subject) else { return At::Nothing };
        let triggers = match wants(applied, &subject) {
            Wants::Nothing => return At::Nothing,
            Wants::Unclear => {
                let problem = effective.intake.as_ref().err().map(ToString::to_string);
                return At::Unclear(problem.unwrap_or_default());
            }
            Wants::These(triggers, _) => triggers,
        };
        let context = SampleContext::of_target(pipeline, target, cluster, name);
        let about = self.subjects.get(&subject);
        let like = DeliverySpec {
            notification_uid: effective.uid.clone(),
            pipeline_ref: self.reference.clone(),
            subject: about.subject.clone(),
            lane: lane(namespace, name, &self.request.id),
            time: now,
            ..DeliverySpec::default()
        };
        let labels: Texts = pipeline.labels().clone().into();
        let annotations: Texts = pipeline.annotations().clone().into();
        for type_ in types(self.request.type_, triggers, effective).into_iter().filter(|type_| type_.subject() == kind) {
            let spec = of_test(context.delivery(type_), &like);
            let data = || Data::new("", &spec, &labels, &annotations, &self.reference.namespace);
            if triggers.ask(type_, &about.places, data).is_some_and(|wanted| wanted.error.is_none()) {
                return At::Found(Box::new(Sample { spec, effective: effective.clone(), context: Box::new(context) }));
            }
        }
        At::NoTrigger
    }
}

/// Returns the types to try: that of the request, or those of the triggers in their order. Where a second request closes an alert, those
/// that open one come first.
fn types(wanted: Option<TransitionType>, triggers: &Triggers, effective: &EffectiveNotification) -> Vec<TransitionType> {
    let mut types: Vec<_> = wanted.map_or_else(|| triggers.types().collect(), |type_| vec![type_]);
    types.retain(|type_| type_.family() != Family::Promotion);
    let marking = effective.sending.as_ref().ok().map(|sending| &sending.marking);
    if matches!(marking, Some(Marking::Marked { resolves: true, .. })) {
        types.sort_by_key(|type_| Severity::of(*type_) != Severity::Error);
    }
    types
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use relaybook_api::Notification;
    use relaybook_settings::config::{Given, resolve};

    fn shop() -> Pipeline {
        let remote = json!({"kind": "Secret", "name": "eu-1"});
        let mut pipeline: Pipeline = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "shop", "namespace": "team-a", "uid": "u", "labels": {"team": "a"}},
            "spec": {
                "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "environments": [
                    {"name": "dev", "targets": [{"namespace": "x"}]},
                    {"name": "prod", "targets": [{"namespace": "y"}, {"namespace": "z", "clusterRef": remote}]},
                ],
            },
        }))
        .unwrap();
        pipeline.status = None;
        pipeline
    }

    fn found(spec: &Value, request: &Value) -> Result<(String, String), String> {
        let mut spec = spec.clone();
        let defaults =
            [("template", json!({"builtin": "slack"})), ("endpoint", json!({"url": "https://chat.example.com/in"}))];
        for (field, value) in defaults {
            if spec.get(field).is_none() {
                spec[field] = value;
            }
        }
        let notification = Notification::new("chat", serde_json::from_value(spec).unwrap());
        let base = Some(Arc::new(resolve(&notification, &Given::nothing())));
        let applied = Applied { base, layered: None };
        let mut wanted = json!({"id": "aaaa", "time": "2026-01-01T00:00:00Z"});
        wanted.as_object_mut().unwrap().extend(request.as_object().unwrap().clone());
        let request = TestRequest::parse(&wanted.to_string()).unwrap();
        let pipeline = shop();
        let of = Of {
            pipeline: &pipeline,
            applied: &applied,
            notification: ("team-a", "chat"),
            cluster: "here",
            now: Time::UNIX_EPOCH,
        };
        match sample(&of, &request) {
            Ok(sample) => {
                assert_eq!(delivery::name(&sample.spec), delivery_name("team-a", "chat", "aaaa"));
                assert_ne!(delivery::name(&sample.spec), delivery_name("team-b", "chat", "aaaa"));
                let closing = sample.closing().map(|spec| (spec.subject, spec.lane));
                assert!(closing.is_none_or(|closing| closing == (sample.spec.subject.clone(), sample.spec.lane.clone())));
                Ok((sample.spec.type_.as_str().to_owned(), sample.spec.subject.name.clone()))
            }
            Err(why) => Err(why),
        }
    }

    #[test]
    fn the_first_trigger_that_matches_the_first_target_decides() {
        let none = json!({});
        for (triggers, request, type_, subject) in [
            (json!([{"type": "Failed"}, {"type": "Deployed"}]), &none, "Failed", "dev/here/x"),
            (json!([{"type": "Failed", "environments": ["prod"]}]), &none, "Failed", "prod/here/y"),
            (json!([{"type": "Failed", "clusters": ["eu-1"]}]), &none, "Failed", "prod/eu-1/z"),
            (json!([{"type": "Failed"}, {"type": "Deployed"}]), &json!({"type": "Deployed"}), "Deployed", "dev/here/x"),
            (json!([{"type": "Failed"}]), &json!({"target": "prod/here/y"}), "Failed", "prod/here/y"),
            (json!([{"type": "Failed", "when": "environment == 'prod'"}]), &none, "Failed", "prod/here/y"),
            (json!([{"type": "EnvironmentReady", "environments": ["prod"]}]), &none, "EnvironmentReady", "prod"),
            (json!([{"type": "PipelineReady"}]), &none, "PipelineReady", "shop"),
            (json!([{"type": "ClusterOffline"}]), &none, "ClusterOffline", "eu-1"),
            (json!([{"type": "PromotionRequested"}, {"type": "Deployed"}]), &none, "Deployed", "dev/here/x"),
        ] {
            let expected = Ok((type_.to_owned(), subject.to_owned()));
            assert_eq!(found(&json!({"triggers": triggers}), request), expected, "{triggers} {request}");
        }
        let alert = json!({"triggers": [{"type": "Deployed"}, {"type": "Failed"}], "template": {"builtin": "pagerduty"}});
        assert_eq!(
            found(&alert, &none),
            Ok(("Failed".to_owned(), "dev/here/x".to_owned())),
            "an alert is opened and closed"
        );
    }

    #[test]
    fn without_a_match_the_reason_is_given() {
        for (triggers, request, words) in [
            (json!([]), json!({}), "no trigger of Notification chat matches a sample for Pipeline team-a/shop"),
            (json!([{"type": "Failed", "environments": ["production"]}]), json!({}), "no trigger of Notification chat"),
            (json!([{"type": "Failed"}]), json!({"type": "Deployed"}), "matches Deployed of Pipeline team-a/shop"),
            (
                json!([{"type": "Failed"}]),
                json!({"target": "prod/here/q"}),
                "has no target prod/here/q; it has dev/here/x, prod/here/y",
            ),
            (
                json!([{"type": "PromotionRequested"}]),
                json!({"type": "PromotionRequested"}),
                "a test cannot be about a promotion",
            ),
            (json!([{"type": "Failed", "environments": ["[a"]}]), json!({}), "triggers[0].environments"),
        ] {
            let error = found(&json!({"triggers": triggers}), &request).unwrap_err();
            assert!(error.contains(words), "{triggers}: {error}");
        }
    }
}
