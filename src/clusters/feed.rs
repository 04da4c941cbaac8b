//! One watch, followed for as long as its cache lives: discover the kind, list and watch it, and when that fails say why, wait
//! and begin again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::{Stream, StreamExt as _};
use kube::core::{DynamicObject, GroupVersionKind, TypeMeta};
use kube::discovery::Scope;
use kube::error::DiscoveryError;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::{Instant, timeout};

use super::Reason;
use super::caches::Shared;
use super::store::{CacheId, ObjectName, Phase};
use crate::observe::observe;
use crate::telemetry::metrics::Watch;

/// A single call, or the wait for the next object of a list, takes no longer.
const DEADLINE: Duration = Duration::from_secs(30);
/// A cluster that was in reach is called unreachable, or forbidden (an API server that has just started refuses everyone), only
/// after so long; until then the last observations stand.
const PATIENCE: Duration = Duration::from_secs(30);
/// A watch is begun anew, with a list, after so many failures in a row: only a list proves that nothing was missed.
const FAILURES: u32 = 3;

/// Why a watch ended.
#[derive(Debug, PartialEq, Eq)]
enum Trouble {
    /// There is no such kind.
    KindNotFound,
    /// The kind has no namespaces, so no target can name one of its objects.
    NotNamespaced,
    /// The API server refuses; in its words.
    Forbidden(String),
    /// The API server does not answer, or not with anything of use.
    Unreachable,
}

/// How one attempt to follow the kind ended.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    trouble: Trouble,
    /// Whether it had listed everything before.
    listed: bool,
}

/// The watch of one cache.
pub(super) struct Feed {
    shared: Arc<Shared>,
    id: CacheId,
}

impl Feed {
    pub fn new(shared: Arc<Shared>, id: CacheId) -> Self {
        Self { shared, id }
    }

    /// Follows the kind until dropped.
    pub async fn run(self, client: Client) {
        // Jitter adds up to as much again, so attempts are at most 15 s apart.
        let schedule = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(500))
            .with_max_delay(Duration::from_millis(7_500))
            .without_max_times()
            .with_jitter();
        let mut delays = schedule.build();
        let mut failing: Option<Instant> = None;
        loop {
            let ended = match self.open(&client).await {
                Ok(events) => self.follow(events).await,
                Err(trouble) => Ended { trouble, listed: false },
            };
            if ended.listed {
                delays = schedule.build();
                failing = None;
            }
            let since = *failing.get_or_insert_with(Instant::now);
            self.report(ended.trouble, since.elapsed()).await;
            tokio::time::sleep(delays.next().unwrap_or(DEADLINE)).await;
        }
    }

    /// Finds out how the kind is served, and watches it.
    async fn open(&self, client: &Client) -> Result<impl Stream<Item = watcher::Result<Event<DynamicObject>>>, Trouble> {
        let key = &self.id.key;
        let (group, version) = key.api_version.split_once('/').unwrap_or(("", &key.api_version));
        let gvk = GroupVersionKind::gvk(group, version, &key.kind);
        let found = timeout(DEADLINE, kube::discovery::pinned_kind(client, &gvk)).await.map_err(|_| Trouble::Unreachable)?;
        let (resource, capabilities) = found.map_err(|e| trouble(&e))?;
        if capabilities.scope != Scope::Namespaced {
            return Err(Trouble::NotNamespaced);
        }
        let api = match &key.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        Ok(watcher(api, watcher::Config::default()).default_backoff())
    }

    /// Takes in events until the watch cannot go on by itself.
    async fn follow(&self, events: impl Stream<Item = watcher::Result<Event<DynamicObject>>>) -> Ended {
        let mut events = std::pin::pin!(events);
        let mut seen = HashSet::new();
        let (mut listing, mut listed, mut failures) = (true, false, 0);
        loop {
            let next = if listing { timeout(DEADLINE, events.next()).await.ok().flatten() } else { events.next().await };
            match next {
                Some(Ok(Event::Init)) => {
                    seen.clear();
                    listing = true;
                }
                Some(Ok(Event::InitApply(object))) => seen.extend(self.record(object, true).await),
                Some(Ok(Event::InitDone)) => {
                    (listing, listed, failures) = (false, true, 0);
                    let wake = self.shared.store().listed(&self.id, &std::mem::take(&mut seen));
                    self.shared.wake(wake).await;
                }
                Some(Ok(Event::Apply(object))) => {
                    failures = 0;
                    self.record(object, true).await;
                }
                Some(Ok(Event::Delete(object))) => {
                    failures = 0;
                    self.record(object, false).await;
                }
                Some(Err(error)) => {
                    self.shared.metrics.watch_error(Watch::ApplicationObjects);
                    match watch_trouble(&error) {
                        None => {}
                        Some(Trouble::Unreachable) if listed && failures + 1 < FAILURES => failures += 1,
                        Some(trouble) => return Ended { trouble, listed },
                    }
                }
                None => return Ended { trouble: Trouble::Unreachable, listed },
            }
        }
    }

    /// Takes in what an object says, or that it is gone. Returns its name.
    async fn record(&self, mut object: DynamicObject, exists: bool) -> Option<ObjectName> {
        let name = (object.metadata.namespace.clone()?, object.metadata.name.clone()?);
        // In a list, the objects of built-in kinds do not say what they are.
        let key = &self.id.key;
        object.types = Some(TypeMeta { api_version: key.api_version.clone(), kind: key.kind.clone() });
        let obs = observe(exists.then_some(&object));
        let wake = self.shared.store().record(&self.id, name.clone(), obs);
        self.shared.wake(wake).await;
        Some(name)
    }

    /// Tells what is wrong, unless that may pass by itself.
    async fn report(&self, trouble: Trouble, failing: Duration) {
        let key = &self.id.key;
        let (reason, message) = match trouble {
            Trouble::KindNotFound => {
                (Reason::KindNotFound, format!("cluster {} has no kind {} in {}", key.cluster, key.kind, key.api_version))
            }
            Trouble::NotNamespaced => {
                (Reason::KindNotFound, format!("kind {} of {} has no namespaces", key.kind, key.api_version))
            }
            Trouble::Forbidden(words) => (Reason::Forbidden, words),
            Trouble::Unreachable => (Reason::Unreachable, format!("cluster {} does not answer", key.cluster)),
        };
        let (changed, wake) = {
            let mut store = self.shared.store();
            if reason != Reason::KindNotFound && store.is_synced(&self.id) && failing < PATIENCE {
                return;
            }
            store.set_phase(&self.id, Phase::Unknown(reason, message.clone()))
        };
        if changed {
            tracing::warn!(
                reason = reason.as_str(),
                kind = key.kind,
                namespace = key.namespace,
                "cannot observe: {message}"
            );
        }
        self.shared.wake(wake).await;
    }
}

/// What an error of a watch means; `None` for one from which the watch recovers by listing again.
fn watch_trouble(error: &watcher::Error) -> Option<Trouble> {
    match error {
        watcher::Error::InitialListFailed(e) | watcher::Error::WatchStartFailed(e) | watcher::Error::WatchFailed(e) => {
            Some(trouble(e))
        }
        watcher::Error::WatchError(status) if status.code == 410 => None,
        watcher::Error::WatchError(status) => Some(refused(status.code, &status.message)),
        watcher::Error::NoResourceVersion => Some(Trouble::Unreachable),
    }
}

/// What an error of a call means.
fn trouble(error: &kube::Error) -> Trouble {
    match error {
        kube::Error::Api(status) => refused(status.code, &status.message),
        kube::Error::Discovery(DiscoveryError::InvalidGroupVersion(_)) => Trouble::Unreachable,
        kube::Error::Discovery(_) => Trouble::KindNotFound,
        _ => Trouble::Unreachable,
    }
}

/// What an answer other than success means.
fn refused(code: u16, words: &str) -> Trouble {
    match code {
        404 => Trouble::KindNotFound,
        401 | 403 => Trouble::Forbidden(words.to_owned()),
        _ => Trouble::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::core::Status;
    use serde_json::json;
    use tokio::sync::mpsc::Receiver;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::api::refs::ClusterAppRef;
    use crate::clusters::{Now, PipelineKey, Scope};

    type Events = Vec<watcher::Result<Event<DynamicObject>>>;

    fn deployment(name: &str, image: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "apps", "generation": 1},
            "spec": {"template": {"spec": {"containers": [{"name": "main", "image": format!("example.com/web:{image}")}]}}},
        }))
        .unwrap()
    }

    fn app(name: &str) -> ClusterAppRef {
        ClusterAppRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: name.into(),
            namespace: "apps".into(),
        }
    }

    /// A feed whose cache one pipeline needs for the objects `web` and `gone`.
    fn feed() -> (Feed, Receiver<PipelineKey>) {
        let (shared, woken) = Shared::new("in-cluster".to_owned(), Scope::All, crate::telemetry::Metrics::new());
        let pipeline = PipelineKey { namespace: "team".into(), name: "p".into() };
        let refs = [app("web"), app("gone")].into();
        let declared = shared.store().declare(&pipeline, refs, &CancellationToken::new());
        let id = declared.started.into_iter().next().unwrap().0;
        (Feed::new(shared, id), woken)
    }

    fn error(code: u16) -> watcher::Error {
        watcher::Error::WatchStartFailed(kube::Error::Api(Status::failure("no", "No").with_code(code).boxed()))
    }

    async fn follow(feed: &Feed, events: Events) -> Ended {
        feed.follow(stream::iter(events)).await
    }

    fn woken(receiver: &mut Receiver<PipelineKey>) -> usize {
        std::iter::from_fn(|| receiver.try_recv().ok()).count()
    }

    #[tokio::test]
    async fn nothing_is_known_before_the_list_has_ended() {
        let (feed, mut receiver) = feed();
        let ended = follow(&feed, vec![Ok(Event::Init), Ok(Event::InitApply(deployment("web", "1")))]).await;
        assert_eq!(ended, Ended { trouble: Trouble::Unreachable, listed: false });
        assert!(matches!(feed.shared.store().read(&app("web"), 0).now, Now::Unknown { reason: Reason::CacheNotSynced, .. }));
        assert_eq!(woken(&mut receiver), 0);
    }

    #[tokio::test]
    async fn what_a_list_no_longer_holds_is_gone() {
        let (feed, mut receiver) = feed();
        let list = |objects: Vec<DynamicObject>| -> Events {
            let middle = objects.into_iter().map(|o| Ok(Event::InitApply(o)));
            std::iter::once(Ok(Event::Init)).chain(middle).chain([Ok(Event::InitDone)]).collect()
        };
        let mut events = list(vec![deployment("web", "1"), deployment("gone", "1")]);
        events.push(Err(watcher::Error::WatchError(Status::failure("old", "Expired").with_code(410).boxed())));
        events.extend(list(vec![deployment("web", "1")]));
        assert!(follow(&feed, events).await.listed);
        let read = |name| feed.shared.store().read(&app(name), 0);
        assert_eq!(read("web").observations.len(), 1);
        let said: Vec<_> = read("gone").observations.into_iter().map(|(_, o)| o.status).collect();
        assert_eq!(said, [crate::api::Status::InProgress, crate::api::Status::NotFound]);
        assert_eq!(woken(&mut receiver), 2, "once for the first list, once for what has gone");
    }

    #[tokio::test]
    async fn a_few_hiccups_of_a_synced_watch_are_left_to_it() {
        let (feed, _woken) = feed();
        let synced = || vec![Ok(Event::Init), Ok(Event::InitDone)];
        let mut events = synced();
        events.extend([Err(error(500)), Err(error(503)), Ok(Event::Apply(deployment("web", "2")))]);
        events.extend([Err(error(500)), Err(error(500)), Err(error(500)), Ok(Event::Apply(deployment("web", "3")))]);
        assert_eq!(follow(&feed, events).await, Ended { trouble: Trouble::Unreachable, listed: true });
        assert_eq!(feed.shared.store().read(&app("web"), 0).observations.len(), 1, "it ended at the third in a row");

        for (code, trouble) in [(404, Trouble::KindNotFound), (403, Trouble::Forbidden("no".to_owned()))] {
            let mut events = synced();
            events.extend([Err(error(code)), Ok(Event::Apply(deployment("web", "4")))]);
            assert_eq!(follow(&feed, events).await.trouble, trouble);
        }
    }

    #[tokio::test]
    async fn trouble_is_told_once_and_patience_is_for_what_may_pass() {
        let (feed, mut receiver) = feed();
        let long = PATIENCE + Duration::from_secs(1);
        let now = |feed: &Feed| feed.shared.store().read(&app("web"), 0).now;
        let reason = |now: Now| match now {
            Now::Known(_) => None,
            Now::Unknown { reason, .. } => Some(reason),
        };
        feed.report(Trouble::Unreachable, Duration::ZERO).await;
        feed.report(Trouble::Unreachable, Duration::ZERO).await;
        assert_eq!((reason(now(&feed)), woken(&mut receiver)), (Some(Reason::Unreachable), 1));
        follow(&feed, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
        assert_eq!((reason(now(&feed)), woken(&mut receiver)), (None, 1));
        feed.report(Trouble::Unreachable, Duration::ZERO).await;
        feed.report(Trouble::Forbidden("no".to_owned()), Duration::ZERO).await;
        assert_eq!((reason(now(&feed)), woken(&mut receiver)), (None, 0));
        feed.report(Trouble::Unreachable, long).await;
        assert_eq!((reason(now(&feed)), woken(&mut receiver)), (Some(Reason::Unreachable), 1));
        follow(&feed, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
        feed.report(Trouble::KindNotFound, Duration::ZERO).await;
        assert_eq!((reason(now(&feed)), woken(&mut receiver)), (Some(Reason::KindNotFound), 2));
    }
}
