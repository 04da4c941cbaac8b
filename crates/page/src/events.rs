//! The stream of events of a page: a signal whenever what it shows has changed.
//!
//! In: a screen, and watches with the permissions of the caller. Out: server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>). An event has no data of the cluster: the page reads itself again. At
//! most two events are sent in a second.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, select_all, unfold};
use futures::{Stream, StreamExt as _};
use kube::Api;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::access::caller::{Caller, Person};
use crate::follow::Following;
use crate::query::{Query, Screen};
use crate::trouble::{Trouble, Wanted};
use relaybook_api::{Notification, Outcome, Pipeline, Promotion};
use relaybook_runtime::fair::Permit;
use relaybook_runtime::watch::touched;
use relaybook_tools::audit;
use relaybook_tools::audit::{Filter, StateFilter};

/// Minimum time between two events.
const PACE: Duration = Duration::from_millis(500);
/// A comment is sent after this time without an event, so that proxies keep the connection, and a lost one is noticed.
const QUIET: Duration = Duration::from_secs(15);
/// Maximum duration of a stream. The browser makes a new one.
const LIFE: Duration = Duration::from_mins(10);

/// What a watch reports.
enum Signal {
    Changed,
    /// The stream ends, with a word for the script.
    End(&'static str),
}

struct State {
    signals: BoxStream<'static, Signal>,
    /// The time before which no event is sent.
    next: Instant,
    end: Instant,
    is_over: bool,
    _permit: Permit<Person>,
}

/// Returns the stream for a screen.
pub(super) async fn events(
    caller: &Caller,
    following: &Following,
    screen: &Screen,
    query: &Query,
    home: &str,
    permit: Permit<Person>,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + use<> {
    let now = Instant::now();
    let signals = signals(caller, following, screen, query, home).await;
    let state = State { signals, next: now, end: now + LIFE, is_over: false, _permit: permit };
    let hello = futures::stream::iter([Ok(Bytes::from_static(b"retry: 2000\n\n"))]);
    hello.chain(unfold(state, |mut state| async move { Some((Ok(state.next().await?), state)) }))
}

impl State {
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over || Instant::now() >= self.end {
            return None;
        }
        let until = (Instant::now() + QUIET).min(self.end);
        match timeout_at(until, self.signals.next()).await {
            Err(_) => Some(Bytes::from_static(b": quiet\n\n")),
            Ok(Some(Signal::Changed)) => {
                sleep_until(self.next).await;
                // What has changed until now is read with the same event.
                while let Some(Some(signal)) = futures::FutureExt::now_or_never(self.signals.next()) {
                    if let Signal::End(word) = signal {
                        return Some(self.over(word));
                    }
                }
                self.next = Instant::now() + PACE;
                Some(Bytes::from_static(b"event: change\ndata: \n\n"))
            }
            Ok(Some(Signal::End(word))) => Some(self.over(word)),
            Ok(None) => None,
        }
    }

    fn over(&mut self, word: &str) -> Bytes {
        self.is_over = true;
        Bytes::from(format!("event: end\ndata: {word}\n\n"))
    }
}

async fn signals(
    caller: &Caller,
    following: &Following,
    screen: &Screen,
    query: &Query,
    home: &str,
) -> BoxStream<'static, Signal> {
    let client = &caller.client;
    // Deliveries whose URL is set in the global configuration are in the namespace of the controllers.
    let elsewhere = |namespace: &str, filter: &Filter| {
        let filter = filter.clone().about_pipelines_in(namespace);
        (namespace != home).then(|| optional(audit::touched(client, Some(home), &filter)))
    };
    let named = |name: &str| format!("metadata.name={name}");
    match screen {
        Screen::Pipeline(namespace, name) => {
            let filter = Filter { pipeline: Some(name.clone()), ..Filter::default() };
            let pipelines: Api<Pipeline> = Api::namespaced(client.clone(), namespace);
            let promotions: Api<Promotion> = Api::namespaced(client.clone(), namespace);
            // The pipeline must be readable; the others may be forbidden.
            let own = [
                required(touched(pipelines, String::new(), named(name))),
                optional(audit::touched(client, Some(namespace), &filter)),
                optional(touched(promotions, String::new(), String::new())),
            ];
            select_all(own.into_iter().chain(elsewhere(namespace, &filter))).boxed()
        }
        Screen::Notification(namespace, name) => {
            let filter = Filter { notification: Some(name.clone()), ..Filter::default() };
            let notifications: Api<Notification> = Api::namespaced(client.clone(), namespace);
            let deliveries = audit::touched(client, Some(namespace), &filter);
            let own = [required(touched(notifications, String::new(), named(name))), optional(deliveries)];
            select_all(own.into_iter().chain(elsewhere(namespace, &filter))).boxed()
        }
        Screen::Delivery(namespace, name) => required(audit::one_touched(client, namespace, name)),
        Screen::Pending | Screen::Parked => {
            let is_pending = *screen == Screen::Pending;
            let state = if is_pending { StateFilter::Pending } else { StateFilter::Settled(Outcome::Parked) };
            let filter = Filter { state: Some(state), ..Filter::default() };
            required(audit::touched(client, query.namespace.as_deref(), &filter))
        }
        Screen::Overview | Screen::Receivers | Screen::Clusters | Screen::Search => {
            let followed = following.rows(caller, query.namespace.as_deref()).await;
            let mut changes = followed.changes();
            // The first signal follows at once, because something can have changed since the page was made.
            changes.mark_changed();
            // The reference keeps the watches alive as long as the stream.
            let signals = unfold((followed, changes), |(followed, mut changes)| async move {
                let signal = match changes.changed().await {
                    _ if followed.is_signed_out() => Signal::End("signed-out"),
                    Ok(()) => Signal::Changed,
                    Err(_) => Signal::End("forbidden"),
                };
                Some((signal, (followed, changes)))
            });
            signals.boxed()
        }
    }
}

/// The signals of a watch without which there is nothing to show.
fn required(changes: impl Stream<Item = kube::Result<()>> + Send + 'static) -> BoxStream<'static, Signal> {
    meanings(changes, true)
}

/// The signals of a watch that can be forbidden.
fn optional(changes: impl Stream<Item = kube::Result<()>> + Send + 'static) -> BoxStream<'static, Signal> {
    meanings(changes, false)
}

fn meanings(
    changes: impl Stream<Item = kube::Result<()>> + Send + 'static,
    is_required: bool,
) -> BoxStream<'static, Signal> {
    let mut failed = None;
    changes.filter_map(move |change| std::future::ready(meaning(change, is_required, &mut failed))).boxed()
}

/// Returns the signal for an item of a watch. `failed` is set if the last attempt has failed: whether the failure can pass.
fn meaning(change: kube::Result<()>, is_required: bool, failed: &mut Option<bool>) -> Option<Signal> {
    let Err(error) = change else {
        *failed = None;
        return Some(Signal::Changed);
    };
    match Trouble::new(&error, &Wanted::new("watch", "objects", None)) {
        Trouble::SignedOut => Some(Signal::End("signed-out")),
        Trouble::Forbidden(_) if is_required => Some(Signal::End("forbidden")),
        // The page reads itself again, and says what is wrong. The watch is made again after a pause, and only its start is the next signal.
        trouble => {
            let is_passing = trouble.is_passing();
            (failed.replace(is_passing) != Some(is_passing)).then_some(Signal::Changed)
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refused(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("no", "Refused").with_code(code).boxed())
    }

    #[test]
    fn a_failure_is_signaled_once_and_so_is_its_end() {
        for (is_required, code) in [(true, 500), (false, 500), (false, 403)] {
            let mut failed = None;
            let mut is_signaled = |change| matches!(meaning(change, is_required, &mut failed), Some(Signal::Changed));
            assert!(is_signaled(Ok(())) && is_signaled(Err(refused(code))), "{code}");
            assert!(!is_signaled(Err(refused(code))) && !is_signaled(Err(refused(code))), "{code} again");
            assert!(is_signaled(Ok(())) && is_signaled(Ok(())), "each change is one signal");
            assert!(is_signaled(Err(refused(code))), "{code} after it had ended");
        }
        let mut failed = None;
        assert!(matches!(meaning(Err(refused(503)), false, &mut failed), Some(Signal::Changed)));
        assert!(
            matches!(meaning(Err(refused(403)), false, &mut failed), Some(Signal::Changed)),
            "a permission was withdrawn"
        );
        assert!(matches!(meaning(Err(refused(403)), true, &mut failed), Some(Signal::End("forbidden"))));
        assert!(matches!(meaning(Err(refused(401)), false, &mut failed), Some(Signal::End("signed-out"))));
    }
}
