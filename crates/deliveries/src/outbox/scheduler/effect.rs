//! What goes into the engine, and what comes out of it. Values only.
//!
//! In: [`Input`]s, each with the time of its turn ([`Now`]). Out: [`Effect`]s, which `driver` carries out in their order before the next
//! input. The end of a [`Task`] is an input again ([`Done`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::admission::Foreign;
use super::fair_queue::{AttemptOutcome, Turn};
use super::gauges::Gauges;
use crate::outbox::Command;
use crate::outbox::attempt::work::{Decided, Worked};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::index::{Gone, PipelineFacts};
use crate::outbox::store::journal::{Event, JournalError, New};
use relaybook_api::{ObjectName, Outcome, Time};
use relaybook_runtime::leader::Busy;
use relaybook_settings::config::EffectiveNotification;

/// The clocks at the start of a turn. Everything that the engine does in the turn happens at this time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The monotonic clock.
    pub(crate) mono: Instant,
    /// The wall clock.
    pub(crate) wall: Time,
    /// The time since boot.
    pub(crate) boot: Duration,
}

/// What happens to the engine.
pub(crate) enum Input {
    /// The dispatcher has recorded or offers something, or something has changed.
    Command(Command),
    /// The watch with this number has reported something.
    Watched(usize, Event),
    /// A task has ended.
    Done(Done),
    /// The time has come that the engine has named.
    Tick,
    /// The Lease was renewed, or buckets have moved. The engine retries what could not start because the Lease was too short. It is also
    /// the first input.
    Lease,
    /// The gauges are due.
    Measure,
    /// The process stops, so no more requests start.
    Stop,
}

/// The result of a task.
pub(crate) enum Done {
    /// An attempt has ended: its worker is free, and the result still has to be written.
    Attempted { turn: Turn, attempt_outcome: AttemptOutcome, decided: Box<Decided> },
    /// The work on a delivery of this lane has ended.
    Worked(LaneKey, Box<Worked>),
    /// The write of a superseded delivery of this lane has ended.
    Superseded(LaneKey, Box<Worked>),
    /// The write that reopens a delivery for redelivery has ended.
    Reopened(Box<Worked>),
    /// The write that records a delivery of a direct attempt as pending has ended.
    Recorded(ObjectName, Box<Result<Record, JournalError>>),
    /// These Deliveries were not in a source's list in this leadership term, and live reads showed that they are gone.
    Missing { source: usize, term: u64, gone: Vec<ObjectName> },
    /// A Delivery that Relaybook did not record was deleted, or the deletion failed.
    Expelled { id: ObjectName, foreign: Foreign, failed: Option<String> },
}

/// What the engine wants.
pub(crate) enum Effect {
    /// Start a task.
    Start(Task),
    /// Report a delivery whose outcome this replica has written.
    Settled(Box<Record>, Outcome),
    /// Tell the reporter of a delivery that needs a user's attention.
    Note(Box<Record>),
    /// Count a delivery that was reopened.
    Reopened,
    /// Count a Delivery that Relaybook did not record.
    Foreign,
    /// All recorded deliveries are known in this leadership term.
    Listed(u64),
    /// Set the gauges.
    Measured(Box<Gauges>),
}

/// Work that needs time.
pub(crate) enum Task {
    /// Make an attempt. It ends at `until`, by the clock since boot.
    Attempt {
        turn: Turn,
        record: Box<Record>,
        notification: Arc<EffectiveNotification>,
        facts: Arc<PipelineFacts>,
        failures: u32,
        until: Duration,
    },
    /// Write what was decided about the delivery in progress of a lane.
    Write { key: LaneKey, decided: Box<Decided>, limit: Limit },
    /// Write the outcome of a superseded delivery of a lane.
    Supersede(LaneKey, Box<Decided>),
    /// Cancel the delivery in progress of a lane, because this is gone. Unless `sure` is true, a live read must confirm that first.
    Cancel { key: LaneKey, record: Box<Record>, what: Gone, sure: bool },
    /// Write that a settled delivery is pending again.
    Reopen(Box<Decided>, Busy),
    /// Record a delivery of a direct attempt as pending.
    Record(ObjectName, New),
    /// Read which of these Deliveries, which the list of a source did not contain, are gone.
    ReadMissing { source: usize, term: u64, absent: Vec<ObjectName> },
    /// Delete a Delivery that Relaybook did not record.
    Expel { id: ObjectName, foreign: Foreign, busy: Busy },
}

/// Which limit of concurrent writes applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// That of outcomes.
    Outcomes,
    /// That of failed attempts that are retried.
    Failures,
    /// That of deliveries that are not sent.
    Aside,
}
