//! The timeline of a pipeline: one lane for each subject, and under it one line for each notification. Pure.
//!
//! What happened is known from the recorded deliveries: each has the state before and after its change. A change that no notification
//! reports leaves no record once it has left the change log, so it is not in the timeline. A bar shows a state from one change to the next
//! only if the next change started from that state. Otherwise the bar is quiet, because the state between the two is not known.

mod unwanted;

use std::collections::{BTreeMap, BTreeSet};

use relaybook_text::cut_chars;

use crate::query::Range;
use crate::screens::parts::{Tone, age_words, outcome_words, short_revision, status_word, utc};
use crate::screens::table::story;
use relaybook_api::delivery::SubjectKind;
use relaybook_api::values::permalink;
use relaybook_api::{Outcome, State, Status, Time};
use relaybook_tools::audit::Entry;
use relaybook_tools::preview::Explained;
use unwanted::{is_about_targets, unwanted};

/// Maximum number of marks of a line. The newest are shown.
const MARKS: usize = 100;
/// Maximum number of characters of a title. A condition of a trigger can be long.
const LONGEST: usize = 300;
/// Minimum time that the timeline shows, in milliseconds.
const SHORTEST: i64 = 20_000;
/// Number of labels of the axis.
const TICKS: i64 = 5;
/// Why a state is not known.
const NOT_KNOWN: &str = "not known: no notification reports every change";

/// The whole timeline.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) lanes: Vec<Lane>,
    /// The times of the axis: in the middle of each of this number of parts of the width.
    pub(crate) ticks: Vec<Time>,
    /// Whether the labels of the axis need the day.
    pub(crate) is_long: bool,
}

/// One subject.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) subject: String,
    pub(crate) bars: Vec<Bar>,
    pub(crate) lines: Vec<Line>,
}

/// A time in which the state of a target was the same, or is not known. Positions are in percent.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) tone: Tone,
    pub(crate) words: String,
    pub(crate) title: String,
}

/// The deliveries of one notification about a subject.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) notification: String,
    pub(crate) marks: Vec<Mark>,
}

/// One delivery, or a change that the notification does not report.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) at: f64,
    pub(crate) tone: Tone,
    /// A sign, so that the meaning does not depend on the colour.
    pub(crate) sign: &'static str,
    pub(crate) title: String,
    pub(crate) link: Option<String>,
}

/// What is known of a target now.
#[derive(Clone, Debug)]
pub(crate) struct Present {
    pub(crate) subject: String,
    pub(crate) status: Status,
    pub(crate) revision: String,
    pub(crate) since: Option<Time>,
    /// The last state that counts as a change. The state above can be one that does not, such as that of an unreachable cluster.
    pub(crate) settled: Option<(Status, String)>,
}

/// Draws the timeline. `present`: all targets of the pipeline, in their order.
pub(crate) fn timeline(
    entries: &[Entry],
    present: &[Present],
    explained: &[Explained],
    range: Range,
    now: Time,
) -> Timeline {
    let to = range.to.unwrap_or(now);
    let times = entries.iter().map(|entry| entry.spec.time).chain(present.iter().filter_map(|target| target.since));
    let from = range.from.or(times.min()).unwrap_or(now);
    // Some space before the first mark, and no empty time.
    let width = (to.as_millisecond() - from.as_millisecond()).max(SHORTEST);
    let from = if range.from.is_some() { from } else { millis(to.as_millisecond() - width - width / 20) };
    let scale = Scale { from: from.as_millisecond(), to: to.as_millisecond().max(from.as_millisecond() + 1) };
    let lanes = subjects(entries, present).into_iter().map(|subject| {
        let own: Vec<&Entry> = entries.iter().filter(|entry| of(entry) == subject).collect();
        let target = present.iter().find(|target| (SubjectKind::Target, target.subject.as_str()) == subject);
        let bars = bars(&own, subject, target, scale, now);
        Lane { subject: label(subject), bars, lines: lines(&own, subject, explained, scale, now) }
    });
    let mut lanes: Vec<Lane> = lanes.collect();
    if lanes.iter().all(Lane::is_empty) {
        for lane in &mut lanes {
            lane.bars.clear();
        }
    }
    let is_long = scale.to - scale.from > 36 * 3_600_000;
    Timeline { from, to: millis(scale.to), lanes, ticks: ticks(scale), is_long }
}

impl Lane {
    /// Whether nothing is known in the time range: no state, and no delivery.
    fn is_empty(&self) -> bool {
        self.bars.iter().all(|bar| bar.tone == Tone::Quiet) && self.lines.iter().all(|line| line.marks.is_empty())
    }
}

/// The kind and the name of a subject. A cluster and an environment can have the same name.
type Of<'a> = (SubjectKind, &'a str);

fn of(entry: &Entry) -> Of<'_> {
    (entry.spec.subject.kind, entry.spec.subject.name.as_str())
}

/// Returns the subjects in the order of their lanes: the targets of the pipeline, and then all others by kind and name.
fn subjects<'a>(entries: &'a [Entry], present: &'a [Present]) -> Vec<Of<'a>> {
    let mut all: Vec<Of<'a>> = present.iter().map(|target| (SubjectKind::Target, target.subject.as_str())).collect();
    let mut others: Vec<Of<'a>> = entries.iter().map(of).filter(|subject| !all.contains(subject)).collect();
    others.sort_by_key(|(kind, name)| (*kind as u8, *name));
    others.dedup();
    all.append(&mut others);
    all
}

fn label((kind, name): Of<'_>) -> String {
    match kind {
        SubjectKind::Target => name.to_owned(),
        SubjectKind::Environment => format!("environment {name}"),
        SubjectKind::Cluster => format!("cluster {name}"),
        SubjectKind::Pipeline => "pipeline".to_owned(),
    }
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

fn ticks(scale: Scale) -> Vec<Time> {
    (0..TICKS).map(|n| millis(scale.from + (scale.to - scale.from) * (2 * n + 1) / (2 * TICKS))).collect()
}

/// Returns the bars of a target. Another subject has no states, only events, each at a point in time.
fn bars(own: &[&Entry], subject: Of<'_>, present: Option<&Present>, scale: Scale, now: Time) -> Vec<Bar> {
    if subject.0 != SubjectKind::Target {
        let title = format!("{}: only its events are recorded, no state between them", label(subject));
        return vec![Bar { start: 0.0, end: 100.0, tone: Tone::Quiet, words: "events".to_owned(), title }];
    }
    let mut changes = own.to_vec();
    changes.sort_by_key(|entry| (entry.spec.serial, entry.spec.coalesced));
    changes.dedup_by_key(|entry| entry.spec.serial);
    let mut parts = changes.first().map(|first| before(first, present)).unwrap_or_default();
    parts.extend(changes.iter().zip(changes.iter().skip(1)).map(|(older, newer)| between(older, newer)));
    parts.extend(after(changes.last().copied(), present, now));
    parts.iter().filter_map(|part| part.bar(scale)).collect()
}

/// The status and the revision of a target.
type Seen<'a> = (Status, &'a str);

fn seen(state: &State) -> Seen<'_> {
    (state.status, state.revision.as_str())
}

fn named((status, revision): Seen<'_>) -> String {
    format!("{} {revision}", status_word(Some(status))).trim_end().to_owned()
}

/// A part of the lane of a target.
struct Part<'a> {
    start: Time,
    end: Time,
    /// The state, or what is known about its beginning and its end.
    state: Result<Seen<'a>, String>,
}

impl Part<'_> {
    /// Draws it. `None`: it is outside of the time range, or the target did not exist.
    fn bar(&self, scale: Scale) -> Option<Bar> {
        let (start, end) = (scale.at(self.start).max(0.0), scale.at(self.end).min(100.0));
        let times = || format!("from {} until {}", utc(self.start), utc(self.end));
        let (tone, words, title) = match &self.state {
            Ok((Status::NotFound, "")) => return None,
            Ok(state @ (status, revision)) => {
                let words = named((*status, short_revision(revision).as_str()));
                (Tone::of_status(Some(*status)), words, format!("{}, {}", named(*state), times()))
            }
            Err(known) => (Tone::Quiet, "not known".to_owned(), format!("{NOT_KNOWN} ({known})")),
        };
        (start < end).then_some(Bar { start, end, tone, words, title })
    }
}

/// Returns what is known before the first change: its `from`, since the target has the status of that state.
fn before<'a>(first: &'a Entry, present: Option<&Present>) -> Vec<Part<'a>> {
    let (at, was) = (first.spec.time, seen(&first.spec.from));
    let lasting = present.filter(|target| target.status == was.0 && !first.spec.coalesced).and_then(|target| target.since);
    let (end, word) = lasting.filter(|since| *since < at).map_or((at, "before"), |since| (since, "from"));
    let unknown = Err(format!("was {} {word} {}", named(was), utc(end)));
    vec![Part { start: Time::UNIX_EPOCH, end, state: unknown }, Part { start: end, end: at, state: Ok(was) }]
}

/// Returns what is known between two changes. A merged change started from an earlier state than the one right before it.
fn between<'a>(older: &'a Entry, newer: &'a Entry) -> Part<'a> {
    let (start, end, to, from) = (older.spec.time, newer.spec.time, &older.spec.to, &newer.spec.from);
    // Two states that look the same differ in these fields if there were other states between them.
    let has_lasted = seen(to) == seen(from) && to.current == from.current && to.failed == from.failed;
    let unknown = || format!("{} from {}, {} before {}", named(seen(to)), utc(start), named(seen(from)), utc(end));
    let state = if has_lasted && !newer.spec.coalesced { Ok(seen(to)) } else { Err(unknown()) };
    Part { start, end, state }
}

/// Returns what is known after the last change. If the present state is the one after it, that state continues. `since` is then often
/// later: it also moves if the status was different for a moment, and that is not a change.
fn after<'a>(last: Option<&'a Entry>, present: Option<&'a Present>, now: Time) -> Vec<Part<'a>> {
    let was = last.map(|last| seen(&last.spec.to));
    let start = last.map_or(Time::UNIX_EPOCH, |last| last.spec.time);
    let is = present.map(|target| (target.status, target.revision.as_str()));
    if let Some(state) = was.filter(|_| was == is) {
        return vec![Part { start, end: now, state: Ok(state) }];
    }
    let since = present.and_then(|target| target.since).filter(|since| *since > start);
    let known = is.zip(since).map(|(is, since)| Part { start: since, end: now, state: Ok(is) });
    let settled = present.and_then(|target| target.settled.as_ref()).map(|(status, revision)| (*status, revision.as_str()));
    let unknown = || was.map_or_else(|| "nothing is recorded".into(), |was| format!("{} from {}", named(was), utc(start)));
    let state = was.filter(|_| was == settled).ok_or_else(unknown);
    let unknown = (was.is_some() || known.is_some()).then_some(Part { start, end: since.unwrap_or(now), state });
    unknown.into_iter().chain(known).collect()
}

fn lines(own: &[&Entry], (kind, name): Of<'_>, explained: &[Explained], scale: Scale, now: Time) -> Vec<Line> {
    let recorded = own.iter().map(|entry| entry.spec.notification.as_str());
    let is_about = |one: &&Explained| one.targets.iter().any(|target| target == name) && is_about_targets(one);
    let about = explained.iter().filter(|one| kind == SubjectKind::Target && is_about(one));
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
    Mark { at: scale.at(spec.time), tone, sign, title: cut_chars(&title, LONGEST).into_owned(), link }
}

/// Returns the words for a timeline without marks.
pub(crate) fn empty_words(range: Range, now: Time) -> String {
    match range.from {
        Some(from) => format!("Nothing was recorded since {} ({}).", utc(from), age_words(from, now)),
        None => "Nothing was recorded yet: no notification has reported a change of this pipeline.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use Status::{Current, Failed, InProgress, NotFound, Unknown};

    use super::unwanted::{Compiled, why_not};
    use super::*;
    use relaybook_api::TransitionType;
    use relaybook_api::delivery::Subject;
    use relaybook_api::{Delivery, DeliveryStatus};

    fn entry(notification: &str, serial: i64, second: i64, revision: &str, outcome: Option<Outcome>) -> Entry {
        let mut spec = relaybook_api::testing::spec(serial);
        spec.notification = notification.to_owned();
        spec.time = Time::from_second(second).unwrap();
        spec.type_ = TransitionType::Deployed;
        (spec.to.status, spec.to.revision) = (Current, revision.to_owned());
        let mut delivery = Delivery::new(&format!("d{serial}"), spec.clone());
        delivery.status = Some(DeliveryStatus { outcome, ..DeliveryStatus::default() });
        Entry::from(delivery)
    }

    /// A reported change of a target, from one state to another.
    fn change(serial: i64, second: i64, from: Seen<'_>, to: Seen<'_>) -> Entry {
        let state = |(status, revision): Seen<'_>| State { status, revision: revision.to_owned(), ..State::default() };
        let mut one = entry("chat", serial, second, "", Some(Outcome::Delivered));
        (one.spec.from, one.spec.to) = (state(from), state(to));
        one
    }

    fn present((status, revision): Seen<'_>, since: Option<i64>) -> Present {
        let subject = relaybook_api::testing::spec(0).subject.name;
        let since = since.map(|at| Time::from_second(at).unwrap());
        Present { subject, status, revision: revision.to_owned(), since, settled: None }
    }

    /// Draws the one lane from second 0 to 10,000, which is now.
    fn drawn(entries: &[Entry], present: Option<Present>) -> Vec<Bar> {
        let range = Range { from: Some(Time::UNIX_EPOCH), to: None };
        let present: Vec<Present> = present.into_iter().collect();
        let mut lanes = timeline(entries, &present, &[], range, Time::from_second(10_000).unwrap()).lanes;
        assert_eq!(lanes.len(), 1);
        lanes.remove(0).bars
    }

    /// Returns the words of each bar, with the seconds of its start and its end.
    fn states(entries: &[Entry], present: Option<Present>) -> Vec<String> {
        let bars = drawn(entries, present);
        bars.iter().map(|bar| format!("{} {:.0}-{:.0}", bar.words, bar.start * 100.0, bar.end * 100.0)).collect()
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
            not_ready: BTreeMap::new(),
            problem: None,
        }
    }

    #[test]
    fn each_notification_shows_sent_and_unwanted_changes() {
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
        let drawn = timeline(&entries, &[present((Current, "2"), Some(2000))], &settings, Range::default(), now);
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
    fn a_range_leaves_out_changes_outside_of_it() {
        let entries = [
            change(1, 1000, (InProgress, "1"), (Current, "1")),
            change(2, 9000, (Current, "1"), (InProgress, "2")),
            change(3, 12_000, (Failed, "2"), (Current, "2")),
        ];
        let lanes = |from: i64, to: i64, present: &[Present]| {
            let at = |second| Some(Time::from_second(second).unwrap());
            let range = Range { from: at(from), to: at(to) };
            timeline(&entries, present, &[], range, Time::from_second(20_000).unwrap()).lanes
        };
        let lane = |from: i64, to: i64| lanes(from, to, &[]).remove(0);
        let cut = lane(8000, 10_000);
        assert_eq!(cut.lines[0].marks.len(), 1);
        assert!((cut.lines[0].marks[0].at - 50.0).abs() < 0.01);
        let bars: Vec<_> = cut.bars.iter().map(|bar| format!("{} {:.0}-{:.0}", bar.words, bar.start, bar.end)).collect();
        assert_eq!(bars, ["Current 1 0-50", "not known 50-100"]);
        assert!(
            cut.bars[0].title.contains("from 1970-01-01 00:16:40 UTC until 1970-01-01 02:30:00"),
            "{}",
            cut.bars[0].title
        );
        for (from, to, number) in [(2000, 8000, 1), (9500, 11_000, 0), (13_000, 15_000, 0), (11_000, 13_000, 2)] {
            assert_eq!(lane(from, to).bars.len(), number, "{from}-{to}: without a state and a mark, nothing is drawn");
        }
        let other = Present { subject: "dev/in-cluster/podinfo".to_owned(), ..present((Current, "1"), Some(1000)) };
        let both = lanes(9500, 11_000, &[other]);
        let words: Vec<_> = both.iter().map(|lane| lane.bars[0].words.as_str()).collect();
        assert_eq!(words, ["Current 1", "not known"], "another lane has a state");
    }

    #[test]
    fn a_bar_shows_only_known_states() {
        let coalesced = |mut one: Entry| {
            one.spec.coalesced = true;
            one
        };
        let (began, ended) = (((Current, "1"), (InProgress, "2")), ((InProgress, "2"), (Current, "2")));
        let failed = [change(1, 1000, (InProgress, "2"), (Failed, "2")), change(2, 5000, (InProgress, "4"), (Failed, "4"))];
        let continued = [change(1, 1000, began.0, began.1), change(5, 2000, ended.0, ended.1)];
        let merged = [continued[0].clone(), coalesced(continued[1].clone())];
        let twice = [merged[0].clone(), coalesced(change(5, 2000, (Current, "1"), ended.1)), continued[1].clone()];
        let mut other = continued.clone();
        other[1].spec.from.current = Some("3".to_owned());
        let gone = [change(1, 1000, (Current, "1"), (NotFound, "")), change(2, 3000, (NotFound, ""), (InProgress, "2"))];
        let replaced = [change(1, 5000, (Current, "1"), (Current, "2"))];
        let now = |state, since| Some(present(state, Some(since)));
        let unobserved = || Some(present((Unknown, ""), None));
        for (what, entries, present, expected) in [
            (
                "from contradicts",
                &failed[..],
                now((Current, "4"), 6000),
                &["not known 0-1000", "not known 1000-5000", "not known 5000-6000", "Current 4 6000-10000"][..],
            ),
            (
                "from continues",
                &continued,
                now((Current, "2"), 2001),
                &["not known 0-1000", "InProgress 2 1000-2000", "Current 2 2000-10000"],
            ),
            (
                "a merged change",
                &merged,
                now((Current, "2"), 2001),
                &["not known 0-1000", "not known 1000-2000", "Current 2 2000-10000"],
            ),
            (
                "a change that one notification got merged",
                &twice,
                now((Current, "2"), 2001),
                &["not known 0-1000", "InProgress 2 1000-2000", "Current 2 2000-10000"],
            ),
            (
                "another revision ran in between",
                &other,
                None,
                &["not known 0-1000", "not known 1000-2000", "not known 2000-10000"],
            ),
            ("no present state", &replaced, None, &["not known 0-5000", "not known 5000-10000"]),
            ("not observed", &replaced, unobserved(), &["not known 0-5000", "not known 5000-10000"]),
            ("it did not exist", &gone, None, &["not known 0-1000", "not known 3000-10000"]),
            ("nothing recorded", &[], now((Current, "1"), 4000), &["not known 0-4000", "Current 1 4000-10000"]),
            (
                "the same status for longer",
                &replaced,
                now((Current, "2"), 2000),
                &["not known 0-2000", "Current 1 2000-5000", "Current 2 5000-10000"],
            ),
            (
                "the present state does not match",
                &replaced,
                now((Current, "3"), 2000),
                &["not known 0-2000", "Current 1 2000-5000", "not known 5000-10000"],
            ),
        ] {
            assert_eq!(states(entries, present), expected, "{what}");
        }
        assert_eq!(states(&[], unobserved()), Vec::<String>::new());
    }

    #[test]
    fn a_title_says_why_a_state_is_not_known() {
        let changes = [change(1, 1000, (InProgress, "2"), (Failed, "2")), change(2, 5000, (InProgress, "4"), (Failed, "4"))];
        let bars = drawn(&changes, None);
        let titles: Vec<_> = bars.iter().map(|bar| bar.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "not known: no notification reports every change (was InProgress 2 before 1970-01-01 00:16:40 UTC)",
                "not known: no notification reports every change (Failed 2 from 1970-01-01 00:16:40 UTC, InProgress 4 before \
                 1970-01-01 01:23:20 UTC)",
                "not known: no notification reports every change (Failed 4 from 1970-01-01 01:23:20 UTC)",
            ]
        );
        assert!(bars.iter().all(|bar| bar.tone == Tone::Quiet));
    }

    #[test]
    fn subjects_of_different_kinds_with_the_same_name_have_their_own_lanes() {
        let about = |kind, type_, serial: i64| {
            let mut one = entry("chat", serial, 1000 * serial, "1", Some(Outcome::Delivered));
            one.spec.subject = Subject { kind, name: "prod".to_owned(), ..Subject::default() };
            one.spec.type_ = type_;
            one
        };
        let entries = [
            about(SubjectKind::Pipeline, TransitionType::PipelineReady, 1),
            about(SubjectKind::Environment, TransitionType::EnvironmentReady, 2),
            about(SubjectKind::Environment, TransitionType::PromotionPending, 3),
            about(SubjectKind::Cluster, TransitionType::ClusterOffline, 4),
            entry("chat", 5, 5000, "1", Some(Outcome::Delivered)),
        ];
        let now = Time::from_second(9000).unwrap();
        let target = present((Current, "1"), Some(5000));
        let name = target.subject.clone();
        let settings = [explained("pager", "prod", &json!([{"type": "Failed"}]))];
        let lanes = timeline(&entries, &[target], &settings, Range::default(), now).lanes;
        let marks = |lane: &Lane| lane.lines.iter().map(|line| line.marks.len()).sum::<usize>();
        let shown: Vec<_> = lanes.iter().map(|lane| (lane.subject.as_str(), marks(lane))).collect();
        assert_eq!(shown, [(name.as_str(), 1), ("cluster prod", 1), ("environment prod", 2), ("pipeline", 1)]);
        assert!(lanes.iter().all(|lane| lane.lines.len() == 1), "{lanes:?}");
        for lane in &lanes[1..] {
            assert!(matches!(&lane.bars[..], [Bar { tone: Tone::Quiet, words, .. }] if words == "events"), "{lane:?}");
        }
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
