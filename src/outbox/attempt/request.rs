//! Builds a request from a recorded transition. Pure. The request is rendered for every attempt, so that it uses the current configuration.
//! If the configuration is unchanged, so are the bytes.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use thiserror::Error;

use crate::api::values::permalink::PageUrl;
use crate::config::{Address, Problem, Rendered, Sending, is_secret};
use crate::outbox::record::{Record, webhook_id};
use crate::outbox::send_gate::index::PipelineFacts;
use crate::render::Data;
use crate::webhook::{self, Hidden, Outgoing};

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

    /// Returns whether the recorded data always cause this error, so that a retry does not help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Render(problem) => problem.is_final(),
            // The values were checked when they were rendered. The rest of a header is configuration, which a user can fix.
            Self::Header(_) => false,
        }
    }
}

/// Renders URL, headers and body. `page` is the URL of the audit page, for links. `until`: when the attempt must end, by [`crate::api::since_boot`].
pub fn build(
    record: &Record,
    sending: &Sending,
    (facts, page): (&PipelineFacts, Option<&PageUrl>),
    until: Duration,
) -> Result<Outgoing, RequestError> {
    let spec = &record.spec;
    let id = webhook_id(spec);
    let superseded = record.status.superseded;
    let data = Data::new(&id, spec, &facts.labels, &facts.annotations, &facts.namespace);
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
    use super::*;
    use crate::api::notification::credentials::{AuthRef, Authorities, SecretKey, SecretName};
    use crate::outbox::testing::{notification, record};

    #[test]
    fn an_answer_is_kept_where_the_credentials_are() {
        let plain = notification("n1").sending.unwrap();
        let secret = |namespace: &str| SecretName { namespace: namespace.to_owned(), name: "s".to_owned() };
        let key = |namespace: &str| SecretKey::new(namespace, "s", "k");
        let withheld = |change: &dyn Fn(&mut Sending)| {
            let mut sending = plain.clone();
            change(&mut sending);
            build(&record(7), &sending, (&PipelineFacts::default(), None), Duration::MAX).unwrap().withhold_answer
        };
        assert!(!withheld(&|_| {}));
        for (namespace, expected) in [("team-a", false), ("pennant-system", true)] {
            let auth = AuthRef::Basic { namespace: namespace.to_owned(), name: "s".to_owned() };
            let all: [&dyn Fn(&mut Sending); 5] = [
                &|s| s.auth = Some(auth.clone()),
                &|s| s.signing = Some(secret(namespace)),
                &|s| s.tls.client_certificate = Some(secret(namespace)),
                &|s| s.destination = crate::config::Destination::Secret(key(namespace)),
                &|s| s.literal_credentials = [namespace.to_owned()].into(),
            ];
            for (number, change) in all.into_iter().enumerate() {
                assert_eq!(withheld(change), expected, "{namespace}, {number}");
            }
        }
        assert!(!withheld(&|s| s.tls.authorities = Authorities::Secret(key("pennant-system"))), "these are no credentials");
    }
}
