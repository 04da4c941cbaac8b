//! How requests are signed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::refs::SecretRef;

/// A signature of each request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.header) || self.?scheme.orValue('StandardWebhooks') == 'BodyHex'",
     "message": "header is only for the scheme BodyHex; Standard Webhooks determines the header"},
]))]
pub struct Signing {
    /// The Secret with the signing keys. `StandardWebhooks`: at most 16 keys, each `whsec_` and 24 to 64 bytes in base64; every key signs.
    /// `BodyHex`: exactly one key, any text of at most 1 KiB.
    pub secret_ref: SecretRef,
    /// What is signed, and how. Default `StandardWebhooks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<SigningScheme>,
    /// Name of the header for `BodyHex`. Default `X-Signature`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = r"^[A-Za-z0-9-]+$"))]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "!(self.lowerAscii() in ['host', 'content-length', 'content-type', 'transfer-encoding', 'connection', 'keep-alive', 'te', 'trailer', 'upgrade', 'expect', 'proxy-authorization', 'proxy-connection', 'user-agent', 'webhook-id', 'webhook-timestamp', 'webhook-signature'])",
         "message": "Relaybook or the connection sets this header; use another name, such as X-Signature"},
    ]))]
    pub header: Option<String>,
}

/// What a signature signs, and how it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SigningScheme {
    /// The header `webhook-signature` of Standard Webhooks (<https://www.standardwebhooks.com>): ID, timestamp and body.
    #[default]
    StandardWebhooks,
    /// A header with `sha256=` and the HMAC-SHA256 of the body in hexadecimal digits.
    BodyHex,
}
