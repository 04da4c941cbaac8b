//! Pure: builds a request from a rendered notification.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use thiserror::Error;

use super::{Destination, Hidden, Outgoing};
use relaybook_api::Outcome;
use relaybook_api::delivery::Reason;
use relaybook_settings::config::{Address, Problem, Rendered, Sending, is_secret};

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
    pub fn reason(&self) -> Reason {
        match self {
            Self::Render(problem) => problem.reason(),
            Self::Header(_) => Reason::TemplateInvalid,
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
        Address::Url(url) => Destination::Url(url),
        Address::Secret(key) => Destination::Secret(key),
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
        headers_from: sending.headers_from.clone(),
        signing: sending.signing.clone(),
        tls: sending.tls.clone(),
        timeout: sending.timeout,
        until,
        connect_timeout: sending.connect_timeout,
        success: sending.success.clone(),
        thread: None,
        hidden,
        // The readers may have no access to these credentials.
        withhold_answer: sending.credentials_from().any(|namespace| namespace != readers),
        is_test: false,
    })
}

fn value(name: HeaderName, text: &str) -> Result<HeaderValue, RequestError> {
    HeaderValue::from_str(text).map_err(|_| RequestError::Header(name))
}
