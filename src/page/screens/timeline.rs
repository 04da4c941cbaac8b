//! The timeline of a pipeline: one lane for each subject, and under it one line for each notification. Pure.
//!
//! What happened is known from the recorded deliveries: each has the state before and after its change. A change that no notification
//! reports leaves no record once it has left the change log, so it is not in the timeline.

use std::collections::{BTreeMap, BTreeSet};

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::api::delivery::{Family, SubjectKind};
use crate::api::notification::Trigger;
use crate::api::values::permalink;
use crate::api::{Outcome, Status, Time, TransitionType};
use crate::audit::Entry;
use crate::page::query::Range;
use crate::page::screens::parts::{Tone, age_words, cut, outcome_words, short_revision, status_word, utc};
use crate::page::screens::table::story;
use crate::preview::Explained;

/// Maximum number of marks of a line. The newest are shown.
const MARKS: usize = 100;
/// Maximum number of characters of a title. A condition of a trigger can be long.
const LONGEST: usize = 300;
/// Minimum time that the timeline shows, in milliseconds.
const SHORTEST: i64 = 20_000;
/// Number of labels of the axis.
const TICKS: i64 = 5;

/// The whole timeline.
#[derive(Debug)]
pub(in crate::page) struct Timeline {
    pub(in crate::page) from: Time,
    pub(in crate::page) to: Time,
    pub(in crate::page) lanes: Vec<Lane>,
    /// The labels of the axis, each with its position in percent.
    pub(in crate::page) ticks: Vec<(f64, String)>,
}

/// One subject.
#[derive(Debug)]
pub(in crate::page) struct Lane {
    pub(in crate::page) subject: String,
    pub(in crate::page) bars: Vec<Bar>,
    pub(in crate::page) lines: Vec<Line>,
}

/// A time in which the state of a subject was the same. Positions are in percent.
#[derive(Debug)]
pub(in crate::page) struct Bar {
    pub(in crate::page) start: f64,
    pub(in crate::page) end: f64,
    pub(in crate::page) tone: Tone,
    pub(in crate::page) words: String,
    pub(in crate::page) title: String,
}

/// The deliveries of one notification about a subject.
#[derive(Debug)]
pub(in crate::page) struct Line {
    pub(in crate::page) notification: String,
    pub(in crate::page) marks: Vec<Mark>,
}

/// One delivery, or a change that the notification does not report.
#[derive(Debug)]
pub(in crate::page) struct Mark {
    pub(in crate::page) at: f64,
    pub(in crate::page) tone: Tone,
    /// A sign, so that the meaning does not depend on the colour.
    pub(in crate::page) sign: &'static str,
    pub(in crate::page) title: String,
    pub(in crate::page) link: Option<String>,
}

/// What is known of a target now.
#[derive(Clone, Debug)]
pub(in crate::page) struct Present {
    pub(in crate::page) subject: String,
    pub(in crate::page) status: Status,
    pub(in crate::page) revision: String,
    pub(in crate::page) since: Option<Time>,
}

/// Draws the timeline. `present`: all targets of the pipeline, in their order.
pub(in crate::page) fn timeline(
    entries: &[Entry],
    present: &[Present],
    explained: &[Explained],
    range: Range,
    now: Time,
) -> Timeline {
    let to = range.to.unwrap_or(now);
    let times = entries.iter().map(|entry| entry.spec.time).chain(present.iter().filter_map(|target| target.since));
    let oldest = times.min().unwrap_or(now);
    let from = range.from.unwrap_or(oldest);
    // Some space before the first mark, and no empty time.
    let width = (to.as_millisecond() - from.as_millisecond()).max(SHORTEST);
    let from = if range.from.is_some() { from } else { millis(to.as_millisecond() - width - width / 20) };
    let scale = Scale { from: from.as_millisecond(), to: to.as_millisecond().max(from.as_millisecond() + 1) };
    let mut subjects: Vec<&str> = present.iter().map(|target| target.subject.as_str()).collect();
    let others: BTreeSet<&str> = entries.iter().map(|entry| entry.spec.subject.name.as_str()).collect();
    let known: BTreeSet<&str> = subjects.iter().copied().collect();
    subjects.extend(others.into_iter().filter(|subject| !known.contains(subject)));
    let lanes = subjects.into_iter().map(|subject| {
        let own: Vec<&Entry> = entries.iter().filter(|entry| entry.spec.subject.name == subject).collect();
        let now_at = present.iter().find(|target| target.subject == subject);
        Lane {
            subject: subject.to_owned(),
            bars: bars(&own, now_at, scale),
            lines: lines(&own, subject, explained, scale, now),
        }
    });
    Timeline { from, to: millis(scale.to), lanes: lanes.collect(), ticks: ticks(scale) }
}

fn millis(value: i64) -> Time {
    Time::from_millisecond(value).unwrap_or(Time::UNIX_EPOCH)
}

/// The time that the width of the timeline shows, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Scale {
    from: i64,
    to: i64,
}

impl Scale {
    /// Returns the position of a time in percent, which can be outside of 0 to 100.
    #[expect(clippy::cast_precision_loss, reason = "a position on a screen")]
    fn at(self, time: Time) -> f64 {
        (time.as_millisecond() - self.from) as f64 * 100.0 / (self.to - self.from) as f64
    }
}

fn ticks(scale: Scale) -> Vec<(f64, String)> {
    let is_long = scale.to - scale.from > 36 * 3_600_000;
    let tick = |n: i64| {
        let time = millis(scale.from + (scale.to - scale.from) * (2 * n + 1) / (2 * TICKS));
        let format = if is_long { "%m-%d %H:%M" } else { "%H:%M:%S" };
        (scale.at(time), time.strftime(format).to_string())
    };
    (0..TICKS).map(tick).collect()
}

fn bars(own: &[&Entry], present: Option<&Present>, scale: Scale) -> Vec<Bar> {
    let is_status = |entry: &&&Entry| entry.spec.type_.family() == Family::Status;
    let changes: BTreeMap<i64, &Entry> = own.iter().filter(is_status).map(|entry| (entry.spec.serial, *entry)).collect();
    let changes: Vec<&Entry> = changes.into_values().collect();
    let mut points: Vec<(Time, Status, &str)> = Vec::new();
    if let Some(first) = changes.first() {
        points.push((Time::UNIX_EPOCH, first.spec.from.status, first.spec.from.current.as_deref().unwrap_or_default()));
    }
    points.extend(changes.iter().map(|entry| (entry.spec.time, entry.spec.to.status, entry.spec.to.revision.as_str())));
    if let Some(present) = present {
        let since = present.since.unwrap_or(Time::UNIX_EPOCH);
        let is_news = points.last().is_none_or(|(at, status, revision)| {
            (*status, *revision) != (present.status, present.revision.as_str()) && since > *at
        });
        if is_news {
            points.push((since, present.status, &present.revision));
        }
    }
    let ends = points.iter().skip(1).map(|(time, _, _)| *time).chain([millis(scale.to)]);
    let bars = points.iter().zip(ends).filter_map(|((start, status, revision), end)| {
        let (left, right) = (scale.at(*start).max(0.0), scale.at(end).min(100.0));
        let is_absent = *status == Status::NotFound && revision.is_empty();
        if left >= right || is_absent {
            return None;
        }
        let words = format!("{} {}", status_word(Some(*status)), short_revision(revision));
        let since =
            if *start == Time::UNIX_EPOCH { "from the beginning".to_owned() } else { format!("from {}", utc(*start)) };
        let title = format!("{} {revision}, {since} until {}", status_word(Some(*status)), utc(end));
        Some(Bar { start: left, end: right, tone: Tone::of_status(Some(*status)), words, title })
    });
    bars.collect()
}

fn lines(own: &[&Entry], subject: &str, explained: &[Explained], scale: Scale, now: Time) -> Vec<Line> {
    let recorded = own.iter().map(|entry| entry.spec.notification.as_str());
    let about = explained.iter().filter(|one| one.targets.iter().any(|target| target == subject) && is_about_targets(one));
    let settings: BTreeMap<&str, &Explained> = about.map(|one| (one.notification.as_str(), one)).collect();
    let names: BTreeSet<&str> = recorded.chain(settings.keys().copied()).collect();
    let line = |name: &str| {
        let sent = own.iter().filter(|entry| entry.spec.notification == name);
        let mut marks: Vec<Mark> = sent.map(|entry| mark(entry, scale, now)).collect();
        if let Some(settings) = settings.get(name) {
            marks.extend(unwanted(own, name, settings, scale));
        }
        marks.retain(|mark| (0.0..=100.0).contains(&mark.at));
        marks.sort_by(|a, b| a.at.total_cmp(&b.at));
        let marks = marks.split_off(marks.len().saturating_sub(MARKS));
        Line { notification: name.to_owned(), marks }
    };
    names.into_iter().map(line).collect()
}

/// Whether a notification has a trigger for targets. One that only reports promotions would have an empty line in each lane.
fn is_about_targets(settings: &Explained) -> bool {
    triggers(settings).iter().any(|trigger| trigger.type_.subject() == SubjectKind::Target)
}

fn triggers(settings: &Explained) -> Vec<Trigger> {
    settings.spec.get("triggers").and_then(|all| serde_json::from_value(all.clone()).ok()).unwrap_or_default()
}

fn mark(entry: &Entry, scale: Scale, now: Time) -> Mark {
    let (row, spec) = (&entry.row, &entry.spec);
    let (sign, tone) = match row.outcome {
        Some(Outcome::Delivered) => ("✓", Tone::Good),
        Some(Outcome::Parked) => ("✕", Tone::Bad),
        Some(Outcome::Canceled) => ("–", Tone::Quiet),
        Some(Outcome::Superseded) => ("»", Tone::Quiet),
        None => ("…", Tone::of_outcome(None, row.attempts > 0 && row.error.is_some())),
    };
    let ending = row.answer.clone().filter(|_| row.outcome == Some(Outcome::Delivered)).unwrap_or_else(|| story(row, now));
    let ending = if ending.is_empty() { String::new() } else { format!(": {ending}") };
    let words = outcome_words(row.outcome);
    let title = format!("{} {}, {}. {words}{ending}", spec.type_.as_str(), spec.to.revision, utc(spec.time));
    let link = Some(permalink::delivery(&row.namespace, &row.name));
    Mark { at: scale.at(spec.time), tone, sign, title: cut(&title, LONGEST).into_owned(), link }
}

/// Returns the changes that other notifications have reported, and this one has not, with the reason.
fn unwanted(own: &[&Entry], name: &str, settings: &Explained, scale: Scale) -> Vec<Mark> {
    let has: BTreeSet<i64> =
        own.iter().filter(|entry| entry.spec.notification == name).map(|entry| entry.spec.serial).collect();
    let others: BTreeMap<(i64, TransitionType), &Entry> = own
        .iter()
        .filter(|entry| !has.contains(&entry.spec.serial))
        .map(|entry| ((entry.spec.serial, entry.spec.type_), *entry))
        .collect();
    let compiled: Vec<Compiled> = triggers(settings).into_iter().map(Compiled::new).collect();
    let marks = others.into_iter().filter_map(|((_, type_), entry)| {
        let why = why_not(&compiled, type_, entry)?;
        let title = format!("{} {}, {}. Not wanted: {why}", type_.as_str(), entry.spec.to.revision, utc(entry.spec.time));
        Some(Mark {
            at: scale.at(entry.spec.time),
            tone: Tone::Quiet,
            sign: "○",
            title: cut(&title, LONGEST).into_owned(),
            link: None,
        })
    });
    marks.collect()
}

/// Returns which trigger did not match. `None`: one matched, so the delivery was deleted, or the notification is younger than the change.
fn why_not(triggers: &[Compiled], type_: TransitionType, entry: &Entry) -> Option<String> {
    let of_type: Vec<_> = triggers.iter().filter(|compiled| compiled.trigger.type_ == type_).collect();
    if of_type.is_empty() {
        return Some(format!("no trigger has the type {}", type_.as_str()));
    }
    let subject = &entry.spec.subject;
    if subject.kind != SubjectKind::Target {
        return None;
    }
    let environment = subject.environment.as_str();
    let target = subject.target.clone().unwrap_or_default();
    let named = target.cluster_ref.map(|cluster| [cluster.full_name(), cluster.name]);
    let clusters = named.unwrap_or_else(|| [target.cluster.clone(), target.cluster]);
    let mut why = None;
    for Compiled { trigger, environments, clusters: names } in of_type {
        let only = |what: &str, globs: Option<&Vec<String>>| {
            let globs = globs.map(|globs| globs.join(", ")).unwrap_or_default();
            Some(format!("the trigger {} is only for the {what} {globs}", type_.as_str()))
        };
        if environments.as_ref().is_some_and(|set| !set.is_match(environment)) {
            why = only("environments", trigger.environments.as_ref());
        } else if names.as_ref().is_some_and(|set| !clusters.iter().any(|name| set.is_match(name))) {
            why = only("clusters", trigger.clusters.as_ref());
        } else if let Some(when) = &trigger.when {
            why = Some(format!("the condition `{when}` of the trigger {} was probably not true", type_.as_str()));
        } else if let Some(time) = &trigger.for_ {
            why = Some(format!("the state has probably not lasted for {time}, as the trigger {} requires", type_.as_str()));
        } else {
            return None;
        }
    }
    why
}

/// A trigger with its globs compiled, because each is compared with many changes.
struct Compiled {
    trigger: Trigger,
    environments: Option<GlobSet>,
    clusters: Option<GlobSet>,
}

impl Compiled {
    fn new(trigger: Trigger) -> Self {
        let set = |globs: &Vec<String>| {
            let mut set = GlobSetBuilder::new();
            globs.iter().filter_map(|glob| Glob::new(glob).ok()).for_each(|glob| {
                set.add(glob);
            });
            set.build().ok()
        };
        let environments = trigger.environments.as_ref().and_then(set);
        let clusters = trigger.clusters.as_ref().and_then(set);
        Self { trigger, environments, clusters }
    }
}

/// Returns the words for a timeline without marks.
pub(in crate::page) fn empty_words(range: Range, now: Time) -> String {
    match range.from {
        Some(from) => format!("Nothing was recorded since {} ({}).", utc(from), age_words(from, now)),
        None => "Nothing was recorded yet: no notification has reported a change of this pipeline.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{Delivery, DeliveryStatus};
    use crate::audit::Row;

    fn entry(notification: &str, serial: i64, second: i64, revision: &str, outcome: Option<Outcome>) -> Entry {
        let mut spec = crate::outbox::testing::spec(serial);
        spec.notification = notification.to_owned();
        spec.time = Time::from_second(second).unwrap();
        spec.type_ = TransitionType::Deployed;
        (spec.to.status, spec.to.revision) = (Status::Current, revision.to_owned());
        let mut delivery = Delivery::new(&format!("d{serial}"), spec.clone());
        delivery.status = Some(DeliveryStatus { outcome, ..DeliveryStatus::default() });
        Entry { row: Row::from(delivery), spec }
    }

    fn explained(notification: &str, subject: &str, triggers: &serde_json::Value) -> Explained {
        Explained {
            notification: notification.to_owned(),
            targets: vec![subject.to_owned()],
            subjects: Vec::new(),
            spec: json!({"triggers": triggers}).as_object().unwrap().clone(),
            fields: BTreeMap::new(),
            last_sent_time: None,
            last_sent: BTreeMap::new(),
            unobserved: BTreeMap::new(),
            problem: None,
        }
    }

    #[test]
    fn each_notification_shows_what_it_sent_and_what_it_did_not_want() {
        let entries = [
            entry("chat", 1, 1000, "1", Some(Outcome::Delivered)),
            entry("chat", 2, 2000, "2", Some(Outcome::Parked)),
            entry("audit", 2, 2000, "2", None),
        ];
        let subject = entries[0].spec.subject.name.clone();
        let settings = [
            explained("chat", &subject, &json!([{"type": "Deployed"}])),
            explained("audit", &subject, &json!([{"type": "Deployed", "when": "revision == '2'"}])),
            explained("pager", &subject, &json!([{"type": "Failed"}])),
        ];
        let now = Time::from_second(3000).unwrap();
        let drawn = timeline(&entries, &[], &settings, Range::default(), now);
        assert_eq!(drawn.lanes.len(), 1);
        let signs: Vec<_> = drawn.lanes[0]
            .lines
            .iter()
            .map(|line| (line.notification.as_str(), line.marks.iter().map(|mark| mark.sign).collect::<String>()))
            .collect();
        assert_eq!(signs, [("audit", "○…".to_owned()), ("chat", "✓✕".to_owned()), ("pager", "○○".to_owned())]);
        let pager = &drawn.lanes[0].lines[2].marks[0];
        assert!(
            pager.title.contains("Not wanted: no trigger has the type Deployed") && pager.link.is_none(),
            "{}",
            pager.title
        );
        assert!(drawn.lanes[0].lines[0].marks[0].title.contains("revision == '2'"));
        let words: Vec<_> = drawn.lanes[0].bars.iter().map(|bar| bar.words.as_str()).collect();
        assert_eq!(words.last(), Some(&"Current 2"));
        assert!(drawn.lanes[0].bars.windows(2).all(|two| two[0].end <= two[1].start + 0.001));
    }

    #[test]
    fn a_range_leaves_out_what_is_older() {
        let entries =
            [entry("chat", 1, 1000, "1", Some(Outcome::Delivered)), entry("chat", 2, 9000, "2", Some(Outcome::Delivered))];
        let now = Time::from_second(10_000).unwrap();
        let range = Range { from: Some(Time::from_second(8000).unwrap()), to: None };
        let drawn = timeline(&entries, &[], &[], range, now);
        assert_eq!(drawn.lanes[0].lines[0].marks.len(), 1);
        assert!((drawn.lanes[0].lines[0].marks[0].at - 50.0).abs() < 0.01);
        assert_eq!(drawn.lanes[0].bars.len(), 2);
    }

    #[test]
    fn a_glob_that_does_not_match_is_named() {
        let one = entry("chat", 1, 1000, "1", None);
        let why = |trigger: serde_json::Value| {
            why_not(&[Compiled::new(serde_json::from_value(trigger).unwrap())], TransitionType::Deployed, &one)
        };
        assert!(why(json!({"type": "Deployed", "environments": ["nowhere-*"]})).unwrap().contains("nowhere-*"));
        assert!(why(json!({"type": "Deployed", "clusters": ["nowhere"]})).unwrap().contains("clusters nowhere"));
        assert!(why(json!({"type": "Deployed", "for": "5m"})).unwrap().contains("5m"));
        assert_eq!(why(json!({"type": "Deployed"})), None);
    }
}
