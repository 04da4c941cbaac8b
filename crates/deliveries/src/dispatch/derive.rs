//! Derives deliveries from changes. Pure.
//!
//! In: the log, a cursor, the running timers, which transitions the notification wants for each subject, and the current time. Out:
//! deliveries by lane, in order; the timers that continue; and the serial up to which the log was processed.

pub mod subjects;
pub mod timers;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::cursor::state::Taken;
use crate::outbox::lane::Place;
use crate::outbox::record::{PIPELINE_LANE, webhook_id};
use relaybook_api::delivery::PipelineRef;
use relaybook_api::notification::Ordering;
use relaybook_api::pipeline::{Cursor, RunningTimer};
use relaybook_api::{Change, ChangeLog, DeliverySpec, LogSubject, Time, TransitionType};
use relaybook_core::meaning::transitions;
use relaybook_settings::render::{Data, Texts};
use relaybook_settings::trigger::{Triggers, Wanted};
use subjects::Subjects;
use timers::{Timer, Timers};

/// What a notification reports about one subject.
#[derive(Clone, Copy, Debug)]
pub enum Wants<'a> {
    /// Nothing: the notification does not apply to the subject.
    Nothing,
    /// Its configuration is invalid or not known yet. Until it is valid, the cursor does not advance past a change of the subject.
    Unclear,
    /// These transitions, with this ordering of lanes.
    These(&'a Triggers, Ordering),
}

/// A pipeline and its log.
#[derive(Clone, Copy, Debug)]
pub struct PipelineLog<'a> {
    /// The reference to it in deliveries.
    pub pipeline: &'a PipelineRef,
    /// Its labels.
    pub labels: &'a Texts,
    /// Its annotations.
    pub annotations: &'a Texts,
    /// Its subjects.
    pub subjects: &'a Subjects,
    /// By subject: the serial of the log when the last silent baseline was taken. No timer continues from a change at or below it.
    pub based: &'a HashMap<String, i64>,
    /// Its log.
    pub log: &'a ChangeLog,
}

impl PipelineLog<'_> {
    fn based(&self, subject: &str) -> i64 {
        self.based.get(subject).copied().unwrap_or_default()
    }
}

/// How far the log was processed for a notification.
#[derive(Clone, Copy, Debug)]
pub struct Reached<'a> {
    /// All changes up to this cursor were processed.
    pub cursor: &'a Cursor,
    /// Subjects that were processed beyond the cursor.
    pub taken: &'a Taken,
    /// The running timers.
    pub armed: &'a [RunningTimer],
    /// How many timers of this notification can run.
    pub timer_limit: usize,
}

/// What the changes above a cursor mean for its notification.
#[derive(Debug, Default)]
pub struct Derived {
    /// One list for each lane, in order.
    pub lanes: Vec<Vec<DeliverySpec>>,
    /// By subject with [`Wants::Unclear`]: the serial of its first change.
    pub unclear: BTreeMap<String, i64>,
    /// The timers that continue.
    pub armed: Vec<RunningTimer>,
    /// How many timers were due.
    pub fired: usize,
    /// The subjects of timers that fired at the end of this copy of the log, because it has no change that ends their state. The API server
    /// may have a later one.
    pub fired_at_end: BTreeSet<String>,
    /// Whether the timers of the change after `reached` would exceed the limit of timers.
    pub timer_limit_reached: bool,
    /// All changes up to this serial were processed.
    pub reached: i64,
    /// How long until a timer can be due.
    pub next: Option<Duration>,
}

impl Derived {
    /// Returns how many timers continue if no delivery can be recorded.
    #[must_use]
    pub fn timers(&self) -> usize {
        self.armed.len() + self.fired
    }
}

/// Derives the deliveries, and the timers that continue.
#[must_use]
pub fn derive<'w>(of: &PipelineLog<'_>, from: &Reached<'_>, wants: impl Fn(&str) -> Wants<'w>, now: Time) -> Derived {
    let mut pass = Pass {
        of,
        cursor: from.cursor,
        now,
        timers: Timers::new(of.log, now),
        lanes: BTreeMap::new(),
        derived: Derived { reached: of.log.serial, ..Derived::default() },
    };
    let position = |subject: &str| from.taken.get(subject).copied().unwrap_or_default().max(from.cursor.serial);
    for armed in from.armed.iter().filter(|armed| armed.serial <= position(&armed.subject)) {
        pass.resume(armed, wants(&armed.subject));
    }
    for change in of.log.changes.iter().filter(|change| change.serial > from.cursor.serial) {
        // A change that was processed before still determines the place of a timer whose delivery could not be recorded then.
        let is_news = change.serial > position(&change.subject);
        if !pass.come_to(change) || (is_news && !pass.take(change, wants(&change.subject), from.timer_limit)) {
            pass.derived.reached = change.serial - 1;
            break;
        }
    }
    pass.end()
}

/// The state while the log is processed.
struct Pass<'p, 'a> {
    of: &'p PipelineLog<'a>,
    cursor: &'p Cursor,
    now: Time,
    timers: Timers<'a>,
    lanes: BTreeMap<String, Vec<DeliverySpec>>,
    derived: Derived,
}

impl<'a> Pass<'_, 'a> {
    /// Resumes a timer that ran before. Its time is computed again, because the triggers may have been edited.
    fn resume(&mut self, armed: &RunningTimer, wants: Wants<'_>) {
        let (triggers, ordering) = match wants {
            Wants::Nothing => return,
            Wants::Unclear => return self.derived.armed.push(armed.clone()),
            Wants::These(triggers, ordering) => (triggers, ordering),
        };
        let changes = &self.of.log.changes;
        let found = changes.binary_search_by_key(&armed.serial, |change| change.serial).ok();
        let change = found.and_then(|at| changes.get(at)).filter(|change| change.subject == armed.subject);
        let Some(change) = change.filter(|change| transitions(change).any(|type_| type_ == armed.type_)) else { return };
        if let Some(wanted) = self.ask(change, armed.type_, triggers) {
            let hold = wanted.hold;
            let timer = self.timer(change, armed.type_, wanted, ordering);
            let timer = Timer { fires: timers::fires(change.time, hold, self.now, Some(armed.due)), ..timer };
            if self.runs(&timer) {
                self.timers.arm(timer);
            }
        }
    }

    /// Fires the timers that are due before a change, and disarms the timers whose state the change ends. Returns `false` if the change
    /// must wait.
    fn come_to(&mut self, change: &Change) -> bool {
        let (due, held) = self.timers.before(change);
        for timer in due {
            self.fire(timer, change.serial - 1);
        }
        if !held {
            self.timers.pass(change);
        }
        !held
    }

    /// Derives what one change means. Returns `false` if its timers would exceed the limit.
    fn take(&mut self, change: &'a Change, wants: Wants<'_>, timer_limit: usize) -> bool {
        let (triggers, ordering) = match wants {
            Wants::Nothing => return true,
            Wants::Unclear => {
                self.derived.unclear.entry(change.subject.clone()).or_insert(change.serial);
                return true;
            }
            Wants::These(triggers, ordering) => (triggers, ordering),
        };
        let ask = |type_| Some((type_, self.ask(change, type_, triggers)?));
        let wanted = transitions(change).filter_map(ask);
        let (later, at_once): (Vec<_>, Vec<_>) = wanted.partition(|(_, wanted)| wanted.hold.is_some());
        let timers = later.into_iter().map(|(type_, wanted)| self.timer(change, type_, wanted, ordering));
        let timers: Vec<_> = timers.filter(|timer| self.runs(timer)).collect();
        // Fired timers count as well, because they continue if their deliveries cannot be recorded.
        let running = self.timers.count() + self.derived.timers();
        if !timers.is_empty() && running + timers.len() > timer_limit {
            self.derived.timer_limit_reached = true;
            return false;
        }
        for timer in timers {
            self.timers.arm(timer);
        }
        for (type_, wanted) in at_once {
            self.push(DeliverySpec { error: wanted.error, ..self.spec(change, type_, ordering) });
        }
        true
    }

    /// Returns how the notification reports one transition. `None`: it does not report it.
    fn ask(&self, change: &Change, type_: TransitionType, triggers: &Triggers) -> Option<Wanted> {
        if !triggers.mention(type_) {
            return None;
        }
        let PipelineLog { pipeline, labels, annotations, subjects, .. } = self.of;
        let data = || {
            let spec = self.spec(change, type_, Ordering::default());
            Data::new(&webhook_id(&spec), &spec, labels, annotations, &pipeline.namespace)
        };
        triggers.ask(type_, &subjects.get(&change.subject).places, data)
    }

    fn timer(&self, change: &'a Change, type_: TransitionType, wanted: Wanted, ordering: Ordering) -> Timer<'a> {
        let due = timers::due(change.time, wanted.hold);
        let fires = timers::fires(change.time, wanted.hold, self.now, None);
        Timer { change, type_, due, fires, error: wanted.error, ordering }
    }

    /// Whether a timer can still be due. Other timers are dropped, so they do not count for the limit.
    fn runs(&self, timer: &Timer<'_>) -> bool {
        timer.change.serial > self.of.based(&timer.change.subject) && !self.timers.is_ended(timer)
    }

    /// Fires a timer. Its delivery is ordered behind the change with this serial.
    fn fire(&mut self, timer: Timer<'_>, order: i64) {
        self.derived.fired += 1;
        let Timer { change, type_, fires, error, ordering, .. } = timer;
        self.push(DeliverySpec { order, due: Some(fires), error, ..self.spec(change, type_, ordering) });
    }

    fn push(&mut self, spec: DeliverySpec) {
        self.lanes.entry(spec.lane.clone()).or_default().push(spec);
    }

    fn spec(&self, change: &Change, type_: TransitionType, ordering: Ordering) -> DeliverySpec {
        DeliverySpec {
            notification: self.cursor.notification.clone(),
            notification_uid: self.cursor.uid.clone(),
            pipeline_ref: self.of.pipeline.clone(),
            subject: self.of.subjects.get(&change.subject).subject.clone(),
            lane: lane(&change.subject, ordering, self.of.pipeline),
            order: change.serial,
            serial: change.serial,
            type_,
            time: change.time,
            from: change.from.clone(),
            to: change.to.clone(),
            coalesced: change.coalesced,
            due: None,
            error: None,
            test: false,
        }
    }

    fn end(mut self) -> Derived {
        for timer in self.timers.rest() {
            self.derived.fired_at_end.insert(timer.change.subject.clone());
            self.fire(timer, self.derived.reached);
        }
        let mut derived = self.derived;
        derived.armed.extend(self.timers.armed(&self.cursor.notification));
        let mut lanes: Vec<_> = self.lanes.into_values().collect();
        // Timers are processed by the times of the log. In a lane, their deliveries are ordered by the times at which the timers fire.
        for lane in &mut lanes {
            lane.sort_by_key(|delivery| Place::from(delivery));
        }
        Derived { lanes, next: self.timers.next(), ..derived }
    }
}

/// Returns the lane of a subject. The lane of the pipeline as a subject differs from the single lane that `ordering: Pipeline` makes for
/// all subjects.
fn lane(subject: &str, ordering: Ordering, pipeline: &PipelineRef) -> String {
    match (ordering, LogSubject::parse(subject)) {
        (Ordering::Pipeline, _) => PIPELINE_LANE.to_owned(),
        (Ordering::Target, LogSubject::Pipeline) => format!("{PIPELINE_LANE}/{}", pipeline.name),
        (Ordering::Target, _) => subject.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::delivery::SubjectKind;
    use relaybook_api::notification::Trigger;
    use relaybook_api::promotion::{Phase, PromotionState};
    use relaybook_api::{PipelineSpec, State, Status, TransitionType};

    fn change(serial: i64, subject: &str, revision: &str) -> Change {
        let to =
            State { status: Status::Current, revision: revision.into(), current: Some(revision.into()), ..State::default() };
        let time = Time::from_second(serial).unwrap();
        Change { serial, subject: subject.into(), time, to, ..Change::default() }
    }

    fn log() -> ChangeLog {
        let changes =
            vec![change(11, "target/dev/c/a", "1"), change(12, "target/prod/c/a", "1"), change(13, "target/dev/c/a", "2")];
        ChangeLog { epoch: 0, first: 10, serial: 13, held_until: None, changes }
    }

    fn cursor(serial: i64) -> Cursor {
        Cursor { notification: "n".into(), serial, uid: "u".into(), ..Cursor::default() }
    }

    fn triggers(environments: Option<&str>) -> Triggers {
        let environments = environments.map(|e| vec![e.to_owned()]);
        Triggers::compile(&[Trigger { type_: TransitionType::Deployed, environments, ..Trigger::default() }]).unwrap()
    }

    fn run<'w>(cursor: &Cursor, taken: &Taken, wants: impl Fn(&str) -> Wants<'w>, subjects: &Subjects) -> Derived {
        let (log, pipeline, none) = (log(), PipelineRef::default(), Texts::default());
        let based = HashMap::new();
        let of = PipelineLog { pipeline: &pipeline, labels: &none, annotations: &none, subjects, based: &based, log: &log };
        let from = Reached { cursor, taken, armed: &[], timer_limit: timers::MOST };
        derive(&of, &from, wants, Time::from_second(1000).unwrap())
    }

    fn serials(lanes: &[Vec<DeliverySpec>]) -> Vec<Vec<i64>> {
        lanes.iter().map(|lane| lane.iter().map(|d| d.serial).collect()).collect()
    }

    #[test]
    fn each_subject_has_a_lane_with_its_changes_in_order() {
        let all = triggers(None);
        let lanes = |t: &Triggers, ordering, after, taken: &Taken| {
            run(&cursor(after), taken, |_| Wants::These(t, ordering), &Subjects::default()).lanes
        };
        let of = |t: &Triggers, after| serials(&lanes(t, Ordering::Target, after, &Taken::new()));
        assert_eq!(of(&all, 10), [vec![11, 13], vec![12]]);
        assert_eq!(of(&all, 12), [vec![13]]);
        assert_eq!(of(&triggers(Some("prod")), 10), [vec![12]]);
        assert!(of(&all, 13).is_empty());
        let taken = Taken::from([("target/dev/c/a".to_owned(), 11)]);
        let above = lanes(&all, Ordering::Target, 10, &taken);
        assert_eq!(serials(&above), [vec![13], vec![12]], "one that was taken further than the cursor");
        let one = lanes(&all, Ordering::Pipeline, 10, &Taken::new());
        assert_eq!((serials(&one), one[0][0].lane.as_str()), (vec![vec![11, 12, 13]], PIPELINE_LANE));
    }

    #[test]
    fn changes_are_derived_by_the_triggers_of_their_own_subject() {
        let all = triggers(None);
        let wants = |subject: &str| match subject {
            "target/dev/c/a" => Wants::Unclear,
            _ => Wants::These(&all, Ordering::Target),
        };
        let derived = run(&cursor(10), &Taken::new(), wants, &Subjects::default());
        assert_eq!(serials(&derived.lanes), [vec![12]]);
        assert_eq!(derived.unclear, BTreeMap::from([("target/dev/c/a".to_owned(), 11)]));
        let none = run(&cursor(10), &Taken::new(), |_| Wants::Nothing, &Subjects::default());
        assert!(none.lanes.is_empty() && none.unclear.is_empty());
    }

    #[test]
    fn a_target_that_left_the_spec_is_still_named() {
        let all = triggers(None);
        let wants = |_: &str| Wants::These(&all, Ordering::Target);
        let lanes = run(&cursor(12), &Taken::new(), wants, &Subjects::default()).lanes;
        let subject = &lanes[0][0].subject;
        assert_eq!((subject.name.as_str(), subject.environment.as_str()), ("dev/c/a", "dev"));
        assert_eq!(subject.target.as_ref().unwrap().namespace, "a");
    }

    #[test]
    fn the_lane_of_a_subject_depends_on_the_ordering() {
        let of = |subject, ordering| lane(subject, ordering, &PipelineRef { name: "shop".into(), ..PipelineRef::default() });
        assert_eq!(of("pipeline", Ordering::Target), "pipeline/shop");
        assert_eq!(of("environment/prod", Ordering::Target), "environment/prod");
        assert_eq!(of("promotion/prod", Ordering::Target), "promotion/prod");
        assert_eq!(of("pipeline", Ordering::Pipeline), PIPELINE_LANE);
        assert_eq!(of("target/a/b/c", Ordering::Pipeline), PIPELINE_LANE);
    }

    /// Derives from these changes of the promotions to `prod` at this second.
    fn promoted(changes: &[(i64, Phase, &str)], triggers: &Triggers, based: i64, now: i64) -> Derived {
        let spec: PipelineSpec = serde_json::from_value(serde_json::json!({
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "environments": [{"name": "prod", "targets": [{"namespace": "a"}]}],
        }))
        .unwrap();
        let pipeline = PipelineRef { namespace: "team-a".into(), name: "shop".into(), uid: "u".into() };
        let subjects = Subjects::new(&relaybook_api::Pipeline::new("shop", spec), "here", &pipeline);
        let state = |phase, reason: &str| State {
            revision: "2".into(),
            reason: reason.into(),
            promotion: Some(PromotionState { name: "p".into(), phase, ..PromotionState::default() }),
            ..State::default()
        };
        let change = |(at, phase, reason): &(i64, Phase, &str)| Change {
            serial: 10 + at,
            subject: "promotion/prod".into(),
            time: Time::from_second(*at).unwrap(),
            to: state(*phase, reason),
            ..Change::default()
        };
        let changes: Vec<_> = changes.iter().map(change).collect();
        let log = ChangeLog { first: 10, serial: changes.last().map_or(10, |c| c.serial), changes, ..ChangeLog::default() };
        let (none, based) = (Texts::default(), HashMap::from([("promotion/prod".to_owned(), based)]));
        let of = PipelineLog {
            pipeline: &pipeline,
            labels: &none,
            annotations: &none,
            subjects: &subjects,
            based: &based,
            log: &log,
        };
        let (cursor, taken) = (cursor(10), Taken::new());
        let from = Reached { cursor: &cursor, taken: &taken, armed: &[], timer_limit: timers::MOST };
        derive(&of, &from, |_| Wants::These(triggers, Ordering::Target), Time::from_second(now).unwrap())
    }

    #[test]
    fn promotions_are_reported_about_their_environment_in_a_lane_of_their_own() {
        let triggers = serde_json::json!([
            {"type": "PromotionRequested", "environments": ["prod"], "clusters": ["here"]},
            {"type": "PromotionFinished", "when": "promotion.name == 'p' && promotion.phase == 'Finished'"},
            {"type": "PromotionPending", "environments": ["dev"]},
        ]);
        let triggers = Triggers::compile(&serde_json::from_value::<Vec<_>>(triggers).unwrap()).unwrap();
        let changes = [
            (1, Phase::Pending, "WaitingApproval"),
            (2, Phase::Requested, ""),
            (3, Phase::Merged, ""),
            (4, Phase::Finished, ""),
        ];
        let lanes = promoted(&changes, &triggers, 0, 100).lanes;
        let types: Vec<_> = lanes.iter().flatten().map(|d| (d.type_, d.serial)).collect();
        assert_eq!(types, [(TransitionType::PromotionRequested, 12), (TransitionType::PromotionFinished, 14)]);
        let requested = &lanes[0][0];
        let subject = &requested.subject;
        assert_eq!((lanes.len(), requested.lane.as_str()), (1, "promotion/prod"));
        assert_eq!((subject.kind, subject.name.as_str()), (SubjectKind::Environment, "prod"));
        assert_eq!(requested.log_subject().to_string(), "promotion/prod");
    }

    #[test]
    fn a_for_trigger_fires_if_a_promotion_waits_too_long_for_its_approval() {
        let trigger = Trigger { type_: TransitionType::PromotionPending, for_: Some("60s".into()), ..Trigger::default() };
        let triggers = Triggers::compile(&[trigger]).unwrap();
        let waits = (1, Phase::Pending, "WaitingApproval");
        let fired = |changes: &[_], based, now| promoted(changes, &triggers, based, now).fired;
        assert_eq!(promoted(&[waits], &triggers, 0, 30).armed.len(), 1);
        assert_eq!(fired(&[waits], 0, 100), 1);
        assert_eq!(fired(&[waits, (50, Phase::Requested, "")], 0, 100), 0, "approved in time");
        assert_eq!(fired(&[waits, (70, Phase::Requested, "")], 0, 100), 1, "approved too late");
        assert_eq!(fired(&[waits], 11, 100), 0, "it belongs to an earlier environment of the same name");
    }
}
