//! What happened in the last 15 minutes: changes of environments, and the messages about them. Pure.
//!
//! In: the rows that are followed, and deliveries that were read. Out: a short list, the newest first. A change is in it once: with each
//! message about it, or alone if no such message was read.

use std::sync::Arc;

use jiff::SignedDuration;
use maud::{Markup, html};

use crate::follow::rows::PipelineRow;
use crate::screens::parts::{Tone, badge, clock, outcome_words, revision, status_word};
use relaybook_api::values::permalink;
use relaybook_api::{Outcome, Status, Time};
use relaybook_tools::audit::Entry;

/// The time that the list is about.
pub(crate) const WINDOW: SignedDuration = SignedDuration::from_mins(15);
/// Maximum number of lines.
const LINES: usize = 20;

/// What is kept of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The time of its last event.
    pub(crate) last: Time,
    /// Namespace, pipeline and environment. The environment is empty if the subject has none.
    pub(crate) about: (String, String, String),
    /// The type of the transition, such as `Deployed`.
    pub(crate) type_: &'static str,
    /// The state after the change.
    pub(crate) status: Status,
    pub(crate) revision: String,
    pub(crate) notification: String,
    pub(crate) outcome: Option<Outcome>,
    /// Whether the last request has failed.
    pub(crate) has_failed: bool,
    /// The path of its screen.
    pub(crate) link: String,
}

/// The messages that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Messages {
    /// The newest first.
    pub(crate) all: Vec<Message>,
    /// Whether not all deliveries were read.
    pub(crate) has_more: bool,
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    time: Time,
    about: (String, String, String),
    tone: Tone,
    what: &'static str,
    revision: String,
    message: Option<Message>,
}

/// The list of the overview.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recent {
    lines: Vec<Line>,
    /// Whether deliveries could be read.
    is_known: bool,
    /// Whether not all deliveries were read.
    has_more: bool,
}

impl Message {
    fn of(entry: &Entry) -> Option<Self> {
        let (row, spec) = (&entry.row, &entry.spec);
        let home = &spec.pipeline_ref;
        Some(Self {
            last: row.last()?,
            about: (home.namespace.clone(), home.name.clone(), spec.subject.environment.clone()),
            type_: spec.type_.as_str(),
            status: spec.to.status,
            revision: row.revision.clone(),
            notification: row.notification.clone(),
            outcome: row.outcome,
            has_failed: row.attempts > 0 && row.error.is_some(),
            link: permalink::delivery(&row.namespace, &row.name),
        })
    }

    fn line(&self) -> Line {
        Line {
            time: self.last,
            about: self.about.clone(),
            tone: Tone::of_status(Some(self.status)),
            what: self.type_,
            revision: self.revision.clone(),
            message: Some(self.clone()),
        }
    }
}

impl Messages {
    /// Keeps the newest messages, more than a list has.
    pub(crate) fn of(entries: &[Entry], has_more: bool) -> Self {
        let mut all: Vec<_> = entries.iter().filter_map(Message::of).collect();
        all.sort_by(|a, b| (b.last, &b.link).cmp(&(a.last, &a.link)));
        all.truncate(10 * LINES);
        Self { all, has_more }
    }
}

impl Recent {
    /// Joins changes and messages. `messages`: `None` if they are not known.
    pub(crate) fn of<'a>(rows: impl Iterator<Item = &'a Arc<PipelineRow>>, messages: Option<&Messages>, now: Time) -> Self {
        let (is_known, has_more) = (messages.is_some(), messages.is_some_and(|messages| messages.has_more));
        let Ok(start) = now.checked_sub(WINDOW) else { return Self::default() };
        let all = messages.into_iter().flat_map(|messages| &messages.all);
        let sent: Vec<&Message> = all.filter(|message| message.last >= start).collect();
        let mut lines: Vec<Line> = sent.iter().copied().map(Message::line).collect();
        for row in rows {
            for cell in &row.environments {
                let Some(since) = cell.since.filter(|since| *since >= start) else { continue };
                let about = (row.namespace.clone(), row.name.clone(), cell.name.clone());
                if sent.iter().any(|message| message.about == about && Some(message.status) == cell.status) {
                    continue;
                }
                let (tone, what) = (Tone::of_status(cell.status), status_word(cell.status));
                let revision = cell.revision.clone();
                lines.push(Line { time: since, about, tone, what, revision, message: None });
            }
        }
        lines.sort_by(|a, b| (b.time, &a.about, a.what).cmp(&(a.time, &b.about, b.what)));
        lines.truncate(LINES);
        Self { lines, is_known, has_more }
    }

    /// Returns the list.
    pub(crate) fn html(&self) -> Markup {
        html! {
            section.recent aria-labelledby="recent" {
                h2 #recent { "The last 15 minutes" }
                @if self.lines.is_empty() {
                    p.empty { "No environment has changed, and no message was sent." }
                } @else {
                    ul.list.plain { @for one in &self.lines { (line(one)) } }
                }
                @if !self.is_known {
                    p.none { "Messages are missing here, because the deliveries cannot be read." }
                } @else if self.has_more {
                    p.none { "There are more deliveries than are read here, so messages can be missing. The screen of a pipeline reads more." }
                }
            }
        }
    }
}

fn line(line: &Line) -> Markup {
    let (namespace, pipeline, environment) = &line.about;
    html! {
        li {
            (clock(line.time)) " "
            a href=(permalink::pipeline(namespace, pipeline)) { (namespace) "/" (pipeline) }
            @if !environment.is_empty() { " " (environment) }
            " " (badge(line.tone, line.what)) " " (revision(&line.revision))
            @if let Some(message) = &line.message {
                " " a href=(message.link) { (message.notification) } ": "
                span class=(Tone::of_outcome(message.outcome, message.has_failed).class()) { (outcome_words(message.outcome)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::overview::testing::row;

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn message(last: i64, pipeline: &str, environment: &str, status: Status, outcome: Option<Outcome>) -> Message {
        Message {
            last: at(last),
            about: ("team-a".to_owned(), pipeline.to_owned(), environment.to_owned()),
            type_: if status == Status::Failed { "Failed" } else { "Deployed" },
            status,
            revision: "2".to_owned(),
            notification: "chat".to_owned(),
            outcome,
            has_failed: false,
            link: format!("/deliveries/team-a/{last}"),
        }
    }

    #[test]
    fn a_change_is_in_the_list_once_and_old_ones_are_not() {
        let mut shop = row("shop", &["Current", "Failed"]);
        (shop.environments[0].since, shop.environments[1].since) = (Some(at(9_900)), Some(at(9_800)));
        let mut old = row("old", &["Current"]);
        old.environments[0].since = Some(at(1));
        let rows = [Arc::new(shop), Arc::new(old)];
        let messages = [
            message(9_950, "shop", "e1", Status::Failed, Some(Outcome::Parked)),
            message(9_940, "gone", "e0", Status::Current, None),
            message(100, "shop", "e0", Status::Current, Some(Outcome::Delivered)),
        ];
        let shown = |messages: &[Message]| {
            let messages = Messages { all: messages.to_vec(), has_more: false };
            let all = Recent::of(rows.iter(), Some(&messages), at(10_000)).lines;
            let words = all.iter().map(|line| {
                let outcome = line.message.as_ref().map(|message| outcome_words(message.outcome));
                format!("{}/{} {} {outcome:?}", line.about.1, line.about.2, line.what)
            });
            words.collect::<Vec<_>>()
        };
        assert_eq!(
            shown(&messages),
            ["shop/e1 Failed Some(\"Given up\")", "gone/e0 Deployed Some(\"Waiting\")", "shop/e0 Current None"]
        );
        assert_eq!(shown(&[]), ["shop/e0 Current None", "shop/e1 Failed None"]);
        let many: Vec<_> = (0..50).map(|n| message(9_900 + n, "x", "e0", Status::Current, None)).collect();
        assert_eq!(shown(&many).len(), LINES);
    }
}
