//! Rows out of the API server.

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
    /// The API server did not list them.
    #[error("deliveries cannot be listed")]
    List(#[source] Box<kube::Error>),
    /// The API server does not watch them; it is tried again.
    #[error("deliveries cannot be watched")]
    Watch(#[source] Box<watcher::Error>),
}

fn api(client: &Client, namespace: Option<&str>) -> Api<Delivery> {
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// The rows of a namespace, or of all, in the order of their names; read from the API server a page at a time, as they are asked
/// for.
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
    rows.try_filter(move |row| std::future::ready(filter.takes(row)))
}

/// Before Kubernetes 1.31 an API server selects custom resources by no fields but name and namespace. Then all are listed, page by
/// page, and the filter selects the same.
fn cannot_select(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 400 && status.message.contains("field label not supported"))
}

/// The rows that there are, together and the newest last, and then each again as it changes; ends never.
pub fn changes(
    client: &Client,
    namespace: Option<&str>,
    filter: Filter,
) -> impl Stream<Item = Result<Vec<Row>, AuditError>> + use<> {
    let config = watcher::Config::default().labels(&filter.labels()).page_size(PAGE);
    let events = watcher(api(client, namespace), config).default_backoff();
    let mut listed = Vec::new();
    events.filter_map(move |event| {
        let taken = |delivery: Delivery| Some(Row::from(delivery)).filter(|row| filter.takes(row));
        let rows = match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                None
            }
            Ok(watcher::Event::InitApply(delivery)) => {
                listed.extend(taken(delivery));
                None
            }
            Ok(watcher::Event::InitDone) => {
                let mut rows = std::mem::take(&mut listed);
                newest_first(&mut rows);
                rows.reverse();
                Some(Ok(rows))
            }
            Ok(watcher::Event::Apply(delivery)) => taken(delivery).map(|row| Ok(vec![row])),
            Ok(watcher::Event::Delete(_)) => None,
            Err(error) => Some(Err(AuditError::Watch(Box::new(error)))),
        };
        std::future::ready(rows)
    })
}
