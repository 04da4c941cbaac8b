//! The endpoint of a notification: where to send, and how.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::signing::Signing;
use crate::values::refs::{ConfigMapKeyRef, SecretKeyRef, SecretRef};

/// The endpoint: URL, method, headers, credentials, TLS and timeouts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(has(self.url) && has(self.urlFrom))", "message": "set url or urlFrom, not both"},
]))]
pub struct Endpoint {
    /// The URL. Scheme, host and port must be literal. Templates are allowed in path and query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), extend("x-kubernetes-validations" = [
        {"rule": "self.startsWith('https://') || self.startsWith('http://')",
         "message": "must begin with https:// or http://"},
        {"rule": "!self.matches('^https?://[^/?#]*[{]{2}')",
         "message": "scheme, host and port must be literal; templates are allowed only in path and query"},
        {"rule": "!self.matches('^https?://[^/?#]*@')",
         "message": "must not contain user info; put credentials into auth.basic or auth.token"},
        {"rule": "!self.matches('^https?://([/?#]|$)')", "message": "must name a host"},
    ]))]
    pub url: Option<String>,
    /// The URL from a Secret, if the URL itself is secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_from: Option<UrlFrom>,
    /// HTTP method; default POST.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Request headers. The values are templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32, "x-kubernetes-map-type" = "atomic", "x-kubernetes-validations" = [
        {"rule": "self.all(k, k.matches('^[A-Za-z0-9-]{1,128}$'))",
         "message": "header names consist of letters, digits and dashes"},
        {"rule": "self.all(k, !(k.lowerAscii() in ['host', 'content-length', 'content-type', 'transfer-encoding', 'connection', 'keep-alive', 'te', 'trailer', 'upgrade', 'expect', 'proxy-authorization', 'proxy-connection', 'user-agent', 'webhook-id', 'webhook-timestamp', 'webhook-signature']))",
         "message": "host, content-length, content-type, user-agent, webhook-* and headers of the connection (connection, transfer-encoding, upgrade, expect, proxy-authorization, …) are set by Relaybook; the template determines the content type"},
    ]), schema_with = "texts")]
    pub headers: Option<BTreeMap<String, String>>,
    /// More request headers, from a Secret. They replace those of `headers` with the same names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_from: Option<HeadersFrom>,
    /// Credentials, at most one kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Signs each request, by default as defined by Standard Webhooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing: Option<Signing>,
    /// TLS settings. By default, the CA certificates of the system are trusted, and no client certificate is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// A CEL expression over `status`, `headers`, `text` and `body` (JSON) of an answer. True means delivered, and a number is
    /// the HTTP status as which the answer counts. By default, the status decides, or the rule of the built-in template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub success: Option<String>,
    /// Continues one message over several deliveries, if the receiver can change a message or reply to it. By default, each delivery is a
    /// message of its own, or the built-in template decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Box<Thread>>,
    /// Time limit for the whole attempt, including the answer. Default 15s, at most 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = [
        {"rule": "self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('60s')",
         "message": "must be a duration from 100ms to 60s, such as 15s"},
    ]))]
    pub timeout: Option<String>,
    /// Time limit for establishing the connection. Default 5s, at most 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = [
        {"rule": "self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('60s')",
         "message": "must be a duration from 100ms to 60s, such as 5s"},
    ]))]
    pub connect_timeout: Option<String>,
}

/// One message for several deliveries about the same subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Thread {
    /// A template. Deliveries with the same result continue one message. If the result is empty, a delivery is a message of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub key: Option<String>,
    /// Values of the answer that the later requests need. By name, a CEL expression over `status`, `headers`, `text` and `body`. A template
    /// uses a value as `remembered.NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 8, "x-kubernetes-validations" = [
        {"rule": "self.all(k, k.matches('^[A-Za-z][A-Za-z0-9]{0,31}$'))",
         "message": "names consist of letters and digits and begin with a letter"},
    ]), schema_with = "expressions")]
    pub remember: Option<BTreeMap<String, String>>,
    /// How the later requests differ from the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<ThreadUpdate>,
    /// How long a message is continued, counted from its first delivery. Default 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = [
        {"rule": "self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",
         "message": "must be a duration from 1m to 168h, such as 24h"},
    ]))]
    pub max_age: Option<String>,
    /// `true`: a transition that ends a rollout, such as Deployed, does not end the message. Default `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_open: Option<bool>,
}

/// A request that continues a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(has(self.path) && has(self.append))", "message": "set path or append, not both"},
]))]
pub struct ThreadUpdate {
    /// HTTP method. Default: that of the first request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// A template. With a slash at the beginning, it replaces the path of the URL, without it, the last segment of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
    /// A template that is appended to the path of the URL. It begins with a slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub append: Option<String>,
    /// A CEL expression, like `success`. If it is true, the message no longer exists, and a new one is sent at once. Default: the status is
    /// 404 or 410.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub lost: Option<String>,
}

/// A URL from a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UrlFrom {
    /// The key that contains the whole URL.
    pub secret_key_ref: SecretKeyRef,
}

/// Headers from a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadersFrom {
    /// The Secret. Each key is the name of a header, at most 16, and its value is the value of the header, at most 8 KiB.
    pub secret_ref: SecretRef,
}

/// HTTP methods that have a request body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// POST
    #[default]
    Post,
    /// PUT
    Put,
    /// PATCH
    Patch,
}

/// Which certificates a connection trusts, and which client certificate it sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(has(self.caFrom) && self.?insecureSkipVerify.orValue(false))",
     "message": "caFrom sets the trusted CA certificates, insecureSkipVerify trusts every certificate; set only one of them"},
]))]
pub struct Tls {
    /// The CA certificates to trust instead of those of the system, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_from: Option<CaFrom>,
    /// The client certificate to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<ClientCertificate>,
    /// `true`: any server certificate is accepted, so anyone on the network path can read and change what is sent. Default `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}

/// The source of the CA certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.configMapKeyRef) != has(self.secretKeyRef)", "message": "set exactly one of configMapKeyRef and secretKeyRef"},
]))]
pub struct CaFrom {
    /// A key of a ConfigMap of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
    /// A key of a Secret of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
}

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientCertificate {
    /// The Secret with the keys `tls.crt` and `tls.key`, as in Secrets of type `kubernetes.io/tls`.
    pub secret_ref: SecretRef,
}

impl Method {
    const ALL: [Self; 3] = [Self::Post, Self::Put, Self::Patch];

    /// Returns the name, as it is written in the resource.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
        }
    }

    /// Returns the method with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }
}

/// Credentials of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "[has(self.basic), has(self.token), has(self.githubApp), has(self.oauth2)].filter(x, x).size() == 1",
     "message": "set exactly one of basic, token, githubApp and oauth2"},
]))]
pub struct Auth {
    /// HTTP Basic (RFC 7617), from a Secret with the keys `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicAuth>,
    /// One header with a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenAuth>,
    /// A token of a GitHub App, for the repository in the path of the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub github_app: Option<Box<GithubAppAuth>>,
    /// A token of an OAuth 2.0 authorization server, by client credentials (RFC 6749, 4.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth2: Option<Box<OAuth2Auth>>,
}

/// A GitHub App. Its tokens are for one repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GithubAppAuth {
    /// The Secret with the keys `clientId` or `appId`, `privateKey` (PEM), and optionally `installationId`. The key names of Flux work, too.
    pub secret_ref: SecretRef,
    /// Globs of repositories as `OWNER/NAME`, such as `acme/*`. No token is requested for another one. Default: all repositories of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)), extend("x-kubernetes-validations" = [
        {"rule": "self.all(r, r.matches('^[^/]+/[^/]+$'))", "message": "each one is a glob of OWNER/NAME, such as acme/*"},
    ]))]
    pub repositories: Option<Vec<String>>,
    /// The permissions of a token, by name: `read`, `write` or `admin`. Default: those that the built-in template needs, if the same namespace chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16, "x-kubernetes-validations" = [
        {"rule": "self.all(k, k.matches('^[a-z_]{1,64}$'))", "message": "names of permissions consist of small letters and underscores"},
    ]), schema_with = "levels")]
    pub permissions: Option<BTreeMap<String, String>>,
}

/// A client at an OAuth 2.0 authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.secretRef) != has(self.serviceAccount)", "message": "set exactly one of secretRef and serviceAccount"},
    {"rule": "!has(self.clientId) || has(self.serviceAccount)",
     "message": "clientId is only for serviceAccount; with secretRef, the ID is in the Secret"},
    {"rule": "!has(self.clientAuthentication) || has(self.secretRef)", "message": "clientAuthentication is only for secretRef"},
]))]
pub struct OAuth2Auth {
    /// URL of the token endpoint.
    #[schemars(length(min = 1, max = 2048), extend("x-kubernetes-validations" = [
        {"rule": "self.startsWith('https://') || self.startsWith('http://')",
         "message": "must begin with https:// or http://"},
        {"rule": "!self.contains('{{')", "message": "must be literal"},
    ]))]
    pub token_url: String,
    /// The Secret with the keys `clientId` and `clientSecret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// A ServiceAccount whose token proves who the client is, instead of a secret (RFC 7523).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ClientAccount>,
    /// The client's ID, for `serviceAccount`, if the authorization server requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub client_id: Option<String>,
    /// The scope to request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub scope: Option<String>,
    /// Where the client's ID and secret are in the request: in the header `Authorization` (`Basic`), or in the form (`Body`). Default `Basic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_authentication: Option<ClientAuthentication>,
    /// Further parameters of the form, such as `audience` or `resource`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 8, "x-kubernetes-validations" = [
        {"rule": "self.all(k, !(k in ['grant_type', 'scope', 'client_id', 'client_secret', 'client_assertion', 'client_assertion_type']))",
         "message": "grant_type, scope, client_id, client_secret and client_assertion are set by Relaybook"},
    ]), schema_with = "form")]
    pub parameters: Option<BTreeMap<String, String>>,
}

/// A ServiceAccount of this namespace. It must have the annotations `relaybook.dev/token-url` and `relaybook.dev/audience` with these values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientAccount {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// The only audience of its token, as the authorization server requires it.
    #[schemars(length(min = 1, max = 512), regex(pattern = "^[!-~]+$"))]
    pub audience: String,
}

/// Where the ID and the secret of an OAuth 2.0 client are in the request for a token (RFC 6749, 2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ClientAuthentication {
    /// HTTP Basic.
    #[default]
    Basic,
    /// The fields `client_id` and `client_secret` of the form.
    Body,
}

/// HTTP Basic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuth {
    /// The Secret with the keys `username` and `password`.
    pub secret_ref: SecretRef,
}

/// A token in a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenAuth {
    /// The key that contains the token.
    pub secret_key_ref: SecretKeyRef,
    /// Name of the header. Default `Authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = r"^[A-Za-z0-9-]+$"))]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "!(self.lowerAscii() in ['host', 'content-length', 'content-type', 'transfer-encoding', 'connection', 'keep-alive', 'te', 'trailer', 'upgrade', 'expect', 'proxy-authorization', 'proxy-connection', 'user-agent', 'webhook-id', 'webhook-timestamp', 'webhook-signature'])",
         "message": "Relaybook or the connection sets this header; use another name, such as X-Token"},
    ]))]
    pub header: Option<String>,
    /// Word before the token. Default `Bearer` in `Authorization`, none in any other header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^[A-Za-z0-9._~+/-]*$"))]
    pub scheme: Option<String>,
}

/// Returns the schema of a map from names to values of at most 4096 characters.
pub(crate) fn texts(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "nullable": true,
        "additionalProperties": {"type": "string", "maxLength": 4096},
    })
}

/// Returns the schema of permissions.
fn levels(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "nullable": true,
        "additionalProperties": {"type": "string", "enum": ["read", "write", "admin"]},
    })
}

/// Returns the schema of the parameters of a form.
fn form(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "nullable": true,
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 1024},
    })
}

/// Returns the schema of a map from names to expressions.
fn expressions(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "nullable": true,
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 1024},
    })
}
