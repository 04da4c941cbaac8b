//! Whether a delivery may be sent. Values only.
//!
//! In: what holds for it. Out: a [`SendDecision`], for whoever is about to send.

use std::sync::Arc;

use super::facts::PipelineFacts;
use crate::config::{EffectiveNotification, Retry};

/// What is missing for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The pipeline, or it was made again under its name.
    Pipeline,
    /// The target, or it was made again under its name.
    Target,
    /// The notification, or it was made again under its name.
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

/// Whether a delivery may be sent now.
#[derive(Clone, Debug)]
pub enum SendDecision {
    /// The watches have not brought everything yet.
    NotYet,
    /// Yes, so.
    Send(Arc<EffectiveNotification>, Arc<PipelineFacts>),
    /// Not as things are.
    Wait {
        /// For people and machines.
        reason: &'static str,
        /// What to do about it.
        message: String,
        /// For how long, if it is not a person's wish.
        until: Option<Retry>,
    },
    /// Never. `sure`: by what the objects say of themselves; else by absence, which a live read must confirm.
    Gone {
        /// What is.
        what: Gone,
        /// Whether no live read is needed.
        sure: bool,
    },
}

/// What is to be done with one whose pipeline, target and notification are there.
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
