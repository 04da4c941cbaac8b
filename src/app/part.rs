//! The tasks of one controller, and the Lease under which they run.

use std::error::Error;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::process::Process;
use super::{RELEASE, STOP};
use crate::options::Controller;
use relaybook_runtime::Common;
use relaybook_runtime::leader::{Keeper, Named};
use relaybook_runtime::report::events::{Events, events};
use relaybook_telemetry::chain;

/// Tasks that run under one Lease, or without a Lease.
#[derive(Default)]
pub(super) struct Part {
    pub(super) tasks: JoinSet<&'static str>,
    keeper: JoinSet<&'static str>,
    release: CancellationToken,
}

impl Part {
    /// Returns a part with a Lease, which is kept until all tasks have ended, and what the controller needs.
    pub(super) fn with_lease(process: &Process, controller: Controller) -> (Self, Common) {
        let Process { options, client, metrics, gates, stop, .. } = process;
        let (mut part, name) = (Self::default(), controller.lease());
        let (gate, release) = (gates.add(name), part.release.clone());
        let (namespace, identity) = (options.namespace.clone(), options.identity.clone());
        let named = Named { namespace, name, sharding: options.sharding(), identity, work: controller.work() };
        let (keeper, lease) = Keeper::new(client.clone(), named, metrics.clone(), move || gate.open());
        part.keeper.spawn(async {
            keeper.run(release).await;
            "keeping a Lease"
        });
        let events = part.events(process);
        (part, Common { client: client.clone(), lease, events, metrics: metrics.clone(), stop: stop.clone() })
    }

    /// Starts a task, which must keep running until the process stops.
    pub(super) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            task.await;
            name
        });
    }

    /// Starts a controller. It returns an error only if it cannot continue.
    pub(super) fn control<E: Error + 'static>(
        &mut self,
        name: &'static str,
        running: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        self.spawn(name, async move {
            if let Err(error) = running.await {
                tracing::error!(error = %chain(&error), "{name} has ended unexpectedly");
            }
        });
    }

    /// Returns the sender of Events, and starts the task that writes them.
    pub(super) fn events(&mut self, Process { client, metrics, stop, .. }: &Process) -> Events {
        let (events, write) = events(client.clone(), metrics.clone(), stop.clone());
        self.spawn("writing events", write);
        events
    }

    /// Called after the order to stop: waits for the tasks, then releases the Lease, so that another replica can continue.
    pub(super) async fn end(mut self) {
        if timeout(STOP, async { while self.tasks.join_next().await.is_some() {} }).await.is_err() {
            tracing::warn!(
                "some tasks did not end in time; their work continues at the next start, and their Lease is not released"
            );
            return;
        }
        self.release.cancel();
        let _ = timeout(RELEASE, async { while self.keeper.join_next().await.is_some() {} }).await;
    }
}

/// Waits until a task ends that must keep running. Returns its name.
pub(super) async fn first_ended(parts: &mut [Part]) -> String {
    let all = parts.iter_mut().flat_map(|part| [&mut part.tasks, &mut part.keeper]).filter(|tasks| !tasks.is_empty());
    let mut ended: FuturesUnordered<_> = all.map(JoinSet::join_next).collect();
    match ended.next().await.flatten() {
        Some(Ok(name)) => name.to_owned(),
        Some(Err(error)) => error.to_string(),
        None => "all tasks".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::AppError;

    /// Returns the error with which the process exits.
    async fn ended(start: impl FnOnce(&mut Part)) -> String {
        let mut part = Part::default();
        part.spawn("another task", std::future::pending());
        start(&mut part);
        let name = timeout(STOP, first_ended(&mut [part])).await.expect("the process exits");
        AppError::Ended(name).to_string()
    }

    #[tokio::test]
    async fn the_process_exits_if_a_controller_cannot_continue_or_panics() {
        let broken = std::io::Error::other("the cause is logged");
        let name = ended(|part| part.control("a controller", async move { Err(broken) })).await;
        assert!(name.contains("a controller"), "{name}");
        let panics = async {
            assert_eq!(std::hint::black_box(1), 2, "no such index");
            Ok::<_, std::io::Error>(())
        };
        let message = ended(|part| part.control("a controller", panics)).await;
        assert!(message.contains("no such index"), "{message}");
    }
}
