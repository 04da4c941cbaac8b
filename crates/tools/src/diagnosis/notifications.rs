//! What is wrong with a Notification: it cannot be sent, its messages wait, or it reports nothing. Pure.

use kube::ResourceExt as _;

use super::remedy::{self, Place};
use super::{Finding, Kind, Level, age};
use crate::audit::Row;
use relaybook_api::conditions::{Condition, ConditionStatus, DELIVERING, GLOBAL_CONFIG_VALID, REACHABLE, READY, get};
use relaybook_api::delivery::Reason;
use relaybook_api::{Notification, Time};

/// Reasons of `Ready=True` with which something is not sent.
const WARNINGS: [&str; 2] = [NO_PIPELINE, "TargetsNotReady"];
/// The reason of `Ready=True` if the selector selects none. The condition `Reachable` then repeats it.
const NO_PIPELINE: &str = "NoPipeline";

/// Returns what is wrong with a Notification.
pub(super) fn findings(notification: &Notification, pending: &[Row], now: Time) -> Vec<Finding> {
    let Some(status) = &notification.status else { return Vec::new() };
    let (namespace, name) = (notification.namespace().unwrap_or_default(), notification.name_any());
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
