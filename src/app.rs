//! The composition root: creates the parts, joins them, and exits the process when a part ends that must keep running.

mod connect;
mod exporting;
mod hooks;
mod page;
mod part;
mod promoting;
mod publishing;
mod sets;
mod signals;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future;
use kube::Client;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::http::{self, Gates, Served};
use crate::options::{Controller, Options};
pub use connect::{Access, Server};
use exporting::Exporting;
use hooks::Hooks;
pub use page::page;
use part::{Part, first_ended};
use relaybook_deliveries::dispatch::{self, Given};
use relaybook_deliveries::outbox::{self, DeliveryIndex, Direct, Journal, Limits, Parts, PipelineIndex};
use relaybook_egress::{SecretWatches, Sender};
use relaybook_pipelines::pipeline;
use relaybook_runtime::installed;
use relaybook_runtime::leader::Lease;
use relaybook_runtime::limiter::NamespaceLimiter;
use relaybook_runtime::report::events::events;
use relaybook_telemetry::Tracer;
use relaybook_telemetry::{Metrics, metrics};
use signals::Signals;

/// Maximum number of notes from the delivery engine that wait for the dispatcher.
const NOTES: usize = 256;
/// Maximum number of concurrent writes of outcomes.
const OUTCOMES: usize = 256;
/// Maximum number of concurrent writes for failed attempts that are retried. One namespace gets a quarter of it.
const FAILURES: usize = 8;
/// Maximum number of concurrent writes for Deliveries that wait or are canceled: a load that the API server handles well.
const ASIDE: usize = 32;
/// Maximum number of concurrent reconciles of pipelines.
const PIPELINES: usize = 64;
/// Time to stop after the signal: 20 s for requests in flight, and 5 s for the last writes.
const STOP: Duration = Duration::from_secs(25);
/// Additional time to release the Leases.
const RELEASE: Duration = Duration::from_secs(4);

/// Why the process cannot start, or had to exit.
#[derive(Debug, Error)]
pub enum AppError {
    /// There is no usable kubeconfig, and the process does not run in a pod.
    #[error("no cluster: neither a kubeconfig (KUBECONFIG, ~/.kube/config) nor the service account of a pod can be used")]
    NoCluster(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The given kubeconfig cannot be used.
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The client cannot be created.
    #[error("the client for the API server cannot be created")]
    Client(#[source] Box<kube::Error>),
    /// The sender cannot be created.
    #[error("the sender of requests cannot be created")]
    Send(#[from] relaybook_egress::SendError),
    /// The process cannot listen on the address.
    #[error("cannot listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The audit page cannot be served.
    #[error("the audit page cannot be served")]
    Page(#[source] relaybook_page::SealError),
    /// The process cannot receive signals.
    #[error("cannot receive signals")]
    Signal(#[source] std::io::Error),
    /// A part that must keep running has ended.
    #[error("unexpected end of a task: {0}; the process exits, and continues from the recorded state after a restart")]
    Ended(String),
    /// Older CRDs were installed while the process was running.
    #[error("the process exits, and waits at its next start until compatible CRDs are installed: {0}")]
    Misfit(String),
}

/// Runs until SIGTERM or SIGINT, or until a part ends that must keep running.
///
/// `sending` is the runtime for requests to receivers, and `remote` the one for calls and watches on remote clusters.
pub async fn run(options: Options, sending: Handle, remote: Handle) -> Result<(), AppError> {
    let stop = CancellationToken::new();
    let mut signals = Signals::new()?;
    let access = Access { context: options.context.clone(), ..Access::default() };
    let client = access.client().await?;
    let (metrics, gates) = (Metrics::new(), Gates::default());
    // This gate is opened after all other gates are added. So the process is never ready before they exist.
    let definitions = gates.add("definitions");
    let (tracer, exporting) = Exporting::start(&options, &sending, &metrics)?;
    let listener = http::listen(options.http_addr).map_err(|source| AppError::Listen { addr: options.http_addr, source })?;
    let address = listener.local_addr().map_err(|source| AppError::Listen { addr: options.http_addr, source })?;
    tracing::info!(%address, namespace = %options.namespace, controllers = ?options.controllers, version = env!("CARGO_PKG_VERSION"), "listening");
    let mut parts = vec![Part::default()];
    let runtimes = vec![Handle::current(), remote.clone()];
    let served = Served { metrics: metrics.clone(), gates: gates.clone(), runtimes };
    let serving = http::serve(listener, served, stop.clone());
    parts[0].tasks.spawn(async {
        serving.await;
        "serving health and metrics"
    });
    // The page starts without the CRDs, so that it can say that they are missing.
    if let Some(address) = options.page.address {
        parts.push(page::start(&options, address, &access, &stop).await?);
    }
    for &controller in &options.controllers {
        // Exported from the start: a process that waits for its CRDs holds no Lease, and an alert must detect that.
        metrics.lease_held(&options.sharding().lease(controller.lease().as_str()), false);
    }
    let checker = match signals.or(installed::fits(&client)).await {
        Ok(checker) => checker,
        Err(name) => {
            tracing::info!(signal = name, "stopping before the controllers were started");
            stop.cancel();
            future::join_all(parts.into_iter().map(Part::end)).await;
            return Ok(());
        }
    };
    let started =
        start(&options, (&client, &access), (&metrics, &tracer, &gates), (&sending, &remote), &mut parts, &stop).await;
    let ended = if started.is_ok() {
        definitions.open();
        tokio::select! {
            name = signals.next() => {
                tracing::info!(signal = name, "stopping: no new work is started, requests in flight finish");
                Ok(())
            }
            name = first_ended(&mut parts) => Err(AppError::Ended(name)),
            words = checker.misfit() => Err(AppError::Misfit(words)),
        }
    } else {
        started
    };
    stop.cancel();
    let drained = Instant::now() + STOP + RELEASE;
    future::join_all(parts.into_iter().map(Part::end)).await;
    exporting.end(drained).await;
    ended
}

/// Starts the requested controllers. After an error, the parts that were started still have to be ended, to release their Leases.
async fn start(
    options: &Options,
    (client, access): (&Client, &Access),
    (metrics, tracer, gates): (&Metrics, &Tracer, &Gates),
    (sending, remote): (&Handle, &Handle),
    parts: &mut Vec<Part>,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let hooks = options.hooks_addr.map(|address| (address, Hooks::new(options, client, metrics, stop)));
    if options.runs(Controller::Pipeline) {
        let dedicated = access.client().await?;
        let (mut part, lease) = Part::with_lease(options, client, metrics::Lease::Pipeline, metrics, gates);
        let hooks = hooks.as_ref().map(|(_, hooks)| hooks);
        start_pipeline(options, (client, dedicated, remote), (lease, hooks), metrics, tracer, gates, &mut part.tasks, stop);
        parts.push(part);
    }
    if options.runs(Controller::Dispatch) {
        let (mut part, lease) = Part::with_lease(options, client, metrics::Lease::Dispatch, metrics, gates);
        let started = start_dispatch(options, (client, sending), lease, metrics, tracer, gates, &mut part.tasks, stop);
        parts.push(part);
        started?;
    }
    if options.runs(Controller::Promote) {
        let (mut part, lease) = Part::with_lease(options, client, metrics::Lease::Promote, metrics, gates);
        let started = promoting::start(options, client, lease, (metrics, gates), &mut part.tasks, stop);
        parts.push(part);
        started?;
    }
    if let Some((address, hooks)) = hooks {
        parts.push(hooks.start(address, gates, stop)?);
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the composition root passes on the parts that it created")]
fn start_pipeline(
    options: &Options,
    (client, dedicated, remote): (&Client, Client, &Handle),
    (lease, hooks): (Lease, Option<&Hooks>),
    metrics: &Metrics,
    tracer: &Tracer,
    gates: &Gates,
    tasks: &mut JoinSet<&'static str>,
    stop: &CancellationToken,
) {
    let observing = gates.add("pipelines");
    publishing::pipeline(options, (client, &lease), tasks, stop);
    let follow = relaybook_clusters::Options {
        cluster_name: options.cluster_name.clone(),
        scope: relaybook_clusters::Scope::new(&options.watch_namespaces),
        fleet_everywhere: options.fleet_everywhere,
        cluster_grace: options.cluster_grace,
        insecure_clusters: options.allow_insecure_clusters,
        remote: Some(remote.clone()),
    };
    let (caches, woken) = relaybook_clusters::Caches::new(client.clone(), dedicated, follow, metrics.clone());
    let how = pipeline::Options {
        cluster_name: options.cluster_name.clone(),
        watch_namespaces: options.watch_namespaces.clone(),
        cross_namespace_refs: !options.no_cross_namespace_refs,
        max_reconciles: PIPELINES,
        tracer: tracer.clone(),
    };
    let (events, write_events) = events(client.clone(), metrics.clone(), stop.clone());
    tasks.spawn(async {
        write_events.await;
        "writing events"
    });
    let woken = sets::start(options, (client, &lease), (&caches, woken), (metrics, gates), tasks, stop);
    let woken = Hooks::waking(hooks, woken, tasks, stop);
    let context = pipeline::Context::new(client.clone(), lease, caches, how, events, metrics.clone(), stop.clone());
    let context = context.with_hooks(hooks.map(Hooks::secrets));
    let running = pipeline::run(context, woken, move || observing.open());
    tasks.spawn(async {
        if let Err(error) = running.await {
            tracing::error!(error = %relaybook_telemetry::chain(&error), "the pipeline controller has ended unexpectedly");
        }
        "the pipeline controller"
    });
}

#[expect(clippy::too_many_arguments, reason = "the composition root passes on the parts that it created")]
fn start_dispatch(
    options: &Options,
    (client, sending): (&Client, &Handle),
    lease: Lease,
    metrics: &Metrics,
    tracer: &Tracer,
    gates: &Gates,
    tasks: &mut JoinSet<&'static str>,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let (recorded, dispatching) = (gates.add("deliveries"), gates.add("dispatcher"));
    publishing::dispatch(options, (client, &lease), tasks, stop);
    let secrets = SecretWatches::new(client.clone(), lease.term_numbers(), metrics.clone());
    let parts = Parts {
        lease: lease.clone(),
        journal: Journal::new(client.clone(), metrics.clone()),
        pipeline_index: PipelineIndex::default(),
        delivery_index: DeliveryIndex::default(),
        sender: Arc::new(Sender::through(options.proxy.clone(), options.policy(), secrets.secrets(), metrics.clone())?),
        sending: sending.clone(),
        client: client.clone(),
        cluster_name: options.cluster_name.clone(),
        page_url: options.page.url.clone(),
        metrics: metrics.clone(),
        tracer: tracer.clone(),
        direct: Direct::default(),
        outcomes: NamespaceLimiter::new(OUTCOMES),
        failures: NamespaceLimiter::new(FAILURES),
        aside: NamespaceLimiter::new(ASIDE),
    };
    let (notes, news) = mpsc::channel(NOTES);
    // Deliveries of cluster-wide notifications are stored in the namespace of the global configuration.
    let mut kept = options.scopes();
    if !kept.contains(&None) && !options.watch_namespaces.contains(&options.namespace) {
        kept.push(Some(options.namespace.clone()));
    }
    let limits = Limits { workers: usize::from(options.workers), keep: options.keep_deliveries };
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
        cross_namespace_refs: !options.no_cross_namespace_refs,
        deliveries,
        secrets,
        policy: options.policy(),
        events,
        metrics: metrics.clone(),
        namespaces: options.scopes(),
        config_map: options.global(),
    };
    dispatch::start(given, news, move || dispatching.open(), tasks, stop);
    Ok(())
}
