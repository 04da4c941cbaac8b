//! Whether Relaybook or another client has created a Delivery in the API server. Pure.
//!
//! In: the object, what is known about its pipeline ([`Known`]), and how it was first read ([`Sight`]). Out: its [`Origin`]. A Delivery
//! that Relaybook did not record is never sent. Otherwise it could send credentials of other users, with content that Relaybook never observed.

use std::collections::HashMap;
use std::sync::Arc;

use super::facts::{Cursors, PipelineFacts};
use crate::outbox::record::{PIPELINE_LANE, Record, name};
use relaybook_api::delivery::Subject;
use relaybook_api::{DeliverySpec, LogSubject, State, Time, TransitionType};

/// What a pipeline's status contains about the Deliveries that were recorded for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Whether the dispatcher has already written its part of the status.
    pub is_dispatched: bool,
    /// When the newest Delivery was recorded, by the API server's clock. A status that an earlier version wrote does not contain it.
    pub recorded: Option<Time>,
    /// The first serial of the log.
    pub first: i64,
    /// The newest serial of the log.
    pub serial: i64,
    /// The changes that are still in the log, by serial.
    pub changes: HashMap<i64, Logged>,
}

/// A change in the log, with the fields that a Delivery copies from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// The subject.
    pub subject: Subject,
    /// The transitions of the change.
    pub types: Vec<TransitionType>,
    /// When the change was observed.
    pub time: Time,
    /// The previous state.
    pub from: State,
    /// The new state.
    pub to: State,
    /// Whether several changes were merged into it.
    pub coalesced: bool,
}

/// The facts from which Relaybook determines the origin of a Delivery.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Its pipeline.
    pub facts: Option<Arc<PipelineFacts>>,
    /// The pipeline's history.
    pub history: Option<Arc<History>>,
    /// The persisted cursors of the pipeline.
    pub cursors: Option<Arc<Cursors>>,
    /// The namespace of the global configuration, which can also contain Deliveries.
    pub controller: Option<String>,
    /// Whether the pipelines in the namespace of the Delivery's pipeline are watched.
    pub is_watched: bool,
    /// Whether the global configuration defines a part of its notification, or the notification is not known.
    pub is_global: bool,
}

/// How a Delivery was first read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// In the first list of a leadership term. Another process may have recorded it.
    Listed,
    /// Later. This process knows the Deliveries that it has recorded itself, so it has not recorded this one.
    Watched,
}

/// The origin of a Delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Relaybook has recorded it.
    Recorded,
    /// Its pipeline is not known or has not been observed, so nothing can be sent for it yet.
    NoPipeline,
    /// It is about a change that the dispatcher still has to record. The dispatcher then compares its content.
    Undecided,
    /// Another client has created it. The text is one word with the cause.
    Foreign(&'static str),
}

/// Determines the origin of a Delivery that this process has not recorded itself.
#[must_use]
pub fn judge(record: &Record, known: &Known, sight: Sight) -> Origin {
    let spec = &*record.spec;
    let of = &spec.pipeline_ref;
    if !known.is_watched {
        return Origin::NoPipeline;
    }
    if record.id.namespace != of.namespace && Some(&record.id.namespace) != known.controller.as_ref() {
        return Origin::Foreign("Namespace");
    }
    if record.id.name != name(spec) {
        return Origin::Foreign("Name");
    }
    if !is_in_its_lane(spec) {
        return Origin::Foreign("Lane");
    }
    let Some(facts) = &known.facts else { return Origin::NoPipeline };
    if facts.namespace != of.namespace || facts.name != of.name {
        return Origin::Foreign("Pipeline");
    }
    let Some(history) = &known.history else { return Origin::NoPipeline };
    let taken = known.cursors.iter().find_map(|cursors| (**cursors).as_ref()?.get(&spec.notification));
    let is_passed = taken.is_some_and(|taken| taken.is_beyond(spec.serial));
    if sight == Sight::Listed && was_recorded(record, history, known, is_passed) {
        return Origin::Recorded;
    }
    match taken {
        _ if is_passed => Origin::Foreign("NotRecorded"),
        None if spec.serial <= history.first => Origin::Foreign("NotRecorded"),
        _ => Origin::Undecided,
    }
}

/// Returns whether the Delivery has the lane and the place that Relaybook gives it.
#[must_use]
pub fn is_in_its_lane(spec: &DeliverySpec) -> bool {
    let whole = spec.lane.strip_prefix(PIPELINE_LANE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let place = if spec.due.is_some() { spec.order >= spec.serial } else { spec.order == spec.serial };
    place && (whole || LogSubject::parse(&spec.lane) == spec.log_subject())
}

/// Returns whether an earlier process recorded it, according to the pipeline's status. `is_passed`: whether the cursor has passed its
/// change. Then `recorded` covers the Delivery, because the same status contains both.
fn was_recorded(record: &Record, history: &History, known: &Known, is_passed: bool) -> bool {
    let spec = &*record.spec;
    // The time says nothing about it: a later Delivery of the pipeline can have raised the time.
    if let Some(logged) = history.changes.get(&spec.serial).filter(|_| !is_passed) {
        return logged.matches(spec);
    }
    match history.recorded {
        // The process that wrote this time knew all Deliveries up to it, and removed those that it had not recorded.
        Some(recorded) => spec.serial <= history.serial && record.recorded <= recorded,
        None if history.is_dispatched => spec.serial <= history.serial,
        // The status was deleted, so there is no proof. Nothing is sent with settings that belong to another namespace.
        None => spec.serial <= history.first && !known.is_global,
    }
}

impl Logged {
    /// Returns whether a Delivery is a copy of this change.
    #[must_use]
    pub fn matches(&self, spec: &DeliverySpec) -> bool {
        self.subject == spec.subject
            && self.types.contains(&spec.type_)
            && self.time == spec.time
            && (self.coalesced || self.from == completed(&spec.from, &self.from))
            && is_same_state(&self.to, &completed(&spec.to, &self.to))
    }
}

/// Returns a recorded state with the repository of another one, if it has none. During an upgrade, an earlier version can record a change whose
/// repository it does not read.
#[must_use]
pub fn completed(said: &State, like: &State) -> State {
    let from = if said.repository.is_empty() { like } else { said };
    State { repository: from.repository.clone(), ..said.clone() }
}

/// Compares two states. The log may contain a shortened message. Recorded values must be the same, because they can decide who gets the
/// message. If the log has left out some, or the repository of the state before, the dispatcher records the delivery again.
fn is_same_state(logged: &State, said: &State) -> bool {
    let is_cut = logged.message.strip_suffix('…').is_some_and(|begin| said.message.starts_with(begin));
    let same_words = State { message: String::new(), ..logged.clone() } == State { message: String::new(), ..said.clone() };
    same_words && (logged.message == said.message || is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::send_gate::index::PersistedCursor;
    use crate::outbox::testing::record;
    use relaybook_api::ObjectName;
    use relaybook_api::delivery::SubjectKind;
    use relaybook_api::pipeline::Recorded;

    const AT: i64 = 1_000;

    fn time(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    /// Returns the facts about pipeline `p1`. Its log starts at serial 100 and ends at 120. Change 119 is in the log. The cursor is at 118,
    /// and the timer of change 110 is running.
    fn known() -> Known {
        let facts = PipelineFacts {
            uid: "p1".into(),
            namespace: "team-a".into(),
            name: "podinfo".into(),
            ..PipelineFacts::default()
        };
        let logged = Logged {
            subject: record(119).spec.subject.clone(),
            types: vec![TransitionType::Deployed],
            time: Time::UNIX_EPOCH,
            ..Logged::default()
        };
        let history = History {
            is_dispatched: true,
            recorded: Some(time(AT)),
            first: 100,
            serial: 120,
            changes: [(119, logged)].into(),
        };
        let taken = PersistedCursor { serial: 118, pending_timers: [110].into() };
        Known {
            facts: Some(Arc::new(facts)),
            history: Some(Arc::new(history)),
            cursors: Some(Arc::new(Some([("deploys".to_owned(), taken)].into()))),
            controller: Some("relaybook-system".into()),
            is_watched: true,
            is_global: false,
        }
    }

    fn made(serial: i64, second: i64) -> Record {
        Record { recorded: time(second), ..record(serial) }
    }

    fn with(record: Record, edit: impl FnOnce(&mut DeliverySpec)) -> Record {
        let mut spec = (*record.spec).clone();
        edit(&mut spec);
        let id = ObjectName { name: name(&spec), ..record.id };
        Record { id, spec: Arc::new(spec), ..record }
    }

    #[test]
    fn listed_deliveries_that_an_earlier_process_can_have_recorded_are_genuine() {
        for (what, record, expected) in [
            ("recorded, and no longer in the log", made(110, AT), Origin::Recorded),
            ("made after the last one was recorded", made(109, AT + 1), Origin::Foreign("NotRecorded")),
            ("of a timer that may still fire", made(110, AT + 1), Origin::Undecided),
            ("in the log word for word", made(119, AT + 9), Origin::Recorded),
            ("of a change that is to come", made(121, 1), Origin::Undecided),
            ("not what the log says", with(made(119, AT + 9), |s| s.to.message = "free".into()), Origin::Undecided),
            ("another transition", with(made(119, AT + 9), |s| s.type_ = TransitionType::Failed), Origin::Undecided),
            ("before the log", made(99, AT + 1), Origin::Foreign("NotRecorded")),
        ] {
            assert_eq!(judge(&record, &known(), Sight::Listed), expected, "{what}");
        }
    }

    #[test]
    fn deliveries_that_appear_in_the_watch_are_undecided_or_foreign() {
        for (serial, expected) in [
            (110, Origin::Undecided),
            (109, Origin::Foreign("NotRecorded")),
            (118, Origin::Foreign("NotRecorded")),
            (119, Origin::Undecided),
            (9_000_000, Origin::Undecided),
        ] {
            assert_eq!(judge(&made(serial, 1), &known(), Sight::Watched), expected, "{serial}");
        }
    }

    #[test]
    fn a_delivery_with_a_wrong_namespace_name_lane_or_pipeline_is_foreign() {
        let at = |namespace: &str, record: Record| {
            let id = ObjectName { namespace: namespace.into(), ..record.id };
            Record { id, ..record }
        };
        let called = |name: &str, record: Record| {
            let id = ObjectName { name: name.into(), ..record.id };
            Record { id, ..record }
        };
        for (record, expected) in [
            (at("team-b", made(110, 1)), Origin::Foreign("Namespace")),
            (at("relaybook-system", made(110, 1)), Origin::Recorded),
            (called("any", made(110, 1)), Origin::Foreign("Name")),
            (with(made(110, 1), |s| s.order = 0), Origin::Foreign("Lane")),
            (with(made(110, 1), |s| s.lane = "target/other".into()), Origin::Foreign("Lane")),
            (with(made(110, 1), |s| s.lane = "pipeline".into()), Origin::Recorded),
            (with(made(110, 1), |s| s.lane = "pipelines".into()), Origin::Foreign("Lane")),
            (with(made(110, 1), |s| s.pipeline_ref.name = "other".into()), Origin::Foreign("Pipeline")),
            (with(at("team-b", made(110, 1)), |s| s.pipeline_ref.namespace = "team-b".into()), Origin::Foreign("Pipeline")),
        ] {
            assert_eq!(judge(&record, &known(), Sight::Listed), expected, "{record:?}");
        }
        let nobody = Known { facts: None, ..known() };
        assert_eq!(judge(&made(110, 1), &nobody, Sight::Listed), Origin::NoPipeline);
    }

    #[test]
    fn promotions_have_lanes_of_their_own() {
        let at = |lane: &str, type_| {
            let subject = Subject { kind: SubjectKind::Environment, name: "prod".into(), ..Subject::default() };
            is_in_its_lane(&DeliverySpec { lane: lane.into(), subject, type_, ..(*record(1).spec).clone() })
        };
        let (ready, requested) = (TransitionType::EnvironmentReady, TransitionType::PromotionRequested);
        assert!(at("promotion/prod", requested) && at("environment/prod", ready) && at("pipeline", requested));
        assert!(!at("environment/prod", requested) && !at("promotion/prod", ready));
    }

    #[test]
    fn a_deleted_status_makes_only_deliveries_of_global_notifications_foreign() {
        let with = |edit: fn(&mut History), is_global| {
            let mut history = (*known().history.unwrap()).clone();
            edit(&mut history);
            Known { history: Some(Arc::new(history)), cursors: Some(Arc::default()), is_global, ..known() }
        };
        let earlier = with(|h| h.recorded = None, true);
        assert_eq!(judge(&made(110, AT + 9), &earlier, Sight::Listed), Origin::Recorded);
        for (is_global, expected) in [(false, Origin::Recorded), (true, Origin::Foreign("NotRecorded"))] {
            let deleted = with(|h| (h.is_dispatched, h.recorded, h.first) = (false, None, 115), is_global);
            assert_eq!(judge(&made(110, AT + 9), &deleted, Sight::Listed), expected);
        }
    }

    #[test]
    fn an_earlier_version_can_have_recorded_a_change_without_its_repository() {
        let of = |repository: &str| State { repository: repository.into(), ..State::default() };
        let spec = |repository: &str| DeliverySpec { from: of(repository), to: of(repository), ..DeliverySpec::default() };
        let logged = Logged {
            types: vec![spec("").type_],
            time: spec("").time,
            from: of("https://github.com/acme/web"),
            to: of("https://github.com/acme/web"),
            ..Logged::default()
        };
        for (repository, expected) in
            [("", true), ("https://github.com/acme/web", true), ("https://evil.example/a/b", false)]
        {
            assert_eq!(logged.matches(&spec(repository)), expected, "{repository}");
        }
    }

    #[test]
    fn a_message_that_the_log_has_cut_is_the_same_message() {
        let logged = |message: &str| State { message: message.into(), ..State::default() };
        assert!(is_same_state(&logged("a long…"), &logged("a long story")));
        assert!(!is_same_state(&logged("a long…"), &logged("another story")));
        assert!(!is_same_state(&logged("a long"), &logged("a long story")));
    }

    #[test]
    fn a_delivery_has_the_recorded_values_of_its_change() {
        let with = |values: &[(&str, &str)], cut| {
            let annotations = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let recorded = Recorded { annotations, cut, ..Recorded::default() };
            State { recorded: Some(Box::new(recorded)), ..State::default() }
        };
        let logged = with(&[("channel", "#red")], false);
        assert!(is_same_state(&logged, &logged));
        for (name, logged, said) in [
            ("another value", &logged, with(&[("channel", "#blue")], false)),
            ("one more", &logged, with(&[("channel", "#red"), ("user", "x")], false)),
            ("one that the log has left out", &with(&[], true), with(&[("channel", "#blue")], false)),
            ("none is recorded", &State::default(), with(&[("channel", "#red")], false)),
        ] {
            assert!(!is_same_state(logged, &said), "{name}");
        }
    }
}
