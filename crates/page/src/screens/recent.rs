//! What happened in the last 15 minutes: changes of environments, and the messages about them. Pure.
//!
//! In: the rows that are followed, and deliveries that were read. Out: a short list, the newest change first. A change is in it with each
//! message about it, or alone if no such message was read. A message about an older change is not in it, even if it is sent again now. A
//! message that was due some time after its change has that time.

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
/// Maximum number of messages that are kept.
const KEPT: usize = 10 * LINES;

/// What is kept of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The time of the change. If the trigger has a `for`, the time at which the state had lasted for so long.
    pub(crate) time: Time,
    /// Namespace, pipeline and environment. The environment is empty if the subject has none.
    pub(crate) about: (String, String, String),
    /// The name of the application object, if the pipeline can have several. Otherwise empty.
    pub(crate) app: String,
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
    /// The times of the changes that older messages are about, which are not kept.
    pub(crate) older: Vec<Time>,
    /// What was not read.
    pub(crate) missing: Option<Missing>,
}

/// Which deliveries were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The rest of a list.
    Rest,
    /// Those of cluster-wide notifications, which are recorded elsewhere.
    Elsewhere,
    /// All.
    All,
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    time: Time,
    about: (String, String, String),
    app: String,
    tone: Tone,
    what: &'static str,
    revision: String,
    message: Option<Message>,
}

/// The list of the overview.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recent {
    lines: Vec<Line>,
    /// Number of older lines that are left out.
    more: usize,
    /// Whether all pipelines are known.
    is_complete: bool,
    /// Which messages are not known.
    missing: Option<Missing>,
}

impl Message {
    fn of(entry: &Entry) -> Self {
        let (row, spec) = (&entry.row, &entry.spec);
        let home = &spec.pipeline_ref;
        Self {
            time: spec.due.unwrap_or(spec.time),
            app: spec.subject.own_app().unwrap_or_default().to_owned(),
            about: (home.namespace.clone(), home.name.clone(), spec.subject.environment.clone()),
            type_: spec.type_.as_str(),
            status: spec.to.status,
            revision: row.revision.clone(),
            notification: row.notification.clone(),
            outcome: row.outcome,
            has_failed: row.attempts > 0 && row.error.is_some(),
            link: permalink::delivery(&row.namespace, &row.name),
        }
    }

    fn line(&self) -> Line {
        Line {
            time: self.time,
            about: self.about.clone(),
            app: self.app.clone(),
            tone: Tone::of_status(Some(self.status)),
            what: self.type_,
            revision: self.revision.clone(),
            message: Some(self.clone()),
        }
    }
}

impl Messages {
    /// Keeps the newest messages, more than a list has.
    pub(crate) fn of(entries: &[Entry], missing: Option<Missing>) -> Self {
        let mut all: Vec<_> = entries.iter().map(Message::of).collect();
        all.sort_by(|a, b| (b.time, &b.link).cmp(&(a.time, &a.link)));
        let older = all.split_off(KEPT.min(all.len())).iter().map(|message| message.time).collect();
        Self { all, older, missing }
    }
}

impl Recent {
    /// Joins changes and messages. `is_complete`: whether these are all rows. `messages`: `None` if they are not known.
    pub(crate) fn of<'a>(
        rows: impl Iterator<Item = &'a Arc<PipelineRow>>,
        is_complete: bool,
        messages: Option<&Messages>,
        now: Time,
    ) -> Self {
        let missing = messages.map_or(Some(Missing::All), |messages| messages.missing);
        let Ok(start) = now.checked_sub(WINDOW) else { return Self::default() };
        let all = messages.into_iter().flat_map(|messages| &messages.all);
        let sent: Vec<&Message> = all.filter(|message| message.time >= start).collect();
        let older = messages.into_iter().flat_map(|messages| &messages.older).filter(|time| **time >= start).count();
        let mut lines: Vec<Line> = sent.iter().copied().map(Message::line).collect();
        for row in rows {
            for cell in &row.environments {
                let Some(since) = cell.since.filter(|since| *since >= start) else { continue };
                let about = (row.namespace.clone(), row.name.clone(), cell.name.clone());
                let is_about = |message: &&Message| {
                    let are_known = !message.app.is_empty() && !cell.app.is_empty();
                    let is_same = Some(message.status) == cell.status && message.revision == cell.revision;
                    message.about == about && is_same && (!are_known || message.app == cell.app)
                };
                if sent.iter().any(is_about) {
                    continue;
                }
                let (tone, what) = (Tone::of_status(cell.status), status_word(cell.status));
                let (app, revision) = (cell.app.clone(), cell.revision.clone());
                lines.push(Line { time: since, about, app, tone, what, revision, message: None });
            }
        }
        lines.sort_by(|a, b| (b.time, &a.about, &a.app, a.what).cmp(&(a.time, &b.about, &b.app, b.what)));
        let more = lines.len().saturating_sub(LINES) + older;
        lines.truncate(LINES);
        Self { lines, more, is_complete, missing }
    }

    /// Returns what an empty list means.
    const fn nothing(&self) -> &'static str {
        if self.is_complete && self.missing.is_none() {
            "No environment of these pipelines has changed, and no message is about a change of them in this time."
        } else {
            "No change is known."
        }
    }

    /// Returns the list.
    pub(crate) fn html(&self) -> Markup {
        html! {
            section.recent aria-labelledby="recent" {
                h2 #recent { "The last 15 minutes" }
                @if self.lines.is_empty() {
                    p.empty { (self.nothing()) }
                } @else {
                    ul.list.plain {
                        @for one in &self.lines { (line(one)) }
                        @if self.more > 0 { li.none { "and " (self.more) " more" } }
                    }
                }
                @match self.missing {
                    None => {},
                    Some(Missing::All) => p.none { "Messages are missing here, because the deliveries cannot be read." },
                    Some(Missing::Elsewhere) => p.none { "Messages of cluster-wide notifications can be missing here, because their deliveries cannot be read." },
                    Some(Missing::Rest) => p.none { "There are more deliveries than are read here, so messages can be missing. The screen of a pipeline reads more." },
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
            @if !line.app.is_empty() { " " b { (line.app) } }
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
    use relaybook_api::{Delivery, DeliverySpec, DeliveryStatus};

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn message(time: i64, pipeline: &str, environment: &str, status: Status, outcome: Option<Outcome>) -> Message {
        Message {
            time: at(time),
            about: ("team-a".to_owned(), pipeline.to_owned(), environment.to_owned()),
            app: String::new(),
            type_: if status == Status::Failed { "Failed" } else { "Deployed" },
            status,
            revision: "2".to_owned(),
            notification: "chat".to_owned(),
            outcome,
            has_failed: false,
            link: format!("/deliveries/team-a/{time}"),
        }
    }

    #[test]
    fn a_change_is_in_the_list_once_and_old_ones_are_not() {
        let mut shop = row("shop", &["Current", "Failed"]);
        (shop.environments[0].since, shop.environments[1].since) = (Some(at(9_900)), Some(at(9_800)));
        let mut old = row("old", &["Current"]);
        old.environments[0].since = Some(at(1));
        shop.environments[1].revision = "2".to_owned();
        let rows = [Arc::new(shop), Arc::new(old)];
        let messages = [
            message(9_950, "shop", "e1", Status::Failed, Some(Outcome::Parked)),
            message(9_940, "gone", "e0", Status::Current, None),
            message(100, "shop", "e0", Status::Current, Some(Outcome::Delivered)),
        ];
        let shown = |messages: &[Message]| {
            let messages = Messages { all: messages.to_vec(), ..Messages::default() };
            let all = Recent::of(rows.iter(), true, Some(&messages), at(10_000)).lines;
            let words = all.iter().map(|line| {
                let outcome = line.message.as_ref().map(|message| outcome_words(message.outcome));
                format!("{}/{} {} {outcome:?}", line.about.1, line.about.2, line.what)
            });
            words.collect::<Vec<_>>()
        };
        assert_eq!(
            shown(&messages),
            ["shop/e1 Failed Some(\"Parked\")", "gone/e0 Deployed Some(\"Pending\")", "shop/e0 Current None"]
        );
        assert_eq!(shown(&[]), ["shop/e0 Current None", "shop/e1 Failed None"]);
        let many: Vec<_> = (0..50).map(|n| message(9_900 + n, "x", "e0", Status::Current, None)).collect();
        assert_eq!(shown(&many).len(), LINES);
        let messages = Messages { all: many, older: vec![at(9_850), at(100)], missing: None };
        let recent = Recent::of(rows.iter(), true, Some(&messages), at(10_000));
        assert_eq!(recent.more, 50 + 2 + 1 - LINES, "the messages, the changes of shop, and one that is not kept");
        assert!(recent.html().into_string().contains("and 33 more"));
    }

    #[test]
    fn a_change_is_hidden_only_by_a_message_about_the_same_state_and_revision() {
        for (status, revision, lines) in
            [(Status::Current, "2", 1), (Status::Current, "1", 2), (Status::Failed, "2", 2), (Status::Current, "", 2)]
        {
            let mut shop = row("shop", &["Current"]);
            (shop.environments[0].since, shop.environments[0].revision) = (Some(at(9_900)), "2".to_owned());
            let message = Message { revision: revision.to_owned(), ..message(9_890, "shop", "e0", status, None) };
            let messages = Messages { all: vec![message], ..Messages::default() };
            let recent = Recent::of([Arc::new(shop)].iter(), true, Some(&messages), at(10_000));
            assert_eq!((recent.lines.len(), recent.more), (lines, 0), "{status:?} {revision}");
        }
    }

    #[test]
    fn a_change_of_one_application_is_not_hidden_by_a_message_about_another() {
        for (of_message, of_change, lines) in
            [("", "", 1), ("shop-eu", "shop-eu", 1), ("shop-us", "shop-eu", 2), ("", "shop-eu", 1)]
        {
            let mut shop = row("shop", &["Current"]);
            let cell = &mut shop.environments[0];
            (cell.since, cell.revision, cell.app) = (Some(at(9_900)), "2".to_owned(), of_change.to_owned());
            let message = Message { app: of_message.to_owned(), ..message(9_890, "shop", "e0", Status::Current, None) };
            let messages = Messages { all: vec![message], ..Messages::default() };
            let recent = Recent::of([Arc::new(shop)].iter(), true, Some(&messages), at(10_000));
            assert_eq!(recent.lines.len(), lines, "{of_message} {of_change}");
            let html = recent.html().into_string();
            assert!([of_message, of_change].iter().take(lines).all(|app| html.contains(app)), "{html}");
        }
    }

    #[test]
    fn a_message_of_a_trigger_with_for_has_the_time_at_which_it_was_due() {
        let spec = DeliverySpec { time: at(100), due: Some(at(9_700)), ..relaybook_api::testing::spec(1) };
        let messages = Messages::of(&[Entry::from(Delivery::new("d1", spec))], None);
        assert_eq!(messages.all[0].time, at(9_700));
        assert_eq!(Recent::of(std::iter::empty(), true, Some(&messages), at(10_000)).lines.len(), 1);
    }

    #[test]
    fn a_retry_of_an_old_message_is_no_new_change() {
        let mut delivery = Delivery::new("d1", DeliverySpec { time: at(100), ..relaybook_api::testing::spec(1) });
        delivery.status = Some(DeliveryStatus { last_attempt_time: Some(at(9_990)), ..DeliveryStatus::default() });
        let messages = Messages::of(&[Entry::from(delivery)], None);
        assert_eq!((messages.all[0].time, messages.older.len()), (at(100), 0));
        assert!(Recent::of(std::iter::empty(), true, Some(&messages), at(10_000)).lines.is_empty());
        let many: Vec<_> =
            (0..KEPT + 3).map(|n| Entry::from(Delivery::new(&format!("d{n}"), relaybook_api::testing::spec(1)))).collect();
        let messages = Messages::of(&many, None);
        assert_eq!((messages.all.len(), messages.older.len()), (KEPT, 3));
    }

    #[test]
    fn an_empty_list_says_that_nothing_happened_only_if_everything_was_read() {
        let of = |missing: Option<Missing>| Messages { missing, ..Messages::default() };
        for (is_complete, messages, is_known, words) in [
            (true, Some(of(None)), true, ""),
            (false, Some(of(None)), false, ""),
            (true, None, false, "because the deliveries cannot be read"),
            (true, Some(of(Some(Missing::Rest))), false, "There are more deliveries"),
            (true, Some(of(Some(Missing::Elsewhere))), false, "of cluster-wide notifications can be missing"),
        ] {
            let html = Recent::of(std::iter::empty(), is_complete, messages.as_ref(), at(10_000)).html().into_string();
            assert_eq!(html.contains("No environment of these pipelines has changed"), is_known, "{html}");
            assert!(html.contains(words), "{html}");
        }
    }
}
