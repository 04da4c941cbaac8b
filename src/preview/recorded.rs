//! The request of a recorded delivery, and a test request to the real receiver.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use kube::Client;

use super::post::{Posted, told};
use super::request::{MASK, preview};
use super::{LayeredNotification, Preview, PreviewError};
use crate::api::notification::credentials::{Needed, SecretName};
use crate::api::values::permalink::{PageUrl, encoded};
use crate::api::{DeliverySpec, TransitionType, delivery, since_boot};
use crate::config::{Given, is_secret};
use crate::outbox::compose;
use crate::render::{Data, SampleContext, Texts};
use crate::telemetry::Metrics;
use crate::webhook::{Outgoing, Policy, Proxy, Secrets, Sender};

/// The header that marks a test.
const TEST: HeaderName = HeaderName::from_static("pennant-test");
/// Maximum time of a test.
const LONGEST: Duration = Duration::from_secs(20);

/// What a recorded delivery is rendered with, besides its transition.
#[derive(Clone, Debug)]
pub struct Recorded<'a> {
    /// The recorded transition.
    pub spec: &'a DeliverySpec,
    /// The namespace of the Delivery.
    pub namespace: &'a str,
    /// Number of earlier deliveries that it replaces.
    pub superseded: i64,
    /// The current labels of the pipeline.
    pub labels: Texts,
    /// Its current annotations.
    pub annotations: Texts,
    /// Name of the local cluster.
    pub cluster: &'a str,
    /// The URL of the audit page, for links.
    pub page_url: Option<&'a PageUrl>,
}

/// Returns the request of a recorded delivery, with the current settings, and with all possible credentials masked.
pub fn recorded(
    notification: &LayeredNotification,
    recorded: &Recorded<'_>,
    given: &Given<'_>,
) -> Result<Preview, PreviewError> {
    let wrong = |problem| PreviewError::Notification { name: notification.name.clone(), problem };
    let (sending, _) = notification.compiled(given).map_err(wrong)?;
    let spec = recorded.spec;
    let id = delivery::webhook_id(spec);
    let data = Data::new(&id, spec, &recorded.labels, &recorded.annotations, &notification.namespace);
    let data = data.with_context(spec, recorded.cluster);
    let data = data.with_links(recorded.page_url, recorded.namespace, &delivery::name(spec));
    let data = Data { superseded: recorded.superseded, ..data };
    let rendered = sending.render(&data).map_err(wrong)?;
    Ok(masked(preview(&notification.name, &sending, &rendered, &data), &rendered.credentials))
}

/// Masks the values of parameters that can be credentials, also as JSON and in a URL, and all headers whose
/// names are masked in the effective settings. A preview of a person's own masks fewer.
fn masked(preview: Preview, credentials: &[String]) -> Preview {
    let json = |text: &str| {
        let quoted = serde_json::Value::from(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let mut spellings: Vec<String> = credentials
        .iter()
        .flat_map(|value| [value.clone(), json(value), encoded(value)])
        .filter(|text| !text.is_empty())
        .collect();
    // The longest first, because one can contain another.
    spellings.sort_by_key(|text| std::cmp::Reverse(text.len()));
    let hide = |text: &str| spellings.iter().fold(text.to_owned(), |text, value| text.replace(value.as_str(), MASK));
    let headers = preview.headers.iter().map(|(name, value)| {
        let value = if is_secret(name) && !preview.masked.contains(name) { MASK.to_owned() } else { hide(value) };
        (name.clone(), value)
    });
    Preview { url: hide(&preview.url), body: hide(&preview.body), headers: headers.collect(), ..preview }
}

/// How a test is sent.
#[derive(Clone, Debug, Default)]
pub struct TestSender {
    /// Which destinations are allowed.
    pub policy: Policy,
    /// The proxy for all requests.
    pub proxy: Option<Proxy>,
}

impl TestSender {
    /// Sends to any address, without a proxy: for a person who decides about the network of the own machine.
    #[must_use]
    pub fn anywhere(allow_http: bool) -> Self {
        let allow = ["0.0.0.0/0", "::/0"].iter().filter_map(|net| net.parse().ok()).collect();
        Self { policy: Policy { allow, deny: Vec::new(), allow_http }, proxy: None }
    }
}

/// A sample for the real receiver of a notification, put together as that of a delivery.
pub struct TestRequest {
    outgoing: Outgoing,
    secrets: BTreeSet<SecretName>,
}

/// Renders a sample for the real receiver of a notification: `Deployed` if it reports that, otherwise the first transition that it reports.
pub fn test_request(
    notification: &LayeredNotification,
    given: &Given<'_>,
    context: &SampleContext,
) -> Result<TestRequest, PreviewError> {
    let wrong = |problem| PreviewError::Notification { name: notification.name.clone(), problem };
    let (sending, reported) = notification.compiled(given).map_err(wrong)?;
    let usual = TransitionType::Deployed;
    let type_ = if reported.contains(&usual) { usual } else { reported.first().copied().unwrap_or(usual) };
    let rendered = sending.render(&context.transition(type_)).map_err(wrong)?;
    let id = format!("msg_test_{:016x}", fastrand::u64(..));
    let composed = compose(&sending, rendered, &notification.namespace, id, Duration::ZERO);
    let invalid = |source| PreviewError::Request { name: notification.name.clone(), source };
    let mut outgoing = composed.map_err(invalid)?;
    outgoing.headers.push((TEST, HeaderValue::from_static("true")));
    outgoing.timeout = outgoing.timeout.min(LONGEST);
    Ok(TestRequest { outgoing, secrets: sending.secrets().iter().map(Needed::secret).collect() })
}

impl TestRequest {
    /// Sends it once, with a header that marks it as a test. The Secrets are read with the permissions of the client. Nothing is recorded.
    /// The result shows no credential.
    pub async fn send(self, client: &Client, by: &TestSender) -> Result<Posted, PreviewError> {
        let read = Secrets::read_once(client, self.secrets).await;
        let unread = |(name, error)| PreviewError::Read { what: format!("Secret {name}"), source: Box::new(error) };
        let sender = Sender::through(by.proxy.clone(), by.policy.clone(), read.map_err(unread)?, Metrics::new())?;
        let attempt = sender.send(Outgoing { until: since_boot() + LONGEST, ..self.outgoing }).await;
        Ok(told(&attempt))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn credentials_of_parameters_are_masked_in_each_spelling() {
        let headers = [("x-jwt", "abc"), ("x-team", "a \"quoted\" b"), ("authorization", "Bearer ***")];
        let preview = Preview {
            notification: "n".to_owned(),
            trigger: TransitionType::Deployed,
            method: "POST",
            url: "https://a.example/in?key=a%20%22quoted%22%20b".to_owned(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            masked: BTreeSet::from(["authorization".to_owned()]),
            body: r#"{"key": "a \"quoted\" b", "text": "harmless"}"#.to_owned(),
        };
        let shown = masked(preview, &["a \"quoted\" b".to_owned(), String::new()]);
        assert_eq!(shown.url, "https://a.example/in?key=***");
        assert_eq!(shown.body, r#"{"key": "***", "text": "harmless"}"#);
        let expected = [("x-jwt", "***"), ("x-team", "***"), ("authorization", "Bearer ***")];
        assert_eq!(shown.headers, BTreeMap::from(expected.map(|(name, value)| (name.to_owned(), value.to_owned()))));
    }
}
