//! What the overview needs of a pipeline and of a notification. The rest of an object is dropped as it arrives. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use url::Url;

use super::reduced::{self, short};
use relaybook_api::conditions::{Condition, ConditionStatus, DELIVERING, READY, get};
use relaybook_api::notification::{Endpoint, NotificationLayer};
use relaybook_api::pipeline::{ClusterStatus, EnvironmentStatus, NotReadyNotification, TargetStatus};
use relaybook_api::promotion::WaitingApproval;
use relaybook_api::values::refs::AppRef;
use relaybook_api::{LogSubject, Notification, Pipeline, PipelineStatus, Status, Time};
use relaybook_core::promotion::reason::WAITING_APPROVAL;
use relaybook_tools::diagnosis::{self, Finding, Level};

/// Maximum number of revisions that are kept of an environment.
const REVISIONS: usize = 3;
/// The label of a pipeline with the name of its team.
const TEAM: &str = "team";
/// Maximum number of application objects that are named.
const APPS: usize = 2;

/// How much a pipeline needs the attention of a person. The first is the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Attention {
    /// A target has failed.
    Failed,
    /// It has another problem: no controller processes it, it cannot be followed, a notification cannot be sent, hooks refuse requests, or a
    /// promotion has failed.
    Wrong,
    /// A target is gone, drifted, or its state is not known.
    Unclear,
    /// A target is updating, or a promotion waits for an approval.
    Moving,
    /// Nothing.
    None,
}

/// One pipeline.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PipelineRow {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Kind and name of the application objects, of some if there are several. Empty if none is known yet.
    pub(crate) app: String,
    /// The names of all application objects.
    pub(crate) apps: Vec<String>,
    /// The kind of the application objects. Empty if it is not known yet.
    pub(crate) kind: String,
    /// The label `team`. Empty if the pipeline has none.
    pub(crate) team: String,
    pub(crate) environments: Vec<Cell>,
    /// The parts of the object from which its findings are made.
    pub(crate) object: Pipeline,
    /// When a receiver last answered 2xx, and to which notification.
    pub(crate) last_sent: Option<(Time, String)>,
    /// When the newest delivery about it was recorded.
    pub(crate) recorded: Option<Time>,
    pub(crate) clusters: Vec<ClusterStatus>,
    /// The endpoints that layers of the pipeline set.
    pub(crate) endpoints: Vec<OwnEndpoint>,
    /// What its status asks for. See [`Self::attention`].
    pub(crate) by_status: Attention,
}

/// One environment of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) name: String,
    /// The worst status of its targets. `None`: not observed yet.
    pub(crate) status: Option<Status>,
    pub(crate) drifted: bool,
    /// The name of the application object of the target with the worst status, if the pipeline has several. Otherwise empty.
    pub(crate) app: String,
    /// The revision that the target with the worst status runs, or tries to run.
    pub(crate) revision: String,
    /// The revisions that run, or that targets try to run.
    pub(crate) revisions: Vec<String>,
    /// Since when the target with the worst status has it.
    pub(crate) since: Option<Time>,
    /// The number of ready targets, and of all.
    pub(crate) ready: (usize, usize),
    /// The message of the target with the worst status.
    pub(crate) message: String,
    /// When a receiver last answered 2xx about a target of the environment.
    pub(crate) notified: Option<Time>,
    /// The promotion that waits for an approval.
    pub(crate) waits_for_approval: Option<WaitingApproval>,
    /// Texts by which the search finds the environment: all revisions of its targets, each with whether it runs. Otherwise it is only tried.
    pub(crate) searched: BTreeMap<String, bool>,
}

/// An endpoint that a layer of a pipeline sets for a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnEndpoint {
    pub(crate) notification: String,
    /// The environment. `None`: all.
    pub(crate) environment: Option<String>,
    /// Whether it is only for some targets of the environment.
    pub(crate) is_of_some: bool,
    pub(crate) origin: String,
}

/// One notification.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NotificationRow {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The parts of the object from which its findings are made.
    pub(crate) object: Notification,
    pub(crate) pipelines: i64,
    pub(crate) targets: i64,
    pub(crate) pending: i64,
    pub(crate) delivered: i64,
    pub(crate) parked: i64,
    pub(crate) last_sent: Option<Time>,
    /// The origin of its own endpoint. `None`: it has the endpoint of a layer below.
    pub(crate) origin: Option<String>,
}

impl NotificationRow {
    /// Returns what is wrong with it, the worst first.
    pub(crate) fn findings(&self, now: Time) -> Vec<Finding> {
        diagnosis::of_notification(&self.object, now)
    }

    /// Whether it is in use, and its deliveries reach the receiver.
    pub(crate) fn is_well(&self) -> bool {
        let is =
            |type_: &str, status: ConditionStatus| self.condition(type_).is_some_and(|condition| condition.status == status);
        is(READY, ConditionStatus::True) && !is(DELIVERING, ConditionStatus::False)
    }

    /// Returns the condition of this type.
    pub(crate) fn condition(&self, type_: &str) -> Option<&Condition> {
        get(&self.object.status.as_ref()?.conditions, type_)
    }
}

/// Returns the origin of an endpoint as the page shows it: scheme, host and port, or the Secret with the URL.
pub(crate) fn origin(endpoint: &Endpoint, namespace: &str) -> Option<String> {
    if let Some(from) = &endpoint.url_from {
        return Some(format!("from Secret {namespace}/{}", from.secret_key_ref.name));
    }
    let url = endpoint.url.as_deref()?;
    // Templates are only in path and query, which are not shown.
    let end = url.find("://").and_then(|start| url[start + 3..].find(['/', '?', '#']).map(|end| start + 3 + end));
    let url = Url::parse(&url[..end.unwrap_or(url.len())]).ok()?;
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    Some(format!("{}://{}{port}", url.scheme(), url.host_str()?))
}

impl From<Notification> for NotificationRow {
    fn from(notification: Notification) -> Self {
        let (namespace, name) = (notification.namespace().unwrap_or_default(), notification.name_any());
        let object = reduced::of_notification(&notification);
        let spec = notification.spec;
        let status = notification.status.unwrap_or_default();
        Self {
            object,
            pipelines: status.pipelines,
            targets: status.targets,
            pending: status.pending,
            delivered: status.delivered,
            parked: status.parked,
            last_sent: status.last_sent_time,
            origin: spec.endpoint.as_ref().and_then(|endpoint| origin(endpoint, &namespace)),
            namespace,
            name,
        }
    }
}

impl From<Pipeline> for PipelineRow {
    fn from(pipeline: Pipeline) -> Self {
        let (namespace, name) = (pipeline.namespace().unwrap_or_default(), pipeline.name_any());
        let (spec, status) = (&pipeline.spec, pipeline.status.clone().unwrap_or_default());
        let dispatched = status.dispatched.clone().unwrap_or_default();
        let sent: Vec<_> = dispatched.last_sent.iter().map(|last| (LogSubject::parse(&last.subject), last.time)).collect();
        let apps = apps(&status);
        let environments: Vec<_> = spec
            .environments
            .iter()
            .map(|environment| {
                let known = status.environments.iter().find(|known| known.name == environment.name);
                cell(&environment.name, known, &sent, apps.len() > 1)
            })
            .collect();
        let object = reduced::of_pipeline(&pipeline);
        // The time matters only for texts, and for an object without a status.
        let by_status = by_status(&environments, has_problem(&object, Time::UNIX_EPOCH), &status.clusters);
        Self {
            app: app(&spec.app_ref, &apps),
            apps: apps.iter().map(|(_, name)| (*name).to_owned()).collect(),
            kind: kind(&pipeline, &status),
            team: pipeline.labels().get(TEAM).cloned().unwrap_or_default(),
            endpoints: endpoints(&pipeline, &namespace),
            namespace,
            name,
            environments,
            object,
            last_sent: dispatched.last_sent_time.map(|time| (time, dispatched.last_sent_by.clone())),
            recorded: dispatched.recorded,
            clusters: status.clusters,
            by_status,
        }
    }
}

/// Returns kind and name of each application object.
fn apps(status: &PipelineStatus) -> BTreeSet<(&str, &str)> {
    let targets = status.environments.iter().flat_map(|environment| &environment.targets);
    targets.map(|target| (target.cluster_app_ref.kind.as_str(), target.cluster_app_ref.name.as_str())).collect()
}

/// Returns the words for the application objects. Before the first observation they are for that of the spec.
fn app(own: &AppRef, observed: &BTreeSet<(&str, &str)>) -> String {
    let Some((first, _)) = observed.first() else {
        return if own.name.is_empty() { String::new() } else { format!("{} {}", own.kind, own.name) };
    };
    let is_one_kind = observed.iter().all(|(kind, _)| kind == first);
    let named =
        observed.iter().take(APPS).enumerate().map(|(index, (kind, name))| {
            if is_one_kind && index > 0 { (*name).to_owned() } else { format!("{kind} {name}") }
        });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = observed.len().saturating_sub(APPS);
    if more > 0 { format!("{named} +{more}") } else { named }
}

/// Returns the kind of the application object, or that of an observed target if the pipeline has none of its own.
fn kind(pipeline: &Pipeline, status: &PipelineStatus) -> String {
    let observed = status.environments.iter().flat_map(|environment| &environment.targets);
    let all = observed.map(|target| &target.cluster_app_ref.kind);
    std::iter::once(&pipeline.spec.app_ref.kind).chain(all).find(|kind| !kind.is_empty()).cloned().unwrap_or_default()
}

fn has_problem(object: &Pipeline, now: Time) -> bool {
    diagnosis::of_pipeline(object, now).iter().any(|finding| finding.level == Level::Problem)
}

fn by_status(environments: &[Cell], is_wrong: bool, clusters: &[ClusterStatus]) -> Attention {
    let is = |status: Status| environments.iter().any(|cell| cell.status == Some(status));
    if is(Status::Failed) {
        Attention::Failed
    } else if is_wrong {
        Attention::Wrong
    } else if is(Status::NotFound)
        || is(Status::Unknown)
        || environments.iter().any(|cell| cell.drifted)
        || clusters.iter().any(|cluster| !cluster.reachable)
    {
        Attention::Unclear
    } else if is(Status::InProgress)
        || is(Status::Terminating)
        || environments.iter().any(|cell| cell.waits_for_approval.is_some() || cell.status.is_none())
    {
        Attention::Moving
    } else {
        Attention::None
    }
}

/// Returns the revision that the status of a target is about.
pub(crate) fn revision(target: &TargetStatus) -> &str {
    let is_trying = matches!(target.status, Status::Failed | Status::InProgress) && !target.attempted_revision.is_empty();
    if is_trying { &target.attempted_revision } else { &target.revision }
}

fn cell(name: &str, known: Option<&EnvironmentStatus>, sent: &[(LogSubject<'_>, Time)], has_apps: bool) -> Cell {
    let Some(known) = known else { return Cell { name: name.to_owned(), ..Cell::default() } };
    let worst = known.targets.iter().min_by_key(|target| target.status.badness());
    let mut revisions: Vec<String> = Vec::new();
    for revision in known.targets.iter().map(revision).filter(|revision| !revision.is_empty()) {
        if revisions.len() < REVISIONS && revisions.iter().all(|known| known != revision) {
            revisions.push(revision.to_owned());
        }
    }
    let tried = known.targets.iter().map(|target| (&target.attempted_revision, false));
    // A revision that is tried by one target can run on another.
    let all = tried.chain(known.targets.iter().map(|target| (&target.revision, true)));
    let targets = format!("{name}/");
    let is_target = |subject: &LogSubject<'_>| matches!(subject, LogSubject::Target(name) if name.starts_with(&targets));
    let about = sent.iter().filter(|(subject, _)| is_target(subject) || *subject == LogSubject::Environment(name));
    Cell {
        name: name.to_owned(),
        status: worst.map(|target| target.status),
        drifted: known.targets.iter().any(|target| target.drifted),
        app: worst.filter(|_| has_apps).map(|target| target.cluster_app_ref.name.clone()).unwrap_or_default(),
        revision: worst.map(|target| revision(target).to_owned()).unwrap_or_default(),
        revisions,
        since: worst.and_then(|target| target.last_transition_time),
        ready: (known.targets.iter().filter(|target| target.ready).count(), known.targets.len()),
        message: worst.map(|target| short(&target.message)).unwrap_or_default(),
        notified: about.map(|(_, time)| *time).max(),
        waits_for_approval: known.waiting_approval.clone(),
        searched: all.filter(|(text, _)| !text.is_empty()).map(|(text, runs)| (text.clone(), runs)).collect(),
    }
}

fn endpoints(pipeline: &Pipeline, namespace: &str) -> Vec<OwnEndpoint> {
    let of = |layers: &[NotificationLayer], environment: Option<&str>, is_of_some: bool| {
        let own = layers.iter().filter_map(|layer| {
            let origin = origin(layer.settings.endpoint.as_deref()?, namespace)?;
            let environment = environment.map(str::to_owned);
            Some(OwnEndpoint { notification: layer.name.clone(), environment, is_of_some, origin })
        });
        own.collect::<Vec<_>>()
    };
    let mut all = of(&pipeline.spec.notifications, None, false);
    for environment in &pipeline.spec.environments {
        all.extend(of(&environment.notifications, Some(&environment.name), false));
        let single = environment.targets.iter().map(|target| &target.notifications);
        let overrides = environment.targets_from.iter().flat_map(|from| &from.overrides).map(|over| &over.notifications);
        let generated = environment.targets_from.iter().map(|from| &from.notifications);
        for layers in single.chain(generated).chain(overrides) {
            all.extend(of(layers, Some(&environment.name), true));
        }
    }
    all
}

impl PipelineRow {
    /// Returns how much it needs the attention of a person. Only without a status this depends on the time: no controller processes it.
    pub(crate) fn attention(&self, now: Time) -> Attention {
        let is_unprocessed = self.object.status.is_none() && has_problem(&self.object, now);
        if is_unprocessed { Attention::Wrong } else { self.by_status }
    }

    /// Returns what is wrong with it, the worst first. Promotions that wait for an approval are in a list of their own.
    pub(crate) fn findings(&self, now: Time) -> Vec<Finding> {
        let mut all = diagnosis::of_pipeline(&self.object, now);
        all.retain(|finding| finding.reason != WAITING_APPROVAL);
        all
    }

    /// Returns the notification that a finding is about, if it is about one.
    pub(crate) fn notification_of(&self, finding: &Finding) -> Option<&str> {
        let dispatched = self.object.status.iter().filter_map(|status| status.dispatched.as_ref());
        let mut unsent = dispatched.flat_map(|dispatched| &dispatched.notifications);
        let is_it = |one: &&NotReadyNotification| {
            one.reason == finding.reason && finding.name.rsplit('/').next() == Some(one.name.as_str())
        };
        unsent.find(is_it).map(|one| one.name.as_str())
    }

    /// Whether a text occurs in the names, the team, the application or the revisions.
    pub(crate) fn has(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let names = [&self.namespace, &self.name, &self.team, &self.app];
        names.into_iter().chain(&self.apps).any(|name| name.to_lowercase().contains(&text)) || self.runs(&text)
    }

    /// Whether a revision with this text, in lower case, runs or is tried somewhere.
    pub(crate) fn runs(&self, text: &str) -> bool {
        self.environments.iter().any(|cell| cell.searched.keys().any(|revision| revision.to_lowercase().contains(text)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pipeline(targets: &serde_json::Value, dispatched: &serde_json::Value) -> PipelineRow {
        let pipeline: Pipeline = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "shop", "namespace": "team-a", "labels": {"team": "checkout"}},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                     "environments": [{"name": "prod", "targets": [{"namespace": "x"}],
                                       "notifications": [{"name": "chat", "endpoint": {"url": "https://eu.example.com/{{revision}}"}}]}]},
            "status": {"environments": [{"name": "prod", "targets": targets}], "dispatched": dispatched},
        }))
        .unwrap();
        pipeline.into()
    }

    fn target(status: &str, revision: &str, attempted: &str) -> serde_json::Value {
        json!({"clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "x"}, "status": status,
               "ready": status == "Current", "revision": revision, "attemptedRevision": attempted, "message": "m"})
    }

    #[test]
    fn an_environment_has_the_status_of_its_worst_target() {
        let sent = json!({"lastSent": [{"subject": "target/prod/c/x", "time": "2026-03-01T12:00:00Z"},
                                       {"subject": "target/prod-eu/c/x", "time": "2026-03-01T13:00:00Z"}]});
        let row = pipeline(&json!([target("Current", "1", "1"), target("Failed", "1", "2")]), &sent);
        let cell = &row.environments[0];
        assert_eq!((cell.status, cell.ready, row.by_status), (Some(Status::Failed), (1, 2), Attention::Failed));
        assert_eq!((cell.revisions.join(" "), cell.revision.as_str()), ("1 2".to_owned(), "2"));
        assert_eq!(cell.notified.unwrap().to_string(), "2026-03-01T12:00:00Z");
        assert!(row.runs("2") && row.has("SHOP") && row.has("checkout") && !row.has("other"));
        assert_eq!((row.team.as_str(), row.kind.as_str(), row.app.as_str()), ("checkout", "Deployment", "Deployment web"));
        for (status, attention) in [
            ("Current", Attention::None),
            ("InProgress", Attention::Moving),
            ("NotFound", Attention::Unclear),
            ("Unknown", Attention::Unclear),
        ] {
            assert_eq!(pipeline(&json!([target(status, "1", "1")]), &json!(null)).by_status, attention, "{status}");
        }
        let unsent = json!({"notifications": [{"name": "chat", "ready": false, "reason": "SecretMissing", "message": "x"}]});
        let row = pipeline(&json!([target("Current", "1", "1")]), &unsent);
        assert_eq!((row.by_status, row.attention(Time::UNIX_EPOCH)), (Attention::Wrong, Attention::Wrong));
    }

    #[test]
    fn a_pipeline_that_no_controller_processes_is_wrong_after_some_minutes() {
        let object: Pipeline = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "shop", "namespace": "team-a", "creationTimestamp": "2026-03-01T12:00:00Z"},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                     "environments": [{"name": "prod", "targets": [{"namespace": "x"}]}]},
        }))
        .unwrap();
        let row = PipelineRow::from(object);
        for (now, attention) in [("2026-03-01T12:01:00Z", Attention::Moving), ("2026-03-01T12:10:00Z", Attention::Wrong)] {
            assert_eq!(row.attention(now.parse().unwrap()), attention, "{now}");
        }
    }

    #[test]
    fn several_applications_are_named() {
        let target = |kind: &str, name: &str, status: &str| {
            let object = json!({"apiVersion": "example.com/v1", "kind": kind, "name": name, "namespace": "x"});
            json!({"clusterAppRef": object, "status": status, "ready": status == "Current"})
        };
        let (eu, us) = (target("Application", "shop-eu", "Current"), target("Application", "shop-us", "Failed"));
        for (targets, app, worst) in [
            (json!([]), "Deployment web", ""),
            (json!([eu]), "Application shop-eu", ""),
            (json!([eu, us]), "Application shop-eu, shop-us", "shop-us"),
            (json!([eu, us, target("Application", "shop-zz", "Current")]), "Application shop-eu, shop-us +1", "shop-us"),
            (json!([us, target("Deployment", "web", "Current")]), "Application shop-us, Deployment web", "shop-us"),
        ] {
            let row = pipeline(&targets, &json!(null));
            assert_eq!((row.app.as_str(), row.environments[0].app.as_str()), (app, worst), "{targets}");
            assert_eq!(row.has("shop-zz"), app.ends_with("+1"), "all of them are found");
        }
    }

    #[test]
    fn an_origin_shows_no_path_and_no_secret() {
        let of = |endpoint: serde_json::Value| origin(&serde_json::from_value(endpoint).unwrap(), "team-a");
        for (endpoint, shown) in [
            (json!({"url": "https://hooks.example.com/services/T0/SECRET"}), Some("https://hooks.example.com")),
            (json!({"url": "http://chat:8080?token={{revision}}"}), Some("http://chat:8080")),
            (json!({"urlFrom": {"secretKeyRef": {"name": "slack", "key": "url"}}}), Some("from Secret team-a/slack")),
            (json!({}), None),
        ] {
            assert_eq!(of(endpoint).as_deref(), shown);
        }
        let row = pipeline(&json!([target("Current", "1", "1")]), &json!(null));
        assert_eq!(row.endpoints[0].origin, "https://eu.example.com");
    }
}
