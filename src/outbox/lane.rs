//! One lane: a FIFO with at most one delivery at work. Pure.
//!
//! The central rule: a delivery is first sent only after the previous delivery is settled *and* its outcome is written. So a lane is busy
//! from the moment its head is taken until the write of the head is answered. Only [`Lane::take`] hands out work.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::api::{DeliverySpec, Time, TransitionType};

/// A delivery's place in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    order: i64,
    /// The due time of a delivery whose state had to hold for a time. Such a delivery comes after the change that its order names. Among
    /// several, the earliest due time comes first.
    due: Option<Time>,
    serial: i64,
    type_: TransitionType,
}

impl Place {
    /// The serial of the change.
    #[must_use]
    pub fn serial(self) -> i64 {
        self.serial
    }
}

impl From<&DeliverySpec> for Place {
    fn from(spec: &DeliverySpec) -> Self {
        Self { order: spec.order, due: spec.due, serial: spec.serial, type_: spec.type_ }
    }
}

/// The phase of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The head can be taken.
    Open,
    /// The head is retried at `until`. `asked`: the receiver named the time.
    Waiting { until: Instant, asked: bool },
    /// The head cannot be sent at present. Something outside must change, or the lane checks again at `until`.
    Held { until: Option<Instant> },
    /// The delivery at this place is at work: it is being checked or sent, or its outcome is being written.
    Busy(Place),
}

/// Whether the lane has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing is pending.
    Empty,
    /// The head is at work.
    Busy,
    /// Not before this time.
    At(Instant),
    /// Only after something changes.
    Held,
    /// Now.
    Now,
}

/// The result for the delivery that was at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The delivery is settled and its outcome is written. `answered`: the receiver responded, so the next failure counts as the first one.
    Settled {
        /// Whether the receiver gave a final response.
        answered: bool,
    },
    /// The attempt failed and that is written.
    Retry {
        /// When to try again.
        until: Instant,
        /// Whether the receiver named that time.
        asked: bool,
    },
    /// Nothing was sent.
    Hold {
        /// When the lane checks again without an event.
        until: Option<Instant>,
    },
    /// Nothing was done; the delivery can be taken again at once.
    Nothing,
}

/// The deliveries of one notification for one subject, in order. `T` is what the caller stores for each delivery.
#[derive(Debug)]
pub struct Lane<T> {
    queue: BTreeMap<Place, T>,
    phase: Phase,
    failures: u32,
    /// Number of deliveries whose write as Superseded is in progress. Nothing is sent meanwhile.
    marking: usize,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { queue: BTreeMap::new(), phase: Phase::Open, failures: 0, marking: 0 }
    }
}

impl<T> Lane<T> {
    /// Adds a recorded delivery. Returns `false` if it is already there.
    pub fn insert(&mut self, place: Place, item: T) -> bool {
        match self.queue.entry(place) {
            std::collections::btree_map::Entry::Occupied(_) => false,
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(item);
                true
            }
        }
    }

    /// Removes a delivery that a user has deleted or another replica has settled. A delivery at work stays until its write detects that.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        if self.phase == Phase::Busy(place) {
            return None;
        }
        let was_head = self.queue.keys().next() == Some(&place);
        let item = self.queue.remove(&place)?;
        // A time that the receiver has named applies to the lane, so it stays. A gap of our own applied only to the removed delivery.
        if was_head && matches!(self.phase, Phase::Held { .. } | Phase::Waiting { asked: false, .. }) {
            self.phase = Phase::Open;
        }
        Some(item)
    }

    /// Replaces a delivery that is not at work with a newer copy.
    pub fn replace(&mut self, place: Place, item: T) {
        if self.phase != Phase::Busy(place) {
            self.queue.insert(place, item);
        }
    }

    /// At the start of a leadership term, makes the head wait as its object says. The object contains the time, the number of failures, and
    /// whether the receiver named that time. A delivery that is in flight continues.
    pub fn resume(&mut self, waits: Option<(Instant, u32, bool)>) {
        if matches!(self.phase, Phase::Busy(_)) {
            return;
        }
        self.phase = Phase::Open;
        if let Some((until, failures, asked)) = waits {
            self.phase = Phase::Waiting { until, asked };
            self.failures = failures;
        }
    }

    /// Whether the lane has something to do.
    #[must_use]
    pub fn due(&self, now: Instant) -> Due {
        match self.phase {
            Phase::Busy(_) => Due::Busy,
            _ if self.marking > 0 => Due::Busy,
            _ if self.queue.is_empty() => Due::Empty,
            Phase::Waiting { until, .. } | Phase::Held { until: Some(until) } if until > now => Due::At(until),
            Phase::Held { until: None } => Due::Held,
            _ => Due::Now,
        }
    }

    /// Whether the head cannot be sent at present.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held { .. })
    }

    /// The first delivery in order.
    #[must_use]
    pub fn head(&self) -> Option<&T> {
        self.queue.values().next()
    }

    /// All deliveries, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Place, &T)> + ExactSizeIterator {
        self.queue.iter().map(|(place, item)| (*place, item))
    }

    /// How many deliveries are pending.
    #[must_use]
    pub fn count(&self) -> usize {
        self.queue.len()
    }

    /// The place of the delivery at work.
    #[must_use]
    pub fn at_work(&self) -> Option<Place> {
        match self.phase {
            Phase::Busy(place) => Some(place),
            _ => None,
        }
    }

    /// Removes deliveries that later ones supersede. Nothing is sent until [`Lane::superseded`] was called for each of them. The lane keeps
    /// its wait, because the back-off and the time that the receiver named apply to the lane.
    pub fn supersede(&mut self, places: &[Place]) -> Vec<T> {
        let head = self.queue.keys().next().copied();
        let taken: Vec<_> = places.iter().filter_map(|place| self.queue.remove(place)).collect();
        self.marking += taken.len();
        if self.queue.keys().next().copied() != head && matches!(self.phase, Phase::Held { .. }) {
            self.phase = Phase::Open;
        }
        taken
    }

    /// Records that one superseded delivery is written.
    pub fn superseded(&mut self) {
        self.marking = self.marking.saturating_sub(1);
    }

    /// Whether a write of a superseded delivery is in progress.
    #[must_use]
    pub fn is_marking(&self) -> bool {
        self.marking > 0
    }

    /// The delivery at this place.
    #[must_use]
    pub fn get(&self, place: Place) -> Option<&T> {
        self.queue.get(&place)
    }

    /// The delivery at work.
    pub fn busy(&mut self) -> Option<&mut T> {
        match self.phase {
            Phase::Busy(place) => self.queue.get_mut(&place),
            _ => None,
        }
    }

    /// Takes the head as the delivery at work, if it is due.
    pub fn take(&mut self, now: Instant) -> Option<&T> {
        if self.due(now) != Due::Now {
            return None;
        }
        let (place, item) = self.queue.first_key_value()?;
        self.phase = Phase::Busy(*place);
        Some(item)
    }

    /// Ends the work on the delivery that was taken. Returns it if it is settled.
    pub fn done(&mut self, after: After) -> Option<T> {
        let Phase::Busy(place) = self.phase else { return None };
        self.phase = match after {
            After::Settled { .. } | After::Nothing => Phase::Open,
            After::Retry { until, asked } => Phase::Waiting { until, asked },
            After::Hold { until } => Phase::Held { until },
        };
        match after {
            After::Settled { answered } => {
                if answered {
                    self.failures = 0;
                }
                self.queue.remove(&place)
            }
            After::Retry { .. } => {
                self.failures = self.failures.saturating_add(1);
                None
            }
            After::Hold { .. } | After::Nothing => None,
        }
    }

    /// Something outside the lane has changed, so a held head is checked again. `retry`: the change may fix the cause of the last failure.
    /// Then a head that waits for a time of our own choice is retried, too.
    pub fn wake(&mut self, retry: bool) {
        match self.phase {
            Phase::Held { .. } => self.phase = Phase::Open,
            Phase::Waiting { asked: false, .. } if retry => self.phase = Phase::Open,
            _ => {}
        }
    }

    /// The head's object is no longer needed, for example because its pipeline is gone. The head is taken no matter what it waits for.
    pub fn hurry(&mut self) {
        if !matches!(self.phase, Phase::Busy(_)) {
            self.phase = Phase::Open;
        }
    }

    /// Number of failed attempts in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

pub(super) mod parked;
pub(super) mod redeliver;
pub mod schedule;
pub(super) mod supersede;
#[cfg(test)]
mod tests;
