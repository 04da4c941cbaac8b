//! Writes of what was decided about deliveries, until the API server has taken it: what follows after each call. Pure.
//!
//! In: a [`Write`], and the answer to its call. Out: [`Next`]: it has ended, or another call follows, now or after a pause. The lane waits
//! meanwhile. So a delivery is never sent again only because its result was not written. A delivery that has no object yet is created together
//! with its result.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::effect::Now;
use crate::outbox::attempt::decided::{Decided, Worked};
use crate::outbox::lane::{After, redeliver, schedule};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::store::journal::{JournalError, New, Written, is_reopened, keep_history};
use relaybook_api::{Backoff, DeliveryStatus};

/// The pauses after failed calls of a write.
const PAUSES: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What was decided about the delivery in progress of this lane.
    Lane(LaneKey),
    /// The outcome of a superseded delivery of this lane.
    Superseded(LaneKey),
    /// That a settled delivery is pending again.
    Reopened,
    /// A pending delivery that has no object yet. Its attempt can be under way. A failed call is not repeated before the next offer.
    Pending,
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

/// A write that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) kind: Kind,
    pub(crate) decided: Decided,
    limit: Limit,
    /// How many calls have failed in a row.
    failures: u32,
}

/// The next call of a write.
pub(crate) enum Call<'a> {
    /// Create the object, with this status.
    Create(New, Option<&'a DeliveryStatus>),
    /// Write this status to the object.
    Patch(&'a Record, &'a DeliveryStatus),
}

/// The answer to a call.
#[derive(Debug)]
pub(crate) enum Answered {
    /// The object that now has the name.
    Created(Box<Result<Record, JournalError>>),
    /// What has happened to the object.
    Patched(Result<Written, JournalError>),
}

/// What follows after a call.
#[derive(Debug)]
pub(crate) enum Next {
    /// The write has ended.
    Ended(Kind, Box<Worked>),
    /// The next call.
    Call(Box<Write>),
    /// The call has failed. The next one follows after this pause.
    Pause(Box<Write>, Duration, JournalError),
}

impl Write {
    pub(crate) fn new(kind: Kind, decided: Decided, limit: Limit) -> Box<Self> {
        Box::new(Self { kind, decided, limit, failures: 0 })
    }

    /// Returns the next call.
    pub(crate) fn call(&self) -> Call<'_> {
        let Decided { record, status, .. } = &self.decided;
        if record.is_recorded() && self.kind != Kind::Pending {
            return Call::Patch(record, status);
        }
        let new = New { namespace: record.id.namespace.clone(), elsewhere: None, spec: record.spec.clone() };
        Call::Create(new, Some(status).filter(|_| self.kind != Kind::Pending))
    }

    /// Returns which limit applies to its status writes. Creates do not wait for a permit: a pass of the dispatcher waits for them, and status
    /// writes that hang must not block the log.
    pub(crate) fn limit(&self) -> Limit {
        self.limit
    }

    /// Decides what follows after a call. `is_left`: whether the pipeline of the delivery is gone. Then nothing derives the delivery again, and
    /// its namespace may be gone as well. `chance`: random, in 0..1.
    pub(crate) fn next(self: Box<Self>, answered: Answered, is_left: bool, chance: f64, now: Now) -> Next {
        let Self { kind, decided, limit, mut failures } = *self;
        let (decided, error) = match answered {
            Answered::Created(made) => match *made {
                Ok(stored) => match created(decided, stored, now) {
                    Ok(worked) => return Next::Ended(kind, worked),
                    Err(pending) => return Next::Call(Self::new(kind, *pending, limit)),
                },
                Err(error) if error.is_refused() && is_left => {
                    return Next::Ended(kind, Box::new(Worked::gone(decided.record, None)));
                }
                Err(error) => (decided, Some(error)),
            },
            Answered::Patched(Ok(answer)) => match written(decided, answer, now) {
                Ok(worked) => return Next::Ended(kind, worked),
                Err(again) => (*again, None),
            },
            Answered::Patched(Err(error)) => (decided, Some(error)),
        };
        let pause = error.map(|error| (PAUSES.next(&mut failures).mul_f64(1.0 + chance), error));
        let write = Box::new(Self { kind, decided, limit, failures });
        match pause {
            None => Next::Call(write),
            Some((pause, error)) => Next::Pause(write, pause, error),
        }
    }
}

/// Decides what follows after a create: `stored` is the object that now has the name. `Err`: this still has to be written to it.
fn created(mut decided: Decided, stored: Record, now: Now) -> Result<Box<Worked>, Box<Decided>> {
    if stored.status == decided.status {
        decided.record.adopt(&stored);
        let record = Record { status: decided.status, ..decided.record };
        return Ok(Box::new(Worked { is_written: true, ..Worked::unwritten(record, decided.after) }));
    }
    if is_reopened(&decided.record.status, &stored.status) {
        return Ok(Box::new(reopened(decided, stored)));
    }
    if is_later(&stored.status, &decided.status) {
        return Ok(Box::new(overtaken(&decided.record, stored, now)));
    }
    // An earlier write has recorded it as pending.
    decided.record.adopt(&stored);
    decided.record.status = stored.status;
    Err(Box::new(decided))
}

/// Decides what follows after the answer to a status write. `Err`: this has to be written instead.
fn written(decided: Decided, written: Written, now: Now) -> Result<Box<Worked>, Box<Decided>> {
    let Decided { record, status, after } = decided;
    let worked = match written {
        Written::Reopened(live) => reopened(Decided { record, status, after }, *live),
        Written::Stored { version, status } => {
            let record = Record { version, status: *status, unwritten: false, ..record };
            Worked { is_written: true, ..Worked::unwritten(record, after) }
        }
        Written::Overtaken(live) => overtaken(&record, *live, now),
        // The watch had not delivered the annotation yet. The outcome now includes it, so that it causes no second request.
        Written::Annotated(live) => {
            let mut status = redeliver::noted(&live, status, now.wall);
            keep_history(&mut status, &live.status);
            let record = Record { asked: live.asked, version: live.version, status: live.status, ..record };
            return Err(Box::new(Decided { record, status, after }));
        }
        Written::Gone(instead) => Worked::gone(record, instead),
    };
    Ok(Box::new(worked))
}

/// Whether another replica has written a later state than this one.
fn is_later(stored: &DeliveryStatus, ours: &DeliveryStatus) -> bool {
    stored.outcome.is_some() || (ours.outcome.is_none() && stored.attempts >= ours.attempts.max(1))
}

/// Applies the state that another replica has written: an outcome, or the result of a later attempt. That state takes precedence.
fn overtaken(record: &Record, live: Record, now: Now) -> Worked {
    let after = match live.status.outcome {
        Some(_) => After::Settled { answered: false },
        None => After::Retry { until: now.mono + schedule::resume(live.status.next_attempt_time, now.wall), asked: true },
    };
    let mut live = Record { again: record.again || live.again, ..live };
    live.copy_local_state_from(record);
    Worked::unwritten(live, after)
}

/// Ends the work on a delivery that is redelivered since. If its state contains our outcome, only the answer to that write was lost.
fn reopened(decided: Decided, live: Record) -> Worked {
    let Decided { mut record, status, after } = decided;
    let again = live.status.redelivered.clone().map(|of| redeliver::reopened(&status, of.value, of.time));
    let is_written = status.outcome.is_some() && again.as_ref() == Some(&live.status);
    // The version of that state is not known. So nobody notes it: `live` comes after it.
    let version = std::mem::take(&mut record.version);
    record.adopt(&live);
    record.version = version;
    if is_written {
        record.status = status;
    }
    let answered = matches!(after, After::Settled { answered: true });
    let instead = Some(Box::new(live));
    Worked { instead, is_written, ..Worked::unwritten(record, After::Settled { answered }) }
}

/// The writes whose last call has failed, until their next call.
#[derive(Default)]
pub(crate) struct Paused {
    /// By the time of the next call, and a number.
    writes: BTreeMap<(Instant, u64), Box<Write>>,
    last: u64,
}

impl Paused {
    pub(crate) fn add(&mut self, until: Instant, write: Box<Write>) {
        self.last += 1;
        self.writes.insert((until, self.last), write);
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Write> {
        self.writes.values().map(|write| &**write)
    }

    /// Returns when the next write is due.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        self.writes.first_key_value().map(|((until, _), _)| *until)
    }

    /// Returns a write that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Box<Write>> {
        self.next_time().filter(|until| *until <= now)?;
        self.writes.pop_first().map(|(_, write)| write)
    }
}

#[cfg(test)]
mod tests;
