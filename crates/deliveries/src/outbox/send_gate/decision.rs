//! Whether a delivery can be sent. Values only.
//!
//! In: what is known about a delivery. Out: a [`SendDecision`] for the component that sends.

use std::sync::Arc;

use super::facts::PipelineFacts;
use relaybook_api::delivery::Reason;
use relaybook_settings::config::{EffectiveNotification, Retry};

/// The object that is permanently gone. It may have been created again under the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The pipeline.
    Pipeline,
    /// The target.
    Target,
    /// The notification.
    Notification,
}

impl Gone {
    /// Returns the reason in the status of a canceled delivery.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::Pipeline => Reason::PipelineGone,
            Self::Target => Reason::TargetGone,
            Self::Notification => Reason::NotificationGone,
        }
    }
}

/// Whether a delivery can be sent now.
#[derive(Clone, Debug)]
pub enum SendDecision {
    /// Not yet: the watches have not delivered everything.
    NotYet,
    /// Yes, with this notification and these facts.
    Send(Arc<EffectiveNotification>, Arc<PipelineFacts>),
    /// Not at present.
    Wait {
        /// The reason in the status of the delivery.
        reason: Reason,
        /// The cause, for users.
        message: String,
        /// The retry settings that limit the wait. `None`: a user has requested the wait, so it has no limit.
        until: Option<Retry>,
    },
    /// Never. Unless `sure` is true, the object is only absent from the index, and a live read must confirm that it is gone.
    Gone {
        /// What is gone.
        what: Gone,
        /// Whether other objects prove that it is gone, so that no live read is needed.
        sure: bool,
    },
}

/// Decides about a delivery whose pipeline, target and notification exist.
pub(crate) fn judge(notification: Arc<EffectiveNotification>, facts: Arc<PipelineFacts>) -> SendDecision {
    if notification.suspend {
        let message = "spec.suspend is true: deliveries are recorded but not sent".to_owned();
        return SendDecision::Wait { reason: Reason::Suspended, message, until: None };
    }
    match &notification.sending {
        Ok(_) => SendDecision::Send(notification, facts),
        Err(problem) if problem.is_unknown() => SendDecision::NotYet,
        Err(problem) => SendDecision::Wait {
            reason: problem.reason(),
            message: problem.to_string(),
            until: Some(notification.delivery.retry),
        },
    }
}
