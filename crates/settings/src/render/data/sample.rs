//! Sample transitions, to test a template before a real transition occurs.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_core::ResourceExt as _;

use crate::render::{Data, Web};
use relaybook_api::delivery::{AppObject, PipelineRef, Subject, SubjectKind, SubjectTarget};
use relaybook_api::pipeline::TargetStatus;
use relaybook_api::pipeline::source::TargetOrigin;
use relaybook_api::pipeline::target::TargetInfo;
use relaybook_api::promotion::{Phase, PromotionState};
use relaybook_api::values::git::recorded;
use relaybook_api::values::permalink::PageUrl;
use relaybook_api::values::refs::{ClusterKind, ClusterRef};
use relaybook_api::{DeliverySpec, Pipeline, State, Status, Time, TransitionType, delivery};

const OLD: &str = "main@sha1:9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21";
const NEW: &str = "main@sha1:5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
const REPOSITORY: &str = "https://github.com/acme/podinfo.git";
const SERIAL: i64 = 1_763_711_234_567;
const THREAD: &str = "1f0a3c5b7d9e2468";

/// The objects that a sample transition refers to.
#[derive(Clone, Debug)]
pub struct SampleContext {
    /// The pipeline.
    pub pipeline: PipelineRef,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The target. Transitions of other subjects refer to its environment, its cluster, or the pipeline.
    pub subject: Subject,
    /// The environment before that of the target. Promotions come from it.
    pub before: String,
    /// The revision that ran.
    pub old: String,
    /// The revision that replaces it.
    pub new: String,
    /// Name and namespace of the notification.
    pub notification: (String, String),
    /// Name of the local cluster.
    pub cluster: String,
    /// The URL of the audit page, for links.
    pub page: Option<PageUrl>,
    /// The address of the Git repository of both revisions. Empty: it is not known.
    pub repository: String,
    /// The forges and the links of the global configuration.
    pub web: Arc<Web>,
}

impl SampleContext {
    /// Returns a sample pipeline without labels and annotations, with a notification of this name and namespace.
    #[must_use]
    pub fn sample(notification: (String, String)) -> Self {
        Self {
            pipeline: PipelineRef {
                namespace: "team-a".to_owned(),
                name: "podinfo".to_owned(),
                uid: "5ae9d0c4-6c1b-4f0f-9d53-0d8c0a3f7b11".to_owned(),
            },
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            subject: subject(),
            before: "staging".to_owned(),
            old: OLD.to_owned(),
            new: NEW.to_owned(),
            notification,
            cluster: "in-cluster".to_owned(),
            page: None,
            repository: REPOSITORY.to_owned(),
            web: Arc::default(),
        }
    }

    /// Returns the data of a target of a pipeline: names, labels and revisions. `cluster` is the name of the local cluster, `notification`
    /// the name of the notification.
    #[must_use]
    pub fn of_target(pipeline: &Pipeline, target: &TargetInfo, cluster: &str, notification: &str) -> Self {
        let mut context = Self::sample((notification.to_owned(), pipeline.namespace().unwrap_or_default()));
        context.pipeline = PipelineRef {
            namespace: pipeline.namespace().unwrap_or_default(),
            name: pipeline.name_any(),
            uid: pipeline.uid().unwrap_or_default(),
        };
        context.labels.clone_from(pipeline.labels());
        context.annotations.clone_from(pipeline.annotations());
        context.subject = target.as_subject();
        cluster.clone_into(&mut context.cluster);
        // Nothing is promoted to the first environment.
        let before = target.environment_index.checked_sub(1).and_then(|before| pipeline.spec.environments.get(before));
        if let Some(before) = before {
            context.before.clone_from(&before.name);
        }
        if let Some((runs, tried)) = revisions(pipeline, target) {
            (context.old, context.new) = (runs, tried);
        }
        context.repository = repository(pipeline, target);
        context
    }

    /// Returns the data of a transition of this type, with its links.
    #[must_use]
    pub fn transition(&self, type_: TransitionType) -> Data {
        let spec = self.delivery(type_);
        let (labels, annotations) = (Arc::new(self.labels.clone()), Arc::new(self.annotations.clone()));
        let data = Data::new("msg_5f3d2c1b0a9e8d7c", &spec, &labels, &annotations, &self.notification.1);
        let data = Data { thread: THREAD.to_owned(), ..data.with_context(&spec, &self.cluster) };
        let data = data.with_links(self.page.as_ref(), &self.pipeline.namespace, &delivery::name(&spec));
        data.with_web(&spec, &self.web)
    }

    /// Returns a transition of this type. It is as inconvenient as real ones. The message of a failure has quotes, a line break and a
    /// non-ASCII character. A removed target and a cluster have no revision. A running workload has its number of replicas.
    #[must_use]
    pub fn delivery(&self, type_: TransitionType) -> DeliverySpec {
        let (mut from, mut to) = self.states(type_);
        let subject = self.about(type_.subject());
        if subject.kind == SubjectKind::Target {
            from.repository.clone_from(&self.repository);
            to.repository.clone_from(&self.repository);
        }
        let is_workload = subject.target.as_ref().is_some_and(|target| target.app.api_version.starts_with("apps/"));
        if is_workload && matches!(type_, TransitionType::Deployed | TransitionType::Recovered) {
            "3 replicas".clone_into(&mut to.message);
        }
        DeliverySpec {
            notification: self.notification.0.clone(),
            notification_uid: String::new(),
            pipeline_ref: self.pipeline.clone(),
            lane: format!("{kind:?}/{}", subject.name, kind = subject.kind).to_lowercase(),
            subject,
            order: SERIAL,
            serial: SERIAL,
            type_,
            time: Time::constant(SERIAL / 1000, 567_000_000),
            from,
            to,
            coalesced: false,
            due: None,
            error: None,
            test: false,
        }
    }

    /// Returns the subject of this kind. The local cluster is never offline, so if the target is local, the subject is a remote cluster.
    fn about(&self, kind: SubjectKind) -> Subject {
        let name = match kind {
            SubjectKind::Target => return self.subject.clone(),
            SubjectKind::Cluster => {
                let cluster = self.subject.target.as_ref().and_then(|t| t.cluster_ref.clone()).unwrap_or_else(remote);
                return Subject { kind, name: cluster.full_name(), cluster_ref: Some(cluster), ..Subject::default() };
            }
            SubjectKind::Environment => self.subject.environment.clone(),
            SubjectKind::Pipeline => self.pipeline.name.clone(),
        };
        let environment = if kind == SubjectKind::Environment { name.clone() } else { String::new() };
        Subject { kind, name, environment, ..Subject::default() }
    }

    /// Returns the states before and after a transition of this type.
    fn states(&self, type_: TransitionType) -> (State, State) {
        let (old, new) = (self.old.as_str(), self.new.as_str());
        let state = |status, revision: &str, current: &str| State {
            status,
            revision: revision.to_owned(),
            current: Some(current.to_owned()).filter(|current| !current.is_empty()),
            ..State::default()
        };
        let ran = state(Status::Current, old, old);
        let failed = State {
            failed: true,
            reason: "HealthCheckFailed".to_owned(),
            message: "timeout waiting for \"Deployment/team-a/podinfo\":\n1 of 3 replicas – not ready".to_owned(),
            ..state(Status::Failed, new, old)
        };
        let online = state(Status::Current, "", "");
        let offline = State {
            reason: "Unreachable".to_owned(),
            message: "Get \"https://eu-1.example.com:6443/version\":\nno route to host – for 2m".to_owned(),
            ..state(Status::Failed, "", "")
        };
        match type_ {
            TransitionType::Added => (state(Status::NotFound, "", ""), state(Status::InProgress, new, "")),
            TransitionType::Deployed => (ran, state(Status::Current, new, new)),
            TransitionType::Progressing => (ran, state(Status::InProgress, new, old)),
            TransitionType::Failed => (ran, failed),
            TransitionType::Recovered => (failed, ran),
            TransitionType::Removed => (ran, state(Status::NotFound, "", "")),
            TransitionType::Drifted => (ran.clone(), State { drifted: true, ..ran }),
            TransitionType::DriftCorrected => (State { drifted: true, ..ran.clone() }, ran),
            TransitionType::ClusterOffline => (online, offline),
            TransitionType::ClusterOnline => (offline, online),
            TransitionType::EnvironmentReady | TransitionType::PipelineReady => {
                (state(Status::InProgress, "", old), state(Status::Current, new, new))
            }
            TransitionType::PromotionPending => {
                (State { current: ran.current, ..State::default() }, self.promotion(Phase::Pending))
            }
            TransitionType::PromotionRequested => (self.promotion(Phase::Pending), self.promotion(Phase::Requested)),
            TransitionType::PromotionOpened => (self.promotion(Phase::Requested), self.promotion(Phase::Open)),
            TransitionType::PromotionFinished => (self.promotion(Phase::Requested), self.promotion(Phase::Finished)),
            TransitionType::PromotionFailed => (self.promotion(Phase::Requested), self.promotion(Phase::Failed)),
        }
    }

    /// Returns the state of a promotion of the new revision in this phase.
    fn promotion(&self, phase: Phase) -> State {
        let (status, reason, current) = match phase {
            Phase::Pending => (Status::InProgress, "WaitingApproval", &self.old),
            Phase::Open => (Status::InProgress, "Opened", &self.old),
            Phase::Finished => (Status::Current, "Running", &self.new),
            Phase::Failed => (Status::Failed, "NotRunning", &self.old),
            _ => (Status::InProgress, "WaitingForEnvironment", &self.old),
        };
        let message = if phase == Phase::Failed {
            format!("not running after 168h:\n\"{}\" runs {} – it tries nothing", self.subject.name, self.old)
        } else {
            String::new()
        };
        let environment = &self.subject.environment;
        let (strategy, url) = match phase {
            Phase::Pending => ("", ""),
            Phase::Open => ("pullRequest", "https://git.example.com/acme/deploy/pulls/7"),
            _ => ("notification", ""),
        };
        let promotion = PromotionState {
            name: format!("{}-{environment}-7f3a9c2b1d-{SERIAL}", self.pipeline.name),
            uid: "0b6d3a52-9f0e-4c55-8a44-6f7f0f1d2c3e".to_owned(),
            phase,
            strategy: strategy.to_owned(),
            from: self.before.clone(),
            url: url.to_owned(),
        };
        State {
            status,
            revision: self.new.clone(),
            current: Some(current.clone()).filter(|current| !current.is_empty()),
            reason: reason.to_owned(),
            message,
            promotion: Some(promotion),
            ..State::default()
        }
    }
}

impl Data {
    /// Returns a sample transition of this type.
    #[must_use]
    pub fn sample(type_: TransitionType) -> Self {
        SampleContext::sample(("deploys".to_owned(), "team-a".to_owned())).transition(type_)
    }

    /// Returns a sample of each type of transition.
    pub fn samples() -> impl Iterator<Item = Self> {
        TransitionType::ALL.into_iter().map(Self::sample)
    }
}

/// Returns the current revision of a target, and the revision of its rollout. `None`: the target has not been observed yet.
fn revisions(pipeline: &Pipeline, target: &TargetInfo) -> Option<(String, String)> {
    let seen = observed(pipeline, target)?;
    let tried = if seen.attempted_revision.is_empty() { &seen.revision } else { &seen.attempted_revision };
    Some((seen.revision.clone(), tried.clone())).filter(|(_, tried)| !tried.is_empty())
}

/// Returns the address of the Git repository of a target, as a change contains it. Empty: it is not known.
fn repository(pipeline: &Pipeline, target: &TargetInfo) -> String {
    let settled = observed(pipeline, target).and_then(|shown| shown.settled.as_ref());
    let of_fleet = target.source.as_ref().map_or("", |source| source.repository.as_str());
    let all = [pipeline.spec.repository(), settled.map_or("", |settled| settled.repository.as_str()), of_fleet];
    all.into_iter().map(recorded).find(|address| !address.is_empty()).unwrap_or_default()
}

/// Returns the status of a target. `None`: it has not been observed yet.
#[must_use]
pub fn observed<'a>(pipeline: &'a Pipeline, target: &TargetInfo) -> Option<&'a TargetStatus> {
    let environments = &pipeline.status.as_ref()?.environments;
    let shown = environments.iter().filter(|e| e.name == target.environment).flat_map(|e| &e.targets);
    let is = |shown: &&TargetStatus| {
        let object = &shown.cluster_app_ref;
        let app = (&object.api_version, &object.kind, &object.name)
            == (&target.app.api_version, &target.app.kind, &target.app.name);
        app && object.namespace == target.namespace && object.cluster_ref == target.object_cluster
    };
    shown.into_iter().find(is)
}

fn remote() -> ClusterRef {
    ClusterRef {
        api_version: None,
        kind: ClusterKind::GitopsCluster,
        name: "eu-1".to_owned(),
        namespace: Some("clusters".to_owned()),
    }
}

fn subject() -> Subject {
    Subject {
        name: "prod/in-cluster/podinfo".to_owned(),
        environment: "prod".to_owned(),
        target: Some(SubjectTarget {
            namespace: "podinfo".to_owned(),
            cluster: "in-cluster".to_owned(),
            cluster_ref: None,
            app: AppObject {
                api_version: "kustomize.toolkit.fluxcd.io/v1".to_owned(),
                kind: "Kustomization".to_owned(),
                name: "podinfo".to_owned(),
            },
            source: Some(TargetOrigin {
                kind: "GitRepo".to_owned(),
                name: "podinfo".to_owned(),
                repository: REPOSITORY.to_owned(),
            }),
        }),
        ..Subject::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_says_what_was_deployed() {
        let mut context =
            SampleContext { old: "1.0".to_owned(), new: "1.1".to_owned(), ..SampleContext::sample(Default::default()) };
        let messages = |context: &SampleContext| {
            [TransitionType::Progressing, TransitionType::Deployed, TransitionType::Recovered]
                .map(|type_| context.transition(type_).message)
        };
        assert_eq!(messages(&context), ["", "", ""]);
        let target = context.subject.target.as_mut().unwrap();
        (target.app.api_version, target.app.kind) = ("apps/v1".to_owned(), "Deployment".to_owned());
        assert_eq!(messages(&context), ["", "1.0 → 1.1, 3 replicas", "3 replicas"]);
    }

    #[test]
    fn a_delivery_has_the_data_of_its_transition() {
        let context = SampleContext::sample(Default::default());
        for type_ in TransitionType::ALL {
            let (spec, data) = (context.delivery(type_), context.transition(type_));
            assert_eq!((spec.type_, &spec.to.revision, spec.test), (data.type_, &data.revision, data.test));
            assert_eq!((spec.subject.kind, &spec.subject.name), (data.subject.kind, &data.subject.name));
        }
    }

    #[test]
    fn the_revisions_of_a_sample_are_those_of_its_states() {
        let revisions = |type_| {
            let data = Data::sample(type_);
            [data.revision, data.running_revision, data.previous_revision]
                .map(|r| r.chars().skip(10).take(3).collect::<String>())
        };
        assert_eq!(revisions(TransitionType::Deployed), ["5f3", "5f3", "9c1"]);
        assert_eq!(revisions(TransitionType::Failed), ["5f3", "9c1", "9c1"]);
        assert_eq!(revisions(TransitionType::Removed), ["", "", "9c1"]);
        assert_eq!(revisions(TransitionType::PromotionRequested), ["5f3", "9c1", "9c1"]);
        assert_eq!(revisions(TransitionType::PromotionFinished), ["5f3", "5f3", "9c1"]);
    }
}
