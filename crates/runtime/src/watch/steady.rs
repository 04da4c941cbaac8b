//! A watch that never ends. After an error it is retried, with pauses that grow until an object changes or a list is complete.
//!
//! kube's own backoff restarts at the first delay with each `Init`, which precedes each list: a rejected list would be requested more
//! than once a second, without end.

use std::collections::HashMap;
use std::time::Duration;

use backon::BackoffBuilder as _;
use futures::{Stream, StreamExt as _, stream};
use kube::core::Status;
use kube::runtime::watcher::{self, Event};
use tokio::time::{Instant, sleep_until, timeout};

use super::{Events, Pauses};
use relaybook_telemetry::chain;

/// Timeout for the next part of a list.
const DEADLINE: Duration = Duration::from_secs(30);

/// After a watch has worked for this time, the pauses restart at the first one.
const WORKED: Duration = Duration::from_mins(2);

/// The same problem of a watch is logged again after this time.
const LOG_AGAIN: Duration = Duration::from_mins(5);
/// Maximum number of problems of a watch that are logged in that time.
const TROUBLES: usize = 8;
/// Maximum length of a problem in a log line, in characters.
const WORDS: usize = 256;

/// Computes the pauses after errors of a watch.
struct Schedule {
    pauses: Pauses,
    next: backon::ExponentialBackoff,
    /// Start of the last attempt.
    tried: Instant,
}

impl Schedule {
    fn new(pauses: Pauses, now: Instant) -> Self {
        Self { pauses, next: pauses.builder().build(), tried: now }
    }

    /// Updates the pauses after an event or error. Returns when to continue, or `None` to continue at once.
    fn after<K>(&mut self, said: &watcher::Result<Event<K>>, now: Instant) -> Option<Instant> {
        let worked = now.saturating_duration_since(self.tried) >= WORKED;
        if worked || matches!(said, Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_))) {
            self.next = self.pauses.builder().build();
        }
        if said.is_ok() {
            return None;
        }
        self.tried = now + self.next.next().unwrap_or(DEADLINE);
        Some(self.tried)
    }
}

struct Steady<K, B> {
    what: String,
    begin: B,
    events: Events<K>,
    listing: bool,
    schedule: Schedule,
    /// When to continue after an error.
    waits: Option<Instant>,
}

impl<K, B: Fn() -> Events<K>> Steady<K, B> {
    async fn next(&mut self) -> Option<watcher::Result<Event<K>>> {
        loop {
            // The pause does not count towards the timeout of a list.
            if let Some(until) = self.waits {
                sleep_until(until).await;
                self.waits = None;
            }
            let Some(event) = within(self.listing, self.events.next()).await else {
                tracing::warn!(watch = self.what, "list request timed out; restarting the watch");
                (self.events, self.listing) = ((self.begin)(), true);
                continue;
            };
            let event = event?;
            match &event {
                Ok(Event::Init | Event::InitApply(_)) => self.listing = true,
                Ok(Event::InitDone) => self.listing = false,
                _ => {}
            }
            if event.as_ref().is_err_and(is_refused_as_too_old) {
                (self.events, self.listing) = ((self.begin)(), true);
            }
            self.waits = self.schedule.after(&event, Instant::now());
            return Some(event);
        }
    }
}

/// Returns the events of a watch. `begin` starts it, and starts it again after each timeout of a list, and if its version
/// is refused as too old. `what` names it in log lines.
pub(super) fn steady<K, B>(
    what: &str,
    begin: B,
    pauses: Pauses,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K, B>
where
    K: Send + 'static,
    B: Fn() -> Events<K> + Send + 'static,
{
    let schedule = Schedule::new(pauses, Instant::now());
    let first = Steady { what: what.to_owned(), events: begin(), begin, listing: true, schedule, waits: None };
    stream::unfold(first, |mut steady| async move { Some((steady.next().await?, steady)) })
}

/// Whether the watch was refused because its version is too old. kube lists again only if the watch begins and its first event is this error. It
/// would request a watch that was refused with the same version, without end.
fn is_refused_as_too_old(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

/// Applies the timeout to a list. An API server that accepts the request and sends nothing would block everything that waits for the list.
/// A watch has its own timeout. `None`: timed out.
async fn within<T>(listing: bool, next: impl Future<Output = T>) -> Option<T> {
    if listing { timeout(DEADLINE, next).await.ok() } else { Some(next.await) }
}

/// Recently logged problems of one watch.
#[derive(Default)]
pub(super) struct Logged(HashMap<String, Instant>);

impl Logged {
    /// Returns the message to log for an error, unless the same message was logged recently.
    pub fn if_new(&mut self, error: &watcher::Error, now: Instant) -> Option<String> {
        self.0.retain(|_, at| now.saturating_duration_since(*at) < LOG_AGAIN);
        let words = words(error);
        if self.0.len() >= TROUBLES || self.0.contains_key(&words) {
            return None;
        }
        self.0.insert(words.clone(), now);
        Some(words)
    }
}

/// Returns a short description of an error. The message of kube contains the whole response of the API server three times.
fn words(error: &watcher::Error) -> String {
    let (what, why) = match error {
        watcher::Error::InitialListFailed(error) => ("the list failed", cause(error)),
        watcher::Error::WatchStartFailed(error) => ("the watch could not start", cause(error)),
        watcher::Error::WatchFailed(error) => ("the watch was interrupted", cause(error)),
        watcher::Error::WatchError(status) => ("the API server ended the watch", refusal(status)),
        watcher::Error::NoResourceVersion => ("the list failed", "the API server returned no resource version".to_owned()),
    };
    format!("{what}: {why}").chars().take(WORDS).collect()
}

fn cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => refusal(status),
        other => chain(other),
    }
}

fn refusal(status: &Status) -> String {
    format!("{} {}: {}", status.code, status.reason, status.message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    type Said = watcher::Result<Event<ConfigMap>>;

    fn refused(code: u16, message: &str) -> watcher::Error {
        let status = Status::failure(message, "Forbidden").with_code(code).boxed();
        watcher::Error::InitialListFailed(kube::Error::Api(status))
    }

    /// Applies the events in order. Returns the pause after each error, in whole seconds. Sets `now` to the end of the last pause.
    fn pauses(schedule: &mut Schedule, now: &mut Instant, said: impl IntoIterator<Item = Said>) -> Vec<u64> {
        let mut found = Vec::new();
        for said in said {
            if let Some(until) = schedule.after(&said, *now) {
                found.push(until.duration_since(*now).as_secs());
                *now = until;
            }
        }
        found
    }

    #[test]
    fn pauses_grow_while_a_list_is_refused_and_received_events_reset_them() {
        let refusals =
            || (0..8).flat_map(|_| [Ok(Event::Init), Ok(Event::InitApply(ConfigMap::default())), Err(refused(403, ""))]);
        for (kind, longest) in [(Pauses::Short, 5), (Pauses::Long, 30)] {
            let mut now = Instant::now();
            let mut schedule = Schedule::new(kind, now);
            let found = pauses(&mut schedule, &mut now, refusals());
            assert!(found[0] < 2 && found[7] >= longest && found.iter().all(|p| *p <= 2 * longest), "{found:?}");
            let resets = [Event::InitDone, Event::Apply(ConfigMap::default()), Event::Delete(ConfigMap::default())];
            for reset in resets {
                let again = pauses(&mut schedule, &mut now, [Ok(reset), Err(refused(403, ""))]);
                assert!(again[0] < 2, "{again:?}");
                pauses(&mut schedule, &mut now, refusals());
            }
            now += WORKED;
            let again = pauses(&mut schedule, &mut now, [Err(refused(403, ""))]);
            assert!(again[0] < 2, "a watch that stood for long begins with the first pause: {again:?}");
        }
    }

    #[tokio::test]
    async fn a_watch_that_is_refused_as_too_old_begins_with_a_new_list() {
        let lists = Arc::new(AtomicUsize::new(0));
        for (code, expected) in [(410, 2), (403, 1)] {
            let count = lists.clone();
            count.store(0, Ordering::Relaxed);
            let begin = move || {
                count.fetch_add(1, Ordering::Relaxed);
                let status = Status::failure("too old resource version", "Expired").with_code(code).boxed();
                let refused = watcher::Error::WatchStartFailed(kube::Error::Api(status));
                stream::iter([Ok(Event::Init), Ok(Event::InitDone), Err(refused)]).boxed()
            };
            let said: Vec<Said> = steady("ConfigMap", begin, Pauses::Short).take(3).collect().await;
            assert!(matches!(said[..], [Ok(Event::Init), Ok(Event::InitDone), Err(_)]), "{said:?}");
            assert_eq!(lists.load(Ordering::Relaxed), expected, "{code}");
        }
    }

    #[test]
    fn the_same_problem_is_logged_at_most_once_in_each_period_and_shortened() {
        let (mut logged, now) = (Logged::default(), Instant::now());
        let one = refused(403, "secrets is forbidden");
        assert_eq!(logged.if_new(&one, now).unwrap(), "the list failed: 403 Forbidden: secrets is forbidden");
        assert_eq!(logged.if_new(&one, now), None);
        assert!(logged.if_new(&watcher::Error::NoResourceVersion, now).is_some());
        assert_eq!(logged.if_new(&one, now + LOG_AGAIN / 2), None);
        assert!(logged.if_new(&one, now + LOG_AGAIN).is_some());
        let many = (0..100).filter(|n| logged.if_new(&refused(403, &n.to_string()), now + LOG_AGAIN).is_some()).count();
        assert!(many < TROUBLES, "{many}");
        assert_eq!(words(&refused(500, &"x".repeat(5000))).len(), WORDS);
    }
}
