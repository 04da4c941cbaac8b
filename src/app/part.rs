//! The tasks of one controller, and the Lease under which they run.

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{RELEASE, STOP};
use crate::http::Gates;
use crate::options::Options;
use relaybook_runtime::leader::{Keeper, Lease, Named};
use relaybook_telemetry::{Metrics, metrics};

/// Tasks that run under one Lease, or without a Lease.
#[derive(Default)]
pub(super) struct Part {
    pub(super) tasks: JoinSet<&'static str>,
    keeper: JoinSet<&'static str>,
    release: CancellationToken,
}

impl Part {
    /// Returns a part with a Lease, which is kept until all tasks have ended.
    pub(super) fn with_lease(
        options: &Options,
        client: &Client,
        label: metrics::Lease,
        metrics: &Metrics,
        gates: &Gates,
    ) -> (Self, Lease) {
        let mut part = Self::default();
        let (gate, stop) = (gates.add(label.as_str()), part.release.clone());
        let (namespace, identity) = (options.namespace.clone(), options.identity.clone());
        let named = Named { namespace, name: label.as_str(), sharding: options.sharding(), identity };
        let (keeper, lease) = Keeper::new(client.clone(), named, metrics.clone(), move || gate.open());
        part.keeper.spawn(async {
            keeper.run(stop).await;
            "keeping a Lease"
        });
        (part, lease)
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
