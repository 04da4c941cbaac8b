//! One delivery: what was sent, what the receiver answered, and what it waits for. Pure.

use maud::{Markup, html};

use crate::screens::parts::{age, command, figure, millis, moment, revision, scroll, status_word, trouble};
use crate::screens::table::{Named, deliveries, state, story_html};
use crate::trouble::Trouble;
use relaybook_api::pipeline::Recorded;
use relaybook_api::values::permalink;
use relaybook_api::{Outcome, State, Time};
use relaybook_tools::audit::Entry;
use relaybook_tools::preview::Preview;

/// What the screen of a delivery shows.
#[derive(Debug)]
pub(crate) struct DeliveryView {
    pub(crate) entry: Entry,
    /// The request as it would be rendered now.
    pub(crate) request: Result<Preview, Trouble>,
    /// The deliveries that must be settled before this one is sent, and whether there can be others. `None`: not known.
    pub(crate) before: Option<(Vec<Entry>, bool)>,
    pub(crate) troubles: Vec<Trouble>,
    /// The token of the form. `None`: the page only reads.
    pub(crate) form_token: Option<String>,
    /// Whether a redelivery was just requested.
    pub(crate) was_resent: bool,
}

impl DeliveryView {
    /// Returns the content of the page.
    pub(crate) fn html(&self, now: Time) -> Markup {
        let (row, spec) = (&self.entry.row, &self.entry.spec);
        html! {
            h1 { "Delivery " span.name { (row.kind()) " " (row.subject) } }
            p.lead {
                (state(row)) " "
                span.story { (story_html(row, now)) }
            }
            @if self.was_resent { p.notice.good role="status" { "A redelivery was requested. It is sent with the same webhook-id." } }
            @for one in &self.troubles { (trouble(one)) }
            dl.figures.wide {
                (figure("Pipeline", &html! { a href=(permalink::pipeline(&spec.pipeline_ref.namespace, &spec.pipeline_ref.name)) { (spec.pipeline_ref.namespace) "/" (spec.pipeline_ref.name) } }))
                (figure("Notification", &html! { a href=(permalink::notification(&spec.pipeline_ref.namespace, &row.notification)) { (row.notification) } }))
                (figure("Observed", &moment(spec.time)))
                (figure("From", &html! { (side(&spec.from)) }))
                (figure("To", &html! { (side(&spec.to)) }))
                @if let Some(recorded) = row.recorded { (figure("Recorded", &moment(recorded))) }
            }
            @if !spec.to.message.is_empty() { p { span.label { "Message" } " " span.message { (spec.to.message) } } }
            @if let Some(recorded) = spec.to.recorded.as_deref() { (of_object(recorded)) }
            @if let Some(error) = &spec.error { p.notice.bad { "The condition of the trigger could not be evaluated: " (error) } }
            (self.attempts(now))
            (self.waiting(now))
            (self.request())
            (self.resend())
            (command(&format!("kubectl get delivery -n {} {} -o yaml", row.namespace, row.name)))
        }
    }

    fn attempts(&self, now: Time) -> Markup {
        let row = &self.entry.row;
        html! {
            section aria-labelledby="attempts" {
                h2 #attempts { "Attempts" }
                @if row.attempts == 0 { p.empty { @match row.outcome {
                        None => "No request was made yet.",
                        Some(Outcome::Parked) => "No request was made before it was parked.",
                        Some(_) => "No request was made.",
                    } } }
                @else {
                    @if row.attempts > 1 { p { "Requests that were made: " (row.attempts) ". Only the last one is kept in full." } }
                    (scroll("attempts", &html! { table {
                            thead { tr { th scope="col" { "Attempt" } th scope="col" { "Started" } th scope="col" { "Code" } th scope="col" { "Duration" } th scope="col" { "Answer or error" } } }
                            tbody {
                                tr {
                                    th scope="row" { "No. " (row.attempts) }
                                    td data-label="Started" { @match row.last_attempt { Some(time) => (moment(time)), None => "—" } }
                                    td.number data-label="Code" { @match row.code { Some(code) => (code), None => "—" } }
                                    td.number data-label="Duration" { @match row.duration_millis { Some(took) => (millis(took)), None => "—" } }
                                    td data-label="Answer or error" {
                                        @if let Some(error) = &row.error { span.message { (error) } " " }
                                        @if let Some(response) = row.response.as_deref().filter(|text| !text.is_empty()) { pre.answer { (response) } }
                                        @if row.error.is_none() && row.response.as_deref().is_none_or(str::is_empty) { span.none { "empty" } }
                                    }
                                }
                            }
                        } }))
                }
                @if let Some(next) = row.next_attempt.filter(|_| row.outcome.is_none()) { p { "The next attempt is at " (moment(next)) ", " (age(next, now)) "." } }
                @if let Some(settled) = row.settled { p { "It was settled at " (moment(settled)) "." } }
                @if row.superseded > 0 { p { "Earlier deliveries about the same subject that it replaces: " (row.superseded) "." } }
            }
        }
    }

    fn waiting(&self, now: Time) -> Markup {
        html! {
            @if self.entry.row.outcome.is_none() {
                section aria-labelledby="before" {
                    h2 #before { "Before it in its lane" }
                    @match &self.before {
                        _ if self.entry.again => p.empty { "Nothing: it is sent again, and does not wait for others." },
                        None => p.empty { "Not known: the pending deliveries could not all be read." },
                        Some((before, true)) if before.is_empty() => p.empty { "Not known: there are too many pending deliveries to read." },
                        Some((before, _)) if before.is_empty() => p.empty { "Nothing: it is the first of its lane, " code { (self.entry.spec.lane) } "." },
                        Some((before, has_more)) => {
                            p { "It is sent after these are settled" @if *has_more { ", and there can be others that were not read" } ":" }
                            (deliveries(before, now, Named::Nothing))
                        },
                    }
                }
            }
        }
    }

    fn request(&self) -> Markup {
        html! {
            section aria-labelledby="request" {
                h2 #request { "The request" }
                @match &self.request {
                    Ok(preview) => {
                        p.none { "As it is rendered with the present settings. Possible credentials are masked, and the request itself is not stored." }
                        pre.request tabindex="0" { (preview.text()) }
                    },
                    Err(why) => (trouble(why)),
                }
            }
        }
    }

    fn resend(&self) -> Markup {
        let row = &self.entry.row;
        let Some(token) = self.form_token.as_ref().filter(|_| row.outcome.is_some()) else { return html! {} };
        html! {
            form.action method="post" action=(format!("{}/resend", permalink::delivery(&row.namespace, &row.name))) {
                input type="hidden" name="token" value=(token);
                button { "Resend" }
                span.none { "with the same webhook-id, and with your permissions" }
            }
        }
    }
}

/// What was recorded of the application object.
fn of_object(recorded: &Recorded) -> Markup {
    let Recorded { labels, annotations, fields, cut } = recorded;
    html! {
        p {
            span.label { "Application object" }
            @for (name, value) in labels.iter().chain(annotations).chain(fields) { " " span.message { (name) ": " (value) } }
            @if *cut { " " span.none { "A value is missing: it is too long, or the object was not seen." } }
        }
    }
}

fn side(state: &State) -> Markup {
    html! { (status_word(Some(state.status))) " " (revision(&state.revision)) @if state.drifted { " drifted" } }
}
