//! Credentials by reference. Each reference contains the namespace of its Secret.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use url::Url;

use super::ClientAuthentication;
use crate::ObjectName;

/// Key of the user name in a Secret for HTTP Basic.
pub const USERNAME: &str = "username";
/// Key of the password in a Secret for HTTP Basic.
pub const PASSWORD: &str = "password";
/// Key of the token in a Secret for a forge.
pub const TOKEN: &str = "token";

/// Key of the private key in a Secret for a GitHub App.
pub const PRIVATE_APP_KEY: &str = "privateKey";
/// Key of the client's ID in a Secret for OAuth 2.0.
pub const CLIENT_ID: &str = "clientId";
/// Key of the client's secret in a Secret for OAuth 2.0.
pub const CLIENT_SECRET: &str = "clientSecret";

/// Annotation of a ServiceAccount: the only token endpoint for which a token of it is requested.
pub const TOKEN_URL: &str = concat!(group!(), "/token-url");
/// Annotation of a ServiceAccount: the only audience for which a token of it is requested.
pub const AUDIENCE: &str = concat!(group!(), "/audience");

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
        /// The key that contains the token.
        secret: SecretKey,
        /// The header.
        header: HeaderName,
        /// The word before the token, such as `Bearer`. Empty if there is none.
        scheme: String,
    },
    /// A token of a GitHub App.
    GithubApp(Arc<GithubAppRef>),
    /// A token of an OAuth 2.0 authorization server.
    OAuth2(Arc<OAuth2Ref>),
    /// The same, for a client without a secret.
    Workload(Arc<WorkloadRef>),
}

/// A GitHub App by reference, and what its tokens are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GithubAppRef {
    /// The Secret with ID and private key.
    pub secret: ObjectName,
    /// Globs of the repositories for which tokens are requested. Empty: all.
    pub repositories: Vec<String>,
    /// The permissions of a token. Empty: all that the installation has.
    pub permissions: BTreeMap<String, String>,
}

/// A client of an OAuth 2.0 authorization server by reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuth2Ref {
    /// The token endpoint.
    pub token_url: Url,
    /// The Secret with the client's ID and secret.
    pub secret: ObjectName,
    /// The scope to request.
    pub scope: Option<String>,
    /// Where ID and secret are in the request.
    pub client_authentication: ClientAuthentication,
    /// Further parameters of the form.
    pub parameters: BTreeMap<String, String>,
}

/// A client of an OAuth 2.0 authorization server that proves who it is with a token of a ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadRef {
    /// The token endpoint.
    pub token_url: Url,
    /// The ServiceAccount.
    pub account: ObjectName,
    /// The audience of its token.
    pub audience: String,
    /// The client's ID.
    pub client_id: Option<String>,
    /// The scope to request.
    pub scope: Option<String>,
    /// Further parameters of the form.
    pub parameters: BTreeMap<String, String>,
}

/// One key of a Secret. Shown as `namespace/name, key k`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretKey {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Key in the data of the Secret.
    pub key: String,
}

/// How requests are signed, with the keys by reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRef {
    /// The Secret with the keys.
    pub secret: ObjectName,
    /// What is signed, and in which header the signature is.
    pub form: SignatureForm,
}

/// What is signed, and in which header the signature is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignatureForm {
    /// As defined by Standard Webhooks.
    StandardWebhooks,
    /// The body, in this header, in hexadecimal digits.
    BodyHex(HeaderName),
}

/// Key of the certificate in a Secret of type `kubernetes.io/tls`
/// (<https://kubernetes.io/docs/concepts/configuration/secret/#tls-secrets>).
pub const CERTIFICATE: &str = "tls.crt";
/// Key of the private key that belongs to the certificate.
pub const PRIVATE_KEY: &str = "tls.key";

/// TLS settings of an endpoint, with Secrets by reference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsRef {
    /// The CA certificates to trust.
    pub authorities: Authorities,
    /// The Secret with the client certificate to send.
    pub client_certificate: Option<ObjectName>,
    /// Whether any server certificate is accepted.
    pub skip_verify: bool,
}

/// The CA certificates to trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authorities {
    /// The CA certificates of the system.
    #[default]
    System,
    /// These CA certificates, in PEM.
    Pem(Arc<str>),
    /// The CA certificates in the value of this key, in PEM.
    Secret(SecretKey),
}

/// What an endpoint needs from a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needed {
    /// The value of a key: the URL.
    Url(SecretKey),
    /// Credentials of the request.
    Auth(AuthRef),
    /// The values of all keys: headers of the request.
    Headers(ObjectName),
    /// The values of all keys. Each of them signs.
    SigningKeys(SigningRef),
    /// The value of a key: CA certificates in PEM.
    Authorities(SecretKey),
    /// A certificate and its private key.
    ClientCertificate(ObjectName),
}

impl Needed {
    /// Returns the Secret, if there is one.
    #[must_use]
    pub fn secret(&self) -> Option<ObjectName> {
        match self {
            Self::Url(key) | Self::Authorities(key) => Some(key.secret()),
            Self::Auth(auth) => auth.secret(),
            Self::SigningKeys(signing) => Some(signing.secret.clone()),
            Self::Headers(name) | Self::ClientCertificate(name) => Some(name.clone()),
        }
    }

    /// Returns the namespace that it is from.
    #[must_use]
    pub fn namespace(&self) -> Option<String> {
        let account = if let Self::Auth(auth) = self { auth.account() } else { None };
        account.cloned().or_else(|| self.secret()).map(|name| name.namespace)
    }
}

impl AuthRef {
    /// Returns the Secret with these credentials, if there is one.
    #[must_use]
    pub fn secret(&self) -> Option<ObjectName> {
        match self {
            Self::Basic { namespace, name } => Some(ObjectName::new(namespace, name)),
            Self::Token { secret, .. } => Some(secret.secret()),
            Self::GithubApp(app) => Some(app.secret.clone()),
            Self::OAuth2(client) => Some(client.secret.clone()),
            Self::Workload(_) => None,
        }
    }

    /// Returns the ServiceAccount whose token these credentials use.
    #[must_use]
    pub fn account(&self) -> Option<&ObjectName> {
        match self {
            Self::Workload(workload) => Some(&workload.account),
            Self::Basic { .. } | Self::Token { .. } | Self::GithubApp(_) | Self::OAuth2(_) => None,
        }
    }

    /// Returns the header that carries these credentials.
    #[must_use]
    pub fn header(&self) -> HeaderName {
        match self {
            Self::Token { header, .. } => header.clone(),
            Self::Basic { .. } | Self::GithubApp(_) | Self::OAuth2(_) | Self::Workload(_) => http::header::AUTHORIZATION,
        }
    }

    /// Returns the keys that these credentials need.
    #[must_use]
    pub fn keys(&self) -> Vec<SecretKey> {
        match self {
            Self::Basic { namespace, name } => [USERNAME, PASSWORD].map(|key| SecretKey::new(namespace, name, key)).to_vec(),
            Self::Token { secret, .. } => vec![secret.clone()],
            Self::GithubApp(app) => vec![SecretKey::new(&app.secret.namespace, &app.secret.name, PRIVATE_APP_KEY)],
            Self::OAuth2(client) => {
                let key = |key| SecretKey::new(&client.secret.namespace, &client.secret.name, key);
                [CLIENT_ID, CLIENT_SECRET].map(key).to_vec()
            }
            Self::Workload(_) => Vec::new(),
        }
    }
}

impl SecretKey {
    /// Creates a reference to one key of a Secret.
    #[must_use]
    pub fn new(namespace: &str, name: &str, key: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned() }
    }

    /// Returns the Secret that contains the key.
    #[must_use]
    pub fn secret(&self) -> ObjectName {
        ObjectName::new(&self.namespace, &self.name)
    }
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, key {}", self.namespace, self.name, self.key)
    }
}
