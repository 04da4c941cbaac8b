//! Which cursors a pipeline has, and where they stand. Pure.
//!
//! The log is a stream and the cursors are its consumers. A notification that is new to a pipeline begins at the log's present
//! serial, for what was so before is the silent baseline; only a pipeline that the dispatcher has never seen begins at the
//! log's first.

use std::collections::BTreeMap;

use crate::api::delivery::{GLOBAL, is_same_notification};
use crate::api::pipeline::{Cursor, Dispatched, InTrouble, LastSent};
use crate::api::{ChangeLog, Time};

/// The dispatcher's part of a pipeline's status, as it is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// By notification.
    pub cursors: BTreeMap<String, Cursor>,
    /// By subject.
    pub last_sent: BTreeMap<String, Time>,
    /// What cannot be sent as things are.
    pub troubles: Vec<InTrouble>,
}

impl From<&Dispatched> for Position {
    fn from(dispatched: &Dispatched) -> Self {
        Self {
            cursors: dispatched.cursors.iter().map(|c| (c.notification.clone(), c.clone())).collect(),
            last_sent: dispatched.last_sent.iter().map(|l| (l.subject.clone(), l.time)).collect(),
            troubles: dispatched.notifications.clone(),
        }
    }
}

impl From<&Position> for Dispatched {
    fn from(position: &Position) -> Self {
        let sent = position.last_sent.iter();
        Self {
            cursors: position.cursors.values().cloned().collect(),
            last_sent: sent.map(|(s, t)| LastSent { subject: s.clone(), time: *t }).collect(),
            notifications: position.troubles.clone(),
        }
    }
}

/// A notification as far as cursors are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applying<'a> {
    /// Its uid.
    pub uid: &'a str,
    /// Whether it applies to this pipeline; one whose selector cannot be understood is taken to.
    pub applies: bool,
    /// Whether it is the pipeline's own: no Notification of this name is known.
    pub own: bool,
}

/// What is to be done about the cursors before anything is derived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The cursors as they are to be.
    pub cursors: BTreeMap<String, Cursor>,
    /// Whether there are new ones: those must be persisted before anything is derived from the log.
    pub fresh: bool,
    /// Cursors of notifications that are not there: dropped, or begun anew, only after a live read has said so.
    pub suspects: Vec<String>,
}

/// Plans the cursors of one pipeline. `never_seen`: its status has no `dispatched` yet. `unknown`: the global configuration is, so
/// that what it had a part in is left as it is.
#[must_use]
pub fn plan(
    cursors: &BTreeMap<String, Cursor>,
    never_seen: bool,
    unknown: bool,
    log: &ChangeLog,
    notifications: &BTreeMap<String, Applying<'_>>,
) -> Plan {
    let mut plan = Plan { cursors: cursors.clone(), fresh: never_seen, suspects: Vec::new() };
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
                plan.cursors.insert(name.clone(), begin(name, uid, never_seen, log));
                plan.fresh = true;
            }
            Some(_) => {}
        }
    }
    for (name, Applying { uid, applies, .. }) in notifications {
        if *applies && !plan.cursors.contains_key(name) {
            plan.cursors.insert(name.clone(), begin(name, uid, never_seen, log));
            plan.fresh = true;
        }
    }
    plan
}

/// The cursor of a notification that is new to a pipeline.
pub(super) fn begin(name: &str, uid: &str, never_seen: bool, log: &ChangeLog) -> Cursor {
    let serial = if never_seen { log.first } else { log.serial };
    Cursor { notification: name.to_owned(), serial, uid: uid.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> ChangeLog {
        ChangeLog { epoch: 0, first: 100, serial: 107, changes: Vec::new() }
    }

    fn cursor(name: &str, uid: &str, serial: i64) -> (String, Cursor) {
        (name.to_owned(), Cursor { notification: name.to_owned(), serial, uid: uid.to_owned() })
    }

    /// Uid of the pipeline.
    const OWN: &str = "own";

    fn there<'a>(list: &[(&str, &'a str, bool)]) -> BTreeMap<String, Applying<'a>> {
        let applying = |uid, applies| Applying { uid, applies, own: uid == OWN };
        list.iter().map(|(n, uid, applies)| ((*n).to_owned(), applying(uid, *applies))).collect()
    }

    #[test]
    fn where_cursors_begin_and_end() {
        let old = BTreeMap::from([cursor("a", "1", 103)]);
        let none = BTreeMap::new();
        // what, cursors, never seen, notifications, expected cursors, fresh, suspects
        let table = [
            (
                "first sight begins at the log's first",
                &none,
                true,
                there(&[("a", "1", true)]),
                vec![cursor("a", "1", 100)],
                true,
                vec![],
            ),
            ("first sight without notifications is kept too", &none, true, there(&[]), vec![], true, vec![]),
            ("a new one begins now", &none, false, there(&[("a", "1", true)]), vec![cursor("a", "1", 107)], true, vec![]),
            ("a known one goes on", &old, false, there(&[("a", "1", true)]), vec![cursor("a", "1", 103)], false, vec![]),
            ("made again: begins now", &old, false, there(&[("a", "2", true)]), vec![cursor("a", "2", 107)], true, vec![]),
            (
                "the Notification beneath is absent: only suspected",
                &old,
                false,
                there(&[("a", OWN, true)]),
                vec![cursor("a", "1", 103)],
                false,
                vec!["a".to_owned()],
            ),
            (
                "the pipeline's own begins now",
                &none,
                false,
                there(&[("a", OWN, true)]),
                vec![cursor("a", OWN, 107)],
                true,
                vec![],
            ),
            ("no longer selected: dropped", &old, false, there(&[("a", "1", false)]), vec![], false, vec![]),
            ("absent: only suspected", &old, false, there(&[]), vec![cursor("a", "1", 103)], false, vec!["a".to_owned()]),
        ];
        for (what, cursors, never_seen, notifications, expected, fresh, suspects) in table {
            let plan = plan(cursors, never_seen, false, &log(), &notifications);
            assert_eq!(plan.cursors.into_iter().collect::<Vec<_>>(), expected, "{what}");
            assert_eq!((plan.fresh, plan.suspects), (fresh, suspects), "{what}");
        }
    }

    #[test]
    fn the_global_configuration_comes_and_goes_and_the_cursor_stays() {
        let old = BTreeMap::from([cursor("a", "1", 103)]);
        let everywhere = BTreeMap::from([cursor("a", GLOBAL, 103)]);
        for (what, before, uid) in [
            ("it lies beneath now", &old, GLOBAL),
            ("no longer: the Notification goes on", &everywhere, "1"),
            ("the pipeline's own goes on", &everywhere, OWN),
        ] {
            let plan = plan(before, false, false, &log(), &there(&[("a", uid, true)]));
            assert_eq!(plan.cursors, BTreeMap::from([cursor("a", uid, 103)]), "{what}");
            assert!(!plan.fresh && plan.suspects.is_empty(), "{what}");
        }
        let gone = plan(&everywhere, false, false, &log(), &there(&[]));
        assert_eq!((gone.cursors, gone.fresh, gone.suspects), (everywhere, false, vec!["a".to_owned()]));
    }

    #[test]
    fn while_the_global_configuration_is_unknown_nothing_of_it_is_gone() {
        let cursors = BTreeMap::from([cursor("a", GLOBAL, 103), cursor("b", GLOBAL, 103), cursor("c", "1", 103)]);
        let plan = plan(&cursors, false, true, &log(), &there(&[("b", "1", true)]));
        assert_eq!((plan.cursors, plan.fresh, plan.suspects), (cursors, false, vec!["c".to_owned()]));
    }

    #[test]
    fn positions_survive_the_way_through_the_api() {
        let position = Position {
            cursors: BTreeMap::from([cursor("a", "1", 103)]),
            last_sent: BTreeMap::from([("target/x".to_owned(), Time::UNIX_EPOCH)]),
            troubles: vec![InTrouble { name: "a".to_owned(), ..InTrouble::default() }],
        };
        assert_eq!(Position::from(&Dispatched::from(&position)), position);
    }
}
