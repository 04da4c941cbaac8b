//! The search by revision: where it runs, and who was notified. Pure.

use std::sync::Arc;

use maud::{Markup, html};

use crate::follow::rows::PipelineRow;
use crate::query::Query;
use crate::screens::parts::{
    Tone, age, badge, command, lasting, namespace_field, quoted, revision, scroll, status_word, trouble,
};
use crate::screens::table::{Named, deliveries, more};
use crate::trouble::Trouble;
use relaybook_api::Time;
use relaybook_api::values::permalink;
use relaybook_tools::audit::Entry;

/// Maximum number of pipelines in the result.
pub(crate) const PIPELINES: usize = 50;

/// What the search has found.
#[derive(Debug)]
pub(crate) struct Found {
    /// The pipelines that run or try such a revision, and how many there are.
    pub(crate) pipelines: Vec<Arc<PipelineRow>>,
    pub(crate) total: usize,
    /// The deliveries about such a revision, the newest first.
    pub(crate) entries: Vec<Entry>,
    /// Number of older deliveries about it that were read and are not shown.
    pub(crate) cut: usize,
    /// Number of deliveries that were read, and the token of the next ones.
    pub(crate) read: usize,
    pub(crate) next: Option<String>,
    pub(crate) troubles: Vec<Trouble>,
}

impl Found {
    /// Returns the content of the page.
    pub(crate) fn html(&self, query: &Query, now: Time) -> Markup {
        html! {
            h1 { "Where is a revision, and who was notified?" }
            form.filters action="/search" {
                label { span { "Revision, or a part of it" } input type="search" name="q" value=(query.text) maxlength="256" spellcheck="false"; }
                (namespace_field(query))
                button { "Search" }
            }
            @for one in &self.troubles { (trouble(one)) }
            @if query.text.is_empty() { p.empty { "Enter a revision, such as a tag, a commit hash, or a part of one." } }
            @else {
                (self.places(query, now))
                section aria-labelledby="notified" {
                    h2 #notified { "Who was notified" }
                    @if self.entries.is_empty() { p.empty { "No delivery about it is among the " (self.read) " that were read." } }
                    @else { (deliveries(&self.entries, now, Named::Both)) p.none { "Found among " (self.read) " deliveries." @if self.cut > 0 { " The oldest " (self.cut) " are not shown." } } }
                    (more(query, "/search", self.next.as_deref(), "Search in the next deliveries"))
                }
                (command(&same(query)))
            }
        }
    }

    fn places(&self, query: &Query, now: Time) -> Markup {
        let text = query.text.to_lowercase();
        html! {
            section aria-labelledby="runs" {
                h2 #runs { "Where it is" }
                @if self.pipelines.is_empty() { p.empty { "No pipeline here runs or tries it at present." } }
                @else {
                    (scroll("pipelines", &html! { table {
                            thead { tr { th scope="col" { "Pipeline" } th scope="col" { "Environment" } th scope="col" { "State" } th scope="col" { "Revision" } th scope="col" { "Last notified" } } }
                            tbody {
                                @for row in &self.pipelines {
                                    @for cell in row.environments.iter().filter(|cell| cell.searched.keys().any(|one| one.to_lowercase().contains(&text))) {
                                        tr {
                                            th scope="row" { a href=(permalink::pipeline(&row.namespace, &row.name)) { (row.namespace) "/" (row.name) } }
                                            td data-label="Environment" { (cell.name) }
                                            td data-label="State" { (badge(Tone::of_status(cell.status), status_word(cell.status))) @if let Some(since) = cell.since { " " span.none { (lasting(since, now)) } } }
                                            td data-label="Revision" { @for (one, runs) in cell.searched.iter().filter(|(one, _)| one.to_lowercase().contains(&text)) { (revision(one)) " " span.none { @if *runs { "runs" } @else { "tried" } } " " } }
                                            td data-label="Last notified" { @match cell.notified { Some(time) => (age(time, now)), None => span.none { "never" } } }
                                        }
                                    }
                                }
                            }
                        } }))
                    @if self.total > self.pipelines.len() { p.none { "The first " (self.pipelines.len()) " of " (self.total) " pipelines." } }
                }
            }
        }
    }
}

/// Returns the command, with the text in quotes for a shell.
fn same(query: &Query) -> String {
    let text = serde_json::Value::from(query.text.to_lowercase());
    let program = quoted(&format!(".items[] | select(.revision | ascii_downcase | contains({text}))"));
    format!("relaybook audit {} -o json | jq {program}", query.scope())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_revision_stays_a_text_in_the_command() {
        let query = Query { text: "a'; rm -rf / #\"".to_owned(), ..Query::default() };
        assert_eq!(
            same(&query),
            "relaybook audit -A -o json | jq '.items[] | select(.revision | ascii_downcase | contains(\"a'\\''; rm -rf / #\\\"\"))'"
        );
    }
}
