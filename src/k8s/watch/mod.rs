//! One way to watch our own resources, and the Secrets and ConfigMaps that they refer to: backed off, and never stopped by an
//! object that does not parse.
//!
//! In: an `Api`, and the number of the present turn. Out: watch events of the objects that parse ([`in_turns`]), or what is seen of single
//! objects ([`NamedWatches`], [`one`]). One that does not parse is logged with its name and passed over, for a single bad object
//! must not stop the stream of all others. Its deletion is passed on.
//!
//! With each new leadership term the watch restarts with a list of the current objects, because the previous leader may have written
//! something that this watch would deliver too late.

mod named;
mod raw_object;
mod steady;

use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

#[cfg(test)]
pub(crate) use named::follow;
pub(crate) use named::is_forbidden;
pub use named::{NamedWatches, Seen};
pub(crate) use raw_object::Lean;
pub use raw_object::{Deleted, Guarded};
use steady::{Logged, steady};

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
    fn builder(self) -> backon::ExponentialBuilder {
        let longest = match self {
            Self::Short => Duration::from_secs(5),
            Self::Long => Duration::from_secs(30),
        };
        let pauses = backon::ExponentialBuilder::default().with_min_delay(FIRST_PAUSE).with_max_delay(longest);
        pauses.with_factor(2.0).with_jitter().without_max_times()
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

/// Watches by leadership term: nothing before the first term, and a restart with each term.
pub fn in_turns<K>(api: Api<Guarded<K>>, turns: Receiver<Option<u64>>) -> (Turn, Events<K>)
where
    K: Deleted + Clone + Debug + Send + 'static,
{
    matching_in_turns(api, None, Pauses::Short, turns)
}

/// The same, of the one object of this name.
pub fn one_in_turns<K>(api: Api<Guarded<K>>, name: &str, turns: Receiver<Option<u64>>) -> (Turn, Events<K>)
where
    K: Deleted + Clone + Debug + Send + 'static,
{
    matching_in_turns(api, Some(name), Pauses::Short, turns)
}

/// Watches the one object of this name, of a kind that need not be known before the program runs, in no turn: from now on and
/// without end.
pub fn one<K>(api: Api<K>, name: &str) -> BoxStream<'static, watcher::Result<watcher::Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    steady(name, move || watcher(api.clone(), only.clone()).boxed(), Pauses::Short).boxed()
}

/// The same, of the one object of this name if there is one, and with these pauses.
fn matching_in_turns<K>(
    api: Api<Guarded<K>>,
    name: Option<&str>,
    pauses: Pauses,
    turns: Receiver<Option<u64>>,
) -> (Turn, Events<K>)
where
    K: Deleted + Clone + Debug + Send + 'static,
{
    let turn = Turn::default();
    let config = name
        .map_or_else(watcher::Config::default, |name| watcher::Config::default().fields(&format!("metadata.name={name}")));
    let (namespace, name) = (api.namespace().map(str::to_owned), name.map(str::to_owned));
    let (last, watching) = (turn.clone(), None::<(u64, Events<Guarded<K>>)>);
    let begin = move || {
        let (api, config) = (api.clone(), config.clone());
        steady(&K::kind(&()), move || watcher(api.clone(), config.clone()).boxed(), pauses).boxed()
    };
    let events = stream::unfold((begin, turns, watching, last), |(begin, mut turns, mut watching, last)| async move {
        loop {
            let turn = *turns.borrow_and_update();
            if let Some(turn) = turn.filter(|turn| watching.as_ref().is_none_or(|(of, _)| of != turn)) {
                watching = Some((turn, begin()));
            }
            let Some((turn, events)) = &mut watching else {
                turns.changed().await.ok()?;
                continue;
            };
            tokio::select! {
                Ok(()) = turns.changed() => {}
                event = events.next() => {
                    last.0.store(*turn, Ordering::Release);
                    return Some((event?, (begin, turns, watching, last)));
                }
            }
        }
    });
    let mut logged = Logged::default();
    let events = events.inspect(move |event| {
        if let Err(error) = event
            && let Some(error) = logged.news(error, Instant::now())
        {
            tracing::warn!(kind = %K::kind(&()), namespace, name, error, "a watch broke; trying again");
        }
    });
    (turn, parsed(events).boxed())
}

/// The objects that parse.
fn parsed<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<Guarded<K>>>> + Send,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send
where
    K: Deleted + Send,
{
    events.filter_map(|event| ready(event.map(opened).transpose()))
}

fn opened<K>(event: watcher::Event<Guarded<K>>) -> Option<watcher::Event<K>>
where
    K: Deleted,
{
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    let open = |guarded: &Guarded<K>| {
        let tell = |error: &serde_json::Error| {
            let metadata = guarded.meta();
            let (kind, name) = (K::kind(&()), metadata.name.as_deref().unwrap_or_default());
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            tracing::error!(%kind, namespace, name, %error, "skipping an object that does not parse; correct or delete it");
        };
        guarded.open().inspect_err(tell).ok()
    };
    match event {
        Init => Some(Init),
        InitDone => Some(InitDone),
        Apply(g) => open(&g).map(Apply),
        InitApply(g) => open(&g).map(InitApply),
        // That it is gone is known by its metadata, also of one that does not parse.
        Delete(g) => Some(Delete(g.open().unwrap_or_else(|_| K::deleted(g.lean.metadata)))),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::api::{Notification, Pipeline};

    async fn deleted<K: Deleted + Clone + Debug + Send + 'static>() -> (bool, Vec<watcher::Event<K>>) {
        let metadata = json!({"namespace": "n", "name": "o", "uid": "u", "resourceVersion": "7"});
        let object = json!({"metadata": metadata, "spec": 5, "data": 5}).to_string();
        let object: Guarded<K> = serde_json::from_str(&object).unwrap();
        let events = [watcher::Event::Apply(object.clone()), watcher::Event::Delete(object.clone())];
        let events = parsed(stream::iter(events.map(Ok))).map(Result::unwrap).collect().await;
        (object.open().is_ok(), events)
    }

    #[tokio::test]
    async fn the_deletion_of_an_object_that_does_not_parse_is_passed_on() {
        async fn check<K: Deleted + Clone + Debug + Send + 'static>() {
            let (parses, events) = deleted::<K>().await;
            let [watcher::Event::Delete(object)] = &events[..] else { panic!("{events:?}") };
            let metadata = object.meta();
            assert!(!parses);
            assert_eq!((metadata.namespace.as_deref(), metadata.name.as_deref()), (Some("n"), Some("o")));
            assert_eq!((metadata.uid.as_deref(), metadata.resource_version.as_deref()), (Some("u"), Some("7")));
        }
        check::<Notification>().await;
        check::<Pipeline>().await;
        check::<ConfigMap>().await;
    }
}
