//! The messages of the last minutes, for the overview.
//!
//! In: one page of deliveries, with the permissions of a caller. Out: [`Messages`]. The answers are kept for half a minute, so an overview that
//! is read again with each change does not read the deliveries each time.

use std::sync::Arc;

use super::Reader;
use super::fresh::Fresh;
use crate::screens::recent::{Messages, WINDOW};
use relaybook_tools::audit::Filter;

/// The caller, and the namespace of the pipelines. `None`: all.
type Key = ([u8; 32], Option<String>);
/// What was read. `None`: the caller may not read it, or the API server does not answer.
type Found = Option<Arc<Messages>>;

/// The answers that are kept.
#[derive(Default)]
pub(crate) struct Recent(Fresh<Key, Found>);

impl Reader<'_> {
    /// Returns the messages of the last minutes. `None`: not known.
    pub(super) async fn messages(&self, namespace: Option<&str>) -> Found {
        let key = (self.caller.key, namespace.map(str::to_owned));
        if let Some(kept) = self.recent.0.get(&key) {
            return kept;
        }
        let filter = Filter { since: self.now.checked_sub(WINDOW).ok(), ..Filter::default() };
        let (mut own, elsewhere) =
            tokio::join!(self.deliveries(namespace, &filter, 1, None), self.elsewhere(namespace, &filter));
        own.add(elsewhere);
        let found = own.trouble.is_none().then(|| Arc::new(Messages::of(&own.all, own.next.is_some())));
        self.recent.0.put(key, found.clone());
        found
    }
}
