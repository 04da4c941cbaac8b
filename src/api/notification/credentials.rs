//! Credentials by reference, once it is known in which namespace a reference resolves.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;

use crate::api::values::refs::ObjectName;

/// Keys of a Secret for HTTP Basic.
pub const USERNAME: &str = "username";
/// See [`USERNAME`].
pub const PASSWORD: &str = "password";

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

/// A Secret.
pub type SecretName = ObjectName;

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

/// Key of the certificate in a Secret of type `kubernetes.io/tls`
/// (<https://kubernetes.io/docs/concepts/configuration/secret/#tls-secrets>).
pub const CERTIFICATE: &str = "tls.crt";
/// Key of the private key that belongs to it.
pub const PRIVATE_KEY: &str = "tls.key";

/// TLS of an endpoint, with Secrets by reference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsRef {
    /// Whom to trust.
    pub authorities: Authorities,
    /// The Secret with the certificate to show.
    pub client_certificate: Option<SecretName>,
    /// Whether any certificate is taken.
    pub skip_verify: bool,
}

/// The authorities to trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authorities {
    /// Those of the system.
    #[default]
    System,
    /// These, PEM.
    Pem(Arc<str>),
    /// Those that are the value of this key, PEM.
    Secret(SecretKey),
}

/// What is needed of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needed {
    /// The value of a key.
    Key(SecretKey),
    /// The values of all keys, each of which signs.
    SigningKeys(SecretName),
    /// The value of a key, certificates in PEM.
    Authorities(SecretKey),
    /// A certificate and its private key.
    ClientCertificate(SecretName),
}

impl Needed {
    /// The Secret.
    #[must_use]
    pub fn secret(&self) -> SecretName {
        match self {
            Self::Key(key) | Self::Authorities(key) => key.secret(),
            Self::SigningKeys(name) | Self::ClientCertificate(name) => name.clone(),
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

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, key {}", self.namespace, self.name, self.key)
    }
}
