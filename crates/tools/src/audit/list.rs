//! Reads rows from the API server: one list, or a list and a watch.

use std::collections::{HashMap, HashSet};

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};

use super::{Filter, Row, newest_first};
use relaybook_api::Delivery;
use relaybook_runtime::watch::api_in;

/// Page size of a list. A page of this size costs the API server little, and this process some megabytes.
const PAGE: u32 = 500;
/// Maximum number of times that one list starts again, because the API server no longer has the version of its next page.
const RESTARTS: u32 = 5;

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

/// Returns the rows of a namespace, or of all namespaces, sorted by name. Each page is read from the API server only when the caller needs
/// its rows.
pub fn rows(
    client: &Client,
    namespace: Option<&str>,
    filter: Filter,
) -> impl Stream<Item = Result<Row, AuditError>> + use<> {
    let pages = Pages { api: api_in(client, namespace), next: Some(filter.params(PAGE)), seen: HashSet::new(), restarts: 0 };
    let pages = stream::try_unfold(pages, |mut pages| async move {
        let page = pages.next().await;
        page.map(|page| page.map(|page| (stream::iter(page.into_iter().map(Ok)), pages)))
    });
    let rows = pages.try_flatten().map_ok(Row::from);
    rows.try_filter(move |row| std::future::ready(filter.matches(row)))
}

/// The pages of a list.
struct Pages {
    api: Api<Delivery>,
    /// The parameters of the next page. `None`: there is none.
    next: Option<ListParams>,
    /// Namespaces and names of what was read. A list that starts again contains it once more.
    seen: HashSet<(Option<String>, String)>,
    restarts: u32,
}

impl Pages {
    /// Reads the next page. Returns `None` after the last one.
    async fn next(&mut self) -> Result<Option<Vec<Delivery>>, AuditError> {
        while let Some(mut params) = self.next.clone() {
            let page = self.api.list(&params).await;
            match page {
                Ok(page) => {
                    let more = page.metadata.continue_.filter(|token| !token.is_empty());
                    self.next = more.map(|token| params.continue_token(&token));
                    let is_new = |d: &Delivery| self.seen.insert((d.namespace(), d.name_any()));
                    return Ok(Some(page.items.into_iter().filter(is_new).collect()));
                }
                Err(error) if cannot_select(&error) && params.field_selector.take().is_some() => self.next = Some(params),
                Err(error) if has_expired(&error) && params.continue_token.take().is_some() && self.restarts < RESTARTS => {
                    self.restarts += 1;
                    self.next = Some(params);
                }
                Err(error) => return Err(AuditError::List(Box::new(error))),
            }
        }
        Ok(None)
    }
}

/// Whether the API server no longer has the version of a list that its next page belongs to. A list can take longer than etcd keeps
/// versions, which is 5 minutes by default.
fn has_expired(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}

/// Whether the API server rejected the field selector. Before Kubernetes 1.31 it selects custom resources only by name and namespace. Then
/// all are listed, page by page, and the filter selects the same rows.
fn cannot_select(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 400 && status.message.contains("field label not supported"))
}

/// Returns the existing rows as one item, the newest last, and then each row again when it changes. If the watch must list again, the next
/// item contains only the rows that have changed meanwhile. The stream never ends.
pub fn changes(
    client: &Client,
    namespace: Option<&str>,
    filter: Filter,
) -> impl Stream<Item = Result<Vec<Row>, AuditError>> + use<> {
    let config = watcher::Config::default().labels(&filter.labels()).page_size(PAGE);
    let events = watcher(api_in::<Delivery>(client, namespace), config).default_backoff();
    let mut watched = Watched::default();
    events.filter_map(move |event| {
        let rows = match event {
            Ok(event) => watched.rows(event, &filter).map(Ok),
            Err(error) => Some(Err(AuditError::Watch(Box::new(error)))),
        };
        std::future::ready(rows)
    })
}

/// The versions of deliveries, by namespace and name.
type Versions = HashMap<(Option<String>, String), Option<String>>;

/// What a watch has returned so far.
#[derive(Debug, Default)]
struct Watched {
    /// What was returned.
    returned: Versions,
    /// The deliveries of the list in progress.
    listed: Versions,
    /// Those of them that were not returned yet in this version.
    new: Vec<Row>,
}

impl Watched {
    /// Returns the selected rows of an event that were not returned before.
    fn rows(&mut self, event: watcher::Event<Delivery>, filter: &Filter) -> Option<Vec<Row>> {
        match event {
            watcher::Event::Init => {
                self.listed.clear();
                self.new.clear();
                None
            }
            watcher::Event::InitApply(delivery) => {
                let (key, version) = (key(&delivery), delivery.resource_version());
                if self.returned.get(&key) != Some(&version) {
                    self.new.extend(selected(delivery, filter));
                }
                self.listed.insert(key, version);
                None
            }
            watcher::Event::InitDone => {
                self.returned = std::mem::take(&mut self.listed);
                let mut rows = std::mem::take(&mut self.new);
                newest_first(&mut rows);
                rows.reverse();
                Some(rows)
            }
            watcher::Event::Apply(delivery) => {
                self.returned.insert(key(&delivery), delivery.resource_version());
                selected(delivery, filter).map(|row| vec![row])
            }
            watcher::Event::Delete(delivery) => {
                self.returned.remove(&key(&delivery));
                None
            }
        }
    }
}

fn key(delivery: &Delivery) -> (Option<String>, String) {
    (delivery.namespace(), delivery.name_any())
}

fn selected(delivery: Delivery, filter: &Filter) -> Option<Row> {
    Some(Row::from(delivery)).filter(|row| filter.matches(row))
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use relaybook_api::testing::spec;

    fn delivery(name: &str, version: &str) -> Delivery {
        let mut delivery = Delivery::new(name, spec(1));
        delivery.metadata.namespace = Some("team-a".to_owned());
        delivery.metadata.resource_version = Some(version.to_owned());
        delivery
    }

    #[test]
    fn a_list_after_an_interrupted_watch_returns_only_what_has_changed() {
        let (mut watched, all) = (Watched::default(), Filter::default());
        let mut names = |event| {
            let rows = watched.rows(event, &all);
            rows.map(|rows| rows.into_iter().map(|row| row.name).collect::<Vec<_>>())
        };
        let mut list = |objects: &[(&str, &str)]| {
            names(watcher::Event::Init);
            for (name, version) in objects {
                assert_eq!(names(watcher::Event::InitApply(delivery(name, version))), None);
            }
            names(watcher::Event::InitDone).unwrap()
        };
        assert!(list(&[]).is_empty());
        assert_eq!(list(&[("a", "1"), ("b", "2")]), ["a", "b"]);
        assert!(list(&[("a", "1"), ("b", "2")]).is_empty(), "nothing has changed");
        assert_eq!(list(&[("a", "3"), ("c", "4")]), ["a", "c"]);
        assert_eq!(list(&[("a", "3"), ("b", "5")]), ["b"], "it was deleted and created again");
        assert_eq!(names(watcher::Event::Apply(delivery("a", "6"))), Some(vec!["a".to_owned()]));
        assert_eq!(names(watcher::Event::Delete(delivery("b", "7"))), None);
    }

    /// Returns a client of an API server that has two deliveries on two pages. For the first `expires` requests of the second page, it no
    /// longer has the version of the list. It is recorded whether each request is for the second page.
    fn expiring(mut expires: u32) -> (Client, Arc<Mutex<Vec<bool>>>) {
        let continued = Arc::<Mutex<Vec<_>>>::default();
        let noted = continued.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let is_second = request.uri().query().unwrap_or_default().contains("continue=");
            noted.lock().push(is_second);
            let page = |name: &str, next: &str| {
                let metadata = json!({"resourceVersion": "9", "continue": next});
                let kind = ("relaybook.dev/v1alpha1", "DeliveryList");
                json!({"apiVersion": kind.0, "kind": kind.1, "metadata": metadata, "items": [delivery(name, "1")]})
            };
            let (code, answer): (u16, Value) = if is_second && expires > 0 {
                expires -= 1;
                (410, json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}))
            } else if is_second {
                (200, page("b", ""))
            } else {
                (200, page("a", "next"))
            };
            let body = Body::from(answer.to_string().into_bytes());
            std::future::ready(Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(body).unwrap()))
        });
        (Client::new(service, "default"), continued)
    }

    #[tokio::test]
    async fn a_list_whose_version_has_expired_starts_again() {
        let (client, continued) = expiring(1);
        let all: Vec<_> = rows(&client, None, Filter::default()).map_ok(|row| row.name).try_collect().await.unwrap();
        assert_eq!(all, ["a", "b"], "each is returned once");
        assert_eq!(*continued.lock(), [false, true, false, true]);
        // An API server for which each version has expired does not keep the command busy without end.
        let (client, continued) = expiring(u32::MAX);
        let all: Result<Vec<_>, _> = rows(&client, None, Filter::default()).try_collect().await;
        assert!(matches!(all, Err(AuditError::List(_))), "{all:?}");
        assert_eq!(continued.lock().len(), 12);
    }
}
