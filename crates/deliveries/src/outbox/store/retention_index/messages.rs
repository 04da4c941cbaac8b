//! Which delivery has the message that the next one about the same continues. Pure.
//!
//! In: deliveries as they are settled, reopened or deleted, in any order. Out: the message of the newest delivered one. Only this one keeps the values
//! of its message. If it is deleted, no delivery has a message.

use std::ops::Bound;
use std::sync::Arc;

use super::{RetentionIndex, Row, Rows, about};
use crate::outbox::lane::Place;
use crate::outbox::record::Record;
use relaybook_api::delivery::MessageThread;
use relaybook_api::{ObjectName, Time};

impl RetentionIndex {
    /// Returns the message that a delivery continues, and the delivery that has it: the newest delivered one of the lane about the same. `None`:
    /// there is none, or a later delivery was delivered before, so the text would be old.
    #[must_use]
    pub fn message(&self, record: &Record) -> Option<(&ObjectName, &Arc<MessageThread>)> {
        let rows = self.lanes.get(&record.home())?;
        let place = rows.open.get(&about(record)).filter(|place| **place < Place::from(&*record.spec))?;
        let row = rows.settled.get(place)?;
        Some((&row.id, row.message.as_ref()?))
    }

    /// Returns the serial of the newest earlier delivery about the same that was delivered. It may be that of another client, because the result must
    /// be the same in each term.
    #[must_use]
    pub fn delivered_before(&self, record: &Record) -> Option<i64> {
        let about = about(record);
        let mut earlier = self.lanes.get(&record.home())?.settled.range(..Place::from(&*record.spec)).rev();
        earlier.find(|(_, row)| row.about == about && row.ends_earlier).map(|(place, _)| place.serial())
    }

    /// Returns whether no later delivery about the same was delivered, or is redelivered. `is_known`: whether Relaybook has created a delivery.
    #[must_use]
    pub fn is_newest(&self, record: &Record, is_known: impl Fn(&ObjectName) -> bool) -> bool {
        let Some(rows) = self.lanes.get(&record.home()) else { return true };
        let (about, place) = (about(record), Place::from(&*record.spec));
        let later = (Bound::Excluded(place), Bound::Unbounded);
        let is_delivered =
            rows.settled.range(later).any(|(_, row)| row.about == about && row.ends_earlier && is_known(&row.id));
        !is_delivered && !rows.reopened.range(later).any(|(_, other)| *other == about)
    }
}

impl Rows {
    /// Ends the message of an earlier delivery about the same, because this one was delivered.
    pub(super) fn end_message(&mut self, about: u64, place: Place) {
        let Some(earlier) = self.open.get(&about).copied().filter(|earlier| *earlier < place) else { return };
        self.open.remove(&about);
        if let Some(row) = self.settled.get_mut(&earlier) {
            row.message = None;
        }
    }

    /// Begins a message, unless a later delivery about the same was delivered. Lists report deliveries in any order.
    pub(super) fn begin_message(&mut self, about: u64, place: Place) -> bool {
        let mut later = self.settled.range((Bound::Excluded(place), Bound::Unbounded));
        let is_newest = !later.any(|(_, row)| row.about == about && row.ends_earlier);
        if is_newest {
            self.open.insert(about, place);
        }
        is_newest
    }
}

impl Row {
    /// Until when later deliveries can continue its message.
    pub(super) fn message_end(&self) -> Option<Time> {
        self.message.as_ref().map(|thread| thread.expiration_time)
    }
}
