//! A signal for each change of selected objects, for a page that reads them again.
//!
//! In: an API, and selectors. Out: one item for each change, without the object. Only metadata is watched. A watch ends after half a minute
//! and is made again from where it ended, so a withdrawn permission is noticed within that time.

use std::time::Duration;

use futures::stream::{BoxStream, unfold};
use futures::{Stream, StreamExt as _};
use kube::Api;
use kube::api::{ListParams, PartialObjectMeta, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

/// Duration of a watch, in seconds.
const WATCH: u32 = 25;
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(2);

struct State<K> {
    api: Api<K>,
    labels: String,
    fields: String,
    version: Option<String>,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<PartialObjectMeta<K>>>>>,
    /// Whether changes can have been missed: before the first watch, or because the version of the last one has expired.
    missed: bool,
    failed: bool,
    /// When the last watch was started.
    started: Instant,
}

/// Returns the signals. The first one follows when the watch has started, because something can have changed before. The stream never ends; after an error it continues, and the caller can end it.
pub fn touched<K>(api: Api<K>, labels: String, fields: String) -> impl Stream<Item = kube::Result<()>> + Send + 'static
where
    K: Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let start =
        State { api, labels, fields, version: None, events: None, missed: true, failed: false, started: Instant::now() };
    unfold(start, |mut state| async move {
        let item = state.next().await;
        state.failed = item.is_err();
        Some((item, state))
    })
}

impl<K: Clone + DeserializeOwned + std::fmt::Debug + Send + 'static> State<K> {
    async fn next(&mut self) -> kube::Result<()> {
        if self.failed {
            sleep(PAUSE).await;
        }
        loop {
            if self.events.is_none() {
                self.start().await?;
                if self.events.is_some() && std::mem::take(&mut self.missed) {
                    return Ok(());
                }
            }
            let Some(events) = &mut self.events else { continue };
            match events.next().await {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object))) => {
                    self.version = object.metadata.resource_version;
                    return Ok(());
                }
                Some(Ok(WatchEvent::Bookmark(mark))) => self.version = Some(mark.metadata.resource_version),
                Some(Ok(WatchEvent::Error(status))) if status.code == 410 => self.restart().await,
                Some(Ok(WatchEvent::Error(status))) => {
                    self.events = None;
                    return Err(kube::Error::Api(status));
                }
                Some(Err(error)) => {
                    self.events = None;
                    return Err(error);
                }
                None => {
                    self.events = None;
                    // Something between this process and the API server ends watches at once.
                    if self.started.elapsed() < PAUSE {
                        sleep(PAUSE).await;
                    }
                }
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
            self.version = self.api.list_metadata(&params).await?.metadata.resource_version;
        }
        let mut params = WatchParams::default().timeout(WATCH);
        if !self.labels.is_empty() {
            params = params.labels(&self.labels);
        }
        if !self.fields.is_empty() {
            params = params.fields(&self.fields);
        }
        let version = self.version.clone().unwrap_or_default();
        match self.api.watch_metadata(&params, &version).await {
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
