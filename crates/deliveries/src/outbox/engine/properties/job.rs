//! The tasks in progress. A task makes one call at a time.
//!
//! In: what the engine and the dispatcher want. Out: for each task its lane, and the call that it makes.

use std::sync::Arc;

use super::server::{self, Fate, Server};
use crate::outbox::engine::effect::{Done, Now, Task};
use crate::outbox::engine::state::admission::Foreign;
use crate::outbox::engine::state::fair_queue::Turn;
use crate::outbox::engine::writes::{Call, Kind, Write};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::index::Gone;
use crate::outbox::store::journal::New;
use relaybook_api::ObjectName;
use relaybook_api::delivery::MessageThread;
use relaybook_settings::config::Retry;

/// A task in progress.
pub(super) enum Job {
    Attempt {
        turn: Turn,
        record: Box<Record>,
        retry: Retry,
        /// The message that it continues.
        message: Option<Arc<MessageThread>>,
        began: Now,
    },
    Write(Box<Write>),
    /// The engine believes that it is written already.
    Unawaited(Box<Write>),
    /// The dispatcher records the next delivery of a lane.
    Create(usize, New),
    Expel {
        id: ObjectName,
        foreign: Foreign,
    },
    /// A live read confirms that this is gone. The number is the target of the delivery.
    Verify {
        lane: LaneKey,
        target: usize,
        what: Gone,
    },
    /// The Deliveries are read one after the other.
    Missing {
        source: usize,
        term: u64,
        absent: Vec<ObjectName>,
        gone: Vec<ObjectName>,
    },
    /// The engine does not know yet that the task has ended.
    Ended(Box<Done>),
}

impl Job {
    pub(super) fn of(task: Task, now: Now) -> Self {
        match task {
            Task::Attempt { turn, record, notification, before, .. } => {
                let message = before.message.filter(|_| before.is_open);
                Self::Attempt { turn, record, retry: notification.delivery.retry, message, began: now }
            }
            Task::Write(write) => Self::Write(write),
            Task::Expel { id, foreign } => Self::Expel { id, foreign },
            Task::ReadMissing { source, term, absent } => Self::Missing { source, term, absent, gone: Vec::new() },
            Task::Verify { lane, spec, what, .. } => Self::Verify { lane, target: server::lane_of(&spec), what },
        }
    }

    /// Returns the lane that is busy because of it.
    pub(super) fn lane(&self) -> Option<&LaneKey> {
        match self {
            Self::Attempt { turn, .. } => Some(&turn.lane),
            Self::Write(write) => lane(write),
            Self::Verify { lane, .. } => Some(lane),
            Self::Ended(done) => match &**done {
                Done::Attempted { turn, .. } => Some(&turn.lane),
                Done::Answered(write, _) => lane(write),
                Done::Verified { lane, .. } => Some(lane),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns its call that can be applied although the process is killed.
    pub(super) fn call(&self) -> Option<server::Call> {
        match self {
            Self::Write(write) | Self::Unawaited(write) => Some(match write.call() {
                Call::Create(new, status) => server::Call::Create(new, status.cloned()),
                Call::Patch(record, status) => server::Call::Write(Box::new(record.clone()), status.clone()),
            }),
            Self::Create(_, new) => Some(server::Call::Create(new.clone(), None)),
            Self::Expel { id, foreign, .. } => Some(server::Call::Delete(id.clone(), foreign.version)),
            _ => None,
        }
    }
}

/// Returns the lane that is busy because of a write.
pub(super) fn lane(write: &Write) -> Option<&LaneKey> {
    match &write.kind {
        Kind::Lane(key) | Kind::Superseded(key) => Some(key),
        Kind::Reopened | Kind::Pending => None,
    }
}

/// Reads the next one of the Deliveries: `Journal::gone`.
pub(super) fn read_next(
    source: usize,
    term: u64,
    mut absent: Vec<ObjectName>,
    mut gone: Vec<ObjectName>,
    server: &Server,
    fate: Fate,
) -> Job {
    if matches!(fate, Fate::Answered) {
        gone.extend(absent.pop().filter(|id| server.find(id).is_none()));
    }
    if absent.is_empty() {
        return Job::Ended(Box::new(Done::Missing { source, term, gone }));
    }
    Job::Missing { source, term, absent, gone }
}
