//! What is wrong, with its cause and its remedy, the worst first. Pure, except [`read`].
//!
//! In: the objects that a person may read ([`Known`]), and the time. Out: [`Finding`]s. An application that has failed is no finding: to
//! report it is the work of Relaybook. `relaybook status` shows it beside the findings.

mod environments;
mod installation;
mod notifications;
mod pipelines;
pub mod read;
mod remedy;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use relaybook_api::pipeline_set::PipelineSet;
use relaybook_api::{Notification, Pipeline, Time};

use crate::audit::Row;
pub use environments::{EnvironmentRow, TargetRow, environments, targets};
pub use installation::Installation;
pub use notifications::GLOBAL as GLOBAL_CONFIG_INVALID;

/// How bad a finding is. The first is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Level {
    /// Something is not done until a person acts.
    Problem,
    /// Something may not be as a person expects, or waits for a person on purpose.
    Warning,
}

/// What a finding is about, in the order in which findings of the same level are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Kind {
    /// The controllers, the CRDs and the global configuration.
    Installation,
    /// A cluster that does not answer.
    Cluster,
    /// A Notification.
    Notification,
    /// A set of pipelines.
    PipelineSet,
    /// A Pipeline, or a part of one.
    Pipeline,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is about.
    pub kind: Kind,
    /// The namespace of the object. Empty for the installation.
    pub namespace: String,
    /// The name of the object. For a part of a pipeline, the part follows after `/`.
    pub name: String,
    /// Machine-readable reason: one word.
    pub reason: String,
    /// What is wrong, and why, in one line.
    pub message: String,
    /// What a person can do about it, in one line.
    pub remedy: String,
    /// Since when, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// What is known. What may not be read is empty.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The controllers, the CRDs and the global configuration. There can be several installations.
    pub installations: &'a [Installation],
    /// The pipelines.
    pub pipelines: &'a [Pipeline],
    /// The sets of pipelines.
    pub sets: &'a [PipelineSet],
    /// The Notifications.
    pub notifications: &'a [Notification],
    /// The deliveries that are pending, or a part of them.
    pub pending: &'a [Row],
}

/// Returns what is wrong, the worst first.
#[must_use]
pub fn diagnose(known: &Known<'_>, now: Time) -> Vec<Finding> {
    let of_notifications = known.notifications.iter().flat_map(|one| notifications::findings(one, known.pending, now));
    let of_pipelines = known.pipelines.iter().flat_map(|one| pipelines::findings(one, known.notifications, now));
    let of_sets = known.sets.iter().filter_map(|set| pipelines::of_set(set, now));
    let mut all: Vec<Finding> = known.installations.iter().flat_map(of_installation).collect();
    // One cause is one finding: the Notifications that depend on the global configuration repeat what is wrong with it.
    let is_said = all.iter().any(|finding| finding.reason == notifications::GLOBAL);
    all.extend(of_notifications.filter(|finding| !is_said || finding.reason != notifications::GLOBAL));
    all.extend(of_pipelines.chain(of_sets));
    all.extend(pipelines::of_clusters(known.pipelines));
    all.extend(notifications::without_object(known.notifications, known.pending, now));
    sorted(all)
}

fn sorted(mut all: Vec<Finding>) -> Vec<Finding> {
    all.sort();
    all.dedup();
    all
}

/// How long a new object may be without a status, in seconds.
const NEW: i64 = 120;
/// The reason of something that no controller has done.
const NOT_PROCESSED: &str = "NotProcessed";
/// What a person can do about it.
const SEE_CONTROLLERS: &str = "`relaybook check` shows whether a controller acts, and which namespaces it watches";

/// Returns a finding for an object that no controller has processed, unless it is new.
fn unprocessed(kind: Kind, metadata: &ObjectMeta, now: Time) -> Option<Finding> {
    let created = metadata.creation_timestamp.as_ref()?.0;
    (now.duration_since(created).as_secs() >= NEW).then(|| Finding {
        level: Level::Problem,
        kind,
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        reason: NOT_PROCESSED.to_owned(),
        message: format!("no controller has processed it since {}", age(created, now)),
        remedy: SEE_CONTROLLERS.to_owned(),
        since: Some(created),
    })
}

/// Returns what is wrong with an installation.
#[must_use]
pub fn of_installation(installation: &Installation) -> Vec<Finding> {
    installation::findings(installation).collect()
}

/// Returns what is wrong with a pipeline, the worst first. Also what its Notifications say about themselves.
#[must_use]
pub fn of_pipeline(pipeline: &Pipeline, now: Time) -> Vec<Finding> {
    sorted(pipelines::findings(pipeline, &[], now))
}

/// Returns what is wrong with a Notification, the worst first.
#[must_use]
pub fn of_notification(notification: &Notification, now: Time) -> Vec<Finding> {
    sorted(notifications::findings(notification, &[], now))
}

/// Returns what is wrong with the notifications without an object that these deliveries wait for.
#[must_use]
pub fn of_pending(pending: &[Row], now: Time) -> Vec<Finding> {
    sorted(notifications::without_object(&[], pending, now))
}

/// Returns what a person can do about a reason, for an object.
pub(crate) fn remedy_of(reason: &str, namespace: &str, name: &str) -> String {
    remedy::of(reason, &remedy::Place { namespace, name })
}

/// Returns the time since then in its largest unit, such as `90s`, `15m`, `7h` or `3d`.
#[must_use]
pub fn age(then: Time, now: Time) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(1_000)})
    }

    fn notification(name: &str, spec: &Value, status: &Value) -> Notification {
        serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification",
            "metadata": {"name": name, "namespace": "team-a"}, "spec": spec, "status": status,
        }))
        .unwrap()
    }

    fn pipeline(status: &Value) -> Pipeline {
        serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "web", "namespace": "team-a"},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                     "environments": [{"name": "dev", "targets": [{"namespace": "x"}]}, {"name": "prod", "targets": [{"namespace": "y"}]}]},
            "status": status,
        }))
        .unwrap()
    }

    /// Returns `LEVEL NAME REASON: MESSAGE | REMEDY` of each finding.
    fn found(pipelines: &[Pipeline], notifications: &[Notification], installation: &Installation) -> Vec<String> {
        let known =
            Known { installations: std::slice::from_ref(installation), pipelines, sets: &[], notifications, pending: &[] };
        let line = |f: Finding| format!("{:?} {} {}: {} | {}", f.level, f.name, f.reason, f.message, f.remedy);
        diagnose(&known, at(1_720)).into_iter().map(line).collect()
    }

    fn of_notification(spec: &Value, status: &Value) -> Vec<String> {
        found(&[], &[notification("chat", spec, status)], &Installation::default())
    }

    fn of_pipeline(status: &Value) -> Vec<String> {
        found(&[pipeline(status)], &[], &Installation::default())
    }

    fn conditions(all: &[Value]) -> Value {
        json!({"conditions": all})
    }

    #[test]
    fn what_is_well_is_no_finding() {
        let ready = condition("Ready", "True", "Configured", "Configuration is valid");
        let delivering = condition("Delivering", "True", "Delivering", "no lane is blocked");
        assert!(of_notification(&json!({}), &conditions(&[ready, delivering])).is_empty());
        let observed = condition("Ready", "True", "Observed", "2 of 2 targets are ready");
        assert!(of_pipeline(&conditions(&[observed])).is_empty());
        // Neither is an application that fails, or one that the controllers have just been given.
        let target = json!({"clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "y"},
                            "status": "Failed", "ready": false, "message": "ImagePullBackOff"});
        assert!(of_pipeline(&json!({"environments": [{"name": "prod", "targets": [target]}]})).is_empty());
        assert!(of_pipeline(&Value::Null).is_empty());
    }

    #[test]
    fn a_notification_that_cannot_be_sent_says_why_and_what_to_do() {
        let ready = |reason: &str, message: &str| condition("Ready", "False", reason, message);
        let delivering = |reason: &str, message: &str| condition("Delivering", "False", reason, message);
        for (spec, status, expected) in [
            (
                json!({}),
                conditions(&[ready("SecretMissing", "Secret team-a/slack does not exist")]),
                "Problem chat SecretMissing: cannot be sent: Secret team-a/slack does not exist | create the Secret or its key; \
                 Relaybook detects it",
            ),
            (
                json!({}),
                json!({"pending": 4, "conditions": [delivering("CredentialsRejected", "1 lane is blocked: 403 Forbidden")]}),
                "Problem chat CredentialsRejected: 4 messages wait since 12m: 1 lane is blocked: 403 Forbidden | put valid \
                 credentials into the Secret; what waits is sent afterwards",
            ),
            (
                json!({}),
                json!({"pending": 0, "conditions": [delivering("ReceiverRejects", "400 Bad Request, 2 deliveries")]}),
                "Problem chat ReceiverRejects: 400 Bad Request, 2 deliveries | check the template with `relaybook render chat -n \
                 team-a`, then run `relaybook redeliver --parked --notification chat -n team-a`",
            ),
            (
                json!({"suspend": true}),
                json!({"pending": 2, "conditions": [delivering("Suspended", "spec.suspend is true")]}),
                "Warning chat Suspended: is suspended: 2 messages wait since 12m | `relaybook resume notification/chat -n team-a`",
            ),
            (
                json!({}),
                conditions(&[condition("Reachable", "False", "NoMatch", "spec.triggers[0] matches nothing")]),
                "Warning chat NoMatch: spec.triggers[0] matches nothing | correct the field that the message names, or remove \
                 the trigger",
            ),
            (
                json!({}),
                conditions(&[condition("GlobalConfigValid", "False", "GlobalConfigInvalid", "line 3: unknown field")]),
                "Problem chat GlobalConfigInvalid: the global configuration is invalid: line 3: unknown field | correct the \
                 ConfigMap of the global configuration; the message has line and field",
            ),
        ] {
            assert_eq!(of_notification(&spec, &status), [expected], "{status}");
        }
    }

    #[test]
    fn parts_of_a_pipeline_have_findings_of_their_own() {
        let observed = condition("Ready", "True", "Observed", "");
        for (status, expected) in [
            (
                conditions(&[condition("Ready", "False", "KindNotFound", "the cluster has no Deploymint")]),
                "Problem web KindNotFound: the cluster has no Deploymint | install the CRD of the kind, or correct `kind` and \
                 `apiVersion`",
            ),
            (
                json!({"conditions": [observed], "clusters": [{"clusterRef": {"kind": "Secret", "name": "eu"}, "reachable": false}]}),
                "Problem eu ClusterUnreachable: cluster eu does not answer: 1 pipeline has targets there | check the cluster and its kubeconfig \
                 Secret; Relaybook tries again",
            ),
            (
                json!({"dispatched": {"notifications": [{"name": "chat", "environment": "prod", "ready": false,
                       "reason": "SecretMissing", "message": "Secret team-a/b does not exist"}]}}),
                "Problem web/prod/chat SecretMissing: notification chat cannot be sent: Secret team-a/b does not exist | create \
                 the Secret or its key; Relaybook detects it",
            ),
            (
                json!({"environments": [{"name": "prod", "waitingApproval": {"promotion": "p", "promotionUid": "u", "revision": "6.7.1",
                       "since": at(1_000)}}]}),
                "Warning web/prod WaitingApproval: the promotion of 6.7.1 to prod waits for an approval | `relaybook approve web \
                 prod -n team-a`",
            ),
            (
                conditions(&[condition("HooksReady", "False", "SecretMissing", "Secret team-a/hook does not exist")]),
                "Problem web SecretMissing: hooks refuse every request: Secret team-a/hook does not exist | create the Secret or \
                 its key; Relaybook detects it",
            ),
        ] {
            assert_eq!(of_pipeline(&status), [expected], "{status}");
        }
    }

    #[test]
    fn the_worst_is_first_and_nothing_is_said_twice() {
        let installation = Installation {
            idle: vec!["No controller acts: Lease relaybook-dispatch has no holder.".to_owned()],
            namespace: "relaybook-system".to_owned(),
            versions: Some(("0.2.0".to_owned(), "0.1.0".to_owned())),
            ..Installation::default()
        };
        let missing = json!({"conditions": [condition("Ready", "False", "SecretMissing", "no Secret")]});
        let trigger = json!({"conditions": [condition("Ready", "True", "NoPipeline", "selects no Pipeline")]});
        let notifications = [notification("a", &json!({}), &trigger), notification("b", &json!({}), &missing)];
        // The pipeline repeats what its notification says.
        let status = json!({"dispatched": {"notifications": [{"name": "b", "ready": false, "reason": "SecretMissing",
                            "message": "no Secret"}]}});
        let all = found(&[pipeline(&status)], &notifications, &installation);
        let begin: Vec<_> = all.iter().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(
            begin,
            [
                "Problem controllers NotActing",
                "Problem b SecretMissing",
                "Warning versions VersionsDiffer",
                "Warning a NoPipeline"
            ]
        );
    }
}
