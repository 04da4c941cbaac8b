//! The request to send, with credentials by reference.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use url::Url;

use crate::secrets::redact::Hidden;
use relaybook_api::ObjectName;
use relaybook_api::notification::Method;
use relaybook_api::notification::credentials::{AuthRef, SecretKey, SigningRef, TlsRef};
use relaybook_settings::answer::{Find, Lost, Remember, Success};
use relaybook_settings::config::{Lookup, NewPath, Problem};

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
    /// Whether the answer to a later request says that the message no longer exists. Then the first request is sent instead.
    pub lost: Lost,
    /// The request that continues the message of which something is remembered. `None`: there is no such message.
    pub later: Option<LaterRequest>,
    /// What more the attempt can need. `None`: it is complete with one of these two requests.
    pub more: Option<MoreRequests>,
}

/// The requests of an attempt for which only its own answers have the values.
#[derive(Clone)]
pub struct MoreRequests {
    /// Which item of an answer is the parent of the message, such as a pull request, and its number. `None`: the message has none.
    pub parent: Option<(Find, Remember)>,
    /// Which item of an answer is a message that an earlier attempt has created. `None`: it is not looked for.
    pub find: Option<Find>,
    /// The identity of the message.
    pub id: String,
    /// Whether the message is created once more if the list is too long, or if the message is lost.
    pub is_optional: bool,
    /// Whether the request that continues a message also follows the one that creates it.
    pub follows: bool,
    /// Renders the requests.
    pub render: Arc<dyn RenderMore>,
}

/// Renders requests with the values of answers of the same attempt.
pub trait RenderMore: Send + Sync {
    /// Where the parent is looked for. `None`: there is none.
    fn parent(&self) -> Result<Option<Lookup>, Problem>;
    /// Where the message is looked for. `number`: that of the parent. `None`: it is not looked for.
    fn search(&self, number: &BTreeMap<String, String>) -> Result<Option<Lookup>, Problem>;
    /// The request that creates the message at its parent.
    fn create(&self, number: &BTreeMap<String, String>) -> Result<LaterRequest, Problem>;
    /// The request that continues the message with these values.
    fn update(&self, values: &BTreeMap<String, String>) -> Result<LaterRequest, Problem>;
}

/// What a request that continues a message has instead of the parts of the first one.
#[derive(Clone)]
pub struct LaterRequest {
    /// The origin at which the message is, as in [`Learned::origin`]. `None`: that of this attempt. Nothing of this is sent to another one.
    pub origin: Option<String>,
    /// The method.
    pub method: Method,
    /// The path, relative to the URL of the first request.
    pub path: Option<NewPath>,
    /// The body.
    pub body: Bytes,
}

/// What an answer says about the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    /// A hash of the origin of the URL, or of the whole URL if it is from a Secret, and of the keys of Secrets with the credentials.
    pub origin: String,
    /// Whether the request continues the message of which something is remembered. Otherwise it has created or found a message.
    pub continues: bool,
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
