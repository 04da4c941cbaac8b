//! One pipeline of the overview: a line, and a row with the details that opens below it. Pure.

use maud::{Markup, html};

use crate::follow::rows::{Cell, PipelineRow};
use crate::query::Query;
use crate::screens::parts::{Tone, age, badge, lasting, revision, short_revision, status_word};
use relaybook_api::values::permalink;
use relaybook_api::{Status, Time};
use relaybook_text::cut_chars;

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
    html! {
        tr.line {
            td.open { details data-of=(name) { summary aria-label=(format!("Details of {name}")) {} } }
            th scope="row" {
                a href=(permalink::pipeline(&row.namespace, &row.name)) { (row.name) }
                @if let Some((reason, message)) = problem(row) { " " span title=(message) { (badge(Tone::Bad, &reason)) } }
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
        tr.more { td colspan=(columns(query)) { (details(row, now)) } }
    }
}

/// Returns the environment with the worst state. Of several, the last one.
fn worst(cells: &[Cell]) -> Option<&Cell> {
    let badness = |cell: &Cell| (cell.status.map_or(Status::InProgress.badness(), Status::badness), !cell.drifted);
    cells.iter().rev().min_by_key(|cell| badness(cell))
}

/// Returns the reason of the first problem with the number of the others, and its message.
fn problem(row: &PipelineRow) -> Option<(String, &str)> {
    let own = row.not_ready.iter().map(|own| (&own.0, &own.1));
    let mut all = own.chain(row.unsent.iter().map(|(_, reason, message)| (reason, message)));
    let (reason, message) = all.next()?;
    let others = all.count();
    let reason = if others > 0 { format!("{reason} +{others}") } else { reason.clone() };
    Some((reason, message.as_str()))
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
    let title = format!("{} {} {}", cell.name, status_word(cell.status), cell.revisions.join(", "));
    html! {
        span class=(format!("badge {}", tone.class())) title=(title.trim_end()) {
            b { (cell.name) } " "
            @if cell.status == Some(Status::Current) { span.hidden { "Current" } span aria-hidden="true" { (word(cell)) } }
            @else { (word(cell)) }
            (rest(cell)) " " (brief(cell))
        }
        @if cell.waits_for_approval.is_some() { (badge(Tone::Busy, "Waits for approval")) }
    }
}

fn details(row: &PipelineRow, now: Time) -> Markup {
    html! {
        @if let Some((reason, message)) = &row.not_ready { p { (badge(Tone::Bad, reason)) " " span.message { (message) } } }
        @for (name, reason, message) in &row.unsent {
            p {
                (badge(Tone::Bad, reason)) " "
                a href=(permalink::notification(&row.namespace, name)) { (name) } ": " span.message { (message) }
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
        assert_eq!((problem(&row), worst(&row.environments).unwrap().name.as_str()), (None, "e2"));
        let unsent = |name: &str| (name.to_owned(), "SecretMissing".to_owned(), "no Secret".to_owned());
        row.unsent = vec![unsent("chat"), unsent("mail")];
        assert_eq!(problem(&row), Some(("SecretMissing +1".to_owned(), "no Secret")));
        row.not_ready = Some(("KindUnknown".to_owned(), "no CRD".to_owned()));
        assert_eq!(problem(&row), Some(("KindUnknown +2".to_owned(), "no CRD")));
        let html = line(&row, &Query::default(), Time::UNIX_EPOCH).into_string();
        assert!(html.contains("colspan=\"7\"") && html.contains("Details of team-a/shop"), "{html}");
        assert!(html.contains("No receiver was notified yet."), "{html}");
    }
}
