//! A delivery as the other files of this module use it: values that do not depend on the store. Pure.

use std::sync::Arc;
use std::time::Duration;

use relaybook_api::delivery::Family;
pub use relaybook_api::delivery::{name, webhook_id};
use relaybook_api::{Age, DeliverySpec, DeliveryStatus, LogSubject, ObjectName, Time, version};

/// A delivery. Until it is recorded, it has neither uid nor version.
#[derive(Clone, Debug)]
pub struct Record {
    /// Namespace and name of the stored object, which identify the record. For the name see [`name`].
    pub id: ObjectName,
    /// Identity of the stored object. An object that is created again under the same name has a different uid. Empty if there is no object
    /// yet.
    pub uid: String,
    /// Version of the stored object, for writes that must not overwrite the write of another component.
    pub version: String,
    /// When the delivery was recorded.
    pub recorded: Time,
    /// How long the delivery has been waiting to be sent. `maxAge` limits this age. The process measures it with its own clock from the
    /// moment when it first reads the delivery.
    pub age: Age,
    /// What the delivery reports.
    pub spec: Arc<DeliverySpec>,
    /// The state of the delivery.
    pub status: DeliveryStatus,
    /// Number of consecutive 404 responses from the receiver. It is not stored; after a restart it counts from 0.
    pub not_found: u32,
    /// Whether the delivery was settled and is now redelivered, in a lane of its own and outside the order.
    pub again: bool,
    /// Value of the annotation that requests a redelivery.
    pub asked: Option<String>,
    /// Whether the status is newer than the stored object, because the last attempt was not written.
    pub unwritten: bool,
}

/// The lane of deliveries whose notification orders the whole pipeline.
pub const PIPELINE_LANE: &str = "pipeline";
/// The prefix of the lane of a redelivery.
const AGAIN: &str = "again/";

impl Record {
    /// Returns a delivery that is not recorded yet, and that starts to wait `now`. `boot`: the time since boot.
    #[must_use]
    pub fn unrecorded(namespace: &str, spec: Arc<DeliverySpec>, now: Time, boot: Duration) -> Self {
        Self {
            id: ObjectName::new(namespace, name(&spec)),
            uid: String::new(),
            version: String::new(),
            recorded: now,
            age: Age::new(now, now, boot),
            spec,
            status: DeliveryStatus::default(),
            not_found: 0,
            again: false,
            asked: None,
            unwritten: false,
        }
    }

    /// Returns whether an object records the delivery.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        !self.uid.is_empty()
    }

    /// Returns whether `other`, a copy of the same object, is newer.
    #[must_use]
    pub fn is_older_than(&self, other: &Self) -> bool {
        !self.is_recorded() || version(Some(&self.version)) < version(Some(&other.version))
    }

    /// Returns the lane in which the delivery is sent.
    #[must_use]
    pub fn lane(&self) -> LaneKey {
        if self.again { self.lane_again() } else { self.home() }
    }

    /// Returns the lane in which the delivery is redelivered.
    #[must_use]
    pub fn lane_again(&self) -> LaneKey {
        LaneKey { lane: format!("{AGAIN}{}", self.id.name), ..self.home() }
    }

    /// Returns the lane in which the delivery was recorded.
    #[must_use]
    pub fn home(&self) -> LaneKey {
        LaneKey {
            namespace: self.spec.pipeline_ref.namespace.clone(),
            pipeline: self.spec.pipeline_ref.uid.clone(),
            notification: self.spec.notification.clone(),
            lane: self.spec.lane.clone(),
        }
    }

    /// Returns the key of what the delivery is about. A later delivery with the same key contains everything that this one contains.
    /// `None`: no later delivery replaces this one. A receiver acts on each transition of a promotion.
    #[must_use]
    pub fn supersede_key(&self) -> Option<SupersedeKey<'_>> {
        (self.spec.type_.family() != Family::Promotion).then(|| self.about())
    }

    /// Returns what the delivery is about.
    #[must_use]
    pub fn about(&self) -> SupersedeKey<'_> {
        (self.spec.log_subject(), self.spec.type_.family())
    }

    /// Returns the error with which the delivery was recorded. Such a delivery is parked instead of sent. A redelivery ignores the error,
    /// because a user has requested it.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.spec.error.as_deref().filter(|_| !self.again)
    }

    /// Takes over the identity of the object that now records this delivery.
    pub(super) fn adopt(&mut self, stored: &Self) {
        self.uid.clone_from(&stored.uid);
        self.version.clone_from(&stored.version);
        self.recorded = stored.recorded;
        self.asked.clone_from(&stored.asked);
    }

    /// Copies the values that are not stored from an older copy.
    pub fn copy_local_state_from(&mut self, known: &Self) {
        self.not_found = known.not_found;
        if self.since() == known.since() {
            self.age = known.age;
        }
    }

    /// Returns when the delivery started to wait to be sent. `maxAge` counts from this time.
    #[must_use]
    pub fn since(&self) -> Time {
        let redelivered = self.status.redelivered.as_ref().filter(|_| self.again);
        redelivered.map_or(self.recorded, |redelivered| redelivered.time)
    }
}

/// What a delivery is about: its subject, and whether it reports existence, status or drift.
pub type SupersedeKey<'a> = (LogSubject<'a>, Family);

/// The unit of order: the deliveries of one notification for one subject, in whichever namespace they are stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey {
    /// Namespace of the pipeline. The uid is sufficient as a key; the namespace saves a look-up.
    pub namespace: String,
    /// Uid of the pipeline.
    pub pipeline: String,
    /// Name of the notification.
    pub notification: String,
    /// The subject, [`PIPELINE_LANE`], or the lane of a redelivery.
    pub lane: String,
}

impl LaneKey {
    /// Returns the notification to which the lane belongs.
    #[must_use]
    pub fn owner(&self) -> ObjectName {
        ObjectName::new(&self.namespace, &self.notification)
    }

    /// Returns whether it is the lane of a redelivery, which is outside the order.
    #[must_use]
    pub fn is_again(&self) -> bool {
        self.lane.starts_with(AGAIN)
    }

    /// Returns the lane of the same notification for the whole pipeline.
    #[must_use]
    pub fn of_pipeline(&self) -> Self {
        Self { lane: PIPELINE_LANE.to_owned(), ..self.clone() }
    }

    /// Returns whether both lanes belong to the same notification and pipeline.
    #[must_use]
    pub fn has_same_notification(&self, other: &Self) -> bool {
        self.pipeline == other.pipeline && self.notification == other.notification && self.namespace == other.namespace
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::TransitionType;
    use relaybook_api::delivery::{Subject, SubjectKind};
    use relaybook_api::testing::spec;

    #[test]
    fn deliveries_supersede_only_those_of_the_same_subject_and_family() {
        let mut one = crate::outbox::testing::record(1);
        let other = |change: &dyn Fn(&mut DeliverySpec)| {
            let mut other = crate::outbox::testing::record(2);
            change(Arc::make_mut(&mut other.spec));
            other
        };
        assert_eq!(one.supersede_key(), other(&|spec| spec.type_ = TransitionType::Failed).supersede_key());
        assert_ne!(one.supersede_key(), other(&|spec| spec.type_ = TransitionType::Drifted).supersede_key());
        assert_ne!(one.supersede_key(), other(&|spec| spec.subject.kind = SubjectKind::Cluster).supersede_key());
        one.again = true;
        assert_eq!(one.refusal(), None);
        Arc::make_mut(&mut one.spec).error = Some("e".to_owned());
        assert_eq!(one.refusal(), None, "a person wants it sent");
        one.again = false;
        assert_eq!(one.refusal(), Some("e"));
    }

    #[test]
    fn no_transition_of_a_promotion_replaces_another_delivery() {
        let mut one = crate::outbox::testing::record(1);
        Arc::make_mut(&mut one.spec).type_ = TransitionType::PromotionRequested;
        assert_eq!(one.supersede_key(), None);
    }

    #[test]
    fn a_newer_copy_of_a_record_keeps_its_age_unless_it_was_redelivered() {
        let at = |second| Time::from_second(second).unwrap();
        let age = |since, wall, boot| Age::new(at(since), at(wall), std::time::Duration::from_secs(boot));
        let known = Record { age: age(0, 10, 100), not_found: 2, ..crate::outbox::testing::record(1) };
        // Read after the wall clock jumped by a year.
        let mut newer = Record { age: age(0, 31_536_020, 110), ..crate::outbox::testing::record(1) };
        let mut again = newer.clone();
        newer.copy_local_state_from(&known);
        assert_eq!((newer.not_found, newer.age.at(std::time::Duration::from_mins(2)).as_secs()), (2, 30));
        again.again = true;
        again.status.redelivered = Some(relaybook_api::delivery::Redelivered { value: "1".into(), time: at(15) });
        again.age = age(15, 20, 110);
        again.copy_local_state_from(&known);
        assert_eq!(again.age, age(15, 20, 110));
    }

    #[test]
    fn names_are_readable_unique_and_valid() {
        let a = spec(7);
        assert!(name(&a).starts_with("podinfo-deploys-") && name(&a).ends_with("-7-deployed"), "{}", name(&a));
        let mut b = a.clone();
        b.pipeline_ref.uid = "other".into();
        assert_ne!(name(&a), name(&b));
        assert_ne!(webhook_id(&a), webhook_id(&b));
        let about = |type_| {
            let subject = Subject { kind: SubjectKind::Environment, name: "prod".into(), ..Subject::default() };
            webhook_id(&DeliverySpec { subject, type_, ..a.clone() })
        };
        assert_ne!(about(TransitionType::EnvironmentReady), about(TransitionType::PromotionFinished));
        let mut long = a;
        long.pipeline_ref.name = format!("{}.{}", "a".repeat(62), "b".repeat(60));
        assert!(name(&long).starts_with(&format!("{}-deploys-", "a".repeat(62))));
        assert!(name(&long).len() <= 253);
    }
}
