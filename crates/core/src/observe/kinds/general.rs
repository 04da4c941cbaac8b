//! Any kind without rules of its own: the general rules of kstatus, the signs of unfinished work that are usual elsewhere, and the label that
//! names a version (<https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>).
//!
//! Only `Ready`, `Reconciling` and `Stalled` have a meaning for kstatus. Most controllers write other conditions, or a phase. An object that reports
//! unfinished work in one of these ways is not `Current`. The tables below contain the words. They were compared with the objects with which
//! Argo CD tests its health checks (<https://github.com/argoproj/argo-cd/tree/master/resource_customizations>): no healthy one matches.

use serde_json::Value;

use super::super::kstatus::{self, Verdict};
use super::super::revision;
use super::super::view::{Condition, View, conditions};
use super::{Reading, Rules};
use relaybook_api::Status;

pub(super) static ANY: Rules = Rules { group: "", kind: "", reader: "kstatus/3", read };

/// Conditions that report a failure while they are `True`.
const FAILING: [&str; 12] = [
    "Degraded",
    "Error",
    "ErrorOccurred",
    "Failed",
    "Failing",
    "Failure",
    "Invalid",
    "Irreconcilable",
    "ReconcileError",
    "ReleaseFailed",
    "SpecError",
    "SubmissionError",
];

/// Last words of the reason of a condition that is not `True`, if it reports a failure.
const FAILING_REASONS: [&str; 5] = ["error", "errored", "exceeded", "failed", "failure"];

/// Conditions that are `True` when an object is done.
const DONE: [&str; 23] = [
    "ACK.ResourceSynced",
    "Accepted",
    "Admitted",
    "Adopted",
    "Advertised",
    "AllReplicasReady",
    "Applied",
    "Available",
    "Complete",
    "Compliant",
    "Deployed",
    "Discoverable",
    "FullyApplied",
    "Healthy",
    "Programmed",
    "Ready",
    "ReconcileSuccess",
    "Reconciled",
    "ResolvedRefs",
    "ResourcesUpToDate",
    "Succeeded",
    "Synced",
    "WebhookConfigured",
];

/// Conditions that are `True` while a controller works on the object.
const WORKING: [&str; 11] = [
    "Creating",
    "Deleting",
    "In-progress",
    "InProgress",
    "NotReady",
    "Pending",
    "Progressing",
    "RolloutProgressing",
    "Terminating",
    "Updating",
    "Upgrading",
];

/// Fields of the status that contain other lists of conditions: one for each gateway, policy, listener or router.
const OTHER_LISTS: [&str; 5] = ["ancestors", "conditionStatus", "ingress", "listeners", "parents"];

/// Fields of the status that are `false` until the object is done.
const FLAGS: [&str; 4] = ["available", "healthy", "ready", "readyToUse"];

/// Fields of the status that contain the state in words.
const PHASES: [&str; 9] =
    ["currentPhase", "currentState", "currentStatus", "health", "overallState", "overallStatus", "phase", "state", "status"];

/// Fields of the status with a wanted number of replicas, and the number of those that are ready.
const COUNTS: [(&str, &str); 2] =
    [("/status/replicas", "/status/readyReplicas"), ("/status/desiredNumberScheduled", "/status/numberReady")];

/// Words that report a failure, if one is among the first three of a state.
const FAILING_WORDS: [&str; 13] = [
    "aborted",
    "canceled",
    "cancelled",
    "degraded",
    "error",
    "errored",
    "failed",
    "failing",
    "failure",
    "lost",
    "red",
    "rejected",
    "unhealthy",
];

/// First words of the state of an object that is not done, beside those that end with `ing`.
const WORKING_WORDS: [&str; 6] = ["initial", "new", "queued", "scheduled", "unknown", "yellow"];

/// Words that end with `ing`, for a state that can last.
const LASTING: [&str; 10] = [
    "existing",
    "listening",
    "missing",
    "monitoring",
    "replicating",
    "running",
    "serving",
    "streaming",
    "watching",
    "working",
];

/// The group and the kinds of an object, and what its status contains once it is done. It is a condition that is `True`, or one of these values
/// at a JSON Pointer. Without kinds: all of the group. With a leading dot: all groups that end with it.
type Required = (&'static str, &'static [&'static str], &'static str, &'static [&'static str]);

/// Kinds whose unfinished work has no sign of the tables above, or can lack one.
const REQUIRED: [Required; 42] = [
    ("", &["PersistentVolumeClaim"], "/status/phase", &["Bound"]),
    ("", &["Pod"], "Ready", &[]),
    (".k8s.elastic.co", &[], "/status/health", &["green"]),
    (".services.k8s.aws", &[], "ACK.ResourceSynced", &[]),
    ("acid.zalan.do", &["postgresql"], "/status/PostgresClusterStatus", &["Running"]),
    ("apps.kruise.io", &["BroadcastJob"], "Complete", &[]),
    ("argoproj.io", &["AnalysisRun", "Experiment"], "/status/phase", &["Successful"]),
    ("argoproj.io", &["Workflow"], "/status/phase", &["Succeeded"]),
    (
        "astra.netapp.io",
        &["Backup", "ExecHooksRun", "ResourceBackup", "ResticVolumeBackup", "Snapshot"],
        "/status/state",
        &["Completed"],
    ),
    ("cert-manager.io", &[], "Ready", &[]),
    ("clickhouse-keeper.altinity.com", &["ClickHouseKeeperInstallation"], "/status/status", &["Completed"]),
    ("clickhouse.altinity.com", &["ClickHouseInstallation"], "/status/status", &["Completed"]),
    ("cluster.x-k8s.io", &["Cluster"], "/status/phase", &["Provisioned"]),
    ("cluster.x-k8s.io", &["MachineDeployment"], "/status/phase", &["Running"]),
    ("external-secrets.io", &[], "Ready", &[]),
    ("flink.apache.org", &["FlinkDeployment"], "/status/jobManagerDeploymentStatus", &["READY", "MISSING"]),
    ("flink.apache.org", &["FlinkSessionJob"], "/status/jobStatus/state", &["RUNNING", "FINISHED"]),
    ("gateway.networking.k8s.io", &["Gateway"], "Programmed", &[]),
    ("grafana.integreatly.org", &["Grafana"], "/status/stage", &["complete"]),
    ("iammanager.keikoproj.io", &["Iamrole"], "/status/state", &["Ready"]),
    ("k8s.mariadb.com", &["Backup", "Restore", "SqlJob"], "Complete", &[]),
    ("k8s.mariadb.com", &["MariaDB"], "Ready", &[]),
    ("kafka.banzaicloud.io", &["KafkaCluster"], "/status/state", &["ClusterRunning"]),
    ("kafka.strimzi.io", &[], "Ready", &[]),
    ("keda.sh", &["ScaledJob", "ScaledObject"], "Ready", &[]),
    ("kiali.io", &["Kiali"], "Successful", &[]),
    ("mariadb.mmontes.io", &["MariaDB"], "Ready", &[]),
    ("minio.min.io", &["Tenant"], "/status/currentState", &["Initialized"]),
    ("networking.gke.io", &["ManagedCertificate"], "/status/certificateStatus", &["Active"]),
    ("operator.openshift.io", &["IngressController"], "Available", &[]),
    ("operator.victoriametrics.com", &[], "/status/updateStatus", &["operational", "ignored"]),
    ("postgresql.cnpg.io", &["Backup"], "/status/phase", &["completed"]),
    ("postgresql.cnpg.io", &["Cluster"], "/status/phase", &["Cluster in healthy state"]),
    ("postgresql.cnpg.io", &["Database"], "/status/applied", &["true"]),
    ("promoter.argoproj.io", &[], "Ready", &[]),
    ("rabbitmq.com", &["RabbitmqCluster"], "AllReplicasReady", &[]),
    ("snapshot.storage.k8s.io", &[], "/status/readyToUse", &["true"]),
    ("sparkoperator.k8s.io", &["SparkApplication"], "/status/applicationState/state", &["RUNNING", "COMPLETED"]),
    ("tekton.dev", &["PipelineRun", "TaskRun"], "Succeeded", &[]),
    ("tower.ansible.com", &["AnsibleJob"], "/status/ansibleJobResult/status", &["successful"]),
    ("trident.netapp.io", &["TridentBackendConfig"], "/status/lastOperationStatus", &["Success"]),
    ("velero.io", &["Backup", "Restore"], "/status/phase", &["Completed"]),
];

fn read(view: &View<'_>) -> Reading {
    Reading::declared(verdict(view), revision::of_label(view))
}

fn verdict(view: &View<'_>) -> Verdict {
    let general = kstatus::general(view);
    if general.status == Status::Failed || kstatus::is_unobserved(general.status, &general.reason) {
        return general;
    }
    let signs = match Signs::of(view) {
        Ok(signs) => signs,
        Err(unobserved) => return unobserved,
    };
    if let Some(failing) = signs.failing() {
        return failing;
    }
    if general.status != Status::Current {
        return general;
    }
    signs.not_done().or_else(|| signs.working()).unwrap_or(general)
}

/// What the status says beside the conditions of kstatus.
struct Signs<'a> {
    view: &'a View<'a>,
    /// The conditions about the present generation, or about none.
    conditions: Vec<(&'a str, Condition<'a>)>,
    /// Whether the status names the present generation. Otherwise it can be about the spec before.
    names_present: bool,
}

impl<'a> Signs<'a> {
    /// Returns the signs, or `InProgress` if each generation that the conditions name is another one.
    fn of(view: &'a View<'a>) -> Result<Self, Verdict> {
        let present = view.generation();
        let mut conditions: Vec<_> = lists(view).flat_map(conditions).collect();
        if view.at("/status/observedGeneration").is_some_and(|generation| !generation.is_null()) {
            return Ok(Self { view, conditions, names_present: present.is_some() });
        }
        let named = |c: &(&str, Condition<'_>)| c.1.observed_generation;
        let names_present = conditions.iter().filter_map(named).any(|generation| Some(generation) == present);
        if present.is_some() && !names_present && conditions.iter().any(|c| named(c).is_some()) {
            return Err(kstatus::of_another_generation());
        }
        conditions.retain(|c| present.is_none() || named(c).is_none() || named(c) == present);
        Ok(Self { view, conditions, names_present })
    }

    /// Returns the result for a failure. Without a generation, the status can be about the spec before. Then the object has not failed with the
    /// present one.
    fn failing(&self) -> Option<Verdict> {
        let is_failure = |(type_, c): &&(&str, Condition<'_>)| {
            if c.is_true() { FAILING.contains(type_) } else { fails(c.reason) }
        };
        let condition = self.conditions.iter().find(is_failure);
        let phase = || self.phases().find(|(_, phase)| words(phase).take(3).any(|word| FAILING_WORDS.contains(&&*word)));
        let verdict = condition.map(of_condition).or_else(|| phase().map(|phase| self.of_phase(phase)))?;
        let status = if self.names_present { Status::Failed } else { Status::InProgress };
        Some(Verdict { status, ..verdict })
    }

    /// Returns `InProgress` if something has not happened yet that is required before the object is done.
    fn not_done(&self) -> Option<Verdict> {
        // With no replicas, nothing can be available.
        let is_empty = self.view.int("/status/replicas") == Some(0);
        let condition = self.conditions.iter().find(|(type_, c)| DONE.contains(type_) && !c.is_true());
        let condition = condition.filter(|_| !is_empty).map(of_condition);
        let flag = || FLAGS.iter().find(|flag| self.view.at(&format!("/status/{flag}")) == Some(&Value::Bool(false)));
        condition
            .or_else(|| flag().map(|flag| Verdict::in_progress("NotDone", format!("status.{flag} is false"))))
            .or_else(|| REQUIRED.iter().filter(|required| self.is_of(required)).find_map(|required| self.lacking(required)))
    }

    /// Returns `InProgress` if a controller works on the object. `Ready` decides where it is `True`.
    fn working(&self) -> Option<Verdict> {
        if self.is_true("Ready") {
            return None;
        }
        // A rollout like that of a Deployment keeps `Progressing` with the reason `New…Available`.
        let is_working =
            |(type_, c): &&(&str, Condition<'_>)| WORKING.contains(type_) && c.is_true() && !c.reason.ends_with("Available");
        let phase = || self.phases().find(|(_, phase)| is_working_phase(phase));
        let count = |(wanted, ready): &(&str, &str)| self.view.int(wanted).zip(self.view.int(ready));
        let short = || COUNTS.iter().filter_map(count).find(|(wanted, ready)| ready < wanted);
        self.conditions
            .iter()
            .find(is_working)
            .map(of_condition)
            .or_else(|| phase().map(|phase| self.of_phase(phase)))
            .or_else(|| {
                short()
                    .map(|(wanted, ready)| Verdict::in_progress("LessReady", format!("{ready} of {wanted} replicas ready")))
            })
    }

    fn is_true(&self, type_: &str) -> bool {
        self.conditions.iter().any(|(found, c)| *found == type_ && c.is_true())
    }

    /// Whether a requirement is one for this object.
    fn is_of(&self, (group, kinds, ..): &Required) -> bool {
        let (own_group, own_kind) = self.view.group_and_kind();
        let in_group = if group.starts_with('.') { own_group.ends_with(group) } else { own_group == *group };
        in_group && (kinds.is_empty() || kinds.contains(&own_kind))
    }

    fn lacking(&self, (_, _, at, values): &Required) -> Option<Verdict> {
        if !at.starts_with('/') {
            let message = || format!("its controller has not written the condition {at} yet");
            return (!self.is_true(at)).then(|| Verdict::in_progress("NotDone", message()));
        }
        let found = match self.view.at(at) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(flag)) => flag.to_string(),
            _ => String::new(),
        };
        let field = at.trim_start_matches('/').replace('/', ".");
        (!values.contains(&found.as_str())).then(|| {
            let message = format!("{field} is '{found}', and not {}", values.join(" or "));
            Verdict::in_progress("NotDone", message)
        })
    }

    /// The fields that contain the state in words.
    fn phases(&self) -> impl Iterator<Item = (&'static str, &'a str)> {
        PHASES.iter().map(|field| (*field, self.view.text(&format!("/status/{field}")))).filter(|(_, text)| !text.is_empty())
    }

    fn of_phase(&self, (field, text): (&str, &str)) -> Verdict {
        let message = self.view.text("/status/message");
        let reason = if text.bytes().all(|byte| byte.is_ascii_alphanumeric()) { text } else { "NotDone" };
        let own = || format!("status.{field} is '{text}'");
        Verdict::in_progress(reason, if message.is_empty() { own() } else { message.to_owned() })
    }
}

/// The lists of conditions in the status.
fn lists<'a>(view: &'a View<'a>) -> impl Iterator<Item = &'a [Value]> {
    let below = |value: &'a Value| value.get("conditions").and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
    let other = OTHER_LISTS.iter().filter_map(move |field| view.at(&format!("/status/{field}")));
    let other = other.flat_map(move |value| {
        let elements = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        elements.iter().map(below)
    });
    std::iter::once(view.list("/status/conditions")).chain(other)
}

/// `InProgress`, with the reason and message of a condition. Some controllers write neither.
fn of_condition((type_, condition): &(&str, Condition<'_>)) -> Verdict {
    let reason = if condition.reason.is_empty() { *type_ } else { condition.reason };
    let own = || format!("the condition {type_} does not say why");
    Verdict::in_progress(reason, if condition.message.is_empty() { own() } else { condition.message.to_owned() })
}

/// Whether the reason of a condition that is not `True` reports a failure.
fn fails(reason: &str) -> bool {
    words(reason).take(MAX_REASON_WORDS).last().is_some_and(|word| FAILING_REASONS.contains(&&*word))
}

fn is_working_phase(phase: &str) -> bool {
    let mut words = words(phase);
    let Some(first) = words.next() else { return false };
    let is_work = first.ends_with("ing") && !LASTING.contains(&&*first);
    is_work || WORKING_WORDS.contains(&&*first) || first == "not" || words.take(MAX_WORDS).any(|word| word == "not")
}

/// How many more words of a state are read.
const MAX_WORDS: usize = 8;
/// How many words of a reason are read.
const MAX_REASON_WORDS: usize = 64;

/// The words of a state in lower case: of `DEPLOYED_NOT_READY`, `ScalingUp` and `Waiting for Pods`.
fn words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|part| !part.is_empty());
    parts.flat_map(|part| {
        let is_shouted = part.bytes().all(|byte| byte.is_ascii_uppercase());
        let begins =
            part.bytes().enumerate().filter(move |(at, byte)| *at == 0 || (!is_shouted && byte.is_ascii_uppercase()));
        let begins: Vec<usize> = begins.map(|(at, _)| at).collect();
        let ends: Vec<usize> = begins.iter().skip(1).copied().chain([part.len()]).collect();
        begins.into_iter().zip(ends).map(move |(begin, end)| part[begin..end].to_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    #[test]
    fn the_status_of_other_kinds_follows_their_conditions_and_generation() {
        let ready = |status, generation| condition("Ready", status, "Because", generation);
        for (name, status, want) in [
            ("never reconciled", json!({}), InProgress),
            ("no conditions", json!({"phase": "Running"}), Current),
            ("ready", json!({"conditions": [ready("True", 2)]}), Current),
            ("not ready", json!({"conditions": [ready("False", 2)]}), InProgress),
            ("ready unknown", json!({"conditions": [ready("Unknown", 2)]}), InProgress),
            ("behind", json!({"observedGeneration": 1, "conditions": [ready("True", 2)]}), InProgress),
            ("ahead", json!({"observedGeneration": 3, "conditions": [ready("True", 2)]}), InProgress),
            ("a text", json!({"observedGeneration": "2", "conditions": [ready("True", 2)]}), Current),
            ("a text that is behind", json!({"observedGeneration": "1", "conditions": [ready("True", 2)]}), InProgress),
            ("not a number", json!({"observedGeneration": "6f7d", "conditions": [ready("True", 2)]}), InProgress),
            ("a fraction", json!({"observedGeneration": 2.5, "phase": "Running"}), InProgress),
            ("a list", json!({"observedGeneration": [2], "phase": "Running"}), InProgress),
            ("null", json!({"observedGeneration": null, "phase": "Running"}), Current),
            ("conditions by type", json!({"conditions": {"Ready": {"status": "False"}}}), InProgress),
            ("conditions as text", json!({"conditions": ["NotReady"]}), InProgress),
            (
                "a status that is no text",
                json!({"conditions": [{"type": "Ready", "status": true, "reason": "R", "message": "m"}]}),
                InProgress,
            ),
            ("the condition is behind", json!({"conditions": [ready("True", 1)]}), InProgress),
            ("the status decides", json!({"observedGeneration": 2, "conditions": [ready("True", 1)]}), Current),
            (
                "stalled",
                json!({"conditions": [condition("Reconciling", "True", "R", 2), condition("Stalled", "True", "S", 2)]}),
                Failed,
            ),
            (
                "stalled of old",
                json!({"observedGeneration": 1, "conditions": [condition("Stalled", "True", "S", 1)]}),
                InProgress,
            ),
            ("stalled before the new spec", json!({"conditions": [condition("Stalled", "True", "S", 1)]}), InProgress),
            (
                "stalled before the new spec, and ready",
                json!({"conditions": [condition("Stalled", "True", "S", 1), ready("True", 2)]}),
                Current,
            ),
            (
                "stalled since before the new spec",
                json!({"observedGeneration": 2, "conditions": [condition("Stalled", "True", "S", 1)]}),
                Failed,
            ),
            ("reconciled the old spec", json!({"conditions": [condition("Reconciling", "True", "R", 1)]}), InProgress),
            (
                "stalled, of no generation",
                json!({"conditions": [{"type": "Stalled", "status": "True", "reason": "S", "message": "m"}]}),
                Failed,
            ),
            ("not stalled", json!({"conditions": [condition("Stalled", "False", "S", 2), ready("True", 2)]}), Current),
            ("reconciling", json!({"conditions": [ready("True", 2), condition("Reconciling", "True", "R", 2)]}), InProgress),
        ] {
            let seen = read(OTHER, json!({}), status);
            let runs = if want == Current { "v7" } else { "" };
            assert_eq!(summary(&seen), (want, runs, "v7"), "{name}");
            assert_eq!(seen.message.is_empty(), want == Current, "{name}");
            assert_eq!(seen.reason.is_empty(), want == Current, "{name}");
            assert!(!seen.suspended && !seen.drifted, "{name}");
        }
    }

    /// The general kind, and a kind of a group.
    fn verdict_of(kind: (&str, &str), status: Value) -> Status {
        read(kind, json!({}), status).status
    }

    #[test]
    fn an_object_with_unfinished_work_is_not_current() {
        let says = |type_: &str, status: &str| json!({"type": type_, "status": status});
        for type_ in super::DONE {
            for (status, want) in [("True", Current), ("False", InProgress), ("Unknown", InProgress), ("", InProgress)] {
                let seen = read(OTHER, json!({}), json!({"conditions": [says(type_, status)]}));
                // The message of `Ready` is that of its controller.
                let is_silent = want == Current || type_ == "Ready";
                assert_eq!((seen.status, seen.message.is_empty()), (want, is_silent), "{type_} {status}");
            }
        }
        for type_ in super::WORKING {
            for (status, want) in [("True", InProgress), ("False", Current)] {
                assert_eq!(verdict_of(OTHER, json!({"conditions": [says(type_, status)]})), want, "{type_} {status}");
            }
        }
        for field in super::FLAGS {
            assert_eq!(verdict_of(OTHER, json!({field: false})), InProgress, "{field}");
            assert_eq!(verdict_of(OTHER, json!({field: true})), Current, "{field}");
        }
        let rollout = json!({"type": "Progressing", "status": "True", "reason": "NewReplicationControllerAvailable"});
        for (name, status, want) in [
            ("a rollout that is done", json!({"conditions": [rollout]}), Current),
            ("nothing is available of nothing", json!({"replicas": 0, "conditions": [says("Available", "False")]}), Current),
            (
                "not synced, although ready",
                json!({"conditions": [says("Ready", "True"), says("Synced", "False")]}),
                InProgress,
            ),
            (
                "ready while something is updated",
                json!({"conditions": [says("Ready", "True"), says("Updating", "True")]}),
                Current,
            ),
            ("ready in a phase", json!({"phase": "Scaling", "conditions": [says("Ready", "True")]}), Current),
            ("replicas", json!({"replicas": 3, "readyReplicas": 2}), InProgress),
            ("all replicas", json!({"replicas": 3, "readyReplicas": 3}), Current),
            ("replicas without a count", json!({"replicas": 3}), Current),
            ("Pods of nodes", json!({"desiredNumberScheduled": 3, "numberReady": 2}), InProgress),
            (
                "at a gateway",
                json!({"parents": [{"conditions": [says("Accepted", "True")]}, {"conditions": [says("Accepted", "False")]}]}),
                InProgress,
            ),
            ("at all gateways", json!({"parents": [{"conditions": [says("Accepted", "True")]}]}), Current),
            ("in another list", json!({"conditionStatus": {"conditions": [says("Admitted", "False")]}}), InProgress),
        ] {
            assert_eq!(verdict_of(OTHER, status), want, "{name}");
        }
    }

    #[test]
    fn the_word_of_a_phase_determines_the_status() {
        for (phase, want) in [
            ("Pending", InProgress),
            ("PROVISIONING", InProgress),
            ("ScalingUp", InProgress),
            ("applying_changes", InProgress),
            ("Waiting for Pods to be ready", InProgress),
            ("NotReconciled", InProgress),
            ("DEPLOYED_NOT_READY", InProgress),
            ("Pool Decommissioning Not Allowed", InProgress),
            ("new", InProgress),
            ("yellow", InProgress),
            ("Unknown", InProgress),
            ("Failed", InProgress),
            ("ConfigError", InProgress),
            ("PartiallyFailed", InProgress),
            ("ERROR, Secrets Manager can't find it", InProgress),
            ("red", InProgress),
            ("Running", Current),
            ("RUNNING", Current),
            ("Ready", Current),
            ("Active", Current),
            ("green", Current),
            ("Deployed", Current),
            ("Cluster recovered after an error", Current),
            ("…", Current),
            ("", Current),
        ] {
            for field in super::PHASES {
                let seen = read(OTHER, json!({}), json!({field: phase}));
                assert_eq!((seen.status, seen.message.is_empty()), (want, want == Current), "{field}: {phase}");
            }
        }
        for field in ["desiredState", "lastBackupStatus", "Phase"] {
            assert_eq!(verdict_of(OTHER, json!({field: "Pending"})), Current, "{field}");
        }
        let seen = read(OTHER, json!({}), json!({"phase": "Creating", "message": "2 volumes are left"}));
        assert_eq!((&*seen.reason, &*seen.message), ("Creating", "2 volumes are left"));
    }

    #[test]
    fn a_failure_is_about_the_present_spec_if_the_status_names_its_generation() {
        for type_ in super::FAILING {
            for (generation, want) in [(json!(2), Failed), (Value::Null, InProgress), (json!(1), InProgress)] {
                let failing = json!({"type": type_, "status": "True", "reason": "R", "message": "why"});
                let seen = read(OTHER, json!({}), json!({"observedGeneration": generation, "conditions": [failing]}));
                assert_eq!(seen.status, want, "{type_} {generation}");
                let failing = with(&failing, json!({"observedGeneration": generation}));
                assert_eq!(verdict_of(OTHER, json!({"conditions": [failing]})), want, "{type_} {generation}");
            }
            assert_eq!(verdict_of(OTHER, json!({"conditions": [condition(type_, "False", "R", 2)]})), Current, "{type_}");
        }
        for word in super::FAILING_WORDS {
            assert_eq!(verdict_of(OTHER, json!({"observedGeneration": 2, "phase": word})), Failed, "{word}");
            assert_eq!(verdict_of(OTHER, json!({"phase": word})), InProgress, "{word}");
        }
        for (reason, want) in [
            ("SecretSyncedError", Failed),
            ("ProgressDeadlineExceeded", Failed),
            ("UpdateFailed", Failed),
            ("Failed", Failed),
            ("BindingFailedScheduling", InProgress),
            ("ErrorPresent", InProgress),
            ("Because", InProgress),
            ("", InProgress),
        ] {
            for type_ in ["Ready", "Synced"] {
                for status in ["False", "Unknown"] {
                    assert_eq!(
                        verdict_of(OTHER, json!({"conditions": [condition(type_, status, reason, 2)]})),
                        want,
                        "{reason}"
                    );
                }
                let of_any = json!({"conditions": [{"type": type_, "status": "False", "reason": reason}]});
                assert_eq!(verdict_of(OTHER, of_any), InProgress, "{reason}");
            }
            assert_eq!(
                verdict_of(OTHER, json!({"conditions": [condition("Ready", "True", reason, 2)]})),
                Current,
                "{reason}"
            );
        }
        let ready = |status| condition("Ready", status, "Because", 2);
        assert_eq!(verdict_of(OTHER, json!({"phase": "Failed", "conditions": [ready("False")]})), Failed);
        assert_eq!(verdict_of(OTHER, json!({"phase": "Failed", "conditions": [ready("True")]})), Failed);
    }

    #[test]
    fn conditions_of_another_generation_do_not_count() {
        let parent =
            |generation: i64, status: &str| json!({"conditions": [condition("Accepted", status, "Because", generation)]});
        for (name, parents, want) in [
            ("accepted", json!([parent(2, "True")]), Current),
            ("not accepted", json!([parent(2, "False")]), InProgress),
            ("accepted, of the spec before", json!([parent(1, "True")]), InProgress),
            ("a gateway that it has left", json!([parent(1, "False"), parent(2, "True")]), Current),
        ] {
            assert_eq!(verdict_of(OTHER, json!({"parents": parents})), want, "{name}");
        }
        let of_before = json!({"conditions": [condition("Available", "True", "Because", 1)]});
        assert!(read(OTHER, json!({}), of_before).is_unobserved());
    }

    #[test]
    fn a_kind_with_a_requirement_is_current_only_when_the_requirement_is_met() {
        for (group, kinds, at, values) in super::REQUIRED {
            let group = if group.starts_with('.') { format!("any{group}") } else { group.to_owned() };
            let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
            let kinds = if kinds.is_empty() { &["Any"] } else { kinds };
            let status = |value: &str| {
                let value = if value == "true" { json!(true) } else { json!(value) };
                at.rsplit('/').filter(|step| !step.is_empty()).fold(value, |value, step| json!({step: value}))["status"]
                    .clone()
            };
            for kind in kinds {
                let of =
                    |status: Value| read((&version, kind), json!({}), with(&json!({"observedAt": "now"}), status)).status;
                assert_eq!(of(json!({})), InProgress, "{version} {kind}");
                if values.is_empty() {
                    assert_eq!(of(json!({"conditions": [{"type": at, "status": "True"}]})), Current, "{version} {kind}");
                    assert_eq!(of(json!({"conditions": [{"type": at, "status": "False"}]})), InProgress, "{version} {kind}");
                }
                for value in values {
                    assert_eq!(of(status(value)), Current, "{version} {kind} {value}");
                }
                if !values.is_empty() {
                    assert_eq!(of(status("Other")), InProgress, "{version} {kind}");
                }
            }
        }
    }

    #[test]
    fn each_condition_and_word_of_the_general_rules_is_documented() {
        let docs = include_str!("../../../../../docs/observing.md");
        let section = docs.split("### Other kinds").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
        let has = |word: &str| assert!(section.contains(&format!("`{word}`")), "{word}");
        let lists: [&[&str]; 9] = [
            &super::FAILING,
            &super::FAILING_REASONS,
            &super::DONE,
            &super::WORKING,
            &super::OTHER_LISTS,
            &super::FLAGS,
            &super::PHASES,
            &super::FAILING_WORDS,
            &super::WORKING_WORDS,
        ];
        lists.into_iter().flatten().chain(&super::LASTING).for_each(|word| has(word));
        for (group, kinds, at, values) in super::REQUIRED {
            let field = at.trim_start_matches("/status/").replace('/', ".");
            let row = section.lines().find(|line| {
                let group = if group.is_empty() { "core".to_owned() } else { format!("`{group}`") };
                line.starts_with(&format!("| {group} |"))
                    && kinds.iter().all(|kind| line.contains(kind))
                    && line.contains(&format!("`{field}`"))
            });
            let row = row.unwrap_or_else(|| panic!("{group} {kinds:?}"));
            assert!(values.iter().all(|value| row.contains(value)), "{row}");
        }
    }
}
