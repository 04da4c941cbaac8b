//! The deliveries that were given up, by notification and reason. Pure.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::query::Query;
use crate::screens::parts::{Tone, age, badge, command, namespace_field, revision, scroll, trouble};
use crate::screens::table::{answer, more};
use crate::trouble::Trouble;
use relaybook_api::Time;
use relaybook_api::values::permalink;
use relaybook_tools::audit::Entry;

/// Number of deliveries on a page.
pub(crate) const ROWS: u32 = 100;

/// What the screen shows.
#[derive(Debug)]
pub(crate) struct GivenUp {
    pub(crate) entries: Vec<Entry>,
    /// The token of the next page.
    pub(crate) next: Option<String>,
    /// How many there are, as the notifications count them.
    pub(crate) total: Option<i64>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) form_token: Option<String>,
    /// What became of a redelivery that was just requested.
    pub(crate) resent: Option<Resent>,
}

/// The result of a request to send deliveries again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resent {
    pub(crate) requested: usize,
    /// Those that could not be requested, each with the reason.
    pub(crate) failed: Vec<(String, String)>,
}

type Group<'a> = ((&'a str, &'a str, &'a str), Vec<&'a Entry>);

impl GivenUp {
    fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: BTreeMap<_, Vec<&Entry>> = BTreeMap::new();
        for entry in &self.entries {
            let row = &entry.row;
            let home = entry.spec.pipeline_ref.namespace.as_str();
            let key = (home, row.notification.as_str(), row.reason.as_deref().unwrap_or("no reason"));
            groups.entry(key).or_default().push(entry);
        }
        groups.into_iter().collect()
    }

    /// Returns the content of the page.
    pub(crate) fn html(&self, query: &Query, now: Time) -> Markup {
        let groups = self.groups();
        html! {
            h1 { "Given up" }
            p.lead {
                "Deliveries that are not sent any more: the receiver refused them, they became too old, or they could not be rendered."
                @if let Some(total) = self.total { " " b { (total) } " are kept here." }
            }
            @for one in &self.troubles { (trouble(one)) }
            @if let Some(resent) = &self.resent { (result(resent)) }
            form.filters action="/given-up" { (namespace_field(query)) button { "Show" } }
            @if groups.is_empty() && self.troubles.is_empty() {
                @if query.after.is_some() { p.empty { "There are no more." } } @else { p.verdict.good { "Nothing was given up." } }
            }
            @if !groups.is_empty() { (self.form(&groups, query, now)) }
            (more(query, "/given-up", self.next.as_deref(), "Next 100"))
            (command(&format!("relaybook audit --outcome parked {}", query.scope())))
        }
    }

    fn form(&self, groups: &[Group<'_>], query: &Query, now: Time) -> Markup {
        let can_act = self.form_token.is_some();
        html! {
            form #resend.resend method="post" action="/given-up/resend" {
                @if let Some(token) = &self.form_token {
                    input type="hidden" name="token" value=(token);
                    input type="hidden" name="back" value=(query.link("/given-up"));
                    p.bar {
                        button { "Resend the selected" }
                        button.plain type="button" data-select="all" hidden { "Select all on this page" }
                        progress #progress hidden max="1" value="0" aria-label="Progress" {}
                        span #progress-words role="status" {}
                    }
                }
                @for ((namespace, notification, reason), entries) in groups {
                    section.group {
                        h2 {
                            a href=(permalink::notification(namespace, notification)) { (namespace) "/" (notification) }
                            " " (badge(Tone::Bad, reason)) " " span.none { (entries.len()) }
                        }
                        (scroll(&format!("{namespace}/{notification}, {reason}"), &html! { table {
                                thead { tr {
                                    @if can_act { th scope="col" { span.hidden { "Selected" } } }
                                    th scope="col" { "Delivery" } th scope="col" { "Revision" } th scope="col" { "Answer or error" } th scope="col" { "Given up" }
                                } }
                                tbody { @for entry in entries { (line(entry, can_act, now)) } }
                            } }))
                    }
                }
            }
        }
    }
}

fn line(entry: &Entry, can_act: bool, now: Time) -> Markup {
    let row = &entry.row;
    let id = format!("{}/{}", row.namespace, row.name);
    html! {
        tr {
            @if can_act {
                td.select { input type="checkbox" name="delivery" value=(id) aria-label=(format!("Select {} {}", row.type_.as_str(), row.subject)); }
            }
            th scope="row" { a href=(permalink::delivery(&row.namespace, &row.name)) { (row.type_.as_str()) " " (row.subject) } span.sub { (entry.spec.pipeline_ref.namespace) "/" (row.pipeline) } }
            td data-label="Revision" { (revision(&row.revision)) }
            td data-label="Answer or error" { (answer(row)) }
            td data-label="Given up" { @match row.last() { Some(last) => (age(last, now)), None => "—" } }
        }
    }
}

fn result(resent: &Resent) -> Markup {
    html! {
        @if resent.requested > 0 { p.notice.good role="status" data-requested=(resent.requested) { "Redeliveries requested: " (resent.requested) ". A delivery leaves this list when it is sent." } }
        @if resent.requested == 0 && resent.failed.is_empty() { p.notice role="status" { "Nothing was selected." } }
        @for (name, why) in &resent.failed { p.notice.bad role="status" { (name) ": " (why) } }
    }
}
