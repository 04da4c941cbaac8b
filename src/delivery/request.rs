//! From a recorded transition to a request. Pure: rendered anew for every attempt, so that it follows edits of the
//! configuration, and the same bytes as long as none was made.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use thiserror::Error;

use super::directory::PipelineFacts;
use super::record::{Record, webhook_id};
use crate::config::{Destination, Sending};
use crate::render::{Data, RenderError};
use crate::send::{self, Outgoing};

/// Why no request could be made of a delivery.
#[derive(Debug, Error)]
pub enum RequestError {
    /// A template failed on these values, though it did not on the samples.
    #[error("{field}: {source}")]
    Render {
        /// The field that holds the template.
        field: String,
        /// What went wrong.
        source: RenderError,
    },
    /// A header cannot be sent.
    #[error("header {0} is not a valid header")]
    Header(String),
}

/// Renders URL, headers and body. `until`: the end of the attempt, by [`crate::api::since_boot`].
pub fn build(record: &Record, sending: &Sending, facts: &PipelineFacts, until: Duration) -> Result<Outgoing, RequestError> {
    let spec = &record.spec;
    let id = webhook_id(spec);
    let data = Data::new(&id, spec, &facts.labels, &facts.annotations, &facts.namespace);
    let render = |field: &str| {
        let field = field.to_owned();
        |source| RequestError::Render { field, source }
    };
    let destination = match &sending.destination {
        Destination::Url(url) => send::Destination::Url(url.render(&data).map_err(render("spec.endpoint.url"))?),
        Destination::Secret(key) => send::Destination::Secret(key.clone()),
    };
    let mut headers = vec![(header::CONTENT_TYPE, value("content-type", sending.body.content_type())?)];
    for template in &sending.headers {
        let field = format!("spec.endpoint.headers[{}]", template.name());
        let text = template.render(&data).map_err(render(&field))?;
        let name = HeaderName::try_from(template.name()).map_err(|_| RequestError::Header(template.name().to_owned()))?;
        headers.push((name, value(template.name(), &text)?));
    }
    let body = sending.body.render(&data).map_err(render("spec.template.inline.body"))?;
    Ok(Outgoing {
        destination,
        method: sending.method,
        headers,
        body: Bytes::from(body),
        id,
        auth: sending.auth.clone(),
        timeout: sending.timeout,
        until,
        connect_timeout: sending.connect_timeout,
    })
}

fn value(name: &str, text: &str) -> Result<HeaderValue, RequestError> {
    HeaderValue::from_str(text).map_err(|_| RequestError::Header(name.to_owned()))
}
