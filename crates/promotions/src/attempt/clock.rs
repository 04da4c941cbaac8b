//! How long an attempt may still work. Its time stands still while it waits for others.
//!
//! In: the Lease, the bucket in which the attempt is counted, and its time. Out: the time until which it may send requests ([`Clock::until`]).
//! After a wait, the attempt continues only if the membership lasts for the rest of its time, in the same term and with the same bucket. A
//! wait ends as soon as the bucket is given away, so that nobody waits for an attempt that does nothing.

use parking_lot::Mutex;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::lock;
use relaybook_api::{now, since_boot};
use relaybook_core::promotion::progress::{Lasts, Problem};
use relaybook_runtime::leader::{Busy, Lease};

/// How long an attempt waits in total. While it waits, nothing is decided about its promotion. After that it starts again later.
const WAIT: Duration = Duration::from_mins(1);

/// The time of one attempt.
#[derive(Debug)]
pub(crate) struct Clock {
    lease: Lease,
    busy: Busy,
    /// The pipeline.
    uid: String,
    /// When the time ends, by [`since_boot`]. `None`: the attempt waits.
    until: watch::Sender<Option<Duration>>,
    /// How long it may still wait.
    patience: Mutex<Duration>,
}

impl Clock {
    /// Starts the time of an attempt, if the membership lasts longer. `None`: the attempt must not start.
    pub(crate) fn start(lease: &Lease, uid: &str, time: Duration) -> Option<Self> {
        let busy = lease.begin(uid)?;
        let until = allowed(lease, &busy, uid, time)?;
        let until = watch::Sender::new(Some(until));
        Some(Self { lease: lease.clone(), busy, uid: uid.to_owned(), until, patience: Mutex::new(WAIT) })
    }

    /// Returns the time after which no request is sent, by [`since_boot`].
    pub(super) fn until(&self) -> Duration {
        self.until.borrow().unwrap_or_default()
    }

    /// Waits until the time is over. A process that was suspended has less time than its timers say.
    pub(super) async fn over(&self) {
        let mut until = self.until.subscribe();
        loop {
            let end = *until.borrow_and_update();
            let Some(end) = end else {
                if until.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let Some(rest) = end.checked_sub(since_boot()).filter(|rest| !rest.is_zero()) else { return };
            drop(timeout(rest, until.changed()).await);
        }
    }

    /// Waits. Nothing is sent meanwhile, and the time of the attempt stands still. After an error, the attempt must end.
    pub(super) async fn pause<T>(&self, waiting: impl Future<Output = T>) -> Result<T, Problem> {
        let mut waiting = Box::pin(waiting);
        if let Some(got) = waiting.as_mut().now_or_never() {
            return Ok(got);
        }
        let begun = since_boot();
        let rest = self.until().saturating_sub(begun);
        self.until.send_replace(None);
        let patience = *lock(&self.patience);
        let resumed = async {
            let got = waiting.await;
            self.resume(rest).await.then_some(got)
        };
        let got = tokio::select! {
            got = resumed => got,
            () = self.is_lost() => None,
            () = sleep(patience) => None,
        };
        *lock(&self.patience) = patience.saturating_sub(since_boot().saturating_sub(begun));
        got.ok_or_else(waited_too_long)
    }

    /// Lets the time run again. Returns `false` if the attempt must end.
    async fn resume(&self, rest: Duration) -> bool {
        loop {
            if let Some(until) = allowed(&self.lease, &self.busy, &self.uid, rest) {
                self.until.send_replace(Some(until));
                return true;
            }
            if !self.lease.owns(&self.uid) || !self.lease.wait_with(&self.busy, rest).await {
                return false;
            }
        }
    }

    /// Waits until the bucket is not ours any more, or is given away.
    async fn is_lost(&self) {
        let mut lease = self.lease.clone();
        while lease.owns(&self.uid) && lease.is_current(&self.busy) {
            lease.changed().await;
        }
    }
}

/// Returns the end of work that takes so long, if it may start now. The end is computed before the check: the process can be suspended
/// between the two, and then the check finds less time than is needed.
fn allowed(lease: &Lease, busy: &Busy, uid: &str, time: Duration) -> Option<Duration> {
    let until = since_boot() + time;
    (lease.owns(uid) && lease.is_current(busy) && lease.allows(time)).then_some(until)
}

/// The problem of an attempt that waited too long, as an error.
#[derive(Debug, thiserror::Error)]
#[error("the attempt waited too long")]
pub(super) struct WaitedTooLong(pub(super) Problem);

/// The attempt does nothing more. It starts again, without another record.
fn waited_too_long() -> Problem {
    let message = "other promotions use the same Git server or much memory now";
    Problem { reason: "Waiting", message: message.to_owned(), lasts: Lasts::NotYet(now()) }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::poll;
    use tokio::sync::oneshot;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn has_waited_too_long(result: Result<(), Problem>) -> bool {
        result.is_err_and(|problem| matches!(problem.lasts, Lasts::NotYet(_)))
    }

    #[tokio::test]
    async fn the_time_of_an_attempt_stands_still_while_it_waits_for_a_permit() {
        let clock = Clock::start(&Lease::held(10 * MINUTE), "u", MINUTE).unwrap();
        let before = clock.until();
        assert_eq!(clock.pause(async { 7 }).await.unwrap(), 7);
        assert_eq!(clock.until(), before, "without a wait");
        let (ends, waits) = oneshot::channel();
        let mut paused = Box::pin(clock.pause(waits));
        let begun = since_boot();
        assert!(poll!(&mut paused).is_pending());
        assert_eq!(clock.until(), Duration::ZERO, "nothing can be sent");
        sleep(Duration::from_millis(50)).await;
        let waited = since_boot().saturating_sub(begun);
        ends.send(()).unwrap();
        paused.await.unwrap().unwrap();
        assert!(clock.until() >= before + waited);
        assert!(poll!(Box::pin(clock.over())).is_pending());
    }

    #[tokio::test]
    async fn the_time_of_an_attempt_ends() {
        let clock = Clock::start(&Lease::held(MINUTE), "u", Duration::from_millis(10)).unwrap();
        clock.over().await;
        assert!(since_boot() >= clock.until());
    }

    #[tokio::test]
    async fn an_attempt_runs_only_if_the_membership_lasts_for_all_of_it() {
        assert!(Clock::start(&Lease::held(MINUTE), "u", MINUTE).is_none(), "the margin is missing");
        let (lease, renew) = Lease::renewable(2 * MINUTE);
        let clock = Clock::start(&lease, "u", MINUTE).unwrap();
        let (ends, waits) = oneshot::channel();
        let mut paused = Box::pin(clock.pause(waits));
        assert!(poll!(&mut paused).is_pending());
        // The membership was not renewed during the wait.
        renew.set(Some(MINUTE / 2));
        ends.send(()).unwrap();
        assert!(poll!(&mut paused).is_pending());
        assert_eq!(clock.until(), Duration::ZERO);
        renew.set(Some(2 * MINUTE));
        paused.await.unwrap().unwrap();
        assert!(clock.until() > since_boot());
    }

    #[tokio::test]
    async fn a_wait_ends_when_the_bucket_is_given_away() {
        let (lease, renew) = Lease::renewable(2 * MINUTE);
        let clock = Clock::start(&lease, "u", MINUTE).unwrap();
        let mut paused = Box::pin(clock.pause(pending::<()>()));
        assert!(poll!(&mut paused).is_pending());
        renew.set(None);
        assert!(has_waited_too_long(paused.await));
        assert_eq!(clock.until(), Duration::ZERO, "nothing is sent any more");
        // It can be given away when the wait is over, and the membership does not last.
        let (lease, renew) = Lease::renewable(2 * MINUTE);
        let clock = Clock::start(&lease, "u", MINUTE).unwrap();
        let (ends, waits) = oneshot::channel();
        let mut paused = Box::pin(clock.pause(async { drop(waits.await) }));
        assert!(poll!(&mut paused).is_pending());
        renew.set(Some(MINUTE / 2));
        ends.send(()).unwrap();
        assert!(poll!(&mut paused).is_pending());
        renew.set(None);
        assert!(has_waited_too_long(paused.await));
    }

    #[tokio::test]
    async fn a_wait_for_a_permit_has_a_maximum() {
        let clock = Clock::start(&Lease::held(10 * MINUTE), "u", MINUTE).unwrap();
        *lock(&clock.patience) = Duration::from_millis(10);
        assert!(has_waited_too_long(clock.pause(pending()).await));
    }
}
