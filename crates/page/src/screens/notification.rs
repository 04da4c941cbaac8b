//! One notification: whether it works, what it covers, and how it is set. Pure.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::Value;

use crate::follow::rows::NotificationRow;
use crate::screens::chart::{COLUMNS, Column, Figures, success};
use crate::screens::findings;
use crate::screens::parts::{age, figure, millis, plural, scroll, trouble, utc};
use crate::screens::table::{Named, audit_commands, deliveries};
use crate::trouble::Trouble;
use relaybook_api::conditions::{ConditionStatus, READY};
use relaybook_api::values::permalink;
use relaybook_api::{Outcome, Time};
use relaybook_tools::audit::{Entry, Row};
use relaybook_tools::diagnosis::of_pending;
use relaybook_tools::preview::Explained;

/// Number of deliveries in the table.
const NEWEST: usize = 20;
/// Number of pipelines that are named.
const PIPELINES: usize = 50;

/// What the screen of a notification shows.
#[derive(Debug)]
pub(crate) struct NotificationView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The object, if there is one.
    pub(crate) row: Option<NotificationRow>,
    /// Whether the notification is in the global configuration, or applies to a pipeline.
    pub(crate) is_layered: bool,
    /// Deliveries, the newest first.
    pub(crate) entries: Vec<Entry>,
    /// Whether there are more deliveries than were read.
    pub(crate) has_more: bool,
    pub(crate) columns: Vec<Column>,
    /// The pipelines that it applies to, by namespace and name, each with its number of targets.
    pub(crate) pipelines: Vec<(String, String, usize)>,
    /// The pipeline whose settings are shown, and its settings for each group of targets.
    pub(crate) explained: Option<(String, Vec<Explained>)>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) form_token: Option<String>,
    /// The result of a test that was just sent.
    pub(crate) tested: Option<(bool, String)>,
}

impl NotificationView {
    /// Returns what is wrong with it, or that nothing is.
    fn verdict(&self, now: Time) -> Markup {
        let Some(row) = &self.row else { return self.verdict_without_object(now) };
        let findings = row.findings(now);
        let is_ready = row.condition(READY).is_some_and(|ready| ready.status == ConditionStatus::True);
        html! {
            @for finding in &findings { (findings::notice(finding, None)) }
            @if findings.is_empty() && is_ready {
                p.verdict.good { "It works: it is valid, and no delivery waits because of an error." }
            } @else if findings.is_empty() {
                p.verdict { "It is not in use yet." @if let Some(ready) = row.condition(READY) { " " (ready.message) } }
            }
        }
    }

    /// Without an object there is no status. So only the deliveries that were read can say whether it works. If some could not be read, nothing
    /// says that it does.
    fn verdict_without_object(&self, now: Time) -> Markup {
        if !self.is_layered {
            return html! { p.verdict.bad { "There is no such notification here, or it does not apply to a pipeline any more. These are the deliveries that are kept." } };
        }
        let rows = || self.entries.iter().map(|entry| &entry.row);
        let parked = rows().filter(|row| row.outcome == Some(Outcome::Parked)).count();
        let pending: Vec<Row> = rows().filter(|row| row.outcome.is_none()).cloned().collect();
        let findings = of_pending(&pending, now);
        let is_known = self.troubles.is_empty() && !self.has_more;
        let class = match (parked == 0 && findings.is_empty(), is_known) {
            (false, _) => "verdict bad",
            (true, true) => "verdict good",
            (true, false) => "verdict",
        };
        html! {
            p class=(class) {
                "This is not a Notification object: it is defined in the global configuration, or in layers of pipelines."
                @if parked > 0 { " Parked: " (parked) "." }
                @if !is_known { " Not everything could be read, so problems can be missing here." }
            }
            @for finding in &findings { (findings::notice(finding, None)) }
        }
    }

    /// Returns the content of the page.
    pub(crate) fn html(&self, now: Time) -> Markup {
        let rows = self.entries.iter().map(|entry| &entry.row);
        let figures = Figures::of(rows);
        html! {
            h1 { "Notification " span.name { (self.namespace) "/" (self.name) } }
            (self.verdict(now))
            @if let Some((accepted, words)) = &self.tested {
                p class=(if *accepted { "notice good" } else { "notice bad" }) role="status" { "Test " (words) }
            }
            @for one in &self.troubles { (trouble(one)) }
            (self.figures(&figures, now))
            (self.over_time())
            (self.covered())
            (self.test())
            (self.settings())
            section aria-labelledby="newest" {
                h2 #newest { "Newest deliveries" }
                @if self.entries.is_empty() { p.empty { "There are no deliveries of this notification." } }
                @else { (deliveries(&self.entries[..self.entries.len().min(NEWEST)], now, Named::Pipeline)) }
            }
            (audit_commands(&self.entries, &self.namespace, &format!("--notification {}", self.name)))
        }
    }

    fn figures(&self, figures: &Figures, now: Time) -> Markup {
        let count = |number: i64| usize::try_from(number).unwrap_or(0);
        let (pending, delivered, parked) = match &self.row {
            Some(row) => (count(row.pending), count(row.delivered), count(row.parked)),
            None => (figures.pending, figures.delivered, figures.parked),
        };
        let took = |percent| {
            figures.percentile(percent).map_or_else(|| html! { span.none { "—" } }, |took| html! { (millis(took)) })
        };
        html! {
            dl.figures {
                (figure("Success rate", &html! { (success(delivered, parked).unwrap_or_else(|| "—".to_owned())) }))
                (figure("Delivered", &html! { (delivered) }))
                (figure("Pending", &html! { (pending) }))
                (figure("Parked", &html! { (parked) }))
                (figure("p50", &took(50)))
                (figure("p99", &took(99)))
                @if let Some(last) = self.row.as_ref().and_then(|row| row.last_sent) { (figure("Last sent", &age(last, now))) }
            }
            p.none {
                "The counts are those of the deliveries that are kept. p50 and p99 are the durations of the last requests of "
                (self.entries.len()) " deliveries" @if self.has_more { ": the first of the list, by name" } "."
            }
        }
    }

    fn over_time(&self) -> Markup {
        let most = self.columns.iter().map(|column| column.delivered + column.parked).max().unwrap_or(0);
        let slowest = self.columns.iter().filter_map(|column| column.percentile(99)).max().unwrap_or(0);
        let (Some(first), Some(last)) = (self.columns.first(), self.columns.last()) else { return html! {} };
        html! {
            section aria-labelledby="time" {
                h2 #time { "Over time" }
                div.charts {
                    figure {
                        figcaption { "Delivered and parked, at most " (most) " in a column" }
                        (bars(&self.columns, most))
                    }
                    figure {
                        figcaption { "p50 and p99 of the requests, at most " (millis(slowest)) }
                        (latencies(&self.columns, slowest))
                    }
                }
                p.none { "From " (utc(first.start)) " to " (utc(last.end)) "." }
            }
        }
    }

    fn covered(&self) -> Markup {
        let targets: usize = self.pipelines.iter().map(|(_, _, targets)| targets).sum();
        html! {
            section aria-labelledby="covered" {
                h2 #covered { "What it covers" }
                @if self.pipelines.is_empty() { p.empty { "It applies to no pipeline that you can see." } }
                @else {
                    p { (plural(self.pipelines.len(), "pipeline")) " with " (plural(targets, "target")) ":" }
                    ul.inline {
                        @for (namespace, name, targets) in self.pipelines.iter().take(PIPELINES) {
                            li { a href=(permalink::pipeline(namespace, name)) { (name) } " " span.none { (targets) } }
                        }
                        @if self.pipelines.len() > PIPELINES { li.none { "and " (self.pipelines.len() - PIPELINES) " more" } }
                    }
                }
            }
        }
    }

    fn test(&self) -> Markup {
        let Some(token) = self.form_token.as_ref().filter(|_| !self.pipelines.is_empty()) else { return html! {} };
        html! {
            form.action method="post" action=(format!("{}/test", permalink::notification(&self.namespace, &self.name))) {
                input type="hidden" name="token" value=(token);
                label { span { "Pipeline" }
                    select name="pipeline" {
                        @for (namespace, name, _) in self.pipelines.iter().take(PIPELINES) { option value=(format!("{namespace}/{name}")) { (name) } }
                    }
                }
                button { "Send test" }
                span.none { "to the real receiver, by the controller. If the receiver cannot see that it is a test, you are asked first" }
            }
        }
    }

    fn settings(&self) -> Markup {
        let Some((pipeline, groups)) = &self.explained else { return html! {} };
        html! {
            section aria-labelledby="settings" {
                h2 #settings { "Effective settings" }
                p.none { "For pipeline " (pipeline) ", with the layer that sets each field." }
                @for group in groups {
                    details.more open[groups.len() == 1] {
                        summary { (group.targets.iter().chain(&group.subjects).map(String::as_str).collect::<Vec<_>>().join(", ")) }
                        @if let Some(problem) = &group.problem { p.notice.bad { (problem.reason) ": " (problem.message) } }
                        (scroll("effective settings", &html! { table.settings {
                                thead { tr { th scope="col" { "Field" } th scope="col" { "Value" } th scope="col" { "Set by" } } }
                                tbody {
                                    @for (field, value) in fields(group) {
                                        tr { th scope="row" { code { (field) } } td data-label="Value" { code.value { (value) } } td data-label="Set by" { (group.fields.get(&pointer(&field)).map_or("", String::as_str)) } }
                                    }
                                }
                            } }))
                    }
                }
            }
        }
    }
}

/// Returns the fields of the effective settings that a layer sets as a whole, with their values as JSON.
fn fields(group: &Explained) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    collect(&Value::Object(group.spec.clone()), "", &group.fields, &mut fields);
    fields
}

fn collect(value: &Value, at: &str, authors: &BTreeMap<String, String>, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) if !map.is_empty() && !authors.contains_key(at) => {
            for (name, value) in map {
                collect(value, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), authors, fields);
            }
        }
        Value::String(text) => drop(fields.insert(at.trim_start_matches('/').to_owned(), text.clone())),
        value => drop(fields.insert(at.trim_start_matches('/').to_owned(), value.to_string())),
    }
}

fn pointer(field: &str) -> String {
    format!("/{field}")
}

/// Returns the left edge and the width of a column, in percent.
#[expect(clippy::cast_precision_loss, reason = "a position on a screen")]
fn edges(index: usize) -> (f64, f64) {
    let width = 100.0 / COLUMNS as f64;
    (index as f64 * width, width)
}

/// Returns the height of a value in a chart of 80 pixels.
#[expect(clippy::cast_precision_loss, reason = "a position on a screen")]
fn height(value: i64, most: i64) -> f64 {
    if most == 0 { 0.0 } else { value as f64 * 80.0 / most as f64 }
}

fn bars(columns: &[Column], most: usize) -> Markup {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    html! {
        svg.chart width="100%" height="84" role="img" aria-label="Delivered and parked over time" {
            line.track x1="0" x2="100%" y1="82" y2="82" {}
            @for (index, column) in columns.iter().enumerate() {
                @let (left, width) = edges(index);
                @let (good, bad) = (height(number(column.delivered), number(most)), height(number(column.parked), number(most)));
                g {
                    title { (utc(column.start)) ": " (column.delivered) " delivered, " (column.parked) " parked" }
                    rect.good x=(format!("{:.2}%", left + width * 0.1)) width=(format!("{:.2}%", width * 0.8)) y=(format!("{:.1}", 82.0 - good)) height=(format!("{good:.1}")) {}
                    rect.bad x=(format!("{:.2}%", left + width * 0.1)) width=(format!("{:.2}%", width * 0.8)) y=(format!("{:.1}", 82.0 - good - bad)) height=(format!("{bad:.1}")) {}
                }
            }
        }
    }
}

fn latencies(columns: &[Column], slowest: i64) -> Markup {
    html! {
        svg.chart width="100%" height="84" role="img" aria-label="Durations of the requests over time" {
            line.track x1="0" x2="100%" y1="82" y2="82" {}
            @for (index, column) in columns.iter().enumerate() {
                @if let (Some(median), Some(high)) = (column.percentile(50), column.percentile(99)) {
                    @let (left, width) = edges(index);
                    @let x = format!("{:.2}%", left + width / 2.0);
                    @let (low, top) = (82.0 - height(median, slowest), 82.0 - height(high, slowest));
                    g {
                        title { (utc(column.start)) ": p50 " (millis(median)) ", p99 " (millis(high)) }
                        line.span x1=(x) x2=(x) y1=(format!("{low:.1}")) y2=(format!("{top:.1}")) {}
                        circle.median cx=(x) cy=(format!("{low:.1}")) r="3" {}
                        circle.high cx=(x) cy=(format!("{top:.1}")) r="3" {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_object_nothing_is_good_that_could_not_be_read() {
        let time = Time::UNIX_EPOCH;
        for (troubles, has_more, class, is_said) in [
            (Vec::new(), false, "class=\"verdict good\"", false),
            (vec![Trouble::Slow], false, "class=\"verdict\"", true),
            (Vec::new(), true, "class=\"verdict\"", true),
        ] {
            let view = NotificationView {
                namespace: "team-a".to_owned(),
                name: "chat".to_owned(),
                row: None,
                is_layered: true,
                entries: Vec::new(),
                has_more,
                columns: Vec::new(),
                pipelines: Vec::new(),
                explained: None,
                troubles,
                form_token: None,
                tested: None,
            };
            let html = view.verdict(time).into_string();
            assert_eq!((html.contains(class), html.contains("Not everything could be read")), (true, is_said), "{html}");
        }
    }
}
