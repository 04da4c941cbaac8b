//! One pipeline of the overview: a line, and a row with the details that opens below it. Pure.

use maud::{Markup, html};

use crate::follow::rows::{Cell, PipelineRow};
use crate::query::Query;
use crate::screens::findings;
use crate::screens::parts::{Tone, age, badge, lasting, revision, short_revision, status_word};
use relaybook_api::values::permalink;
use relaybook_api::{Status, Time};
use relaybook_text::cut_chars;
use relaybook_tools::diagnosis::{Finding, Level};

/// Number of characters for the environments of a line.
const WIDTH: usize = 72;
/// Number of characters around the texts of an environment.
const AROUND: usize = 3;
/// Maximum number of characters of a revision in a line.
const REVISION: usize = 12;

/// Returns the number of columns of the table.
pub(super) fn columns(query: &Query) -> usize {
    if query.namespace.is_none() { 7 } else { 6 }
}

/// Returns the head of the table.
pub(super) fn head(query: &Query) -> Markup {
    html! {
        tr {
            th scope="col" { span.hidden { "Details" } }
            th scope="col" { "Pipeline" }
            th scope="col" { "Application" }
            @if query.namespace.is_none() { th scope="col" { "Namespace" } }
            th scope="col" { "Environments" }
            th scope="col" { "Since" }
            th scope="col" { "Last notified" }
        }
    }
}

/// Returns the line of a pipeline, and its details. The style shows these while the `details` of the line is open.
pub(super) fn line(row: &PipelineRow, query: &Query, now: Time) -> Markup {
    let name = format!("{}/{}", row.namespace, row.name);
    let (places, more) = fitting(&row.environments);
    let findings = row.findings(now);
    html! {
        tr.line {
            td.open { details data-of=(name) { summary aria-label=(format!("Details of {name}")) {} } }
            th scope="row" {
                a href=(permalink::pipeline(&row.namespace, &row.name)) { (row.name) }
                @if let Some((tone, reason, message)) = first(&findings) { " " span title=(message) { (badge(tone, &reason)) } }
            }
            td.soft data-label="Application" { (row.app) }
            @if query.namespace.is_none() { td.soft data-label="Namespace" { (row.namespace) } }
            td data-label="Environments" {
                div.places {
                    @for cell in places { (place(cell)) }
                    @if more > 0 { span.soft { "+" (more) } }
                }
            }
            td data-label="Since" {
                @match worst(&row.environments).and_then(|cell| cell.since) {
                    Some(since) => (lasting(since, now)),
                    None => span.none { "—" },
                }
            }
            td data-label="Last notified" {
                @match &row.last_sent {
                    Some((time, _)) => (age(*time, now)),
                    None => span.none { "never" },
                }
            }
        }
        tr.more { td colspan=(columns(query)) { (details(row, &findings, now)) } }
    }
}

/// Returns the environment with the worst state. Of several, the last one.
fn worst(cells: &[Cell]) -> Option<&Cell> {
    let badness = |cell: &Cell| (cell.status.map_or(Status::InProgress.badness(), Status::badness), !cell.drifted);
    cells.iter().rev().min_by_key(|cell| badness(cell))
}

/// Returns the reason of the worst finding, or else a word for its level, with the number of the others, and its message.
fn first(findings: &[Finding]) -> Option<(Tone, String, &str)> {
    let (Finding { level, reason, message, .. }, others) = findings.split_first()?;
    let reason = match (reason.as_str(), level) {
        ("", Level::Problem) => "Problem",
        ("", Level::Warning) => "Warning",
        (reason, _) => reason,
    };
    let reason = if others.is_empty() { reason.to_owned() } else { format!("{reason} +{}", others.len()) };
    Some((findings::tone(*level), reason, message.as_str()))
}

/// Returns the environments that have space in a line, in their order, and the number of the others. The failed ones have precedence, then the
/// last one, and then those that are not current.
fn fitting(cells: &[Cell]) -> (Vec<&Cell>, usize) {
    let mut order: Vec<(u8, usize, &Cell)> = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        let rank = match (cell.status, index + 1 == cells.len()) {
            (Some(Status::Failed), true) => 0,
            (Some(Status::Failed), false) => 1,
            (_, true) => 2,
            (Some(Status::Current), false) if !cell.drifted && cell.waits_for_approval.is_none() => 4,
            (_, false) => 3,
        };
        order.push((rank, index, cell));
    }
    order.sort_by_key(|(rank, index, _)| (*rank, *index));
    let (mut width, mut kept) = (0, Vec::new());
    for (_, index, cell) in order {
        let texts = [cell.name.as_str(), word(cell), &rest(cell), &brief(cell)];
        width += texts.iter().map(|text| text.chars().count()).sum::<usize>() + AROUND;
        if width > WIDTH && !kept.is_empty() {
            break;
        }
        kept.push((index, cell));
    }
    kept.sort_by_key(|(index, _)| *index);
    let more = cells.len() - kept.len();
    (kept.into_iter().map(|(_, cell)| cell).collect(), more)
}

/// Returns the state of an environment in few characters.
fn word(cell: &Cell) -> &'static str {
    if cell.status == Some(Status::Current) { "✓" } else { status_word(cell.status) }
}

/// Returns what is to be said about the state of an environment besides its word.
fn rest(cell: &Cell) -> String {
    let (ready, all) = cell.ready;
    let drifted = if cell.drifted { " drifted" } else { "" };
    if ready < all && all > 1 { format!("{drifted} {ready}/{all}") } else { drifted.to_owned() }
}

/// Returns the revision of an environment in few characters.
fn brief(cell: &Cell) -> String {
    let short = short_revision(&cell.revision);
    // A hash is enough without the branch and the name of its algorithm.
    let hash = short.rsplit_once("sha1:").or_else(|| short.rsplit_once("sha256:")).map_or(short.as_str(), |(_, hash)| hash);
    cut_chars(hash, REVISION).into_owned()
}

fn place(cell: &Cell) -> Markup {
    let tone = match Tone::of_status(cell.status) {
        Tone::Good if cell.drifted => Tone::Warn,
        tone => tone,
    };
    let title = [cell.name.as_str(), &cell.app, status_word(cell.status), &cell.revisions.join(", ")];
    let title = title.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
    html! {
        span class=(format!("badge {}", tone.class())) title=(title) {
            b { (cell.name) } " "
            @if cell.status == Some(Status::Current) { span.hidden { "Current" } span aria-hidden="true" { (word(cell)) } }
            @else { (word(cell)) }
            (rest(cell)) " " (brief(cell))
        }
        @if cell.waits_for_approval.is_some() { (badge(Tone::Busy, "Waits for approval")) }
    }
}

fn details(row: &PipelineRow, findings: &[Finding], now: Time) -> Markup {
    html! {
        @for finding in findings {
            p {
                @if let Some(name) = row.notification_of(finding) { a href=(permalink::notification(&row.namespace, name)) { (name) } ": " }
                (findings::words(finding))
            }
        }
        div.flow {
            @for cell in &row.environments { div { b { (cell.name) } (environment(cell, now)) } }
        }
        p.none {
            @match &row.last_sent {
                Some((time, by)) => { "The last message was sent " (age(*time, now)) @if !by.is_empty() { " by " (by) } "." },
                None => "No message was sent yet.",
            }
            @if !row.team.is_empty() { " The team is " (row.team) "." }
        }
    }
}

fn environment(cell: &Cell, now: Time) -> Markup {
    let (ready, all) = cell.ready;
    html! {
        span.state {
            (badge(Tone::of_status(cell.status), status_word(cell.status)))
            @if cell.drifted { " " (badge(Tone::Warn, "Drifted")) }
            @if all > 1 { " " span.none { (ready) " of " (all) " ready" } }
            @if !cell.app.is_empty() { " " span.none { (cell.app) } }
        }
        span.revisions { @for text in &cell.revisions { (revision(text)) " " } }
        @if let Some(since) = cell.since { span.sub { (lasting(since, now)) } }
        @match cell.notified {
            Some(notified) => span.sub { "A receiver was notified " (age(notified, now)) "." },
            None => span.sub { "No receiver was notified yet." },
        }
        @if let Some(waits) = &cell.waits_for_approval {
            span.sub { (badge(Tone::Busy, "Waits for approval")) " " (revision(&waits.revision)) }
        }
        @if !cell.message.is_empty() && cell.status != Some(Status::Current) { span.sub.message { (cell.message) } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::screens::overview::testing::row;

    #[test]
    fn environments_that_need_attention_are_in_the_line() {
        let shown = |statuses: &[&str], revision: &str| {
            let mut row = row("shop", statuses);
            for cell in &mut row.environments {
                revision.clone_into(&mut cell.revision);
            }
            let (places, more) = fitting(&row.environments);
            let names: Vec<_> = places.iter().map(|cell| cell.name.clone()).collect();
            format!("{} +{more}", names.join(" "))
        };
        let current = ["Current"; 9];
        let mut failed = current;
        (failed[1], failed[6]) = ("Failed", "InProgress");
        for (statuses, revision, expected) in [
            (&["Current", "Failed", "Current"][..], "2.4.0", "e0 e1 e2 +0"),
            (&current[..], "1", "e0 e1 e2 e3 e4 e5 e6 e7 e8 +0"),
            (&current[..], "release-2026.11", "e0 e1 e2 e8 +5"),
            (&failed[..], "release-2026.11", "e1 e6 e8 +6"),
            (&["Failed"; 9][..], "release-2026.11", "e0 e1 e8 +6"),
            (&[][..], "1", " +0"),
        ] {
            assert_eq!(shown(statuses, revision), expected, "{statuses:?} {revision}");
        }
    }

    #[test]
    fn the_state_of_an_environment_is_short() {
        let cell = |status: &str, revision: &str, ready: (usize, usize), drifted: bool| {
            let mut row = row("shop", &[status]);
            let cell = &mut row.environments[0];
            (cell.revision, cell.ready, cell.drifted) = (revision.to_owned(), ready, drifted);
            format!("{}{} {}", word(cell), rest(cell), brief(cell))
        };
        let sha1 = "5f3d2c1b0a9e8d7c6b5a49382716051423324150";
        assert_eq!(cell("Current", "2.4.0", (1, 1), false), "✓ 2.4.0");
        assert_eq!(cell("Current", &format!("main@sha1:{sha1}"), (2, 2), true), "✓ drifted 5f3d2c1");
        assert_eq!(cell("Failed", sha1, (1, 3), false), "Failed 1/3 5f3d2c1");
        assert_eq!(cell("InProgress", &"x".repeat(30), (0, 1), false), format!("InProgress {}…", "x".repeat(11)));
    }

    #[test]
    fn a_line_has_one_badge_for_its_problems_and_the_state_of_its_worst_environment() {
        let mut row = row("shop", &["Failed", "Current", "Failed"]);
        assert_eq!((first(&row.findings(Time::UNIX_EPOCH)), worst(&row.environments).unwrap().name.as_str()), (None, "e2"));
        let unsent = |name: &str| json!({"name": name, "ready": false, "reason": "SecretMissing", "message": "no Secret"});
        let ready = json!({"type": "Ready", "status": "False", "reason": "KindNotFound", "message": "no CRD", "lastTransitionTime": "2026-03-01T12:00:00Z"});
        let waits = json!({"promotion": "p", "promotionUid": "u", "revision": "2", "since": "2026-03-01T12:00:00Z"});
        for (conditions, reason, message) in [
            (json!([]), "SecretMissing +1", "notification chat cannot be sent: no Secret"),
            (json!([ready]), "KindNotFound +2", "no CRD"),
        ] {
            let status = json!({
                "conditions": conditions, "dispatched": {"notifications": [unsent("chat"), unsent("mail")]},
                "environments": [{"name": "e2", "waitingApproval": waits}],
            });
            row.object.status = serde_json::from_value(status).unwrap();
            let findings = row.findings(Time::UNIX_EPOCH);
            assert_eq!(first(&findings), Some((Tone::Bad, reason.to_owned(), message)));
        }
        let mut findings = row.findings(Time::UNIX_EPOCH);
        for (level, word) in [(Level::Problem, "Problem +2"), (Level::Warning, "Warning +2")] {
            (findings[0].reason, findings[0].level) = (String::new(), level);
            let (tone, reason, _) = first(&findings).unwrap();
            assert_eq!((tone, reason.as_str()), (findings::tone(level), word));
        }
        let html = line(&row, &Query::default(), Time::UNIX_EPOCH).into_string();
        assert!(html.contains("colspan=\"7\"") && html.contains("Details of team-a/shop"), "{html}");
        assert!(html.contains("No receiver was notified yet."), "{html}");
        assert!(html.contains("href=\"/notifications/team-a/mail\""), "{html}");
        assert!(html.contains("Remedy: install the CRD of the kind, or correct <code>kind</code>"), "{html}");
    }
}
