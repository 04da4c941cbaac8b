//! Hooks: signed requests with which other systems approve a promotion, or request a check of the promotions of a pipeline (a *look*).
//!
//! In: requests that [`crate::http`] has read; Pipelines and the Secrets with their keys, each by a watch. Out: an [`Answer`] for each
//! request; `spec.approved` or an annotation of a Promotion; an Event on the Pipeline if an approval failed.
//!
//! A request without a right signature never causes a call of the API server, and no answer shows which pipelines exist. A look decides
//! nothing: its body is only verified. An approval names the promotion that it approves, by name and uid. Each replica has this module, and
//! no Lease is needed, because all that it does is a write to the API server that tests what it replaces.

mod act;
mod approval;
mod directory;
mod follow;
mod limits;
mod look;
mod route;
mod seen;
mod service;

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;

pub use limits::Source;
pub use route::{Route, route};
pub use service::{Given, Service};

use relaybook_telemetry::metrics::HookResult;

/// Maximum number of bytes of a body.
pub const LONGEST_BODY: usize = 64 * 1024;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The promotion is approved, or was already.
    Approved,
    /// A check of the pipeline's open promotions is requested.
    Looked,
    /// There is no such pipeline, or the request is not signed with one of its keys. This answer has always the same bytes.
    Unauthorized,
    /// The promotion does not wait for an approval.
    Conflict(String),
    /// The request does not say what it must say.
    Invalid(String),
    /// The body is too long.
    TooLarge,
    /// The body arrived too slowly.
    TooSlow,
    /// There were too many requests; after this time there is room for the next one.
    TooMany(Duration),
    /// The API server did not accept the write, or the keys are not known yet.
    Unavailable(&'static str),
    /// No hook has this path.
    NotFound,
    /// A hook accepts only POST.
    NotAllowed,
}

impl Answer {
    /// Returns the status code.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Approved => StatusCode::NO_CONTENT,
            Self::Looked => StatusCode::ACCEPTED,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::NotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        }
    }

    /// Returns the text for the caller, without a line break at its end. Empty: there is none.
    #[must_use]
    pub fn text(&self) -> Cow<'static, str> {
        match self {
            Self::Approved | Self::Looked => "".into(),
            Self::Unauthorized => "unauthorized".into(),
            Self::Conflict(why) | Self::Invalid(why) => why.clone().into(),
            Self::TooLarge => "the body is longer than 64 KiB".into(),
            Self::TooSlow => "the body arrived too slowly".into(),
            Self::TooMany(_) => "too many requests".into(),
            Self::Unavailable(why) => (*why).into(),
            Self::NotFound => "no hook has this path".into(),
            Self::NotAllowed => "use POST".into(),
        }
    }

    /// Returns the number of seconds after which the request can be sent again, if it makes sense to send it again.
    #[must_use]
    pub const fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooMany(wait) => Some(wait.as_secs().saturating_add(1)),
            Self::Unavailable(_) => Some(5),
            _ => None,
        }
    }

    /// Returns the metric label of the answer. `None`: the request was for no hook.
    #[must_use]
    pub const fn result(&self) -> Option<HookResult> {
        match self {
            Self::Approved | Self::Looked => Some(HookResult::Accepted),
            Self::Unauthorized => Some(HookResult::Unauthorized),
            Self::Conflict(_) => Some(HookResult::Conflict),
            Self::Invalid(_) => Some(HookResult::Invalid),
            Self::TooLarge => Some(HookResult::TooLarge),
            Self::TooSlow => Some(HookResult::Timeout),
            Self::TooMany(_) => Some(HookResult::Limited),
            Self::Unavailable(_) => Some(HookResult::Unavailable),
            Self::NotFound | Self::NotAllowed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_status_codes_of_the_documentation() {
        for (answer, code, retry) in [
            (Answer::Approved, 204, None),
            (Answer::Looked, 202, None),
            (Answer::Unauthorized, 401, None),
            (Answer::Conflict("a".to_owned()), 409, None),
            (Answer::Invalid("a".to_owned()), 422, None),
            (Answer::TooLarge, 413, None),
            (Answer::TooSlow, 408, None),
            (Answer::TooMany(Duration::from_millis(1500)), 429, Some(2)),
            (Answer::Unavailable("a"), 503, Some(5)),
            (Answer::NotFound, 404, None),
            (Answer::NotAllowed, 405, None),
        ] {
            assert_eq!((answer.status().as_u16(), answer.retry_after()), (code, retry), "{answer:?}");
            assert_eq!(answer.text().is_empty(), code < 300, "{answer:?}");
            assert_eq!(answer.result().is_none(), matches!(code, 404 | 405), "{answer:?}");
        }
    }
}
