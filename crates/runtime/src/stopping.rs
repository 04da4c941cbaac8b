//! Ends an `applier` of kube after a stop, also if its first list never arrives.

use std::hash::Hash;

use futures::{FutureExt as _, future};
use kube::Resource;
use kube::runtime::reflector::Store;
use tokio_util::sync::CancellationToken;

/// Waits until an `applier` has ended. Its queue ends at the stop, and then it finishes its reconciles. But kube starts none before the store
/// has its first list, and until then an `applier` does not end either. So this does not wait for it if the list is missing at the stop.
pub async fn applied<K>(run: impl Future<Output = ()>, store: &Store<K>, stop: &CancellationToken)
where
    K: Resource<DynamicType: Clone + Eq + Hash> + Clone + 'static,
{
    let unlisted = async {
        stop.cancelled().await;
        // The store wakes only one waiter, and that is the `applier`. So this looks once, and does not wait.
        if store.wait_until_ready().now_or_never().is_some() {
            future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = run => {}
        () = unlisted => {}
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use futures::{StreamExt as _, stream};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::controller::{Action, Config};
    use kube::runtime::reflector::{ObjectRef, store};
    use kube::runtime::{applier, watcher};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    /// Starts an `applier` whose reconcile needs some time, and stops it. Returns whether it has ended, and how many reconciles did.
    async fn stopped(is_listed: bool) -> (bool, usize) {
        let (reader, mut writer) = store::<ConfigMap>();
        let mut object = ConfigMap::default();
        object.metadata.name = Some("one".to_owned());
        let queued = ObjectRef::from_obj(&object);
        if is_listed {
            for event in [watcher::Event::Init, watcher::Event::InitApply(object), watcher::Event::InitDone] {
                writer.apply_watcher_event(&event);
            }
        }
        let stop = CancellationToken::new();
        let queue = stream::once(future::ready(Ok::<_, Infallible>(queued))).chain(stream::pending());
        let queue = queue.take_until(stop.clone().cancelled_owned()).boxed();
        let (begun, mut begins) = mpsc::unbounded_channel();
        let reconcile = |_: Arc<ConfigMap>, begun: Arc<mpsc::UnboundedSender<()>>| {
            Box::pin(async move {
                let _ = begun.send(());
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok::<_, Infallible>(Action::await_change())
            })
        };
        let again = |_: Arc<ConfigMap>, _: &Infallible, _: Arc<_>| Action::await_change();
        let run = applier(reconcile, again, Arc::new(begun), reader.clone(), queue, Config::default());
        let mut ended = 0;
        let counted = run.for_each(|result| {
            ended += usize::from(result.is_ok());
            future::ready(())
        });
        let stopping = async {
            if is_listed {
                begins.recv().await;
            }
            stop.cancel();
        };
        let both = future::join(applied(counted, &reader, &stop), stopping);
        let is_ended = timeout(Duration::from_secs(10), both).await.is_ok();
        drop(writer);
        (is_ended, ended)
    }

    #[tokio::test]
    async fn a_stop_before_the_first_list_ends_it() {
        assert_eq!(stopped(false).await, (true, 0));
    }

    #[tokio::test]
    async fn a_stop_waits_for_the_reconciles_in_progress() {
        assert_eq!(stopped(true).await, (true, 1));
    }
}
