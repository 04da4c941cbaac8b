//! What is to be sent, with credentials by reference.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use url::Url;

use crate::api::notification::Method;

/// Keys of a Secret for HTTP Basic.
pub(super) const USERNAME: &str = "username";
pub(super) const PASSWORD: &str = "password";

/// One request as rendered; credentials by reference.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Where to.
    pub destination: Destination,
    /// With which method.
    pub method: Method,
    /// Rendered headers, `content-type` among them. What the sender sets itself takes the place of one of the same name:
    /// `webhook-id`, `webhook-timestamp`, `user-agent` and the header that carries the credentials.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: Bytes,
    /// `webhook-id`: the same for every attempt of a delivery.
    pub id: String,
    /// Credentials to add.
    pub auth: Option<AuthRef>,
    /// For everything: waiting for a Secret, name, connection, request and answer.
    pub timeout: Duration,
    /// For name, connection and TLS.
    pub connect_timeout: Duration,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// This URL.
    Url(Url),
    /// The URL that is the value of this key, taken literally; all of it is secret.
    Secret(SecretKey),
}

/// Credentials by reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthRef {
    /// HTTP Basic (RFC 7617) from the keys `username` and `password` of a Secret.
    Basic {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
    },
    /// One header with a token.
    Token {
        /// The key that holds it.
        secret: SecretKey,
        /// The header.
        header: HeaderName,
        /// The word before it, such as `Bearer`; empty for none.
        scheme: String,
    },
}

/// A Secret. Shown as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// One key of a Secret. Shown as `namespace/name, key k`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretKey {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Key within its data.
    pub key: String,
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

impl AuthRef {
    /// The keys that it needs.
    #[must_use]
    pub fn keys(&self) -> Vec<SecretKey> {
        match self {
            Self::Basic { namespace, name } => [USERNAME, PASSWORD].map(|key| SecretKey::new(namespace, name, key)).to_vec(),
            Self::Token { secret, .. } => vec![secret.clone()],
        }
    }
}

impl SecretKey {
    /// This key of that Secret.
    #[must_use]
    pub fn new(namespace: &str, name: &str, key: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned() }
    }

    /// The Secret that it is a key of.
    #[must_use]
    pub fn secret(&self) -> SecretName {
        SecretName { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, key {}", self.namespace, self.name, self.key)
    }
}
