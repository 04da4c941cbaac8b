//! What is wrong with a Pipeline, or with a part of it, and with a set of pipelines. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::remedy::{self, Place};
use super::{Finding, Kind, Level, unprocessed};
use relaybook_api::conditions::{Condition, ConditionStatus, HOOKS_READY, READY, get};
use relaybook_api::pipeline::{EnvironmentStatus, NotReadyNotification};
use relaybook_api::pipeline_set::PipelineSet;
use relaybook_api::promotion::Phase;
use relaybook_api::{Notification, Pipeline, Time};
use relaybook_core::promotion::reason::WAITING_APPROVAL;

/// The name of a pipeline, from which its findings are made.
struct Of<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl Of<'_> {
    /// Returns a finding about a part of the pipeline. The part is empty for the pipeline itself.
    fn finding(&self, level: Level, part: &str, reason: &str, message: String, since: Option<Time>) -> Finding {
        let Self { namespace, name } = *self;
        Finding {
            level,
            kind: Kind::Pipeline,
            namespace: namespace.to_owned(),
            name: if part.is_empty() { name.to_owned() } else { format!("{name}/{part}") },
            reason: reason.to_owned(),
            message,
            remedy: remedy::of(reason, &Place { namespace, name }),
            since,
        }
    }
}

/// Returns what is wrong with a pipeline. What the Notifications say about themselves is not repeated.
pub(super) fn findings(pipeline: &Pipeline, notifications: &[Notification], now: Time) -> Vec<Finding> {
    let Some(status) = &pipeline.status else {
        return unprocessed(Kind::Pipeline, &pipeline.metadata, now).into_iter().collect();
    };
    let (namespace, name) = (pipeline.namespace().unwrap_or_default(), pipeline.name_any());
    let of = Of { namespace: &namespace, name: &name };
    let is_false = |type_| get(&status.conditions, type_).filter(|condition| condition.status == ConditionStatus::False);
    let problem = |condition: &Condition, message: String| {
        of.finding(Level::Problem, "", &condition.reason, message, Some(condition.last_transition_time))
    };
    let mut all = Vec::new();
    all.extend(is_false(READY).map(|condition| problem(condition, condition.message.clone())));
    all.extend(is_false(HOOKS_READY).map(|c| problem(c, format!("hooks refuse every request: {}", c.message))));
    let unsent = status.dispatched.iter().flat_map(|dispatched| &dispatched.notifications);
    let unsent = unsent.filter(|unsent| !is_said(unsent, &namespace, notifications));
    all.extend(unsent.map(|unsent| of_notification(&of, unsent)));
    all.extend(status.environments.iter().flat_map(|environment| of_promotions(&of, environment)));
    all
}

/// Returns a finding for each cluster that does not answer, for all its pipelines together.
pub(super) fn of_clusters(pipelines: &[Pipeline]) -> Vec<Finding> {
    let mut offline: BTreeMap<String, (usize, Option<Time>)> = BTreeMap::new();
    let statuses = pipelines.iter().filter_map(|pipeline| pipeline.status.as_ref());
    for cluster in statuses.flat_map(|status| &status.clusters).filter(|cluster| !cluster.reachable) {
        let (count, since) = offline.entry(cluster.cluster_ref.full_name()).or_default();
        *count += 1;
        *since = [*since, cluster.since].into_iter().flatten().min();
    }
    let findings = offline.into_iter().map(|(name, (count, since))| {
        let those = if count == 1 { "1 pipeline has".to_owned() } else { format!("{count} pipelines have") };
        Finding {
            level: Level::Problem,
            kind: Kind::Cluster,
            namespace: String::new(),
            reason: remedy::CLUSTER_UNREACHABLE.to_owned(),
            message: format!("cluster {name} does not answer: {those} targets there"),
            remedy: remedy::of(remedy::CLUSTER_UNREACHABLE, &Place { namespace: "", name: &name }),
            name,
            since,
        }
    });
    findings.collect()
}

/// Whether the Notification itself says the same about all its targets.
fn is_said(unsent: &NotReadyNotification, namespace: &str, notifications: &[Notification]) -> bool {
    let own =
        notifications.iter().find(|one| one.name_any() == unsent.name && one.namespace().as_deref() == Some(namespace));
    let conditions = own.and_then(|own| own.status.as_ref()).map(|status| &status.conditions);
    let ready = conditions.and_then(|conditions| get(conditions, READY));
    ready.is_some_and(|ready| ready.status == ConditionStatus::False && ready.reason == unsent.reason)
}

fn of_notification(of: &Of<'_>, unsent: &NotReadyNotification) -> Finding {
    let part = match (&unsent.target, &unsent.environment) {
        (Some(part), _) | (None, Some(part)) => format!("{part}/{}", unsent.name),
        (None, None) => unsent.name.clone(),
    };
    let message = format!("notification {} cannot be sent: {}", unsent.name, unsent.message);
    let finding = of.finding(Level::Problem, &part, &unsent.reason, message, None);
    Finding { remedy: remedy::of(&unsent.reason, &Place { namespace: of.namespace, name: &unsent.name }), ..finding }
}

/// Returns what a person must do for the promotions to an environment.
fn of_promotions(of: &Of<'_>, environment: &EnvironmentStatus) -> Vec<Finding> {
    let to = &environment.name;
    let waits = environment.waiting_approval.as_ref().map(|waits| {
        let message = format!("the promotion of {} to {to} waits for an approval", waits.revision);
        let mut finding = of.finding(Level::Warning, to, WAITING_APPROVAL, message, Some(waits.since));
        finding.remedy = format!("`relaybook approve {} {to} -n {}`", of.name, of.namespace);
        finding
    });
    let ended = environment.promotion.as_ref().and_then(|promotion| {
        let (level, ended) = match promotion.phase {
            Phase::Failed => (Level::Problem, "failed"),
            Phase::Closed => (Level::Warning, "ended, because its pull request was closed"),
            _ => return None,
        };
        let message = format!("the promotion of {} to {to} {ended}", promotion.revision);
        let mut finding = of.finding(level, to, &promotion.reason, message, promotion.last_attempted_time);
        finding.remedy =
            format!("`kubectl describe promo {} -n {}` shows the cause, and how to retry", promotion.name, of.namespace);
        Some(finding)
    });
    waits.into_iter().chain(ended).collect()
}

/// Returns what is wrong with a set of pipelines.
pub(super) fn of_set(set: &PipelineSet, now: Time) -> Option<Finding> {
    let Some(status) = &set.status else { return unprocessed(Kind::PipelineSet, &set.metadata, now) };
    let condition = get(&status.conditions, READY)?;
    let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
    (condition.status == ConditionStatus::False).then(|| Finding {
        level: Level::Problem,
        kind: Kind::PipelineSet,
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        remedy: remedy::of(&condition.reason, &Place { namespace: &namespace, name: &name }),
        namespace,
        name,
        since: Some(condition.last_transition_time),
    })
}
