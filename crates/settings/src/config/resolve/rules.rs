//! Checks every notification against the rules of the Notification schema, also after layers are merged. Pure.
//!
//! The schema of a pipeline has no such rules for its layers, because the layers are in lists of lists. The API server never validates the
//! merged result of several layers.

use std::time::Duration;

use super::defaults::duration;
use crate::config::problem::Problem;
use relaybook_api::notification::{DeliveryPolicy, Endpoint, OAuth2Auth, Signing, SigningScheme};
use relaybook_api::values::names::is_subdomain;
use relaybook_api::{NotificationSpec, duration_text};

/// Headers that Relaybook or the connection sets.
const RESERVED: [&str; 16] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-authorization",
    "proxy-connection",
    "user-agent",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
];
/// Fields of a request for a token that Relaybook sets.
const FORM: [&str; 6] = ["grant_type", "scope", "client_id", "client_secret", "client_assertion", "client_assertion_type"];
/// Maximum number of other fields.
const MOST_PARAMETERS: usize = 8;
const MILLIS_100: Duration = Duration::from_millis(100);

/// Checks a notification against the rules of the schema.
pub(crate) fn check(spec: &NotificationSpec) -> Result<(), Problem> {
    spec.endpoint.as_ref().map_or(Ok(()), endpoint)?;
    spec.delivery.as_ref().map_or(Ok(()), delivery)?;
    for name in spec.template.iter().flat_map(|t| t.parameters.iter().flatten()).map(|(name, _)| name) {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !letters || !name.starts_with(|c: char| c.is_ascii_alphabetic()) || name.len() > 63 {
            let message =
                "parameter names consist of letters, digits and underscores, and begin with a letter; at most 63 characters";
            return Err(Problem::invalid(format!("spec.template.parameters.{name}"), message));
        }
    }
    Ok(())
}

fn endpoint(endpoint: &Endpoint) -> Result<(), Problem> {
    for name in endpoint.headers.iter().flatten().map(|(name, _)| name) {
        let field = || format!("spec.endpoint.headers[{name}]");
        if name.is_empty() || name.len() > 128 || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(Problem::invalid(field(), "header names consist of letters, digits and dashes"));
        }
        if is_reserved(name) {
            return Err(Problem::invalid(field(), "Relaybook or the connection sets this header; remove it"));
        }
    }
    let header = endpoint.auth.as_ref().and_then(|a| a.token.as_ref()?.header.as_deref());
    if header.is_some_and(is_reserved) {
        let message = "Relaybook or the connection sets this header; use another name, such as X-Token";
        return Err(Problem::invalid("spec.endpoint.auth.token.header", message));
    }
    endpoint.signing.as_ref().map_or(Ok(()), signing)?;
    endpoint.auth.as_ref().and_then(|auth| auth.oauth2.as_ref()).map_or(Ok(()), |client| oauth2(client))?;
    let minute = Duration::from_mins(1);
    within("spec.endpoint.timeout", endpoint.timeout.as_deref(), MILLIS_100, minute)?;
    within("spec.endpoint.connectTimeout", endpoint.connect_timeout.as_deref(), MILLIS_100, minute)?;
    let thread = endpoint.thread.as_deref();
    for name in thread.iter().flat_map(|thread| thread.remember.iter().flatten()).map(|(name, _)| name) {
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_plain || !name.starts_with(|c: char| c.is_ascii_alphabetic()) || name.len() > 32 {
            let message = "names consist of letters and digits and begin with a letter; at most 32 characters";
            return Err(Problem::invalid(format!("spec.endpoint.thread.remember.{name}"), message));
        }
    }
    let max_age = thread.and_then(|thread| thread.max_age.as_deref());
    within("spec.endpoint.thread.maxAge", max_age, minute, Duration::from_hours(168))?;
    if endpoint.tls.as_ref().is_some_and(|t| t.ca_from.is_some() && t.insecure_skip_verify == Some(true)) {
        let message =
            "caFrom sets the trusted CA certificates, insecureSkipVerify trusts every certificate; set only one of them";
        return Err(Problem::invalid("spec.endpoint.tls", message));
    }
    Ok(())
}

fn oauth2(client: &OAuth2Auth) -> Result<(), Problem> {
    const FIELD: &str = "spec.endpoint.auth.oauth2.parameters";
    let of_client = |message| Err(Problem::invalid("spec.endpoint.auth.oauth2", message));
    match (&client.secret_ref, &client.service_account) {
        (Some(_), Some(_)) | (None, None) => return of_client("set exactly one of secretRef and serviceAccount"),
        (Some(_), None) if client.client_id.is_some() => {
            return of_client("clientId is only for serviceAccount; with secretRef, the ID is in the Secret");
        }
        (None, Some(_)) if client.client_authentication.is_some() => {
            return of_client("clientAuthentication is only for secretRef");
        }
        _ => {}
    }
    if client.service_account.as_ref().is_some_and(|account| !is_subdomain(&account.name)) {
        return Err(Problem::invalid(
            "spec.endpoint.auth.oauth2.serviceAccount.name",
            "is not the name of a ServiceAccount",
        ));
    }
    let Some(parameters) = &client.parameters else { return Ok(()) };
    if let Some(name) = parameters.keys().find(|name| FORM.contains(&name.as_str())) {
        let message = "grant_type, scope, client_id, client_secret and client_assertion are set by Relaybook";
        return Err(Problem::invalid(format!("{FIELD}.{name}"), message));
    }
    if parameters.len() > MOST_PARAMETERS {
        return Err(Problem::invalid(FIELD, format!("has more than {MOST_PARAMETERS} parameters")));
    }
    Ok(())
}

fn signing(signing: &Signing) -> Result<(), Problem> {
    const FIELD: &str = "spec.endpoint.signing.header";
    let Some(header) = &signing.header else { return Ok(()) };
    if signing.scheme != Some(SigningScheme::BodyHex) {
        let message = "is only for the scheme BodyHex; Standard Webhooks determines the header";
        return Err(Problem::invalid(FIELD, message));
    }
    if is_reserved(header) {
        let message = "Relaybook or the connection sets this header; use another name, such as X-Signature";
        return Err(Problem::invalid(FIELD, message));
    }
    Ok(())
}

fn is_reserved(header: &str) -> bool {
    RESERVED.iter().any(|reserved| header.eq_ignore_ascii_case(reserved))
}

fn delivery(delivery: &DeliveryPolicy) -> Result<(), Problem> {
    let (hour, retry, retain) = (Duration::from_hours(1), delivery.retry.as_ref(), delivery.retain.as_ref());
    let of = |part: Option<&str>| part.map(ToOwned::to_owned);
    for (field, given, least, most) in [
        ("retry.initial", retry.and_then(|r| of(r.initial.as_deref())), MILLIS_100, hour),
        ("retry.max", retry.and_then(|r| of(r.max.as_deref())), MILLIS_100, hour),
        ("retry.maxAge", retry.and_then(|r| of(r.max_age.as_deref())), Duration::from_secs(1), 720 * hour),
        ("retain.maxAge", retain.and_then(|r| of(r.max_age.as_deref())), Duration::from_mins(1), 8760 * hour),
    ] {
        within(&format!("spec.delivery.{field}"), given.as_deref(), least, most)?;
    }
    Ok(())
}

fn within(field: &str, given: Option<&str>, least: Duration, most: Duration) -> Result<(), Problem> {
    let found = duration(field, given, least)?;
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(Problem::invalid(field, format!("must be from {} to {}", duration_text(least), duration_text(most))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use relaybook_text::spelling;

    #[test]
    fn settings_that_the_schema_refuses_are_refused_in_layers_too() {
        for (spec, field) in [
            (json!({"endpoint": {"headers": {"Host": "a"}}}), "spec.endpoint.headers[Host]"),
            (json!({"endpoint": {"headers": {"a b": "a"}}}), "spec.endpoint.headers[a b]"),
            (
                json!({"endpoint": {"auth": {"token": {"secretKeyRef": {"name": "a", "key": "b"}, "header": "TE"}}}}),
                "spec.endpoint.auth.token.header",
            ),
            (
                json!({"endpoint": {"signing": {"secretRef": {"name": "a"}, "header": "X-A"}}}),
                "spec.endpoint.signing.header",
            ),
            (
                json!({"endpoint": {"signing": {"secretRef": {"name": "a"}, "scheme": "BodyHex", "header": "TE"}}}),
                "spec.endpoint.signing.header",
            ),
            (json!({"endpoint": {"timeout": "61s"}}), "spec.endpoint.timeout"),
            (json!({"endpoint": {"connectTimeout": "1ms"}}), "spec.endpoint.connectTimeout"),
            (json!({"endpoint": {"thread": {"maxAge": "169h"}}}), "spec.endpoint.thread.maxAge"),
            (json!({"endpoint": {"thread": {"remember": {"a.b": "status"}}}}), "spec.endpoint.thread.remember.a.b"),
            (
                json!({"endpoint": {"tls": {"insecureSkipVerify": true, "caFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}}}),
                "spec.endpoint.tls",
            ),
            (
                json!({"endpoint": {"auth": {"oauth2": {
                    "tokenUrl": "https://a.net", "secretRef": {"name": "a"}, "parameters": {"scope": "b"},
                }}}}),
                "spec.endpoint.auth.oauth2.parameters.scope",
            ),
            (json!({"delivery": {"retry": {"max": "2h"}}}), "spec.delivery.retry.max"),
            (json!({"delivery": {"retry": {"maxAge": "721h"}}}), "spec.delivery.retry.maxAge"),
            (json!({"delivery": {"retain": {"maxAge": "1s"}}}), "spec.delivery.retain.maxAge"),
            (json!({"template": {"parameters": {"1a": "x"}}}), "spec.template.parameters.1a"),
        ] {
            let spec: NotificationSpec = serde_json::from_value(spec).unwrap();
            let error = check(&spec).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{field}: ")), "{error}");
        }
        assert!(check(&NotificationSpec::default()).is_ok());
    }

    proptest! {
        /// Whatever the spelling, the header that is checked is the header that is sent.
        #[test]
        fn no_spelling_of_a_reserved_header_is_sent(name in spelling(&RESERVED)) {
            if let Ok(sent) = http::HeaderName::try_from(&name) {
                prop_assert!(is_reserved(&name) || !RESERVED.iter().any(|reserved| sent == *reserved), "{name:?}");
            }
        }
    }
}
