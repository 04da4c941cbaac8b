//! The log itself: each serial is used once, serials only increase, and the length is bounded while the log is not read.

use std::collections::{BTreeMap, BTreeSet};

use relaybook_api::pipeline::Dispatched;
use relaybook_api::promotion::{Phase, PromotionState};
use relaybook_api::values::configuration::differ;
use relaybook_api::{Change, ChangeLog, LogSubject, State, Status, Time};

/// Maximum number of changes of one subject in the log. If there are more, changes are merged: first an `InProgress` with its
/// result, then the oldest ones. The request of a promotion is merged last, and only if the promotion has ended.
pub const MAX_PER_SUBJECT: usize = 8;

/// Opens the log of a pipeline that is observed for the first time.
///
/// It starts at the Unix time in milliseconds, so that the log of a pipeline whose status was wiped continues above the serials that
/// it used before. It starts above `highest`, the highest serial known to be used, even if the clock was set back.
#[must_use]
pub fn open(now: Time, highest: Option<i64>) -> ChangeLog {
    let first = now.as_millisecond().max(highest.map_or(i64::MIN, |h| h.saturating_add(1)));
    ChangeLog { epoch: 0, first, serial: first, held_until: None, changes: Vec::new() }
}

/// Adds one change with the next serial.
pub fn append(log: &mut ChangeLog, subject: LogSubject<'_>, time: Time, from: State, to: State) {
    log.serial = log.serial.saturating_add(1);
    log.changes.push(Change { serial: log.serial, subject: subject.to_string(), time, from, to, ..Change::default() });
}

/// Removes the changes that every cursor has passed, except those whose timers run. Without a cursor, it is unknown whether the log was
/// read, so all changes stay.
pub fn prune(log: &mut ChangeLog, dispatched: Option<&Dispatched>) {
    let Some(dispatched) = dispatched else { return };
    if let Some(lowest) = dispatched.cursors.iter().map(|c| c.serial).min() {
        let armed = armed(Some(dispatched));
        log.changes.retain(|c| c.serial > lowest || armed.contains(&c.serial));
    }
}

/// The serials of the changes whose timers run.
fn armed(dispatched: Option<&Dispatched>) -> BTreeSet<i64> {
    dispatched.into_iter().flat_map(|d| &d.armed).map(|clock| clock.serial).collect()
}

/// The serials of the changes that are not merged: those whose timers run, and after each of them the first changes that can end its state.
/// The time of such a change decides whether the timer was due before it.
#[must_use]
pub fn kept(log: &ChangeLog, dispatched: Option<&Dispatched>) -> BTreeSet<i64> {
    let armed = armed(dispatched);
    let mut kept = armed.clone();
    for change in log.changes.iter().filter(|c| armed.contains(&c.serial)) {
        let later = || log.changes.iter().filter(|c| c.serial > change.serial && c.subject == change.subject);
        let drifts = |c: &&Change| c.from.drifted != c.to.drifted;
        let removes = |c: &&Change| c.to.status == Status::NotFound;
        let ends = [later().find(|c| moves(c)), later().find(drifts), later().find(removes)];
        kept.extend(ends.into_iter().flatten().map(|c| c.serial));
    }
    kept
}

/// Whether a change can end the state before it: status, revision or configuration differ, or it is a step of a promotion.
fn moves(change: &Change) -> bool {
    let Change { from, to, .. } = change;
    let is_configured = differ(&from.configuration, &to.configuration);
    to.promotion.is_some() || from.status != to.status || from.revision != to.revision || is_configured
}

/// Merges changes of each subject that has more than [`MAX_PER_SUBJECT`], not counting those in `kept`, until no subject has more, or
/// until those that are left cannot be merged.
pub fn compact(log: &mut ChangeLog, kept: &BTreeSet<i64>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for change in log.changes.iter().filter(|c| !kept.contains(&c.serial)) {
        *counts.entry(&change.subject).or_default() += 1;
    }
    let crowded: Vec<(String, usize)> =
        counts.into_iter().filter(|(_, n)| *n > MAX_PER_SUBJECT).map(|(s, n)| (s.to_owned(), n)).collect();
    for (subject, count) in crowded {
        for _ in MAX_PER_SUBJECT..count {
            merge_two(log, &subject, kept);
        }
    }
}

/// Merges two neighboring changes of a subject: from `from` of the older one to `to` of the newer one, at the position of the newer
/// one. Returns whether there were two that can be merged.
///
/// The oldest change to `InProgress` is merged into the change after it. This loses the least. The mark is then on a change that is
/// also reported to notifications without the trigger `Progressing`. If there is no such change, the two oldest are merged.
///
/// A merged change is never `Added`. So of the changes to `InProgress`, and then of all, one that adds an object is merged last.
///
/// A merge loses what the older change means. The request of a promotion must not be lost, because nothing else carries the promotion
/// out. So a request is the older of two only if there is no other pair, and only if its promotion has ended. Then nobody needs it.
pub(super) fn merge_two(log: &mut ChangeLog, subject: &str, kept: &BTreeSet<i64>) -> bool {
    let ours = log.changes.iter().enumerate().filter(|(_, c)| c.subject == subject && !kept.contains(&c.serial));
    let appears = |c: &Change| c.from.status == Status::NotFound;
    let pairs =
        ours.clone().zip(ours.skip(1)).map(|((older, c), (newer, next))| (older, newer, c, appears(c) || appears(next)));
    let others = pairs.clone().filter(|(_, _, c, _)| requested(c).is_none());
    let began = others.clone().filter(|(_, _, c, _)| c.to.status == Status::InProgress);
    // `false` is less than `true`, and of equal pairs the oldest is taken.
    let oldest = began.min_by_key(|(.., added)| *added).or_else(|| others.min_by_key(|(.., added)| *added));
    let found = oldest.or_else(|| pairs.clone().find(|(_, _, c, _)| has_ended(log, c)));
    let Some((older, newer)) = found.map(|(older, newer, ..)| (older, newer)) else { return false };
    let older = log.changes.remove(older);
    let newer = &mut log.changes[newer - 1];
    newer.coalesced = true;
    // A failure between the two must stay visible: it decides whether the merged change is a recovery.
    let failed = older.from.failed || newer.from.failed;
    // Drift that appeared or disappeared between them must stay visible too: its end state is reported, whatever it was before.
    let touched = older.from.drifted != older.to.drifted || newer.from.drifted != newer.to.drifted;
    let drifted = newer.to.drifted != touched;
    let left = |moved: bool, known: Option<Time>| known.or(moved.then_some(older.time));
    newer.left.status = left(moves(&older), older.left.status).or(newer.left.status);
    newer.left.drift = left(older.from.drifted != older.to.drifted, older.left.drift).or(newer.left.drift);
    newer.from = State { failed, drifted, ..older.from };
    true
}

/// The promotion that a change requests.
fn requested(change: &Change) -> Option<&PromotionState> {
    change.to.promotion.as_ref().filter(|promotion| promotion.phase == Phase::Requested)
}

/// Whether the promotion that a change requests has ended. A later promotion of the same subject has a step only after that, and the same
/// promotion is requested again only after that.
fn has_ended(log: &ChangeLog, change: &Change) -> bool {
    let later = log.changes.iter().filter(|c| c.serial > change.serial && c.subject == change.subject);
    let mut states = later.filter_map(|c| c.to.promotion.as_ref());
    let ended = |is: &PromotionState| is.phase.is_ended() || is.phase == Phase::Requested;
    requested(change).is_some_and(|of| states.any(|is| is.name != of.name || ended(is)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::TransitionType;
    use relaybook_api::pipeline::{Cursor, RunningTimer};

    fn at(ms: i64) -> Time {
        Time::from_millisecond(ms).unwrap()
    }

    fn state(status: Status, revision: &str, failed: bool) -> State {
        State { status, revision: revision.to_owned(), failed, ..State::default() }
    }

    fn append(log: &mut ChangeLog, subject: &str, time: Time, from: State, to: State) {
        super::append(log, LogSubject::parse(subject), time, from, to);
    }

    fn log_of(subjects: &[&str]) -> ChangeLog {
        let mut log = open(at(1000), None);
        for (i, s) in (1..).zip(subjects) {
            let before = state(Status::Current, &format!("v{}", i - 1), false);
            append(&mut log, s, at(1000 + i), before, state(Status::Current, &format!("v{i}"), false));
        }
        log
    }

    fn serials(log: &ChangeLog) -> Vec<i64> {
        log.changes.iter().map(|c| c.serial).collect()
    }

    #[test]
    fn serials_start_at_the_clock_and_above_used_serials() {
        assert_eq!(
            open(at(1000), None),
            ChangeLog { epoch: 0, first: 1000, serial: 1000, held_until: None, changes: vec![] }
        );
        assert_eq!(open(at(1000), Some(999)).first, 1000);
        assert_eq!(open(at(1000), Some(1000)).first, 1001);
        assert_eq!(open(at(1000), Some(5000)).serial, 5001);
        assert_eq!(serials(&log_of(&["a", "b", "a"])), [1001, 1002, 1003]);
    }

    #[test]
    fn only_changes_that_all_cursors_have_passed_are_pruned() {
        let read = |serials: &[i64], armed: &[i64]| Dispatched {
            cursors: serials.iter().map(|serial| Cursor { serial: *serial, ..Cursor::default() }).collect(),
            armed: armed.iter().map(|serial| timer(*serial)).collect(),
            ..Dispatched::default()
        };
        let mut log = log_of(&["a", "b", "a"]);
        prune(&mut log, None);
        prune(&mut log, Some(&read(&[], &[])));
        assert_eq!(serials(&log), [1001, 1002, 1003]);
        prune(&mut log, Some(&read(&[1003, 1001], &[])));
        assert_eq!(serials(&log), [1002, 1003]);
        prune(&mut log, Some(&read(&[1003], &[1002])));
        assert_eq!(serials(&log), [1002], "its timer runs");
        prune(&mut log, Some(&read(&[1003], &[])));
        assert_eq!((serials(&log), log.serial), (vec![], 1003));
    }

    fn timer(serial: i64) -> RunningTimer {
        let (notification, subject) = ("n".to_owned(), "a".to_owned());
        RunningTimer { notification, subject, serial, type_: TransitionType::Failed, due: at(serial) }
    }

    #[test]
    fn a_change_whose_timer_runs_is_not_merged() {
        let mut log = log_of(&["a"; MAX_PER_SUBJECT + 1]);
        compact(&mut log, &BTreeSet::from([1002]));
        assert_eq!(log.changes.len(), MAX_PER_SUBJECT + 1, "it does not count toward the limit");
        append(&mut log, "a", at(2000), State::default(), state(Status::Current, "v10", false));
        compact(&mut log, &BTreeSet::from([1002]));
        assert_eq!(serials(&log)[..3], [1002, 1003, 1004]);
        assert!(!log.changes[0].coalesced && log.changes[1].coalesced);
    }

    #[test]
    fn changes_that_can_end_a_state_keep_their_time() {
        let mut log = log_of(&["a"; 4]);
        let drift = |drifted| State { drifted, ..state(Status::Current, "v4", false) };
        append(&mut log, "a", at(1010), drift(false), drift(true));
        append(&mut log, "b", at(1011), drift(false), drift(true));
        let dispatched = Dispatched { armed: vec![timer(1002), timer(7)], ..Dispatched::default() };
        let all: Vec<_> = kept(&log, Some(&dispatched)).into_iter().collect();
        assert_eq!(all, [7, 1002, 1003, 1005], "the next rollout, and the next drift");
        assert!(kept(&log, None).is_empty());
    }

    #[test]
    fn drift_between_merged_changes_is_not_lost() {
        let drift = |drifted| State { drifted, ..state(Status::Current, "v1", false) };
        for (steps, touched) in [([false, false, false], false), ([false, true, false], true), ([true, false, true], true)] {
            let mut log = open(at(0), None);
            append(&mut log, "a", at(1), drift(steps[0]), drift(steps[1]));
            append(&mut log, "a", at(2), drift(steps[1]), drift(steps[2]));
            assert!(merge_two(&mut log, "a", &BTreeSet::new()));
            assert_eq!(log.changes[0].from.drifted != log.changes[0].to.drifted, touched, "{steps:?}");
            append(&mut log, "a", at(3), drift(steps[2]), drift(steps[2]));
            assert!(merge_two(&mut log, "a", &BTreeSet::new()));
            assert_eq!(log.changes[0].from.drifted != log.changes[0].to.drifted, touched, "once more: {steps:?}");
        }
    }

    #[test]
    fn the_oldest_changes_of_a_subject_are_merged_first() {
        let mut subjects = vec!["b"; 2];
        subjects.extend(["a"; MAX_PER_SUBJECT + 2]);
        let mut log = log_of(&subjects);
        compact(&mut log, &BTreeSet::new());
        assert_eq!(serials(&log), [1001, 1002, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012]);
        let merged = &log.changes[2];
        assert!(merged.coalesced);
        assert_eq!((merged.from.revision.as_str(), merged.to.revision.as_str(), merged.time), ("v2", "v5", at(1005)));
        assert_eq!(log.changes.iter().filter(|c| c.coalesced).count(), 1);
        let again = log.clone();
        compact(&mut log, &BTreeSet::new());
        assert_eq!(log, again);
    }

    #[test]
    fn in_progress_is_merged_into_its_result() {
        let mut log = open(at(0), None);
        for i in 1..=6 {
            let (old, new) = (format!("v{}", i - 1), format!("v{i}"));
            append(&mut log, "a", at(i), state(Status::Current, &old, false), state(Status::InProgress, &new, false));
            append(&mut log, "a", at(i), state(Status::InProgress, &new, false), state(Status::Current, &new, false));
        }
        compact(&mut log, &BTreeSet::new());
        let told = log.changes.iter().filter(|c| c.to.status == Status::Current);
        let told: Vec<(&str, bool)> = told.map(|c| (c.to.revision.as_str(), c.coalesced)).collect();
        assert_eq!(told, [("v1", true), ("v2", true), ("v3", true), ("v4", true), ("v5", false), ("v6", false)]);
        assert_eq!(log.changes[1].from.revision, "v1");
    }

    /// Adds the steps of a promotion. Each has the time of its serial.
    fn promote(log: &mut ChangeLog, name: &str, phases: &[Phase]) {
        let step = |phase: Phase| State {
            status: if phase.is_ended() { Status::Current } else { Status::InProgress },
            revision: name.to_owned(),
            promotion: Some(PromotionState { name: name.to_owned(), phase, ..PromotionState::default() }),
            ..State::default()
        };
        let mut from = State::default();
        for phase in phases {
            let time = at(log.serial + 1);
            append(log, "promotion/prod", time, from, step(*phase));
            from = step(*phase);
        }
    }

    fn steps(log: &ChangeLog) -> Vec<String> {
        let word = |c: &Change| {
            let promotion = c.to.promotion.as_ref().unwrap();
            format!("{} {}{}", promotion.name, promotion.phase.as_str(), if c.coalesced { " *" } else { "" })
        };
        log.changes.iter().map(word).collect()
    }

    #[test]
    fn the_request_of_a_promotion_is_merged_last_and_only_after_its_end() {
        use Phase::{Failed, Finished, Merged, Pending, Requested, Withdrawn};
        let mut log = open(at(0), None);
        promote(&mut log, "a", &[Pending, Requested, Finished]);
        promote(&mut log, "b", &[Pending, Withdrawn]);
        promote(&mut log, "c", &[Requested, Failed, Requested]);
        let mut told = Vec::new();
        while merge_two(&mut log, "promotion/prod", &BTreeSet::new()) {
            told.push(steps(&log).join(", "));
        }
        assert_eq!(
            told,
            [
                "a Requested *, a Finished, b Pending, b Withdrawn, c Requested, c Failed, c Requested",
                "a Requested *, a Finished, b Withdrawn *, c Requested, c Failed, c Requested",
                "a Requested *, b Withdrawn *, c Requested, c Failed, c Requested",
                "a Requested *, c Requested *, c Failed, c Requested",
                "a Requested *, c Requested *, c Requested *",
                "c Requested *, c Requested *",
                "c Requested *",
            ],
        );
        assert_eq!(log.changes[0].left.status, Some(at(1)), "the first of them ended the state before");
        promote(&mut log, "d", &[Requested, Merged]);
        assert!(merge_two(&mut log, "promotion/prod", &BTreeSet::new()));
        assert!(!merge_two(&mut log, "promotion/prod", &BTreeSet::new()), "this promotion has not ended");
        assert_eq!(steps(&log), ["d Requested *", "d Merged"]);
    }

    #[test]
    fn a_log_of_promotions_that_nobody_reads_is_bounded() {
        use Phase::{Finished, Requested};
        let mut log = open(at(0), None);
        for n in 0..40 {
            promote(&mut log, &n.to_string(), &[Requested]);
            compact(&mut log, &BTreeSet::new());
            assert!(steps(&log).last().is_some_and(|last| last.contains(&format!("{n} Requested"))));
            promote(&mut log, &n.to_string(), &[Finished]);
            compact(&mut log, &BTreeSet::new());
            assert!(log.changes.len() <= MAX_PER_SUBJECT);
        }
    }

    #[test]
    fn every_step_of_a_promotion_can_end_a_state() {
        let mut log = open(at(0), None);
        promote(&mut log, "a", &[Phase::Pending, Phase::Requested, Phase::Finished]);
        let timer = RunningTimer { subject: "promotion/prod".to_owned(), ..timer(1) };
        let dispatched = Dispatched { armed: vec![timer], ..Dispatched::default() };
        assert_eq!(kept(&log, Some(&dispatched)), BTreeSet::from([1, 2]), "status and revision are the same");
    }

    #[test]
    fn the_creation_of_an_object_is_merged_last() {
        use Status::{Current, InProgress, NotFound};
        let mut log = open(at(0), None);
        let states = [
            (NotFound, ""),
            (InProgress, "1"),
            (Current, "1"),
            (InProgress, "2"),
            (Current, "2"),
            (NotFound, ""),
            (Current, "3"),
        ];
        for (n, pair) in (1..).zip(states.windows(2)) {
            let [from, to] = [pair[0], pair[1]].map(|(status, revision)| state(status, revision, false));
            append(&mut log, "a", at(n), from, to);
        }
        // A failure is not lost for a creation, because more notifications report it.
        let mut other = open(at(0), None);
        for (n, (from, to)) in
            (1..).zip([(NotFound, InProgress), (InProgress, Current), (Current, Status::Failed), (Status::Failed, Current)])
        {
            append(&mut other, "a", at(n), state(from, "1", false), state(to, "1", false));
        }
        assert!(merge_two(&mut other, "a", &BTreeSet::new()));
        assert_eq!(other.changes.iter().map(|c| c.coalesced).collect::<Vec<_>>(), [true, false, false]);
        let shown =
            |log: &ChangeLog| -> Vec<_> { log.changes.iter().map(|c| (c.from.status, c.to.status, c.coalesced)).collect() };
        assert!(merge_two(&mut log, "a", &BTreeSet::new()));
        assert_eq!(
            shown(&log)[..2],
            [(NotFound, InProgress, false), (InProgress, Current, false)],
            "the second rollout is merged"
        );
        // The removal ends the state that a timer of the creation waits for.
        let dispatched = Dispatched { armed: vec![timer(log.changes[0].serial)], ..Dispatched::default() };
        assert!(kept(&log, Some(&dispatched)).contains(&log.changes[3].serial));
        while log.changes.len() > 3 {
            assert!(merge_two(&mut log, "a", &BTreeSet::new()));
        }
        let want = [(NotFound, Current, true), (Current, NotFound, true), (NotFound, Current, false)];
        assert_eq!(shown(&log), want, "the last creation is still there");
        assert!(merge_two(&mut log, "a", &BTreeSet::new()), "the log has a limit");
        assert_eq!(shown(&log), [(NotFound, NotFound, true), (NotFound, Current, false)]);
    }

    #[test]
    fn a_failure_between_merged_changes_is_not_lost() {
        let mut log = open(at(0), None);
        append(&mut log, "a", at(1), state(Status::Current, "v1", false), state(Status::Failed, "v2", true));
        append(&mut log, "a", at(2), state(Status::Failed, "v2", true), state(Status::Current, "v1", false));
        assert!(merge_two(&mut log, "a", &BTreeSet::new()));
        assert!(!merge_two(&mut log, "a", &BTreeSet::new()));
        assert_eq!(log.changes[0].from, state(Status::Current, "v1", true));
        assert_eq!(log.changes[0].to, state(Status::Current, "v1", false));
    }
}
