//! The status of a Notification, computed from what is known. Pure.

use super::refused::Refusal;
use crate::api::conditions::{ConditionStatus, DELIVERING, GLOBAL_CONFIG_VALID, READY, get, set};
use crate::api::delivery::is_same_notification;
use crate::api::{NotificationStatus, Time};
use crate::config::EffectiveNotification;
use crate::delivery::{Figures, PipelineFacts};

/// Everything that a status is made of.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Name of the notification.
    pub name: &'a str,
    /// Generation of its spec.
    pub generation: Option<i64>,
    /// What it means.
    pub effective: &'a EffectiveNotification,
    /// What became of its deliveries.
    pub figures: &'a Figures,
    /// The pipelines that it applies to.
    pub pipelines: &'a [std::sync::Arc<PipelineFacts>],
    /// Whether it stands for some target as it is; where layers lie over it everywhere, only they must be complete.
    pub stands: bool,
    /// Targets for which it, with its layers, cannot be sent as things are.
    pub not_ready: usize,
    /// What is wrong with its Secrets, or with the revisions of all its targets: reason, and words for people.
    pub missing: Option<(&'static str, &'a str)>,
    /// A Secret of which there is no news yet, in words for people.
    pub unread: Option<&'a str>,
    /// Why deliveries of a pipeline (by name) cannot be recorded.
    pub refused: Option<(&'a str, &'a Refusal)>,
    /// What is wrong with the global configuration beneath it.
    pub global: Option<&'a str>,
}

/// The next status after `old`.
#[must_use]
pub fn status(old: &NotificationStatus, known: &Known<'_>, now: Time) -> NotificationStatus {
    let mut new = old.clone();
    new.observed_generation = known.generation;
    new.pipelines = count(known.pipelines.len());
    new.targets = count(known.pipelines.iter().map(|p| p.targets().count()).sum());
    new.targets_not_ready = count(known.not_ready);
    let figures = known.figures;
    (new.pending, new.delivered, new.parked) = (figures.pending, figures.delivered, figures.parked);
    if figures.last_attempt > old.last_attempt_time {
        new.last_attempt_time = figures.last_attempt;
        new.last_error.clone_from(&figures.last_error);
    }
    new.last_sent_time = old.last_sent_time.max(figures.last_sent);
    let (ready, reason, message) = readiness(known, old);
    set(&mut new.conditions, READY, ready, &reason, &message, known.generation, now);
    let (delivering, reason, message) = delivering(known, new.last_sent_time);
    set(&mut new.conditions, DELIVERING, delivering, &reason, &message, known.generation, now);
    match known.global {
        Some(wrong) => {
            let (no, generation) = (ConditionStatus::False, known.generation);
            set(&mut new.conditions, GLOBAL_CONFIG_VALID, no, "GlobalConfigInvalid", wrong, generation, now);
        }
        None => new.conditions.retain(|condition| condition.type_ != GLOBAL_CONFIG_VALID),
    }
    new
}

type Verdict = (ConditionStatus, String, String);

fn readiness(known: &Known<'_>, old: &NotificationStatus) -> Verdict {
    let problem = known.effective.intake.as_ref().err().or(known.effective.sending.as_ref().err());
    if let Some(problem) = problem.filter(|_| known.stands) {
        return (ConditionStatus::False, problem.reason().to_owned(), problem.to_string());
    }
    if let Some((reason, missing)) = known.missing.filter(|_| known.stands) {
        return (ConditionStatus::False, reason.to_owned(), missing.to_owned());
    }
    // From the moment it says Ready, every later change is reported: so first all cursors must be kept.
    let same = |uid: &String| is_same_notification(uid, &known.effective.uid);
    let begun = |p: &PipelineFacts| !p.logged || p.cursors.get(known.name).is_some_and(same);
    if let Some(waiting) = known.pipelines.iter().find(|p| !begun(p)) {
        let message = format!("the cursor of pipeline {} is not persisted yet", waiting.name);
        return (ConditionStatus::Unknown, "Initializing".to_owned(), message);
    }
    if let Some(unread) = known.unread.filter(|_| known.stands) {
        // After a restart what was said stands until there is news: nobody is told that nothing has changed.
        let said = get(&old.conditions, READY).filter(|c| c.observed_generation == known.generation);
        return said.map_or_else(
            || (ConditionStatus::Unknown, "Initializing".to_owned(), unread.to_owned()),
            |c| (c.status, c.reason.clone(), c.message.clone()),
        );
    }
    let message = "valid, all references resolve, and later changes are reported".to_owned();
    (ConditionStatus::True, "Configured".to_owned(), message)
}

fn delivering(known: &Known<'_>, last_sent: Option<Time>) -> Verdict {
    if known.effective.suspend {
        let message = "spec.suspend is true: deliveries are recorded and held".to_owned();
        return (ConditionStatus::False, "Suspended".to_owned(), message);
    }
    if let Some((pipeline, refusal)) = known.refused {
        let message = format!("deliveries of pipeline {pipeline} cannot be recorded: {}", refusal.detail);
        return (ConditionStatus::False, refusal.reason.as_str().to_owned(), message);
    }
    let troubles = &known.figures.troubles;
    let Some((_, first)) = troubles.first_key_value() else {
        if known.figures.gone > last_sent {
            let message = "the receiver answered 410 Gone; change spec.endpoint, or delete this Notification".to_owned();
            return (ConditionStatus::False, "ReceiverGone".to_owned(), message);
        }
        return (ConditionStatus::True, "Delivering".to_owned(), "nothing is stuck".to_owned());
    };
    let lanes = if troubles.len() == 1 { "1 lane waits".to_owned() } else { format!("{} lanes wait", troubles.len()) };
    (ConditionStatus::False, first.reason.clone(), format!("{lanes}: {}", first.message))
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Whether the difference between two statuses is one that people wait for, so that it is written without delay.
#[must_use]
pub fn urgent(old: &NotificationStatus, new: &NotificationStatus) -> bool {
    let words = |s: &NotificationStatus| {
        let ready = crate::api::conditions::get(&s.conditions, READY);
        (s.observed_generation, ready.map(|c| (c.status, c.reason.clone())))
    };
    words(old) != words(new)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::*;
    use crate::delivery::ledger::Trouble;
    use crate::delivery::record::LaneKey;
    use crate::delivery::testing::notification;
    use crate::dispatch::refused::Reason;

    fn facts(cursor: Option<&str>, logged: bool) -> Arc<PipelineFacts> {
        let cursors = cursor.map(|uid| ("deploys".to_owned(), uid.to_owned())).into_iter().collect();
        let subjects = HashMap::from([("target/a".to_owned(), Some(0)), ("target/b".to_owned(), Some(0))]);
        Arc::new(PipelineFacts { name: "p".into(), cursors, subjects, logged, ..PipelineFacts::default() })
    }

    fn refusal(reason: Reason) -> Refusal {
        Refusal { reason, refused: true, detail: "quota".into() }
    }

    fn troubled() -> Figures {
        let lane = LaneKey { namespace: "a".into(), pipeline: "p".into(), notification: "n".into(), lane: "l".into() };
        let trouble = Trouble { reason: "ReceiverError".into(), message: "prod/x/y: 503 Service Unavailable".into() };
        Figures { troubles: [(lane, trouble)].into(), ..Figures::default() }
    }

    #[test]
    fn conditions_by_table() {
        let effective = notification("n1");
        let mut suspended = notification("n1");
        suspended.suspend = true;
        let fine = Figures::default();
        let stuck = troubled();
        let (refused, crowded) = (refusal(Reason::RecordRefused), refusal(Reason::TooManyClocks));
        let base = |pipelines| Known {
            name: "deploys",
            generation: Some(1),
            effective: &effective,
            figures: &fine,
            pipelines,
            stands: true,
            not_ready: 0,
            missing: None,
            unread: None,
            refused: None,
            global: None,
        };
        let ours = [facts(Some("n1"), true)];
        let other = [facts(Some("n0"), true)];
        let none = [facts(None, true)];
        let new = [facts(None, false)];
        let table = [
            (base(&ours), "Configured", "Delivering"),
            (base(&[]), "Configured", "Delivering"),
            (base(&new), "Configured", "Delivering"),
            (base(&none), "Initializing", "Delivering"),
            (base(&other), "Initializing", "Delivering"),
            (Known { missing: Some(("SecretMissing", "secret x")), ..base(&ours) }, "SecretMissing", "Delivering"),
            (Known { unread: Some("secret x"), ..base(&ours) }, "Initializing", "Delivering"),
            (Known { refused: Some(("p", &refused)), ..base(&ours) }, "Configured", "RecordRefused"),
            (Known { refused: Some(("p", &crowded)), ..base(&ours) }, "Configured", "TooManyClocks"),
            (Known { missing: Some(("SecretMissing", "x")), stands: false, ..base(&ours) }, "Configured", "Delivering"),
            (Known { figures: &stuck, ..base(&ours) }, "Configured", "ReceiverError"),
            (Known { effective: &suspended, ..base(&ours) }, "Configured", "Suspended"),
        ];
        for (known, ready, delivering) in table {
            let status = status(&NotificationStatus::default(), &known, Time::UNIX_EPOCH);
            let reason = |t| get(&status.conditions, t).unwrap().reason.clone();
            assert_eq!((reason(READY).as_str(), reason(DELIVERING).as_str()), (ready, delivering));
        }
    }

    #[test]
    fn while_a_secret_is_not_read_what_was_said_of_this_generation_stands() {
        let effective = notification("n1");
        let fine = Figures::default();
        let known = |unread, generation| Known {
            name: "deploys",
            generation: Some(generation),
            effective: &effective,
            figures: &fine,
            pipelines: &[],
            stands: true,
            not_ready: 0,
            missing: None,
            unread,
            refused: None,
            global: None,
        };
        let said = status(&NotificationStatus::default(), &known(None, 1), Time::UNIX_EPOCH);
        assert_eq!(get(&said.conditions, READY).unwrap().reason, "Configured");
        assert_eq!(status(&said, &known(Some("secret x"), 1), Time::UNIX_EPOCH), said);
        let edited = status(&said, &known(Some("secret x"), 2), Time::UNIX_EPOCH);
        let ready = get(&edited.conditions, READY).unwrap();
        assert_eq!((ready.status, ready.reason.as_str()), (ConditionStatus::Unknown, "Initializing"));
    }

    #[test]
    fn times_are_kept_over_a_restart() {
        let at = |s| Some(Time::from_second(s).unwrap());
        let old = NotificationStatus {
            last_sent_time: at(5),
            last_attempt_time: at(9),
            last_error: Some("503 Service Unavailable".into()),
            ..NotificationStatus::default()
        };
        let effective = notification("n1");
        let mut figures = Figures { last_sent: at(4), last_attempt: at(9), ..Figures::default() };
        let next = |figures: &Figures| {
            let known = Known {
                name: "deploys",
                generation: Some(1),
                effective: &effective,
                figures,
                pipelines: &[],
                stands: true,
                not_ready: 0,
                missing: None,
                unread: None,
                refused: None,
                global: None,
            };
            status(&old, &known, Time::UNIX_EPOCH)
        };
        let new = next(&figures);
        assert_eq!((new.last_sent_time, new.last_error.as_deref()), (at(5), Some("503 Service Unavailable")));
        figures.last_attempt = at(10);
        figures.last_sent = at(10);
        let new = next(&figures);
        assert_eq!((new.last_sent_time, new.last_error), (at(10), None));
    }
}
