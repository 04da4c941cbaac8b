//! The request to send, with credentials by reference.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use url::Url;

use crate::secrets::redact::Hidden;
use relaybook_api::ObjectName;
use relaybook_api::notification::Method;
use relaybook_api::notification::credentials::{AuthRef, SecretKey, TlsRef};
use relaybook_settings::answer::Success;

/// One rendered request, with credentials by reference.
#[derive(Clone)]
pub struct Outgoing {
    /// The destination.
    pub destination: Destination,
    /// The method.
    pub method: Method,
    /// The rendered headers, including `content-type`. A value that is marked as sensitive is masked in the answer of the receiver. The
    /// sender replaces headers that it sets itself: `webhook-id`, `webhook-timestamp`, `webhook-signature`, `user-agent` and the header
    /// with the credentials.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: Bytes,
    /// `webhook-id`: the same for every attempt of a Delivery.
    pub id: String,
    /// `traceparent`, if the change is traced. A `traceparent` in `headers` takes precedence, because its author uses another trace.
    pub trace_parent: Option<HeaderValue>,
    /// Credentials to add.
    pub auth: Option<AuthRef>,
    /// The Secret with the signing keys.
    pub signing: Option<ObjectName>,
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
    /// Secret parts of body, URL and headers that do not come from Secrets. They are masked in the answer of the receiver.
    pub hidden: Hidden,
    /// Whether only the status and the length of the answer are kept, because people who can read it must not learn the credentials.
    pub withhold_answer: bool,
    /// Whether it is a test, which is not counted in metrics.
    pub is_test: bool,
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
