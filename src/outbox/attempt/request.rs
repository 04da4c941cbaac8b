//! Builds a request from a recorded transition. Pure. The request is rendered for every attempt, so that it uses the current configuration.
//! If the configuration is unchanged, so are the bytes.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use thiserror::Error;

use crate::outbox::record::{Record, webhook_id};
use crate::outbox::send_gate::index::PipelineFacts;
use crate::webhook::{self, Hidden, Outgoing};
use relaybook_api::Outcome;
use relaybook_api::values::permalink::PageUrl;
use relaybook_settings::config::{Address, Problem, Rendered, Sending, is_secret};
use relaybook_settings::render::Data;

/// Why no request could be built for a delivery.
#[derive(Debug, Error)]
pub enum RequestError {
    /// A template fails with these values, although it did not fail with the sample values.
    #[error(transparent)]
    Render(#[from] Problem),
    /// A header cannot be sent.
    #[error("header {0} is not a valid header")]
    Header(HeaderName),
}

impl RequestError {
    /// Returns the reason for the status of the delivery.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Render(problem) => problem.reason(),
            Self::Header(_) => "TemplateInvalid",
        }
    }

    /// Returns the outcome of the delivery, if the recorded data always cause this error, so that a retry does not help. Without a commit
    /// there is nothing to report. This is no failure, so the delivery is not parked.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Render(problem) if problem.is_without_commit() => Some(Outcome::Canceled),
            Self::Render(problem) => problem.is_final().then_some(Outcome::Parked),
            // The values were checked when they were rendered. The rest of a header is configuration, which a user can fix.
            Self::Header(_) => None,
        }
    }
}

/// What a request is rendered with, besides its record.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The pipeline.
    pub facts: &'a PipelineFacts,
    /// The name of the local cluster.
    pub cluster: &'a str,
    /// The URL of the audit page, for links.
    pub page: Option<&'a PageUrl>,
}

/// Renders URL, headers and body. `until`: when the attempt must end, by [`relaybook_api::since_boot`].
pub fn build(record: &Record, sending: &Sending, around: Around<'_>, until: Duration) -> Result<Outgoing, RequestError> {
    let spec = &record.spec;
    let id = webhook_id(spec);
    let superseded = record.status.superseded;
    let Around { facts, cluster, page } = around;
    let data = Data::new(&id, spec, &facts.labels, &facts.annotations, &facts.namespace).with_context(spec, cluster);
    let data = Data { superseded, ..data.with_links(page, &record.id.namespace, &record.id.name) };
    compose(sending, sending.render(&data)?, &record.id.namespace, id, until)
}

/// Puts a rendered request together. `readers`: the namespace of the people who see the answer. A test is put together here, too, so that
/// it shows what a delivery would do.
pub fn compose(
    sending: &Sending,
    rendered: Rendered,
    readers: &str,
    id: String,
    until: Duration,
) -> Result<Outgoing, RequestError> {
    let destination = match rendered.address {
        Address::Url(url) => webhook::Destination::Url(url),
        Address::Secret(key) => webhook::Destination::Secret(key),
    };
    let mut headers = vec![(header::CONTENT_TYPE, value(header::CONTENT_TYPE, sending.body.content_type())?)];
    for (name, text) in rendered.headers {
        let mut value = value(name.clone(), &text)?;
        // Sensitive values are removed from a response that repeats them, so that they do not become public.
        value.set_sensitive(is_secret(name.as_str()));
        headers.push((name, value));
    }
    let mut hidden = Hidden::default();
    rendered.credentials.iter().for_each(|value| hidden.add(value));
    Ok(Outgoing {
        destination,
        method: sending.method,
        headers,
        body: Bytes::from(rendered.body),
        id,
        trace_parent: None,
        auth: sending.auth.clone(),
        signing: sending.signing.clone(),
        tls: sending.tls.clone(),
        timeout: sending.timeout,
        until,
        connect_timeout: sending.connect_timeout,
        hidden,
        // The readers may have no access to these credentials.
        withhold_answer: sending.credentials_from().any(|namespace| namespace != readers),
    })
}

fn value(name: HeaderName, text: &str) -> Result<HeaderValue, RequestError> {
    HeaderValue::from_str(text).map_err(|_| RequestError::Header(name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::outbox::testing::{notification, record};
    use relaybook_api::Notification;
    use relaybook_api::notification::credentials::{AuthRef, Authorities, SecretKey, SecretName};
    use relaybook_settings::config::{Given, resolve};

    /// Builds a request for a revision.
    fn request(url: &str, body: &str, revision: &str) -> Result<Outgoing, RequestError> {
        let mut record = record(7);
        Arc::make_mut(&mut record.spec).to.revision = revision.to_owned();
        let spec = serde_json::json!({
            "endpoint": {"url": url, "headers": {"X-Day": "{{date revision}}"}},
            "template": {"inline": {"body": body}, "parameters": {"sha": "{{commit revision}}"}},
            "triggers": [],
        });
        let notification = Notification::new("n", serde_json::from_value(spec).unwrap());
        let sending = resolve(&notification, &Given::nothing()).sending.unwrap();
        let facts = PipelineFacts::default();
        let around = Around { facts: &facts, cluster: "in-cluster", page: None };
        build(&record, &sending, around, Duration::MAX)
    }

    #[test]
    fn a_request_about_a_commit_is_canceled_without_one() {
        let (of_commit, other) = ("https://example.com/{{commit revision}}", "https://example.com/in");
        let commit = "a".repeat(40);
        let time = "2026-01-01T00:00:00Z";
        for (url, body, revision, outcome, reason) in [
            (of_commit, "{}", "6.5.0", Outcome::Canceled, "CommitMissing"),
            (of_commit, "{}", "", Outcome::Canceled, "CommitMissing"),
            ("https://example.com/{{parameters.sha}}", "{}", "6.5.0", Outcome::Canceled, "CommitMissing"),
            // A header fails.
            (of_commit, "{}", &commit, Outcome::Parked, "TemplateFailed"),
            // The message is not about the commit. It only names the commit.
            (other, r#"{"text": "{{commit revision}} failed"}"#, time, Outcome::Parked, "TemplateFailed"),
        ] {
            let error = request(url, body, revision).unwrap_err();
            assert_eq!((error.outcome(), error.reason()), (Some(outcome), reason), "{url}, {revision}: {error}");
        }
    }

    #[test]
    fn an_answer_is_kept_where_the_credentials_are() {
        let plain = notification("n1").sending.unwrap();
        let secret = |namespace: &str| SecretName { namespace: namespace.to_owned(), name: "s".to_owned() };
        let key = |namespace: &str| SecretKey::new(namespace, "s", "k");
        let withheld = |change: &dyn Fn(&mut Sending)| {
            let mut sending = plain.clone();
            change(&mut sending);
            let facts = PipelineFacts::default();
            let around = Around { facts: &facts, cluster: "in-cluster", page: None };
            build(&record(7), &sending, around, Duration::MAX).unwrap().withhold_answer
        };
        assert!(!withheld(&|_| {}));
        for (namespace, expected) in [("team-a", false), ("relaybook-system", true)] {
            let auth = AuthRef::Basic { namespace: namespace.to_owned(), name: "s".to_owned() };
            let all: [&dyn Fn(&mut Sending); 5] = [
                &|s| s.auth = Some(auth.clone()),
                &|s| s.signing = Some(secret(namespace)),
                &|s| s.tls.client_certificate = Some(secret(namespace)),
                &|s| s.destination = relaybook_settings::config::Destination::Secret(key(namespace)),
                &|s| s.literal_credentials = [namespace.to_owned()].into(),
            ];
            for (number, change) in all.into_iter().enumerate() {
                assert_eq!(withheld(change), expected, "{namespace}, {number}");
            }
        }
        assert!(
            !withheld(&|s| s.tls.authorities = Authorities::Secret(key("relaybook-system"))),
            "these are no credentials"
        );
    }
}
