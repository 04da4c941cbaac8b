//! What a notification means for the subjects of a pipeline.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::derive::Wants;
use super::derive::subjects::Subjects;
use crate::outbox::Applied;

/// Returns which transitions of a subject a notification reports.
pub(super) fn wants<'a>(notification: &'a Applied, subject: &str) -> Wants<'a> {
    match notification.of(subject).map(|n| (&n.intake, n.delivery.ordering)) {
        None => Wants::Nothing,
        Some((Err(_), _)) => Wants::Unclear,
        Some((Ok(intake), ordering)) => Wants::These(&intake.triggers, ordering),
    }
}

/// Returns a hash of the namespaces of a notification's deliveries, by subject. If the hash changes, the namespaces have changed.
pub(super) fn namespaces_hash(notification: &Applied, subjects: &Subjects) -> u64 {
    let mut hasher = DefaultHasher::new();
    for subject in subjects.names() {
        (subject, notification.of(subject).map(|n| &n.home)).hash(&mut hasher);
    }
    hasher.finish()
}
