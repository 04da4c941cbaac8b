//! The request to send, with credentials by reference.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use url::Url;

use crate::secrets::redact::Hidden;
use relaybook_api::ObjectName;
use relaybook_api::notification::Method;
use relaybook_api::notification::credentials::{AuthRef, SecretKey, SigningRef, TlsRef};
use relaybook_settings::answer::{Lost, Remember, Success};
use relaybook_settings::config::NewPath;

/// One rendered request, with credentials by reference.
#[derive(Clone)]
pub struct Outgoing {
    /// The destination.
    pub destination: Destination,
    /// The method.
    pub method: Method,
    /// The rendered headers, including `content-type`. A value that is marked as sensitive is masked in the answer of the receiver. The
    /// sender replaces headers that it sets itself: `webhook-id`, `webhook-timestamp`, `user-agent`, and those with the signature and the
    /// credentials.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: Bytes,
    /// `webhook-id`: the same for every attempt of a Delivery.
    pub id: String,
    /// `traceparent`, if the change is traced. A `traceparent` in `headers` takes precedence, because its author uses another trace.
    pub trace_parent: Option<HeaderValue>,
    /// Credentials to add.
    pub auth: Option<AuthRef>,
    /// The Secret with more headers. They replace those of `headers` with the same names.
    pub headers_from: Option<ObjectName>,
    /// How the request is signed, with the keys by reference.
    pub signing: Option<SigningRef>,
    /// The trusted CA certificates and the client certificate.
    pub tls: TlsRef,
    /// Timeout of the whole attempt: the wait for a Secret, name resolution, connection, request and answer.
    pub timeout: Duration,
    /// The end of that time, by [`relaybook_api::since_boot`]. Nothing is sent after it, even if the process was suspended in between.
    pub until: Duration,
    /// Timeout of name resolution, connection and TLS.
    pub connect_timeout: Duration,
    /// What the answer means. `None`: its status decides.
    pub success: Option<Success>,
    /// How the request is a part of a message that later requests continue. `None`: it is a message of its own.
    pub thread: Option<ThreadRequest>,
    /// Secret parts of body, URL and headers that do not come from Secrets. They are masked in the answer of the receiver.
    pub hidden: Hidden,
    /// Whether only the status and the length of the answer are kept, because people who can read it must not learn the credentials.
    pub withhold_answer: bool,
    /// Whether it is a test, which is not counted in metrics.
    pub is_test: bool,
}

/// How a request is a part of a message that later requests continue.
#[derive(Clone)]
pub struct ThreadRequest {
    /// What is remembered of the answer.
    pub remember: Remember,
    /// The request that continues the message. `None`: there is no message yet.
    pub later: Option<LaterRequest>,
}

/// What a request that continues a message has instead of the parts of the first one.
#[derive(Clone)]
pub struct LaterRequest {
    /// The origin at which the message is, as in [`Learned::origin`]. Nothing of this is sent to another one.
    pub origin: String,
    /// The method.
    pub method: Method,
    /// The path, relative to the URL of the first request.
    pub path: Option<NewPath>,
    /// The body.
    pub body: Bytes,
    /// Whether the answer says that the message no longer exists. Then the first request is sent instead.
    pub lost: Lost,
}

/// What an answer says about the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    /// A hash of the origin of the URL, or of the whole URL if it is from a Secret, and of the keys of Secrets with the credentials.
    pub origin: String,
    /// Whether the request has continued the message. Otherwise it has created a message.
    pub is_later: bool,
    /// The remembered values of this answer, without Secrets.
    pub values: BTreeMap<String, String>,
}

/// Shows only header names, because the URL and header values can be secret.
impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Outgoing").field("id", &self.id).field("headers", &names).finish_non_exhaustive()
    }
}

/// The destination of a request.
#[derive(Clone, PartialEq, Eq)]
pub enum Destination {
    /// This URL.
    Url(Url),
    /// The value of this key is the URL. It is used literally, and all of it is secret.
    Secret(SecretKey),
}

impl Destination {
    /// Returns the URL, if it is literal, so that messages can contain its host and port.
    pub(crate) fn literal(&self) -> Option<&Url> {
        match self {
            Self::Url(url) => Some(url),
            Self::Secret(_) => None,
        }
    }

    /// Returns the key with the URL, if the URL comes from a Secret.
    #[must_use]
    pub fn secret(&self) -> Option<&SecretKey> {
        match self {
            Self::Url(_) => None,
            Self::Secret(key) => Some(key),
        }
    }
}
