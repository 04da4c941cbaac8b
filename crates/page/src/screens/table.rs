//! Tables of deliveries, and links to the other pages of a list. Pure.

use maud::{Markup, html};

use relaybook_text::cut_chars;

use crate::query::Query;
use crate::screens::parts::{Tone, age, age_words, badge, command, moment, outcome_words, revision, scroll, utc};
use relaybook_api::Time;
use relaybook_api::delivery::PIPELINE_NAMESPACE;
use relaybook_api::values::permalink;
use relaybook_tools::audit::{Entry, Row};

/// Maximum number of characters of an answer in a table.
const ANSWER: usize = 120;

/// Links to the other pages of a list whose length is known.
pub(crate) fn pages(query: &Query, path: &str, size: usize, total: usize) -> Markup {
    let last = total.saturating_sub(1) / size;
    if last == 0 && query.page == 0 {
        return html! {};
    }
    let to = |page: usize| Query { page, ..query.clone() }.link(path);
    let first = query.page * size + 1;
    html! {
        nav.pages aria-label="Pages" {
            @if query.page > 0 { a rel="prev" href=(to(query.page.min(last + 1) - 1)) { "Previous" } }
            span { @if first <= total { (first) "–" (total.min(first + size - 1)) " of " (total) } @else { "There are only " (last + 1) " pages" } }
            @if query.page < last { a rel="next" href=(to(query.page + 1)) { "Next" } }
        }
    }
}

/// A link to the next page of a list of the API server.
pub(crate) fn more(query: &Query, path: &str, next: Option<&str>, words: &str) -> Markup {
    let first = Query { after: None, ..query.clone() }.link(path);
    html! {
        @if next.is_some() || query.after.is_some() {
            nav.pages aria-label="Pages" {
                @if query.after.is_some() { a href=(first) { "First page" } }
                @if let Some(next) = next {
                    a rel="next" href=(Query { after: Some(next.to_owned()), ..query.clone() }.link(path)) { (words) }
                }
            }
        }
    }
}

/// Returns why a delivery waits or how it ended, in one sentence part, such as `waits until 12:31 because of 401 Unauthorized`.
pub(crate) fn story(row: &Row, now: Time) -> String {
    let because = row.error.as_deref().or(row.reason.as_deref()).filter(|text| !text.is_empty());
    match (row.outcome, row.next_attempt) {
        (None, Some(next)) if row.attempts > 0 => {
            let until = if next > now {
                format!("waits until {} ({})", utc(next), age_words(next, now))
            } else {
                "is due now".to_owned()
            };
            because.map_or_else(|| until.clone(), |because| format!("{until} because of {because}"))
        }
        (None, _) if row.attempts == 0 => {
            because.map_or_else(|| "waits to be sent".to_owned(), |because| format!("waits: {because}"))
        }
        (None, _) => {
            because.map_or_else(|| "waits for its answer".to_owned(), |because| format!("waits because of {because}"))
        }
        (Some(_), _) => because.map_or_else(String::new, str::to_owned),
    }
}

/// The same for a page, with times that the script can show in the zone of the reader.
pub(crate) fn story_html(row: &Row, now: Time) -> Markup {
    let because = row.error.as_deref().or(row.reason.as_deref()).filter(|text| !text.is_empty());
    let next = row.next_attempt.filter(|next| row.outcome.is_none() && row.attempts > 0 && *next > now);
    html! {
        @if let Some(next) = next {
            "waits until " (moment(next)) ", " (age(next, now))
            @if let Some(because) = because { ", because of " (because) }
        } @else {
            (story(row, now))
        }
    }
}

/// The state of a delivery as a badge.
pub(crate) fn state(row: &Row) -> Markup {
    badge(Tone::of_outcome(row.outcome, row.attempts > 0 && row.error.is_some()), outcome_words(row.outcome))
}

/// What a table of deliveries names besides their subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// Nothing: all have the same pipeline and notification.
    Nothing,
    /// The notification.
    Notification,
    /// The pipeline.
    Pipeline,
    /// The pipeline and the notification.
    Both,
}

/// A table of deliveries.
pub(crate) fn deliveries(entries: &[Entry], now: Time, named: Named) -> Markup {
    let with_notification = matches!(named, Named::Notification | Named::Both);
    html! {
        (scroll("deliveries", &html! { table {
                thead {
                    tr {
                        th scope="col" { "Delivery" }
                        @if with_notification { th scope="col" { "Notification" } }
                        th scope="col" { "State" }
                        th scope="col" { "Revision" }
                        th scope="col" { "Answer" }
                        th scope="col" { "Attempts" }
                        th scope="col" { "Last event" }
                    }
                }
                tbody { @for entry in entries { (line(entry, now, named)) } }
            } }))
    }
}

fn line(entry: &Entry, now: Time, named: Named) -> Markup {
    let (row, home) = (&entry.row, entry.spec.pipeline_ref.namespace.as_str());
    html! {
        tr {
            th scope="row" {
                a href=(permalink::delivery(&row.namespace, &row.name)) { (row.type_.as_str()) " " (row.subject) }
                @if matches!(named, Named::Pipeline | Named::Both) { span.sub { (home) "/" (row.pipeline) } }
            }
            @if matches!(named, Named::Notification | Named::Both) {
                td data-label="Notification" { a href=(permalink::notification(home, &row.notification)) { (row.notification) } }
            }
            td data-label="State" { (state(row)) @if row.outcome.is_none() { span.sub { (story_html(row, now)) } } }
            td data-label="Revision" { (revision(&row.revision)) }
            td data-label="Answer" { (answer(row)) }
            td.number data-label="Attempts" { (row.attempts) }
            td data-label="Last event" { @match row.last() { Some(last) => (age(last, now)), None => "—" } }
        }
    }
}

/// The commands that list these deliveries. Those whose URL is set in the global configuration are in another namespace.
pub(crate) fn audit_commands(entries: &[Entry], namespace: &str, filter: &str) -> Markup {
    let elsewhere = entries.iter().map(|entry| entry.row.namespace.as_str()).find(|other| *other != namespace);
    html! {
        (command(&format!("relaybook audit -n {namespace} {filter}")))
        @if let Some(elsewhere) = elsewhere {
            (command(&format!("relaybook audit -n {elsewhere} -l {PIPELINE_NAMESPACE}={namespace} {filter}")))
        }
    }
}

/// The answer of the receiver, or the error, cut for a table.
pub(crate) fn answer(row: &Row) -> Markup {
    let text = row.answer.as_deref().or(row.error.as_deref()).unwrap_or_default();
    html! {
        @if text.is_empty() { span.none { "—" } } @else { span.message title=(text) { (cut_chars(text, ANSWER)) } }
    }
}
