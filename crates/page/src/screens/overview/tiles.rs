//! The tiles above the overview: how many there are of each kind, each with a link to exactly these. Pure.

use maud::{Markup, html};

use super::Overview;
use crate::follow::rows::Attention;
use crate::query::{Query, Screen, Shown};
use crate::screens::parts::Tone;

/// The tiles that lead to pipelines: the label, what is counted, the colour, and the filter that selects the same.
const PIPELINES: [(&str, Attention, Tone, Shown); 5] = [
    ("Failed", Attention::Failed, Tone::Bad, Shown::Failed),
    ("Other problems", Attention::Wrong, Tone::Bad, Shown::NotReady),
    ("Gone, drifted or unknown", Attention::Unclear, Tone::Warn, Shown::Unclear),
    ("In progress", Attention::Moving, Tone::Busy, Shown::InProgress),
    ("Current", Attention::None, Tone::Good, Shown::Current),
];

fn link(query: &Query, shown: Shown) -> String {
    Query { shown, group: query.group, ..query.elsewhere() }.link("/")
}

/// Returns the tiles.
pub(super) fn tiles(overview: &Overview, query: &Query) -> Markup {
    let number = |count: Option<i64>| count.map(|count| usize::try_from(count).unwrap_or(0));
    let list = |screen: &Screen| query.elsewhere().link(&screen.path());
    html! {
        dl.figures {
            @for (label, attention, tone, shown) in PIPELINES {
                (tile(label, Some(overview.chosen.count(attention)), tone, &link(query, shown)))
            }
            (tile("Pending deliveries", number(overview.pending), Tone::Warn, &list(&Screen::Pending)))
            (tile("Parked deliveries", number(overview.parked), Tone::Bad, &list(&Screen::Parked)))
        }
    }
}

/// A number with its link. `None`: it is not known.
fn tile(label: &str, count: Option<usize>, tone: Tone, link: &str) -> Markup {
    let class = match count {
        None | Some(0) => "figure tile zero".to_owned(),
        Some(_) => format!("figure tile {}", tone.class()),
    };
    let (shown, words) = match count {
        None => ("—".to_owned(), "not known".to_owned()),
        Some(count) => (count.to_string(), count.to_string()),
    };
    html! {
        div class=(class) {
            dt { (label) }
            dd { a href=(link) aria-label=(format!("{label}: {words}")) { (shown) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::follow::rows::PipelineRow;
    use crate::screens::overview::choose;
    use crate::screens::overview::testing::row;
    use relaybook_api::Time;

    #[test]
    fn a_number_that_is_not_known_is_not_zero() {
        for (count, class, words, shown) in [
            (None, "figure tile zero", "x: not known", ">—<"),
            (Some(0), "figure tile zero", "x: 0", ">0<"),
            (Some(3), "figure tile bad", "x: 3", ">3<"),
        ] {
            let html = tile("x", count, Tone::Bad, "/parked").into_string();
            assert!([class, words, shown].iter().all(|part| html.contains(part)), "{html}");
        }
    }

    #[test]
    fn each_tile_has_the_number_of_the_rows_that_its_link_selects() {
        let kinds = [Attention::Failed, Attention::Wrong, Attention::Unclear, Attention::Moving, Attention::None];
        // One, two, three and so on of each kind.
        let all: Vec<_> = kinds
            .into_iter()
            .enumerate()
            .flat_map(|(index, attention)| (0..=index).map(move |n| (format!("p{index}-{n}"), attention)))
            .map(|(name, attention)| Arc::new(PipelineRow { by_status: attention, ..row(&name, &["Current"]) }))
            .collect();
        for text in ["", "state=failed&q=p1&page=3", "group=namespace"] {
            let query = Query::read(text);
            let chosen = choose(&query, all.iter(), Time::UNIX_EPOCH);
            for (index, (label, attention, _, shown)) in PIPELINES.into_iter().enumerate() {
                let link = link(&query, shown);
                let behind = choose(&Query::read(link.strip_prefix("/?").unwrap()), all.iter(), Time::UNIX_EPOCH);
                assert_eq!(chosen.count(attention), index + 1, "{label}");
                assert_eq!(behind.matching, chosen.count(attention), "{label}: {link}");
                assert!(behind.rows.iter().all(|row| row.by_status == attention), "{label}: {link}");
            }
        }
        let chosen = choose(&Query::default(), all.iter(), Time::UNIX_EPOCH);
        let counted: usize = PIPELINES.iter().map(|(_, attention, ..)| chosen.count(*attention)).sum();
        assert_eq!(counted, all.len(), "each pipeline is in one tile");
    }
}
