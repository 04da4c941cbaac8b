//! The composition root: makes the parts, joins them, and ends the process when one that must not end does.

mod connect;
mod exporting;
mod publishing;
mod signals;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future;
use futures::stream::FuturesUnordered;
use ipnet::IpNet;
use kube::Client;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::values::refs::ObjectName;
use crate::dispatch::{self, Given};
use crate::http::{Gates, Served};
use crate::k8s::limiter::NamespaceLimiter;
use crate::leader::{Keeper, Lease, Named};
use crate::outbox::{self, DeliveryIndex, Journal, Limits, Parts, PipelineIndex};
use crate::report::events::events;
pub use connect::{Access, Server};

use crate::telemetry::Tracer;
use crate::telemetry::{Metrics, metrics};
pub use crate::webhook::{Collector, Proxy};
use crate::webhook::{Policy, SecretWatches, Sender};
use crate::{cluster, http, installed, pipeline};
use exporting::Exporting;
pub use exporting::Tracing;
use signals::Signals;

/// Notes of the delivery engine that may wait for the dispatcher.
const NOTES: usize = 256;
/// Outcomes that are written at once.
const OUTCOMES: usize = 256;
/// Outcomes that are written at once of attempts that failed and come again; of one namespace a quarter of it.
const FAILURES: usize = 8;
/// Deliveries that wait or are canceled at once: as many writes as the API server takes gladly.
const ASIDE: usize = 32;
/// Pipelines looked at at once.
const PIPELINES: usize = 64;
/// After the order to stop: 20 s for requests under way, and some for the last writes.
const STOP: Duration = Duration::from_secs(25);
/// And some more to give up the Leases.
const RELEASE: Duration = Duration::from_secs(4);

/// A controller that can run by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Controller {
    /// Observes application objects and writes the change log.
    Pipeline,
    /// Takes the change log, records deliveries and sends them.
    Dispatch,
}

impl Controller {
    /// The Lease under which it acts.
    const fn lease(self) -> metrics::Lease {
        match self {
            Self::Pipeline => metrics::Lease::Pipeline,
            Self::Dispatch => metrics::Lease::Dispatch,
        }
    }
}

/// What `pennant run` was told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which controllers to run.
    pub controllers: Vec<Controller>,
    /// The process's own namespace, in which its Leases are.
    pub namespace: String,
    /// Name of the ConfigMap in it with the global configuration.
    pub config_map: String,
    /// The name under which it holds the Leases.
    pub identity: String,
    /// Namespaces to watch; none: all.
    pub watch_namespaces: Vec<String>,
    /// Name of the local cluster.
    pub cluster_name: String,
    /// Requests under way at once.
    pub workers: usize,
    /// Settled deliveries kept in all.
    pub keep_deliveries: usize,
    /// `http` everywhere.
    pub allow_http: bool,
    /// Addresses allowed although they are refused by default.
    pub allow_destinations: Vec<IpNet>,
    /// Addresses refused.
    pub deny_destinations: Vec<IpNet>,
    /// Through which all requests to receivers go.
    pub proxy: Option<Proxy>,
    /// What is traced, if anything.
    pub tracing: Option<Tracing>,
    /// Targets only in the pipeline's own namespace.
    pub no_cross_namespace_refs: bool,
    /// A remote cluster that has not answered for so long is offline.
    pub cluster_grace: Duration,
    /// Remote clusters without TLS, or without a look at their certificates.
    pub allow_insecure_clusters: bool,
    /// Where to serve health and metrics.
    pub http_addr: SocketAddr,
    /// Context of the kubeconfig.
    pub context: Option<String>,
    /// The runtime on which requests to receivers are made.
    pub sending: Handle,
    /// The runtime on which remote clusters are asked and watched.
    pub remote: Handle,
}

/// Why the process cannot start, or had to end.
#[derive(Debug, Error)]
pub enum AppError {
    /// No usable kubeconfig, and not in a pod.
    #[error("no cluster: neither a kubeconfig (KUBECONFIG, ~/.kube/config) nor a pod's service account can be used")]
    NoCluster(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The kubeconfig that was asked for cannot be used.
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The client cannot be made.
    #[error("the client of the API server cannot be made")]
    Client(#[source] Box<kube::Error>),
    /// The sender cannot be made.
    #[error("the sender cannot be made")]
    Send(#[from] crate::webhook::SendError),
    /// The address cannot be served.
    #[error("{addr} cannot be served")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signal(#[source] std::io::Error),
    /// A part that must run has ended.
    #[error("{0} has ended, so the process ends: it starts anew from what is recorded")]
    Ended(String),
    /// Older definitions were put beneath it.
    #[error("the process ends, and waits at its next start: {0}")]
    Misfit(String),
}

/// Runs until SIGTERM or SIGINT, or until a part that must run has ended.
pub async fn run(options: Options) -> Result<(), AppError> {
    let stop = CancellationToken::new();
    let mut signals = Signals::new()?;
    let access = Access { context: options.context.clone(), ..Access::default() };
    let client = access.client().await?;
    let (metrics, gates) = (Metrics::new(), Gates::default());
    // Opened after all others are there, so that it is never called ready before.
    let definitions = gates.add("definitions");
    let (tracer, exporting) = Exporting::start(&options, &metrics)?;
    let listener = http::listen(options.http_addr).map_err(|source| AppError::Listen { addr: options.http_addr, source })?;
    let address = listener.local_addr().map_err(|source| AppError::Listen { addr: options.http_addr, source })?;
    tracing::info!(%address, namespace = %options.namespace, controllers = ?options.controllers, version = env!("CARGO_PKG_VERSION"), "listening");
    let mut parts = vec![Part::default()];
    let runtimes = vec![Handle::current(), options.remote.clone()];
    let served = Served { metrics: metrics.clone(), gates: gates.clone(), runtimes };
    let serving = http::serve(listener, served, stop.clone());
    parts[0].tasks.spawn(async {
        serving.await;
        "serving health and metrics"
    });
    for &controller in &options.controllers {
        // Said from the start on: a process that waits for its definitions holds no Lease, and an alert must see that.
        metrics.lease_held(controller.lease(), false);
    }
    let looks = match signals.or(installed::fits(&client)).await {
        Ok(looks) => looks,
        Err(name) => {
            tracing::info!(signal = name, "stopping before anything was begun");
            stop.cancel();
            future::join_all(parts.into_iter().map(Part::end)).await;
            return Ok(());
        }
    };
    if options.controllers.contains(&Controller::Pipeline) {
        let (mut part, lease) = Part::with_lease(&options, &client, metrics::Lease::Pipeline, &metrics, &gates);
        let apart = access.client().await?;
        start_pipeline(&options, (&client, apart), lease, &metrics, &tracer, &gates, &mut part.tasks, &stop);
        parts.push(part);
    }
    if options.controllers.contains(&Controller::Dispatch) {
        let (mut part, lease) = Part::with_lease(&options, &client, metrics::Lease::Dispatch, &metrics, &gates);
        start_dispatch(&options, &client, lease, &metrics, &tracer, &gates, &mut part.tasks, &stop)?;
        parts.push(part);
    }
    definitions.open();
    let ended = tokio::select! {
        name = signals.next() => {
            tracing::info!(signal = name, "stopping: nothing new is begun, requests under way finish");
            Ok(())
        }
        name = first_ended(&mut parts) => Err(AppError::Ended(name)),
        words = looks.misfit() => Err(AppError::Misfit(words)),
    };
    stop.cancel();
    let drained = Instant::now() + STOP + RELEASE;
    future::join_all(parts.into_iter().map(Part::end)).await;
    exporting.end(drained).await;
    ended
}

/// Tasks that act under one Lease, or under none.
#[derive(Default)]
struct Part {
    tasks: JoinSet<&'static str>,
    keeper: JoinSet<&'static str>,
    release: CancellationToken,
}

impl Part {
    /// With a Lease that is kept until all tasks have ended.
    fn with_lease(
        options: &Options,
        client: &Client,
        label: metrics::Lease,
        metrics: &Metrics,
        gates: &Gates,
    ) -> (Self, Lease) {
        let mut part = Self::default();
        let (limiter, stop) = (gates.add(label.as_str()), part.release.clone());
        let (namespace, identity) = (options.namespace.clone(), options.identity.clone());
        let named = Named { namespace, name: label.as_str(), identity };
        let (keeper, lease) = Keeper::new(client.clone(), named, label, metrics.clone(), move || limiter.open());
        part.keeper.spawn(async {
            keeper.run(stop).await;
            "keeping a Lease"
        });
        (part, lease)
    }

    /// The order to stop has been given: waits for the tasks, and gives up the Lease, so that another replica goes on.
    async fn end(mut self) {
        if timeout(STOP, async { while self.tasks.join_next().await.is_some() {} }).await.is_err() {
            tracing::warn!("some tasks did not end in time; what they were doing is taken up at the next start");
            return;
        }
        self.release.cancel();
        let _ = timeout(RELEASE, async { while self.keeper.join_next().await.is_some() {} }).await;
    }
}

/// Waits until a task has ended, though it should not have; says which.
async fn first_ended(parts: &mut [Part]) -> String {
    let all = parts.iter_mut().flat_map(|part| [&mut part.tasks, &mut part.keeper]).filter(|tasks| !tasks.is_empty());
    let mut ended: FuturesUnordered<_> = all.map(JoinSet::join_next).collect();
    match ended.next().await.flatten() {
        Some(Ok(name)) => name.to_owned(),
        Some(Err(error)) => error.to_string(),
        None => "everything".to_owned(),
    }
}

/// One watch over all namespaces, or one for each.
fn scopes(options: &Options) -> Vec<Option<String>> {
    if options.watch_namespaces.is_empty() {
        return vec![None];
    }
    let names: std::collections::BTreeSet<_> = options.watch_namespaces.iter().cloned().collect();
    names.into_iter().map(Some).collect()
}

#[expect(clippy::too_many_arguments, reason = "the composition root hands out what it has made")]
fn start_pipeline(
    options: &Options,
    (client, apart): (&Client, Client),
    lease: Lease,
    metrics: &Metrics,
    tracer: &Tracer,
    gates: &Gates,
    tasks: &mut JoinSet<&'static str>,
    stop: &CancellationToken,
) {
    let observing = gates.add("pipelines");
    publishing::pipeline(options, (client, &lease), tasks, stop);
    let follow = cluster::Options {
        cluster_name: options.cluster_name.clone(),
        scope: cluster::Scope::new(&options.watch_namespaces),
        cluster_grace: options.cluster_grace,
        insecure_clusters: options.allow_insecure_clusters,
        remote: Some(options.remote.clone()),
    };
    let (caches, woken) = cluster::Caches::new(client.clone(), apart, follow, metrics.clone());
    let how = pipeline::Options {
        cluster_name: options.cluster_name.clone(),
        watch_namespaces: options.watch_namespaces.clone(),
        cross_namespace_refs: !options.no_cross_namespace_refs,
        looks: PIPELINES,
        tracer: tracer.clone(),
    };
    let (events, write_events) = events(client.clone(), metrics.clone(), stop.clone());
    tasks.spawn(async {
        write_events.await;
        "writing events"
    });
    let context = pipeline::Context::new(client.clone(), lease, caches, how, events, metrics.clone(), stop.clone());
    let running = pipeline::run(context, woken, move || observing.open());
    tasks.spawn(async {
        if let Err(error) = running.await {
            tracing::error!(error = %crate::telemetry::chain(&error), "the pipeline controller has ended");
        }
        "the pipeline controller"
    });
}

#[expect(clippy::too_many_arguments, reason = "the composition root hands out what it has made")]
fn start_dispatch(
    options: &Options,
    client: &Client,
    lease: Lease,
    metrics: &Metrics,
    tracer: &Tracer,
    gates: &Gates,
    tasks: &mut JoinSet<&'static str>,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let (recorded, dispatching) = (gates.add("deliveries"), gates.add("dispatcher"));
    publishing::dispatch(options, (client, &lease), tasks, stop);
    let secrets = SecretWatches::new(client.clone(), lease.turns(), metrics.clone());
    let policy = Policy {
        allow: options.allow_destinations.clone(),
        deny: options.deny_destinations.clone(),
        allow_http: options.allow_http,
    };
    let parts = Parts {
        lease: lease.clone(),
        journal: Journal::new(client.clone(), metrics.clone()),
        pipeline_index: PipelineIndex::default(),
        delivery_index: DeliveryIndex::default(),
        sender: Arc::new(Sender::through(options.proxy.clone(), policy, secrets.secrets(), metrics.clone())?),
        sending: options.sending.clone(),
        client: client.clone(),
        cluster_name: options.cluster_name.clone(),
        metrics: metrics.clone(),
        tracer: tracer.clone(),
        outcomes: NamespaceLimiter::new(OUTCOMES),
        failures: NamespaceLimiter::new(FAILURES),
        aside: NamespaceLimiter::new(ASIDE),
    };
    let (notes, news) = mpsc::channel(NOTES);
    // Deliveries of cluster-wide notifications are kept beside the global configuration.
    let mut kept = scopes(options);
    if !kept.contains(&None) && !options.watch_namespaces.contains(&options.namespace) {
        kept.push(Some(options.namespace.clone()));
    }
    let limits = Limits { workers: options.workers, keep: options.keep_deliveries };
    let deliveries = outbox::start(parts, limits, kept, notes, move || recorded.open(), tasks, stop);
    let (events, write_events) = events(client.clone(), metrics.clone(), stop.clone());
    tasks.spawn(async {
        write_events.await;
        "writing events"
    });
    let given = Given {
        client: client.clone(),
        lease,
        cluster_name: options.cluster_name.clone(),
        allow_http: options.allow_http,
        deliveries,
        secrets,
        events,
        metrics: metrics.clone(),
        namespaces: scopes(options),
        config_map: ObjectName { namespace: options.namespace.clone(), name: options.config_map.clone() },
    };
    dispatch::start(given, news, move || dispatching.open(), tasks, stop);
    Ok(())
}
