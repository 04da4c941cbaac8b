//! The engine's other half: which lane is given work, what work, and what comes back of it.
//!
//! In: a lane that may have something to do. Out: at most one piece of work for it, in a task of its own; afterwards the lane's
//! next state, the figures, the audit line and word to the reporter.

use std::time::{Duration, Instant};

use super::Note;
use super::directory::Answer;
use super::engine::{Done, Engine};
use super::lane::{After, Due, Place};
use super::record::{LaneKey, Record};
use super::words::{audit, label, trouble};
use super::work::{self, Decided, Worked};
use crate::api::{Outcome, since_boot};

impl Engine {
    /// Whether this replica acts: the Lease is its own, and since then everything was listed.
    pub(super) fn acting(&self) -> bool {
        let listed = |turn| self.arrivals.turn() == Some(turn) && self.parts.directory.turn() == Some(turn);
        self.parts.lease.tenure().is_some_and(|tenure| listed(tenure.turn))
    }

    /// Whether a lane has something to do now, and if so, what.
    pub(super) fn look(&mut self, key: &LaneKey) {
        if self.draining || !self.acting() {
            return;
        }
        let Some(slot) = self.lanes.get_mut(key).filter(|slot| !slot.ready) else { return };
        match slot.lane.due(Instant::now()) {
            Due::Busy | Due::Held => {}
            Due::Empty => {
                if let Some(timer) = slot.timer.take() {
                    self.timers.remove(&(timer, key.clone()));
                }
                self.lanes.remove(key);
                self.parts.ledger.trouble(key, None);
            }
            Due::At(until) => {
                if let Some(old) = slot.timer.replace(until) {
                    self.timers.remove(&(old, key.clone()));
                }
                self.timers.insert((until, key.clone()));
            }
            Due::Now => self.consider(key),
        }
    }

    /// A head is due: may it be sent?
    fn consider(&mut self, key: &LaneKey) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        let Some(head) = slot.lane.head() else { return };
        match self.parts.directory.find(&head.spec) {
            Answer::Send(notification, _) => {
                if let Ok(sending) = &notification.sending {
                    slot.ready = true;
                    self.pool.ready(&sending.origin(), key.clone());
                }
            }
            Answer::NotYet => {
                slot.lane.take(Instant::now());
                slot.lane.done(After::Hold { until: None });
            }
            Answer::Wait { reason, message, until } => {
                let failures = slot.lane.failures();
                if let Some(record) = slot.lane.take(Instant::now()).cloned() {
                    let decided = work::wait(record, reason, &message, until.as_ref(), failures);
                    let task = work::store(self.parts.clone(), decided, self.parts.aside.clone());
                    self.work.spawn(async { Done::Worked(Box::new(task.await)) });
                }
            }
            Answer::Gone { what, sure } => {
                if let Some(record) = slot.lane.take(Instant::now()).cloned() {
                    let task = work::cancel(self.parts.clone(), record, what, sure);
                    self.work.spawn(async { Done::Worked(Box::new(task.await)) });
                }
            }
        }
    }

    /// Gives free workers to lanes that are ready. What was true when a lane became ready is looked up once more. A request is
    /// begun only if the Lease outlasts its time-out.
    pub(super) fn assign(&mut self) {
        if self.draining || !self.acting() {
            return;
        }
        let mut late = Vec::new();
        while let Some((origin, key)) = self.pool.next() {
            let Some(slot) = self.lanes.get_mut(&key) else {
                self.pool.unused(&origin);
                continue;
            };
            let answer = slot.lane.head().map(|head| self.parts.directory.find(&head.spec));
            let takes = match &answer {
                Some(Answer::Send(notification, _)) => notification.sending.as_ref().map_or(Duration::ZERO, |s| s.timeout),
                _ => Duration::ZERO,
            };
            let until = since_boot() + takes;
            if !self.parts.lease.may(takes) {
                late.push((origin, key));
                continue;
            }
            slot.ready = false;
            let Some(Answer::Send(notification, facts)) = answer else {
                self.pool.unused(&origin);
                self.look(&key);
                continue;
            };
            let failures = slot.lane.failures();
            let Some(record) = slot.lane.take(Instant::now()).cloned() else {
                // Another replica may have made its head wait meanwhile.
                self.pool.unused(&origin);
                self.look(&key);
                continue;
            };
            let task = work::attempt(self.parts.clone(), record, notification, facts, failures, until);
            self.work.spawn(async {
                let (decided, answered) = task.await;
                Done::Attempted { origin, answered, decided: Box::new(decided) }
            });
        }
        for (origin, key) in late {
            self.pool.put_back(&origin, key);
        }
    }

    /// The request is over, so its worker is free; the lane is not, before the outcome is written.
    pub(super) fn attempted(&mut self, origin: &str, answered: bool, decided: Decided) {
        self.pool.release(origin, answered);
        #[cfg(feature = "broken")]
        if crate::broken::is(crate::broken::Wrong::NextBeforeOutcome)
            && let Some(worked) = decided.unwritten()
        {
            tokio::spawn(work::store(self.parts.clone(), decided, self.parts.outcomes.clone()));
            return self.worked(worked);
        }
        let task = work::store(self.parts.clone(), decided, self.parts.outcomes.clone());
        self.work.spawn(async { Done::Worked(Box::new(task.await)) });
    }

    pub(super) fn worked(&mut self, worked: Worked) {
        let Worked { record, after, gone, instead, news } = worked;
        let key = record.lane();
        let Some(slot) = self.lanes.get_mut(&key) else { return };
        if let Some(busy) = slot.lane.busy() {
            *busy = record.clone();
        }
        let stale = slot.stale.take();
        let settled = slot.lane.done(after).is_some();
        // One that a person has deleted while it was at work, and of which nothing was to be written.
        let deleted = !settled && !self.index.contains_key(&record.id);
        if deleted {
            slot.lane.remove(Place::from(&*record.spec));
        }
        let trouble = if settled || deleted { None } else { trouble(&record) };
        self.parts.ledger.trouble(&key, trouble);
        if gone {
            self.parts.ledger.forget(&record.id);
            self.index.remove(&record.id);
        } else if settled {
            self.index.remove(&record.id);
            self.parts.ledger.note(&record);
            // What another replica has settled, it has told.
            if let Some(outcome) = record.status.outcome.filter(|_| news) {
                self.parts.metrics.delivery(label(outcome));
                audit(&record, outcome);
            }
        }
        if news && !gone {
            self.tell(&record);
        }
        if let Some(instead) = instead {
            self.seen(*instead);
        }
        match stale {
            Some(retry) => self.changed(&key, retry),
            None => self.look(&key),
        }
    }

    /// What a person should do something about. Nobody waits for it: if the reporter is behind, the status still says it.
    fn tell(&self, record: &Record) {
        let status = &record.status;
        let parked = status.outcome == Some(Outcome::Parked);
        // One that is held on purpose, or only until a watch has spoken, is nobody's task.
        let fine = matches!(status.reason.as_deref(), Some("Suspended" | "SecretUnknown"));
        let blocked = status.outcome.is_none() && status.next_attempt_time.is_none() && !fine;
        if parked || blocked {
            let _ = self.started.notes.try_send(Note { record: record.clone() });
        }
    }
}
