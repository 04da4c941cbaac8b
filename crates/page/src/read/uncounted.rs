//! The deliveries that no Notification object counts, because they are of cluster-wide notifications.
//!
//! In: the namespace of the controllers, with the permissions of a caller. Out: the deliveries there that are parked or pending, each with
//! the reason. The answers are kept for half a minute, except those about a trouble that passes.

use std::sync::Arc;

use super::Reader;
use super::fresh::Kept;
use crate::read::call::in_time;
use crate::trouble::{Trouble, Wanted};
use relaybook_api::Outcome;
use relaybook_tools::audit;
use relaybook_tools::audit::{Entry, Filter, Row, StateFilter};

/// Maximum number of deliveries of each state that are read.
const READ: u32 = 100;

/// A delivery that is not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsent {
    /// The namespace of its pipeline.
    pub(crate) namespace: String,
    pub(crate) notification: String,
    /// The delivery, if it is pending. `None`: it was parked.
    pub(crate) waits: Option<Row>,
}

/// What was read, for each namespace of pipelines, or for all.
pub(crate) type Uncounted = Kept<Option<String>, Vec<Unsent>>;

impl Reader<'_> {
    /// Returns the deliveries in the namespace of the controllers that are pending or parked. `None`: not known.
    pub(super) async fn uncounted(&self, namespace: Option<&str>) -> Option<Arc<Vec<Unsent>>> {
        let read = Box::pin(async {
            let (parked, pending) = tokio::join!(
                self.unsent(namespace, StateFilter::Settled(Outcome::Parked)),
                self.unsent(namespace, StateFilter::Pending)
            );
            let passes = [parked.as_ref().err(), pending.as_ref().err()].into_iter().flatten().any(Trouble::is_passing);
            (parked.ok().zip(pending.ok()).map(|(parked, pending)| [parked, pending].concat()), !passes)
        });
        self.uncounted.or_read(self.caller, namespace.map(str::to_owned), read).await
    }

    async fn unsent(&self, namespace: Option<&str>, state: StateFilter) -> Result<Vec<Unsent>, Trouble> {
        let home = self.settings.config_map.namespace.as_str();
        let filter = Filter { state: Some(state), ..Filter::default() };
        let filter = match namespace {
            Some(namespace) => filter.about_pipelines_in(namespace),
            None => filter,
        };
        let wanted = Wanted::new("list", "deliveries", Some(home));
        let page = audit::page(&self.caller.client, Some(home), &filter, READ, "");
        let page = in_time(page, |error| Trouble::of_audit(&error, &wanted)).await?;
        Ok(page.entries.into_iter().map(unsent).collect())
    }
}

fn unsent(Entry { row, spec, .. }: Entry) -> Unsent {
    let (namespace, notification) = (spec.pipeline_ref.namespace, row.notification.clone());
    Unsent { namespace, notification, waits: row.outcome.is_none().then_some(row) }
}
