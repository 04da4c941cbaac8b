//! What a watch does beyond its own cache. It names the kind and the permission that is missing. It has a kind of another cluster watched by
//! namespace if the cluster allows no more.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::timeout;

use super::{DEADLINE, KindWatcher, PATIENCE};
use crate::error::ObserveError;
use crate::objects::kinds;
use crate::objects::store::Declared;
use relaybook_api::ObjectName;
use relaybook_core::reading::{Follower, Reason};

impl KindWatcher {
    /// Watches the kind by namespace if the error is that the credentials of another cluster do not cover all namespaces. Returns whether
    /// nobody needs this watch, so that there is nothing to report.
    pub(super) fn narrow(&self, trouble: &ObserveError, failing: Duration) -> bool {
        if trouble.reason != Reason::Forbidden || self.id.key.cluster.is_none() || self.id.key.namespace.is_some() {
            return false;
        }
        let (declared, is_needed) = {
            let mut store = self.shared.store();
            // An API server that has just started can refuse every call.
            if self.shared.stop().is_cancelled() || (failing < PATIENCE && store.is_synced(&self.id)) {
                return false;
            }
            (store.narrow(&self.id, self.shared.stop()), store.is_needed(&self.id))
        };
        if let Some(declared) = declared {
            let kind = self.id.key.kind.kind();
            tracing::info!(
                cluster = self.cluster,
                kind,
                "the credentials cover no watch of all namespaces: watching by namespace"
            );
            self.rearrange(declared);
        }
        !is_needed
    }

    /// Completes a list of the cache. If there are watches by namespace beside a watch of all, a list of all ends them, and the watch of all
    /// starts again. Returns the pipelines to wake.
    pub(super) fn listed(&self, seen: &HashSet<Arc<ObjectName>>, first: bool) -> Vec<Follower> {
        let (declared, wake) = {
            // Under one lock: nobody reads the objects of a list that is replaced.
            let mut store = self.shared.store();
            let is_stopped = self.shared.stop().is_cancelled();
            let declared = if is_stopped { Declared::default() } else { store.widen(&self.id, self.shared.stop()) };
            (declared, store.listed(&self.id, seen, first))
        };
        self.rearrange(declared);
        wake
    }

    fn rearrange(&self, declared: Declared) {
        if let Some(link) = &self.link {
            self.shared.rearrange(declared, link, self.nudge.as_ref());
        }
    }

    /// Adds the kind to the message if it or a permission for it is missing.
    pub(super) fn named(&self, trouble: ObserveError) -> ObserveError {
        kinds::named(&self.cluster, &self.id.key, trouble)
    }

    /// Adds the kind, and a suggestion if there is one.
    pub(super) async fn meant(&self, client: &Client, trouble: ObserveError) -> ObserveError {
        let meant = kinds::meant(client, &self.id.key, self.named(trouble.clone()));
        timeout(DEADLINE, meant).await.unwrap_or_else(|_| self.named(trouble))
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::Options;
    use crate::objects::caches::Shared;
    use crate::remote::Link;
    use relaybook_api::values::refs::{ClusterAppRef, ClusterKind, ClusterRef};
    use relaybook_core::reading::Application;
    use relaybook_telemetry::Metrics;

    fn feed(cluster: Option<ClusterRef>) -> KindWatcher {
        let (shared, _woken) = Shared::new(Options::default(), Metrics::new());
        let object = ClusterAppRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "web".into(),
            namespace: "apps".into(),
            cluster_ref: cluster,
        };
        let refs = [Application { object, ..Application::default() }].into();
        let declared = shared.store().declare(&Follower::pipeline("team", "p"), refs, &CancellationToken::new());
        let id = declared.started.into_iter().next().unwrap().0;
        let mut feed = KindWatcher::new(shared, id, None);
        feed.link = Some(watch::channel(Link::Resolving).1);
        feed
    }

    fn eu() -> ClusterRef {
        ClusterRef { api_version: None, kind: ClusterKind::Secret, name: "eu".into(), namespace: Some("team".into()) }
    }

    #[tokio::test]
    async fn only_a_denied_watch_of_all_namespaces_of_another_cluster_is_narrowed() {
        let trouble = |reason| ObserveError::new(reason, "why".to_owned());
        for (cluster, is_synced, reason, failing, narrowed) in [
            (Some(eu()), false, Reason::Forbidden, Duration::ZERO, true),
            (Some(eu()), true, Reason::Forbidden, Duration::ZERO, false),
            (Some(eu()), true, Reason::Forbidden, PATIENCE, true),
            (Some(eu()), false, Reason::Unauthorized, PATIENCE, false),
            (Some(eu()), false, Reason::KindNotFound, PATIENCE, false),
            (None, false, Reason::Forbidden, PATIENCE, false),
        ] {
            let feed = feed(cluster.clone());
            if is_synced {
                feed.listed(&HashSet::new(), true);
            }
            let said = feed.narrow(&trouble(reason), failing);
            assert_eq!(said, narrowed, "{cluster:?} {is_synced} {reason:?} {failing:?}");
            let caches = feed.shared.store().counts().0;
            assert_eq!(caches, if narrowed { 2 } else { 1 }, "the watch of all namespaces ends after its grace period");
            assert_eq!(feed.narrow(&trouble(reason), failing), narrowed, "and again");
        }
    }
}
