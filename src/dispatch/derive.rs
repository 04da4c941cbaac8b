//! From changes to deliveries. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::standing::Taken;
use crate::api::delivery::{AppObject, PipelineRef, Subject, SubjectKind, SubjectTarget};
use crate::api::notification::Ordering;
use crate::api::pipeline::Cursor;
use crate::api::target::TargetInfo;
use crate::api::{Change, ChangeLog, DeliverySpec, Time};
use crate::delivery::record::PIPELINE_LANE;
use crate::trigger::{Triggers, transition};

/// What a notification wants of one subject.
#[derive(Clone, Copy, Debug)]
pub enum Wants<'a> {
    /// It has nothing to do with it.
    Nothing,
    /// That cannot be understood: nothing of the subject is passed until it can.
    Unclear,
    /// These transitions, in lanes like this.
    These(&'a Triggers, Ordering),
}

/// The deliveries that the changes above a cursor mean to its notification.
#[derive(Debug, Default)]
pub struct Derived {
    /// One list for each lane, in order.
    pub lanes: Vec<Vec<DeliverySpec>>,
    /// By subject of which it is not clear what is wanted: the serial of its first change.
    pub unclear: BTreeMap<String, i64>,
}

/// Derives them. `taken`: subjects that were taken further than the cursor.
#[must_use]
pub fn derive<'a>(
    cursor: &Cursor,
    taken: &Taken,
    wants: impl Fn(&str) -> Wants<'a>,
    log: &ChangeLog,
    pipeline: &PipelineRef,
    targets: &BTreeMap<String, TargetInfo>,
) -> Derived {
    let mut lanes: BTreeMap<&str, Vec<DeliverySpec>> = BTreeMap::new();
    let mut unclear = BTreeMap::new();
    let above = |c: &&Change| c.serial > taken.get(&c.subject).copied().unwrap_or(cursor.serial).max(cursor.serial);
    for change in log.changes.iter().filter(above) {
        let (triggers, ordering) = match wants(&change.subject) {
            Wants::Nothing => continue,
            Wants::Unclear => {
                unclear.entry(change.subject.clone()).or_insert(change.serial);
                continue;
            }
            Wants::These(triggers, ordering) => (triggers, ordering),
        };
        let Some(type_) = transition(change) else { continue };
        let subject = subject(&change.subject, targets);
        if !triggers.wants(type_, &subject.environment) {
            continue;
        }
        let lane = match ordering {
            Ordering::Target => change.subject.as_str(),
            Ordering::Pipeline => PIPELINE_LANE,
        };
        lanes.entry(lane).or_default().push(DeliverySpec {
            notification: cursor.notification.clone(),
            notification_uid: cursor.uid.clone(),
            pipeline_ref: pipeline.clone(),
            subject,
            lane: lane.to_owned(),
            order: change.serial,
            serial: change.serial,
            type_,
            time: change.time,
            from: change.from.clone(),
            to: change.to.clone(),
            coalesced: change.coalesced,
        });
    }
    Derived { lanes: lanes.into_values().collect(), unclear }
}

/// The serial up to which a held cursor may go: changes older than `max_age` are passed. Gives the serial and how many were
/// passed.
#[must_use]
pub fn too_old(log: &ChangeLog, after: i64, max_age: Duration, now: Time) -> (i64, usize) {
    let old = |c: &&Change| Duration::try_from(now.duration_since(c.time)).is_ok_and(|age| age > max_age);
    let passed: Vec<_> = log.changes.iter().filter(|c| c.serial > after).take_while(old).collect();
    (passed.last().map_or(after, |c| c.serial), passed.len())
}

/// A subject out of its name in the log. A target that is no longer in the spec is told apart by its name alone.
fn subject(name: &str, targets: &BTreeMap<String, TargetInfo>) -> Subject {
    let short = name.strip_prefix("target/").unwrap_or(name);
    if let Some(info) = targets.get(name) {
        return info.as_subject();
    }
    let mut parts = short.splitn(4, '/').map(str::to_owned);
    let (environment, cluster, namespace, app) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next());
    let app = AppObject { name: app.unwrap_or_default(), ..AppObject::default() };
    Subject {
        kind: SubjectKind::Target,
        name: short.to_owned(),
        environment,
        target: Some(SubjectTarget { namespace, cluster, app }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::notification::Trigger;
    use crate::api::{State, Status, TransitionType};

    fn change(serial: i64, subject: &str, revision: &str) -> Change {
        let to =
            State { status: Status::Current, revision: revision.into(), current: Some(revision.into()), ..State::default() };
        let time = Time::from_second(serial).unwrap();
        Change { serial, subject: subject.into(), time, to, ..Change::default() }
    }

    fn log() -> ChangeLog {
        let changes =
            vec![change(11, "target/dev/c/a", "1"), change(12, "target/prod/c/a", "1"), change(13, "target/dev/c/a", "2")];
        ChangeLog { epoch: 0, first: 10, serial: 13, changes }
    }

    fn cursor(serial: i64) -> Cursor {
        Cursor { notification: "n".into(), serial, uid: "u".into() }
    }

    fn triggers(environments: Option<&str>) -> Triggers {
        let environments = environments.map(|e| vec![e.to_owned()]);
        Triggers::compile(&[Trigger { type_: TransitionType::Deployed, environments }]).unwrap()
    }

    fn serials(lanes: &[Vec<DeliverySpec>]) -> Vec<Vec<i64>> {
        lanes.iter().map(|lane| lane.iter().map(|d| d.serial).collect()).collect()
    }

    #[test]
    fn one_lane_for_each_subject_in_order() {
        let none = BTreeMap::new();
        let pipeline = PipelineRef::default();
        let all = triggers(None);
        let lanes = |t: &Triggers, ordering, after, taken: &Taken| {
            derive(&cursor(after), taken, |_| Wants::These(t, ordering), &log(), &pipeline, &none).lanes
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
    fn each_subject_has_its_own_wishes() {
        let all = triggers(None);
        let wants = |subject: &str| match subject {
            "target/dev/c/a" => Wants::Unclear,
            _ => Wants::These(&all, Ordering::Target),
        };
        let derived = derive(&cursor(10), &Taken::new(), wants, &log(), &PipelineRef::default(), &BTreeMap::new());
        assert_eq!(serials(&derived.lanes), [vec![12]]);
        assert_eq!(derived.unclear, BTreeMap::from([("target/dev/c/a".to_owned(), 11)]));
        let none = derive(&cursor(10), &Taken::new(), |_| Wants::Nothing, &log(), &PipelineRef::default(), &BTreeMap::new());
        assert!(none.lanes.is_empty() && none.unclear.is_empty());
    }

    #[test]
    fn a_target_that_left_the_spec_is_still_named() {
        let all = triggers(None);
        let wants = |_: &str| Wants::These(&all, Ordering::Target);
        let lanes = derive(&cursor(12), &Taken::new(), wants, &log(), &PipelineRef::default(), &BTreeMap::new()).lanes;
        let subject = &lanes[0][0].subject;
        assert_eq!((subject.name.as_str(), subject.environment.as_str()), ("dev/c/a", "dev"));
        assert_eq!(subject.target.as_ref().unwrap().namespace, "a");
    }

    #[test]
    fn held_cursors_pass_what_is_too_old() {
        let at = |s| Time::from_second(s).unwrap();
        let age = Duration::from_secs(10);
        assert_eq!(too_old(&log(), 10, age, at(20)), (10, 0));
        assert_eq!(too_old(&log(), 10, age, at(23)), (12, 2));
        assert_eq!(too_old(&log(), 12, age, at(99)), (13, 1));
    }
}
