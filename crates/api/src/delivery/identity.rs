//! The names by which a delivery is identified: that of the object, and that of its requests. Pure.

use super::{DeliverySpec, Family, SubjectKind};
use crate::values::names::{cut, hash};
use crate::{LogSubject, Time, TransitionType};

/// Returns the name of a delivery. The name is its key: only the first writer can record a transition, and only once.
///
/// The parts are: pipeline, notification, hash of (pipeline uid, notification, subject), serial, type. The first two parts are for users.
/// If they are cut, the hash keeps the name unique.
#[must_use]
pub fn name(spec: &DeliverySpec) -> String {
    if let Some(id) = spec.test_id() {
        return format!("{}-{}-{id}", cut(&spec.notification), TEST_LANE.trim_end_matches('/'));
    }
    let hash = hash(&[&spec.pipeline_ref.uid, &spec.notification, &subject(spec)]);
    format!(
        "{}-{}-{}-{}-{}",
        cut(&spec.pipeline_ref.name),
        cut(&spec.notification),
        &hash[..10],
        spec.serial,
        spec.type_.as_str().to_lowercase()
    )
}

/// Returns the `webhook-id` of every attempt (<https://www.standardwebhooks.com>): a hash of the same key. A receiver uses it to
/// distinguish a repetition from a new delivery, even if the transition was recorded twice.
#[must_use]
pub fn webhook_id(spec: &DeliverySpec) -> String {
    // The lane of a test is no number, so a test never has the ID of a real delivery.
    let serial = spec.test_id().map_or_else(|| spec.serial.to_string(), |_| spec.lane.clone());
    let hash = hash(&[&spec.pipeline_ref.uid, &spec.notification, &subject(spec), &serial, spec.type_.as_str()]);
    format!("msg_{}", &hash[..32])
}

/// The lane of a test begins with this text, and ends with its id.
pub const TEST_LANE: &str = "test/";

impl DeliverySpec {
    /// Returns the id of a test. `None`: it is no test.
    #[must_use]
    pub fn test_id(&self) -> Option<&str> {
        self.lane.strip_prefix(TEST_LANE).filter(|_| self.test)
    }

    /// Returns the place in the lane: order, due time, serial and type. The deliveries of a lane are sent in this order.
    #[must_use]
    pub fn place(&self) -> (i64, Option<Time>, i64, TransitionType) {
        (self.order, self.due, self.serial, self.type_)
    }

    /// Returns the subject in the change log.
    #[must_use]
    pub fn log_subject(&self) -> LogSubject<'_> {
        let name = &self.subject.name;
        match self.subject.kind {
            SubjectKind::Target => LogSubject::Target(name),
            SubjectKind::Cluster => LogSubject::Cluster(name),
            // A promotion is reported as a transition of its environment. In the log it is a subject of its own.
            SubjectKind::Environment if self.type_.family() == Family::Promotion => LogSubject::Promotion(name),
            SubjectKind::Environment => LogSubject::Environment(name),
            SubjectKind::Pipeline => LogSubject::Pipeline,
        }
    }
}

fn subject(spec: &DeliverySpec) -> String {
    match spec.type_.family() {
        Family::Promotion => LogSubject::Promotion(&spec.subject.name).to_string(),
        Family::Existence | Family::Status | Family::Drift => format!("{:?}/{}", spec.subject.kind, spec.subject.name),
    }
}
