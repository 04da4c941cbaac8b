//! What came of one request, in words that may be shown to anybody.

pub(super) mod classify;
pub(super) mod failure;
pub(super) mod retry_after;
use std::time::Duration;

use http::StatusCode;

use super::egress::rule::Rule;
use crate::api::Time;
use crate::api::notification::credentials::{SecretKey, SecretName};
use crate::telemetry::metrics::AttemptClass;

/// One request, or the reason why there was none.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// When it began; also its `webhook-timestamp`.
    pub started: Time,
    /// From then to the end of the answer, or of the waiting for one.
    pub duration: Duration,
    /// What came of it.
    pub result: AttemptResult,
}

/// What came of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The receiver answered. The head of the answer decides: a body that breaks off or drips changes nothing.
    Answered {
        /// HTTP status.
        status: u16,
        /// How long the receiver asks to be left alone, counted from its answer; at most [`super::MAX_RETRY_AFTER`].
        retry_after: Option<Duration>,
        /// First 256 bytes of the body: printable characters only, without the Secrets that were sent.
        body: String,
        /// Whether a Secret that this request was made with has changed since.
        rotated: bool,
    },
    /// No request was made.
    NotSent(NotSent),
    /// There was no answer.
    Failed(Failure),
}

/// Why no request was made. Each heals by itself when it is mended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The watch has not told yet whether there is such a Secret.
    #[error("Secret {0} has not been read yet")]
    SecretUnknown(SecretName),
    /// Pennant may not read it.
    #[error("Secret {0} may not be read; give Pennant list and watch on it")]
    SecretUnreadable(SecretName),
    /// There is no such Secret.
    #[error("Secret {0} does not exist")]
    SecretMissing(SecretName),
    /// The Secret has no such key.
    #[error("Secret {}/{} has no key {}", .0.namespace, .0.name, .0.key)]
    KeyMissing(SecretKey),
    /// The value cannot be used.
    #[error("Secret {key}: {problem}")]
    SecretInvalid {
        /// Where it stands.
        key: SecretKey,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The egress policy forbids the address.
    #[error("destination forbidden: {0}")]
    DestinationForbidden(Rule),
    /// `http` to somewhere that only `https` may go to.
    #[error("http is allowed only to a cluster-local .svc name, or with --allow-http; use https")]
    InsecureScheme,
    /// The request cannot be written down in HTTP.
    #[error("invalid request: {0}")]
    InvalidRequest(&'static str),
}

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// In which part it failed.
    pub kind: FailureKind,
    /// One line for people. Made of fixed words, never of a library's message.
    pub text: String,
}

/// In which part a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The name has no address, or the name server does not say.
    Dns,
    /// No connection.
    Connect,
    /// No trusted connection.
    Tls,
    /// No connection in time.
    ConnectTimeout,
    /// No answer in time.
    Timeout,
    /// The connection ended without an answer.
    Closed,
}

impl FailureKind {
    /// Whether there was not even a connection, whatever the request.
    #[must_use]
    pub const fn is_unreachable(self) -> bool {
        matches!(self, Self::Dns | Self::Connect | Self::ConnectTimeout)
    }

    /// One word for machines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::ConnectTimeout => "connect_timeout",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
        }
    }
}

impl AttemptResult {
    /// HTTP status of the answer, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::NotSent(_) | Self::Failed(_) => None,
        }
    }

    /// What was wrong, in one line, such as `503 Service Unavailable`; nothing after a 2xx.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Answered { status: 200..=299, .. } => None,
            Self::Answered { status, .. } => {
                let words = StatusCode::from_u16(*status).ok().and_then(|s| s.canonical_reason());
                Some(words.map_or_else(|| status.to_string(), |words| format!("{status} {words}")))
            }
            Self::NotSent(why) => Some(why.to_string()),
            Self::Failed(why) => Some(why.to_string()),
        }
    }

    /// Under which label it is counted.
    pub(super) fn class(&self) -> AttemptClass {
        match self {
            Self::Answered { status: 200..=299, .. } => AttemptClass::Success,
            Self::Answered { status: 300..=399, .. } => AttemptClass::Redirect,
            Self::Answered { status: 400..=499, .. } => AttemptClass::Refused,
            Self::Answered { .. } => AttemptClass::ServerError,
            Self::NotSent(_) => AttemptClass::NotSent,
            Self::Failed(_) => AttemptClass::Network,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_one_line_for_people() {
        let key = SecretKey::new("team-a", "chat", "url");
        let answered = |status| AttemptResult::Answered { status, retry_after: None, body: String::new(), rotated: false };
        for (result, words) in [
            (answered(204), None),
            (answered(503), Some("503 Service Unavailable")),
            (answered(599), Some("599")),
            (AttemptResult::NotSent(NotSent::KeyMissing(key.clone())), Some("Secret team-a/chat has no key url")),
            (
                AttemptResult::NotSent(NotSent::SecretInvalid { key, problem: "is empty" }),
                Some("Secret team-a/chat, key url: is empty"),
            ),
            (
                AttemptResult::Failed(Failure { kind: FailureKind::Tls, text: "certificate has expired".into() }),
                Some("certificate has expired"),
            ),
        ] {
            assert_eq!(result.error().as_deref(), words);
        }
    }
}
