//! One lane: a FIFO with at most one delivery in progress. Pure.
//!
//! The central rule: a delivery is first sent only after the previous delivery is settled *and* its outcome is written. So a lane is busy
//! from the moment its head is taken until the write for the head is answered. Only [`Lane::take`] starts work on a delivery.

use std::collections::BTreeMap;
use std::time::Instant;

use relaybook_api::{DeliverySpec, Time, TransitionType};

/// A delivery's place in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    order: i64,
    /// The due time of a delivery that is sent only if a state lasts for a given time. Such a delivery follows the change that its `order`
    /// names. If there are several, the earliest due time comes first.
    due: Option<Time>,
    serial: i64,
    type_: TransitionType,
}

impl Place {
    /// Returns the serial of the change.
    #[must_use]
    pub fn serial(self) -> i64 {
        self.serial
    }
}

impl From<&DeliverySpec> for Place {
    fn from(spec: &DeliverySpec) -> Self {
        let (order, due, serial, type_) = spec.place();
        Self { order, due, serial, type_ }
    }
}

/// The phase of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The head can be taken.
    Open,
    /// The head is retried at `until`. `asked`: whether the receiver requested that time.
    Waiting { until: Instant, asked: bool },
    /// The head cannot be sent at present. The lane checks it again after an event, or at `until`.
    Held { until: Option<Instant> },
    /// The delivery at this place is in progress: it is being checked or sent, or its outcome is being written.
    Busy(Place),
}

/// Whether the lane has something to do, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing is pending.
    Empty,
    /// The head is in progress, or a write of a superseded delivery is.
    Busy,
    /// The head is due at this time.
    At(Instant),
    /// The head is due only after an event.
    Held,
    /// The head is due now.
    Now,
}

/// The result for the delivery that was in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The delivery is settled and its outcome is written. If the receiver responded, the count of failures restarts.
    Settled {
        /// Whether the receiver sent a final response.
        answered: bool,
    },
    /// The attempt failed and its result is written.
    Retry {
        /// When to try again.
        until: Instant,
        /// Whether the receiver requested that time.
        asked: bool,
    },
    /// Nothing was sent.
    Hold {
        /// When the lane checks again without an event.
        until: Option<Instant>,
    },
    /// Nothing was sent; the delivery can be taken again at once.
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

    /// Removes a delivery that a user has deleted or another replica has settled. A delivery in progress stays until its own write detects
    /// that.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        if self.phase == Phase::Busy(place) {
            return None;
        }
        let was_head = self.queue.keys().next() == Some(&place);
        let item = self.queue.remove(&place)?;
        // A time that the receiver has requested applies to the whole lane, so it stays. A backoff of our own applied only to the removed
        // delivery.
        if was_head && matches!(self.phase, Phase::Held { .. } | Phase::Waiting { asked: false, .. }) {
            self.phase = Phase::Open;
        }
        Some(item)
    }

    /// Replaces a delivery that is not in progress with a newer copy.
    pub fn replace(&mut self, place: Place, item: T) {
        if self.phase != Phase::Busy(place) {
            self.queue.insert(place, item);
        }
    }

    /// Sets the wait of the head from its stored object, at the start of a leadership term. `waits`: the time of the next attempt, the
    /// number of failures, and whether the receiver requested that time. `None`: the head does not wait, and the failures are counted
    /// from 0, because another replica may have settled the previous head. A delivery that is in progress continues.
    pub fn resume(&mut self, waits: Option<(Instant, u32, bool)>) {
        if matches!(self.phase, Phase::Busy(_)) {
            return;
        }
        (self.phase, self.failures) = match waits {
            Some((until, failures, asked)) => (Phase::Waiting { until, asked }, failures),
            None => (Phase::Open, 0),
        };
    }

    /// Returns whether the lane has something to do.
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

    /// Returns whether the head cannot be sent at present.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held { .. })
    }

    /// Returns the first delivery in order.
    #[must_use]
    pub fn head(&self) -> Option<&T> {
        self.queue.values().next()
    }

    /// Returns all deliveries, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Place, &T)> + ExactSizeIterator {
        self.queue.iter().map(|(place, item)| (*place, item))
    }

    /// Returns the number of pending deliveries.
    #[must_use]
    pub fn count(&self) -> usize {
        self.queue.len()
    }

    /// Returns the place of the delivery in progress.
    #[must_use]
    pub fn at_work(&self) -> Option<Place> {
        match self.phase {
            Phase::Busy(place) => Some(place),
            _ => None,
        }
    }

    /// Removes deliveries that later ones supersede. Nothing is sent until [`Lane::superseded`] was called for each of them. The lane keeps
    /// its wait, because the backoff and the time that the receiver requested apply to the lane.
    pub fn supersede(&mut self, places: &[Place]) -> Vec<T> {
        let head = self.queue.keys().next().copied();
        let taken: Vec<_> = places.iter().filter_map(|place| self.queue.remove(place)).collect();
        self.marking += taken.len();
        if self.queue.keys().next().copied() != head && matches!(self.phase, Phase::Held { .. }) {
            self.phase = Phase::Open;
        }
        taken
    }

    /// Ends the write of one superseded delivery.
    pub fn superseded(&mut self) {
        self.marking = self.marking.saturating_sub(1);
    }

    /// Returns whether a write of a superseded delivery is in progress.
    #[must_use]
    pub fn is_marking(&self) -> bool {
        self.marking > 0
    }

    /// Returns the delivery at this place.
    #[must_use]
    pub fn get(&self, place: Place) -> Option<&T> {
        self.queue.get(&place)
    }

    /// Returns the delivery in progress.
    pub fn busy(&mut self) -> Option<&mut T> {
        match self.phase {
            Phase::Busy(place) => self.queue.get_mut(&place),
            _ => None,
        }
    }

    /// Takes the head if it is due. It is then in progress.
    pub fn take(&mut self, now: Instant) -> Option<&T> {
        if self.due(now) != Due::Now {
            return None;
        }
        let (place, item) = self.queue.first_key_value()?;
        self.phase = Phase::Busy(*place);
        Some(item)
    }

    /// Ends the work on the delivery in progress. Returns the delivery if it is settled.
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

    /// Makes the lane check a held head again, because something outside the lane has changed. `retry`: whether the change may fix the
    /// cause of the last failure. Then a head in backoff is retried, too, unless the receiver requested the wait.
    pub fn wake(&mut self, retry: bool) {
        match self.phase {
            Phase::Held { .. } => self.phase = Phase::Open,
            Phase::Waiting { asked: false, .. } if retry => self.phase = Phase::Open,
            _ => {}
        }
    }

    /// Ends the wait of the head, whatever it waits for. Callers use this if the head can be canceled, for example because its pipeline is
    /// gone.
    pub fn hurry(&mut self) {
        if !matches!(self.phase, Phase::Busy(_)) {
            self.phase = Phase::Open;
        }
    }

    /// Returns the number of consecutive failed attempts.
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
pub mod thread;
