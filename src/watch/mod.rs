//! One way to watch our own resources, and the Secrets and ConfigMaps that they refer to: backed off, and never stopped by an
//! object that does not parse.
//!
//! In: an `Api`, and the number of the present turn. Out: watch events of the objects that parse ([`in_turns`]; [`news_in_turns`]
//! without those in which nothing is new), or what is seen of single objects ([`NamedWatches`], [`one`]). One that does not parse is logged with its name and passed over, for a single bad object
//! must not stop the stream of all others.
//!
//! With each new turn the watch is begun anew, and so with a list of what the API server holds now: whoever acted in the turn
//! before may have written what this watch would tell too late.

mod guard;
mod named;
mod news;

use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

pub use guard::Guarded;
pub(crate) use guard::Lean;
#[cfg(test)]
pub(crate) use named::follow;
pub(crate) use named::is_forbidden;
pub use named::{NamedWatches, Seen};
use news::news;

/// The next part of a list takes no longer.
const DEADLINE: Duration = Duration::from_secs(30);

/// After the first error in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(800);

/// How long it takes at most, or twice as long by chance, until a watch that broke is tried again. After an outage that outlasts
/// what the API server remembers, it breaks once more before it lists, so nobody hears anything for up to four times as long.
#[derive(Clone, Copy, Debug)]
enum Pauses {
    /// Of a whole kind: few, and everything waits for them.
    Short,
    /// Of a single object: there may be thousands, and what was last read of it stands.
    Long,
}

impl Pauses {
    fn backoff(self) -> watcher::ExponentialBackoff {
        let longest = match self {
            Self::Short => Duration::from_secs(5),
            Self::Long => Duration::from_secs(30),
        };
        let pauses = backon::ExponentialBuilder::default().with_min_delay(FIRST_PAUSE).with_max_delay(longest);
        pauses.with_factor(2.0).with_jitter().without_max_times().into()
    }
}

/// The turn in which the list was begun to which the last event of a watch belongs.
#[derive(Clone, Debug, Default)]
pub struct Turn(Arc<AtomicU64>);

impl Turn {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

type Events<K> = BoxStream<'static, watcher::Result<watcher::Event<K>>>;

/// Watches in turns: nothing before the first is known, and anew with each.
pub fn in_turns<K>(api: Api<Guarded<K>>, turns: Receiver<Option<u64>>) -> (Turn, Events<K>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    matching_in_turns(api, watcher::Config::default(), Pauses::Short, turns)
}

/// The same without events of objects that are as they were, but for their version. What is listed is told of, new or not.
pub fn news_in_turns<K>(api: Api<Guarded<K>>, turns: Receiver<Option<u64>>) -> (Turn, Events<K>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (turn, events) = texts_in_turns(api, watcher::Config::default(), Pauses::Short, turns);
    (turn, parsed(news(events)).boxed())
}

/// The same, of the one object of this name.
pub fn one_in_turns<K>(api: Api<Guarded<K>>, name: &str, turns: Receiver<Option<u64>>) -> (Turn, Events<K>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    matching_in_turns(api, only, Pauses::Short, turns)
}

/// Watches the one object of this name, of a kind that need not be known before the program runs, in no turn: from now on and
/// without end.
pub fn one<K>(api: Api<K>, name: &str) -> BoxStream<'static, watcher::Result<watcher::Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let begin = move || watcher(api.clone(), only.clone()).backoff(Pauses::Short.backoff()).boxed();
    let first = (begin(), true);
    let events = stream::unfold((begin, first), |(begin, (mut events, mut listing))| async move {
        loop {
            let Some(event) = within(listing, events.next()).await else {
                events = begin();
                continue;
            };
            match &event {
                Some(Ok(watcher::Event::Init | watcher::Event::InitApply(_))) => listing = true,
                Some(Ok(watcher::Event::InitDone)) => listing = false,
                _ => {}
            }
            return Some((event?, (begin, (events, listing))));
        }
    });
    events.boxed()
}

/// The same, of the objects that match.
fn matching_in_turns<K>(
    api: Api<Guarded<K>>,
    config: watcher::Config,
    pauses: Pauses,
    turns: Receiver<Option<u64>>,
) -> (Turn, Events<K>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (turn, events) = texts_in_turns(api, config, pauses, turns);
    (turn, parsed(events).boxed())
}

/// The same, not yet parsed.
fn texts_in_turns<K>(
    api: Api<Guarded<K>>,
    config: watcher::Config,
    pauses: Pauses,
    turns: Receiver<Option<u64>>,
) -> (Turn, Events<Guarded<K>>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let turn = Turn::default();
    let (last, watching) = (turn.clone(), None::<(u64, bool, Events<Guarded<K>>)>);
    let begin = move || watcher(api.clone(), config.clone()).backoff(pauses.backoff()).boxed();
    let events = stream::unfold((begin, turns, watching, last), |(begin, mut turns, mut watching, last)| async move {
        loop {
            let turn = *turns.borrow_and_update();
            if let Some(turn) = turn.filter(|turn| watching.as_ref().is_none_or(|(of, ..)| of != turn)) {
                watching = Some((turn, true, begin()));
            }
            let Some((turn, listing, events)) = &mut watching else {
                turns.changed().await.ok()?;
                continue;
            };
            tokio::select! {
                Ok(()) = turns.changed() => {}
                event = within(*listing, events.next()) => {
                    let Some(event) = event else {
                        tracing::warn!(kind = %K::kind(&()), "a list was not answered; it is begun anew");
                        watching = None;
                        continue;
                    };
                    *listing = match &event {
                        Some(Ok(watcher::Event::Init | watcher::Event::InitApply(_))) => true,
                        Some(Ok(watcher::Event::InitDone)) => false,
                        _ => *listing,
                    };
                    last.0.store(*turn, Ordering::Release);
                    return Some((event?, (begin, turns, watching, last)));
                }
            }
        }
    });
    (turn, events.boxed())
}

/// A list must go on: an API server that takes the call and says nothing would hold up everything that waits for it. A watch
/// has its own limit. The outer `None`: it did not.
async fn within<T>(listing: bool, next: impl Future<Output = T>) -> Option<T> {
    if listing { timeout(DEADLINE, next).await.ok() } else { Some(next.await) }
}

/// The objects that parse.
fn parsed<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<Guarded<K>>>> + Send,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send,
{
    events.filter_map(|event| ready(event.map(opened).transpose()))
}

fn opened<K>(event: watcher::Event<Guarded<K>>) -> Option<watcher::Event<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    let open = |guarded: &Guarded<K>| {
        let tell = |error: &serde_json::Error| {
            let metadata = guarded.meta();
            let (kind, name) = (K::kind(&()), metadata.name.as_deref().unwrap_or_default());
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            tracing::error!(%kind, namespace, name, %error, "object does not parse and is passed over; mend or delete it");
        };
        guarded.open().inspect_err(tell).ok()
    };
    match event {
        Init => Some(Init),
        InitDone => Some(InitDone),
        Apply(g) => open(&g).map(Apply),
        InitApply(g) => open(&g).map(InitApply),
        Delete(g) => open(&g).map(Delete),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound() {
        for (pauses, longest) in [(Pauses::Short, 5), (Pauses::Long, 30)] {
            let longest = Duration::from_secs(longest);
            let taken: Vec<_> = pauses.backoff().take(12).collect();
            assert!(taken[0] >= FIRST_PAUSE && taken[0] <= 2 * FIRST_PAUSE, "{taken:?}");
            assert!(taken.iter().all(|pause| *pause <= 2 * longest), "{taken:?}");
            assert!(taken[8..].iter().all(|pause| *pause >= longest), "{taken:?}");
        }
    }
}
