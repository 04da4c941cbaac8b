//! The webhook side of a notification: where to send, and how.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::values::refs::{ConfigMapKeyRef, SecretKeyRef, SecretRef};

/// The webhook side: address, method, headers, credentials, time limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(has(self.url) && has(self.urlFrom))", "message": "set url or urlFrom, not both"},
]))]
pub struct Endpoint {
    /// The address. Scheme, host and port are literal; templates may stand in path and query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), extend("x-kubernetes-validations" = [
        {"rule": "self.startsWith('https://') || self.startsWith('http://')",
         "message": "must begin with https:// or http://"},
        {"rule": "!self.matches('^https?://[^/?#]*[{]{2}')",
         "message": "scheme, host and port must be literal; templates may stand in path and query only"},
        {"rule": "!self.matches('^https?://[^/?#]*@')",
         "message": "must not carry user info; put credentials into auth.basic or auth.token"},
        {"rule": "!self.matches('^https?://([/?#]|$)')", "message": "must name a host"},
    ]))]
    pub url: Option<String>,
    /// Where the address itself is a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_from: Option<UrlFrom>,
    /// HTTP method; default POST.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Request headers; the values are templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32, "x-kubernetes-map-type" = "atomic", "x-kubernetes-validations" = [
        {"rule": "self.all(k, k.matches('^[A-Za-z0-9-]{1,128}$'))",
         "message": "header names are letters, digits and dashes"},
        {"rule": "self.all(k, !(k.lowerAscii() in ['host', 'content-length', 'content-type', 'transfer-encoding', 'connection', 'keep-alive', 'te', 'trailer', 'upgrade', 'expect', 'proxy-authorization', 'proxy-connection', 'user-agent', 'webhook-id', 'webhook-timestamp', 'webhook-signature']))",
         "message": "host, content-length, content-type, user-agent, webhook-* and those of the connection (connection, transfer-encoding, upgrade, expect, proxy-authorization, …) are set by Pennant; the content type is that of the template"},
    ]), schema_with = "texts")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Credentials; at most one kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Signs each request by Standard Webhooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing: Option<Signing>,
    /// Certificates; default: the system's authorities are trusted, and no certificate is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// For the whole attempt, answer included; default 15s, at most 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = [
        {"rule": "self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('60s')",
         "message": "must be a duration from 100ms to 60s, such as 15s"},
    ]))]
    pub timeout: Option<String>,
    /// For making the connection; default 5s, at most 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = [
        {"rule": "self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('60s')",
         "message": "must be a duration from 100ms to 60s, such as 5s"},
    ]))]
    pub connect_timeout: Option<String>,
}

/// An address out of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UrlFrom {
    /// The key that holds the whole URL.
    pub secret_key_ref: SecretKeyRef,
}

/// HTTP methods that carry a body.
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

/// Whom a connection trusts, and who it says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(has(self.caFrom) && self.?insecureSkipVerify.orValue(false))",
     "message": "caFrom says whom to trust and insecureSkipVerify trusts everybody; set one of them"},
]))]
pub struct Tls {
    /// The authorities to trust, in the place of the system's: certificates in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_from: Option<CaFrom>,
    /// The certificate to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<ClientCertificate>,
    /// `true`: any certificate is taken, so anybody in between can read and change what is sent. Default `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}

/// Where the authorities stand.
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

/// A certificate of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientCertificate {
    /// The Secret with the keys `tls.crt` and `tls.key`, as those of type `kubernetes.io/tls` have.
    pub secret_ref: SecretRef,
}

/// A signature by Standard Webhooks (<https://www.standardwebhooks.com>).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Signing {
    /// The Secret with the keys, `whsec_` and 24 to 64 bytes in base64; every one of them signs, at most 16.
    pub secret_ref: SecretRef,
}

impl Method {
    const ALL: [Self; 3] = [Self::Post, Self::Put, Self::Patch];

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }
}

/// Credentials of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.basic) != has(self.token)", "message": "set exactly one of basic and token"},
]))]
pub struct Auth {
    /// HTTP Basic (RFC 7617) out of a Secret with the keys `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicAuth>,
    /// One header with a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenAuth>,
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
    /// The key that holds the token.
    pub secret_key_ref: SecretKeyRef,
    /// Header; default `Authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = r"^[A-Za-z0-9-]+$"))]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "!(self.lowerAscii() in ['host', 'content-length', 'content-type', 'transfer-encoding', 'connection', 'keep-alive', 'te', 'trailer', 'upgrade', 'expect', 'proxy-authorization', 'proxy-connection', 'user-agent', 'webhook-id', 'webhook-timestamp', 'webhook-signature'])",
         "message": "this header is set by Pennant or by the connection; name another, such as X-Token"},
    ]))]
    pub header: Option<String>,
    /// Word before the token; default `Bearer` in `Authorization`, none in any other header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^[A-Za-z0-9._~+/-]*$"))]
    pub scheme: Option<String>,
}

/// Values of at most 4096 characters by name.
pub(in crate::api) fn texts(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "nullable": true,
        "additionalProperties": {"type": "string", "maxLength": 4096},
    })
}
