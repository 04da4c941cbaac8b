//! The messages of the last minutes, for the overview.
//!
//! In: one page of deliveries, with the permissions of a caller. Out: [`Messages`]. The answers are kept for half a minute, so an overview that
//! is read again with each change does not read the deliveries each time. A trouble that passes is not kept.

use std::sync::Arc;

use super::fresh::Fresh;
use super::{Entries, Reader};
use crate::screens::recent::{Messages, Missing, WINDOW};
use crate::trouble::Trouble;
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
        let (own, elsewhere) =
            tokio::join!(self.deliveries(namespace, &filter, 1, None), self.elsewhere(namespace, &filter));
        let (found, is_kept) = joined(own, elsewhere);
        let found = found.map(Arc::new);
        if is_kept {
            self.recent.0.put(key, found.clone());
        }
        found
    }
}

/// Joins the deliveries of the namespace and those that are recorded elsewhere. The second value says whether the answer can be used again.
fn joined(mut own: Entries, elsewhere: Entries) -> (Option<Messages>, bool) {
    let passes = [&own.trouble, &elsewhere.trouble].into_iter().flatten().any(Trouble::is_passing);
    if own.trouble.is_some() {
        return (None, !passes);
    }
    let missing = match (elsewhere.trouble.is_some(), own.next.is_some() || elsewhere.next.is_some()) {
        (_, true) => Some(Missing::Rest),
        (true, false) => Some(Missing::Elsewhere),
        (false, false) => None,
    };
    own.all.extend(elsewhere.all);
    (Some(Messages::of(&own.all, missing)), !passes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trouble::Wanted;

    #[test]
    fn what_was_read_is_used_although_the_second_list_failed() {
        let read = |next: Option<&str>| Entries { next: next.map(str::to_owned), ..Entries::default() };
        let failed = |trouble: &Trouble| Entries { trouble: Some(trouble.clone()), ..Entries::default() };
        let (slow, away) = (Trouble::Slow, Trouble::Away("refused".to_owned()));
        let forbidden = Trouble::Forbidden(Wanted::new("list", "deliveries", Some("relaybook-system")));
        for (what, own, elsewhere, missing, is_kept) in [
            ("all", read(None), read(None), Some(None), true),
            ("more", read(Some("t")), read(None), Some(Some(Missing::Rest)), true),
            ("more elsewhere", read(None), read(Some("t")), Some(Some(Missing::Rest)), true),
            ("forbidden elsewhere", read(None), failed(&forbidden), Some(Some(Missing::Elsewhere)), true),
            ("slow elsewhere", read(None), failed(&slow), Some(Some(Missing::Elsewhere)), false),
            ("forbidden", failed(&forbidden), read(None), None, true),
            ("away", failed(&away), read(None), None, false),
        ] {
            let (found, kept) = joined(own, elsewhere);
            assert_eq!((found.map(|found| found.missing), kept), (missing, is_kept), "{what}");
        }
    }
}
