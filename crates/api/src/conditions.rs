//! Conditions as in the Kubernetes API conventions
//! (<https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties>).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Time;

/// The condition type that reports whether an object is valid and in use.
pub const READY: &str = "Ready";
/// The condition type that reports whether the deliveries of a notification reach the receiver.
pub const DELIVERING: &str = "Delivering";
/// The condition type that is present with status `False` while the global configuration below a notification is invalid.
pub const GLOBAL_CONFIG_VALID: &str = "GlobalConfigValid";
/// The condition type that is present with status `False` while a part of a valid notification matches nothing: a trigger no environment or
/// no cluster, or the selector no pipeline.
pub const REACHABLE: &str = "Reachable";
/// The condition type that is `True` while a revision could be promoted and is not. Absent without a promotion strategy.
pub const PROMOTION_PENDING: &str = "PromotionPending";

/// The condition type that is present with status `False` while requests to a hook of a pipeline cannot be signed.
pub const HOOKS_READY: &str = "HooksReady";

/// `True`, `False` or `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// The condition is true.
    True,
    /// The condition is false. `reason` and `message` explain why.
    False,
    /// The condition is not known yet.
    Unknown,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type, such as `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// The generation of the spec that the condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` last changed.
    #[schemars(with = "String")]
    pub last_transition_time: Time,
    /// Machine-readable reason: one word in CamelCase.
    pub reason: String,
    /// Human-readable message.
    #[serde(default)]
    pub message: String,
}

/// Sets a condition in a list. `lastTransitionTime` changes only if the status changes. The order of the list stays the same.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Time,
) {
    let old = conditions.iter_mut().find(|c| c.type_ == type_);
    let since = match &old {
        Some(c) if c.status == status => c.last_transition_time,
        _ => now,
    };
    let new = Condition {
        type_: type_.to_owned(),
        status,
        observed_generation: generation,
        last_transition_time: since,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    match old {
        Some(c) => *c = new,
        None => conditions.push(new),
    }
}

/// Returns the condition of this type, if the list contains it.
#[must_use]
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let at = |s| Time::from_second(s).unwrap();
        let mut list = Vec::new();
        set(&mut list, READY, ConditionStatus::False, "A", "", None, at(1));
        set(&mut list, READY, ConditionStatus::False, "B", "b", None, at(2));
        assert_eq!((list[0].last_transition_time, list[0].reason.as_str()), (at(1), "B"));
        set(&mut list, READY, ConditionStatus::True, "C", "", None, at(3));
        assert_eq!(list[0].last_transition_time, at(3));
        assert_eq!(list.len(), 1);
    }
}
