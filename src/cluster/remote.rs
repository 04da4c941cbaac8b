//! One remote cluster: the task that finds the way to it, keeps asking whether it answers, and tells its caches.
//!
//! In: what the reference leads to ([`Resolver`]), and a nudge when a watch of the cluster has broken. Out: a [`Link`] that
//! all caches of the cluster follow, its [`Reachability`], and the pipelines that are woken when that changes.
//!
//! A silent watch proves nothing: packets may be dropped on the way, and a revoked token does not end an open watch. So a cluster with a
//! cache is probed. When it answers again after it was lost, every watch is reopened, because a connection with dropped packets may never
//! recover.

pub(super) mod address;
pub(super) mod bound;
pub(super) mod deadline;
pub(super) mod dial;
pub(super) mod health;
pub(super) mod kubeconfig;
pub(super) mod reference;
pub(super) mod registry;
pub(super) mod resolve;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use kube::{Client, Config};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tower::{BoxError, Layer as _, ServiceBuilder};

use super::objects::caches::{Shared, Way};
use bound::Bounds;
use deadline::Deadline;

use super::error::ObserveError;
use super::{Reachability, Reason};
use crate::api::values::refs::ClusterRef;
use crate::telemetry::metrics::Cluster as State;
use health::Health;
use kubeconfig::Checked;
use resolve::{Resolution, Resolver};

/// No connection takes longer.
const CONNECT: Duration = Duration::from_secs(5);
/// No probe takes longer.
const PROBE: Duration = Duration::from_secs(5);
/// Minimum time between two restarts of the watches of a slow cluster.
const REOPENED: Duration = Duration::from_mins(5);
/// However often it is nudged, a cluster is not probed more often.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// The present way to a cluster.
#[derive(Clone)]
pub(super) enum Link {
    /// It is being looked for.
    Resolving,
    /// This client. Each client that is sent here is a reason to list again.
    Up(Client),
    /// There is none that leads there. `sure`: it has been tried often enough.
    Down { trouble: ObserveError, sure: bool },
}

/// What others hold of a remote cluster.
#[derive(Clone)]
pub(super) struct Handle {
    pub link: watch::Receiver<Link>,
    pub reachability: watch::Receiver<Reachability>,
    /// A watch has broken: look whether the cluster still answers.
    pub nudge: Arc<Notify>,
}

/// The task of one remote cluster.
pub(super) struct Remote {
    resolver: Resolver,
    post: Post,
}

/// What keeps asking a cluster, and tells others.
struct Post {
    shared: Arc<Shared>,
    cluster: ClusterRef,
    link: watch::Sender<Link>,
    reachability: watch::Sender<Reachability>,
    /// What its pipelines were last woken for.
    told: Reachability,
    state: State,
    nudge: Arc<Notify>,
}

/// How a probe ended.
enum Probed {
    Answered,
    Unauthorized,
    Failed(ObserveError),
}

impl Remote {
    /// The task, and the handles of others to it. `local` is the client of the cluster with the object that represents this one.
    pub fn new(shared: Arc<Shared>, cluster: ClusterRef, local: Client) -> (Self, Handle) {
        let (link, followed) = watch::channel(Link::Resolving);
        let (reachability, seen) = watch::channel(Reachability::Unknown);
        let nudge = Arc::new(Notify::new());
        let handle = Handle { link: followed, reachability: seen, nudge: nudge.clone() };
        let resolver = Resolver::new(local, cluster.clone(), shared.options.insecure_clusters, shared.metrics.clone());
        let (told, state) = (Reachability::Unknown, State::Unknown);
        shared.metrics.cluster(None, Some(state));
        (Self { resolver, post: Post { shared, cluster, link, reachability, told, state, nudge } }, handle)
    }

    /// Follows the cluster until dropped.
    pub async fn run(mut self) {
        let mut resolution = Resolution::Pending;
        loop {
            // Whatever the old way still holds, connections included, goes with the future that is dropped here.
            resolution = tokio::select! {
                next = self.resolver.next() => next,
                never = self.post.work(&resolution) => match never {},
            };
        }
    }
}

impl Post {
    async fn work(&mut self, resolution: &Resolution) -> Infallible {
        match resolution {
            Resolution::Pending => {}
            Resolution::ObserveError(trouble) => self.down(trouble.clone(), false),
            Resolution::Ready(checked, _) => return self.ask(checked).await,
        }
        std::future::pending().await
    }

    /// Has the caches use this kubeconfig, and asks whether the cluster answers.
    async fn ask(&mut self, checked: &Checked) -> Infallible {
        let name = self.cluster.full_name();
        let Some(mut client) = client(checked) else {
            let words = "the certificates or the key of its kubeconfig cannot be used";
            self.down(ObserveError::new(Reason::KubeconfigInvalid, format!("cluster {name}: {words}")), false);
            return std::future::pending().await;
        };
        self.reachability.send_replace(Reachability::Unknown);
        let mut health = Health::new(self.shared.options.cluster_grace);
        let mut up = true;
        // A probe was swallowed: watches over older connections may have been, too, though a new one works.
        let (mut doubt, mut opened) = (false, Instant::now());
        self.lead_to(&checked.identity(), client.clone());
        loop {
            let began = Instant::now();
            match probe(&client, &name).await {
                Probed::Answered => {
                    health.answered();
                    if !up || (doubt && opened.elapsed() >= REOPENED) {
                        self.up(client.clone(), State::Reachable);
                        opened = Instant::now();
                    }
                    (up, doubt) = (true, false);
                    let forbidden = self.shared.store().is_forbidden(&self.cluster);
                    self.note(if forbidden { State::Forbidden } else { State::Reachable });
                }
                Probed::Unauthorized => {
                    health.answered();
                    up = false;
                    self.down(ObserveError::answered(&name, 401, ""), true);
                }
                Probed::Failed(trouble) => {
                    health.failed(began);
                    doubt |= trouble.reason == Reason::Timeout;
                    // Connections that were swallowed must not be used to find out whether it answers again.
                    if health.is_lost(Instant::now()) {
                        client = self::client(checked).unwrap_or(client);
                        up = false;
                        self.down(trouble, true);
                    } else {
                        let wake = self.shared.store().unfilled(&self.cluster, &trouble.message);
                        self.shared.wake(wake).await;
                    }
                }
            }
            self.wait(&health).await;
        }
    }

    /// Waits until the next probe; meanwhile the grace period may end.
    async fn wait(&mut self, health: &Health) {
        let now = Instant::now();
        let pause = health.pause(now);
        let next = now + pause + pause.mul_f64(fastrand::f64() / 5.0);
        loop {
            let now = Instant::now();
            self.tell(health.reachability(now)).await;
            let offline = health.offline_at(now).unwrap_or(next);
            tokio::select! {
                () = sleep_until(next) => return,
                () = sleep_until(offline), if offline < next => {}
                // While it does not answer anyway, failing watches add no information.
                () = self.nudge.notified(), if !health.is_silent() => return tokio::time::sleep(LEAST_PAUSE).await,
            }
        }
    }

    /// Publishes whether the cluster is reachable. Dependent pipelines are woken on each change, and also when the state becomes known,
    /// because a reconcile in between may have seen it as unknown.
    async fn tell(&mut self, now: Reachability) {
        let before = self.reachability.send_replace(now);
        if now == Reachability::Unknown || (now == self.told && now == before) {
            return;
        }
        if now == Reachability::Offline && now != self.told {
            tracing::warn!(cluster = self.cluster.full_name(), "a cluster has not answered for the grace period");
        }
        let wake = self.shared.store().pipelines_of(&self.cluster);
        self.shared.wake(wake).await;
        self.told = now;
    }

    /// Makes the caches use this client, of the cluster with this identity. If it is another cluster, they restart.
    fn lead_to(&mut self, identity: &str, client: Client) {
        let shared = self.shared.clone();
        // Under one lock: a cache that is created before is restarted, and one that is created after never sees the old client.
        let mut store = shared.store();
        let begun = store.identify(&self.cluster, identity, shared.stop());
        self.up(client, State::Unknown);
        drop(store);
        for (id, stop) in begun {
            let way = Way { link: self.link.subscribe(), nudge: Some(self.nudge.clone()) };
            shared.begin(id, stop, way);
        }
    }

    fn up(&mut self, client: Client, state: State) {
        tracing::info!(cluster = self.cluster.full_name(), "the watches of a cluster are opened");
        self.note(state);
        self.link.send_replace(Link::Up(client));
    }

    fn down(&mut self, trouble: ObserveError, sure: bool) {
        if !sure {
            self.reachability.send_replace(Reachability::Unknown);
        }
        self.note(match trouble.reason {
            Reason::Unauthorized => State::Unauthorized,
            Reason::Forbidden => State::Forbidden,
            Reason::Timeout | Reason::Unreachable => State::Unreachable,
            _ => State::Invalid,
        });
        let news = Link::Down { trouble, sure };
        self.link.send_if_modified(|link| {
            let is_news = !link.is(&news);
            if is_news {
                *link = news;
            }
            is_news
        });
    }

    fn note(&mut self, state: State) {
        self.shared.metrics.cluster(Some(self.state), Some(state));
        self.state = state;
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.shared.metrics.cluster(Some(self.state), None);
    }
}

impl Link {
    /// Whether both say that it is down, and why.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Down { trouble: a, sure: x }, Self::Down { trouble: b, sure: y }) => a == b && x == y,
            _ => false,
        }
    }
}

async fn probe(client: &Client, cluster: &str) -> Probed {
    let Ok(request) = Request::get("/version").body(Vec::new()) else { return Probed::Answered };
    match timeout(PROBE, client.request_text(request)).await {
        Err(_) => Probed::Failed(ObserveError::timeout(cluster)),
        Ok(Ok(_)) => Probed::Answered,
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => Probed::Unauthorized,
        Ok(Err(kube::Error::Api(status))) if status.code < 500 => Probed::Answered,
        Ok(Err(error)) => Probed::Failed(ObserveError::of_call(cluster, &error)),
    }
}

/// A client of its own, with connections of its own; `None` if the TLS library does not take the certificates or the key.
fn client(checked: &Checked) -> Option<Client> {
    let mut config = Config::new(checked.server.clone());
    config.root_cert.clone_from(&checked.roots);
    config.accept_invalid_certs = checked.any_certificate;
    config.tls_server_name.clone_from(&checked.server_name);
    let user = &checked.user;
    config.auth_info.token.clone_from(&user.token);
    (config.auth_info.username, config.auth_info.password) = user.basic.clone().unzip();
    (config.auth_info.client_certificate_data, config.auth_info.client_key_data) = user.certificate.clone().unzip();
    config.auth_info.impersonate.clone_from(&user.act_as);
    config.auth_info.impersonate_groups = Some(user.act_as_groups.clone()).filter(|groups| !groups.is_empty());
    let connector = Deadline::of(CONNECT).layer(config.rustls_https_connector_with_connector(dial::connector()).ok()?);
    // kube's own stack, but that names are resolved by ours and that nothing is tried again: the caches have a back-off, and a
    // probe must say what it saw.
    let service = ServiceBuilder::new()
        .layer(Bounds::default())
        .layer(Deadline::HEAD)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().ok()?)
        .layer(config.extra_headers_layer().ok()?)
        .map_err(BoxError::from)
        .service(HttpClient::builder(TokioExecutor::new()).build(connector));
    Some(Client::new(service, config.default_namespace))
}
