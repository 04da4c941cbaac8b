//! Tokens of an OAuth 2.0 authorization server, by client credentials (<https://www.rfc-editor.org/rfc/rfc6749#section-4.4>).
//!
//! In: the Secret of the client or a token of its ServiceAccount, and the settings. Out: the form that requests a token, and what its answer means.

use std::time::Duration;

use serde::Deserialize;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::{Issued, LONGEST_LIFE};
use crate::attempt::NotSent;
use crate::secrets::contents::Contents;
use relaybook_api::ObjectName;
use relaybook_api::notification::ClientAuthentication;
use relaybook_api::notification::credentials::{CLIENT_ID, CLIENT_SECRET, OAuth2Ref, SecretKey, WorkloadRef};

/// The lifetime of a token whose answer does not say it.
const USUAL: Duration = Duration::from_mins(5);
/// The step, for messages.
pub(crate) const STEP: &str = "the token of the authorization server";

/// The client at the authorization server.
pub(crate) struct Client<'c> {
    pub(crate) id: &'c str,
    pub(crate) secret: &'c str,
}

impl<'c> Client<'c> {
    /// Reads the client from its Secret.
    pub(crate) fn read(contents: &'c Contents, secret: &ObjectName) -> Result<Self, NotSent> {
        let text = |key| contents.text(&SecretKey::new(&secret.namespace, &secret.name, key));
        Ok(Self { id: text(CLIENT_ID)?, secret: text(CLIENT_SECRET)? })
    }

    /// User name and password of HTTP Basic. Both are encoded as in a form (RFC 6749, 2.3.1).
    pub(crate) fn basic(&self) -> (String, String) {
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect();
        (encoded(self.id), encoded(self.secret))
    }

    /// Returns the form.
    pub(crate) fn form(&self, settings: &OAuth2Ref) -> String {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if let Some(scope) = &settings.scope {
            form.append_pair("scope", scope);
        }
        if settings.client_authentication == ClientAuthentication::Body {
            form.append_pair("client_id", self.id).append_pair("client_secret", self.secret);
        }
        for (name, value) in &settings.parameters {
            form.append_pair(name, value);
        }
        form.finish()
    }
}

/// Returns the form of a client that proves who it is with a signed statement of another server
/// (<https://www.rfc-editor.org/rfc/rfc7523#section-2.2>).
pub(crate) fn workload_form(settings: &WorkloadRef, assertion: &str) -> String {
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if let Some(scope) = &settings.scope {
        form.append_pair("scope", scope);
    }
    if let Some(id) = &settings.client_id {
        form.append_pair("client_id", id);
    }
    form.append_pair("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    form.append_pair("client_assertion", assertion);
    for (name, value) in &settings.parameters {
        form.append_pair(name, value);
    }
    form.finish()
}

/// Reads the answer with a token.
pub(crate) fn issued(status: u16, body: &[u8]) -> Result<Issued, NotSent> {
    #[derive(Deserialize)]
    struct Answer {
        access_token: String,
        token_type: String,
        #[serde(default)]
        expires_in: Option<Seconds>,
    }
    /// Some servers send a number as a string.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Seconds {
        Number(u64),
        Text(String),
    }
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    let refused = |why: String| NotSent::TokenRefused { step: STEP, why };
    if status != 200 {
        let named = serde_json::from_slice::<Refusal>(body).ok().and_then(|refusal| known(&refusal.error));
        return Err(refused(named.map_or_else(|| status.to_string(), |error| format!("{status}, {error}"))));
    }
    let answer: Answer = serde_json::from_slice(body).map_err(|_| refused("the answer has no access_token".to_owned()))?;
    if !answer.token_type.eq_ignore_ascii_case("bearer") {
        return Err(refused("the token_type is not Bearer".to_owned()));
    }
    let lifetime = match answer.expires_in {
        None => Some(USUAL),
        Some(Seconds::Number(seconds)) => Some(Duration::from_secs(seconds)),
        Some(Seconds::Text(text)) => text.parse().ok().map(Duration::from_secs),
    };
    let lifetime = lifetime.ok_or_else(|| refused("expires_in is not a number".to_owned()))?.min(LONGEST_LIFE);
    if lifetime.is_zero() {
        return Err(refused("the token has expired".to_owned()));
    }
    let token =
        super::checked(answer.access_token).ok_or_else(|| refused("the token cannot be sent in a header".to_owned()))?;
    Ok(Issued { token, lifetime })
}

/// Returns an error of the specification (RFC 6749, 5.2). Any other text of the server is not shown.
fn known(error: &str) -> Option<&'static str> {
    let all = [
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
    ];
    all.into_iter().find(|known| *known == error)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_client_without_a_secret_sends_a_statement_of_another_server() {
        let workload = crate::tokens::account::tests::workload();
        let (kind, end) =
            ("client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer", "resource=r");
        let start = "grant_type=client_credentials&scope=a+b&client_id=7";
        assert_eq!(workload_form(&workload, "e.y.J"), format!("{start}&{kind}&client_assertion=e.y.J&{end}"));
        let least = WorkloadRef { scope: None, client_id: None, parameters: [].into(), ..workload };
        assert_eq!(workload_form(&least, "J"), format!("grant_type=client_credentials&{kind}&client_assertion=J"));
    }

    #[test]
    fn the_answer_of_an_authorization_server_is_a_token_or_a_refusal() {
        let long = "a".repeat(super::super::LONGEST + 1);
        let refused = |why: &str| Err(format!("no token could be requested: {STEP}: {why}"));
        for (status, body, expected) in [
            (200, json!({"access_token": "t", "token_type": "Bearer", "expires_in": 60}), Ok(60)),
            (200, json!({"access_token": "t", "token_type": "bearer"}), Ok(300)),
            (200, json!({"access_token": "t", "token_type": "Bearer", "expires_in": 9_999_999}), Ok(86_400)),
            (200, json!({"access_token": "t", "token_type": "Bearer", "expires_in": "60"}), Ok(60)),
            (
                200,
                json!({"access_token": "t", "token_type": "Bearer", "expires_in": "x"}),
                refused("expires_in is not a number"),
            ),
            (200, json!({"access_token": "t", "token_type": "Bearer", "expires_in": 0}), refused("the token has expired")),
            (200, json!({"access_token": "t", "token_type": "mac"}), refused("the token_type is not Bearer")),
            (200, json!({"access_token": "a\nb", "token_type": "Bearer"}), refused("the token cannot be sent in a header")),
            (200, json!({"access_token": long, "token_type": "Bearer"}), refused("the token cannot be sent in a header")),
            (200, json!({"error": "invalid_client"}), refused("the answer has no access_token")),
            (302, json!({}), refused("302")),
            (401, json!({"error": "invalid_client", "error_description": "s3cr3t"}), refused("401, invalid_client")),
            (400, json!({"error": "s3cr3t"}), refused("400")),
        ] {
            let issued = issued(status, body.to_string().as_bytes());
            let found = issued.map(|issued| {
                assert_eq!(issued.token.expose_secret(), "t");
                issued.lifetime.as_secs()
            });
            assert_eq!(found.map_err(|why| why.to_string()), expected, "{status}, {body}");
        }
    }
}
