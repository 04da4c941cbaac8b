//! Deliveries of a reconcile that cannot be recorded.
//!
//! In: errors of creates, and the limit of timers. Out: a refusal for each notification, with its backoff; Events and the status.

use super::Pass;
use crate::dispatch::cursor::state::PassContext;
use crate::dispatch::derive::timers;
use crate::dispatch::status::refused::Refusal;
use crate::outbox::{Applied, JournalError};
use relaybook_api::ObjectName;
use relaybook_api::delivery::Reason;

impl Pass<'_> {
    /// Removes the refusal of a notification, if any.
    pub(super) fn clear_refusal(&self, name: &str) {
        let PassContext { of, ctx, .. } = self.with;
        if ctx.refused.clear(of, name) {
            ctx.deliveries.delivery_index.changed.wake(ObjectName::new(&of.namespace, name));
        }
    }

    /// Handles a create that was refused or failed. Only this notification waits.
    pub(super) fn refuse(&self, name: &str, error: &JournalError) {
        let of = self.with.of;
        let detail = error.detail();
        tracing::warn!(pipeline = %of.name, namespace = %of.namespace, notification = %name, error = %detail, "could not record a delivery; retrying, and later changes of this notification wait");
        self.note(name, Refusal { reason: Reason::RecordRefused, refused: error.is_refused(), detail });
    }

    /// The pipeline has the maximum number of timers: only this notification waits. The report has the same backoff as that of a refused
    /// create.
    pub(super) fn report_timer_limit(&self, name: &str) {
        let (of, refused) = (self.with.of, &self.with.ctx.refused);
        let reason = Reason::TooManyClocks;
        if refused.is_time(of, name) || refused.reason(of, name) != Some(reason) {
            let detail = format!("the pipeline already has {} pending `for` delays, which is the maximum", timers::MOST);
            self.note(name, Refusal { reason, refused: true, detail });
        }
    }

    fn note(&self, name: &str, refusal: Refusal) {
        let PassContext { of, ctx, .. } = self.with;
        let uid = self.notifications.get(name).map_or("", Applied::uid);
        let noted = ctx.refused.note(of, name, uid, refusal);
        if noted.refused {
            let text = format!("deliveries of pipeline {} cannot be recorded: {}", of.name, noted.detail);
            ctx.warn(of, name, uid, noted.reason.as_str(), "Record", &text);
            ctx.deliveries.delivery_index.changed.wake(ObjectName::new(&of.namespace, name));
        }
    }
}
