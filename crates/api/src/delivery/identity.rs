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
    let serial = spec.serial.to_string();
    let hash = hash(&[&spec.pipeline_ref.uid, &spec.notification, &subject(spec), &serial, spec.type_.as_str()]);
    format!("msg_{}", &hash[..32])
}

impl DeliverySpec {
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
