//! The messages of the last minutes, for the overview.
//!
//! In: the pipelines that are followed, and one page of deliveries about those with new ones, with the permissions of a caller. Out:
//! [`Messages`]. The answers are kept for half a minute. So an overview that is read again with each change does not read the deliveries, unless
//! other pipelines have new ones. A trouble that passes is not kept. If no pipeline has new deliveries, nothing is read.

use std::sync::Arc;

use super::fresh::Kept;
use super::{Entries, Reader};
use crate::follow::Rows;
use crate::follow::rows::PipelineRow;
use crate::screens::recent::{Messages, Missing, WINDOW};
use crate::trouble::Trouble;
use relaybook_api::delivery::PIPELINE_NAMESPACE;
use relaybook_api::{GROUP, Time};
use relaybook_tools::audit::Filter;

/// Maximum number of pipelines that are selected by name. With more, the deliveries of all are read.
const SELECTED: usize = 50;
/// The clocks of the API server and of the page can differ by this number of seconds.
const SKEW: i64 = 60;

/// What was read, for each namespace of pipelines, or for all, and for the pipelines that had new deliveries.
pub(crate) type Recent = Kept<(Option<String>, Recorded), Messages>;

/// The pipelines with deliveries that were recorded in the last minutes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Recorded {
    /// There are none.
    Nothing,
    /// Those with these names.
    Named(Vec<String>),
    /// There are many, or not all pipelines are known.
    Any,
}

impl Recorded {
    /// Returns those of the pipelines that are followed.
    pub(super) fn of(rows: &Rows<PipelineRow>, now: Time) -> Self {
        let is_known = rows.is_listed && rows.trouble.is_none() && rows.unreadable.is_empty();
        let Some(start) = start(now).filter(|_| is_known) else { return Self::Any };
        let start = start.as_second() - SKEW;
        let rows = rows.all.values().filter(|row| row.recorded.is_some_and(|recorded| recorded.as_second() >= start));
        let mut names: Vec<_> = rows.map(|row| row.name.clone()).collect();
        names.sort();
        names.dedup();
        match names.len() {
            0 => Self::Nothing,
            1..=SELECTED => Self::Named(names),
            _ => Self::Any,
        }
    }

    /// Returns the label selector of their deliveries. `namespace`: only those of its pipelines.
    fn selector(&self, namespace: Option<&str>) -> Option<String> {
        let names = match self {
            Self::Named(names) => Some(format!("{GROUP}/pipeline in ({})", names.join(","))),
            Self::Nothing | Self::Any => None,
        };
        let namespace = namespace.map(|namespace| format!("{PIPELINE_NAMESPACE}={namespace}"));
        let all: Vec<_> = names.into_iter().chain(namespace).collect();
        (!all.is_empty()).then(|| all.join(","))
    }
}

fn start(now: Time) -> Option<Time> {
    now.checked_sub(WINDOW).ok()
}

impl Reader<'_> {
    /// Returns the messages of the last minutes. `None`: not known.
    pub(super) async fn messages(&self, namespace: Option<&str>, recorded: &Recorded) -> Option<Arc<Messages>> {
        if *recorded == Recorded::Nothing {
            return Some(Arc::default());
        }
        let home = self.settings.config_map.namespace.as_str();
        let filter =
            |namespace| Filter { since: start(self.now), selector: recorded.selector(namespace), ..Filter::default() };
        let (own, other) = (filter(None), filter(namespace));
        let read = Box::pin(async {
            let elsewhere = async {
                match namespace.filter(|namespace| *namespace != home) {
                    Some(_) => self.deliveries(Some(home), &other, 1, None).await,
                    None => Entries::default(),
                }
            };
            let (own, elsewhere) = tokio::join!(self.deliveries(namespace, &own, 1, None), elsewhere);
            joined(own, elsewhere)
        });
        self.recent.or_read(self.caller, (namespace.map(str::to_owned), recorded.clone()), read).await
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
    use crate::screens::overview::testing::row;
    use crate::trouble::Wanted;

    #[test]
    fn only_the_deliveries_of_pipelines_with_new_ones_are_read() {
        let at = |second| Time::from_second(second).unwrap();
        let known = |recorded: &[(&str, Option<i64>)]| {
            let row = |(name, recorded): &(&str, Option<i64>)| PipelineRow { recorded: recorded.map(at), ..row(name, &[]) };
            let rows = recorded.iter().map(row).map(|row| ((row.namespace.clone(), row.name.clone()), Arc::new(row)));
            Rows { all: rows.collect(), is_listed: true, ..Rows::default() }
        };
        let named = |names: &[&str]| Recorded::Named(names.iter().map(|name| (*name).to_owned()).collect());
        let many: Vec<_> = (0..=SELECTED).map(|n| format!("p{n}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), Some(9_990))).collect();
        for (what, rows, expected) in [
            ("none", known(&[("a", None), ("b", Some(100))]), Recorded::Nothing),
            ("two", known(&[("b", Some(9_990)), ("a", Some(9_050)), ("c", Some(100))]), named(&["a", "b"])),
            ("too many", known(&many), Recorded::Any),
            ("not listed", Rows { is_listed: false, ..known(&[]) }, Recorded::Any),
            ("an outage", Rows { trouble: Some(Trouble::Slow), ..known(&[]) }, Recorded::Any),
        ] {
            assert_eq!(Recorded::of(&rows, at(10_000)), expected, "{what}");
        }
        assert!(
            matches!(Recorded::of(&known(&many[1..]), at(10_000)), Recorded::Named(selected) if selected.len() == SELECTED)
        );
        let two = named(&["a", "b"]);
        assert_eq!(two.selector(None).as_deref(), Some("relaybook.dev/pipeline in (a,b)"));
        let both = "relaybook.dev/pipeline in (a,b),relaybook.dev/pipeline-namespace=team-a";
        assert_eq!(two.selector(Some("team-a")).as_deref(), Some(both));
        assert_eq!((Recorded::Any.selector(None), Recorded::Any.selector(Some("x")).is_some()), (None, true));
    }

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
