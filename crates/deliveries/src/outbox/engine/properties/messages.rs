//! The messages at the receiver, as a model: a request creates a message, or replaces the text of one.
//!
//! In: requests, when they start and when they are accepted. Out: the thread that a real answer would give. It is an error if an old text replaces
//! a newer one, or if a message is created although the last one can be continued.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::server::{Server, lane_of};
use super::world::Checked;
use crate::outbox::lane::redeliver::wanted;
use crate::outbox::lane::thread::Before;
use crate::outbox::record::Record;
use relaybook_api::delivery::MessageThread;
use relaybook_api::{Outcome, Time};

/// Every change with such a serial closes its message.
const CLOSES: i64 = 5;

/// One message.
#[derive(Debug)]
struct Message {
    lane: usize,
    /// The serial of the newest text that was sent to it.
    newest: i64,
}

/// All messages, by the ID that the receiver gave them.
#[derive(Debug, Default)]
pub(super) struct Messages {
    all: BTreeMap<i64, Message>,
    /// For each delivery in its lane, the delivered one before it. The identity of an object at a receiver depends on it.
    before: BTreeMap<(i64, String), Option<i64>>,
}

impl Messages {
    /// Checks a request that starts now. Returns what it does, for statistics.
    pub(super) fn requested(
        &mut self,
        server: &Server,
        record: &Record,
        before: &Before,
    ) -> Result<Option<&'static str>, TestCaseError> {
        let (serial, lane) = (record.spec.serial, lane_of(&record.spec));
        // A redelivery can be delivered between two attempts of a later delivery. Users can delete what was delivered, and other clients can create what
        // was not.
        let is_calm = server.deleted.is_empty() && server.forged.is_empty();
        let is_calm = is_calm && server.objects.values().all(|object| object.status.redelivered.is_none());
        if is_calm && !record.again {
            let first = *self.before.entry((serial, record.spec.lane.clone())).or_insert(before.serial);
            prop_assert_eq!(first, before.serial, "{} has another identity in its next attempt", serial);
        }
        let Some(message) = before.open() else { return created(server, record, lane).map(|()| None) };
        let known = message.values["id"].parse().ok().and_then(|id: i64| self.all.get_mut(&id));
        let Some(known) = known else { return Err(TestCaseError::fail(format!("{serial} continues an unknown message"))) };
        prop_assert!(!record.again, "the redelivery of {serial} changes a message");
        prop_assert_eq!(known.lane, lane, "{} continues a message of another subject", serial);
        // A user has deleted it before the cursor was stored, so it is recorded and sent again after a crash. A later one that is not settled follows it.
        // One that another client has created is in doubt, so it is no reason not to continue the message.
        let is_last = |newer: &Record| newer.status.outcome.is_some() && !server.forged.contains(&newer.spec.serial);
        let is_restored = server.deleted.contains_key(&serial) && !server.objects.get(&known.newest).is_some_and(is_last);
        prop_assert!(known.newest <= serial || is_restored, "the text of {serial} replaces that of {}", known.newest);
        // Without the outcome of its last text, nothing says that the message has ended.
        let last = server.objects.get(&known.newest).filter(|_| known.newest != serial);
        let is_closed = last.and_then(|object| object.status.thread.as_ref()).is_some_and(|thread| thread.closed);
        prop_assert!(!is_closed, "{serial} continues a message that has ended");
        known.newest = serial;
        Ok(Some("continued a message"))
    }

    /// Returns the thread of a request that was accepted.
    pub(super) fn accepted(&mut self, record: &Record, message: Option<&MessageThread>) -> MessageThread {
        let (serial, lane) = (record.spec.serial, lane_of(&record.spec));
        let closed = serial % CLOSES == 0;
        if let Some(message) = message {
            return MessageThread { closed, ..message.clone() };
        }
        let id = i64::try_from(self.all.len()).unwrap_or(i64::MAX);
        self.all.insert(id, Message { lane, newest: serial });
        MessageThread {
            key: "k".to_owned(),
            id: String::new(),
            origin: "o".to_owned(),
            expiration_time: Time::MAX,
            closed,
            values: [("id".to_owned(), id.to_string())].into(),
        }
    }
}

/// Checks that a request creates a message only if there is none that it can continue.
fn created(server: &Server, record: &Record, lane: usize) -> Checked {
    let is_sent = |object: &&Record| {
        lane_of(&object.spec) == lane
            && object.spec.lane == record.spec.lane
            && (object.status.outcome == Some(Outcome::Delivered) || object.status.thread.is_some())
    };
    let newest = server.objects.values().filter(is_sent).max_by_key(|object| object.spec.serial);
    let is_open = newest.is_some_and(|object| {
        // If the dispatcher is stopped, the engine waits only for some time until it knows who created a Delivery that is newer than the persisted
        // time. It can learn of a redelivery, or of a deletion, later.
        object.spec.serial < record.spec.serial
            && (!server.was_full || server.recorded.is_some_and(|until| object.recorded <= until))
            && server.forged.is_empty()
            // The dispatcher passes the changes of a target that is gone without comparing them.
            && !server.is_dead(object.spec.serial)
            && object.status.redelivered.is_none()
            && wanted(object).is_none()
            && server.deleted.keys().all(|serial| *serial < object.spec.serial)
            && object.status.thread.as_ref().is_some_and(|thread| !thread.closed)
    });
    prop_assert!(record.again || !is_open, "{} creates a message, but could continue one", record.spec.serial);
    Ok(())
}
