//! The deliveries that are pending, and those that were parked: by notification and reason. Pure.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::follow::rows::NotificationRow;
use crate::query::{Query, Screen};
use crate::screens::parts::{Tone, age, badge, command, lasting, namespace_field, revision, scroll, trouble};
use crate::screens::table::{answer, more};
use crate::trouble::Trouble;
use relaybook_api::values::permalink;
use relaybook_api::{Outcome, Time};
use relaybook_tools::audit::{Entry, StateFilter};

/// Number of deliveries on a page.
pub(crate) const ROWS: u32 = 100;

/// Which deliveries the screen shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those that are pending.
    Pending,
    /// Those that were parked.
    Parked,
}

/// What the screen shows.
#[derive(Debug)]
pub(crate) struct Undelivered {
    pub(crate) which: Which,
    pub(crate) entries: Vec<Entry>,
    /// The token of the next page.
    pub(crate) next: Option<String>,
    /// How many there are. `None`: not known.
    pub(crate) total: Option<Total>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) form_token: Option<String>,
    /// What became of a redelivery that was just requested.
    pub(crate) resent: Option<Resent>,
}

/// How many deliveries there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Total {
    count: i64,
    /// Whether all of them were listed. The notifications do not count all, and their numbers follow some time later.
    is_exact: bool,
}

impl Total {
    /// Returns the number of those that were listed if these are all, or what the notifications count.
    pub(crate) fn of(listed: i64, is_all: bool, counted: Option<i64>) -> Option<Self> {
        let count = if is_all { Some(listed) } else { counted.map(|counted| counted.max(listed)) };
        count.map(|count| Self { count, is_exact: is_all })
    }
}

/// The result of a request to send deliveries again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resent {
    pub(crate) requested: usize,
    /// Those that could not be requested, each with the reason.
    pub(crate) failed: Vec<(String, String)>,
}

impl Which {
    /// Returns the state of the deliveries.
    pub(crate) const fn state(self) -> StateFilter {
        match self {
            Self::Pending => StateFilter::Pending,
            Self::Parked => StateFilter::Settled(Outcome::Parked),
        }
    }

    /// Returns how many a notification has.
    pub(crate) fn count(self, row: &NotificationRow) -> i64 {
        match self {
            Self::Pending => row.pending,
            Self::Parked => row.parked,
        }
    }

    fn path(self) -> String {
        let screen = match self {
            Self::Pending => Screen::Pending,
            Self::Parked => Screen::Parked,
        };
        screen.path()
    }

    /// Returns the heading, what the deliveries are, and the words for none.
    const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Pending => (
                "Pending",
                "Deliveries that are not settled: they wait for their turn, for an answer, or for the next attempt after an error.",
                "No delivery is pending.",
            ),
            Self::Parked => (
                "Parked",
                "Deliveries that are not sent any more: the receiver refused them, they became too old, or they could not be rendered.",
                "No delivery is parked.",
            ),
        }
    }

    /// Returns why a delivery is in the list.
    fn reason(self, entry: &Entry) -> &str {
        let row = &entry.row;
        match (row.reason.as_deref().filter(|reason| !reason.is_empty()), self) {
            (Some(reason), _) => reason,
            (None, Self::Parked) => "no reason",
            (None, Self::Pending) if entry.again => "sent again",
            (None, Self::Pending) if row.attempts == 0 => "not sent yet",
            (None, Self::Pending) if row.answer.is_none() && row.error.is_none() => "no answer yet",
            (None, Self::Pending) => "no new answer yet",
        }
    }
}

/// The namespace of the pipeline, the notification and the reason, and the deliveries.
type Group<'a> = ((&'a str, &'a str, &'a str), Vec<&'a Entry>);

impl Undelivered {
    fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: BTreeMap<_, Vec<&Entry>> = BTreeMap::new();
        for entry in &self.entries {
            let home = entry.spec.pipeline_ref.namespace.as_str();
            let key = (home, entry.row.notification.as_str(), self.which.reason(entry));
            groups.entry(key).or_default().push(entry);
        }
        groups.into_iter().collect()
    }

    /// Returns the content of the page.
    pub(crate) fn html(&self, query: &Query, now: Time) -> Markup {
        let (groups, path) = (self.groups(), self.which.path());
        let (heading, lead, none) = self.which.words();
        html! {
            h1 { (heading) }
            p.lead {
                (lead)
                @if let Some(total) = self.total { " Kept here: " @if !total.is_exact { "about " } b { (total.count) } "." }
            }
            @for one in &self.troubles { (trouble(one)) }
            @if let Some(resent) = &self.resent { (result(resent)) }
            form.filters action=(path) { (namespace_field(query)) button { "Show" } }
            @if groups.is_empty() && self.troubles.is_empty() {
                @if query.after.is_some() { p.empty { "There are no more." } } @else { p.verdict.good { (none) } }
            }
            @match self.which {
                Which::Parked if !groups.is_empty() => (self.form(&groups, query, now)),
                _ => @for group in &groups { (self.group(group, now)) },
            }
            (more(query, &path, self.next.as_deref(), "Next 100"))
            (command(&format!("relaybook audit --outcome {} {}", self.which.state().as_str().to_lowercase(), query.scope())))
        }
    }

    fn form(&self, groups: &[Group<'_>], query: &Query, now: Time) -> Markup {
        html! {
            form #resend.resend method="post" action="/parked/resend" {
                @if let Some(token) = &self.form_token {
                    input type="hidden" name="token" value=(token);
                    input type="hidden" name="back" value=(query.link("/parked"));
                    p.bar {
                        button { "Resend the selected" }
                        button.plain type="button" data-select="all" hidden { "Select all on this page" }
                        progress #progress hidden max="1" value="0" aria-label="Progress" {}
                        span #progress-words role="status" {}
                    }
                }
                @for group in groups { (self.group(group, now)) }
            }
        }
    }

    fn group(&self, ((namespace, notification, reason), entries): &Group<'_>, now: Time) -> Markup {
        let can_act = self.which == Which::Parked && self.form_token.is_some();
        let tone = if self.which == Which::Parked { Tone::Bad } else { Tone::Warn };
        html! {
            section.group {
                h2 {
                    a href=(permalink::notification(namespace, notification)) { (namespace) "/" (notification) }
                    " " (badge(tone, reason)) " " span.none { (entries.len()) }
                }
                (scroll(&format!("{namespace}/{notification}, {reason}"), &html! { table {
                        thead { tr {
                            @if can_act { th scope="col" { span.hidden { "Selected" } } }
                            th scope="col" { "Delivery" } th scope="col" { "Revision" } th scope="col" { "Answer or error" }
                            @match self.which {
                                Which::Parked => th scope="col" { "Parked" },
                                Which::Pending => {
                                    th scope="col" { "Attempts" } th scope="col" { "Since" } th scope="col" { "Next attempt" }
                                },
                            }
                        } }
                        tbody { @for entry in entries { (line(entry, self.which, can_act, now)) } }
                    } }))
            }
        }
    }
}

fn line(entry: &Entry, which: Which, can_act: bool, now: Time) -> Markup {
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
            @match which {
                Which::Parked => td data-label="Parked" { @match row.last() { Some(last) => (age(last, now)), None => "—" } },
                Which::Pending => {
                    td.number data-label="Attempts" { (row.attempts) }
                    // The record of a redelivery is older than the time since when it waits.
                    td data-label="Since" {
                        @match row.recorded {
                            _ if entry.again => span.none { "its redelivery" },
                            Some(since) => (lasting(since, now)),
                            None => "—",
                        }
                    }
                    td data-label="Next attempt" { @match row.next_attempt { Some(next) => (age(next, now)), None => span.none { "not planned" } } }
                },
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::delivery::Redelivered;
    use relaybook_api::{Delivery, DeliveryStatus};

    fn entry(status: DeliveryStatus) -> Entry {
        let mut delivery = Delivery::new("d1", relaybook_api::testing::spec(1));
        delivery.metadata.namespace = Some("team-a".to_owned());
        delivery.status = Some(status);
        Entry::from(delivery)
    }

    #[test]
    fn a_number_is_exact_only_if_everything_was_listed() {
        for (listed, is_all, counted, expected) in [
            (3, true, Some(5), Some((3, true))),
            (3, true, None, Some((3, true))),
            (100, false, Some(250), Some((250, false))),
            (100, false, Some(90), Some((100, false))),
            (100, false, None, None),
        ] {
            let total = Total::of(listed, is_all, counted).map(|total| (total.count, total.is_exact));
            assert_eq!(total, expected, "{listed} {is_all} {counted:?}");
        }
    }

    #[test]
    fn a_delivery_that_waits_has_a_reason_that_fits_its_answer() {
        let sent = DeliveryStatus { attempts: 1, ..DeliveryStatus::default() };
        let answered = DeliveryStatus { status_code: Some(500), ..sent.clone() };
        let redelivered = Some(Redelivered { value: "1".to_owned(), time: Time::from_second(90).unwrap() });
        let again = DeliveryStatus { redelivered, ..answered.clone() };
        let reason = Some("Waits".to_owned());
        for (status, words) in [
            (DeliveryStatus::default(), "not sent yet"),
            (sent.clone(), "no answer yet"),
            (DeliveryStatus { error: Some("timeout".to_owned()), ..sent }, "no new answer yet"),
            (answered, "no new answer yet"),
            (again.clone(), "sent again"),
            (DeliveryStatus { reason, ..again }, "Waits"),
        ] {
            let has_been_sent_again = status.redelivered.is_some();
            let entry = entry(status);
            assert_eq!(Which::Pending.reason(&entry), words);
            let html = line(&entry, Which::Pending, false, Time::from_second(100).unwrap()).into_string();
            assert_eq!(html.contains("its redelivery"), has_been_sent_again, "{html}");
        }
    }

    #[test]
    fn each_list_has_its_columns_and_only_what_was_parked_is_sent_again() {
        let now = Time::from_second(100).unwrap();
        let next = DeliveryStatus {
            attempts: 2,
            next_attempt_time: Some(Time::from_second(160).unwrap()),
            ..DeliveryStatus::default()
        };
        let refused = DeliveryStatus {
            outcome: Some(Outcome::Parked),
            reason: Some("ReceiverRejected".to_owned()),
            ..DeliveryStatus::default()
        };
        for (which, status, words, command, has_form) in [
            (Which::Pending, DeliveryStatus::default(), "not sent yet", "audit --outcome pending -A", false),
            (Which::Pending, next, "in 1 min", "audit --outcome pending -A", false),
            (Which::Parked, refused, "ReceiverRejected", "audit --outcome parked -A", true),
        ] {
            let form_token = Some("t".to_owned());
            let entries = vec![entry(status)];
            let view =
                Undelivered { which, entries, next: None, total: None, troubles: Vec::new(), form_token, resent: None };
            let html = view.html(&Query::default(), now).into_string();
            assert!(html.contains(words) && html.contains(command), "{html}");
            assert_eq!(html.contains("Resend the selected"), has_form, "{html}");
            assert_eq!(html.contains("Next attempt"), !has_form, "{html}");
        }
    }
}
