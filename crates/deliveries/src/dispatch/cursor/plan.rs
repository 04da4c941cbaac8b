//! Plans which cursors a pipeline has, and the serial of each. Pure.
//!
//! The log is a stream and the cursors are its consumers. A notification that is new to a pipeline starts at the log's current serial,
//! because the earlier state is the silent baseline. Only in a pipeline that the dispatcher has never seen, it starts at the log's first
//! serial.

use std::collections::BTreeMap;

use crate::dispatch::status::sent::{Sent, newest, summary};
use relaybook_api::delivery::{GLOBAL, is_same_notification};
use relaybook_api::pipeline::{Cursor, Dispatched, LastSent, NotReadyNotification, RunningTimer};
use relaybook_api::{ChangeLog, Time};

/// The desired content of the dispatcher's part of a pipeline's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The cursors, by notification.
    pub cursors: BTreeMap<String, Cursor>,
    /// By notification: the running timers.
    pub armed: BTreeMap<String, Vec<RunningTimer>>,
    /// By subject: the last successful delivery.
    pub last_sent: BTreeMap<String, Sent>,
    /// By notification: the time of its last successful delivery.
    pub last_sent_by: BTreeMap<String, Time>,
    /// When the newest Delivery was recorded.
    pub recorded: Option<Time>,
    /// The notifications that cannot be sent at present.
    pub troubles: Vec<NotReadyNotification>,
    /// Generated targets whose object is gone and that have pending deliveries.
    pub pending_targets: Vec<String>,
    /// The shard that handles the pipeline. `None`: the one without an ID.
    pub shard: Option<String>,
}

impl From<&Dispatched> for Position {
    fn from(dispatched: &Dispatched) -> Self {
        let mut armed: BTreeMap<String, Vec<RunningTimer>> = BTreeMap::new();
        for timer in &dispatched.armed {
            armed.entry(timer.notification.clone()).or_default().push(timer.clone());
        }
        let bare = |c: &Cursor| (c.notification.clone(), Cursor { last_sent_time: None, ..c.clone() });
        let sent = |l: &LastSent| (l.subject.clone(), Sent { time: l.time, notification: l.notification.clone() });
        Self {
            armed,
            cursors: dispatched.cursors.iter().map(bare).collect(),
            last_sent: dispatched.last_sent.iter().map(sent).collect(),
            last_sent_by: dispatched
                .cursors
                .iter()
                .filter_map(|c| Some((c.notification.clone(), c.last_sent_time?)))
                .collect(),
            recorded: dispatched.recorded,
            troubles: dispatched.notifications.clone(),
            pending_targets: dispatched.pending_targets.clone(),
            shard: dispatched.shard.clone(),
        }
    }
}

impl From<&Position> for Dispatched {
    fn from(position: &Position) -> Self {
        let sent = |(subject, sent): (&String, &Sent)| LastSent {
            subject: subject.clone(),
            time: sent.time,
            notification: sent.notification.clone(),
        };
        let dated = |cursor: &Cursor| Cursor {
            last_sent_time: position.last_sent_by.get(&cursor.notification).copied(),
            ..cursor.clone()
        };
        let newest = newest(&position.last_sent);
        Self {
            cursors: position.cursors.values().map(dated).collect(),
            last_sent: position.last_sent.iter().map(sent).collect(),
            last_sent_time: newest.map(|sent| sent.time),
            last_sent_by: newest.map(|sent| sent.notification.clone()).unwrap_or_default(),
            last_sent_summary: summary(&position.last_sent),
            recorded: position.recorded,
            notifications: position.troubles.clone(),
            pending_targets: position.pending_targets.clone(),
            shard: position.shard.clone(),
            armed: position.armed.values().flatten().cloned().collect(),
        }
    }
}

impl Position {
    /// Notes when the newest Delivery was recorded. `new_log`: when the log began, if no position is persisted. Then the status may have been
    /// deleted, and earlier Deliveries are still pending. They were created before the log, so a proof of only some of them must not exclude
    /// the others.
    pub fn note_recorded(&mut self, newest: Option<Time>, new_log: Option<Time>) {
        self.recorded = self.recorded.max(newest).max(new_log);
    }

    /// Returns the lowest cursor: all notifications have passed the changes up to it.
    pub fn lowest(&self) -> i64 {
        self.cursors.values().map(|cursor| cursor.serial).min().unwrap_or(i64::MIN)
    }

    /// Replaces the cursors. If a cursor is removed, or belongs to another notification now, its timers and its last-sent time are dropped.
    pub fn put_cursors(&mut self, cursors: BTreeMap<String, Cursor>) {
        let old = std::mem::replace(&mut self.cursors, cursors);
        let goes_on = |name: &String| {
            let (old, new) = (old.get(name), self.cursors.get(name));
            old.zip(new).is_some_and(|(old, new)| is_same_notification(&old.uid, &new.uid))
        };
        self.armed.retain(|name, _| goes_on(name));
        self.last_sent_by.retain(|name, _| goes_on(name));
    }

    /// Merges successful deliveries: for each subject and each notification that has a cursor, the newest stays. Returns `true` if anything
    /// changed.
    pub fn merge_sent(
        &mut self,
        by_subject: impl IntoIterator<Item = (String, Sent)>,
        by_notification: impl IntoIterator<Item = (String, Time)>,
    ) -> bool {
        let mut changed = false;
        for (subject, sent) in by_subject {
            if self.last_sent.get(&subject).is_none_or(|known| known.time < sent.time) {
                self.last_sent.insert(subject, sent);
                changed = true;
            }
        }
        for (notification, time) in by_notification.into_iter().filter(|(name, _)| self.cursors.contains_key(name)) {
            if self.last_sent_by.get(&notification).is_none_or(|known| *known < time) {
                self.last_sent_by.insert(notification, time);
                changed = true;
            }
        }
        changed
    }

    /// Returns how many timers of all notifications run.
    #[must_use]
    pub fn timers(&self) -> usize {
        self.armed.values().map(Vec::len).sum()
    }
}

/// The facts about a notification that cursors depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applying<'a> {
    /// Its uid.
    pub uid: &'a str,
    /// Whether it applies to this pipeline. A notification with an invalid selector counts as applying.
    pub applies: bool,
    /// Whether only the pipeline itself defines it: no Notification of this name is known.
    pub own: bool,
}

/// Whether the dispatcher has seen a pipeline before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The persisted status contains it.
    Recorded,
    /// It was seen in this leadership term, but the persisted status does not contain it yet.
    Noted,
    /// It was never seen.
    First,
}

/// The changes to the cursors before anything is derived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The desired cursors.
    pub cursors: BTreeMap<String, Cursor>,
    /// Whether the cursors must be persisted before anything is derived from the log: some are new, or the pipeline is not recorded yet.
    pub fresh: bool,
    /// Cursors of missing notifications. They are dropped or restarted only after a live read has confirmed the deletion.
    pub suspects: Vec<String>,
}

/// Plans the cursors of one pipeline. While its log is empty, the first observation need not be recorded: its first serial is its current
/// one, so a cursor starts at the same place in any case. `unknown`: the global configuration is unknown, so cursors that depend on it
/// stay as they are.
#[must_use]
pub fn plan(
    cursors: &BTreeMap<String, Cursor>,
    sight: Sight,
    unknown: bool,
    log: &ChangeLog,
    notifications: &BTreeMap<String, Applying<'_>>,
) -> Plan {
    let mut plan =
        Plan { cursors: cursors.clone(), fresh: sight != Sight::Recorded && log.serial > log.first, suspects: Vec::new() };
    for (name, cursor) in cursors.iter().filter(|(_, cursor)| !unknown || cursor.uid != GLOBAL) {
        match notifications.get(name) {
            None => plan.suspects.push(name.clone()),
            Some(Applying { applies: false, .. }) => {
                plan.cursors.remove(name);
            }
            Some(Applying { uid, .. }) if cursor.uid != *uid && is_same_notification(&cursor.uid, uid) => {
                plan.cursors.insert(name.clone(), Cursor { uid: (*uid).to_owned(), ..cursor.clone() });
            }
            Some(Applying { uid, own: true, .. }) if cursor.uid != *uid => plan.suspects.push(name.clone()),
            Some(Applying { uid, .. }) if cursor.uid != *uid => {
                plan.cursors.insert(name.clone(), begin(name, uid, sight, log));
                plan.fresh = true;
            }
            Some(_) => {}
        }
    }
    for (name, Applying { uid, applies, .. }) in notifications {
        if *applies && !plan.cursors.contains_key(name) {
            plan.cursors.insert(name.clone(), begin(name, uid, sight, log));
            plan.fresh = true;
        }
    }
    plan
}

/// Returns the cursor of a notification that is new to a pipeline.
pub(crate) fn begin(name: &str, uid: &str, sight: Sight, log: &ChangeLog) -> Cursor {
    let serial = if sight == Sight::First { log.first } else { log.serial };
    Cursor { notification: name.to_owned(), serial, uid: uid.to_owned(), last_sent_time: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> ChangeLog {
        ChangeLog { epoch: 0, first: 100, serial: 107, held_until: None, changes: Vec::new() }
    }

    fn cursor(name: &str, uid: &str, serial: i64) -> (String, Cursor) {
        (name.to_owned(), super::begin(name, uid, Sight::Noted, &ChangeLog { serial, ..log() }))
    }

    /// Uid of the pipeline.
    const OWN: &str = "own";

    fn there<'a>(list: &[(&str, &'a str, bool)]) -> BTreeMap<String, Applying<'a>> {
        let applying = |uid, applies| Applying { uid, applies, own: uid == OWN };
        list.iter().map(|(n, uid, applies)| ((*n).to_owned(), applying(uid, *applies))).collect()
    }

    /// Compares a plan with the expected cursors, `fresh`, and suspects.
    fn holds(what: &str, plan: Plan, cursors: &[(&str, &str, i64)], fresh: bool, suspects: &[&str]) {
        let expected: BTreeMap<_, _> = cursors.iter().map(|(name, uid, serial)| cursor(name, uid, *serial)).collect();
        assert_eq!(plan.cursors, expected, "{what}");
        assert_eq!((plan.fresh, plan.suspects), (fresh, suspects.iter().map(|name| (*name).to_owned()).collect()), "{what}");
    }

    #[test]
    fn the_recorded_time_is_the_latest_of_stored_newest_and_new_log() {
        let time = |second| Some(Time::from_second(second).unwrap());
        for (persisted, newest, new_log, expected) in [
            (None, None, None, None),
            (None, None, time(9), time(9)),
            (None, time(5), time(9), time(9)),
            (None, time(12), time(9), time(12)),
            (time(20), time(12), None, time(20)),
            (time(5), time(12), None, time(12)),
        ] {
            let mut position = Position { recorded: persisted, ..Position::default() };
            position.note_recorded(newest, new_log);
            assert_eq!(position.recorded, expected, "{persisted:?} {newest:?} {new_log:?}");
        }
    }

    #[test]
    fn cursors_begin_at_the_start_of_a_log_at_first_sight_and_later_at_its_end() {
        let (one, own) = (there(&[("a", "1", true)]), there(&[("a", OWN, true)]));
        for (what, sight, notifications, expected) in [
            ("first sight begins at the log's first", Sight::First, &one, &[("a", "1", 100)][..]),
            ("first sight without notifications is kept too", Sight::First, &there(&[]), &[]),
            ("and what was noted, as soon as something has happened", Sight::Noted, &there(&[]), &[]),
            ("noted, so a new one begins now", Sight::Noted, &one, &[("a", "1", 107)]),
            ("a new one begins now", Sight::Recorded, &one, &[("a", "1", 107)]),
            ("the pipeline's own begins now", Sight::Recorded, &own, &[("a", OWN, 107)]),
        ] {
            let plan = plan(&BTreeMap::new(), sight, false, &log(), notifications);
            holds(what, plan, expected, true, &[]);
        }
    }

    #[test]
    fn a_cursor_continues_only_with_the_same_selected_notification() {
        let old = BTreeMap::from([cursor("a", "1", 103)]);
        for (what, notifications, expected, fresh, suspects) in [
            ("a known one goes on", there(&[("a", "1", true)]), &[("a", "1", 103)][..], false, &[][..]),
            ("made again: begins now", there(&[("a", "2", true)]), &[("a", "2", 107)], true, &[]),
            (
                "the Notification beneath is absent: only suspected",
                there(&[("a", OWN, true)]),
                &[("a", "1", 103)],
                false,
                &["a"],
            ),
            ("no longer selected: dropped", there(&[("a", "1", false)]), &[], false, &[]),
            ("absent: only suspected", there(&[]), &[("a", "1", 103)], false, &["a"]),
        ] {
            holds(what, plan(&old, Sight::Recorded, false, &log(), &notifications), expected, fresh, suspects);
        }
    }

    #[test]
    fn an_unchanged_pipeline_is_recorded_only_when_a_cursor_begins() {
        let still = ChangeLog { serial: 100, ..log() };
        for sight in [Sight::First, Sight::Noted] {
            assert_eq!(plan(&BTreeMap::new(), sight, false, &still, &there(&[])), Plan::default());
            let begun = plan(&BTreeMap::new(), sight, false, &still, &there(&[("a", "1", true)]));
            assert_eq!((begun.cursors, begun.fresh), (BTreeMap::from([cursor("a", "1", 100)]), true));
        }
    }

    #[test]
    fn a_cursor_continues_when_its_global_configuration_appears_or_disappears() {
        let old = BTreeMap::from([cursor("a", "1", 103)]);
        let everywhere = BTreeMap::from([cursor("a", GLOBAL, 103)]);
        for (what, before, uid) in [
            ("it lies beneath now", &old, GLOBAL),
            ("no longer: the Notification goes on", &everywhere, "1"),
            ("the pipeline's own goes on", &everywhere, OWN),
        ] {
            let plan = plan(before, Sight::Recorded, false, &log(), &there(&[("a", uid, true)]));
            assert_eq!(plan.cursors, BTreeMap::from([cursor("a", uid, 103)]), "{what}");
            assert!(!plan.fresh && plan.suspects.is_empty(), "{what}");
        }
        let gone = plan(&everywhere, Sight::Recorded, false, &log(), &there(&[]));
        assert_eq!((gone.cursors, gone.fresh, gone.suspects), (everywhere, false, vec!["a".to_owned()]));
    }

    #[test]
    fn cursors_of_an_unknown_global_configuration_are_kept() {
        let cursors = BTreeMap::from([cursor("a", GLOBAL, 103), cursor("b", GLOBAL, 103), cursor("c", "1", 103)]);
        let plan = plan(&cursors, Sight::Recorded, true, &log(), &there(&[("b", "1", true)]));
        assert_eq!((plan.cursors, plan.fresh, plan.suspects), (cursors, false, vec!["c".to_owned()]));
    }

    #[test]
    fn running_timers_end_with_their_cursor() {
        let cursors = BTreeMap::from([cursor("a", "1", 103), cursor("b", "1", 103), cursor("c", "1", 103)]);
        let mut position = Position { cursors, ..Position::default() };
        let armed = ["a", "b", "c"].map(|name| (name.to_owned(), vec![timer(name)]));
        position.armed = armed.into();
        assert_eq!(position.timers(), 3);
        position.put_cursors(BTreeMap::from([cursor("a", "1", 105), cursor("b", "2", 105)]));
        assert_eq!(position.armed.into_keys().collect::<Vec<_>>(), ["a"], "that of another and of none are gone");
    }

    fn timer(notification: &str) -> RunningTimer {
        let (subject, type_) = ("target/x".to_owned(), relaybook_api::TransitionType::Failed);
        RunningTimer { notification: notification.to_owned(), subject, serial: 102, type_, due: Time::UNIX_EPOCH }
    }

    fn sent(notification: &str) -> Sent {
        Sent { time: Time::UNIX_EPOCH, notification: notification.to_owned() }
    }

    #[test]
    fn the_last_sent_time_of_a_notification_ends_with_its_cursor() {
        let mut position =
            Position { cursors: BTreeMap::from([cursor("a", "1", 103), cursor("b", "1", 103)]), ..Position::default() };
        position.last_sent_by = ["a", "b"].map(|name| (name.to_owned(), Time::UNIX_EPOCH)).into();
        position.put_cursors(BTreeMap::from([cursor("a", "1", 105), cursor("b", "2", 105)]));
        let dates: Vec<_> = Dispatched::from(&position).cursors.into_iter().map(|c| c.last_sent_time).collect();
        assert_eq!(dates, [Some(Time::UNIX_EPOCH), None], "another notification of the same name has sent nothing yet");
    }

    #[test]
    fn only_a_newer_delivery_replaces_the_last_sent_one() {
        let mut position = Position { cursors: BTreeMap::from([cursor("a", "1", 103)]), ..Position::default() };
        let at = |second, by: &str| Sent { time: Time::from_second(second).unwrap(), notification: by.to_owned() };
        let mut merge = |subject: &str, sent: Sent| {
            let by = (sent.notification.clone(), sent.time);
            position.merge_sent([(subject.to_owned(), sent)], [by])
        };
        assert!(merge("target/x", at(5, "a")));
        assert!(!merge("target/x", at(5, "a")), "the same is no change");
        assert!(!merge("target/x", at(4, "a")), "nor is an older one");
        assert!(merge("target/x", at(6, "b")), "of a notification whose cursor is gone, the subject alone counts");
        assert_eq!(position.last_sent, BTreeMap::from([("target/x".to_owned(), at(6, "b"))]));
        assert_eq!(position.last_sent_by, BTreeMap::from([("a".to_owned(), at(5, "a").time)]));
    }

    #[test]
    fn a_position_is_read_back_from_the_status_as_it_was_written() {
        let position = Position {
            cursors: BTreeMap::from([cursor("a", "1", 103)]),
            armed: BTreeMap::from([("a".to_owned(), vec![timer("a")])]),
            last_sent: BTreeMap::from([("target/x".to_owned(), sent("a"))]),
            last_sent_by: BTreeMap::from([("a".to_owned(), Time::UNIX_EPOCH)]),
            recorded: Some(Time::UNIX_EPOCH),
            troubles: vec![NotReadyNotification { name: "a".to_owned(), ..NotReadyNotification::default() }],
            pending_targets: vec!["target/x".to_owned()],
            shard: Some("eu".to_owned()),
        };
        assert_eq!(Position::from(&Dispatched::from(&position)), position);
    }
}
