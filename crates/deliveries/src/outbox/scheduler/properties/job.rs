//! The tasks in progress. A task makes one call at a time.
//!
//! In: what the engine and the dispatcher want. Out: for each task its lane, and the call that it makes.

use std::time::Duration;

use super::server::{Call, Fate, Server};
use crate::outbox::attempt::decide;
use crate::outbox::attempt::work::{Decided, Worked};
use crate::outbox::lane::After;
use crate::outbox::lane::redeliver::noted;
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::scheduler::admission::Foreign;
use crate::outbox::scheduler::effect::{Done, Now, Task};
use crate::outbox::scheduler::fair_queue::Turn;
use crate::outbox::send_gate::index::{Gone, PipelineIndex, SendDecision};
use crate::outbox::store::journal::New;
use relaybook_api::ObjectName;
use relaybook_runtime::leader::Busy;
use relaybook_settings::config::Retry;

/// For whom a result is written.
pub(super) enum For {
    Lane(LaneKey),
    Superseded(LaneKey),
    Reopened(Busy),
    /// The engine believes that it is written already.
    Nobody,
}

/// A task in progress.
pub(super) enum Job {
    Attempt {
        turn: Turn,
        record: Box<Record>,
        retry: Retry,
        failures: u32,
        began: Now,
    },
    Store(For, Box<Decided>),
    Record(ObjectName, New),
    /// The dispatcher records the next delivery of a lane.
    Create(usize, New),
    Expel {
        id: ObjectName,
        foreign: Foreign,
        busy: Busy,
    },
    /// A live read confirms that this is gone.
    Confirm {
        key: LaneKey,
        record: Box<Record>,
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
            Task::Attempt { turn, record, notification, failures, .. } => {
                Self::Attempt { turn, record, retry: notification.delivery.retry, failures, began: now }
            }
            Task::Write { key, decided, .. } => Self::Store(For::Lane(key), decided),
            Task::Supersede(key, decided) => Self::Store(For::Superseded(key), decided),
            Task::Reopen(decided, busy) => Self::Store(For::Reopened(busy), decided),
            Task::Record(id, new) => Self::Record(id, new),
            Task::Expel { id, foreign, busy } => Self::Expel { id, foreign, busy },
            Task::ReadMissing { source, term, absent } => Self::Missing { source, term, absent, gone: Vec::new() },
            Task::Cancel { key, record, what, sure: true } => {
                Self::Store(For::Lane(key), Box::new(canceled(*record, what, now)))
            }
            Task::Cancel { key, record, what, sure: false } => Self::Confirm { key, record, what },
        }
    }

    /// Returns the lane that is busy because of it.
    pub(super) fn lane(&self) -> Option<&LaneKey> {
        match self {
            Self::Attempt { turn, .. } => Some(&turn.lane),
            Self::Store(For::Lane(key) | For::Superseded(key), _) | Self::Confirm { key, .. } => Some(key),
            Self::Ended(done) => match &**done {
                Done::Attempted { turn, .. } => Some(&turn.lane),
                Done::Worked(key, _) | Done::Superseded(key, _) => Some(key),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns its call that can be applied although the process is killed.
    pub(super) fn call(&self) -> Option<Call> {
        match self {
            Self::Store(_, decided) if !decided.is_stored() => {
                let (record, status, _) = decided.parts();
                let is_recorded = record.is_recorded();
                let write = || Call::Write(Box::new(record.clone()), status.clone());
                Some(if is_recorded { write() } else { Call::Create(to_create(record), Some(status.clone())) })
            }
            Self::Record(_, new) | Self::Create(_, new) => Some(Call::Create(new.clone(), None)),
            Self::Expel { id, foreign, .. } => Some(Call::Delete(id.clone(), foreign.version)),
            _ => None,
        }
    }
}

pub(super) fn to_create(record: &Record) -> New {
    New { namespace: record.id.namespace.clone(), elsewhere: None, spec: record.spec.clone() }
}

/// The outcome Canceled: `work::cancel`.
fn canceled(record: Record, what: Gone, now: Now) -> Decided {
    let status = noted(&record, decide::canceled(&record.status, what.reason(), now.wall), now.wall);
    // The same follows for the lane.
    Decided::superseded(record, status)
}

/// Continues after the live read, whose result is `None` if it has failed: `work::cancel`.
pub(super) fn confirmed(
    key: LaneKey,
    record: Record,
    what: Gone,
    is_gone: Option<bool>,
    index: &PipelineIndex,
    now: Now,
) -> Job {
    if is_gone == Some(true) && matches!(index.find(&record.spec), SendDecision::Gone { .. }) {
        return Job::Store(For::Lane(key), Box::new(canceled(record, what, now)));
    }
    let after = After::Hold { until: Some(now.mono + Duration::from_secs(5)) };
    let worked = Worked { record, after, gone: false, instead: None, is_written: false };
    Job::Ended(Box::new(Done::Worked(key, Box::new(worked))))
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
