//! What Relaybook reports about a delivery outside its object: the audit line, and the reason why its lane is blocked.

use super::record::Record;
use super::store::figures::Trouble;
use relaybook_api::Outcome;
use relaybook_telemetry::logging::AUDIT;

/// Writes one log line for each settled delivery, for users who keep their audit trail elsewhere.
pub(super) fn audit(record: &Record, outcome: Outcome) {
    let (spec, status) = (&record.spec, &record.status);
    tracing::info!(
        target: AUDIT,
        delivery = %record.id.name,
        namespace = %record.id.namespace,
        pipeline = %spec.pipeline_ref.name,
        notification = %spec.notification,
        subject = %spec.subject.name,
        type = spec.type_.as_str(),
        revision = %spec.to.revision,
        outcome = outcome.as_str(),
        reason = status.reason.as_deref(),
        code = status.status_code,
        attempts = status.attempts,
        superseded = status.superseded,
        recorded = %record.recorded,
        settled = status.settled_time.map(tracing::field::display),
        "settled"
    );
}

/// Returns why a lane makes no progress, for the Notification's condition. `None`: the status contains no reason.
pub(super) fn trouble(record: &Record) -> Option<Trouble> {
    let reason = record.status.reason.clone()?;
    let error = record.status.error.clone().unwrap_or_default();
    Some(Trouble { reason, message: format!("{}: {error}", record.spec.subject.name) })
}
