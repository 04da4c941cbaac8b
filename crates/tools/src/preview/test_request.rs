//! A test: a sample for the real receiver of a notification, which people confirm first, and which changes nothing.

mod effect;
mod sample;

use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use kube::{Client, ResourceExt as _};
use url::Url;

use super::post::{Posted, told};
use super::recorded::masked;
use super::request::preview;
use super::{Preview, PreviewError};
use effect::{Change, HEADLINE, MARK, alike};
use relaybook_api::notification::credentials::Needed;
use relaybook_api::{ObjectName, Pipeline, TransitionType, since_boot};
use relaybook_egress::compose;
use relaybook_egress::{Outgoing, Policy, Proxy, Secrets, Sender};
use relaybook_settings::config::Given;
use relaybook_settings::render::Data;
use relaybook_telemetry::Metrics;

pub use effect::Marked;
pub use sample::{TestSample, test_sample};

/// The header that marks a test.
const TEST: HeaderName = HeaderName::from_static("relaybook-test");
/// Maximum time of a test.
const LONGEST: Duration = Duration::from_secs(20);

/// Why no test is sent.
#[derive(Debug, thiserror::Error)]
pub enum TestRefusal {
    /// The notification applies to no target.
    #[error("{0} applies to no target of Pipeline {pipeline}; check its pipelineSelector and its layers", pipeline = .0.pipeline())]
    Nowhere(Named),
    /// No trigger matches.
    #[error(
        "no trigger of {0} matches a sample for Pipeline {pipeline}; check the types, environments, clusters and conditions (`when`) of its triggers",
        pipeline = .0.pipeline()
    )]
    NoTrigger(Named),
    /// The receiver can act on promotions.
    #[error("{0} reports {type_}, and its receiver can act on promotions; {remedy}", type_ = .1.as_str(), remedy = .0.remedy())]
    Promotion(Named, TransitionType),
    /// The receiver of its template does something.
    #[error("{0} uses {1}, so a test would {2}; {remedy}", remedy = .0.remedy())]
    Builtin(Named, &'static str, &'static str),
    /// The receiver seems to be that of a built-in template, and does something.
    #[error("the URL of {0} is like that of {1}, so a test would {2}; {remedy}", remedy = .0.remedy())]
    Alike(Named, &'static str, &'static str),
}

impl TestRefusal {
    fn new(change: Change, named: Named) -> Self {
        match change {
            Change::Promotion(type_) => Self::Promotion(named, type_),
            Change::Builtin(name, what) => Self::Builtin(named, name.as_str(), what),
        }
    }
}

/// The notification and the pipeline of a test, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    notification: String,
    namespace: String,
    pipeline: String,
}

impl Named {
    fn new(notification: &str, pipeline: &Pipeline) -> Self {
        let namespace = pipeline.namespace().unwrap_or_default();
        Self { notification: notification.to_owned(), namespace, pipeline: pipeline.name_any() }
    }

    fn pipeline(&self) -> String {
        format!("{}/{}", self.namespace, self.pipeline)
    }

    fn remedy(&self) -> String {
        let Self { notification, namespace, pipeline } = self;
        let command = format!("`relaybook render {notification} -n {namespace} --pipeline {pipeline}`");
        format!("{command} shows the request, and with `--send-to URL` sends it to a receiver of your own")
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Notification {}", self.notification)
    }
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

/// The request of a test, put together as that of a delivery.
pub struct TestRequest {
    /// The name of the subject of the sample.
    pub about: String,
    /// How the receiver can see that it is a test.
    pub marked: Marked,
    /// The request, with possible credentials masked.
    pub preview: Preview,
    named: Named,
    outgoing: Outgoing,
    secrets: BTreeSet<ObjectName>,
}

/// Renders the request of a test.
pub fn test_request(sample: &TestSample, given: &Given<'_>) -> Result<TestRequest, PreviewError> {
    let TestSample { notification, named, data, marked } = sample;
    let name = &notification.name;
    let wrong = |problem| PreviewError::Notification { name: name.clone(), problem };
    let (mut sending, _) = notification.compiled(given).map_err(wrong)?;
    if matches!(marked, Marked::Text(_)) {
        sending.parameters = sending.parameters.clone().with_prefix(HEADLINE, MARK);
    }
    // A receiver that knows the ID of an earlier test would drop this one.
    let id = format!("msg_test_{:016x}", fastrand::u64(..));
    let data = Data { id: id.clone(), ..data.clone() };
    let rendered = sending.render(&data).map_err(wrong)?;
    let mut shown = masked(preview(name, &sending, &rendered, &data), &rendered.credentials);
    let invalid = |source| PreviewError::Request { name: name.clone(), source };
    let mut outgoing = compose(&sending, rendered, &notification.namespace, id, Duration::ZERO).map_err(invalid)?;
    shown.headers.insert(TEST.as_str().to_owned(), "true".to_owned());
    outgoing.headers.retain(|(name, _)| *name != TEST);
    outgoing.headers.push((TEST, HeaderValue::from_static("true")));
    outgoing.timeout = outgoing.timeout.min(LONGEST);
    let secrets = sending.secrets().iter().map(Needed::secret).collect();
    Ok(TestRequest { about: data.subject.name, marked: *marked, preview: shown, named: named.clone(), outgoing, secrets })
}

impl TestRequest {
    /// Reads the Secrets with the permissions of the client, and looks where the request goes. Nothing is sent.
    pub async fn addressed(self, client: &Client, by: &TestSender) -> Result<AddressedTest, PreviewError> {
        let read = Secrets::read_once(client, self.secrets.clone()).await;
        let unread = |(name, error)| PreviewError::Read { what: format!("Secret {name}"), source: Box::new(error) };
        let sender = Sender::through(by.proxy.clone(), by.policy.clone(), read.map_err(unread)?, Metrics::new())?;
        let looked = sender.with_url(&self.outgoing.destination, |url| self.receiver(url));
        let unknown = |source| PreviewError::Address { name: self.preview.notification.clone(), source };
        let receiver = looked.map_err(unknown)??;
        Ok(AddressedTest { request: self, receiver, sender })
    }

    /// Returns the receiver at a URL: its scheme, host and port. The rest of a URL can be secret.
    fn receiver(&self, url: &Url) -> Result<String, TestRefusal> {
        match alike(url) {
            Some((name, what)) => Err(TestRefusal::Alike(self.named.clone(), name.as_str(), what)),
            None => Ok(url.origin().ascii_serialization()),
        }
    }
}

/// A test whose receiver is known.
pub struct AddressedTest {
    /// The request.
    pub request: TestRequest,
    /// The receiver, without path and query.
    pub receiver: String,
    sender: Sender,
}

impl AddressedTest {
    /// Sends it once, with a header that marks it as a test. Nothing is recorded. The result shows no credential.
    pub async fn send(self) -> Posted {
        let outgoing = Outgoing { until: since_boot() + LONGEST, ..self.request.outgoing };
        told(&self.sender.send(outgoing).await)
    }
}

#[cfg(test)]
mod tests;
