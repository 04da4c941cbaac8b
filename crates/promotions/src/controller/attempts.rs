//! The attempts of all promotions: which are in progress, and how the last one of each promotion ended.
//!
//! In: the attempts that reconciles start. Out: what this process knows about the attempts of a promotion ([`Progress`]), and the pipelines whose
//! attempts have ended. Each attempt is a task of its own, so a forge that hangs stops no reconcile. It ends at its deadline, and before the Lease
//! can end. When the process stops, attempts are aborted: the next attempt finds what they did.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::index::Key;
use crate::attempt::{Attempt, Clock, Outside};
use relaybook_api::promotion::LOOK;
use relaybook_api::{Promotion, now};
use relaybook_core::promotion::progress::{Problem, Progress, Task};
use relaybook_core::promotion::state::kept;

/// Maximum duration of an attempt, without the time in which it waits for others.
pub(super) const ATTEMPT: Duration = Duration::from_mins(1);

/// The attempts of all promotions, by the uid of the promotion.
pub(crate) struct Attempts {
    known: Arc<Mutex<HashMap<String, Progress>>>,
    outside: Arc<Outside>,
    ended: mpsc::UnboundedSender<Key>,
    stop: CancellationToken,
}

impl Attempts {
    /// Returns the attempts, none of which has started, and the pipelines whose attempts will have ended.
    pub(crate) fn new(outside: Outside, stop: CancellationToken) -> (Self, mpsc::UnboundedReceiver<Key>) {
        // Each promotion has at most one attempt in progress, so the number of promotions limits the queue.
        let (ended, receiver) = mpsc::unbounded_channel();
        (Self { known: Arc::default(), outside: Arc::new(outside), ended, stop }, receiver)
    }

    /// Returns what is known about the attempts of a promotion.
    pub(super) fn progress(&self, promotion: &Promotion) -> Progress {
        let uid = promotion.metadata.uid.as_deref().unwrap_or_default();
        let mut progress = self.known.lock().get(uid).cloned().unwrap_or_default();
        progress.interval = self.outside.interval(promotion);
        progress
    }

    /// Notes that the record of an attempt was written. It can start now.
    pub(super) fn record(&self, uid: &str, attempt: (Task, i64)) {
        let mut known = self.known.lock();
        let progress = known.entry(uid.to_owned()).or_default();
        progress.recorded = Some(attempt);
    }

    /// Starts an attempt. `number`: as the status has it.
    pub(super) fn start(&self, key: Key, promotion: &Promotion, task: Task, number: i64, clock: Clock) {
        let uid = promotion.metadata.uid.clone().unwrap_or_default();
        let asked = promotion.metadata.annotations.as_ref().and_then(|all| all.get(LOOK)).map(|value| kept(value));
        let begun = {
            let mut known = self.known.lock();
            let progress = known.entry(uid.clone()).or_default();
            if progress.is_running {
                return;
            }
            progress.begin((task, number), asked, now())
        };
        let is_prompt = begun.is_prompt;
        let clock = Arc::new(clock);
        let attempt = Attempt { promotion: promotion.clone(), task, is_prompt, clock: Arc::clone(&clock) };
        let interval = self.outside.interval(promotion);
        let (known, outside, ended, stop) =
            (Arc::clone(&self.known), Arc::clone(&self.outside), self.ended.clone(), self.stop.clone());
        tokio::spawn(async move {
            // A panic must not leave the promotion without attempts.
            let made = tokio::spawn(async move { stop.run_until_cancelled(outside.attempt(&attempt)).await }).await;
            let result = match made {
                Ok(Some(result)) => result,
                Ok(None) => return,
                Err(_) => Err(Problem::of_this_program("the attempt ended unexpectedly")),
            };
            {
                let mut known = known.lock();
                if let Some(progress) = known.get_mut(&uid) {
                    progress.end(begun, result, interval.unwrap_or_default().mul_f64(fastrand::f64()));
                }
            }
            // The bucket can be handed over.
            drop(clock);
            // The receiver is dropped only when the controller stops.
            let _ = ended.send(key);
        });
    }

    /// Notes that a Secret of these promotions has changed.
    pub(super) fn renew<'p>(&self, promotions: impl Iterator<Item = &'p Promotion>) {
        let mut known = self.known.lock();
        for uid in promotions.filter_map(|promotion| promotion.metadata.uid.as_ref()) {
            known.entry(uid.clone()).or_default().is_renewed = true;
        }
    }

    /// Forgets all promotions but these. Attempts in progress are not forgotten.
    pub(super) fn retain(&self, uids: &HashSet<String>) {
        self.known.lock().retain(|uid, progress| progress.is_running || uids.contains(uid));
        self.outside.retain(|uid| uids.contains(uid));
    }

    /// Forgets a promotion that has ended.
    pub(super) fn forget(&self, uid: &str) {
        let mut known = self.known.lock();
        if known.get(uid).is_some_and(|progress| !progress.is_running) {
            known.remove(uid);
        }
        drop(known);
        self.outside.retain(|known| known != uid);
    }

    /// Forgets what is known, except that attempts are in progress. Called after each list.
    pub(super) fn begin_term(&self) {
        self.known.lock().retain(|_, progress| {
            *progress = Progress { is_running: progress.is_running, ..Progress::default() };
            progress.is_running
        });
        self.outside.retain(|_| false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::promotion::{Phase, PromotionStrategy};
    use relaybook_core::promotion::progress::Found;
    use relaybook_core::promotion::testing::{by_commit, by_pull_request, promotion};
    use relaybook_egress::{Policy, Secrets, Sender};
    use relaybook_runtime::leader::Lease;
    use relaybook_telemetry::Metrics;

    fn attempts() -> (Attempts, mpsc::UnboundedReceiver<Key>, CancellationToken) {
        _ = rustls::crypto::ring::default_provider().install_default();
        let sender = Sender::new(Policy::default(), Secrets::fixed([]), Metrics::new()).unwrap();
        let stop = CancellationToken::new();
        let (attempts, ended) = Attempts::new(Outside::new(sender), stop.clone());
        (attempts, ended, stop)
    }

    fn clock() -> Clock {
        Clock::start(&Lease::held(Duration::from_mins(2)), "u", ATTEMPT).unwrap()
    }

    fn key() -> Key {
        Key { namespace: "team-a".into(), uid: "u".into() }
    }

    /// Returns a promotion whose requests are refused before they are sent: `http` is not allowed.
    fn refused(mut strategy: PromotionStrategy) -> Promotion {
        let url = || "http://git.example.com/acme/deploy.git".to_owned();
        strategy.commit.iter_mut().for_each(|of| of.repository.url = url());
        strategy.pull_request.iter_mut().for_each(|of| of.repository.url = url());
        let mut promotion = promotion((20, 0), &[Phase::Requested], "");
        promotion.status.as_mut().unwrap().strategy = Some(strategy);
        promotion
    }

    #[tokio::test]
    async fn the_result_of_an_attempt_is_kept_and_wakes_its_pipeline() {
        let (attempts, mut ended, _) = attempts();
        let promotion = refused(by_commit());
        attempts.record("p", (Task::Carry, 3));
        assert_eq!(attempts.progress(&promotion).recorded, Some((Task::Carry, 3)));
        attempts.start(key(), &promotion, Task::Carry, 3, clock());
        let running = attempts.progress(&promotion);
        assert_eq!((running.is_running, running.recorded), (true, None));
        attempts.start(key(), &promotion, Task::Carry, 4, clock());
        assert_eq!(ended.recv().await, Some(key()));
        let progress = attempts.progress(&promotion);
        let end = progress.ended(Task::Carry, 3).unwrap();
        assert_eq!(end.result.as_ref().map_err(|problem| problem.reason), Err("InsecureScheme"));
        assert!(!progress.is_running && ended.try_recv().is_err(), "the second one did not start");
    }

    #[tokio::test]
    async fn failed_checks_are_counted_and_the_annotation_is_noted() {
        let (attempts, mut ended, _) = attempts();
        let mut promotion = refused(by_pull_request());
        promotion.metadata.annotations.get_or_insert_default().insert(LOOK.to_owned(), "1".to_owned());
        for (task, failures) in [(Task::Look, 1), (Task::Look, 2), (Task::Carry, 1), (Task::Look, 1)] {
            attempts.renew(std::iter::once(&promotion));
            assert!(attempts.progress(&promotion).is_renewed);
            attempts.start(key(), &promotion, task, 0, clock());
            assert!(!attempts.progress(&promotion).is_renewed);
            ended.recv().await.unwrap();
            let progress = attempts.progress(&promotion);
            assert_eq!(progress.ended.map(|ended| (ended.task, ended.failures)), Some((task, failures)));
            assert_eq!(progress.asked.as_deref(), Some("1"));
        }
    }

    #[tokio::test]
    async fn only_an_attempt_in_progress_survives_forgetting() {
        let (attempts, mut ended, _) = attempts();
        let promotion = refused(PromotionStrategy::default());
        let forgets: [&dyn Fn(); 3] =
            [&|| attempts.forget("p"), &|| attempts.retain(&HashSet::new()), &|| attempts.begin_term()];
        for forget in forgets {
            attempts.start(key(), &promotion, Task::Close, 1, clock());
            forget();
            assert!(attempts.progress(&promotion).is_running);
            ended.recv().await.unwrap();
            let end = attempts.progress(&promotion).ended.unwrap();
            assert_eq!((end.number, end.result), (1, Ok(Found::Nothing)));
            forget();
            assert_eq!(attempts.progress(&promotion), Progress::default());
        }
    }

    #[tokio::test]
    async fn a_process_that_stops_ends_its_attempts_without_a_result() {
        let (attempts, mut ended, stop) = attempts();
        stop.cancel();
        attempts.start(key(), &refused(by_commit()), Task::Carry, 1, clock());
        drop(attempts);
        assert_eq!(ended.recv().await, None);
    }
}
