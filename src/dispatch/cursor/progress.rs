//! How far a notification has come when its deliveries, or some of them, are recorded. Pure.
//!
//! In: what was derived, and where its lanes ended. Out: where the cursor may go, how far each subject was taken beyond it, and the
//! timers that go on: those of deliveries that could not be recorded among them.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::pipeline::Armed;
use crate::api::{ChangeLog, DeliverySpec};
use crate::dispatch::derive::Derived;
use crate::outbox::subject;

/// What became of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// All of it is recorded.
    Recorded,
    /// So many of it are, and the next could not be.
    Failed(usize),
    /// It was left for later.
    Later,
}

/// How far it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All changes up to it are taken; it never moves back for that.
    pub cursor: i64,
    /// By subject of the log: the serial up to which its changes are taken.
    pub taken: BTreeMap<String, i64>,
    /// The timers that go on.
    pub armed: Vec<Armed>,
    /// Whether everything that was derived is recorded.
    pub all: bool,
}

/// Computes it. `lanes`: what became of each.
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
            if let Some(taken) = taken.get_mut(&subject(delivery)) {
                *taken = limit.min(*taken);
            }
        }
        armed.extend(lane.iter().skip(recorded).filter_map(timer));
    }
    taken.retain(|subject, _| !unclear.contains(subject));
    let whole = lanes.iter().all(|lane| *lane == Lane::Recorded);
    Progress { cursor, taken, armed, all: whole && unclear.is_empty() }
}

/// Up to which change everything may count as taken while this delivery is not recorded. A timer stays armed, so what has armed it
/// may.
fn limit(spec: &DeliverySpec) -> i64 {
    if spec.due.is_some() { spec.order } else { spec.serial - 1 }
}

/// The timer that a delivery was due by.
fn timer(spec: &DeliverySpec) -> Option<Armed> {
    Some(Armed {
        notification: spec.notification.clone(),
        subject: subject(spec),
        serial: spec.serial,
        type_: spec.type_,
        due: spec.due?,
    })
}
