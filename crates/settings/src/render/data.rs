//! The data of a transition that templates and `when` expressions can read.

mod app;
mod context;
mod links;
pub(super) mod parameters;
pub(super) mod promotion;
pub(super) mod sample;
pub(super) mod schema;
mod source;
pub(super) mod values;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use relaybook_text::cut;

use super::Web;
pub use app::AppData;
pub use links::{GitData, LinkData};
use promotion::PromotionData;
use relaybook_api::delivery::{Subject, SubjectKind};
use relaybook_api::pipeline::Recorded;
use relaybook_api::values::looked_up::{LookedUp, PullRequestInfo};
use relaybook_api::values::permalink;
use relaybook_api::values::permalink::PageUrl;
use relaybook_api::values::refs::ClusterRef;
use relaybook_api::values::revision::with_short_hashes;
use relaybook_api::{DeliverySpec, Status, Time, TransitionType};
use source::SourceData;

/// Number of hexadecimal digits of a hash in a message, as in container tools.
const DIGITS: usize = 12;

/// Maximum length of a message in bytes.
const LONGEST_MESSAGE: usize = 1024;

/// The data of one transition. All fields always exist, and unknown ones are empty. So a compiled template finds every field that it uses.
/// Only an entry of labels, annotations or recorded fields can be missing. `docs/templates.md` lists the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Data {
    /// The `webhook-id`, which is the same in every attempt.
    pub id: String,
    /// Serial of the change that is reported.
    pub serial: i64,
    /// What the change means.
    #[serde(rename = "type")]
    pub type_: TransitionType,
    /// When the change was observed.
    pub time: Time,
    /// The severity of the transition.
    pub severity: Severity,
    /// The pipeline.
    pub pipeline: PipelineData,
    /// The subject of the transition.
    pub subject: SubjectData,
    /// Name of the environment; empty if the subject is a cluster or the pipeline.
    pub environment: String,
    /// The target; empty if the subject is not a target. If the subject is a cluster, only the field `cluster` is set.
    pub target: TargetData,
    /// The promotion; empty if the transition is not about one.
    pub promotion: PromotionData,
    /// The revision that the status refers to: the running one for `Current`, the attempted one for `InProgress` and `Failed`. For a
    /// promotion, the promoted one.
    pub revision: String,
    /// The running revision; empty before the first one and after the application object is deleted.
    pub running_revision: String,
    /// The revision that ran before the transition; empty if there was none.
    pub previous_revision: String,
    /// The status of the subject, as in kstatus.
    pub status: Status,
    /// The status before the transition.
    pub previous_status: Status,
    /// The reason in one word; often empty.
    pub reason: String,
    /// A human-readable message; often empty. It comes from the cluster and can contain any characters. For a deployed workload it contains
    /// the old revision, the new revision and the number of replicas. For a promotion it is a sentence about the promotion.
    pub message: String,
    /// Whether the target has drifted from its declared state.
    pub drifted: bool,
    /// Whether several changes were merged before this transition was recorded.
    pub coalesced: bool,
    /// Number of earlier transitions of this subject that were not sent because this one replaces them.
    pub superseded: i64,
    /// Whether it is a test that a user has requested. All data as one object contain this field only in a test. Conditions cannot use it.
    #[serde(skip_serializing_if = "is_false")]
    pub test: bool,
    /// The notification that reports the transition.
    pub notification: NotificationData,
    /// Name of the subject that no other subject has, in any installation with its own name of the local cluster. Conditions cannot use it.
    pub context: String,
    /// The URL of the delivery in the audit page; empty without `--page-url`. Conditions cannot use it.
    pub link: String,
    /// URLs of other screens of the audit page, which are empty like `link`, and of pages elsewhere.
    pub links: LinkData,
    /// The identity of the message that the delivery is a part of; empty if it is a message of its own. It is not a part of all data.
    #[serde(skip)]
    pub thread: String,
    /// The commit of the revision. Conditions cannot use it.
    pub git: GitData,
    /// The pull request with which the commit came. Conditions cannot use it.
    pub pull_request: PullRequestInfo,
}

/// The severity of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No action is needed.
    Info,
    /// A user should look at it.
    Error,
}

impl Severity {
    /// Returns the severity of a transition type.
    #[must_use]
    pub const fn of(type_: TransitionType) -> Self {
        match type_ {
            TransitionType::Failed
            | TransitionType::Drifted
            | TransitionType::ClusterOffline
            | TransitionType::PromotionFailed => Self::Error,
            TransitionType::Added
            | TransitionType::Deployed
            | TransitionType::Progressing
            | TransitionType::Recovered
            | TransitionType::Removed
            | TransitionType::DriftCorrected
            | TransitionType::ClusterOnline
            | TransitionType::EnvironmentReady
            | TransitionType::PipelineReady
            | TransitionType::PromotionPending
            | TransitionType::PromotionRequested
            | TransitionType::PromotionOpened
            | TransitionType::PromotionFinished => Self::Info,
        }
    }
}

/// The pipeline of a transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PipelineData {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// Its current labels.
    #[serde(serialize_with = "shared")]
    pub labels: Texts,
    /// Its current annotations.
    #[serde(serialize_with = "shared")]
    pub annotations: Texts,
}

/// Labels or annotations. Many transitions share them, because they can be large.
pub type Texts = Arc<BTreeMap<String, String>>;

fn shared<S: Serializer>(texts: &Texts, serializer: S) -> Result<S::Ok, S::Error> {
    texts.as_ref().serialize(serializer)
}

/// The subject of a transition, of any kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SubjectData {
    /// Its kind.
    pub kind: SubjectKind,
    /// Its displayed name. For a target it is the name of the target, for a cluster `NAMESPACE.NAME`.
    pub name: String,
    /// For a target whose name contains that of its application object: the name of the application object, unless the pipeline has the same
    /// name. Otherwise empty.
    pub app: String,
}

/// The target of a transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetData {
    /// `ENVIRONMENT/CLUSTER/NAMESPACE`, with `/APP` if the target names another application object; empty if the subject is not a target.
    pub name: String,
    /// The namespace of the application object.
    pub namespace: String,
    /// The cluster.
    pub cluster: ClusterData,
    /// The application object.
    pub app: AppData,
    /// The Git repository that its revision comes from.
    pub source: SourceData,
}

/// The cluster of a target, or the cluster that is the subject of a transition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterData {
    /// Name of the object that represents it. For the local cluster, the name that Relaybook uses.
    pub name: String,
    /// Namespace of that object; empty for the local cluster.
    pub namespace: String,
    /// Kind of that object; empty for the local cluster.
    pub kind: String,
}

/// The notification that reports a transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotificationData {
    /// Its name.
    pub name: String,
    /// Namespace of the Notification, or of the pipeline that defines it.
    pub namespace: String,
}

impl Data {
    /// Returns the data of a recorded transition. `id` is its `webhook-id`. `labels` and `annotations` belong to the pipeline.
    #[must_use]
    pub fn new(id: &str, spec: &DeliverySpec, labels: &Texts, annotations: &Texts, notification_namespace: &str) -> Self {
        Self {
            id: id.to_owned(),
            serial: spec.serial,
            type_: spec.type_,
            time: spec.time,
            severity: Severity::of(spec.type_),
            pipeline: PipelineData {
                name: spec.pipeline_ref.name.clone(),
                namespace: spec.pipeline_ref.namespace.clone(),
                uid: spec.pipeline_ref.uid.clone(),
                labels: Arc::clone(labels),
                annotations: Arc::clone(annotations),
            },
            subject: SubjectData {
                kind: spec.subject.kind,
                name: spec.subject.name.clone(),
                app: app(&spec.subject, &spec.pipeline_ref.name),
            },
            environment: environment(&spec.subject),
            target: TargetData::new(
                &spec.subject,
                spec.to.recorded.as_deref(),
                &spec.pipeline_ref.namespace,
                &spec.to.repository,
            ),
            promotion: PromotionData::new(spec),
            revision: spec.to.revision.clone(),
            running_revision: spec.to.current.clone().unwrap_or_default(),
            previous_revision: spec.from.current.clone().unwrap_or_default(),
            status: spec.to.status,
            previous_status: spec.from.status,
            reason: spec.to.reason.clone(),
            message: message(spec),
            drifted: spec.to.drifted,
            coalesced: spec.coalesced,
            superseded: 0,
            test: spec.test,
            notification: NotificationData { name: spec.notification.clone(), namespace: notification_namespace.to_owned() },
            context: String::new(),
            link: String::new(),
            links: LinkData::default(),
            thread: String::new(),
            git: GitData::default(),
            pull_request: PullRequestInfo::default(),
        }
    }

    /// Adds the name of the subject that no other subject has. `spec` is the recorded transition, `cluster` the name of the local cluster.
    #[must_use]
    pub fn with_context(self, spec: &DeliverySpec, cluster: &str) -> Self {
        Self { context: context::context(spec, cluster), ..self }
    }

    /// Adds the URLs of the audit page, if there is one. `namespace` and `name` are those of the Delivery.
    #[must_use]
    pub fn with_links(self, page: Option<&PageUrl>, namespace: &str, name: &str) -> Self {
        let Some(page) = page else { return self };
        Self {
            link: page.of(&permalink::delivery(namespace, name)),
            links: LinkData {
                pipeline: page.of(&permalink::pipeline(&self.pipeline.namespace, &self.pipeline.name)),
                notification: page.of(&permalink::notification(&self.pipeline.namespace, &self.notification.name)),
                revision: page.of(&permalink::search(&self.revision)),
                ..self.links
            },
            ..self
        }
    }

    /// Adds what a forge says about the commit.
    #[must_use]
    pub fn with_looked_up(mut self, found: &LookedUp) -> Self {
        self.git.info.clone_from(&found.commit);
        self.pull_request.clone_from(&found.pull_request);
        self
    }

    /// Adds the pages of the commits, and the links of the global configuration. It comes last, because these links can contain the others.
    #[must_use]
    pub fn with_web(self, spec: &DeliverySpec, web: &Web) -> Self {
        web.add_to(self, spec)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Returns the human-readable message. For a promotion it is a sentence about the promotion. For a deployed workload the recorded message is
/// the number of replicas, and the revisions are added before it. They come from the record, because the revisions of a coalesced change can
/// differ from those of the observation. If only the configuration is new, the revision does not name the change, so the message does.
fn message(spec: &DeliverySpec) -> String {
    let (before, now, recorded) = (spec.from.current.as_deref().unwrap_or_default(), &spec.to.revision, &spec.to.message);
    if let Some(sentence) = promotion::sentence(spec) {
        return sentence;
    }
    let is_known = ![before, now, recorded].iter().any(|text| text.is_empty());
    let short = |revision: &str| with_short_hashes(revision, DIGITS);
    let is_deployed = spec.type_ == TransitionType::Deployed;
    match spec.to.new_configuration(&spec.from).filter(|_| names_configuration(spec.type_)) {
        Some(new) if is_deployed => joined(&[&short(now), new, recorded], ", "),
        Some(new) => joined(&[new, recorded], ": "),
        None if is_deployed && is_known && before != now => format!("{} → {}, {recorded}", short(before), short(now)),
        None => recorded.clone(),
    }
}

/// Whether a transition is about the configuration of its new state.
const fn names_configuration(type_: TransitionType) -> bool {
    matches!(type_, TransitionType::Deployed | TransitionType::Progressing | TransitionType::Failed)
}

/// Joins the texts that are not empty, and cuts the result to the length of a message.
fn joined(texts: &[&str], separator: &str) -> String {
    let texts: Vec<&str> = texts.iter().copied().filter(|text| !text.is_empty()).collect();
    cut(&texts.join(separator), LONGEST_MESSAGE).into_owned()
}

/// Returns the environment that a subject belongs to, or that is the subject.
fn environment(subject: &Subject) -> String {
    match subject.kind {
        SubjectKind::Environment => subject.name.clone(),
        SubjectKind::Target => subject.environment.clone(),
        SubjectKind::Cluster | SubjectKind::Pipeline => String::new(),
    }
}

/// Returns the application object by which a target differs from others of its pipeline.
fn app(subject: &Subject, pipeline: &str) -> String {
    subject.own_app().filter(|app| *app != pipeline).unwrap_or_default().to_owned()
}

impl TargetData {
    /// Returns the target of a subject. For a cluster, only the cluster is set. For an environment or a pipeline, all fields are empty.
    /// `recorded` is what the change contains of the application object, `namespace` the namespace of the pipeline, `repository` the recorded address
    /// of the Git repository.
    fn new(subject: &Subject, recorded: Option<&Recorded>, namespace: &str, repository: &str) -> Self {
        let target = subject.target.clone().unwrap_or_default();
        let of = |cluster: Option<&ClusterRef>, local: &str| match cluster {
            Some(cluster) => ClusterData::new(cluster, namespace),
            None => ClusterData { name: local.to_owned(), ..ClusterData::default() },
        };
        let repository = if subject.kind == SubjectKind::Target { repository } else { "" };
        let source = SourceData::new(target.source.as_ref(), repository);
        let (name, cluster) = match subject.kind {
            SubjectKind::Target => (subject.name.clone(), of(target.cluster_ref.as_ref(), &target.cluster)),
            SubjectKind::Cluster => (String::new(), of(subject.cluster_ref.as_ref(), &subject.name)),
            SubjectKind::Environment | SubjectKind::Pipeline => (String::new(), ClusterData::default()),
        };
        let app = AppData::new(target.app, recorded);
        Self { name, namespace: target.namespace, cluster, app, source }
    }
}

impl ClusterData {
    /// Resolves a reference. Without a namespace, it refers to the namespace of the pipeline.
    fn new(cluster: &ClusterRef, namespace: &str) -> Self {
        Self {
            name: cluster.name.clone(),
            namespace: cluster.namespace.as_deref().unwrap_or(namespace).to_owned(),
            kind: cluster.kind.as_str().to_owned(),
        }
    }
}

#[cfg(test)]
impl Data {
    /// Returns the values of this data without parameters.
    pub(super) fn values(&self) -> super::Values {
        super::Values::new(self, &super::Parameters::default()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use relaybook_api::State;
    use relaybook_api::delivery::{AppObject, PipelineRef, SubjectTarget};

    #[test]
    fn template_data_is_spelled_as_in_the_api() {
        let value = serde_json::to_value(Data::sample(TransitionType::Failed)).unwrap();
        assert_eq!(value["type"], "Failed");
        assert_eq!(value["severity"], "error");
        assert_eq!(value["time"], "2025-11-21T07:47:14.567Z");
        assert_eq!(value["previousStatus"], "Current");
        assert_eq!(value["target"]["cluster"], json!({"name": "in-cluster", "namespace": "", "kind": ""}));
        assert_eq!(value["target"]["app"]["apiVersion"], "kustomize.toolkit.fluxcd.io/v1");
    }

    #[test]
    fn the_data_of_a_delivery_has_what_was_recorded_of_the_application_object() {
        let map = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let recorded = Recorded {
            labels: map("team", "red"),
            annotations: map("a.b/c", "#red"),
            fields: map(".spec.project", "shop"),
            cut: true,
        };
        let of = |recorded: Option<Recorded>| {
            let mut spec = sample::SampleContext::sample(Default::default()).delivery(TransitionType::Deployed);
            spec.to.recorded = recorded.map(Box::new);
            Data::new("i", &spec, &Texts::default(), &Texts::default(), "ns").target.app
        };
        let (app, none) = (of(Some(recorded.clone())), of(None));
        assert_eq!((app.labels, app.annotations, app.fields), (recorded.labels, recorded.annotations, recorded.fields));
        assert_eq!((none.labels.len(), none.annotations.len(), none.fields.len()), (0, 0, 0));
        assert_eq!((app.cut, none.cut), (true, false));
        assert_eq!((app.kind, app.name), (none.kind, none.name));
    }

    #[test]
    fn each_kind_of_subject_fills_the_fields_that_concern_it() {
        let about = |type_| {
            let data = Data::sample(type_);
            let target = (data.target.name.as_str(), data.target.namespace.as_str(), data.target.app.name.as_str());
            let cluster = &data.target.cluster;
            json!([
                data.subject.kind,
                data.subject.name,
                data.environment,
                target,
                [cluster.name, cluster.namespace, cluster.kind]
            ])
        };
        let local = json!(["in-cluster", "", ""]);
        let target =
            json!(["Target", "prod/in-cluster/podinfo", "prod", ["prod/in-cluster/podinfo", "podinfo", "podinfo"], local]);
        assert_eq!(about(TransitionType::Drifted), target);
        let cluster = json!(["Cluster", "clusters.eu-1", "", ["", "", ""], ["eu-1", "clusters", "GitopsCluster"]]);
        assert_eq!(about(TransitionType::ClusterOffline), cluster);
        let none = json!(["", "", ""]);
        let environment = json!(["Environment", "prod", "prod", ["", "", ""], none]);
        assert_eq!(about(TransitionType::EnvironmentReady), environment);
        assert_eq!(about(TransitionType::PromotionRequested), environment);
        assert_eq!(about(TransitionType::PipelineReady), json!(["Pipeline", "podinfo", "", ["", "", ""], none]));
    }

    #[test]
    fn a_remote_cluster_has_name_namespace_and_kind_of_its_object() {
        let reference = |namespace: Option<&str>| {
            serde_json::from_value::<ClusterRef>(json!({"kind": "Secret", "name": "eu-1", "namespace": namespace})).unwrap()
        };
        for (namespace, want) in [(Some("clusters"), "clusters"), (None, "team-a")] {
            let target = SubjectTarget {
                cluster: "x".to_owned(),
                cluster_ref: Some(reference(namespace)),
                ..SubjectTarget::default()
            };
            let subject = Subject { target: Some(target), ..Subject::default() };
            let cluster = TargetData::new(&subject, None, "team-a", "").cluster;
            assert_eq!((cluster.name.as_str(), cluster.namespace.as_str(), cluster.kind.as_str()), ("eu-1", want, "Secret"));
        }
    }

    fn spec(type_: TransitionType, before: Option<&str>, now: &str, message: &str) -> DeliverySpec {
        DeliverySpec {
            notification: "n".to_owned(),
            notification_uid: String::new(),
            pipeline_ref: PipelineRef::default(),
            subject: Subject::default(),
            lane: "l".to_owned(),
            order: 1,
            serial: 1,
            type_,
            time: Time::UNIX_EPOCH,
            from: State { current: before.map(str::to_owned), ..State::default() },
            to: State { revision: now.to_owned(), message: message.to_owned(), ..State::default() },
            coalesced: true,
            due: None,
            error: None,
            test: false,
        }
    }

    #[test]
    fn a_subject_names_the_application_by_which_its_target_differs_from_others() {
        for (name, app, expected) in [
            ("prod/in-cluster/argocd/shop-eu", "shop-eu", "shop-eu"),
            ("prod/in-cluster/argocd/shop", "shop", ""),
            ("prod/in-cluster/argocd", "shop-eu", ""),
            // A Bundle of Fleet.
            ("prod/in-cluster/shop-web", "shop-web", "shop-web"),
        ] {
            let app = AppObject { name: app.to_owned(), ..AppObject::default() };
            let (namespace, cluster) = ("argocd".to_owned(), "in-cluster".to_owned());
            let target = SubjectTarget { namespace, cluster, app, ..SubjectTarget::default() };
            let mut spec = spec(TransitionType::Deployed, None, "1", "");
            (spec.pipeline_ref.name, spec.subject.name) = ("shop".to_owned(), name.to_owned());
            (spec.subject.environment, spec.subject.target) = ("prod".to_owned(), Some(target));
            let data = Data::new("i", &spec, &Texts::default(), &Texts::default(), "ns");
            assert_eq!(data.subject.app, expected, "{name}");
        }
    }

    #[test]
    fn a_subject_without_a_target_has_empty_fields() {
        let spec = spec(TransitionType::Deployed, None, "", "");
        let labels = Arc::new(BTreeMap::from([("team".to_owned(), "a".to_owned())]));
        let data = Data::new("i", &spec, &labels, &Texts::default(), "ns");
        assert_eq!((data.target.app.kind.as_str(), data.pipeline.labels["team"].as_str()), ("", "a"));
        assert!(data.coalesced && data.notification.namespace == "ns");
    }

    #[test]
    fn the_whole_data_contain_the_field_test_only_in_a_test() {
        let render = |test: bool, source: &str| {
            let data = Data { test, ..Data::sample(TransitionType::Deployed) };
            super::super::Body::compile("text/plain", source, &super::super::Parameters::default())
                .and_then(|body| body.render(&data.values()))
                .unwrap()
        };
        for (test, source, expected) in [
            (false, "{{#if test}}TEST {{/if}}a", "a"),
            (true, "{{#if test}}TEST {{/if}}a", "TEST a"),
            (false, "{{test}} {{json test}} {{#with target}}{{@root.test}}{{/with}}", "false false false"),
            (true, "{{test}} {{json test}} {{#with target}}{{@root.test}}{{/with}}", "true true true"),
        ] {
            assert_eq!(render(test, source), expected, "{source}");
        }
        assert!(!render(false, "{{json @root}}").contains("\"test\""));
        assert!(render(true, "{{json @root}}").contains("\"test\":true"));
        let test = DeliverySpec { test: true, ..spec(TransitionType::Failed, None, "", "") };
        assert!(Data::new("i", &test, &Texts::default(), &Texts::default(), "ns").test);
    }

    #[test]
    fn a_message_names_the_configuration_if_only_it_has_changed() {
        use TransitionType::{Deployed, Failed, Progressing, Recovered};
        let (a, b) = ("values sha256:aaaaaaaaaaaa", "values sha256:bbbbbbbbbbbb");
        for (type_, before, now, values, recorded, want) in [
            (Deployed, "1.2.3", "1.2.3", (a, b), "", "1.2.3, values sha256:bbbbbbbbbbbb"),
            (Deployed, "1.2.3", "1.2.3", (a, a), "", ""),
            (Deployed, "1.2.3", "1.2.4", (a, b), "", ""),
            (Deployed, "1.2.3", "1.2.3", ("", b), "", ""),
            (Deployed, "1.2.3", "1.2.3", ("values sha1:a", b), "", ""),
            (Deployed, "1.0", "1.0", ("", "init images 2"), "3 replicas", "3 replicas"),
            (Deployed, "1.0", "1.0", ("init images 2", ""), "3 replicas", "3 replicas"),
            (Deployed, "1.0", "1.1", ("", "init images 2"), "3 replicas", "1.0 → 1.1, 3 replicas"),
            (Failed, "1.2.3", "1.2.3", (a, b), "Helm upgrade failed", "values sha256:bbbbbbbbbbbb: Helm upgrade failed"),
            (Failed, "1.2.3", "1.2.4", (a, b), "Helm upgrade failed", "Helm upgrade failed"),
            (Failed, "1.2.3", "1.2.3", (a, a), "timeout", "timeout"),
            (Failed, "1.0", "1.0", ("init images 7", "init images 8"), "timed out", "init images 8: timed out"),
            (Progressing, "1.0", "1.0", ("init images 1", "init images 2"), "", "init images 2"),
            (Recovered, "1.2.3", "1.2.3", (a, a), "", ""),
            (TransitionType::Drifted, "1.2.3", "1.2.3", (a, b), "", ""),
        ] {
            let mut spec = spec(type_, Some(before), now, recorded);
            spec.from.current_configuration = values.0.to_owned();
            spec.to.configuration = values.1.to_owned();
            let data = Data::new("i", &spec, &Texts::default(), &Texts::default(), "ns");
            assert_eq!((data.message.as_str(), data.revision.as_str()), (want, now), "{type_:?} {values:?}");
        }
        let mut spec = spec(Failed, Some("1"), "1", &"é".repeat(512));
        (spec.from.current_configuration, spec.to.configuration) = (a.to_owned(), b.to_owned());
        let message = Data::new("i", &spec, &Texts::default(), &Texts::default(), "ns").message;
        assert!(message.len() <= 1024 && message.starts_with(b) && message.ends_with('…'), "{message}");
    }

    #[test]
    fn the_message_of_a_deployed_workload_has_both_revisions_and_its_replicas() {
        use TransitionType::{Deployed, DriftCorrected, Recovered};
        let digest = |c: &str| format!("sha256:{}", c.repeat(64));
        let (a, b) = (digest("a"), digest("b"));
        let both = format!("1.0,{a}");
        for (type_, before, now, recorded, want) in [
            (Deployed, Some("1.0"), "1.1", "3 replicas", "1.0 → 1.1, 3 replicas"),
            (Deployed, Some("1.0"), "1.1", "1 of 3 replicas updated", "1.0 → 1.1, 1 of 3 replicas updated"),
            (Deployed, Some(a.as_str()), b.as_str(), "1 pod", "sha256:aaaaaaaaaaaa → sha256:bbbbbbbbbbbb, 1 pod"),
            (Deployed, Some(both.as_str()), "1.1,2", "1 replica", "1.0,sha256:aaaaaaaaaaaa → 1.1,2, 1 replica"),
            (Deployed, None, "1.1", "3 replicas", "3 replicas"),
            (Deployed, Some(""), "1.1", "3 replicas", "3 replicas"),
            (Deployed, Some("1.1"), "1.1", "3 replicas", "3 replicas"),
            (Deployed, Some("1.0"), "", "3 replicas", "3 replicas"),
            // A kind without a number of replicas. The revisions are in other fields.
            (Deployed, Some("1.0"), "1.1", "", ""),
            (Recovered, Some("1.0"), "1.0", "3 replicas", "3 replicas"),
            (DriftCorrected, Some("1.0"), "1.1", "", ""),
            (TransitionType::Failed, Some("1.0"), "1.1", "a \"quoted\" word", "a \"quoted\" word"),
            (TransitionType::Progressing, Some("1.0"), "1.1", "2 of 3 replicas updated", "2 of 3 replicas updated"),
        ] {
            let spec = spec(type_, before, now, recorded);
            assert_eq!(Data::new("i", &spec, &Texts::default(), &Texts::default(), "ns").message, want, "{type_:?}");
        }
        let longest = "x".repeat(256);
        let spec = spec(Deployed, Some(&"y".repeat(256)), &longest, "3 replicas");
        assert!(Data::new("i", &spec, &Texts::default(), &Texts::default(), "ns").message.len() <= 1024);
    }
}
