//! Computes how far the log is processed for a notification when its deliveries, or some of them, are recorded. Pure.
//!
//! In: what was derived, and where its lanes ended. Out: the serial to which the cursor can advance, how far each subject was processed
//! beyond it, and the timers that continue. These include the timers of deliveries that could not be recorded.

use std::collections::{BTreeMap, BTreeSet};

use crate::dispatch::derive::Derived;
use relaybook_api::pipeline::RunningTimer;
use relaybook_api::{ChangeLog, DeliverySpec};

/// The result of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// All its transitions are recorded.
    Recorded,
    /// This number of its transitions is recorded, and the next one could not be.
    Failed(usize),
    /// It was not tried yet.
    Later,
}

/// How far the log is processed for a notification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All changes up to this serial are processed. This serial can be lower than the current cursor, which never moves back.
    pub cursor: i64,
    /// By subject of the log: the serial up to which its changes are processed.
    pub taken: BTreeMap<String, i64>,
    /// The timers that continue.
    pub armed: Vec<RunningTimer>,
    /// Whether everything that was derived is recorded, and no subject is unclear.
    pub all: bool,
}

/// Computes the progress. `lanes`: the result of each lane.
#[must_use]
pub fn progress(derived: &Derived, lanes: &[Lane], log: &ChangeLog) -> Progress {
    let mut taken: BTreeMap<String, i64> = log.changes.iter().map(|c| (c.subject.clone(), derived.reached)).collect();
    let unclear: BTreeSet<&String> = derived.unclear.keys().collect();
    let mut cursor = derived.unclear.values().map(|serial| serial - 1).fold(derived.reached, i64::min);
    let mut armed = derived.armed.clone();
    for (lane, became) in derived.lanes.iter().zip(lanes) {
        let recorded = match became {
            Lane::Recorded => continue,
            Lane::Failed(recorded) => *recorded,
            Lane::Later => 0,
        };
        let Some(limit) = lane.get(recorded).map(limit) else { continue };
        cursor = cursor.min(limit);
        for delivery in lane {
            if let Some(taken) = taken.get_mut(&delivery.log_subject().to_string()) {
                *taken = limit.min(*taken);
            }
        }
        armed.extend(lane.iter().skip(recorded).filter_map(timer));
    }
    taken.retain(|subject, _| !unclear.contains(subject));
    let whole = lanes.iter().all(|lane| *lane == Lane::Recorded);
    Progress { cursor, taken, armed, all: whole && unclear.is_empty() }
}

/// Returns the serial up to which changes can count as processed while this delivery is not recorded. A timer stays armed, so the change
/// that armed it can count as processed.
fn limit(spec: &DeliverySpec) -> i64 {
    if spec.due.is_some() { spec.order } else { spec.serial - 1 }
}

/// Returns the timer from which a delivery comes, if any.
fn timer(spec: &DeliverySpec) -> Option<RunningTimer> {
    Some(RunningTimer {
        notification: spec.notification.clone(),
        subject: spec.log_subject().to_string(),
        serial: spec.serial,
        type_: spec.type_,
        due: spec.due?,
    })
}
