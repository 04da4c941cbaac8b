//! The result of one request. All of its text can be shown to every user.

pub(super) mod classify;
pub(super) mod failure;
pub(super) mod retry_after;
use std::time::Duration;

use http::StatusCode;

use crate::addresses::rule::Rule;
use relaybook_api::notification::credentials::SecretKey;
use relaybook_api::values::refs::INBOUND;
use relaybook_api::{ObjectName, Time};
use relaybook_telemetry::metrics::RequestClass;

/// One request, or the reason why none was sent.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The start of the attempt; also its `webhook-timestamp`.
    pub started: Time,
    /// The time from the start to the end of the answer, or to the end of the wait for an answer.
    pub duration: Duration,
    /// The result.
    pub result: AttemptResult,
}

/// The result of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The receiver answered. Only the head of the answer decides: an incomplete or slow body changes nothing.
    Answered {
        /// HTTP status.
        status: u16,
        /// How long to wait before the next request, counted from the answer of the receiver, which requested it. At most
        /// [`super::MAX_RETRY_AFTER`].
        retry_after: Option<Duration>,
        /// Scheme, host and port to which the receiver redirects, without the Secrets that were sent. Empty if it redirects within itself.
        redirect: Option<String>,
        /// First 256 bytes of the body: printable characters only, without the Secrets that were sent.
        body: String,
        /// Whether a Secret of this request has changed since.
        rotated: bool,
    },
    /// No request was made.
    NotSent(NotSent),
    /// There was no answer.
    Failed(Failure),
}

/// Why no request was made. Each error recovers automatically when its cause is fixed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The watch has not reported yet whether the Secret exists.
    #[error("Secret {0} has not been read yet")]
    SecretUnknown(ObjectName),
    /// Relaybook has no permission to read the Secret.
    #[error("Relaybook has no permission to read Secret {0}; grant it list and watch on this Secret")]
    SecretUnreadable(ObjectName),
    /// The Secret does not exist.
    #[error("Secret {0} does not exist")]
    SecretMissing(ObjectName),
    /// The type of the Secret reserves it for the keys of hooks.
    #[error("Secret {0} has the type {inbound}, which is only for the keys of hooks; use another Secret", inbound = INBOUND)]
    SecretReserved(ObjectName),
    /// The Secret has no such key.
    #[error("Secret {}/{} has no key {}", .0.namespace, .0.name, .0.key)]
    KeyMissing(SecretKey),
    /// The value cannot be used.
    #[error("Secret {key}: {problem}")]
    SecretInvalid {
        /// The Secret and the key of the value.
        key: SecretKey,
        /// What is wrong with the value.
        problem: &'static str,
    },
    /// The value has a character that it must not have. Editors do not show most of them.
    #[error("Secret {key}: character {at} is {what}; remove it")]
    SecretCharacter {
        /// The Secret and the key of the value.
        key: SecretKey,
        /// The position of the character. The first one is 1.
        at: usize,
        /// The kind of the character.
        what: &'static str,
    },
    /// The egress policy forbids the address.
    #[error("destination forbidden: {0}")]
    DestinationForbidden(Rule),
    /// `http` to a destination that requires `https`.
    #[error("http is allowed only to a cluster-local .svc name, or with --allow-http; use https")]
    InsecureScheme,
    /// The request is not valid in HTTP.
    #[error("invalid request: {0}")]
    InvalidRequest(&'static str),
}

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// The part of the request that failed.
    pub kind: FailureKind,
    /// One human-readable line of fixed text, with host and port only if they can be shown. It never contains the message of a library.
    pub text: String,
}

/// The part of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The name has no address, or the name server did not answer.
    Dns,
    /// No connection was established.
    Connect,
    /// No trusted connection was established.
    Tls,
    /// No connection was established in time.
    ConnectTimeout,
    /// No answer in time.
    Timeout,
    /// The connection ended without an answer.
    Closed,
}

impl FailureKind {
    /// Whether the receiver is unreachable: no connection was established, so the content of the request is not the cause.
    #[must_use]
    pub const fn is_unreachable(self) -> bool {
        matches!(self, Self::Dns | Self::Connect | Self::ConnectTimeout)
    }

    /// Returns the machine-readable name.
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
    /// Returns the HTTP status of the answer, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::NotSent(_) | Self::Failed(_) => None,
        }
    }

    /// Whether the receiver answered 403 because of a limit on the rate, and not because of the credentials.
    fn is_limited(&self) -> bool {
        matches!(self, Self::Answered { status: 403, retry_after: Some(_), .. })
    }

    /// Returns the error as one line, such as `503 Service Unavailable`, or `None` after a 2xx.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Answered { status: 200..=299, .. } => None,
            Self::Answered { status, redirect, .. } => {
                let words = StatusCode::from_u16(*status).ok().and_then(|s| s.canonical_reason());
                let line = words.map_or_else(|| status.to_string(), |words| format!("{status} {words}"));
                // Otherwise a 403 reads like rejected credentials.
                Some(match redirect.as_deref() {
                    Some("") => format!("{line}: to another path of the receiver"),
                    Some(origin) => format!("{line}: to {origin}"),
                    None if self.is_limited() => format!("{line}: the receiver limits the rate of requests"),
                    None => line,
                })
            }
            Self::NotSent(why) => Some(why.to_string()),
            Self::Failed(why) => Some(why.to_string()),
        }
    }

    /// Returns the metric label of the attempt.
    pub(super) fn class(&self) -> RequestClass {
        match self {
            Self::Answered { status, .. } => RequestClass::answered(*status),
            Self::NotSent(_) => RequestClass::NotSent,
            Self::Failed(_) => RequestClass::Network,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_human_readable_line() {
        let key = SecretKey::new("team-a", "chat", "url");
        let with = |status, retry_after, redirect: Option<&str>| {
            let redirect = redirect.map(str::to_owned);
            AttemptResult::Answered { status, retry_after, redirect, body: String::new(), rotated: false }
        };
        let answered = |status| with(status, None, None);
        for (result, words) in [
            (answered(204), None),
            (answered(503), Some("503 Service Unavailable")),
            (answered(599), Some("599")),
            (answered(403), Some("403 Forbidden")),
            (with(403, Some(Duration::from_secs(3)), None), Some("403 Forbidden: the receiver limits the rate of requests")),
            (with(301, None, Some("https://a.net:99")), Some("301 Moved Permanently: to https://a.net:99")),
            (with(302, None, Some("")), Some("302 Found: to another path of the receiver")),
            (answered(304), Some("304 Not Modified")),
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
