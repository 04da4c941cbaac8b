//! Sends a preview to the user's own receiver.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use url::Url;

use super::{Preview, PreviewError};
use relaybook_api::notification::Method;
use relaybook_api::notification::credentials::TlsRef;
use relaybook_api::since_boot;
use relaybook_egress::{Attempt, Destination, Hidden, Outgoing, Policy, Secrets, Sender};
use relaybook_telemetry::Metrics;

const TIMEOUT: Duration = Duration::from_secs(15);

/// Result of sending a preview.
#[derive(Clone, Debug)]
pub struct Posted {
    /// Whether the receiver accepted the request.
    pub accepted: bool,
    /// Human-readable result in one line.
    pub words: String,
}

/// Sends a preview to this URL instead of the URL of the notification. The user who sets the URL is responsible for it, so any address is
/// allowed. Headers that can be credentials are not sent, and the result names them.
pub async fn post(preview: &Preview, url: &Url) -> Result<Posted, PreviewError> {
    let anywhere = ["0.0.0.0/0", "::/0"].iter().filter_map(|net| net.parse().ok()).collect();
    let policy = Policy { allow: anywhere, deny: Vec::new(), allow_http: true };
    let sender = Sender::new(policy, Secrets::fixed([]), Metrics::new())?;
    let headers = preview.headers.iter().filter(|(name, _)| !preview.masked.contains(*name));
    let attempt = sender
        .send(Outgoing {
            destination: Destination::Url(url.clone()),
            method: Method::named(preview.method).unwrap_or_default(),
            headers: headers.filter_map(|(name, value)| Some((name.parse::<HeaderName>().ok()?, line(value)?))).collect(),
            body: Bytes::from(preview.body.clone()),
            id: preview.headers.get("webhook-id").cloned().unwrap_or_default(),
            trace_parent: None,
            auth: None,
            headers_from: None,
            signing: None,
            tls: TlsRef::default(),
            timeout: TIMEOUT,
            until: since_boot() + TIMEOUT,
            connect_timeout: TIMEOUT,
            success: preview.success.clone(),
            thread: None,
            hidden: Hidden::default(),
            withhold_answer: false,
            is_test: false,
        })
        .await;
    let told = told(&attempt);
    Ok(Posted { words: format!("{}{}", told.words, withheld(&preview.masked)), ..told })
}

fn line(value: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(value).ok()
}

/// Returns the addition to the result if headers were not sent.
fn withheld(masked: &BTreeSet<String>) -> String {
    if masked.is_empty() {
        return String::new();
    }
    let names = masked.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    format!("; not sent, because they can be credentials: {names}")
}

pub(super) fn told(attempt: &Attempt) -> Posted {
    let took = format!("after {} ms", attempt.duration.as_millis());
    match (&attempt.result, attempt.result.error()) {
        (relaybook_egress::AttemptResult::Answered { status, body, .. }, error) => {
            let said = if body.is_empty() { String::new() } else { format!(": {body}") };
            Posted {
                accepted: error.is_none(),
                words: format!("{} {took}{said}", error.unwrap_or_else(|| status.to_string())),
            }
        }
        (_, error) => Posted { accepted: false, words: format!("{} {took}", error.unwrap_or_default()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_not_sent_are_named() {
        assert_eq!(withheld(&BTreeSet::new()), "");
        let masked = BTreeSet::from(["idempotency-key", "authorization"].map(str::to_owned));
        assert_eq!(withheld(&masked), "; not sent, because they can be credentials: authorization, idempotency-key");
    }
}
