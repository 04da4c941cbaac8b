//! One pipeline: what happened, who was notified, and what is observed now. Pure.

use maud::{Markup, html};

use crate::follow::rows::PipelineRow;
use crate::query::{Query, RANGES, Range};
use crate::read::destination::{APPLICATIONS, Deployed};
use crate::screens::approvals::Approval;
use crate::screens::findings;
use crate::screens::parts::{
    Tone, age, badge, clock, day, lasting, plural, revision, scroll, status_word, trouble, utc, with_code,
};
use crate::screens::table::{Named, audit_commands, deliveries};
use crate::screens::timeline::{Lane, Timeline, empty_words};
use crate::trouble::Trouble;
use relaybook_api::pipeline::TargetStatus;
use relaybook_api::promotion::Phase;
use relaybook_api::values::permalink;
use relaybook_api::{Promotion, Time};
use relaybook_tools::audit::Entry;

/// Number of deliveries in the table.
const NEWEST: usize = 50;
/// Minimum width of a bar with words, in percent.
const WORDS: f64 = 9.0;
/// Number of promotions in the table.
const PROMOTIONS: usize = 20;

/// The colours of states, for the legend of the timeline.
const STATES: [(Tone, &str); 5] = [
    (Tone::Good, "current"),
    (Tone::Busy, "in progress"),
    (Tone::Bad, "failed"),
    (Tone::Warn, "gone, terminating or unknown"),
    (Tone::Quiet, "not known"),
];

/// What the screen of a pipeline shows.
#[derive(Debug)]
pub(crate) struct PipelineView {
    pub(crate) row: PipelineRow,
    /// The targets: the environment, the name, what is observed, and when a receiver was last notified of it.
    pub(crate) targets: Vec<(String, String, Option<TargetStatus>, Option<Time>)>,
    /// The clusters that Applications of Argo CD deploy to.
    pub(crate) deployed: Deployed,
    pub(crate) timeline: Timeline,
    pub(crate) range: Range,
    /// The deliveries, the newest first.
    pub(crate) entries: Vec<Entry>,
    /// Whether there are more deliveries than were read.
    pub(crate) has_more: bool,
    /// Number of changes that no notification has read yet.
    pub(crate) unread: usize,
    /// The promotions, the newest first.
    pub(crate) promotions: Vec<Promotion>,
    pub(crate) troubles: Vec<Trouble>,
    /// The token of forms. `None`: the page only reads.
    pub(crate) form_token: Option<String>,
    /// The result of an approval that was just requested: what was done, or why nothing was.
    pub(crate) approved: Option<Result<String, String>>,
}

impl PipelineView {
    /// Returns the content of the page.
    pub(crate) fn html(&self, query: &Query, now: Time) -> Markup {
        let PipelineRow { namespace, name, app, .. } = &self.row;
        let path = permalink::pipeline(namespace, name);
        html! {
            h1 { "Pipeline " span.name { (namespace) "/" (name) } }
            p.lead {
                @if !app.is_empty() { "It follows " (app) ". " }
                @match &self.row.last_sent {
                    Some((time, by)) => { "The last message was sent " (age(*time, now)) @if !by.is_empty() { " by " (by) } "." },
                    None => "No message was sent yet.",
                }
            }
            @match &self.approved {
                Some(Ok(done)) => p.notice.good role="status" { (done) },
                Some(Err(why)) => p.notice.bad role="status" { (with_code(why)) },
                None => {},
            }
            @for finding in &self.row.findings(now) {
                @let link = self.row.notification_of(finding).map(|name| html! { a href=(permalink::notification(namespace, name)) { (name) } });
                (findings::notice(finding, link.as_ref()))
            }
            @for one in &self.troubles { (trouble(one)) }
            (self.history(query, &path, now))
            (self.observed(now))
            (self.promoted(now))
            section aria-labelledby="newest" {
                h2 #newest { "Newest deliveries" }
                @if self.entries.is_empty() { p.empty { "There are no deliveries of this pipeline." } }
                @else { (deliveries(&self.entries[..self.entries.len().min(NEWEST)], now, Named::Notification)) }
            }
            (audit_commands(&self.entries, namespace, &format!("--pipeline {name}")))
        }
    }

    fn history(&self, query: &Query, path: &str, now: Time) -> Markup {
        let is_empty = self
            .timeline
            .lanes
            .iter()
            .all(|lane| lane.bars.is_empty() && lane.lines.iter().all(|line| line.marks.is_empty()));
        let with = |range: &str| Query { range: range.to_owned(), from: None, to: None, ..query.clone() }.link(path);
        html! {
            section aria-labelledby="history" {
                h2 #history { "What happened, and who was notified" }
                ul.choices aria-label="Time range" {
                    @for (range, label) in RANGES {
                        @let is_chosen = query.range == range && query.from.is_none() && query.to.is_none();
                        li { a href=(with(range)) aria-current=[is_chosen.then_some("true")] { (label) } }
                    }
                }
                details.more open[query.from.is_some() || query.to.is_some()] {
                    summary { "Other times" }
                    form.filters action=(path) {
                        label { span { "From (UTC)" } input name="from" value=(query.from.map(|t| t.to_string()).unwrap_or_default()) placeholder=(self.timeline.from.to_string()); }
                        label { span { "To (UTC)" } input name="to" value=(query.to.map(|t| t.to_string()).unwrap_or_default()) placeholder=(self.timeline.to.to_string()); }
                        button { "Show" }
                    }
                }
                @if self.unread > 0 { p.notice { "In the change log: " (plural(self.unread, "change")) " that not every notification has read yet." } }
                @if is_empty { p.empty { (empty_words(self.range, now)) } }
                @else {
                    div.timeline role="group" aria-label=(format!("Timeline from {} to {}", utc(self.timeline.from), utc(self.timeline.to))) {
                        @for lane in &self.timeline.lanes { (draw(lane)) }
                        span.label.axis data-zone="" { "UTC" }
                        div.axis aria-hidden="true" {
                            @for tick in &self.timeline.ticks {
                                span { @if self.timeline.is_long { (day(*tick)) } @else { (clock(*tick)) } }
                            }
                        }
                    }
                    p.legend {
                        span.label { "States:" }
                        @for (tone, words) in STATES { span { i class=(tone.class()) {} " " (words) } }
                    }
                    p.legend {
                        span.label { "Messages:" }
                        span { b.good { "✓" } " delivered" } span { b.busy { "…" } " pending" } span { b.bad { "✕" } " parked" }
                        span { b.quiet { "»" } " superseded" } span { b.quiet { "–" } " canceled" } span { b.quiet { "○" } " not wanted" }
                    }
                }
                @if self.has_more { p.notice { "There are more deliveries than this page reads, in the order of their names. So some are missing here, also new ones." } }
            }
        }
    }

    fn observed(&self, now: Time) -> Markup {
        html! {
            section aria-labelledby="targets" {
                h2 #targets { "Targets" }
                @if self.targets.is_empty() { p.empty { "This pipeline has no targets. Its `targetsFrom` selects no object at present." } }
                @else {
                    (scroll("targets", &html! { table {
                            thead { tr {
                                th scope="col" { "Target" } th scope="col" { "State" } th scope="col" { "Revision" }
                                th scope="col" { "Since" } th scope="col" { "Message" } th scope="col" { "Last notified" }
                            } }
                            tbody {
                                @for (environment, name, status, notified) in &self.targets {
                                    (target((environment.as_str(), name.as_str()), self.deployed.to.get(name), status.as_ref(), *notified, now))
                                }
                            }
                        } }))
                }
                @if self.deployed.unread > 0 {
                    p.none {
                        "The destinations of " (plural(self.deployed.unread, "Application")) " were not read: this screen reads up to " (APPLICATIONS)
                        ", if you may get them."
                    }
                }
            }
        }
    }

    fn promoted(&self, now: Time) -> Markup {
        let approvals = Approval::of_unapproved(&self.row, &self.promotions);
        if self.promotions.is_empty() && approvals.is_empty() {
            return html! {};
        }
        html! {
            section aria-labelledby="promotions" {
                h2 #promotions { "Promotions" }
                @for one in &approvals {
                    div.notice.busy.approval {
                        span { "The promotion of " (revision(&one.revision)) " to " (one.environment) " has waited for an approval " (lasting(one.since, now)) "." }
                        (one.form(self.form_token.as_deref()))
                    }
                }
                @if !self.promotions.is_empty() {
                    (scroll("promotions", &html! { table {
                            thead { tr { th scope="col" { "To" } th scope="col" { "Revision" } th scope="col" { "Phase" } th scope="col" { "Message" } th scope="col" { "Since" } } }
                            tbody { @for one in self.promotions.iter().take(PROMOTIONS) { (promotion(one, now)) } }
                        } }))
                }
            }
        }
    }
}

fn target(
    (environment, name): (&str, &str),
    destination: Option<&String>,
    status: Option<&TargetStatus>,
    notified: Option<Time>,
    now: Time,
) -> Markup {
    let state = status.map(|status| status.status);
    html! {
        tr {
            th scope="row" {
                (name)
                @if !name.starts_with(environment) { span.sub { (environment) } }
                @if let Some(destination) = destination { span.sub { "deploys to " (destination) } }
            }
            td data-label="State" {
                (badge(Tone::of_status(state), status_word(state)))
                @if status.is_some_and(|status| status.drifted) { " " (badge(Tone::Warn, "Drifted")) }
            }
            td data-label="Revision" {
                @if let Some(status) = status {
                    (revision(&status.revision))
                    @if !status.attempted_revision.is_empty() && status.attempted_revision != status.revision {
                        span.sub { "tries " (revision(&status.attempted_revision)) }
                    }
                }
            }
            td data-label="Since" { @match status.and_then(|status| status.last_transition_time) { Some(since) => (lasting(since, now)), None => span.none { "—" } } }
            td data-label="Message" { @if let Some(status) = status { @if !status.reason.is_empty() { (status.reason) " " } span.message { (status.message) } } }
            td data-label="Last notified" { @match notified { Some(time) => (age(time, now)), None => span.none { "never" } } }
        }
    }
}

fn promotion(promotion: &Promotion, now: Time) -> Markup {
    let status = promotion.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    let tone = match phase {
        Phase::Finished => Tone::Good,
        Phase::Failed | Phase::Closed => Tone::Bad,
        Phase::Withdrawn => Tone::Quiet,
        Phase::Pending | Phase::Requested | Phase::Open | Phase::Merged => Tone::Busy,
    };
    let since = promotion.metadata.creation_timestamp.as_ref().map(|time| time.0);
    // A location comes from a forge. Only an address of the web becomes a link.
    let location = status.location.as_deref().filter(|url| url.starts_with("https://") || url.starts_with("http://"));
    html! {
        tr {
            th scope="row" { (promotion.spec.environment) span.sub { "from " (promotion.spec.from) } }
            td data-label="Revision" { (revision(&promotion.spec.revision)) }
            td data-label="Phase" { (badge(tone, phase.as_str())) }
            td data-label="Message" {
                @if !status.reason.is_empty() { span.sub { (status.reason) } }
                span.message { (with_code(&status.message)) }
                @if let Some(url) = location { " " a href=(url) rel="noreferrer noopener external" { "open" } }
            }
            td data-label="Since" { @match since { Some(since) => (age(since, now)), None => "—" } }
        }
    }
}

fn percent(value: f64) -> String {
    format!("{value:.2}%")
}

fn draw(lane: &Lane) -> Markup {
    html! {
        span.label.subject title=(lane.subject) { (lane.subject) }
        svg.bars width="100%" height="24" role="img" aria-label=(states(lane)) {
            rect.track x="0" y="3" width="100%" height="18" rx="3" {}
            @for bar in &lane.bars {
                svg x=(percent(bar.start)) y="3" width=(percent(bar.end - bar.start)) height="18" {
                    rect class=(bar.tone.class()) width="100%" height="18" rx="3" { title { (bar.title) } }
                    @if bar.end - bar.start > WORDS { text x="6" y="13" { (bar.words) } }
                }
            }
        }
        @for line in &lane.lines {
            span.label { (line.notification) }
            svg.marks width="100%" height="22" {
                line.track x1="0" x2="100%" y1="11" y2="11" {}
                @for mark in &line.marks {
                    @let shape = html! {
                        circle class=(mark.tone.class()) cx=(percent(mark.at)) cy="11" r=(if mark.link.is_some() { "8" } else { "4" }) {}
                        text x=(percent(mark.at)) y="15" text-anchor="middle" { (mark.sign) }
                        title { (mark.title) }
                    };
                    @match &mark.link {
                        Some(link) => a href=(link) aria-label=(mark.title) { (shape) },
                        None => g role="img" aria-label=(mark.title) { (shape) },
                    }
                }
            }
        }
    }
}

fn states(lane: &Lane) -> String {
    let words = lane.bars.iter().map(|bar| bar.words.trim()).collect::<Vec<_>>().join(", then ");
    if words.is_empty() { format!("{}: no state is known", lane.subject) } else { format!("{}: {words}", lane.subject) }
}
