//! The progress of the dispatcher for one pipeline: its cursors in memory, and their persisted form.
//!
//! In: objects from the watch, what was recorded, and what was sent. Out: `Pipeline.status.dispatched`. While cursors move, it is written once a
//! second, or earlier if the log of a subject is almost full. Otherwise it is written after ten seconds.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::aged::Ages;
use super::dirty::{Dirty, is_crowded};
use super::persist::{self, Persisted, Stored};
use super::plan::{Position, Sight};
use crate::dispatch::Context;
use crate::dispatch::gone::Missing;
use crate::dispatch::share::Share;
use crate::dispatch::status::sent::Sent;
use relaybook_api::delivery::PipelineRef;
use relaybook_api::pipeline::{Cursor, Dispatched, NotReadyNotification, RunningTimer};
use relaybook_api::values::shard::Sharding;
use relaybook_api::{ChangeLog, Pipeline, Time};
use relaybook_runtime::call::CallError;
use relaybook_runtime::leader::Lease;
use relaybook_runtime::tenure::Tenure;
use relaybook_telemetry::metrics::{ApiWrite, WriteResult};

/// The delay after a stale copy: the watch is about to deliver the newer one.
pub const SOON: Duration = Duration::from_millis(50);

/// The result of persisting the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The position is persisted.
    Done,
    /// The API server had another value than expected. That value is known now.
    Stale,
    /// The pipeline is deleted, or another one has its name now.
    Gone,
}

/// Why a reconcile failed. The retry starts from the state in the API server.
#[derive(Debug, Error)]
pub enum PassError {
    /// The position could not be read or written.
    #[error("the cursor could not be persisted")]
    Persist(#[from] CallError),
    /// The status of a Notification could not be written.
    #[error("could not write a status")]
    Status(#[source] CallError),
    /// A live read was not possible.
    #[error("could not check whether a notification still exists")]
    Confirm(#[source] CallError),
    /// The API server has the expected value, but does not replace it. Something in the API server rejects the write.
    #[error("the API server rejects the cursor; check for an admission policy on pipelines/status")]
    Refused,
}

impl PassError {
    /// Returns why a call has no response.
    pub(crate) fn call(&self) -> Option<&CallError> {
        match self {
            Self::Persist(error) | Self::Status(error) | Self::Confirm(error) => Some(error),
            Self::Refused => None,
        }
    }
}

/// How long until the next reconcile without an event, or why a reconcile has failed.
pub type Passed = Result<Option<Duration>, PassError>;

/// What work on one pipeline needs.
#[derive(Clone, Copy)]
pub struct PassContext<'a> {
    /// The pipeline.
    pub of: &'a PipelineRef,
    /// Proof that its bucket is ours.
    pub tenure: &'a Tenure,
    /// What all parts share.
    pub ctx: &'a Context,
}

/// By subject: the serial up to which its changes were processed.
pub type Taken = HashMap<String, i64>;

/// The progress of the dispatcher for one pipeline.
#[derive(Clone, Debug, Default)]
pub struct CursorState {
    /// The leadership term of this replica to which it belongs.
    pub(crate) term: u64,
    pub(crate) position: Position,
    stored: Stored,
    /// The lowest cursor of the stored value.
    passed: i64,
    /// When the pipeline was first seen.
    first: Option<Time>,
    /// Whether the pipeline was reconciled in this leadership term. It is persisted when the log has a change, or when a cursor starts.
    noted: bool,
    dirty: Dirty,
    /// When it was last persisted.
    persisted: Option<Instant>,
    /// Size of the status, approximately. The API server replaces the whole status with each write.
    bytes: usize,
    /// When missing notifications are confirmed.
    pub(crate) missing: Missing,
    /// The share of the namespace in what is recorded.
    pub(crate) share: Share,
    /// By notification with a held cursor: how far each subject was processed. Processed changes are not processed again, even if a user
    /// has deleted their deliveries, for example because of a quota. The same applies to changes that were merged since, because a merged
    /// change can have another meaning.
    above: HashMap<String, Taken>,
    /// By notification: a hash of the namespaces of its deliveries, stored when all requested deliveries were recorded. If there is no
    /// hash, or if the namespaces have changed, deliveries may have been recorded in other namespaces.
    recorded_in: HashMap<String, u64>,
    /// While a cursor is held: the ages of all changes and timers.
    pub(crate) ages: Ages,
    /// By notification: the serial up to which dropped changes were reported.
    missed: HashMap<String, i64>,
}

impl CursorState {
    /// Returns the state in a later term. If another replica has held the bucket meanwhile, nothing is known yet.
    pub(crate) fn continued(self, lease: &Lease, pipeline: &Pipeline, term: u64) -> Self {
        let uid = pipeline.metadata.uid.as_deref().unwrap_or_default();
        let known = if lease.has_kept(uid, self.term) { self } else { Self::default() };
        Self { term, ..known }
    }

    /// Whether the deliveries of a notification can have been recorded only in these namespaces.
    pub(crate) fn recorded_only_in(&self, notification: &str, namespaces_hash: u64) -> bool {
        self.recorded_in.get(notification) == Some(&namespaces_hash)
    }

    /// Notes that all requested deliveries are recorded in these namespaces. `None`: not all are recorded.
    pub(crate) fn put_recorded_in(&mut self, notification: &str, namespaces_hash: Option<u64>) {
        match namespaces_hash {
            Some(hash) => drop(self.recorded_in.insert(notification.to_owned(), hash)),
            None => drop(self.recorded_in.remove(notification)),
        }
    }

    /// Applies the object from the watch, unless it is older than the last write of this replica.
    pub(crate) fn absorb(&mut self, pipeline: &Pipeline) {
        let version = relaybook_api::version(pipeline.metadata.resource_version.as_deref());
        if version <= self.stored.version && version != u64::MAX {
            return;
        }
        let dispatched = pipeline.status.as_ref().and_then(|s| s.dispatched.as_ref());
        let raw = dispatched.and_then(|d| serde_json::to_value(d).ok()).unwrap_or_default();
        if raw != self.stored.raw {
            // Another writer: the cursors were deleted manually, restored, or written by another replica. The stored ones count.
            self.adopt(Stored { raw, version });
        }
        self.stored.version = version;
        self.bytes = persist::approximate_bytes(pipeline);
        let first = pipeline.status.as_ref().and_then(|s| s.log.as_ref()).map(|log| log.first);
        self.first = first.and_then(|first| Time::from_millisecond(first).ok());
    }

    fn adopt(&mut self, stored: Stored) {
        let dispatched: Option<Dispatched> = serde_json::from_value(stored.raw.clone()).ok().flatten();
        let known = std::mem::replace(&mut self.position, dispatched.as_ref().map(Position::from).unwrap_or_default());
        (self.dirty, self.noted, self.passed) = (Dirty::default(), false, self.position.lowest());
        // Another writer may have replaced the cursors. The times of earlier records and sends remain correct.
        self.position.recorded = self.position.recorded.max(known.recorded);
        if dispatched.is_some() && self.position.merge_sent(known.last_sent, known.last_sent_by) {
            self.dirty.sent.get_or_insert_with(Instant::now);
        }
        self.stored = stored;
    }

    /// Whether the pipeline was seen before.
    pub(crate) fn sight(&self) -> Sight {
        match (self.stored.raw.is_null(), self.noted) {
            (false, _) => Sight::Recorded,
            (true, true) => Sight::Noted,
            (true, false) => Sight::First,
        }
    }

    /// Notes that the pipeline was reconciled.
    pub(crate) fn note(&mut self) {
        self.noted = true;
    }

    fn moved(&mut self) {
        self.dirty.cursors.get_or_insert_with(Instant::now);
    }

    /// Whether something must be persisted.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.dirty != Dirty::default()
    }

    /// Applies new cursors that need not be persisted at once.
    pub(crate) fn put_cursors(&mut self, cursors: BTreeMap<String, Cursor>) {
        if cursors != self.position.cursors {
            self.position.put_cursors(cursors);
            self.moved();
        }
    }

    /// Replaces the running timers of a notification.
    pub(crate) fn put_armed(&mut self, notification: &str, mut armed: Vec<RunningTimer>) {
        armed.sort_unstable_by_key(|timer| (timer.serial, timer.type_));
        if self.armed(notification) != armed {
            self.position.armed.insert(notification.to_owned(), armed);
            self.position.armed.retain(|_, armed| !armed.is_empty());
            self.moved();
        }
    }

    /// Returns the running timers of a notification.
    pub(crate) fn armed(&self, notification: &str) -> &[RunningTimer] {
        self.position.armed.get(notification).map_or(&[], Vec::as_slice)
    }

    /// Replaces the list of notifications that cannot be sent at present.
    pub(crate) fn put_troubles(&mut self, troubles: Vec<NotReadyNotification>) {
        if troubles != self.position.troubles {
            self.position.troubles = troubles;
            self.moved();
        }
    }

    /// Whether this shard handles the pipeline, according to the persisted state. Before something is persisted, the label decides.
    pub(crate) fn is_of(&self, sharding: &Sharding) -> bool {
        self.stored.raw.is_null() || sharding.is(self.position.shard.as_ref())
    }

    /// Sets the shard that handles the pipeline. An empty ID is that of the shard without one.
    pub(crate) fn put_shard(&mut self, shard: &str) {
        let shard = Some(shard.to_owned()).filter(|shard| !shard.is_empty());
        if shard != self.position.shard {
            self.position.shard = shard;
            // Before something else is persisted, the label determines the shard.
            if !self.stored.raw.is_null() {
                self.moved();
            }
        }
    }

    /// Finds out which of the targets whose object is `gone` have pending deliveries. This follows the advance of the cursors, and one write
    /// persists both. Otherwise a target could leave the status before its deliveries are sent.
    pub(crate) fn put_pending_targets(&mut self, gone: &[String], PassContext { of, ctx, .. }: PassContext<'_>) {
        if gone.is_empty() && self.position.pending_targets.is_empty() {
            return;
        }
        let notifications: Vec<&str> = self.position.cursors.keys().map(String::as_str).collect();
        let gone = gone.iter().map(String::as_str);
        let pending = ctx.deliveries.delivery_index.pending(of, gone, &notifications);
        if pending != self.position.pending_targets {
            self.position.pending_targets = pending;
            self.moved();
        }
    }

    /// Applies new cursors and persists them. If persisting fails, they are not applied: a crash would restart an unpersisted cursor at
    /// another place.
    pub(crate) async fn begin(
        &mut self,
        cursors: BTreeMap<String, Cursor>,
        serial: Option<i64>,
        with: PassContext<'_>,
    ) -> Result<Saved, PassError> {
        let before = (self.position.cursors.clone(), self.position.armed.clone());
        self.position.put_cursors(cursors.clone());
        self.moved();
        let saved = self.save(serial, with).await;
        if !matches!(saved, Ok(Saved::Done)) && self.position.cursors == cursors {
            (self.position.cursors, self.position.armed) = before;
        }
        saved
    }

    /// Advances a cursor. It never moves back.
    pub(crate) fn advance(&mut self, notification: &str, serial: i64) {
        if let Some(cursor) = self.position.cursors.get_mut(notification)
            && cursor.serial < serial
        {
            cursor.serial = serial;
            self.above.get_mut(notification).into_iter().for_each(|above| above.retain(|_, taken| *taken > serial));
            self.moved();
        }
    }

    /// Returns the notifications whose cursors have not reached this dropped change, except those for which this was already returned.
    pub(crate) fn misses(&mut self, dropped: i64) -> Vec<String> {
        let cursors = &self.position.cursors;
        self.missed.retain(|name, _| cursors.contains_key(name));
        let behind = cursors.values().filter(|cursor| cursor.serial < dropped).map(|cursor| &cursor.notification);
        let new: Vec<String> = behind.filter(|name| self.missed.get(*name) != Some(&dropped)).cloned().collect();
        self.missed.extend(new.iter().map(|name| (name.clone(), dropped)));
        new
    }

    /// Returns how far the subjects were processed above a held cursor.
    pub(crate) fn taken(&self, notification: &str) -> Taken {
        self.above.get(notification).cloned().unwrap_or_default()
    }

    /// Notes that the changes of a subject were processed up to this serial, although the cursor cannot advance.
    pub(crate) fn take(&mut self, notification: &str, subject: &str, serial: i64) {
        let taken = self.above.entry(notification.to_owned()).or_default().entry(subject.to_owned()).or_insert(serial);
        *taken = serial.max(*taken);
    }

    /// Merges the deliveries that were sent since the last call. Only subjects that the pipeline still has are kept.
    pub(crate) fn gather(&mut self, PassContext { of, ctx, .. }: PassContext<'_>) {
        let sent = ctx.deliveries.delivery_index.take_sent(&of.uid);
        if sent.is_empty() {
            return;
        }
        let facts = ctx.deliveries.pipeline_index.pipeline(&of.uid);
        let by_subject = sent
            .iter()
            .map(|(topic, time)| (topic.subject.clone(), Sent { time: *time, notification: topic.notification.clone() }));
        let is_there = |subject: &str| facts.as_ref().is_none_or(|f| f.subjects.contains_key(subject));
        let by_subject = by_subject.filter(|(subject, _)| is_there(subject));
        let by_notification = sent.iter().map(|(topic, time)| (topic.notification.clone(), *time));
        let news = self.position.merge_sent(by_subject, by_notification);
        let before = self.position.last_sent.len();
        self.position.last_sent.retain(|subject, _| is_there(subject));
        if news || self.position.last_sent.len() < before {
            self.dirty.sent.get_or_insert_with(Instant::now);
        }
    }

    /// Persists changes if the write is due. Otherwise returns how long the write can wait.
    pub(crate) async fn keep(&mut self, log: &ChangeLog, with: PassContext<'_>) -> Passed {
        self.gather(with);
        let is_crowded = || is_crowded(log, self.passed, self.position.lowest());
        let Some(due) = self.dirty.due(self.persisted, is_crowded) else { return Ok(None) };
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let saved = self.save(None, with).await?;
        Ok((saved == Saved::Stale).then_some(SOON))
    }

    /// Persists the whole position. `serial`: the serial that the log must still end with.
    pub(crate) async fn save(&mut self, serial: Option<i64>, with: PassContext<'_>) -> Result<Saved, PassError> {
        let PassContext { of, ctx, .. } = with;
        let newest = ctx.deliveries.delivery_index.newest(&of.uid);
        self.position.note_recorded(newest, self.first.filter(|_| self.stored.raw.is_null()));
        let new = Dispatched::from(&self.position);
        let _ = ctx.pace.spend(&of.namespace, self.bytes, Instant::now());
        let count = |result| ctx.metrics.api_write(ApiWrite::Dispatched, result);
        match persist::write(with, &self.stored.raw, &new, serial).await {
            Ok(Persisted::Done(stored)) => {
                count(WriteResult::Ok);
                self.is_stored(stored);
                Ok(Saved::Done)
            }
            Ok(Persisted::Gone) => {
                count(WriteResult::Conflict);
                self.dirty = Dirty::default();
                Ok(Saved::Gone)
            }
            Ok(Persisted::Stale) => {
                count(WriteResult::Conflict);
                self.reread(&new, serial, with).await
            }
            Err(CallError::NotHeld) => Err(CallError::NotHeld.into()),
            Err(error) => {
                count(WriteResult::Error);
                // The write may have succeeded. Nothing else is written before this is known.
                match self.reread(&new, serial, with).await {
                    Ok(Saved::Done) => Ok(Saved::Done),
                    Ok(_) | Err(PassError::Refused) => Err(error.into()),
                    Err(other) => Err(other),
                }
            }
        }
    }

    fn is_stored(&mut self, stored: Stored) {
        (self.stored, self.dirty, self.persisted) = (stored, Dirty::default(), Some(Instant::now()));
        self.passed = self.position.lowest();
    }

    /// Reads the value from the API server after an unexpected result, because that value counts. If it is our own write, only the response
    /// was lost.
    async fn reread(&mut self, ours: &Dispatched, serial: Option<i64>, with: PassContext<'_>) -> Result<Saved, PassError> {
        let Some((stored, log)) = persist::read(with).await? else { return Ok(Saved::Gone) };
        if serde_json::to_value(ours).is_ok_and(|ours| ours == stored.raw) {
            self.is_stored(stored);
            return Ok(Saved::Done);
        }
        if stored.raw != self.stored.raw {
            self.adopt(stored);
            return Ok(Saved::Stale);
        }
        self.stored.version = stored.version;
        if serial.is_some_and(|serial| log != Some(serial)) { Ok(Saved::Stale) } else { Err(PassError::Refused) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_reported_once_for_each_cursor_that_has_missed_it() {
        let cursor = |name: &str, serial| Cursor { notification: name.into(), serial, ..Cursor::default() };
        let cursors = [("behind", 4), ("stuck", 2), ("reads", 9)];
        let cursors = cursors.map(|(name, serial)| (name.to_owned(), cursor(name, serial)));
        let position = Position { cursors: cursors.into(), ..Position::default() };
        let mut cursor_state = CursorState { position, ..CursorState::default() };
        assert_eq!(cursor_state.misses(6), ["behind", "stuck"]);
        assert!(cursor_state.misses(6).is_empty());
        cursor_state.advance("behind", 8);
        assert_eq!(cursor_state.misses(7), ["stuck"]);
    }
}
