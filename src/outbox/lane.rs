//! One lane: a FIFO with at most one delivery at work. Pure.
//!
//! The rule that everything hangs on: a delivery is first sent only after the one before it is settled *and* that was written.
//! So a lane is busy from the moment its head is taken until the answer to the head's write is back, and only [`Lane::take`]
//! hands out work.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::api::{DeliverySpec, Time, TransitionType};

/// A delivery's place in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    order: i64,
    /// Of one that had to hold for a time: behind the change that its order names, and the first to be due first.
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

/// What the lane is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The head may be taken.
    Open,
    /// The head is tried again then. `asked`: the receiver named the time.
    Waiting { until: Instant, asked: bool },
    /// The head cannot be sent as things are; something outside must change, or the time come to look again.
    Held { until: Option<Instant> },
    /// The delivery at this place is at work: looked up, sent, or its outcome being written.
    Busy(Place),
}

/// Whether there is something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing pending.
    Empty,
    /// The head is at work.
    Busy,
    /// Not before this.
    At(Instant),
    /// Only when something changes.
    Held,
    /// Now.
    Now,
}

/// What became of the delivery that was at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It is settled and that is written. `answered`: the receiver spoke, so the next failure is a first one.
    Settled {
        /// Whether the receiver answered for good.
        answered: bool,
    },
    /// Its attempt failed and that is written.
    Retry {
        /// When to try again.
        until: Instant,
        /// Whether the receiver named that time.
        asked: bool,
    },
    /// Nothing was sent.
    Hold {
        /// When to look again without being told.
        until: Option<Instant>,
    },
    /// Nothing was done; it may be taken again at once.
    Nothing,
}

/// The deliveries of one notification for one subject, in order. `T` is what the caller keeps of each.
#[derive(Debug)]
pub struct Lane<T> {
    queue: BTreeMap<Place, T>,
    phase: Phase,
    failures: u32,
    /// Superseded ones of which that is being written; nothing is sent meanwhile.
    marking: usize,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { queue: BTreeMap::new(), phase: Phase::Open, failures: 0, marking: 0 }
    }
}

impl<T> Lane<T> {
    /// Adds a recorded delivery; `false` if it is there already.
    pub fn insert(&mut self, place: Place, item: T) -> bool {
        match self.queue.entry(place) {
            std::collections::btree_map::Entry::Occupied(_) => false,
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(item);
                true
            }
        }
    }

    /// Takes one out that a person has deleted or another has settled. One that is at work stays until its write finds out.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        if self.phase == Phase::Busy(place) {
            return None;
        }
        let was_head = self.queue.keys().next() == Some(&place);
        let item = self.queue.remove(&place)?;
        // A time that the receiver has named is the lane's, and stays; a gap of our own was for the one that is gone.
        if was_head && matches!(self.phase, Phase::Held { .. } | Phase::Waiting { asked: false, .. }) {
            self.phase = Phase::Open;
        }
        Some(item)
    }

    /// Takes over a newer copy of one that is not at work.
    pub fn replace(&mut self, place: Place, item: T) {
        if self.phase != Phase::Busy(place) {
            self.queue.insert(place, item);
        }
    }

    /// At the beginning of a turn: the head waits as its object says, if it says so: until when, after how many failures, and
    /// whether the receiver named that time. One that is still at work goes on.
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

    /// Whether there is something to do.
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

    /// Whether its head is not to be sent as things are.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held { .. })
    }

    /// The first in order.
    #[must_use]
    pub fn head(&self) -> Option<&T> {
        self.queue.values().next()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Place, &T)> + ExactSizeIterator {
        self.queue.iter().map(|(place, item)| (*place, item))
    }

    /// How many are pending.
    #[must_use]
    pub fn count(&self) -> usize {
        self.queue.len()
    }

    /// The place of the one at work.
    #[must_use]
    pub fn at_work(&self) -> Option<Place> {
        match self.phase {
            Phase::Busy(place) => Some(place),
            _ => None,
        }
    }

    /// Takes out what later ones replace. Nothing is sent until [`Lane::superseded`] was called for each. What the lane waits
    /// for it goes on waiting for: the back-off and the receiver's wish are the lane's.
    pub fn supersede(&mut self, places: &[Place]) -> Vec<T> {
        let head = self.queue.keys().next().copied();
        let taken: Vec<_> = places.iter().filter_map(|place| self.queue.remove(place)).collect();
        self.marking += taken.len();
        if self.queue.keys().next().copied() != head && matches!(self.phase, Phase::Held { .. }) {
            self.phase = Phase::Open;
        }
        taken
    }

    /// That one is superseded is written.
    pub fn superseded(&mut self) {
        self.marking = self.marking.saturating_sub(1);
    }

    /// Whether something is being written about superseded ones.
    #[must_use]
    pub fn is_marking(&self) -> bool {
        self.marking > 0
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, place: Place) -> Option<&T> {
        self.queue.get(&place)
    }

    /// The one at work.
    pub fn busy(&mut self) -> Option<&mut T> {
        match self.phase {
            Phase::Busy(place) => self.queue.get_mut(&place),
            _ => None,
        }
    }

    /// Takes the head to work on, if it is due.
    pub fn take(&mut self, now: Instant) -> Option<&T> {
        if self.due(now) != Due::Now {
            return None;
        }
        let (place, item) = self.queue.first_key_value()?;
        self.phase = Phase::Busy(*place);
        Some(item)
    }

    /// The work on the taken one is over. Gives back a settled one.
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

    /// Something outside has changed: a held head is looked at again. `retry`: it may be why the last attempt failed, so one that
    /// waits for a time of our own choosing is tried again, too.
    pub fn wake(&mut self, retry: bool) {
        match self.phase {
            Phase::Held { .. } => self.phase = Phase::Open,
            Phase::Waiting { asked: false, .. } if retry => self.phase = Phase::Open,
            _ => {}
        }
    }

    /// The head's object is of no use any more (its pipeline is gone): it is taken whatever it waits for.
    pub fn hurry(&mut self) {
        if !matches!(self.phase, Phase::Busy(_)) {
            self.phase = Phase::Open;
        }
    }

    /// Failed attempts in a row.
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
