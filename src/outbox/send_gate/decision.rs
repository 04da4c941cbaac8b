//! Whether a delivery can be sent. Values only.
//!
//! In: what is known about a delivery. Out: a [`SendDecision`] for the component that sends.

use std::sync::Arc;

use super::facts::PipelineFacts;
use crate::config::{EffectiveNotification, Retry};

/// The object that is permanently gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The pipeline, or it was deleted and created again under its name.
    Pipeline,
    /// The target, or it was deleted and created again under its name.
    Target,
    /// The notification, or it was deleted and created again under its name.
    Notification,
}

impl Gone {
    /// The reason of a canceled delivery.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Pipeline => "PipelineGone",
            Self::Target => "TargetGone",
            Self::Notification => "NotificationGone",
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
        /// Human-readable and machine-readable.
        reason: &'static str,
        /// What the user can do about it.
        message: String,
        /// The retry settings that limit the wait. `None`: the user wants the delivery to wait, without a limit.
        until: Option<Retry>,
    },
    /// Never. `sure`: the objects themselves show that. Otherwise the object is only absent, and a live read must confirm that.
    Gone {
        /// What is gone.
        what: Gone,
        /// Whether no live read is needed.
        sure: bool,
    },
}

/// The decision for a delivery whose pipeline, target and notification exist.
pub(in crate::outbox) fn judge(notification: Arc<EffectiveNotification>, facts: Arc<PipelineFacts>) -> SendDecision {
    if notification.suspend {
        let message = "spec.suspend is true: deliveries are recorded and held".to_owned();
        return SendDecision::Wait { reason: "Suspended", message, until: None };
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
