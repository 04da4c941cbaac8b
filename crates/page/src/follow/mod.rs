//! Follows the pipelines and the notifications of a caller while somebody looks at them.
//!
//! In: a [`Caller`] and a namespace. Out: [`Followed`]: the current rows, and a signal for each change. Two watches fill it, with the
//! permissions of the caller; they end two minutes after the last visit. Each watch is made again after half a minute, so a token or a
//! permission that was withdrawn is noticed within a minute. An outage is a change when it begins, and when a watch has started again.

mod reduced;
pub(super) mod room;
pub(super) mod rows;

use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::StreamExt as _;
use http::Request;
use kube::client::Body;
use kube::core::NamespaceResourceScope;
use kube::runtime::utils::ResetTimerBackoff;
use kube::runtime::watcher::{Event, ExponentialBackoff};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::access::caller::{Caller, Person};
use crate::follow::rows::{NotificationRow, PipelineRow};
use crate::trouble::{Trouble, Wanted};
use relaybook_api::{Notification, Pipeline};
use relaybook_runtime::watch::{Deleted, Guarded, api_in};

/// Page size of the first list.
const PAGE: u32 = 500;
/// Duration of a watch, in seconds.
const WATCH: u32 = 25;
/// How long the first list may take before a page shows what has arrived.
const PATIENCE: Duration = Duration::from_secs(6);
/// How long watches continue after the last visit.
const UNUSED: Duration = Duration::from_mins(2);
/// Maximum pause after a failed watch. Jitter can double it.
const PAUSE: Duration = Duration::from_secs(8);
/// A call that has no answer after this time is on a dead connection.
const UNANSWERED: Duration = Duration::from_secs(40);
/// Minimum time between two attempts after a refusal.
const AGAIN: Duration = Duration::from_secs(5);
/// Maximum number of pairs of caller and namespace that are followed. The page shares the memory of the controllers.
const MOST: usize = 32;

/// Namespace and name of an object.
type Key = (String, String);

/// The rows of one kind.
#[derive(Debug)]
pub(crate) struct Rows<R> {
    /// The rows, by namespace and name.
    pub(crate) all: BTreeMap<Key, Arc<R>>,
    /// Whether the first list has ended.
    pub(crate) is_listed: bool,
    /// Why there are no rows, or why they can be old.
    pub(crate) trouble: Option<Trouble>,
    /// Objects that this version cannot read. They do not hide the others.
    pub(crate) unreadable: BTreeSet<Key>,
}

impl<R> Default for Rows<R> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), is_listed: false, trouble: None, unreadable: BTreeSet::new() }
    }
}

/// The rows of a caller in one namespace, or in all.
pub(crate) struct Followed {
    pipelines: Arc<RwLock<Rows<PipelineRow>>>,
    notifications: Arc<RwLock<Rows<NotificationRow>>>,
    changes: watch::Receiver<u64>,
    tasks: [JoinHandle<()>; 2],
    since: Instant,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A caller, and a namespace or all.
type Scope = ([u8; 32], Option<String>);

/// All that is followed.
#[derive(Default)]
pub(crate) struct Following(Mutex<HashMap<Scope, Slot>>);

struct Slot {
    person: Person,
    followed: Arc<Followed>,
    used: Instant,
}

impl Following {
    /// Returns the rows of a caller, after the first list, or what has arrived within some seconds.
    pub(crate) async fn rows(&self, caller: &Caller, namespace: Option<&str>) -> Arc<Followed> {
        let followed = self.slot(caller, namespace);
        let mut changes = followed.changes.clone();
        let listed = async {
            while !followed.is_settled() {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(PATIENCE, listed).await;
        followed
    }

    fn slot(&self, caller: &Caller, namespace: Option<&str>) -> Arc<Followed> {
        let key = (caller.key, namespace.map(str::to_owned));
        let now = Instant::now();
        let mut all = self.0.lock();
        if let Some(slot) = all.get_mut(&key).filter(|slot| !slot.followed.is_refused(now)) {
            slot.used = now;
            return slot.followed.clone();
        }
        let person = caller.person();
        let is_full = all.len() >= MOST && !all.contains_key(&key);
        if let Some(surplus) = is_full.then(|| surplus(&all, &person)).flatten() {
            all.remove(&surplus);
        }
        let followed = Arc::new(Followed::start(&caller.client, namespace));
        all.insert(key, Slot { person, followed: followed.clone(), used: now });
        followed
    }

    /// Ends the watches that nobody uses. Never returns.
    pub(crate) async fn sweep(&self) {
        loop {
            tokio::time::sleep(UNUSED / 4).await;
            let now = Instant::now();
            let mut all = self.0.lock();
            // A stream of events holds a reference.
            all.retain(|_, slot| {
                let is_used = Arc::strong_count(&slot.followed) > 1;
                if is_used {
                    slot.used = now;
                }
                is_used || now.duration_since(slot.used) < UNUSED
            });
        }
    }

    /// Forgets the rows of a caller who has signed out.
    pub(crate) fn forget(&self, caller: &[u8; 32]) {
        self.0.lock().retain(|(key, _), _| key != caller);
    }
}

/// Returns the pair that makes room for one more of this person. What a stream uses is in memory anyway.
fn surplus(all: &HashMap<Scope, Slot>, person: &str) -> Option<Scope> {
    let unused = all.iter().filter(|(_, slot)| Arc::strong_count(&slot.followed) == 1);
    room::surplus(unused.map(|(key, slot)| (key, slot.person.as_str(), slot.used)), person).cloned()
}

impl Followed {
    fn start(client: &Client, namespace: Option<&str>) -> Self {
        let (pipelines, notifications) = (Arc::default(), Arc::default());
        let (sender, changes) = watch::channel(0);
        let (signal, namespace) = (Arc::new(sender), namespace.map(str::to_owned));
        let tasks = [
            tokio::spawn(follow::<Pipeline, _>(client.clone(), namespace.clone(), Arc::clone(&pipelines), signal.clone())),
            tokio::spawn(follow::<Notification, _>(client.clone(), namespace, Arc::clone(&notifications), signal)),
        ];
        Self { pipelines, notifications, changes, tasks, since: Instant::now() }
    }

    /// Reads the pipelines.
    pub(crate) fn pipelines<T>(&self, read: impl FnOnce(&Rows<PipelineRow>) -> T) -> T {
        read(&self.pipelines.read())
    }

    /// Reads the notifications.
    pub(crate) fn notifications<T>(&self, read: impl FnOnce(&Rows<NotificationRow>) -> T) -> T {
        read(&self.notifications.read())
    }

    /// Returns the signal of changes. It ends when both watches have ended.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Returns a sentence about objects that this version cannot read.
    pub(crate) fn unreadable(&self) -> Option<Trouble> {
        let first = |kind: &str, keys: &BTreeSet<Key>| {
            let (namespace, name) = keys.first()?;
            let others = keys.len() - 1;
            let more = if others > 0 { format!(", and {others} more") } else { String::new() };
            Some(Trouble::Other(format!("This version cannot read {kind} {namespace}/{name}{more}; the others are shown")))
        };
        let pipelines = self.pipelines(|rows| first("Pipeline", &rows.unreadable));
        pipelines.or_else(|| self.notifications(|rows| first("Notification", &rows.unreadable)))
    }

    /// Whether both lists have ended.
    pub(crate) fn is_complete(&self) -> bool {
        self.pipelines(|rows| rows.is_listed) && self.notifications(|rows| rows.is_listed || rows.trouble.is_some())
    }

    /// Notes that the API server has listed pipelines, so an outage is over before the watches have started again.
    pub(crate) fn has_answered(&self) {
        self.pipelines.write().answer();
        self.notifications.write().answer();
    }

    /// Notes that the API server does not answer, so the rows can be old.
    pub(crate) fn is_troubled(&self, trouble: Trouble) {
        self.pipelines.write().trouble.get_or_insert(trouble);
    }

    /// Whether the API server no longer accepts the token.
    pub(crate) fn is_signed_out(&self) -> bool {
        let is = |trouble: Option<&Trouble>| trouble == Some(&Trouble::SignedOut);
        self.pipelines(|rows| is(rows.trouble.as_ref())) || self.notifications(|rows| is(rows.trouble.as_ref()))
    }

    fn is_settled(&self) -> bool {
        let pipelines = self.pipelines(|rows| rows.is_listed || rows.trouble.is_some());
        pipelines && self.notifications(|rows| rows.is_listed || rows.trouble.is_some())
    }

    /// Whether the watch of pipelines was refused some time ago, so that the next visit makes another attempt. Without the permission for
    /// notifications, the pipelines are still shown.
    fn is_refused(&self, now: Instant) -> bool {
        self.tasks[0].is_finished() && now.duration_since(self.since) >= AGAIN
    }
}

/// Writes the rows of a kind until the API server refuses it.
async fn follow<K, R>(
    client: Client,
    namespace: Option<String>,
    rows: Arc<RwLock<Rows<R>>>,
    changed: Arc<watch::Sender<u64>>,
) where
    K: Deleted + Resource<Scope = NamespaceResourceScope> + Clone + Debug + Send + Sync + 'static,
    R: From<K> + PartialEq + Send + Sync,
{
    let wanted = Wanted::new("list and watch", resource::<K>(), namespace.as_deref());
    let (client, mut started) = counting(client);
    let api = api_in::<Guarded<K>>(&client, namespace.as_deref());
    let config = watcher::Config::default().page_size(PAGE).timeout(WATCH);
    let pauses = ExponentialBuilder::default().with_max_delay(PAUSE).with_jitter().without_max_times();
    let pauses = ResetTimerBackoff::new(ExponentialBackoff::from(pauses), UNUSED);
    let mut events = std::pin::pin!(watcher(api, config).backoff(pauses));
    let mut listing = Rows::default();
    loop {
        // `None`: a watch has started.
        let event = tokio::select! {
            Some(event) = events.next() => Some(event),
            Ok(()) = started.changed() => None,
            else => return,
        };
        // What a watch reports comes after its start.
        let has_started = event.is_none() || started.has_changed().unwrap_or(false);
        started.mark_unchanged();
        let mut rows = rows.write();
        let has_resumed = has_started && rows.resume();
        let has_changed = match event {
            // The watch starts again by itself. Only that shows whether the API server answers.
            None | Some(Err(watcher::Error::WatchFailed(kube::Error::ReadEvents(_)))) => false,
            Some(Ok(event)) => rows.take(event, &mut listing),
            Some(Err(error)) => rows.fail(of_watch(&error, &wanted)),
        };
        let is_refused = rows.trouble.as_ref().is_some_and(|trouble| !trouble.is_passing());
        drop(rows);
        if has_resumed || has_changed {
            changed.send_modify(|count| *count += 1);
        }
        if is_refused {
            return;
        }
    }
}

/// Returns a client that counts the watches that have started, because a watcher does not report them.
fn counting(base: Client) -> (Client, watch::Receiver<u64>) {
    let (sender, started) = watch::channel(0_u64);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (base, sender) = (base.clone(), sender.clone());
        async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let Ok(answer) = timeout(UNANSWERED, base.send(request)).await else {
                return Err(kube::Error::Service("it has not answered in time".into()));
            };
            let answer = answer?;
            if is_watch && answer.status().is_success() {
                sender.send_modify(|count| *count += 1);
            }
            Ok(answer)
        }
    });
    (Client::new(service, "default"), started)
}

/// Returns the name of a kind in Roles.
fn resource<K: Resource<DynamicType = ()>>() -> &'static str {
    if K::kind(&()) == "Pipeline" { "pipelines" } else { "notifications" }
}

impl<R: PartialEq> Rows<R> {
    /// Applies an event of the watch. Returns whether a row has changed. `listing` has the rows of a list that has not ended.
    fn take<K>(&mut self, event: Event<Guarded<K>>, listing: &mut Self) -> bool
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        R: From<K>,
    {
        match event {
            Event::Init => {
                *listing = Self::default();
                false
            }
            Event::InitApply(object) => {
                listing.put(key(&object), object.open().ok().map(R::from));
                false
            }
            Event::InitDone => {
                let before = std::mem::replace(self, Self { is_listed: true, ..std::mem::take(listing) });
                // A watch whose version has expired lists again, mostly without a change.
                let is_same = self.all == before.all && self.unreadable == before.unreadable;
                !before.is_listed || before.trouble.is_some() || !is_same
            }
            Event::Apply(object) => {
                let was_troubled = self.trouble.take().is_some();
                self.put(key(&object), object.open().ok().map(R::from)) || was_troubled
            }
            Event::Delete(object) => {
                let key = key(&object);
                self.unreadable.remove(&key);
                self.all.remove(&key).is_some()
            }
        }
    }

    fn put(&mut self, key: Key, row: Option<R>) -> bool {
        let Some(row) = row else {
            self.all.remove(&key);
            return self.unreadable.insert(key);
        };
        self.unreadable.remove(&key);
        let is_new = self.all.get(&key).is_none_or(|known| **known != row);
        if is_new {
            self.all.insert(key, Arc::new(row));
        }
        is_new
    }

    /// Notes why the watch has failed. Nobody may see what the API server refuses.
    fn fail(&mut self, trouble: Trouble) -> bool {
        if !trouble.is_passing() {
            self.all.clear();
            self.unreadable.clear();
        }
        // The watch lists again by itself.
        if trouble == Trouble::Expired {
            return false;
        }
        // The words of an error can differ with each attempt.
        let is_new = self.trouble.as_ref().is_none_or(|known| discriminant(known) != discriminant(&trouble));
        self.trouble = Some(trouble);
        is_new
    }

    /// Notes that the watch has started. Returns whether that ends an outage.
    fn resume(&mut self) -> bool {
        self.trouble.take_if(|trouble| trouble.is_passing()).is_some()
    }

    /// Notes that the API server answers. Another error stays until the watch has started again.
    fn answer(&mut self) {
        if self.is_listed && matches!(self.trouble, Some(Trouble::Away(_) | Trouble::Slow)) {
            self.trouble = None;
        }
    }
}

fn key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn of_watch(error: &watcher::Error, wanted: &Wanted) -> Trouble {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => Trouble::new(error, wanted),
        WatchError(status) => Trouble::new(&kube::Error::Api(status.clone()), wanted),
        watcher::Error::NoResourceVersion => Trouble::Other("The list has no resource version".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pipeline(name: &str, environments: &serde_json::Value) -> Guarded<Pipeline> {
        let object = json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": name, "namespace": "team-a"},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "environments": environments},
        });
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn listed(objects: Vec<Guarded<Pipeline>>) -> Rows<PipelineRow> {
        let (mut rows, mut listing) = (Rows::default(), Rows::default());
        assert!(!rows.take::<Pipeline>(Event::Init, &mut listing));
        for object in objects {
            assert!(!rows.take(Event::InitApply(object), &mut listing), "the rows change when the list ends");
        }
        assert!(rows.take::<Pipeline>(Event::InitDone, &mut listing) && rows.is_listed);
        rows
    }

    #[test]
    fn an_object_that_cannot_be_read_does_not_hide_the_others() {
        let bad = || pipeline("bad", &json!("no list"));
        let mut rows = listed(vec![pipeline("good", &json!([])), bad()]);
        let names = |rows: &Rows<PipelineRow>| rows.all.keys().map(|(_, name)| name.clone()).collect::<Vec<_>>();
        assert_eq!((names(&rows), rows.unreadable.len()), (vec!["good".to_owned()], 1));
        let mut listing = Rows::default();
        assert!(rows.take(Event::Apply(pipeline("bad", &json!([]))), &mut listing), "it was corrected");
        assert_eq!((names(&rows).len(), rows.unreadable.len()), (2, 0));
        assert!(!rows.take(Event::Apply(pipeline("bad", &json!([]))), &mut listing), "nothing that is shown has changed");
        assert!(rows.take(Event::Delete(bad()), &mut listing));
        assert_eq!(names(&rows), ["good"]);
    }

    #[test]
    fn rows_are_removed_after_a_refusal_and_kept_during_an_outage() {
        let mut rows = listed(vec![pipeline("good", &json!([]))]);
        assert!(!rows.fail(Trouble::Expired) && rows.trouble.is_none());
        assert!(rows.fail(Trouble::Slow) && !rows.fail(Trouble::Slow), "the same trouble is not news");
        assert_eq!(rows.all.len(), 1);
        assert!(rows.take(Event::Apply(pipeline("good", &json!([]))), &mut Rows::default()), "it answers again");
        assert!(rows.trouble.is_none());
        assert!(rows.fail(Trouble::SignedOut));
        assert!(rows.all.is_empty() && !rows.resume(), "a refusal is no outage");
    }

    #[test]
    fn an_outage_is_signaled_when_it_begins_and_when_it_ends() {
        let mut rows = listed(vec![pipeline("good", &json!([]))]);
        let away = |words: &str| Trouble::Away(words.to_owned());
        assert!(!rows.resume(), "a watch has ended and started again");
        assert!(rows.fail(away("refused")) && !rows.fail(away("reset")), "the words do not matter");
        assert!(rows.resume() && rows.trouble.is_none() && !rows.resume());
        // A visit shows that an outage is over, and nothing about an error of the watch.
        rows.fail(away("refused"));
        rows.answer();
        assert!(rows.trouble.is_none());
        rows.fail(Trouble::Other("etcd".to_owned()));
        rows.answer();
        assert!(rows.trouble.is_some() && rows.resume());
    }

    #[test]
    fn a_repeated_list_is_signaled_only_if_something_differs() {
        let mut rows = listed(vec![pipeline("good", &json!([]))]);
        let again = |rows: &mut Rows<PipelineRow>, name: &str| {
            let mut listing = Rows::default();
            rows.take(Event::InitApply(pipeline(name, &json!([]))), &mut listing);
            rows.take::<Pipeline>(Event::InitDone, &mut listing)
        };
        assert!(!again(&mut rows, "good") && again(&mut rows, "other"));
        rows.fail(Trouble::Slow);
        assert!(again(&mut rows, "other") && rows.trouble.is_none());
    }

    #[tokio::test]
    async fn only_a_watch_that_has_started_is_counted() {
        let service = tower::service_fn(|request: Request<Body>| {
            let code = if request.uri().path() == "/away" { 503 } else { 200 };
            let answer = http::Response::builder().status(code).body(Body::empty()).unwrap();
            std::future::ready(Ok::<_, tower::BoxError>(answer))
        });
        let (client, mut started) = counting(Client::new(service, "default"));
        for (uri, is_counted) in [("/x?limit=1", false), ("/away?&watch=true", false), ("/x?&watch=true", true)] {
            client.send(Request::get(uri).body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(started.has_changed().unwrap(), is_counted, "{uri}");
            started.mark_unchanged();
        }
    }
}
