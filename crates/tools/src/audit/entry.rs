//! One delivery with its recorded transition, and one page of a list of deliveries.

use futures::Stream;
use kube::{Api, Client};

use super::{AuditError, Filter, Row};
use relaybook_api::{Delivery, DeliverySpec, DeliveryStatus};
use relaybook_runtime::watch::{self, api_in};

/// A delivery: the fields for users, and what was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The fields for users.
    pub row: Row,
    /// The recorded transition.
    pub spec: DeliverySpec,
    /// Whether the delivery was settled and is sent again, outside of its lane.
    pub again: bool,
}

/// A part of a list.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The selected deliveries, sorted by namespace and name.
    pub entries: Vec<Entry>,
    /// The token of the next page. `None`: this is the last one.
    pub next: Option<String>,
    /// How many deliveries follow, if the API server says it. It does not if the list has a selector.
    pub remaining: Option<u64>,
}

impl From<Delivery> for Entry {
    fn from(delivery: Delivery) -> Self {
        let spec = delivery.spec.clone();
        let is_again = |status: &DeliveryStatus| status.outcome.is_none() && status.redelivered.is_some();
        let again = delivery.status.as_ref().is_some_and(is_again);
        Self { row: Row::from(delivery), spec, again }
    }
}

/// Reads one delivery. `None`: it does not exist.
pub async fn entry(client: &Client, namespace: &str, name: &str) -> Result<Option<Entry>, kube::Error> {
    let api: Api<Delivery> = Api::namespaced(client.clone(), namespace);
    Ok(api.get_opt(name).await?.map(Entry::from))
}

/// Reads one page of a list. `token` is that of an earlier page, or empty. A page can have fewer entries than `limit`, and still not be the
/// last one, because the API server cannot select by time.
pub async fn page(
    client: &Client,
    namespace: Option<&str>,
    filter: &Filter,
    limit: u32,
    token: &str,
) -> Result<Page, AuditError> {
    let mut params = filter.params(limit);
    if !token.is_empty() {
        params = params.continue_token(token);
    }
    let list = api_in::<Delivery>(client, namespace).list(&params).await.map_err(|e| AuditError::List(Box::new(e)))?;
    let entries = list.items.into_iter().map(Entry::from).filter(|entry| filter.matches(&entry.row)).collect();
    let remaining = list.metadata.remaining_item_count.and_then(|count| u64::try_from(count).ok());
    Ok(Page { entries, next: list.metadata.continue_.filter(|token| !token.is_empty()), remaining })
}

/// Returns a signal for each change of the deliveries that a filter selects by labels and state.
pub fn touched(
    client: &Client,
    namespace: Option<&str>,
    filter: &Filter,
) -> impl Stream<Item = kube::Result<()>> + Send + 'static + use<> {
    watch::touched(api_in::<Delivery>(client, namespace), filter.labels(), filter.fields())
}

/// Returns a signal for each change of one delivery.
pub fn one_touched(
    client: &Client,
    namespace: &str,
    name: &str,
) -> impl Stream<Item = kube::Result<()>> + Send + 'static + use<> {
    watch::touched(api_in::<Delivery>(client, Some(namespace)), String::new(), format!("metadata.name={name}"))
}
