//! A request to a forge or its Git server, and its answer. The whole answer is needed, because it is data and not only a result.
//!
//! In: method, URL, headers and body, with the login by reference ([`ForgeRequest`]). Out: the complete [`Answer`], or the reason why there
//! is none ([`Unanswered`]). An incomplete answer is no answer. The body of an answer can contain the Secrets that were sent, so only
//! [`Answer::shown`] returns text for users.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::Url;

use crate::attempt::failure::NoAnswer;
use crate::attempt::{Failure, NotSent};
use crate::request::body::READ;
use crate::secrets::redact::{Beginning, Hidden};
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::TlsRef;
use relaybook_api::values::repository::Repository;

/// One request whose whole answer is needed, with credentials by reference.
#[derive(Clone)]
pub struct ForgeRequest {
    /// The URL. Messages can contain its host and port, so it must not come from a Secret.
    pub url: Url,
    /// `GET`, `POST`, `PATCH`, `PUT` or `DELETE`.
    pub method: Method,
    /// The headers. A value that is marked as sensitive is masked in the answer. The sender replaces headers that it sets itself, such as
    /// `user-agent` and the header of the login. It removes `accept-encoding`, because answers are not decompressed.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body. It can be empty.
    pub body: Bytes,
    /// The credentials to add.
    pub login: Option<Login>,
    /// The trusted CA certificates and the client certificate.
    pub tls: TlsRef,
    /// Timeout of the whole request: the wait for a Secret, name resolution, connection, request, and all of the answer.
    pub timeout: Duration,
    /// The end of that time, by [`relaybook_api::since_boot`]. Nothing is sent after it, even if the process was suspended in between.
    pub until: Duration,
    /// Timeout of name resolution, connection and TLS.
    pub connect_timeout: Duration,
    /// Maximum number of bytes in the body of the answer.
    pub limit: usize,
}

/// Credentials for a forge or its Git server, by reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// HTTP Basic (RFC 7617), which Git uses. The password is the value of the key `password`, or else of the key `token`.
    Git {
        /// The Secret.
        secret: ObjectName,
        /// The user name, if the Secret has no key `username`.
        user: &'static str,
        /// What the password is for, if the Secret contains a GitHub App. `None`: it is no Secret of an app.
        app: Option<Arc<AppScope>>,
    },
    /// One header with the value of the key `token`.
    Token {
        /// The Secret.
        secret: ObjectName,
        /// The header.
        header: HeaderName,
        /// The word before the token, such as `Bearer`. Empty if there is none.
        scheme: &'static str,
        /// What the token is for, if the Secret contains a GitHub App. `None`: it is no Secret of an app.
        app: Option<Arc<AppScope>>,
    },
}

/// What a token of a GitHub App is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppScope {
    /// The repository. The token is requested at its API.
    pub repository: Repository,
    /// The permissions of the token, by name.
    pub permissions: BTreeMap<String, String>,
}

/// The complete answer to a request. Each HTTP status is an answer, also of a redirect, which is never followed.
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body, as it was sent. It can contain the Secrets of the request.
    pub body: Bytes,
    hidden: Hidden,
}

/// Why there is no answer. Each text can be shown to every user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// No request was made.
    #[error(transparent)]
    NotSent(NotSent),
    /// There was no complete answer.
    #[error(transparent)]
    Failed(Failure),
    /// The body of the answer is larger than this number of bytes.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

impl Answer {
    pub(super) fn new(status: u16, headers: HeaderMap, body: Bytes, hidden: Hidden) -> Self {
        Self { status, headers, body, hidden }
    }

    /// Whether a text of the server contains a Secret that was sent, in any known encoding.
    #[must_use]
    pub fn repeats_secret(&self, text: &str) -> bool {
        self.hidden.is_in(text)
    }

    /// Returns the beginning of a text of the server for display, such as a field of the body or the value of a header. It has at most 256
    /// bytes, all of them printable, and the Secrets that were sent are masked.
    ///
    /// `text` must be complete: half of a Secret at its end is not recognised.
    #[must_use]
    pub fn shown(&self, text: &[u8]) -> String {
        let bytes = text[..text.len().min(READ)].to_vec();
        self.hidden.shown(&Beginning { cut: bytes.len() < text.len(), bytes })
    }
}

impl From<NoAnswer> for Unanswered {
    fn from(why: NoAnswer) -> Self {
        match why {
            NoAnswer::NotSent(why) => Self::NotSent(why),
            NoAnswer::Failed(why) => Self::Failed(why),
        }
    }
}

/// Shows only header names, because header values and the body can be secret.
impl fmt::Debug for ForgeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        let mut shown = f.debug_struct("ForgeRequest");
        shown.field("method", &self.method).field("host", &self.url.host_str()).field("headers", &names);
        shown.field("login", &self.login).finish_non_exhaustive()
    }
}

/// Shows only the length of the body and the header names, because the server can repeat Secrets.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.keys().collect();
        let mut shown = f.debug_struct("Answer");
        shown.field("status", &self.status).field("headers", &names).field("length", &self.body.len());
        shown.finish_non_exhaustive()
    }
}
