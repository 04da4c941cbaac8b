//! What goes into the engine, and what comes out of it. Values only.
//!
//! In: [`Input`]s, each with the time of its turn ([`Now`]) and what others know ([`Facts`]). Out: [`Effect`]s, which `driver` carries out in
//! their order before the next input. The end of a [`Task`] is an input again ([`Done`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use url::Url;

use super::gauges::Gauges;
use super::state::admission::Foreign;
use super::state::fair_queue::Turn;
use super::writes::{Answered, Write};
use crate::outbox::attempt::decided::Attempted;
use crate::outbox::lane::thread::Before;
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::index::{Gone, Known, PipelineFacts};
use crate::outbox::store::delivery_index::DeliveryIndex;
use crate::outbox::store::journal::{Event, Health};
use crate::outbox::test_delivery::TestsKept;
use crate::outbox::{Answer, Command};
use relaybook_api::{DeliverySpec, ObjectName, Outcome, Time};
use relaybook_core::leader::bucket::{Bucket, Buckets};
use relaybook_egress::{Destination, Receivers, RequestError};
use relaybook_runtime::leader::LeaseView;
use relaybook_settings::config::{self, EffectiveNotification, Retry, Sending};

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

/// What others know during a turn. Nothing here makes a call.
pub(crate) struct Facts<'a> {
    /// What the Lease allows.
    pub(crate) lease: LeaseView<'a>,
    /// The buckets that the driver holds. Those that the Lease has gained are among them, and those that it gives away until the engine
    /// releases them.
    pub(crate) held: Buckets,
    /// Pipelines and notifications. They do not change during the turn.
    pub(crate) pipelines: &'a Known,
    /// All deliveries. The engine, its tasks and the dispatcher write to it.
    pub(crate) delivery_index: &'a DeliveryIndex,
    /// The Deliveries of tests.
    pub(crate) tests_kept: &'a TestsKept,
    /// Whether the API server accepts deliveries.
    pub(crate) health: &'a Health,
    /// The origins of receivers.
    pub(crate) receivers: Receivers<'a>,
}

impl Facts<'_> {
    /// Returns whether the deliveries of a pipeline are this replica's to send.
    pub(crate) fn is_ours(&self, pipeline_uid: &str) -> bool {
        self.held.contains(Bucket::of(pipeline_uid)) && self.lease.owns(pipeline_uid)
    }

    /// Returns whether an action may start that takes at most this long.
    pub(crate) fn allows(&self, duration: Duration, now: Now) -> bool {
        self.lease.until(duration, Duration::ZERO, now.boot).is_some()
    }

    /// Returns the origin of a receiver, even if its URL is in a Secret. All lanes to this receiver share the origin.
    pub(crate) fn origin(&self, sending: &Sending) -> String {
        let destination = match &sending.destination {
            config::Destination::Url(url) => Url::parse(url.origin()).map(Destination::Url).ok(),
            config::Destination::Secret(key) => Some(Destination::Secret(key.clone())),
        };
        // If the Secret has not been read yet, only the name of the Secret is known.
        destination.and_then(|destination| self.receivers.origin(&destination)).unwrap_or_else(|| sending.origin())
    }
}

/// The number of a command. The driver keeps the sender of its answer, if one is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub(crate) u64);

/// What happens to the engine.
pub(crate) enum Input {
    /// The dispatcher has recorded or offers something, or something has changed.
    Command(Ticket, Command),
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
    /// An attempt has ended, or its request could not be built. Its worker is free. `retry`: the settings with which it was made.
    Attempted { turn: Turn, retry: Retry, attempt: Box<Result<Attempted, RequestError>> },
    /// The call of a write has ended.
    Answered(Box<Write>, Answered),
    /// A live read has shown whether what the delivery in progress of a lane needs is gone. `None`: it has failed.
    Verified { lane: LaneKey, what: Gone, is_gone: Option<bool> },
    /// These Deliveries were not in a source's list in this leadership term, and live reads showed that they are gone.
    Missing { source: usize, term: u64, gone: Vec<ObjectName> },
    /// A Delivery that Relaybook did not record was deleted, or the deletion failed.
    Expelled { id: ObjectName, foreign: Foreign, failed: Option<String> },
}

/// What the engine wants.
pub(crate) enum Effect {
    /// Start a task.
    Start(Task),
    /// Answer the command with this number.
    Answer(Ticket, Answer),
    /// Hand over a bucket that the Lease gives away.
    Release(Bucket),
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
    /// Render and send a request. It ends at `until`, by the clock since boot.
    Attempt {
        turn: Turn,
        record: Box<Record>,
        notification: Arc<EffectiveNotification>,
        facts: Arc<PipelineFacts>,
        /// What was delivered before about the same subject. The delivery continues its message, if its key is that of the message.
        before: Before,
        until: Duration,
    },
    /// Make the next call of a write.
    Write(Box<Write>),
    /// Read whether what the delivery in progress of a lane needs is gone.
    Verify { lane: LaneKey, namespace: String, spec: Arc<DeliverySpec>, what: Gone },
    /// Read which of these Deliveries, which the list of a source did not contain, are gone.
    ReadMissing { source: usize, term: u64, absent: Vec<ObjectName> },
    /// Delete a Delivery that Relaybook did not record.
    Expel { id: ObjectName, foreign: Foreign },
}
