//! Why a Delivery could not be created or written.
//!
//! In: errors of calls. Out: an error whose text contains no content of a request.

use thiserror::Error;

use relaybook_telemetry::chain;

/// Why a record could not be created or written.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The API server understood and refused the call: quota, admission, permissions. An immediate retry does not help.
    #[error("the API server rejects the delivery")]
    Refused(#[source] kube::Error),
    /// The result of the call is not known.
    #[error("the API server did not answer in time")]
    Timeout,
    /// Everything else: unreachable, overloaded, broken.
    #[error("the API server is unreachable")]
    Unavailable(#[source] kube::Error),
    /// The write was not made: the membership is too short for it, another term has begun, or the process stops.
    #[error("this replica may not write now: its Lease is too short, has another term, or the process stops")]
    NotHeld,
    /// The name is taken by another transition.
    #[error("a Delivery named {0} exists with other content")]
    Taken(String),
    /// The API server accepted the write, but did not store the status.
    #[error("the API server did not store the status; check that the installed CRDs are those of this version")]
    StatusDropped,
    /// The delivery was attempted, and its outcome could not be written yet. The engine repeats the write.
    #[error("the outcome of the delivery could not be written yet: {detail}")]
    OutcomePending {
        /// The human-readable message of the last write.
        detail: String,
        /// Whether the API server refused the write.
        is_refused: bool,
    },
}

impl JournalError {
    /// The human-readable message of the API server. It never contains any content of a request.
    #[must_use]
    pub fn detail(&self) -> String {
        match self {
            Self::Refused(kube::Error::Api(status)) | Self::Unavailable(kube::Error::Api(status)) => status.message.clone(),
            Self::OutcomePending { detail, .. } => detail.clone(),
            _ => chain(self),
        }
    }

    /// Whether the API server has refused the delivery, so that an immediate retry does not help.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Taken(_) => true,
            Self::OutcomePending { is_refused, .. } => *is_refused,
            Self::Timeout | Self::Unavailable(_) | Self::NotHeld | Self::StatusDropped => false,
        }
    }
}
