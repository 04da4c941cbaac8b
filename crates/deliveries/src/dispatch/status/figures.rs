//! Computes the status of a Notification from known facts. Pure.

use super::given_up;
use super::refused::Refusal;
use crate::outbox::{Figures, PipelineFacts};
use relaybook_api::conditions::{Condition, ConditionStatus, DELIVERING, GLOBAL_CONFIG_VALID, REACHABLE, READY, get, set};
use relaybook_api::delivery::{Reason, is_same_notification};
use relaybook_api::notification::Summary;
use relaybook_api::{NotificationStatus, Time};
use relaybook_settings::config::{EffectiveNotification, Problem};

/// The facts from which a status is computed.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Name of the notification.
    pub name: &'a str,
    /// Generation of its spec.
    pub generation: Option<i64>,
    /// The effective notification.
    pub effective: &'a EffectiveNotification,
    /// The results of its deliveries.
    pub figures: &'a Figures,
    /// The pipelines that it applies to.
    pub pipelines: &'a [std::sync::Arc<PipelineFacts>],
    /// The other namespaces of pipelines for which it is a layer.
    pub layer_of: &'a [String],
    /// Whether it applies unchanged to some target. If layers override it everywhere, only they must be complete.
    pub applies_unchanged: bool,
    /// The number of targets for which the notification, with its layers, cannot be sent at present.
    pub not_ready: usize,
    /// The problem with its Secrets, or with the revisions of all its targets: reason and message.
    pub missing: Option<(Reason, &'a str)>,
    /// A Secret that has not been read yet, as a message.
    pub unread: Option<&'a str>,
    /// Why deliveries of a pipeline (by name) cannot be recorded.
    pub refused: Option<(&'a str, &'a Refusal)>,
    /// The problem with the global configuration that it depends on.
    pub global: Option<&'a str>,
    /// What matches nothing: its selector, or one of its triggers.
    pub unreached: Option<&'a str>,
    /// When it was created.
    pub created: Option<Time>,
    /// When this process first saw its current spec.
    pub seen: Option<Time>,
    /// When this process last saw a change of a Secret or ConfigMap that it refers to.
    pub edited: Option<Time>,
}

/// Reason of `Ready` if all pipelines are known and it selects none.
const NO_PIPELINE: &str = "NoPipeline";
/// Reason of `Ready` if it can be sent for some targets only.
const TARGETS_NOT_READY: &str = "TargetsNotReady";
/// Reason of `Reachable`.
const NO_MATCH: &str = "NoMatch";
/// Reason of `Delivering` if no delivery waits, and the next one could not be sent.
const NOT_READY: &str = "NotReady";

/// Returns the status that follows `old`.
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
    let given_up = given_up(known, old, &mut new);
    let (ready, reason, message) = readiness(known, old);
    set(&mut new.conditions, READY, ready, &reason, &message, known.generation, now);
    let delivering = match delivering(known, given_up, old) {
        (ConditionStatus::True, ..) if ready == ConditionStatus::False => not_ready(),
        verdict => verdict,
    };
    let (delivering, reason, message) = delivering;
    set(&mut new.conditions, DELIVERING, delivering, &reason, &message, known.generation, now);
    for (type_, reason, wrong) in
        [(GLOBAL_CONFIG_VALID, Reason::GlobalConfigInvalid.as_str(), known.global), (REACHABLE, NO_MATCH, known.unreached)]
    {
        match wrong {
            Some(wrong) => {
                set(&mut new.conditions, type_, ConditionStatus::False, reason, wrong, known.generation, now);
            }
            None => new.conditions.retain(|condition| condition.type_ != type_),
        }
    }
    new.summary = summary(&new.conditions);
    new
}

/// Returns reason and message of the condition that needs attention first.
fn summary(conditions: &[Condition]) -> Option<Summary> {
    let wrong = |type_| get(conditions, type_).filter(|c| c.status == ConditionStatus::False);
    let first = wrong(READY).or_else(|| wrong(DELIVERING)).or_else(|| wrong(GLOBAL_CONFIG_VALID));
    let partly = || get(conditions, READY).filter(|c| c.reason == TARGETS_NOT_READY);
    let one = first.or_else(partly).or_else(|| wrong(REACHABLE)).or_else(|| get(conditions, READY))?;
    Some(Summary { reason: one.reason.clone(), message: one.message.clone() })
}

/// Returns why the last deliveries were parked, if since then none was delivered and no user has acted. Stores the times of the last parked
/// delivery and of the last action in `new`.
fn given_up(known: &Known<'_>, old: &NotificationStatus, new: &mut NotificationStatus) -> Option<ReasonAndMessage> {
    let parked = &known.figures.given_up;
    new.last_parked_time = old.last_parked_time.max(parked.last());
    let good = new.last_sent_time.max(parked.delivered).max(known.created);
    if new.last_parked_time <= good {
        return None;
    }
    let is_edited = old.observed_generation.is_some() && old.observed_generation != known.generation;
    let seen = known.seen.filter(|_| is_edited);
    new.last_action_time = old.last_action_time.max(seen).max(known.edited).max(parked.requested);
    if new.last_parked_time <= new.last_action_time {
        return None;
    }
    // The deliveries may be deleted by now. Then the earlier condition stays.
    let is_of_last = old.last_parked_time == new.last_parked_time;
    let earlier = || stuck(old).filter(|_| is_of_last).map(|c| (c.reason.clone(), c.message.clone()));
    let deleted = "the last delivery was parked; its Delivery object was deleted later";
    let unknown = || (given_up::UNKNOWN.to_owned(), deleted.to_owned());
    given_up::condition(parked.after(good.max(new.last_action_time))).or_else(earlier).or_else(|| Some(unknown()))
}

type Verdict = (ConditionStatus, String, String);

type ReasonAndMessage = (String, String);

fn readiness(known: &Known<'_>, old: &NotificationStatus) -> Verdict {
    let problem = known.effective.intake.as_ref().err().or(known.effective.sending.as_ref().err());
    if known.pipelines.is_empty() && !known.layer_of.is_empty() && problem.is_some_and(Problem::is_incomplete) {
        let message = format!(
            "it is a layer of no Pipeline: in the namespaces {}, no Pipeline has this namespace in spec.layerNamespace and a \
            notification {}",
            known.layer_of.join(", "),
            known.name
        );
        return (ConditionStatus::False, NO_PIPELINE.to_owned(), message);
    }
    if let Some(problem) = problem.filter(|_| known.applies_unchanged) {
        return (ConditionStatus::False, problem.reason().as_str().to_owned(), problem.to_string());
    }
    if let Some((reason, missing)) = known.missing.filter(|_| known.applies_unchanged) {
        return (ConditionStatus::False, reason.as_str().to_owned(), missing.to_owned());
    }
    // From the moment the notification is Ready, every later change is reported. So all cursors must be persisted first.
    let same = |uid: &String| is_same_notification(uid, &known.effective.uid);
    let is_below = |p: &PipelineFacts| known.layer_of.contains(&p.namespace);
    let begun = |p: &PipelineFacts| !p.logged || is_below(p) || p.cursors.get(known.name).is_some_and(same);
    if let Some(waiting) = known.pipelines.iter().find(|p| !begun(p)) {
        let message = format!("waiting until the cursor of pipeline {} is stored", waiting.name);
        return (ConditionStatus::Unknown, "Initializing".to_owned(), message);
    }
    if let Some(unread) = known.unread.filter(|_| known.applies_unchanged) {
        // After a restart, the earlier condition stays until something changes, so that users are not notified without a change.
        let last = get(&old.conditions, READY).filter(|c| c.observed_generation == known.generation);
        return last.map_or_else(
            || (ConditionStatus::Unknown, "Initializing".to_owned(), unread.to_owned()),
            |c| (c.status, c.reason.clone(), c.message.clone()),
        );
    }
    if known.pipelines.is_empty() {
        let message = "Configuration is valid, but it selects no Pipeline in its namespace; check spec.pipelineSelector";
        return (ConditionStatus::True, NO_PIPELINE.to_owned(), message.to_owned());
    }
    if known.not_ready > 0 {
        let targets: usize = known.pipelines.iter().map(|pipeline| pipeline.targets().count()).sum();
        let message = format!(
            "Configuration is valid, but nothing can be sent about {} of {targets} targets; \
            status.dispatched.notifications of the Pipelines has the reasons",
            known.not_ready
        );
        return (ConditionStatus::True, TARGETS_NOT_READY.to_owned(), message);
    }
    let message = "Configuration is valid; changes that match a trigger are recorded".to_owned();
    (ConditionStatus::True, "Configured".to_owned(), message)
}

/// The condition `Delivering` of a notification that is not ready and has no pending delivery.
fn not_ready() -> Verdict {
    let message = "no lane is blocked, but the next delivery cannot be sent: Ready is False".to_owned();
    (ConditionStatus::Unknown, NOT_READY.to_owned(), message)
}

fn delivering(known: &Known<'_>, given_up: Option<ReasonAndMessage>, old: &NotificationStatus) -> Verdict {
    if known.effective.suspend {
        let message = "spec.suspend is true: deliveries are recorded but not sent".to_owned();
        return (ConditionStatus::False, Reason::Suspended.as_str().to_owned(), message);
    }
    if let Some((pipeline, refusal)) = known.refused {
        let message = format!("deliveries of pipeline {pipeline} cannot be recorded: {}", refusal.detail);
        return (ConditionStatus::False, refusal.reason.as_str().to_owned(), message);
    }
    let troubles = &known.figures.troubles;
    let Some((_, first)) = troubles.first_key_value() else {
        if let Some((reason, message)) = given_up {
            return (ConditionStatus::False, reason, message);
        }
        // After a restart, the earlier condition stays until the waiting lanes have been tried.
        let is_untried = !known.figures.untried.is_empty();
        if let Some(last) = stuck(old).filter(|c| c.observed_generation == known.generation && is_untried) {
            return (last.status, last.reason.clone(), last.message.clone());
        }
        return (ConditionStatus::True, "Delivering".to_owned(), "no lane is blocked".to_owned());
    };
    let lanes = match troubles.len() {
        1 => "1 lane is blocked".to_owned(),
        n => format!("{n} lanes are blocked"),
    };
    (ConditionStatus::False, first.reason.clone(), format!("{lanes}: {}", first.message))
}

/// Returns the condition `Delivering`, if deliveries do not reach the receiver, and not because a user has suspended them.
fn stuck(status: &NotificationStatus) -> Option<&Condition> {
    get(&status.conditions, DELIVERING)
        .filter(|c| c.status == ConditionStatus::False && c.reason != Reason::Suspended.as_str())
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Whether users wait for the difference between two statuses. Such a difference is written without delay.
#[must_use]
pub fn urgent(old: &NotificationStatus, new: &NotificationStatus) -> bool {
    let words = |s: &NotificationStatus| {
        let ready = relaybook_api::conditions::get(&s.conditions, READY);
        (
            s.observed_generation,
            ready.map(|c| (c.status, c.reason.clone())),
            s.last_test.as_ref().map(|test| test.id.clone()),
        )
    };
    words(old) != words(new)
}

/// An Event about a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusEvent<'a> {
    /// Whether a user should check the notification.
    pub warning: bool,
    /// What was done or attempted.
    pub action: &'static str,
    /// The reason of the condition.
    pub reason: &'a str,
    /// Its message.
    pub note: &'a str,
}

/// Returns the Events for a difference between two statuses. There is one if the notification is not usable any more, also only for some
/// targets, or selects no pipeline, or if a trigger matches nothing. There is also one if its deliveries do not reach the receiver any more, or
/// reach it again. A suspension by a user causes no Event.
#[must_use]
pub fn events<'a>(old: &NotificationStatus, new: &'a NotificationStatus) -> Vec<StatusEvent<'a>> {
    let mut events = Vec::new();
    let mut say = |c: &'a Condition, warning, action| {
        events.push(StatusEvent { warning, action, reason: &c.reason, note: &c.message });
    };
    let before = get(&old.conditions, READY);
    if let Some(ready) = get(&new.conditions, READY) {
        let same = before.is_some_and(|c| (c.status, &c.reason) == (ready.status, &ready.reason));
        let told = same && before.is_some_and(|c| c.message == ready.message);
        match ready.status {
            ConditionStatus::False if !told => say(ready, true, "Configure"),
            ConditionStatus::True if !same && ready.reason == NO_PIPELINE => say(ready, false, "Configure"),
            ConditionStatus::True if !told && ready.reason == TARGETS_NOT_READY => say(ready, true, "Configure"),
            _ => {}
        }
    }
    // A selector that selects nothing is already reported as the reason of `Ready`.
    let selects = get(&new.conditions, READY).is_none_or(|ready| ready.reason != NO_PIPELINE);
    // The message names what exists, which changes often. A person is notified once of a field that matches nothing.
    let field = |message: &str| message.split(": ").next().unwrap_or_default().to_owned();
    let told = |now: &Condition| {
        get(&old.conditions, REACHABLE).is_some_and(|before| field(&before.message) == field(&now.message))
    };
    if let Some(now) = get(&new.conditions, REACHABLE).filter(|now| selects && !told(now)) {
        say(now, true, "Configure");
    }
    match (stuck(old), stuck(new), get(&new.conditions, DELIVERING)) {
        (None, Some(now), _) => say(now, true, "Deliver"),
        (Some(_), None, Some(now)) if now.status == ConditionStatus::True => say(now, false, "Deliver"),
        _ => {}
    }
    events
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::*;
    use crate::outbox::record::LaneKey;
    use crate::outbox::store::figures::Trouble;
    use crate::outbox::testing::notification;

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

    /// A notification of the first generation that applies to no pipeline.
    fn known<'a>(effective: &'a EffectiveNotification, figures: &'a Figures) -> Known<'a> {
        Known {
            name: "deploys",
            generation: Some(1),
            effective,
            figures,
            pipelines: &[],
            layer_of: &[],
            applies_unchanged: true,
            not_ready: 0,
            missing: None,
            unread: None,
            refused: None,
            global: None,
            unreached: None,
            created: None,
            seen: None,
            edited: None,
        }
    }

    #[test]
    fn the_conditions_of_a_notification_follow_the_table() {
        let effective = notification("n1");
        let mut suspended = notification("n1");
        suspended.suspend = true;
        let fine = Figures::default();
        let stuck = troubled();
        let (refused, crowded) = (refusal(Reason::RecordRefused), refusal(Reason::TooManyClocks));
        let base = |pipelines| Known { pipelines, ..known(&effective, &fine) };
        let ours = [facts(Some("n1"), true)];
        let other = [facts(Some("n0"), true)];
        let none = [facts(None, true)];
        let new = [facts(None, false)];
        let table = [
            (base(&ours), "Configured", "Delivering"),
            (base(&[]), "NoPipeline", "Delivering"),
            (base(&new), "Configured", "Delivering"),
            (base(&none), "Initializing", "Delivering"),
            (base(&other), "Initializing", "Delivering"),
            (Known { missing: Some((Reason::SecretMissing, "secret x")), ..base(&ours) }, "SecretMissing", "NotReady"),
            (
                Known { missing: Some((Reason::SecretMissing, "x")), figures: &stuck, ..base(&ours) },
                "SecretMissing",
                "ReceiverError",
            ),
            (Known { not_ready: 1, ..base(&ours) }, "TargetsNotReady", "Delivering"),
            (Known { unreached: Some("spec.triggers[0]"), ..base(&ours) }, "Configured", "Delivering"),
            (Known { unread: Some("secret x"), ..base(&ours) }, "Initializing", "Delivering"),
            (Known { refused: Some(("p", &refused)), ..base(&ours) }, "Configured", "RecordRefused"),
            (Known { refused: Some(("p", &crowded)), ..base(&ours) }, "Configured", "TooManyClocks"),
            (
                Known { missing: Some((Reason::SecretMissing, "x")), applies_unchanged: false, ..base(&ours) },
                "Configured",
                "Delivering",
            ),
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
    fn what_matches_nothing_is_a_condition_and_shown_if_nothing_is_worse() {
        let (effective, fine, stuck) = (notification("n1"), Figures::default(), troubled());
        let ours = [facts(Some("n1"), true)];
        let base = Known { pipelines: &ours, ..known(&effective, &fine) };
        let well = status(&NotificationStatus::default(), &base, Time::UNIX_EPOCH);
        let idle = Known { unreached: Some("spec.triggers[0]"), ..base };
        for (known, shown) in [
            (idle, "NoMatch"),
            (Known { not_ready: 1, ..idle }, "TargetsNotReady"),
            (Known { figures: &stuck, ..idle }, "ReceiverError"),
            (Known { global: Some("line 1"), ..idle }, "GlobalConfigInvalid"),
            (Known { missing: Some((Reason::SecretMissing, "x")), ..idle }, "SecretMissing"),
            (Known { pipelines: &[], ..idle }, "NoMatch"),
        ] {
            let said = status(&well, &known, Time::UNIX_EPOCH);
            let condition = get(&said.conditions, REACHABLE).unwrap();
            assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, "NoMatch"));
            assert_eq!(said.summary.as_ref().map(|summary| summary.reason.as_str()), Some(shown));
            assert_eq!(status(&said, &known, Time::UNIX_EPOCH), said, "no write without a change");
        }
        let said = status(&well, &idle, Time::UNIX_EPOCH);
        assert_eq!(status(&said, &base, Time::UNIX_EPOCH), well, "it ends without a trace");
        let reasons = |old: &NotificationStatus, new: &NotificationStatus| -> Vec<(bool, String)> {
            events(old, new).iter().map(|event| (event.warning, event.reason.to_owned())).collect()
        };
        assert_eq!(reasons(&well, &said), [(true, "NoMatch".to_owned())]);
        assert_eq!(reasons(&said, &said), []);
        assert_eq!(reasons(&said, &well), []);
        let other = status(&said, &Known { unreached: Some("spec.triggers[1]"), ..base }, Time::UNIX_EPOCH);
        assert_eq!(reasons(&said, &other), [(true, "NoMatch".to_owned())]);
        let alone = status(&well, &Known { pipelines: &[], ..idle }, Time::UNIX_EPOCH);
        assert_eq!(reasons(&well, &alone), [(false, "NoPipeline".to_owned())], "one Event is enough");
    }

    #[test]
    fn while_a_secret_is_unread_the_condition_of_the_same_generation_is_kept() {
        let effective = notification("n1");
        let fine = Figures::default();
        let known = |unread, generation| Known { generation: Some(generation), unread, ..known(&effective, &fine) };
        let said = status(&NotificationStatus::default(), &known(None, 1), Time::UNIX_EPOCH);
        assert_eq!(get(&said.conditions, READY).unwrap().reason, "NoPipeline");
        assert_eq!(status(&said, &known(Some("secret x"), 1), Time::UNIX_EPOCH), said);
        let edited = status(&said, &known(Some("secret x"), 2), Time::UNIX_EPOCH);
        let ready = get(&edited.conditions, READY).unwrap();
        assert_eq!((ready.status, ready.reason.as_str()), (ConditionStatus::Unknown, "Initializing"));
    }

    #[test]
    fn times_and_the_last_error_are_kept_over_a_restart() {
        let at = |s| Some(Time::from_second(s).unwrap());
        let old = NotificationStatus {
            last_sent_time: at(5),
            last_attempt_time: at(9),
            last_error: Some("503 Service Unavailable".into()),
            ..NotificationStatus::default()
        };
        let effective = notification("n1");
        let mut figures = Figures { last_sent: at(4), last_attempt: at(9), ..Figures::default() };
        let next = |figures: &Figures| status(&old, &known(&effective, figures), Time::UNIX_EPOCH);
        let new = next(&figures);
        assert_eq!((new.last_sent_time, new.last_error.as_deref()), (at(5), Some("503 Service Unavailable")));
        figures.last_attempt = at(10);
        figures.last_sent = at(10);
        let new = next(&figures);
        assert_eq!((new.last_sent_time, new.last_error), (at(10), None));
    }

    fn at(second: i64) -> Option<Time> {
        Time::from_second(second).ok()
    }

    fn parked(serials: &[i64]) -> Figures {
        let mut figures = Figures::default();
        for serial in serials {
            let mut record = crate::outbox::testing::record(*serial);
            record.status.outcome = Some(relaybook_api::Outcome::Parked);
            record.status.reason = Some("ReceiverNotFound".into());
            record.status.status_code = Some(404);
            record.status.settled_time = at(*serial);
            figures.given_up.note(&record);
        }
        figures
    }

    struct Case<'a> {
        figures: &'a Figures,
        generation: i64,
        seen: Option<Time>,
        edited: Option<Time>,
        created: Option<Time>,
    }

    impl Case<'_> {
        fn after(&self, old: &NotificationStatus) -> NotificationStatus {
            let effective = notification("n1");
            let known = Known {
                generation: Some(self.generation),
                created: self.created,
                seen: self.seen,
                edited: self.edited,
                ..known(&effective, self.figures)
            };
            status(old, &known, Time::UNIX_EPOCH)
        }
    }

    fn reason(status: &NotificationStatus) -> &str {
        &get(&status.conditions, DELIVERING).unwrap().reason
    }

    #[test]
    fn parked_deliveries_are_reported_until_a_delivery_succeeds_or_a_person_acts() {
        let stuck = parked(&[10, 20, 30]);
        let none = Figures::default();
        let case = |figures| Case { figures, generation: 1, seen: at(99), edited: None, created: at(1) };
        let first = case(&stuck).after(&NotificationStatus::default());
        let condition = get(&first.conditions, DELIVERING).unwrap();
        assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, "ReceiverRejects"));
        assert!(condition.message.starts_with("3 of the last 3 deliveries were rejected with 404"), "{}", condition.message);
        assert_eq!(first.summary.as_ref().map(|s| s.reason.as_str()), Some("ReceiverRejects"));
        assert_eq!((first.last_parked_time, first.last_action_time), (at(30), None));
        // A new process starts with the same deliveries, with one of them, or with none.
        assert_eq!(case(&stuck).after(&first), first);
        let newest = parked(&[30]);
        assert_eq!(reason(&case(&newest).after(&first)), "ReceiverRejects");
        assert_eq!(case(&none).after(&first).conditions, first.conditions);
        let delivered = Figures { last_sent: at(31), ..Figures::default() };
        let edited = Case { generation: 2, ..case(&stuck) }.after(&first);
        let secret = Case { edited: at(40), ..case(&stuck) }.after(&first);
        let mut again = parked(&[10, 20]);
        again.given_up.requested = at(40);
        let requested = case(&again).after(&first);
        let mut settled = parked(&[10, 20]);
        settled.given_up.delivered = at(35);
        for (what, status, acted) in [
            ("delivered", case(&delivered).after(&first), None),
            ("delivered later than parked", case(&settled).after(&first), None),
            ("edited", edited.clone(), at(99)),
            ("a Secret is edited", secret, at(40)),
            ("requested again", requested, at(40)),
            (
                "of one of the same name before",
                Case { created: at(31), ..case(&stuck) }.after(&NotificationStatus::default()),
                None,
            ),
        ] {
            assert_eq!((reason(&status), status.last_action_time), ("Delivering", acted), "{what}");
        }
        // The edit counts, in this process and the next, until another delivery is parked.
        let next = Case { generation: 2, seen: at(200), ..case(&stuck) };
        assert_eq!(next.after(&edited), edited);
        let more = parked(&[10, 20, 30, 120]);
        let more = Case { generation: 2, seen: at(200), ..case(&more) }.after(&edited);
        let message = &get(&more.conditions, DELIVERING).unwrap().message;
        assert!(message.starts_with("the last delivery was rejected with 404"), "{message}");
    }

    #[test]
    fn after_a_restart_the_condition_of_the_same_spec_is_kept_until_lanes_are_tried() {
        let stuck = troubled();
        let case = |figures, generation| Case { figures, generation, seen: None, edited: None, created: None };
        let said = case(&stuck, 1).after(&NotificationStatus::default());
        assert_eq!(reason(&said), "ReceiverError");
        let untried = Figures { untried: stuck.troubles.keys().cloned().collect(), ..Figures::default() };
        assert_eq!(case(&untried, 1).after(&said).conditions, said.conditions);
        assert_eq!(reason(&case(&untried, 2).after(&said)), "Delivering");
        assert_eq!(reason(&case(&untried, 1).after(&NotificationStatus::default())), "Delivering");
        assert_eq!(reason(&case(&Figures::default(), 1).after(&said)), "Delivering");
    }

    #[test]
    fn an_event_is_written_once_when_a_condition_turns_bad_and_once_when_it_recovers() {
        let with = |ready: (ConditionStatus, &str), delivering: (ConditionStatus, &str)| {
            let mut status = NotificationStatus::default();
            for (type_, (is, reason)) in [(READY, ready), (DELIVERING, delivering)] {
                set(&mut status.conditions, type_, is, reason, "m", Some(1), Time::UNIX_EPOCH);
            }
            status
        };
        let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
        let fine = with((yes, "Configured"), (yes, "Delivering"));
        let (stuck, other) = (with((yes, "Configured"), (no, "R")), with((yes, "Configured"), (no, "S")));
        let (held, alone) = (with((yes, "Configured"), (no, "Suspended")), with((yes, "NoPipeline"), (yes, "Delivering")));
        let broken = with((no, "InvalidSpec"), (ConditionStatus::Unknown, "NotReady"));
        let partly = with((yes, "TargetsNotReady"), (yes, "Delivering"));
        let new = NotificationStatus::default();
        for (what, old, now, said) in [
            ("new", &new, &fine, vec![]),
            ("stuck", &fine, &stuck, vec![(true, "Deliver", "R")]),
            ("stuck from the beginning", &new, &stuck, vec![(true, "Deliver", "R")]),
            ("still", &stuck, &stuck, vec![]),
            ("for another reason", &stuck, &other, vec![]),
            ("recovered", &other, &fine, vec![(false, "Deliver", "Delivering")]),
            ("suspended", &fine, &held, vec![]),
            ("no longer", &held, &fine, vec![]),
            ("stuck after that", &held, &stuck, vec![(true, "Deliver", "R")]),
            ("alone", &new, &alone, vec![(false, "Configure", "NoPipeline")]),
            ("still alone", &alone, &alone, vec![]),
            ("not usable", &alone, &broken, vec![(true, "Configure", "InvalidSpec")]),
            ("usable for some targets", &fine, &partly, vec![(true, "Configure", "TargetsNotReady")]),
            ("still for some", &partly, &partly, vec![]),
            ("usable, and alone", &broken, &alone, vec![(false, "Configure", "NoPipeline")]),
        ] {
            let events: Vec<_> = events(old, now).iter().map(|event| (event.warning, event.action, event.reason)).collect();
            assert_eq!(events, said, "{what}");
        }
    }
}
