//! The result of one request. All of its text can be shown to every user.

pub(super) mod classify;
pub(super) mod failure;
pub(super) mod retry_after;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::addresses::rule::Rule;
use crate::request::outgoing::Learned;
use relaybook_api::notification::credentials::SecretKey;
use relaybook_api::values::refs::INBOUND;
use relaybook_api::{ObjectName, Time};
use relaybook_settings::answer::{Answer, Success, is_success};
use relaybook_settings::cel::Undecided;
use relaybook_telemetry::metrics::RequestClass;

/// One request, or the reason why none was sent.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The start of the attempt; also its `webhook-timestamp`.
    pub started: Time,
    /// The time from the start to the end of the answer, or to the end of the wait for an answer.
    pub duration: Duration,
    /// The result. If the attempt has several requests, it is that of the last one.
    pub result: AttemptResult,
    /// Which request this was. `None`: the one that creates or continues the message.
    pub step: Option<Step>,
    /// What the answer says about the message, if later requests can continue it.
    pub learned: Option<Learned>,
}

/// A request of an attempt that has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It looks for the parent of the message.
    Parent,
    /// It looks for a message that an earlier attempt has created.
    Search,
    /// It continues a message that was found.
    AfterSearch,
    /// It follows the request that has created the message.
    AfterCreation,
}

impl Step {
    const fn words(self) -> &'static str {
        match self {
            Self::Parent => "the search for the pull request",
            Self::Search => "the search for the message",
            Self::AfterSearch => "the update of the message that was found",
            Self::AfterCreation => "the update after the creation",
        }
    }
}

impl Attempt {
    /// Returns the error as one line, with the request that failed if there were several; or `None` after a success.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        let error = self.result.error()?;
        Some(self.step.map_or_else(|| error.clone(), |step| format!("{}: {error}", step.words())))
    }
}

/// The result of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The receiver answered. Unless `endpoint.success` reads the body, only the head of the answer decides: an incomplete or slow body changes
    /// nothing.
    Answered {
        /// HTTP status.
        status: u16,
        /// What `endpoint.success` says, if that differs from the status.
        judged: Option<Judged>,
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

/// What `endpoint.success` says about an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It counts as this HTTP status.
    As(u16),
    /// The expression could not be evaluated.
    Unreadable(Undecided),
    /// It lacks what the next request of the attempt needs.
    Useless(String),
    /// It says that there is no pull request for a comment. A forge can learn of a merge later, so it counts as 404.
    NoPullRequest,
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
    /// A server issued no token for the request.
    #[error("no token could be requested: {step}: {why}")]
    TokenRefused {
        /// What was requested.
        step: &'static str,
        /// The status of the answer, or what is wrong with it.
        why: String,
    },
    /// The server that issues tokens did not answer in time.
    #[error("no token could be requested: {0}: no answer in time")]
    TokenUnanswered(&'static str),
    /// The GitHub App is not installed for this repository.
    #[error("no token could be requested: the installation of the GitHub App: 404; install the app for {0}")]
    InstallationNotFound(String),
    /// The installation of the GitHub App does not have what the token needs.
    #[error(
        "no token could be requested: the token of the GitHub App: 422; give its installation access to {repository}, with {permissions}"
    )]
    PermissionMissing {
        /// The repository, as owner and name.
        repository: String,
        /// The permissions, with their levels.
        permissions: String,
    },
    /// The settings allow no token for this repository.
    #[error("{0} is not one of the repositories in endpoint.auth.githubApp.repositories")]
    RepositoryNotAllowed(String),
}

impl NotSent {
    /// Whether the server that issues tokens has refused one, or has not answered. Then it is not asked again at once.
    pub(crate) const fn is_of_issuer(&self) -> bool {
        matches!(
            self,
            Self::TokenRefused { .. }
                | Self::TokenUnanswered(_)
                | Self::InstallationNotFound(_)
                | Self::PermissionMissing { .. }
        )
    }

    /// Whether the delivery has waited for a server that did not answer.
    #[must_use]
    pub const fn is_silence(&self) -> bool {
        matches!(self, Self::TokenUnanswered(_))
    }
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

    /// Whether there was no answer in time.
    #[must_use]
    pub const fn is_timeout(self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::Timeout)
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

impl Judged {
    /// The status, if the expression could be evaluated.
    pub(crate) const fn status(&self) -> Option<u16> {
        match self {
            Self::As(status) => Some(*status),
            Self::Unreadable(_) | Self::Useless(_) => None,
            Self::NoPullRequest => Some(404),
        }
    }
}

impl AttemptResult {
    /// Returns the result for an answer without its text, and without Secrets that can have changed.
    #[must_use]
    pub fn of_answer(success: Option<&Success>, answer: &Answer<'_>) -> Self {
        let judged = judged(success, answer);
        let retry_after = requested(answer.status, judged.as_ref(), answer.headers);
        Self::Answered { status: answer.status, judged, retry_after, redirect: None, body: String::new(), rotated: false }
    }

    /// Returns the HTTP status of the answer, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::NotSent(_) | Self::Failed(_) => None,
        }
    }

    /// Returns the HTTP status as which the answer counts, if there was one and if it is known.
    #[must_use]
    pub fn counts_as(&self) -> Option<u16> {
        let Self::Answered { status, judged, .. } = self else { return None };
        judged.as_ref().map_or(Some(*status), Judged::status)
    }

    /// Returns the error as one line, such as `503 Service Unavailable`, or `None` after a success.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Answered { status, judged: Some(Judged::Unreadable(why)), .. } => {
                Some(format!("{}, but endpoint.success cannot be evaluated: {why}", line(*status)))
            }
            Self::Answered { status, judged: Some(Judged::NoPullRequest), .. } => Some(format!(
                "{}: no open or merged pull request has the commit, so there is nothing to comment on",
                line(*status)
            )),
            Self::Answered { status, judged: Some(Judged::Useless(why)), .. } => {
                Some(format!("{}, but {why}", line(*status)))
            }
            Self::Answered { status, judged: Some(Judged::As(counts)), .. } => {
                (!is_success(*counts)).then(|| format!("{}, which counts as {}", line(*status), line(*counts)))
            }
            Self::Answered { status, .. } if is_success(*status) => None,
            Self::Answered { status, redirect, retry_after, .. } => {
                let line = line(*status);
                Some(match redirect.as_deref() {
                    Some("") => format!("{line}: to another path of the receiver"),
                    Some(origin) => format!("{line}: to {origin}"),
                    // Otherwise a 403 reads like rejected credentials.
                    None if *status == 403 && retry_after.is_some() => {
                        format!("{line}: the receiver limits the rate of requests")
                    }
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
            Self::Answered { status, .. } => RequestClass::answered(self.counts_as().unwrap_or(*status)),
            Self::NotSent(_) => RequestClass::NotSent,
            Self::Failed(_) => RequestClass::Network,
        }
    }
}

/// Returns what the expression says about an answer, if that differs from its status.
pub(super) fn judged(success: Option<&Success>, answer: &Answer<'_>) -> Option<Judged> {
    match success?.status(answer) {
        Ok(status) if status == answer.status => None,
        Ok(status) => Some(Judged::As(status)),
        Err(why) => Some(Judged::Unreadable(why)),
    }
}

/// Returns how long the receiver requests to wait.
pub(super) fn requested(status: u16, judged: Option<&Judged>, headers: &HeaderMap) -> Option<Duration> {
    retry_after::requested(judged.and_then(Judged::status).unwrap_or(status), headers, relaybook_api::now())
}

/// Returns a status with its name, such as `503 Service Unavailable`.
fn line(status: u16) -> String {
    let words = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    words.map_or_else(|| status.to_string(), |words| format!("{status} {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_human_readable_line() {
        let key = SecretKey::new("team-a", "chat", "url");
        let with = |status, retry_after, redirect: Option<&str>| {
            let redirect = redirect.map(str::to_owned);
            AttemptResult::Answered { status, judged: None, retry_after, redirect, body: String::new(), rotated: false }
        };
        let answered = |status| with(status, None, None);
        let judged = |status, judged| match answered(status) {
            AttemptResult::Answered { status, retry_after, redirect, body, rotated, .. } => {
                AttemptResult::Answered { status, judged: Some(judged), retry_after, redirect, body, rotated }
            }
            other => other,
        };
        for (result, words) in [
            (answered(204), None),
            (answered(503), Some("503 Service Unavailable")),
            (answered(599), Some("599")),
            (answered(403), Some("403 Forbidden")),
            (with(403, Some(Duration::from_secs(3)), None), Some("403 Forbidden: the receiver limits the rate of requests")),
            (with(301, None, Some("https://a.net:99")), Some("301 Moved Permanently: to https://a.net:99")),
            (with(302, None, Some("")), Some("302 Found: to another path of the receiver")),
            (answered(304), Some("304 Not Modified")),
            (judged(200, Judged::As(429)), Some("200 OK, which counts as 429 Too Many Requests")),
            (judged(409, Judged::As(200)), None),
            (judged(200, Judged::Useless("it is no list".into())), Some("200 OK, but it is no list")),
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
