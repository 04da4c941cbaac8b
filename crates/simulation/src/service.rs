//! The model of the API server under `kube::Client`, with faults.
//!
//! In: the requests of clients, and what the caller decides about each of them ([`Fate`]) and about each watch. Out: answers, errors, events,
//! or silence. It waits for the caller, and for the time that requests need on their way. It has no timeouts, and a watch ends only if the
//! caller ends it.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use jiff::Timestamp;
use kube::client::Body;
use parking_lot::Mutex;
use tower::BoxError;

use crate::api_server::failure::Failure;
use crate::api_server::request::Request;
use crate::api_server::{Answer, Next, Server, Watch};

/// What a client notices of a request that is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The connection breaks.
    Broken,
    /// Nothing, until its own timeout.
    Hanging,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out and answered.
    Answered,
    /// It is carried out, but the answer is lost.
    Lost(Silence),
    /// It is neither carried out nor answered.
    Dropped(Silence),
    /// It is not answered, and carried out when the caller decides it: [`Network::land`].
    Late(Silence),
    /// It is refused with this HTTP status.
    Refused(u16),
}

/// How the caller ends a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As after its timeout.
    Ended,
    /// The connection breaks.
    Broken,
    /// Its version is too old.
    Expired,
}

/// A request that has arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// Its number.
    pub id: u64,
    /// The number of its client.
    pub client: usize,
    /// Its content.
    pub request: Request,
}

/// What the caller knows of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watching {
    /// The number of its request.
    pub id: u64,
    /// The number of its client.
    pub client: usize,
}

pub(crate) type Answered = Result<Response<Reply>, BoxError>;
/// Decides what happens to a request.
type Decide = Box<dyn FnMut(&Arrived) -> Fate + Send>;

/// A watch whose stream is read by a client.
struct Open {
    client: usize,
    watch: Box<Watch>,
    /// How many events it may deliver. `None`: all.
    allowed: Option<usize>,
    bookmarks: VecDeque<Bytes>,
    end: Option<End>,
    waker: Option<Waker>,
}

struct State {
    server: Server,
    clock: Box<dyn Fn() -> Timestamp + Send>,
    decide: Decide,
    /// The number of the last request.
    last: u64,
    late: VecDeque<Request>,
    watches: BTreeMap<u64, Open>,
    /// How long a request or an answer needs at most.
    longest: Duration,
}

/// The API server, and the connections to it. It is cheap to clone.
#[derive(Clone)]
pub struct Network(Arc<Mutex<State>>);

impl Network {
    /// Returns connections to a server. `clock` is the time of the server. `decide` decides what happens to a request when it arrives.
    pub fn new(
        server: Server,
        clock: impl Fn() -> Timestamp + Send + 'static,
        decide: impl FnMut(&Arrived) -> Fate + Send + 'static,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            server,
            clock: Box::new(clock),
            decide: Box::new(decide),
            last: 0,
            late: VecDeque::new(),
            watches: BTreeMap::new(),
            longest: Duration::ZERO,
        })))
    }

    /// Sets how long requests and answers need at most, each on its way. The time is random. Zero: no time.
    pub fn delay(&self, longest: Duration) {
        self.0.lock().longest = longest;
    }

    /// Waits as long as one way needs.
    async fn travel(&self) {
        let longest = self.0.lock().longest.as_micros();
        if longest > 0 {
            let micros = fastrand::u64(1..=u64::try_from(longest).unwrap_or(u64::MAX));
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
    }

    /// Reads or changes the server directly. Then watches continue.
    pub fn with<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        let mut state = self.0.lock();
        let result = act(&mut state.server);
        state.wake();
        result
    }

    /// Carries out one of the late requests, or forgets it. Returns whether there was one.
    pub fn land(&self, which: usize, is_applied: bool) -> bool {
        let mut state = self.0.lock();
        let count = state.late.len().max(1);
        let Some(request) = state.late.remove(which % count) else { return false };
        if is_applied {
            // Nobody waits for the answer.
            drop(state.carry_out(&request));
        }
        true
    }

    /// Returns the watches, in the order in which they were started.
    #[must_use]
    pub fn watches(&self) -> Vec<Watching> {
        let watching = |(id, open): (&u64, &Open)| Watching { id: *id, client: open.client };
        self.0.lock().watches.iter().map(watching).collect()
    }

    /// Sets how many events a watch may deliver from now on. `None`: all.
    pub fn allow(&self, id: u64, events: Option<usize>) {
        self.at(id, |_, open| open.allowed = events);
    }

    /// Sends a bookmark to a watch that wants bookmarks.
    pub fn bookmark(&self, id: u64) {
        self.at(id, |server, open| open.bookmarks.extend(server.bookmark(&open.watch)));
    }

    /// Ends a watch.
    pub fn cut(&self, id: u64, end: End) {
        self.at(id, |_, open| open.end = Some(end));
    }

    /// Sends a request, and waits for what the caller decides.
    pub(crate) async fn send(&self, client: usize, request: http::Request<Body>) -> Answered {
        self.travel().await;
        let answer = self.arrive(client, request).await;
        self.travel().await;
        answer
    }

    async fn arrive(&self, client: usize, request: http::Request<Body>) -> Answered {
        let (parts, body) = request.into_parts();
        let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
        if let Some(resources) = self.0.lock().server.discovered(path) {
            return Ok(resources.map_or_else(|failure| refusal(&failure), |body| response(200, Reply::Body(Some(body)))));
        }
        let request = match Request::parse(&parts.method, path, query, &parts.headers, body.collect_bytes().await?) {
            Ok(request) => request,
            Err(failure) => return Ok(refusal(&failure)),
        };
        let met = {
            let state = &mut *self.0.lock();
            state.last += 1;
            let arrived = Arrived { id: state.last, client, request };
            let fate = (state.decide)(&arrived);
            state.meet(self, arrived, fate)
        };
        match met {
            Some(result) => result,
            None => pending().await,
        }
    }

    /// Returns the next line of a watch.
    pub(crate) fn poll(&self, id: u64, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        self.0.lock().poll(id, context)
    }

    /// Forgets a watch whose client has gone.
    pub(crate) fn leave(&self, id: u64) {
        self.0.lock().watches.remove(&id);
    }

    fn at(&self, id: u64, act: impl FnOnce(&Server, &mut Open)) {
        let State { server, watches, .. } = &mut *self.0.lock();
        if let Some(open) = watches.get_mut(&id) {
            act(server, open);
            open.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl State {
    /// Returns what the client gets of a request. `None`: nothing.
    fn meet(&mut self, network: &Network, arrived: Arrived, fate: Fate) -> Option<Answered> {
        let Arrived { id, client, request } = arrived;
        let silence = match fate {
            Fate::Answered => {
                return Some(Ok(match self.carry_out(&request) {
                    Ok(Answer::Body(code, body)) => response(code, Reply::Body(Some(body))),
                    Ok(Answer::Watch(watch)) => {
                        self.open(id, client, watch);
                        response(200, Reply::Events(network.clone(), id))
                    }
                    Err(failure) => refusal(&failure),
                }));
            }
            Fate::Refused(code) => return Some(Ok(refusal(&Failure::refused(code)))),
            Fate::Lost(silence) => {
                drop(self.carry_out(&request));
                silence
            }
            Fate::Dropped(silence) => silence,
            Fate::Late(silence) => {
                self.late.extend(request.verb.is_write().then_some(request));
                silence
            }
        };
        (silence == Silence::Broken).then(|| Err("the connection was lost".into()))
    }

    fn carry_out(&mut self, request: &Request) -> Result<Answer, Failure> {
        let now = (self.clock)();
        let answer = self.server.answer(request, now);
        if request.verb.is_write() {
            self.wake();
        }
        answer
    }

    fn wake(&mut self) {
        let Self { server, watches, .. } = self;
        for open in watches.values_mut().filter(|open| open.waker.is_some() && server.behind(&open.watch) > 0) {
            open.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn open(&mut self, id: u64, client: usize, watch: Box<Watch>) {
        let open = Open { client, watch, allowed: None, bookmarks: VecDeque::new(), end: None, waker: None };
        self.watches.insert(id, open);
    }

    /// Returns the next line of a watch.
    fn poll(&mut self, id: u64, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        let Some(open) = self.watches.get_mut(&id) else { return Poll::Ready(None) };
        match open.end {
            Some(End::Ended) => return Poll::Ready(None),
            Some(End::Broken) => return Poll::Ready(Some(Err("the connection was lost".into()))),
            Some(End::Expired) => {
                open.end = Some(End::Ended);
                return Poll::Ready(Some(Ok(Server::expiry())));
            }
            None => {}
        }
        if let Some(bookmark) = open.bookmarks.pop_front() {
            return Poll::Ready(Some(Ok(bookmark)));
        }
        if open.allowed != Some(0) {
            match self.server.next_event(&mut open.watch) {
                Next::Event(line) => {
                    open.allowed = open.allowed.map(|allowed| allowed - 1);
                    return Poll::Ready(Some(Ok(line)));
                }
                Next::Expired => {
                    open.end = Some(End::Ended);
                    return Poll::Ready(Some(Ok(Server::expiry())));
                }
                Next::Idle => {}
            }
        }
        open.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The body of an answer.
pub enum Reply {
    /// A text, until it was read.
    Body(Option<Bytes>),
    /// The events of the watch with this number.
    Events(Network, u64),
}

fn response(code: u16, body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refusal(failure: &Failure) -> Response<Reply> {
    response(failure.code, Reply::Body(Some(failure.status().to_string().into())))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{Stream, StreamExt as _, TryStreamExt as _};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
    use kube::{Api, ResourceExt as _};
    use serde_json::json;

    use super::*;
    use crate::api_server::kind::builtin;

    /// Returns the network, and the API of ConfigMaps of its only client. Each create has this fate.
    fn network(fate: Fate) -> (Network, Api<ConfigMap>) {
        let mut server = Server::new(builtin());
        server.add_namespace("a", Timestamp::UNIX_EPOCH);
        let decide = move |arrived: &Arrived| if arrived.request.verb.is_write() { fate } else { Fate::Answered };
        let network = Network::new(server, || Timestamp::UNIX_EPOCH, decide);
        let client = network.client(1);
        (network, Api::namespaced(client, "a"))
    }

    fn map(name: &str) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
    }

    /// Returns how a create ends.
    async fn create(api: &Api<ConfigMap>, name: &str) -> String {
        let (params, map) = (PostParams::default(), map(name));
        match tokio::time::timeout(Duration::from_millis(20), api.create(&params, &map)).await {
            Ok(Ok(_)) => "created".to_owned(),
            Ok(Err(kube::Error::Api(status))) => status.code.to_string(),
            Ok(Err(_)) => "broken".to_owned(),
            Err(_) => "nothing".to_owned(),
        }
    }

    #[tokio::test]
    async fn each_fate_has_its_effect_on_the_server_and_on_the_client() {
        use Silence::{Broken, Hanging};
        // What the client gets, and whether the object exists then, and when what is late has happened.
        let table = [
            (Fate::Answered, "created", true, true),
            (Fate::Lost(Broken), "broken", true, true),
            (Fate::Lost(Hanging), "nothing", true, true),
            (Fate::Dropped(Broken), "broken", false, false),
            (Fate::Dropped(Hanging), "nothing", false, false),
            (Fate::Late(Broken), "broken", false, true),
            (Fate::Late(Hanging), "nothing", false, true),
            (Fate::Refused(403), "403", false, false),
            (Fate::Refused(503), "503", false, false),
        ];
        for (fate, expected, exists, exists_later) in table {
            let (network, api) = network(fate);
            let has = || network.with(|server| server.object("configmaps", "a", "one").is_some());
            assert_eq!((create(&api, "one").await.as_str(), has()), (expected, exists), "{fate:?}");
            network.land(5, true);
            assert_eq!(has(), exists_later, "{fate:?}");
        }
    }

    async fn next(events: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin)) -> String {
        match tokio::time::timeout(Duration::from_millis(20), events.next()).await {
            Ok(Some(Ok(WatchEvent::Added(map)))) => format!("added {}", map.name_any()),
            Ok(Some(Ok(WatchEvent::Modified(map)))) => format!("modified {}", map.name_any()),
            Ok(Some(Ok(WatchEvent::Deleted(map)))) => format!("deleted {}", map.name_any()),
            Ok(Some(Ok(WatchEvent::Bookmark(mark)))) => format!("bookmark {}", mark.metadata.resource_version),
            Ok(Some(Ok(WatchEvent::Error(status)))) => format!("error {}", status.code),
            Ok(Some(Err(_))) => "broken".to_owned(),
            Ok(None) => "ended".to_owned(),
            Err(_) => "nothing".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_watch_delivers_what_is_allowed_and_ends_as_the_caller_says() {
        let (network, api) = network(Fate::Answered);
        let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let watch = async || Box::pin(api.watch(&WatchParams::default(), &version).await.unwrap().into_stream());
        let mut events = watch().await;
        let id = network.watches()[0].id;
        assert_eq!(network.watches(), [Watching { id, client: 1 }]);
        network.allow(id, Some(1));
        for name in ["one", "two"] {
            create(&api, name).await;
        }
        api.patch("one", &PatchParams::default(), &Patch::Merge(json!({"data": {"a": "b"}}))).await.unwrap();
        api.delete("two", &DeleteParams::default()).await.unwrap();
        assert_eq!([next(&mut events).await, next(&mut events).await], ["added one", "nothing"]);
        network.allow(id, None);
        let told = [next(&mut events).await, next(&mut events).await, next(&mut events).await, next(&mut events).await];
        assert_eq!(told, ["added two", "modified one", "deleted two", "nothing"]);
        network.bookmark(id);
        assert_eq!(next(&mut events).await, format!("bookmark {}", network.with(|server| server.version())));
        for (end, expected) in [(End::Ended, "ended"), (End::Broken, "broken"), (End::Expired, "error 410")] {
            let mut events = watch().await;
            network.cut(network.watches().last().unwrap().id, end);
            assert_eq!(next(&mut events).await, expected);
        }
        drop(events);
        assert!(network.watches().is_empty());
    }

    #[tokio::test]
    async fn what_is_older_than_the_history_is_refused() {
        let (network, api) = network(Fate::Answered);
        for name in ["one", "two", "three"] {
            create(&api, name).await;
        }
        let page = ListParams::default().limit(1);
        let first = api.list(&page).await.unwrap();
        let version = first.metadata.resource_version.unwrap();
        let next_page = page.continue_token(&first.metadata.continue_.unwrap());
        let watch = async || api.watch(&WatchParams::default(), &version).await.map(|events| Box::pin(events.into_stream()));
        let mut behind = watch().await.unwrap();
        network.allow(network.watches()[0].id, Some(0));
        create(&api, "four").await;
        assert_eq!(api.list(&next_page).await.unwrap().items[0].name_any(), "three", "sorted by name, without the new one");
        network.with(|server| server.compact(server.version()));
        let code = |error| if let kube::Error::Api(status) = error { status.code } else { 0 };
        assert_eq!(code(api.list(&next_page).await.unwrap_err()), 410);
        network.watches().iter().for_each(|watching| network.allow(watching.id, None));
        assert_eq!([next(&mut behind).await, next(&mut behind).await], ["error 410", "ended"]);
        assert_eq!(next(&mut watch().await.unwrap()).await, "error 410");
        network.with(|server| server.refuses_old_watches = true);
        assert_eq!(watch().await.err().map(code), Some(410));
    }
}
