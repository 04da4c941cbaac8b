//! The deliveries that no Notification object counts, because they are of cluster-wide notifications.
//!
//! In: the namespace of the controllers, with the permissions of a caller. Out: the deliveries there that were given up or wait because of an
//! error. The answers are kept for half a minute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Reader;
use crate::api::Outcome;
use crate::audit::{self, Entry, Filter, StateFilter};
use crate::page::read::call::in_time;
use crate::page::trouble::{Trouble, Wanted};

/// How long an answer is used again.
const FRESH: Duration = Duration::from_secs(30);
/// Maximum number of answers that are kept.
const MOST: usize = 256;
/// Maximum number of deliveries of each state that are read.
const READ: u32 = 100;

/// A delivery that needs attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::page) struct Unsent {
    /// The namespace of its pipeline.
    pub(in crate::page) namespace: String,
    pub(in crate::page) notification: String,
    /// Whether it was given up. Otherwise it waits because of an error.
    pub(in crate::page) is_parked: bool,
}

/// The caller, and the namespace of the pipelines. `None`: all.
type Key = ([u8; 32], Option<String>);
/// When it was read, and what. `None`: the caller may not read it, or the API server does not answer.
type Kept = (Instant, Option<Arc<Vec<Unsent>>>);

/// The answers that are kept.
#[derive(Default)]
pub(in crate::page) struct Uncounted(Mutex<HashMap<Key, Kept>>);

impl Reader<'_> {
    /// Returns the deliveries in the namespace of the controllers that need attention. `None`: not known.
    pub(super) async fn uncounted(&self, namespace: Option<&str>) -> Option<Arc<Vec<Unsent>>> {
        let key = (self.caller.key, namespace.map(str::to_owned));
        let all = &self.uncounted.0;
        if let Some((since, kept)) = all.lock().unwrap_or_else(PoisonError::into_inner).get(&key)
            && since.elapsed() < FRESH
        {
            return kept.clone();
        }
        let selector = namespace.map(|namespace| format!("pennant.dev/pipeline-namespace={namespace}"));
        let (parked, pending) = tokio::join!(
            self.unsent(selector.clone(), StateFilter::Settled(Outcome::Parked)),
            self.unsent(selector, StateFilter::Pending)
        );
        let found = parked.ok().zip(pending.ok()).map(|(parked, pending)| Arc::new([parked, pending].concat()));
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (since, _)| since.elapsed() < FRESH);
        if all.len() < MOST {
            all.insert(key, (Instant::now(), found.clone()));
        }
        found
    }

    async fn unsent(&self, selector: Option<String>, state: StateFilter) -> Result<Vec<Unsent>, Trouble> {
        let home = self.settings.config_map.namespace.as_str();
        let filter = Filter { selector, state: Some(state), ..Filter::default() };
        let wanted = Wanted::new("list", "deliveries", Some(home));
        let page = audit::page(&self.caller.client, Some(home), &filter, READ, "");
        let page = in_time(page, |error| Trouble::of_audit(&error, &wanted)).await?;
        Ok(page.entries.iter().filter_map(unsent).collect())
    }
}

fn unsent(entry: &Entry) -> Option<Unsent> {
    let is_parked = entry.row.outcome == Some(Outcome::Parked);
    // A delivery that was not sent yet waits for its turn, and not because of an error.
    (is_parked || entry.row.attempts > 0).then(|| Unsent {
        namespace: entry.spec.pipeline_ref.namespace.clone(),
        notification: entry.row.notification.clone(),
        is_parked,
    })
}
