//! The deliveries that no Notification object counts, because they are of cluster-wide notifications.
//!
//! In: the namespace of the controllers, with the permissions of a caller. Out: the deliveries there that were given up or wait, each with
//! the reason. The answers are kept for half a minute, except those about a trouble that passes.

use std::sync::Arc;

use super::Reader;
use super::fresh::Fresh;
use crate::read::call::in_time;
use crate::trouble::{Trouble, Wanted};
use relaybook_api::Outcome;
use relaybook_tools::audit;
use relaybook_tools::audit::{Entry, Filter, StateFilter};

/// Maximum number of deliveries of each state that are read.
const READ: u32 = 100;

/// Why a delivery is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It was given up.
    GivenUp,
    /// It waits because of an error.
    Error,
    /// It waits for its turn.
    Turn,
}

/// A delivery that is not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsent {
    /// The namespace of its pipeline.
    pub(crate) namespace: String,
    pub(crate) notification: String,
    pub(crate) why: Why,
}

/// The caller, and the namespace of the pipelines. `None`: all.
type Key = ([u8; 32], Option<String>);
/// What was read. `None`: the caller may not read it, or the API server does not answer.
type Found = Option<Arc<Vec<Unsent>>>;

/// The answers that are kept.
#[derive(Default)]
pub(crate) struct Uncounted(Fresh<Key, Found>);

impl Reader<'_> {
    /// Returns the deliveries in the namespace of the controllers that wait or were given up. `None`: not known.
    pub(super) async fn uncounted(&self, namespace: Option<&str>) -> Found {
        let key = (self.caller.key, namespace.map(str::to_owned));
        if let Some(kept) = self.uncounted.0.get(&key) {
            return kept;
        }
        let (parked, pending) = tokio::join!(
            self.unsent(namespace, StateFilter::Settled(Outcome::Parked)),
            self.unsent(namespace, StateFilter::Pending)
        );
        let passes = [parked.as_ref().err(), pending.as_ref().err()].into_iter().flatten().any(Trouble::is_passing);
        let found = parked.ok().zip(pending.ok()).map(|(parked, pending)| Arc::new([parked, pending].concat()));
        if !passes {
            self.uncounted.0.put(key, found.clone());
        }
        found
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
        Ok(page.entries.iter().map(unsent).collect())
    }
}

fn unsent(entry: &Entry) -> Unsent {
    let why = match (entry.row.outcome, entry.row.attempts) {
        (Some(_), _) => Why::GivenUp,
        (None, 0) => Why::Turn,
        (None, _) => Why::Error,
    };
    Unsent { namespace: entry.spec.pipeline_ref.namespace.clone(), notification: entry.row.notification.clone(), why }
}
