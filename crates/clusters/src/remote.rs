//! One remote cluster: a task that resolves the connection to it, probes it, and notifies its caches.
//!
//! In: the result of the [`Resolver`], and a nudge when a watch of the cluster fails. Out: a [`Link`] that all caches of the cluster use,
//! its [`Reachability`], and the pipelines to wake when that changes.
//!
//! A silent watch proves nothing: packets may be lost, and a revoked token does not end an open watch. So a cluster with a cache is probed.
//! When it responds again after it was lost, every watch is reopened, because a connection with lost packets may never recover.

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
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tower::{BoxError, Layer as _, ServiceBuilder};

use super::objects::caches::{ClusterConnection, Shared};
use bound::Bounds;
use deadline::Deadline;

use super::error::ObserveError;
use health::Health;
use kubeconfig::Checked;
use relaybook_api::values::refs::ClusterRef;
use relaybook_core::reading::{Reachability, Reason};
use relaybook_runtime::certificates::Bundle;
use relaybook_telemetry::metrics::Cluster as State;
use resolve::{Resolution, Resolver};

/// Timeout of a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of a probe.
const PROBE: Duration = Duration::from_secs(5);
/// Minimum time between two restarts of the watches of a slow cluster.
const REOPENED: Duration = Duration::from_mins(5);
/// Minimum pause between two probes, no matter how many watches fail.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// Longest time for which a cluster that is resolved for the first time lets others wait.
const TURN: Duration = Duration::from_secs(5);

/// The current connection to a cluster.
#[derive(Clone)]
pub(super) enum Link {
    /// The connection is being resolved.
    Resolving,
    /// The client to use. Each client that is sent here makes the watches list again.
    Up(Client),
    /// There is no working connection. `confirmed`: enough attempts have failed.
    Down { trouble: ObserveError, confirmed: bool },
}

/// Access of other components to a remote cluster.
#[derive(Clone)]
pub(super) struct Handle {
    pub link: watch::Receiver<Link>,
    pub reachability: watch::Receiver<Reachability>,
    /// Notified when a watch fails, to request a probe.
    pub nudge: Arc<Notify>,
}

/// The task of one remote cluster.
pub(super) struct Remote {
    resolver: Resolver,
    prober: Prober,
}

/// The part of the task that probes the cluster and publishes the result.
struct Prober {
    shared: Arc<Shared>,
    cluster: ClusterRef,
    link: watch::Sender<Link>,
    reachability: watch::Sender<Reachability>,
    /// The last state for which its pipelines were woken.
    notified: Reachability,
    state: State,
    nudge: Arc<Notify>,
}

/// Result of a probe.
enum Probed {
    Answered,
    Unauthorized,
    Failed(ObserveError),
}

impl Remote {
    /// Returns the task of a cluster, and the handle for other components. `local` is the client of the cluster that contains the object
    /// that represents this one.
    pub fn new(shared: Arc<Shared>, cluster: ClusterRef, local: Client) -> (Self, Handle) {
        let (link, followed) = watch::channel(Link::Resolving);
        let (reachability, seen) = watch::channel(Reachability::Unknown);
        let nudge = Arc::new(Notify::new());
        let handle = Handle { link: followed, reachability: seen, nudge: nudge.clone() };
        let resolver = Resolver::new(local, cluster.clone(), shared.options.insecure_clusters, shared.metrics.clone());
        let (notified, state) = (Reachability::Unknown, State::Unknown);
        shared.metrics.cluster(None, Some(state));
        (Self { resolver, prober: Prober { shared, cluster, link, reachability, notified, state, nudge } }, handle)
    }

    /// Waits for the first event or error of its watch, but not for ever. Only a limited number of clusters do this at a time. Otherwise a
    /// start with thousands of clusters would make thousands of requests to the local cluster at once.
    async fn begin(&mut self) {
        let _turn = self.prober.shared.resolving.acquire().await;
        let _ = timeout(TURN, self.resolver.step()).await;
    }

    /// Runs the task until dropped.
    pub async fn run(mut self) {
        self.begin().await;
        let mut resolution = Resolution::Pending;
        loop {
            // The future that is dropped here owns the old connection, so its connections close with it.
            resolution = tokio::select! {
                next = self.resolver.next() => next,
                never = self.prober.work(&resolution) => match never {},
            };
        }
    }
}

impl Prober {
    async fn work(&mut self, resolution: &Resolution) -> Infallible {
        match resolution {
            Resolution::Pending => {}
            Resolution::ObserveError(trouble) => self.down(trouble.clone(), false),
            Resolution::Ready(checked, _) => return self.probe_loop(checked).await,
        }
        std::future::pending().await
    }

    /// Makes the caches use this kubeconfig, and probes the cluster.
    async fn probe_loop(&mut self, checked: &Checked) -> Infallible {
        let name = self.cluster.full_name();
        let Some(mut client) = client(checked) else {
            let words = "the certificates or the key of its kubeconfig cannot be used";
            self.down(ObserveError::new(Reason::KubeconfigInvalid, format!("cluster {name}: {words}")), false);
            return std::future::pending().await;
        };
        self.reachability.send_replace(Reachability::Unknown);
        let mut health = Health::new(self.shared.options.cluster_grace);
        let mut up = true;
        // A probe has timed out: older connections of the watches may be dead, even if a new connection works.
        let (mut connections_suspect, mut opened) = (false, Instant::now());
        self.use_client(&checked.identity(), client.clone());
        loop {
            let began = Instant::now();
            match probe(&client, &name).await {
                Probed::Answered => {
                    health.answered();
                    if !up || (connections_suspect && opened.elapsed() >= REOPENED) {
                        self.up(client.clone(), State::Reachable);
                        opened = Instant::now();
                    }
                    (up, connections_suspect) = (true, false);
                    let forbidden = self.shared.store().is_forbidden(&self.cluster);
                    self.note(if forbidden { State::Forbidden } else { State::Reachable });
                }
                Probed::Unauthorized => {
                    health.answered();
                    up = false;
                    self.down(ObserveError::of_status(&name, 401, ""), true);
                }
                Probed::Failed(trouble) => {
                    health.failed(began);
                    connections_suspect |= trouble.reason == Reason::Timeout;
                    // Connections that may be dead must not be used to find out whether the cluster responds again.
                    if health.is_lost(Instant::now()) {
                        client = self::client(checked).unwrap_or(client);
                        up = false;
                        self.down(trouble, true);
                    } else {
                        let wake = self.shared.store().set_list_problem(&self.cluster, &trouble.message);
                        self.shared.wake(wake).await;
                    }
                }
            }
            self.wait(&health).await;
        }
    }

    /// Waits until the next probe. The grace period may end during the wait.
    async fn wait(&mut self, health: &Health) {
        let now = Instant::now();
        let pause = health.pause(now);
        let next = now + pause + pause.mul_f64(fastrand::f64() / 5.0);
        loop {
            let now = Instant::now();
            self.publish(health.reachability(now)).await;
            let offline = health.offline_at(now).unwrap_or(next);
            tokio::select! {
                () = sleep_until(next) => return,
                () = sleep_until(offline), if offline < next => {}
                // While the cluster does not respond, failing watches add no information.
                () = self.nudge.notified(), if !health.is_silent() => return tokio::time::sleep(LEAST_PAUSE).await,
            }
        }
    }

    /// Publishes whether the cluster is reachable. Dependent pipelines are woken on each change, and also when the state becomes known,
    /// because a reconcile in between may have seen it as unknown.
    async fn publish(&mut self, now: Reachability) {
        let before = self.reachability.send_replace(now);
        if now == Reachability::Unknown || (now == self.notified && now == before) {
            return;
        }
        if now == Reachability::Offline && now != self.notified {
            tracing::warn!(cluster = self.cluster.full_name(), "a cluster has not answered for the grace period");
        }
        let wake = self.shared.store().pipelines_of(&self.cluster);
        self.shared.wake(wake).await;
        self.notified = now;
    }

    /// Makes the caches use this client of the cluster with this identity. If the identity is that of another cluster, the caches restart.
    fn use_client(&mut self, identity: &str, client: Client) {
        let shared = self.shared.clone();
        // Under one lock: a cache that is created before is restarted, and one that is created after never sees the old client.
        let mut store = shared.store();
        let begun = store.identify(&self.cluster, identity, shared.stop());
        self.up(client, State::Unknown);
        drop(store);
        for (id, stop) in begun {
            let connection = ClusterConnection { link: self.link.subscribe(), nudge: Some(self.nudge.clone()) };
            shared.begin(id, stop, connection);
        }
    }

    fn up(&mut self, client: Client, state: State) {
        tracing::info!(cluster = self.cluster.full_name(), "opening the watches of a cluster");
        self.note(state);
        self.link.send_replace(Link::Up(client));
    }

    fn down(&mut self, trouble: ObserveError, confirmed: bool) {
        if !confirmed {
            self.reachability.send_replace(Reachability::Unknown);
        }
        self.note(match trouble.reason {
            Reason::Unauthorized => State::Unauthorized,
            Reason::Forbidden => State::Forbidden,
            Reason::Timeout | Reason::Unreachable => State::Unreachable,
            _ => State::Invalid,
        });
        let news = Link::Down { trouble, confirmed };
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

impl Drop for Prober {
    fn drop(&mut self) {
        self.shared.metrics.cluster(Some(self.state), None);
    }
}

impl Link {
    /// Whether both are down for the same reason.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Down { trouble: a, confirmed: x }, Self::Down { trouble: b, confirmed: y }) => a == b && x == y,
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

/// Returns a client with its own connections. `None` if the TLS library rejects the certificates or the key.
fn client(checked: &Checked) -> Option<Client> {
    let mut config = Config::new(checked.server.clone());
    config.root_cert.clone_from(&checked.roots);
    config.accept_invalid_certs = checked.any_certificate;
    let user = &checked.user;
    config.auth_info.token.clone_from(&user.token);
    (config.auth_info.username, config.auth_info.password) = user.basic.clone().unzip();
    (config.auth_info.client_certificate_data, config.auth_info.client_key_data) = user.certificate.clone().unzip();
    config.auth_info.impersonate.clone_from(&user.act_as);
    config.auth_info.impersonate_groups = Some(user.act_as_groups.clone()).filter(|groups| !groups.is_empty());
    let connector = Deadline::of(CONNECT).layer(https(&config, checked)?);
    // The same layers as in kube, with two differences. Names are resolved by our connector. Nothing is retried: the caches have a backoff,
    // and a probe must report what it observed.
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

/// Returns the connector of kube, with our own verifier if the kubeconfig names CA certificates.
fn https(config: &Config, checked: &Checked) -> Option<HttpsConnector<HttpConnector<dial::Guarded>>> {
    let mut tls = config.rustls_client_config().ok()?;
    if let Some(roots) = checked.roots.as_ref().filter(|_| !checked.any_certificate) {
        let certificates = roots.iter().cloned().map(CertificateDer::from);
        let bundle = Bundle::new(certificates, Arc::clone(tls.crypto_provider()))?;
        tls.dangerous().set_certificate_verifier(Arc::new(bundle));
    }
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let builder = match &checked.server_name {
        Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name.clone().try_into().ok()?)),
        None => builder,
    };
    Some(builder.enable_http1().wrap_connector(dial::connector()))
}
