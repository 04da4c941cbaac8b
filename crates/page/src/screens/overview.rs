//! The overview: is anything wrong, and what runs where. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use maud::{Markup, html};

use crate::follow::rows::{Attention, Cell, NotificationRow, PipelineRow};
use crate::query::{Query, Shown};
use crate::read::uncounted::Unsent;
use crate::screens::parts::{
    Tone, age, badge, command, lasting, namespace_field, plural, revision, scroll, status_word, trouble,
};
use crate::screens::table::pages;
use crate::trouble::Trouble;
use relaybook_api::Time;
use relaybook_api::values::permalink;

/// Number of pipelines on a page.
pub(crate) const ROWS: usize = 100;
/// Maximum number of columns. With more environments, each cell has its own heading.
const COLUMNS: usize = 6;
/// Maximum number of clusters that are named.
const NAMED: usize = 5;
/// Maximum number of notifications in the list of those that need attention.
const NOTIFICATIONS: usize = 10;

/// What the overview shows.
#[derive(Debug)]
pub(crate) struct Overview {
    /// The pipelines of this page, the most urgent first.
    pub(crate) rows: Vec<Arc<PipelineRow>>,
    /// How many pipelines match the filters, and how many there are.
    pub(crate) matching: usize,
    pub(crate) total: usize,
    /// How many pipelines there are for each attention.
    pub(crate) counts: BTreeMap<Attention, usize>,
    /// The notifications that need attention.
    pub(crate) unwell: Vec<Arc<NotificationRow>>,
    pub(crate) notifications: usize,
    /// The numbers of deliveries that wait, and that were given up.
    pub(crate) pending: i64,
    pub(crate) parked: i64,
    /// The namespace in the links of notifications without an object.
    pub(crate) home: String,
    /// The cluster-wide notifications whose deliveries wait because of an error, or were given up, with both numbers. `None`: not known.
    pub(crate) without_object: Option<BTreeMap<String, (i64, i64)>>,
    /// The names of the clusters that do not answer.
    pub(crate) offline: Vec<String>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) is_complete: bool,
}

/// Whether a filter selects a pipeline.
pub(crate) fn selects(query: &Query, row: &PipelineRow) -> bool {
    let shown = match query.shown {
        Shown::All => true,
        Shown::Wrong => row.attention < Attention::Moving,
        Shown::Failed => row.attention == Attention::Failed,
        Shown::InProgress => row.attention == Attention::Moving,
        Shown::Current => row.attention == Attention::None,
    };
    shown && (query.text.is_empty() || row.has(&query.text))
}

/// Selects the pipelines of one page, the most urgent first.
pub(crate) fn choose<'a>(
    query: &Query,
    all: impl Iterator<Item = &'a Arc<PipelineRow>>,
) -> (Vec<Arc<PipelineRow>>, usize, usize, BTreeMap<Attention, usize>) {
    let (mut chosen, mut total, mut counts) = (Vec::new(), 0, BTreeMap::new());
    for row in all {
        total += 1;
        *counts.entry(row.attention).or_default() += 1;
        if selects(query, row) {
            chosen.push(row.clone());
        }
    }
    chosen.sort_by(|a, b| (a.attention, &a.namespace, &a.name).cmp(&(b.attention, &b.namespace, &b.name)));
    let matching = chosen.len();
    let page = chosen.into_iter().skip(query.page * ROWS).take(ROWS).collect();
    (page, matching, total, counts)
}

/// Returns the names of the environments, by their usual position in a pipeline. `None`: there are too many for columns.
fn columns(rows: &[Arc<PipelineRow>]) -> Option<Vec<&str>> {
    let mut positions: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for row in rows {
        for (position, cell) in row.environments.iter().enumerate() {
            // From the end, so that the last environment of a short pipeline is beside that of a long one.
            let from_end = 1000 - row.environments.len() + position;
            let known = positions.entry(&cell.name).or_default();
            *known = (known.0 + from_end, known.1 + 1);
        }
    }
    if positions.len() > COLUMNS {
        return None;
    }
    let mut names: Vec<_> = positions.into_iter().map(|(name, (sum, count))| (sum * 1000 / count, name)).collect();
    names.sort_unstable();
    Some(names.into_iter().map(|(_, name)| name).collect())
}

impl Overview {
    /// Counts a delivery that no Notification object counts.
    pub(crate) fn add(&mut self, one: &Unsent) {
        let number = self.without_object.get_or_insert_default().entry(one.notification.clone()).or_default();
        if one.is_parked {
            number.1 += 1;
            self.parked += 1;
        } else {
            number.0 += 1;
            self.pending += 1;
        }
    }

    /// Returns the content of the page.
    pub(crate) fn html(&self, query: &Query, now: Time) -> Markup {
        html! {
            h1 { "Overview" }
            @if !self.offline.is_empty() {
                div.banner role="alert" {
                    p { "Clusters that do not answer: " a href=(query.elsewhere().link("/clusters")) { (named(&self.offline)) } ". Their targets keep the last known state." }
                    code { "kubectl describe pipelines " (query.scope()) }
                }
            }
            (self.summary(query))
            @for one in &self.troubles { (trouble(one)) }
            (self.unwell(now))
            (filters(query))
            (self.table(query, now))
            (pages(query, "/", ROWS, self.matching))
            (command(&same(query)))
        }
    }

    fn summary(&self, query: &Query) -> Markup {
        let count = |attention: Attention| self.counts.get(&attention).copied().unwrap_or_default();
        let with = |shown: Shown| Query { shown, ..query.elsewhere() }.link("/");
        let (failed, wrong) = (count(Attention::Failed), count(Attention::Wrong));
        let unclear = count(Attention::Unclear);
        let is_known = self.troubles.is_empty() && self.is_complete;
        let has_unsent = self.without_object.as_ref().is_some_and(|all| !all.is_empty());
        let is_well = failed + wrong + unclear == 0 && self.unwell.is_empty() && !has_unsent && is_known;
        html! {
            @if is_well && self.total > 0 {
                p.verdict.good {
                    "Nothing is wrong: " (plural(self.total, "pipeline")) ", " (plural(self.notifications, "notification")) "."
                    @if self.without_object.is_none() { " You may not read the deliveries of cluster-wide notifications." }
                }
            }
            @if !self.is_complete && self.troubles.is_empty() { p.notice { "The first list has not ended yet; more pipelines follow." } }
            dl.figures {
                (tile("Failed", failed, Tone::Bad, &with(Shown::Failed)))
                (tile("Cannot be followed or sent", wrong, Tone::Bad, &with(Shown::Wrong)))
                (tile("Gone, drifted or unknown", unclear, Tone::Warn, &with(Shown::Wrong)))
                (tile("In progress", count(Attention::Moving), Tone::Busy, &with(Shown::InProgress)))
                (tile("Current", count(Attention::None), Tone::Good, &with(Shown::Current)))
                (tile("Deliveries that wait", usize::try_from(self.pending).unwrap_or(0), Tone::Warn, &query.elsewhere().link("/receivers")))
                (tile("Deliveries given up", usize::try_from(self.parked).unwrap_or(0), Tone::Bad, &query.elsewhere().link("/given-up")))
            }
        }
    }

    fn unwell(&self, now: Time) -> Markup {
        let without_object = self.without_object.iter().flatten();
        if self.unwell.is_empty() && without_object.clone().next().is_none() {
            return html! {};
        }
        let more = self.unwell.len().saturating_sub(NOTIFICATIONS);
        html! {
            section aria-labelledby="unwell" {
                h2 #unwell { "Notifications that need attention" }
                ul.list {
                    @for one in self.unwell.iter().take(NOTIFICATIONS) {
                        li {
                            a href=(permalink::notification(&one.namespace, &one.name)) { (one.namespace) "/" (one.name) }
                            " " (badge(Tone::Bad, one.summary.as_ref().map_or("Not ready", |(reason, _)| reason)))
                            @if let Some((_, message)) = &one.summary { " " span.message { (message) } }
                            @if one.pending > 0 { " " span.none { (one.pending) " waiting" } }
                            @if let Some(last) = one.last_sent { " " span.none { "last sent " (age(last, now)) } }
                        }
                    }
                    @if more > 0 { li.none { "and " (more) " more" } }
                    @for (name, (waiting, parked)) in without_object.take(NOTIFICATIONS) {
                        li {
                            a href=(permalink::notification(&self.home, name)) { (name) }
                            " " (badge(Tone::Bad, "Cluster-wide")) " "
                            span.message { "waiting because of an error: " (waiting) ", given up: " (parked) @if waiting + parked >= 100 { ", or more" } }
                        }
                    }
                }
            }
        }
    }

    fn table(&self, query: &Query, now: Time) -> Markup {
        if self.rows.is_empty() {
            let words = if self.total == 0 { "There are no pipelines here." } else { "No pipeline matches the filters." };
            return html! { @if self.troubles.is_empty() { p.empty { (words) } } };
        }
        let columns = columns(&self.rows);
        html! {
            (scroll("pipelines", &html! { table.matrix {
                    thead {
                        tr {
                            th scope="col" { "Pipeline" }
                            @match &columns {
                                Some(columns) => @for name in columns { th scope="col" { (name) } },
                                None => th scope="col" { "Environments" },
                            }
                            th scope="col" { "Last notified" }
                        }
                    }
                    tbody {
                        @for row in &self.rows { (line(row, columns.as_deref(), query, now)) }
                    }
                } }))
        }
    }
}

/// Returns the first of some names, and how many follow.
fn named(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}

fn tile(label: &str, count: usize, tone: Tone, link: &str) -> Markup {
    let class = if count == 0 { "figure zero".to_owned() } else { format!("figure {}", tone.class()) };
    html! { div class=(class) { dt { (label) } dd { a href=(link) { (count) } } } }
}

fn filters(query: &Query) -> Markup {
    html! {
        form.filters action="/" {
            (namespace_field(query))
            label { span { "State" }
                select name="state" {
                    @for (shown, name, label) in Shown::ALL { option value=(name) selected[shown == query.shown] { (label) } }
                }
            }
            label { span { "Name, application or revision" }
                input type="search" name="q" value=(query.text) maxlength="256" spellcheck="false";
            }
            button { "Show" }
            @if query.link("/") != "/" { a href="/" { "Remove the filters" } }
        }
    }
}

fn line(row: &PipelineRow, columns: Option<&[&str]>, query: &Query, now: Time) -> Markup {
    let link = permalink::pipeline(&row.namespace, &row.name);
    html! {
        tr {
            th scope="row" {
                a href=(link) { (row.name) }
                @if query.namespace.is_none() { span.sub { (row.namespace) } }
                @if let Some((reason, message)) = &row.not_ready {
                    span.sub { (badge(Tone::Bad, reason)) " " span.message title=(message) { (message) } }
                }
                @for (name, reason, message) in row.unsent.iter().take(2) {
                    span.sub { (badge(Tone::Bad, reason)) " " span.message title=(message) { (name) ": " (message) } }
                }
            }
            @match columns {
                Some(columns) => @for name in columns {
                    td data-label=(name) {
                        @match row.environments.iter().find(|cell| cell.name == *name) {
                            Some(cell) => (environment(cell, now)),
                            None => span.none { "—" },
                        }
                    }
                },
                None => td.flow {
                    @for cell in &row.environments { div { span.sub { (cell.name) } (environment(cell, now)) } }
                },
            }
            td data-label="Last notified" {
                @match &row.last_sent {
                    Some((time, by)) => { (age(*time, now)) span.sub { @if !by.is_empty() { "by " (by) } } },
                    None => span.none { "never" },
                }
            }
        }
    }
}

fn environment(cell: &Cell, now: Time) -> Markup {
    let (ready, all) = cell.ready;
    html! {
        span.state {
            (badge(Tone::of_status(cell.status), status_word(cell.status)))
            @if cell.drifted { " " (badge(Tone::Warn, "Drifted")) }
            @if all > 1 { " " span.none { (ready) "/" (all) } }
        }
        span.revisions { @for text in &cell.revisions { (revision(text)) " " } }
        span.sub {
            @if let Some(since) = cell.since { (lasting(since, now)) }
            @if let Some(notified) = cell.notified { span.notified { "notified " (age(notified, now)) } }
        }
        @if let Some(waits) = &cell.waits_for_approval {
            span.sub { (badge(Tone::Busy, "Waits for approval")) " " (revision(waits)) }
        }
        @if !cell.message.is_empty() && cell.status != Some(relaybook_api::Status::Current) {
            span.sub.message title=(cell.message) { (cell.message) }
        }
    }
}

fn same(query: &Query) -> String {
    format!("kubectl get pipelines,notifications {}", query.scope())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, attention: Attention, environments: &[&str]) -> Arc<PipelineRow> {
        let environments = environments.iter().map(|name| Cell { name: (*name).to_owned(), ..Cell::default() }).collect();
        Arc::new(PipelineRow {
            namespace: "team-a".to_owned(),
            name: name.to_owned(),
            app: String::new(),
            environments,
            not_ready: None,
            unsent: Vec::new(),
            last_sent: None,
            clusters: Vec::new(),
            endpoints: Vec::new(),
            attention,
        })
    }

    #[test]
    fn pipelines_with_problems_come_first() {
        let all = [
            row("a", Attention::None, &[]),
            row("b", Attention::Moving, &[]),
            row("c", Attention::Failed, &[]),
            row("d", Attention::Wrong, &[]),
            row("e", Attention::Failed, &[]),
        ];
        let names = |query: &str| {
            let (rows, matching, total, _) = choose(&Query::read(query), all.iter());
            assert_eq!((rows.len(), total), (matching, 5));
            rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(""), "c e d b a");
        assert_eq!(names("state=wrong"), "c e d");
        assert_eq!(names("state=in-progress"), "b");
        assert_eq!(names("state=current"), "a");
        assert_eq!(names("q=E"), "c e d b a", "each namespace has an e");
        assert_eq!(names("q=zz"), "");
    }

    #[test]
    fn environment_columns_are_in_the_order_of_most_pipelines() {
        let rows = [
            row("a", Attention::None, &["dev", "prod"]),
            row("b", Attention::None, &["dev", "staging", "prod"]),
            row("c", Attention::None, &["prod"]),
        ];
        assert_eq!(columns(&rows), Some(vec!["dev", "staging", "prod"]));
        let names: Vec<String> = (0..7).map(|n| format!("e{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(columns(&[row("a", Attention::None, &names)]), None);
    }
}
