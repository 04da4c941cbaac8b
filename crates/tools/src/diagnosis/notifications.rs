//! What is wrong with a Notification: it cannot be sent, its messages wait, or it reports nothing. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::remedy::{self, Place};
use super::{Finding, Kind, Level, NOT_PROCESSED, SEE_CONTROLLERS, age, unprocessed};
use crate::audit::Row;
use relaybook_api::conditions::{Condition, ConditionStatus, DELIVERING, GLOBAL_CONFIG_VALID, REACHABLE, READY, get};
use relaybook_api::delivery::Reason;
use relaybook_api::{Notification, Time};

/// Reasons of `Ready=True` with which something is not sent.
const WARNINGS: [&str; 2] = [NO_PIPELINE, "TargetsNotReady"];
/// The reason of `Ready=True` if the selector selects none. The condition `Reachable` then repeats it.
const NO_PIPELINE: &str = "NoPipeline";

/// The reason of a global configuration that cannot be used.
pub const GLOBAL: &str = "GlobalConfigInvalid";
/// How long a message of a notification without an object waits before it is a finding.
const PATIENCE: i64 = 60;

/// Returns a finding for each notification that waits and has no object: the global configuration or a pipeline defines it.
pub(super) fn without_object(all: &[Notification], pending: &[Row], now: Time) -> Vec<Finding> {
    let is_known = |row: &Row| {
        all.iter().any(|one| one.name_any() == row.notification && one.namespace().as_deref() == Some(&row.namespace))
    };
    let mut waiting: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in pending.iter().filter(|row| !is_known(row)) {
        waiting.entry((&row.namespace, &row.notification)).or_default().push(row);
    }
    let findings = waiting.into_iter().filter_map(|((namespace, name), rows)| {
        let first = rows.iter().min_by_key(|row| (row.reason.is_none(), row.recorded))?;
        let since = rows.iter().filter_map(|row| row.recorded).min()?;
        let waits = waits(i64::try_from(rows.len()).unwrap_or(i64::MAX), since, now)?;
        let place = Place { namespace, name };
        let (reason, why, remedy) = match &first.reason {
            None if now.duration_since(since).as_secs() < PATIENCE => return None,
            None => (NOT_PROCESSED, "no controller has tried to send".to_owned(), SEE_CONTROLLERS.to_owned()),
            Some(reason) => (reason.as_str(), first.why(), remedy::of(reason, &place)),
        };
        Some(Finding {
            level: if reason == Reason::Suspended.as_str() { Level::Warning } else { Level::Problem },
            kind: Kind::Notification,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            reason: reason.to_owned(),
            message: format!("{waits}: {why}"),
            remedy,
            since: Some(since),
        })
    });
    findings.collect()
}

/// Returns what is wrong with a Notification.
pub(super) fn findings(notification: &Notification, pending: &[Row], now: Time) -> Vec<Finding> {
    let (namespace, name) = (notification.namespace().unwrap_or_default(), notification.name_any());
    let Some(status) = &notification.status else {
        return unprocessed(Kind::Notification, &notification.metadata, now).into_iter().collect();
    };
    let finding = |level: Level, condition: &Condition, message: String| Finding {
        level,
        kind: Kind::Notification,
        remedy: remedy::of(&condition.reason, &Place { namespace: &namespace, name: &name }),
        namespace: namespace.clone(),
        name: name.clone(),
        reason: condition.reason.clone(),
        message,
        since: Some(condition.last_transition_time),
    };
    let is_false = |type_| get(&status.conditions, type_).filter(|condition| condition.status == ConditionStatus::False);
    let ready = get(&status.conditions, READY).and_then(|condition| match condition.status {
        ConditionStatus::False => Some(finding(Level::Problem, condition, format!("cannot be sent: {}", condition.message))),
        ConditionStatus::True if WARNINGS.contains(&condition.reason.as_str()) => {
            Some(finding(Level::Warning, condition, condition.message.clone()))
        }
        _ => None,
    });
    let delivering = is_false(DELIVERING).map(|condition| {
        let own = pending.iter().filter(|row| row.namespace == namespace && row.notification == name);
        let since = own.filter_map(|row| row.recorded).min().unwrap_or(condition.last_transition_time);
        let waits = waits(status.pending, since, now);
        if condition.reason == Reason::Suspended.as_str() {
            let waits = waits.map_or_else(String::new, |waits| format!(": {waits}"));
            return finding(Level::Warning, condition, format!("is suspended{waits}"));
        }
        let message = waits.map_or_else(|| condition.message.clone(), |waits| format!("{waits}: {}", condition.message));
        finding(Level::Problem, condition, message)
    });
    let global = is_false(GLOBAL_CONFIG_VALID).map(|condition| {
        let message = format!("the global configuration is invalid: {}", condition.message);
        finding(Level::Problem, condition, message)
    });
    let is_alone = get(&status.conditions, READY).is_some_and(|condition| condition.reason == NO_PIPELINE);
    let unreached = is_false(REACHABLE).filter(|_| !is_alone);
    let unreached = unreached.map(|condition| finding(Level::Warning, condition, condition.message.clone()));
    [ready, delivering, global, unreached].into_iter().flatten().collect()
}

/// Returns how many messages wait, and since when. `None`: none waits.
fn waits(pending: i64, since: Time, now: Time) -> Option<String> {
    let since = age(since, now);
    match pending {
        ..=0 => None,
        1 => Some(format!("1 message waits since {since}")),
        n => Some(format!("{n} messages wait since {since}")),
    }
}
