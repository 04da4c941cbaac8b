//! A signal for each change of selected objects, for a page that reads them again.
//!
//! In: an API, and selectors. Out: one item for each change, without the object. Only metadata is watched. A watch ends after half a minute
//! and is made again from where it ended, so a withdrawn permission is noticed within that time. That is no change, so nothing is signaled.
//!
//! Each attempt that fails is an error, and the first one that succeeds afterwards is a signal. So the page can say when the API server is
//! away, and when it is back.

use std::time::Duration;

use futures::stream::{BoxStream, unfold};
use futures::{Stream, StreamExt as _};
use kube::Api;
use kube::api::{ListParams, PartialObjectMeta, WatchEvent, WatchParams};
use kube::runtime::utils::{Backoff as _, ResetTimerBackoff};
use kube::runtime::watcher::ExponentialBackoff;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Pauses;

/// Duration of a watch, in seconds.
const WATCH: u32 = 25;
/// A watch ends by itself before this time. If it does not, or if a call is not answered in this time, the connection is dead.
const LONGEST: Duration = Duration::from_secs(40);
/// The pause before a watch that has ended at once, or whose version has expired, is made again.
const PAUSE: Duration = Duration::from_secs(2);
/// After this time without a failure, the pauses after failures restart at the first one.
const WORKED: Duration = Duration::from_mins(2);

struct State<K> {
    api: Api<K>,
    labels: String,
    fields: String,
    version: Option<String>,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<PartialObjectMeta<K>>>>>,
    /// Whether a signal follows when the watch has started: it is the first one, the last attempt has failed, or changes can have been
    /// missed because the version has expired.
    missed: bool,
    /// Whether the last attempt has failed.
    failed: bool,
    /// The pauses after failures.
    pauses: ResetTimerBackoff<ExponentialBackoff>,
    /// When the last watch was started.
    started: Instant,
}

/// Returns the signals. The first one follows when the watch has started, because something can have changed before. The stream never ends;
/// after an error it continues, and the caller can end it.
pub fn touched<K>(api: Api<K>, labels: String, fields: String) -> impl Stream<Item = kube::Result<()>> + Send + 'static
where
    K: Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let start = State {
        api,
        labels,
        fields,
        version: None,
        events: None,
        missed: true,
        failed: false,
        pauses: ResetTimerBackoff::new(ExponentialBackoff::from(Pauses::Short.builder()), WORKED),
        started: Instant::now(),
    };
    unfold(start, |mut state| async move {
        let item = state.next().await;
        if item.is_err() {
            (state.events, state.missed, state.failed) = (None, true, true);
        }
        Some((item, state))
    })
}

impl<K: Clone + DeserializeOwned + std::fmt::Debug + Send + 'static> State<K> {
    async fn next(&mut self) -> kube::Result<()> {
        if std::mem::take(&mut self.failed) {
            sleep(self.pauses.next().unwrap_or(PAUSE)).await;
        }
        loop {
            if self.events.is_none() {
                self.start().await?;
                if self.events.is_some() && std::mem::take(&mut self.missed) {
                    return Ok(());
                }
            }
            let until = self.started + LONGEST;
            let Some(events) = &mut self.events else { continue };
            match timeout_at(until, events.next()).await.ok().flatten() {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object))) => {
                    self.version = object.metadata.resource_version;
                    self.pauses.reset();
                    return Ok(());
                }
                Some(Ok(WatchEvent::Bookmark(mark))) => self.version = Some(mark.metadata.resource_version),
                Some(Ok(WatchEvent::Error(status))) if status.code == 410 => self.restart().await,
                Some(Ok(WatchEvent::Error(status))) => return Err(kube::Error::Api(status)),
                // A connection that was interrupted is no failure. The next attempt shows whether the API server answers.
                None | Some(Err(kube::Error::ReadEvents(_))) => {
                    self.events = None;
                    // Something between this process and the API server ends watches at once.
                    if self.started.elapsed() < PAUSE {
                        sleep(PAUSE).await;
                    }
                }
                Some(Err(error)) => return Err(error),
            }
        }
    }

    async fn restart(&mut self) {
        sleep(PAUSE).await;
        (self.events, self.version, self.missed) = (None, None, true);
    }

    async fn start(&mut self) -> kube::Result<()> {
        if self.version.is_none() {
            let params = ListParams::default().limit(1).labels(&self.labels).fields(&self.fields);
            self.version = in_time(self.api.list_metadata(&params)).await?.metadata.resource_version;
        }
        let mut params = WatchParams::default().timeout(WATCH);
        if !self.labels.is_empty() {
            params = params.labels(&self.labels);
        }
        if !self.fields.is_empty() {
            params = params.fields(&self.fields);
        }
        let version = self.version.clone().unwrap_or_default();
        let started = in_time(self.api.watch_metadata(&params, &version)).await;
        match started {
            Ok(events) => {
                self.started = Instant::now();
                self.events = Some(events.boxed());
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 410 => {
                self.restart().await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Waits for the answer of a call. Without a limit, a call on a dead connection never ends.
async fn in_time<T>(call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match timeout(LONGEST, call).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service("it has not answered in time".into())),
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// Returns a client of an API server that refuses the first call. Its first watch ends at once, and the next one has a change. It is
    /// recorded whether each call is a watch.
    fn refusing_once() -> (Client, Arc<Mutex<Vec<bool>>>) {
        let calls = Arc::<Mutex<Vec<bool>>>::default();
        let noted = calls.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let mut noted = noted.lock();
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
            noted.push(is_watch);
            let metadata = json!({"name": "a", "resourceVersion": "2"});
            let object = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
            let kind = "PartialObjectMetadataList";
            let list =
                json!({"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": []});
            let (code, text) = match (noted.len(), is_watch) {
                (1, _) => (500, json!({"kind": "Status", "status": "Failure", "message": "etcd", "code": 500}).to_string()),
                (_, false) => (200, list.to_string()),
                (3, true) => (200, String::new()),
                (_, true) => (200, format!("{}\n", json!({"type": "ADDED", "object": object}))),
            };
            let body = Body::from(text.into_bytes());
            std::future::ready(Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(body).unwrap()))
        });
        (Client::new(service, "default"), calls)
    }

    #[tokio::test]
    async fn a_failure_and_its_end_are_signaled_and_the_end_of_a_watch_is_not() {
        let (client, calls) = refusing_once();
        let api: Api<ConfigMap> = Api::namespaced(client, "n");
        let mut items = std::pin::pin!(touched(api, String::new(), String::new()));
        assert!(items.next().await.unwrap().is_err(), "the list was refused");
        assert!(items.next().await.unwrap().is_ok(), "the watch has started");
        assert_eq!(*calls.lock(), [false, false, true]);
        assert!(items.next().await.unwrap().is_ok(), "an object has changed");
        assert_eq!(*calls.lock(), [false, false, true, true], "no signal for the end of the first watch");
    }
}
