//! The composition root: creates the parts, joins them, and exits the process when a part ends that must keep running.

mod connect;
mod exporting;
mod hooks;
mod page;
mod part;
mod process;
mod publishing;
mod sets;
mod signals;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, future};
use kube::Client;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::http::{self, Gates, Served};
use crate::options::{Controller, Options};
pub use connect::{Access, Server};
use exporting::Exporting;
use hooks::Hooks;
pub use page::page;
use part::{Part, first_ended};
use process::Process;
use relaybook_deliveries::dispatch::{self, Given};
use relaybook_deliveries::outbox::{self, DeliveryIndex, Journal, Limits, Parts, PipelineIndex, TestsKept};
use relaybook_egress::{SecretWatches, Sender};
use relaybook_pipelines::pipeline;
use relaybook_runtime::limiter::NamespaceLimiter;
use relaybook_runtime::{Common, installed};
use relaybook_telemetry::{Metrics, Tracer};
use signals::Signals;

/// Maximum number of notes from the delivery engine that wait for the dispatcher.
const NOTES: usize = 256;
/// Maximum number of concurrent writes of outcomes.
const OUTCOMES: usize = 256;
/// Maximum number of concurrent writes for failed attempts that are retried. One namespace gets a quarter of it.
const FAILURES: usize = 8;
/// Maximum number of concurrent writes for Deliveries that wait or are canceled: a load that the API server handles well.
const ASIDE: usize = 32;
/// Maximum number of pipelines that a controller handles at once.
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
    let mut signals = Signals::new()?;
    let access = Access { context: options.context.clone(), ..Access::default() };
    let client = access.client().await?;
    // For the watches of application objects.
    let dedicated = if options.runs(Controller::Pipeline) { access.client().await? } else { client.clone() };
    let (metrics, gates, stop) = (Metrics::new(), Gates::default(), CancellationToken::new());
    // This gate is opened after all other gates are added. So the process is never ready before they exist.
    let definitions = gates.add("definitions");
    let (tracer, exporting) = Exporting::start(&options, &sending, &metrics)?;
    let process = Process { options, access, client, metrics, tracer, gates, stop, sending, remote };
    let Process { options, metrics, stop, .. } = &process;
    let (listener, address) = listen(options.http_addr)?;
    tracing::info!(%address, namespace = %options.namespace, controllers = ?options.controllers, version = env!("CARGO_PKG_VERSION"), "listening");
    let mut parts = vec![Part::default()];
    let runtimes = vec![Handle::current(), process.remote.clone()];
    let served = Served { metrics: metrics.clone(), gates: process.gates.clone(), runtimes };
    parts[0].spawn("serving health and metrics", http::serve(listener, served, stop.clone()));
    // The page starts without the CRDs, so that it can say that they are missing.
    if let Some(address) = options.page.address {
        parts.push(page::start(&process, address).await?);
    }
    for &controller in &options.controllers {
        // Exported from the start: a process that waits for its CRDs holds no Lease, and an alert must detect that.
        metrics.lease_held(&options.sharding().lease(controller.lease()), false);
    }
    let checker = match signals.or(installed::fits(&process.client)).await {
        Ok(checker) => checker,
        Err(name) => {
            tracing::info!(signal = name, "stopping before the controllers were started");
            stop.cancel();
            future::join_all(parts.into_iter().map(Part::end)).await;
            return Ok(());
        }
    };
    let started = start(&process, dedicated, &mut parts).inspect(|()| definitions.open());
    let end = async {
        tokio::select! {
            name = signals.next() => {
                tracing::info!(signal = name, "stopping: no new work is started, requests in flight finish");
                Ok(())
            }
            words = checker.misfit() => Err(AppError::Misfit(words)),
        }
    };
    let (ended, drained) = until(end, started, parts, stop).await;
    exporting.end(drained).await;
    ended
}

/// Runs only the controllers, with these clients, until `stop`, for the simulation. Everything runs in the current runtime.
pub async fn control(options: Options, client: Client, dedicated: Client, stop: CancellationToken) -> Result<(), AppError> {
    let (sending, remote) = (Handle::current(), Handle::current());
    let process = Process {
        options,
        access: Access::default(),
        client,
        metrics: Metrics::new(),
        tracer: Tracer::default(),
        gates: Gates::default(),
        // As in `run`, the parts are ended only after the order to stop has arrived.
        stop: CancellationToken::new(),
        sending,
        remote,
    };
    let mut parts = Vec::new();
    let started = start(&process, dedicated, &mut parts);
    until(stop.cancelled().map(Ok), started, parts, &process.stop).await.0
}

/// Runs the parts until one ends that must keep running, or until the work `end` is done. Then ends all parts. Returns also when the process
/// must have exited.
async fn until(
    end: impl Future<Output = Result<(), AppError>>,
    started: Result<(), AppError>,
    mut parts: Vec<Part>,
    stop: &CancellationToken,
) -> (Result<(), AppError>, Instant) {
    let ended = match started {
        Ok(()) => tokio::select! {
            ended = end => ended,
            name = first_ended(&mut parts) => Err(AppError::Ended(name)),
        },
        Err(error) => Err(error),
    };
    stop.cancel();
    let drained = Instant::now() + STOP + RELEASE;
    future::join_all(parts.into_iter().map(Part::end)).await;
    (ended, drained)
}

/// Starts the requested controllers. After an error, the parts that were started still have to be ended, to release their Leases.
/// `dedicated` is the client for watches of application objects.
fn start(process: &Process, dedicated: Client, parts: &mut Vec<Part>) -> Result<(), AppError> {
    let options = &process.options;
    let hooks = options.hooks_addr.map(|address| (address, Hooks::new(process)));
    if options.runs(Controller::Pipeline) {
        let (mut part, common) = Part::with_lease(process, Controller::Pipeline);
        start_pipeline(process, common, dedicated, hooks.as_ref().map(|(_, hooks)| hooks), &mut part);
        parts.push(part);
    }
    if options.runs(Controller::Dispatch) {
        let (mut part, common) = Part::with_lease(process, Controller::Dispatch);
        let started = start_dispatch(process, common, &mut part);
        parts.push(part);
        started?;
    }
    if options.runs(Controller::Promote) {
        let (mut part, common) = Part::with_lease(process, Controller::Promote);
        let started = start_promote(process, common, &mut part);
        parts.push(part);
        started?;
    }
    if let Some((address, hooks)) = hooks {
        parts.push(hooks.start(process, address)?);
    }
    Ok(())
}

/// `dedicated` is the client for watches of application objects.
fn start_pipeline(process: &Process, common: Common, dedicated: Client, hooks: Option<&Hooks>, part: &mut Part) {
    let Process { options, client, metrics, gates, .. } = process;
    let observing = gates.add("pipelines");
    publishing::pipeline(options, &common, part);
    let follow = relaybook_clusters::Options {
        cluster_name: options.cluster_name.clone(),
        scope: relaybook_clusters::Scope::new(&options.watch_namespaces),
        fleet_everywhere: options.fleet_everywhere,
        cluster_grace: options.cluster_grace,
        insecure_clusters: options.allow_insecure_clusters,
        remote: Some(process.remote.clone()),
    };
    let (caches, woken) = relaybook_clusters::Caches::new(client.clone(), dedicated, follow, metrics.clone());
    let how = pipeline::Options {
        cluster_name: options.cluster_name.clone(),
        watch_namespaces: options.watch_namespaces.clone(),
        cross_namespace_refs: !options.no_cross_namespace_refs,
        max_reconciles: PIPELINES,
        tracer: process.tracer.clone(),
    };
    let woken = sets::start(process, &common, &caches, woken, part);
    let woken = Hooks::waking(hooks, woken, part, &process.stop);
    let context = pipeline::Context::new(common, caches, how).with_hooks(hooks.map(Hooks::secrets));
    part.control("the pipeline controller", pipeline::run(context, woken, move || observing.open()));
}

fn start_dispatch(process: &Process, common: Common, part: &mut Part) -> Result<(), AppError> {
    let Process { options, client, metrics, gates, .. } = process;
    let (recorded, dispatching) = (gates.add("deliveries"), gates.add("dispatcher"));
    publishing::dispatch(options, &common, part);
    let (secrets, sender) = outside(process, &common)?;
    let parts = Parts {
        lease: common.lease.clone(),
        journal: Journal::new(client.clone(), metrics.clone()),
        pipeline_index: PipelineIndex::default(),
        delivery_index: DeliveryIndex::default(),
        sender: Arc::new(sender),
        sending: process.sending.clone(),
        client: client.clone(),
        cluster_name: options.cluster_name.clone(),
        page_url: options.page.url.clone(),
        metrics: metrics.clone(),
        tracer: process.tracer.clone(),
        tests_kept: TestsKept::default(),
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
    let given = Given {
        deliveries: outbox::start(parts, limits, kept, notes, move || recorded.open(), &mut part.tasks, &process.stop),
        common,
        cluster_name: options.cluster_name.clone(),
        cross_namespace_refs: !options.no_cross_namespace_refs,
        secrets,
        policy: options.policy(),
        namespaces: options.scopes(),
        config_map: options.global(),
    };
    let running = dispatch::start(given, news, move || dispatching.open(), &mut part.tasks);
    part.control("the dispatcher", running);
    Ok(())
}

fn start_promote(process: &Process, common: Common, part: &mut Part) -> Result<(), AppError> {
    let promoting = process.gates.add("promotions");
    let how = relaybook_promotions::Options {
        watch_namespaces: process.options.watch_namespaces.clone(),
        home: process.options.namespace.clone(),
        max_reconciles: PIPELINES,
    };
    let (secrets, sender) = outside(process, &common)?;
    let context = relaybook_promotions::Context::new(common, how, secrets, sender);
    part.control("the promotion controller", relaybook_promotions::run(context, move || promoting.open()));
    Ok(())
}

/// Returns the watches of Secrets of a controller, and what sends requests with their values.
fn outside(Process { options, .. }: &Process, common: &Common) -> Result<(SecretWatches, Sender), AppError> {
    let metrics = &common.metrics;
    let secrets = SecretWatches::new(common.client.clone(), common.lease.term_numbers(), metrics.clone());
    let sender = Sender::through(options.proxy.clone(), options.policy(), secrets.secrets(), metrics.clone())?;
    Ok((secrets, sender.with_accounts(common.client.clone())))
}

/// Listens on an address. Returns also the address that is bound, whose port is not 0.
fn listen(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), AppError> {
    let bound = http::listen(addr).and_then(|listener| listener.local_addr().map(|bound| (listener, bound)));
    bound.map_err(|source| AppError::Listen { addr, source })
}
