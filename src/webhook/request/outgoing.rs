//! What is to be sent, with credentials by reference.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use url::Url;

use crate::api::notification::Method;
use crate::api::notification::credentials::{AuthRef, SecretKey, SecretName, TlsRef};
use crate::webhook::secrets::redact::Hidden;

/// One request as rendered; credentials by reference.
#[derive(Clone)]
pub struct Outgoing {
    /// Where to.
    pub destination: Destination,
    /// With which method.
    pub method: Method,
    /// Rendered headers, `content-type` among them; what is marked as sensitive is not told when a receiver repeats it. What the sender sets itself takes the place of one of the same name:
    /// `webhook-id`, `webhook-timestamp`, `webhook-signature`, `user-agent` and the header that carries the credentials.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: Bytes,
    /// `webhook-id`: the same for every attempt of a delivery.
    pub id: String,
    /// `traceparent`, where what is sent is traced. One that was rendered goes before it: whoever wrote that has a trace of their own.
    pub trace_parent: Option<HeaderValue>,
    /// Credentials to add.
    pub auth: Option<AuthRef>,
    /// The Secret whose keys sign.
    pub signing: Option<SecretName>,
    /// Whom to trust, and who we are.
    pub tls: TlsRef,
    /// For everything: waiting for a Secret, name, connection, request and answer.
    pub timeout: Duration,
    /// The end of that time, by [`crate::api::since_boot`]. Nothing is sent after it, also if the process is suspended meanwhile.
    pub until: Duration,
    /// For name, connection and TLS.
    pub connect_timeout: Duration,
    /// What is secret in body, URL and headers, beside what Secrets hold: a receiver that repeats it does not make it public.
    pub hidden: Hidden,
    /// Of the answer only the status and the length are kept, for the credentials are not of those who may read it.
    pub withhold_answer: bool,
}

/// Names only: URL and headers may hold what is secret.
impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Outgoing").field("id", &self.id).field("headers", &names).finish_non_exhaustive()
    }
}

/// Where a request goes.
#[derive(Clone, PartialEq, Eq)]
pub enum Destination {
    /// This URL.
    Url(Url),
    /// The URL that is the value of this key, taken literally; all of it is secret.
    Secret(SecretKey),
}

impl Destination {
    /// The key that holds the URL, if one does.
    #[must_use]
    pub fn secret(&self) -> Option<&SecretKey> {
        match self {
            Self::Url(_) => None,
            Self::Secret(key) => Some(key),
        }
    }
}
