//! Reads rows from the API server: one list, or a list and a watch.

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};

use super::{Filter, Row, newest_first};
use crate::api::Delivery;

/// Page size of a list. A page of this size costs the API server little, and this process some megabytes.
const PAGE: u32 = 500;

/// Why the deliveries cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The list request failed.
    #[error("deliveries cannot be listed")]
    List(#[source] Box<kube::Error>),
    /// The watch request failed. The stream retries it.
    #[error("deliveries cannot be watched")]
    Watch(#[source] Box<watcher::Error>),
}

fn api(client: &Client, namespace: Option<&str>) -> Api<Delivery> {
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Returns the rows of a namespace, or of all namespaces, sorted by name. Each page is read from the API server only when the caller needs
/// its rows.
pub fn rows(
    client: &Client,
    namespace: Option<&str>,
    filter: Filter,
) -> impl Stream<Item = Result<Row, AuditError>> + use<> {
    let mut params = ListParams::default().limit(PAGE).labels(&filter.labels());
    let fields = filter.fields();
    if !fields.is_empty() {
        params = params.fields(&fields);
    }
    let pages = stream::try_unfold((api(client, namespace), Some(params)), |(api, params)| async move {
        let Some(mut params) = params else { return Ok(None) };
        let mut page = api.list(&params).await;
        if page.as_ref().is_err_and(cannot_select) && params.field_selector.take().is_some() {
            page = api.list(&params).await;
        }
        let page = page.map_err(|e| AuditError::List(Box::new(e)))?;
        let more = page.metadata.continue_.filter(|token| !token.is_empty());
        let next = more.map(|token| params.continue_token(&token));
        Ok(Some((stream::iter(page.items.into_iter().map(Ok)), (api, next))))
    });
    let rows = pages.try_flatten().map_ok(Row::from);
    rows.try_filter(move |row| std::future::ready(filter.matches(row)))
}

/// Whether the API server rejected the field selector. Before Kubernetes 1.31 it selects custom resources only by name and namespace. Then
/// all are listed, page by page, and the filter selects the same rows.
fn cannot_select(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 400 && status.message.contains("field label not supported"))
}

/// Returns the existing rows as one item, the newest last, and then each row again when it changes. If the watch must list again, all rows
/// are returned again. The stream never ends.
pub fn changes(
    client: &Client,
    namespace: Option<&str>,
    filter: Filter,
) -> impl Stream<Item = Result<Vec<Row>, AuditError>> + use<> {
    let config = watcher::Config::default().labels(&filter.labels()).page_size(PAGE);
    let events = watcher(api(client, namespace), config).default_backoff();
    let mut listed = Vec::new();
    events.filter_map(move |event| {
        let selected = |delivery: Delivery| Some(Row::from(delivery)).filter(|row| filter.matches(row));
        let rows = match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                None
            }
            Ok(watcher::Event::InitApply(delivery)) => {
                listed.extend(selected(delivery));
                None
            }
            Ok(watcher::Event::InitDone) => {
                let mut rows = std::mem::take(&mut listed);
                newest_first(&mut rows);
                rows.reverse();
                Some(Ok(rows))
            }
            Ok(watcher::Event::Apply(delivery)) => selected(delivery).map(|row| Ok(vec![row])),
            Ok(watcher::Event::Delete(_)) => None,
            Err(error) => Some(Err(AuditError::Watch(Box::new(error)))),
        };
        std::future::ready(rows)
    })
}
