//! Runs one watch while its cache exists: discovers, lists and watches the kind; after a failure reports the reason, waits, restarts.

mod narrow;

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::{Stream, StreamExt as _};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::Scope;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource as _};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::cache::{CacheId, Phase};
use super::caches::Shared;
use super::raw_object::Raw;
use crate::error::ObserveError;
use crate::remote::Link;
use relaybook_api::ObjectName;
use relaybook_api::values::refs::ClusterRef;
use relaybook_core::observe::{EventOrigin, ReadObject, Recorder, RevisionPath, Traits, see};
use relaybook_core::reading::{Follower, Reason, readable};
use relaybook_telemetry::metrics::Watch;

/// Timeout of a single call, and of the wait for the next object of a list.
const DEADLINE: Duration = Duration::from_secs(30);
/// A cluster that was reachable is reported as unreachable or forbidden only after this time. An API server that has just started can
/// refuse every call. Until then the last observations remain valid.
const PATIENCE: Duration = Duration::from_secs(30);
/// A watch is restarted, with a list, after this number of failures in a row: only a list proves that nothing was missed.
const FAILURES: u32 = 3;
/// Time after which a cache whose initial list is not complete is reported as slow.
const SLOW: Duration = Duration::from_secs(5);
/// Maximum number of objects of one kind. A cluster may send pages without end.
const MAX_OBJECTS: usize = 100_000;
/// Number of objects in a page of a list. The text of a whole page is kept in memory, and an API server accepts objects of more than 1 MB.
const PAGE: u32 = 50;
/// A page that exceeds the size limit is requested in this number of parts.
const PARTS: u32 = 10;
/// Time after its list that a watch must last to count as working.
const WORKING_AFTER: Duration = Duration::from_secs(5);
/// Maximum length of a name or namespace (<https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>).
const MAX_NAME: usize = 253;

/// How one attempt to watch the kind ended.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    trouble: ObserveError,
    /// Whether a page of the list exceeded the size limit.
    too_large: bool,
    /// Whether the list was complete and the watch then worked for a while. Only then the backoff restarts at its first delay.
    worked: bool,
}

/// State of one attempt to watch the kind.
struct Round {
    /// Whether a list is in progress.
    listing: bool,
    /// Names of the objects in that list.
    seen: HashSet<Arc<ObjectName>>,
    /// Time at which the first list was complete.
    listed: Option<Instant>,
    /// Whether a complete list was applied to the cache.
    applied: bool,
    /// Whether the watch has delivered an event after the list, or has lasted for [`WORKING_AFTER`].
    is_working: bool,
    /// Number of consecutive failures.
    failures: u32,
}

impl Round {
    fn new() -> Self {
        Self { listing: true, seen: HashSet::new(), listed: None, applied: false, is_working: false, failures: 0 }
    }

    fn ended(&self, trouble: ObserveError) -> Ended {
        Ended { trouble, too_large: false, worked: self.is_working }
    }
}

/// The watch of one cache.
pub(crate) struct KindWatcher {
    shared: Arc<Shared>,
    id: CacheId,
    /// Display name of the cluster.
    cluster: String,
    /// Path of the revision (`None`: the default of the kind), and path of the cluster that an object is about.
    paths: (Option<RevisionPath>, Option<RevisionPath>),
    /// What is recorded of an object.
    recorder: Option<Recorder>,
    /// Whether objects can be selected by their traits.
    keeps_traits: bool,
    /// The connection to the cluster. `None` before the start.
    link: Option<watch::Receiver<Link>>,
    /// Notified when the watch fails.
    nudge: Option<Arc<Notify>>,
    /// Maximum number of objects.
    most: usize,
}

impl KindWatcher {
    pub fn new(shared: Arc<Shared>, id: CacheId, nudge: Option<Arc<Notify>>) -> Self {
        let cluster = id.key.cluster.as_ref().map_or_else(|| shared.options.cluster_name.clone(), ClusterRef::full_name);
        // An invalid path or record is rejected when the spec is planned.
        let path_of = |path: &Option<String>| path.as_deref().and_then(|path| RevisionPath::parse(path).ok());
        let paths = (path_of(&id.key.revision_path), path_of(&id.key.cluster_path));
        let recorder = id.key.record.as_deref().and_then(|record| Recorder::parse(record).ok());
        let keeps_traits = shared.store().keeps_traits(&id);
        Self { shared, id, cluster, paths, recorder, keeps_traits, link: None, nudge, most: MAX_OBJECTS }
    }

    /// Watches the kind until dropped, over the current connection to the cluster.
    pub async fn run(mut self, link: watch::Receiver<Link>) {
        self.link = Some(link.clone());
        tokio::join!(self.mark_slow(), self.follow_link(link));
    }

    /// Marks the cache as slow after [`SLOW`], so that a component that waits for all caches of a pipeline continues without it.
    async fn mark_slow(&self) {
        tokio::time::sleep(SLOW).await;
        let wake = self.shared.store().slow(&self.id);
        self.shared.wake(wake).await;
    }

    async fn follow_link(&self, mut link: watch::Receiver<Link>) {
        loop {
            let now = link.borrow_and_update().clone();
            tokio::select! {
                changed = link.changed() => if changed.is_err() { return },
                never = self.run_link(now) => match never {},
            }
        }
    }

    /// Watches the kind, or reports why that is not possible.
    async fn run_link(&self, link: Link) -> Infallible {
        match link {
            Link::Resolving => {}
            Link::Up(client) => return self.watch_with_retries(client).await,
            Link::Down { trouble, confirmed } => {
                if !self.report(&trouble, if confirmed { PATIENCE } else { Duration::ZERO }).await {
                    // The watch before this one may have been stopped before it had woken all pipelines.
                    let wake = self.shared.store().dependents_if_unsynced(&self.id);
                    self.shared.wake(wake).await;
                }
                tokio::time::sleep(PATIENCE).await;
                self.report(&trouble, PATIENCE).await;
            }
        }
        std::future::pending().await
    }

    async fn watch_with_retries(&self, client: Client) -> Infallible {
        // Jitter can double a delay, so attempts are at most 15 s apart.
        let schedule = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(500))
            .with_max_delay(Duration::from_millis(7_500))
            .without_max_times()
            .with_jitter();
        let mut delays = schedule.build();
        let mut failing: Option<Instant> = None;
        let mut page = PAGE;
        loop {
            let ended = match self.open(&client, page).await {
                Ok(events) => self.follow(events, failing.is_some_and(|since| since.elapsed() >= PATIENCE)).await,
                Err(trouble) => Ended { trouble, too_large: false, worked: false },
            };
            if ended.too_large {
                page = (page / PARTS).max(1);
            }
            if ended.worked {
                delays = schedule.build();
                failing = None;
            }
            let since = *failing.get_or_insert_with(Instant::now);
            if !self.narrow(&ended.trouble, since.elapsed()) {
                self.report(&ended.trouble, since.elapsed()).await;
            }
            if ended.trouble.reason != Reason::KindNotFound {
                self.nudge();
            }
            tokio::time::sleep(ended.trouble.pause(delays.next().unwrap_or(DEADLINE))).await;
            self.shared.metrics.watch_restart();
        }
    }

    /// Discovers how the kind is served. Returns the events of a watch that starts with a list in pages of this size.
    async fn open(
        &self,
        client: &Client,
        page: u32,
    ) -> Result<impl Stream<Item = watcher::Result<Event<Raw>>>, ObserveError> {
        let key = &self.id.key;
        let gvk = GroupVersionKind::gvk(key.kind.group(), key.kind.version(), key.kind.kind());
        let found = timeout(DEADLINE, kube::discovery::pinned_kind(client, &gvk)).await;
        let found = found.map_err(|_| ObserveError::timeout(&self.cluster))?;
        let (resource, capabilities) = match found {
            Ok(found) => found,
            Err(error) => return Err(self.meant(client, ObserveError::of_call(&self.cluster, &error)).await),
        };
        if let Err(why) = readable::check_served(&key.kind, &resource) {
            return Err(ObserveError::new(Reason::ForbiddenKind, format!("cluster {}: {why}", self.cluster)));
        }
        if capabilities.scope != Scope::Namespaced {
            let message = format!("kind {} of {} has no namespaces", key.kind.kind(), key.kind.api_version());
            return Err(ObserveError::new(Reason::KindNotFound, message));
        }
        let api = match &key.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        Ok(watcher(api, watcher::Config::default().page_size(page)).default_backoff())
    }

    /// Applies events until the watch fails. `recent_failures`: earlier attempts have failed for a while, although their lists may have
    /// succeeded. Then a list is applied only after the watch that follows it works.
    async fn follow(&self, events: impl Stream<Item = watcher::Result<Event<Raw>>>, recent_failures: bool) -> Ended {
        let mut events = std::pin::pin!(events);
        let mut round = Round::new();
        loop {
            let limit = match round.listed {
                _ if round.listing => DEADLINE,
                Some(at) if !round.is_working => (at + WORKING_AFTER).saturating_duration_since(Instant::now()),
                _ => {
                    let Some(ended) = self.handle_event(events.next().await, &mut round, recent_failures).await else {
                        continue;
                    };
                    return ended;
                }
            };
            match timeout(limit, events.next()).await {
                Ok(next) => {
                    if let Some(ended) = self.handle_event(next, &mut round, recent_failures).await {
                        return ended;
                    }
                }
                Err(_) if round.listing => return round.ended(ObserveError::timeout(&self.cluster)),
                Err(_) => {
                    round.is_working = true;
                    if !round.applied {
                        self.apply_list(&mut round).await;
                    }
                }
            }
        }
    }

    /// Applies one event or error of the watch. Returns how the attempt ended, if it ended.
    async fn handle_event(
        &self,
        next: Option<watcher::Result<Event<Raw>>>,
        round: &mut Round,
        recent_failures: bool,
    ) -> Option<Ended> {
        match next {
            Some(Ok(Event::Init)) => {
                round.seen.clear();
                round.listing = true;
            }
            Some(Ok(Event::InitApply(object))) => round.seen.extend(self.record(object, Some(EventOrigin::Listed)).await),
            Some(Ok(Event::InitDone)) => {
                round.listing = false;
                if round.is_working {
                    round.failures = 0;
                }
                round.listed.get_or_insert_with(Instant::now);
                if !recent_failures || round.is_working {
                    self.apply_list(round).await;
                }
            }
            Some(Ok(event @ (Event::Apply(_) | Event::Delete(_)))) => {
                (round.failures, round.is_working) = (0, true);
                if !round.applied {
                    self.apply_list(round).await;
                }
                match event {
                    Event::Apply(object) => self.record(object, Some(EventOrigin::Changed)).await,
                    Event::Delete(object) => self.record(object, None).await,
                    _ => None,
                };
                self.shared.count();
            }
            Some(Err(error)) => {
                self.shared.metrics.watch_error(Watch::ApplicationObjects);
                self.nudge();
                match ObserveError::of_watch(&self.cluster, &error) {
                    // The watch lists again without a restart, so the number of such lists needs a limit, too.
                    None if round.is_working || round.failures + 1 < FAILURES => round.failures += 1,
                    None => return Some(round.ended(ObserveError::unusable_response(&self.cluster))),
                    Some(trouble) if trouble.is_passing() && round.listed.is_some() && round.failures + 1 < FAILURES => {
                        round.failures += 1;
                    }
                    Some(trouble) => {
                        let too_large = ObserveError::is_too_large(&error);
                        return Some(Ended { too_large, ..round.ended(self.named(trouble)) });
                    }
                }
            }
            None => return Some(round.ended(ObserveError::unusable_response(&self.cluster))),
        }
        self.give_up().await
    }

    /// Clears the cache and ends the attempt if there are too many objects of the kind.
    async fn give_up(&self) -> Option<Ended> {
        if self.shared.store().len(&self.id) <= self.most {
            return None;
        }
        let (most, kind) = (self.most, self.id.key.kind.kind());
        let words = format!("cluster {} has more than {most} objects of kind {kind}, which is the limit", self.cluster);
        let trouble = ObserveError::new(Reason::TooManyObjects, words);
        let told = self.shared.store().empty(&self.id, trouble.reason, &trouble.message);
        self.shared.count();
        self.log_and_wake(&trouble, told).await;
        Some(Ended { trouble, too_large: false, worked: false })
    }

    /// Applies a complete list: objects that it does not contain are gone.
    async fn apply_list(&self, round: &mut Round) {
        if round.listing {
            return;
        }
        // The watch before this one may have been dropped before it had woken all pipelines.
        let first = !std::mem::replace(&mut round.applied, true);
        let wake = self.listed(&std::mem::take(&mut round.seen), first);
        self.shared.count();
        self.shared.wake(wake).await;
    }

    /// Records an object of an event, or its removal. Returns its name as the cache has it. Objects are parsed only here.
    async fn record(&self, object: Raw, origin: Option<EventOrigin>) -> Option<Arc<ObjectName>> {
        let name = ObjectName::new(object.meta().namespace.clone()?, object.meta().name.clone()?);
        if name.namespace.len().max(name.name.len()) > MAX_NAME {
            return None;
        }
        let by = origin.unwrap_or(EventOrigin::Changed);
        let seen = if origin.is_some() { self.read(&object) } else { Some((ReadObject::nothing(), None)) };
        let (wake, name) = self.shared.store().record_event(&self.id, name, seen, by);
        self.shared.wake(wake).await;
        Some(name)
    }

    /// Returns the observation of an object, and its traits if they are needed. `None`: it cannot be parsed.
    fn read(&self, object: &Raw) -> Option<(ReadObject, Option<Traits>)> {
        let mut object = object.parse()?;
        // In a list, objects of built-in kinds have no apiVersion and no kind.
        let key = &self.id.key;
        object.types = Some(TypeMeta { api_version: key.kind.api_version().to_owned(), kind: key.kind.kind().to_owned() });
        let traits = || Traits::of(&object, self.paths.1.as_ref(), &mut self.shared.labels());
        let traits = self.keeps_traits.then(traits);
        Some((see(Some(&object), self.paths.0.as_ref(), self.recorder.as_ref()), traits))
    }

    /// Requests a probe of the cluster.
    fn nudge(&self) {
        if let Some(nudge) = &self.nudge {
            nudge.notify_one();
        }
    }

    /// Reports an error, unless the watch may still recover from it. Returns whether the error is new.
    async fn report(&self, trouble: &ObserveError, failing: Duration) -> bool {
        let told = {
            let mut store = self.shared.store();
            let soon = failing < PATIENCE;
            if trouble.reason != Reason::KindNotFound && soon && store.is_synced(&self.id) {
                return false;
            }
            // A cache that is filled again is not synced, but its objects may have been observed before: their state is kept.
            let waits = soon && trouble.is_passing() && store.is_filling(&self.id);
            let reason = if waits { Reason::CacheSlow } else { trouble.reason };
            store.set_phase(&self.id, Phase::Unknown(reason, trouble.message.clone()))
        };
        self.log_and_wake(trouble, told).await
    }

    /// Logs an error if it is new, and wakes the given pipelines. Returns whether it is new.
    async fn log_and_wake(&self, trouble: &ObserveError, (is_news, wake): (bool, Vec<Follower>)) -> bool {
        if is_news {
            tracing::warn!(
                reason = trouble.reason.as_str(),
                kind = self.id.key.kind.kind(),
                namespace = self.id.key.namespace,
                "cannot observe: {}",
                trouble.message
            );
        }
        self.shared.wake(wake).await;
        is_news
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use futures::stream;
    use kube::core::Status;
    use serde_json::json;
    use tokio::sync::mpsc::Receiver;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::Options;
    use crate::remote::bound::TooLarge;
    use relaybook_api::values::refs::ClusterAppRef;
    use relaybook_core::observe::Observation;
    use relaybook_core::reading::{Application, Now};

    type Events = Vec<watcher::Result<Event<Raw>>>;

    fn raw(object: &serde_json::Value) -> Raw {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn object(name: &str, image: &str) -> serde_json::Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "apps", "generation": 1},
            "spec": {"template": {"spec": {"containers": [{"name": "main", "image": format!("example.com/web:{image}")}]}}},
        })
    }

    fn deployment(name: &str, image: &str) -> Raw {
        raw(&object(name, image))
    }

    fn list(objects: Vec<Raw>) -> Events {
        let middle = objects.into_iter().map(|o| Ok(Event::InitApply(o)));
        std::iter::once(Ok(Event::Init)).chain(middle).chain([Ok(Event::InitDone)]).collect()
    }

    /// Returns why an object cannot be observed, if it cannot.
    fn reason(feed: &KindWatcher, name: &str) -> Option<Reason> {
        match feed.shared.store().read(&app(name), 0).now {
            Now::Known(_) => None,
            Now::Unknown { reason, .. } => Some(reason),
        }
    }

    fn app(name: &str) -> Application {
        let object = ClusterAppRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: name.into(),
            namespace: "apps".into(),
            cluster_ref: None,
        };
        Application { object, ..Application::default() }
    }

    /// Returns a watcher whose cache one pipeline needs for the objects `web` and `gone`.
    fn feed() -> (KindWatcher, Receiver<Follower>) {
        let (shared, woken) = Shared::new(Options::default(), relaybook_telemetry::Metrics::new());
        let pipeline = Follower::pipeline("team", "p");
        let refs = [app("web"), app("gone")].into();
        let declared = shared.store().declare(&pipeline, refs, &CancellationToken::new());
        let id = declared.started.into_iter().next().unwrap().0;
        (KindWatcher::new(shared, id, None), woken)
    }

    fn error(code: u16) -> watcher::Error {
        watcher::Error::WatchStartFailed(kube::Error::Api(Status::failure("no", "Forbidden").with_code(code).boxed()))
    }

    fn trouble(reason: Reason) -> ObserveError {
        ObserveError::new(reason, "why".to_owned())
    }

    fn unreachable() -> ObserveError {
        ObserveError::unusable_response("in-cluster")
    }

    async fn follow(feed: &KindWatcher, events: Events) -> Ended {
        feed.follow(stream::iter(events), false).await
    }

    fn woken(receiver: &mut Receiver<Follower>) -> usize {
        std::iter::from_fn(|| receiver.try_recv().ok()).count()
    }

    #[tokio::test]
    async fn objects_are_unknown_until_the_first_list_has_ended() {
        let (feed, mut receiver) = feed();
        let ended = follow(&feed, vec![Ok(Event::Init), Ok(Event::InitApply(deployment("web", "1")))]).await;
        assert_eq!(ended, Ended { trouble: unreachable(), too_large: false, worked: false });
        assert!(matches!(feed.shared.store().read(&app("web"), 0).now, Now::Unknown { reason: Reason::CacheNotSynced, .. }));
        assert_eq!(woken(&mut receiver), 0);
    }

    #[tokio::test]
    async fn an_object_missing_from_the_next_list_is_not_found() {
        let (feed, mut receiver) = feed();
        let mut events = list(vec![deployment("web", "1"), deployment("gone", "1")]);
        events.push(Err(watcher::Error::WatchError(Status::failure("old", "Expired").with_code(410).boxed())));
        events.extend(list(vec![deployment("web", "1")]));
        assert!(!follow(&feed, events).await.worked, "lists alone are no life");
        let read = |name| feed.shared.store().read(&app(name), 0);
        assert_eq!(read("web").observations.len(), 1);
        let said: Vec<_> = read("gone").observations.into_iter().map(|(_, o)| o.status).collect();
        assert_eq!(said, [relaybook_api::Status::InProgress, relaybook_api::Status::NotFound]);
        assert_eq!(woken(&mut receiver), 2, "once for the first list, once for what has gone");
    }

    #[tokio::test]
    async fn a_list_is_not_trusted_while_the_watch_after_it_fails() {
        let (feed, _woken) = feed();
        let synced = |feed: &KindWatcher| feed.shared.store().is_synced(&feed.id);
        let list = || vec![Ok(Event::Init), Ok(Event::InitApply(deployment("web", "1"))), Ok(Event::InitDone)];
        let mut refused = list();
        refused.push(Err(error(403)));
        let ended = feed.follow(stream::iter(refused), true).await;
        assert_eq!((ended.trouble.reason, ended.worked, synced(&feed)), (Reason::Forbidden, false, false));
        let mut again: Events = Vec::new();
        for _ in 0..FAILURES {
            again.extend(list());
            again.push(Err(watcher::Error::WatchError(Status::failure("old", "Expired").with_code(410).boxed())));
        }
        again.push(Ok(Event::Apply(deployment("web", "2"))));
        assert!(!feed.follow(stream::iter(again), true).await.worked, "it lists again and again");
        let quiet = || stream::iter(list()).chain(stream::pending());
        let (other, _other_woken) = super::tests::feed();
        let stands = WORKING_AFTER + Duration::from_secs(1);
        let _ = tokio::join!(timeout(stands, feed.follow(quiet(), true)), timeout(stands, other.follow(quiet(), false)));
        for feed in [&feed, &other] {
            assert!(synced(feed), "nothing is said, and the watch stands");
            let now = feed.shared.store().read(&app("web"), 0).now;
            assert!(matches!(now, Now::Known(Observation { status: relaybook_api::Status::InProgress, .. })), "{now:?}");
        }
    }

    #[tokio::test]
    async fn a_synced_watch_ends_at_the_third_error_in_a_row_or_at_a_refusal() {
        let (feed, _woken) = feed();
        let synced = || vec![Ok(Event::Init), Ok(Event::InitDone)];
        let mut events = synced();
        events.extend([Err(error(500)), Err(error(503)), Ok(Event::Apply(deployment("web", "2")))]);
        events.extend([Err(error(500)), Err(error(500)), Err(error(500)), Ok(Event::Apply(deployment("web", "3")))]);
        let ended = follow(&feed, events).await;
        assert_eq!((ended.trouble.reason, ended.worked), (Reason::Unreachable, true));
        assert_eq!(
            feed.shared.store().read(&app("web"), 0).observations.len(),
            2,
            "absent, then 2: it ended at the third in a row"
        );

        for (code, reason, words) in [(404, Reason::KindNotFound, "Deployment in apps/v1"), (403, Reason::Forbidden, "no")] {
            let mut events = synced();
            events.extend([Err(error(code)), Ok(Event::Apply(deployment("web", "4")))]);
            let trouble = follow(&feed, events).await.trouble;
            assert_eq!((trouble.reason, trouble.message.contains(words)), (reason, true), "{}", trouble.message);
        }
    }

    #[tokio::test]
    async fn a_synced_cache_reports_transient_problems_late_and_each_problem_once() {
        let (feed, mut receiver) = feed();
        let long = PATIENCE + Duration::from_secs(1);
        feed.report(&unreachable(), Duration::ZERO).await;
        feed.report(&unreachable(), Duration::ZERO).await;
        // A pipeline that has observed the object is not affected yet. A pipeline that has not gets the reason.
        assert_eq!((reason(&feed, "web"), woken(&mut receiver)), (Some(Reason::CacheSlow), 1));
        let now = feed.shared.store().read(&app("web"), 0).now;
        assert!(matches!(now, Now::Unknown { message, .. } if message == unreachable().message));
        feed.report(&unreachable(), long).await;
        feed.report(&unreachable(), Duration::ZERO).await;
        assert_eq!((reason(&feed, "web"), woken(&mut receiver)), (Some(Reason::Unreachable), 1));
        follow(&feed, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
        assert_eq!((reason(&feed, "web"), woken(&mut receiver)), (None, 1));
        feed.report(&unreachable(), Duration::ZERO).await;
        feed.report(&trouble(Reason::Forbidden), Duration::ZERO).await;
        assert_eq!((reason(&feed, "web"), woken(&mut receiver)), (None, 0));
        feed.report(&unreachable(), long).await;
        assert_eq!((reason(&feed, "web"), woken(&mut receiver)), (Some(Reason::Unreachable), 1));
        follow(&feed, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
        feed.report(&trouble(Reason::KindNotFound), Duration::ZERO).await;
        assert_eq!((reason(&feed, "web"), woken(&mut receiver)), (Some(Reason::KindNotFound), 2));
    }

    #[tokio::test]
    async fn a_permanent_problem_of_an_unfilled_cache_is_reported_at_once() {
        for reason in [Reason::Forbidden, Reason::Unauthorized, Reason::KindNotFound] {
            let (feed, _woken) = feed();
            feed.report(&trouble(reason), Duration::ZERO).await;
            assert_eq!(super::tests::reason(&feed, "web"), Some(reason));
        }
    }

    #[tokio::test]
    async fn a_cache_with_too_many_objects_is_emptied_without_reporting_removals() {
        let (mut feed, mut receiver) = feed();
        feed.most = 2;
        let mut events = list(vec![deployment("web", "1")]);
        events.extend(["a", "b"].map(|name| Ok(Event::Apply(deployment(name, "1")))));
        let ended = follow(&feed, events).await;
        assert_eq!((ended.trouble.reason, ended.worked), (Reason::TooManyObjects, false));
        let words = "cluster in-cluster has more than 2 objects of kind Deployment, which is the limit";
        assert_eq!(ended.trouble.message, words);
        assert_eq!((reason(&feed, "web"), woken(&mut receiver)), (Some(Reason::TooManyObjects), 2));
        assert_eq!(feed.shared.store().counts(), (1, 0));
        let pauses = [&ended.trouble, &unreachable()].map(|after| after.pause(WORKING_AFTER));
        assert_eq!(pauses, [crate::error::CROWDED, WORKING_AFTER], "so many are not listed again at once");
        // A list of too many objects is never applied, not even for a moment.
        let all = || list(["a", "b", "web"].map(|name| deployment(name, "1")).into());
        assert_eq!(follow(&feed, all()).await.trouble.reason, Reason::TooManyObjects);
        assert_eq!((reason(&feed, "web"), woken(&mut receiver)), (Some(Reason::TooManyObjects), 0));
        follow(&feed, list(vec![deployment("web", "1")])).await;
        assert_eq!((reason(&feed, "web"), woken(&mut receiver)), (None, 1));
    }

    #[tokio::test]
    async fn an_unreadable_object_is_unknown_and_hides_no_other_object() {
        let (feed, mut receiver) = feed();
        let bad = raw(&json!({"metadata": {"name": "gone", "namespace": "apps", "labels": 5}}));
        follow(&feed, list(vec![bad.clone(), deployment("web", "1")])).await;
        assert_eq!([reason(&feed, "web"), reason(&feed, "gone")], [None, Some(Reason::Unreadable)]);
        assert_eq!(woken(&mut receiver), 1);
        let apply = |object: &Raw| vec![Ok(Event::Apply(object.clone()))];
        for (events, unreadable, wakes) in [
            (apply(&bad), true, 0),
            (apply(&deployment("gone", "1")), false, 1),
            (apply(&bad), true, 1),
            (apply(&deployment("gone", "1")), false, 1),
            (apply(&bad), true, 1),
            (vec![Ok(Event::Delete(bad.clone()))], false, 1),
        ] {
            let mut round = Round::new();
            (round.listing, round.applied) = (false, true);
            for event in events {
                feed.handle_event(Some(event), &mut round, false).await;
            }
            assert_eq!((reason(&feed, "gone").is_some(), woken(&mut receiver)), (unreadable, wakes));
        }
        let said: Vec<_> =
            feed.shared.store().read(&app("gone"), 0).observations.into_iter().map(|(_, o)| o.status).collect();
        assert_eq!(said, [relaybook_api::Status::InProgress, relaybook_api::Status::NotFound], "nothing was made of it");
        follow(&feed, list(vec![bad, deployment("web", "1")])).await;
        follow(&feed, list(vec![deployment("web", "1")])).await;
        let now = feed.shared.store().read(&app("gone"), 0).now;
        assert!(matches!(now, Now::Known(Observation { status: relaybook_api::Status::NotFound, .. })), "{now:?}");
    }

    /// Returns a client of a cluster with this number of Deployments, which sends pages of at most this size. The requests are recorded.
    fn cluster(objects: usize, most: usize) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let noted = asked.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let watches = query.contains("watch=true");
            let body = match request.uri().path() {
                "/apis/apps/v1/deployments" if watches => None,
                "/apis/apps/v1/deployments" => {
                    noted.lock().push(query.clone());
                    let of = |name| query.split('&').find_map(|pair| pair.strip_prefix(name)?.parse::<usize>().ok());
                    let (limit, from) = (of("limit=").unwrap(), of("continue=").unwrap_or_default());
                    let to = objects.min(from + limit);
                    let items: Vec<_> = (from..to).map(|i| object(&format!("n{i}"), "1")).collect();
                    let next = if to < objects { to.to_string() } else { String::new() };
                    let list = json!({"metadata": {"resourceVersion": "1", "continue": next}, "items": items});
                    Some((limit <= most).then_some(list))
                }
                _ => Some(Some(json!({"groupVersion": "apps/v1", "resources": [{"name": "deployments", "singularName": "",
                    "namespaced": true, "kind": "Deployment", "verbs": ["list", "watch"]}]}))),
            };
            async move {
                match body {
                    Some(Some(body)) => Ok(http::Response::new(kube::client::Body::from(body.to_string().into_bytes()))),
                    Some(None) => Err(tower::BoxError::from(TooLarge)),
                    None => std::future::pending().await,
                }
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn a_list_page_that_is_too_large_is_requested_again_with_a_smaller_limit() {
        let (feed, _woken) = feed();
        let (client, asked) = cluster(12, 5);
        let synced = async {
            while !feed.shared.store().is_synced(&feed.id) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            never = feed.watch_with_retries(client) => match never {},
            done = timeout(DEADLINE, synced) => done.unwrap(),
        }
        assert_eq!(feed.shared.store().counts(), (1, 12));
        let limits: Vec<_> = asked.lock().iter().map(|q| q.trim_start_matches('&').to_owned()).collect();
        assert_eq!(limits, ["limit=50", "limit=5", "limit=5&continue=5", "limit=5&continue=10"]);
    }

    /// Returns why `web` cannot be observed after its watcher has used this link for a short time.
    async fn run_link(feed: &KindWatcher, link: Link) -> Option<Reason> {
        let _ = timeout(Duration::from_millis(50), feed.run_link(link)).await;
        reason(feed, "web")
    }

    #[tokio::test]
    async fn an_unreachable_cluster_is_reported_at_once_if_nothing_is_known_or_after_enough_tries() {
        let down = |reason, confirmed| Link::Down { trouble: trouble(reason), confirmed };
        let (feed, mut receiver) = feed();
        assert_eq!(run_link(&feed, Link::Resolving).await, Some(Reason::CacheNotSynced));
        assert_eq!(run_link(&feed, down(Reason::KubeconfigMissing, false)).await, Some(Reason::KubeconfigMissing));
        follow(&feed, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
        woken(&mut receiver);
        assert_eq!(
            run_link(&feed, down(Reason::KubeconfigMissing, false)).await,
            None,
            "the last observations remain valid for a while"
        );
        assert_eq!(run_link(&feed, down(Reason::Timeout, true)).await, Some(Reason::Timeout));
        assert_eq!(woken(&mut receiver), 1);
        follow(&feed, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
        woken(&mut receiver);
        follow(&feed, vec![Ok(Event::Init), Ok(Event::InitDone)]).await;
        assert_eq!(woken(&mut receiver), 1, "a new watch wakes, for the one before may have been dropped too early");
    }
}
