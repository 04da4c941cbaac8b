//! The rendered parts of a request.
//!
//! In: how a notification is sent, the data of a transition, and what earlier answers about the message said. Out: address, headers and body of
//! the first request; or where its message is looked for, or what differs in one that continues it. The error names the field.

use std::collections::BTreeMap;
use std::fmt;

use http::HeaderName;
use url::Url;

use super::find::Lookup;
use super::sending::{Destination, Sending, header_field};
use super::thread::NewPath;
use super::trust::is_secret;
use crate::config::problem::Problem;
use crate::render::{Data, HeaderTemplate, RenderError, Values};
use relaybook_api::TransitionType;
use relaybook_api::notification::Method;
use relaybook_api::notification::credentials::{AuthRef, SecretKey};
use relaybook_api::values::looked_up::LookedUp;
use relaybook_api::values::repository::Repository;

/// The rendered request for a transition, without credentials by reference.
#[derive(Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The address of the request.
    pub address: Address,
    /// Headers in order, without `content-type`.
    pub headers: Vec<(HeaderName, String)>,
    /// The rendered body.
    pub body: String,
    /// The values of used parameters whose names suggest credentials.
    pub credentials: Vec<String>,
}

/// What a request that continues a message has instead of the parts of the first one.
#[derive(Clone, PartialEq, Eq)]
pub struct RenderedLater {
    /// The HTTP method.
    pub method: Method,
    /// The path. `None`: that of the first request.
    pub path: Option<NewPath>,
    /// The rendered body.
    pub body: String,
    /// The values of used parameters whose names suggest credentials.
    pub credentials: Vec<String>,
}

/// Prints only header names, because the URL and the header values can contain secrets.
impl fmt::Debug for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Rendered").field("headers", &names).finish_non_exhaustive()
    }
}

/// Where one request goes.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// This URL.
    Url(Url),
    /// The URL that is the value of this key.
    Secret(SecretKey),
}

impl Sending {
    /// Renders all templates for one transition. The error names the field.
    pub fn render(&self, data: &Data) -> Result<Rendered, Problem> {
        let values = self.values(data)?;
        let address = match &self.destination {
            Destination::Url(url) => Address::Url(url.render(&values).map_err(|e| Problem::url(&self.url_field, &e))?),
            Destination::Secret(key) => Address::Secret(key.clone()),
        };
        self.check_repository(&address)?;
        self.thread.as_ref().map(|thread| thread.check_key(&values)).transpose()?;
        let header = |template: &HeaderTemplate| {
            let problem = |e: RenderError| Problem::template(header_field(template.name()), &e);
            let value = template.render(&values).map_err(problem)?;
            let name = HeaderName::try_from(template.name()).map_err(|_| problem(RenderError::HeaderName))?;
            Ok((name, value))
        };
        let headers = self.headers.iter().map(header).collect::<Result<_, Problem>>()?;
        let body = self.body.render(&values).map_err(|e| Problem::template(&self.body_field, &e))?;
        Ok(Rendered { address, headers, body, credentials: credentials(&values) })
    }

    /// Checks that the URL names the repository for which a GitHub App needs a token.
    fn check_repository(&self, address: &Address) -> Result<(), Problem> {
        match (&self.auth, address) {
            (Some(AuthRef::GithubApp(_)), Address::Url(url)) if Repository::of(url).is_none() => {
                let message =
                    "endpoint.auth.githubApp needs /repos/OWNER/NAME in the path, because a token is for one repository";
                Err(Problem::invalid(self.url_field.clone(), message))
            }
            _ => Ok(()),
        }
    }

    /// Renders what differs in a request that continues a message. `remembered`: the values of the earlier answers.
    pub fn render_later(&self, data: &Data, remembered: &BTreeMap<String, String>) -> Result<RenderedLater, Problem> {
        let values = self.values(data)?.remembering(remembered, true);
        let (method, path) = self.thread.as_ref().map(|thread| thread.later(&values)).transpose()?.unwrap_or_default();
        let body = self.body.render(&values).map_err(|e| Problem::template(&self.body_field, &e))?;
        Ok(RenderedLater { method: method.unwrap_or(self.method), path, body, credentials: credentials(&values) })
    }

    /// Renders where the parent of the message is looked for. `None`: it has none.
    pub fn render_parent(&self, data: &Data) -> Result<Option<Lookup>, Problem> {
        let Some(parent) = self.thread.as_ref().and_then(|thread| thread.parent.as_ref()) else { return Ok(None) };
        parent.find.render(&self.values(data)?).map(Some)
    }

    /// Renders where a message is looked for that an earlier attempt created. `number`: that of its parent. `None`: it is not looked for.
    pub fn render_find(&self, data: &Data, number: &BTreeMap<String, String>) -> Result<Option<Lookup>, Problem> {
        let Some(find) = self.thread.as_ref().and_then(|thread| thread.find.as_ref()) else { return Ok(None) };
        find.render(&self.values(data)?.remembering(number, false)).map(Some)
    }

    /// Renders what differs in a request that creates a message at its parent. `number`: that of the parent.
    pub fn render_create(&self, data: &Data, number: &BTreeMap<String, String>) -> Result<RenderedLater, Problem> {
        let values = self.values(data)?.remembering(number, false);
        let parent = self.thread.as_ref().and_then(|thread| thread.parent.as_ref());
        let path = parent.map(|parent| parent.create(&values)).transpose()?.flatten();
        let body = self.body.render(&values).map_err(|e| Problem::template(&self.body_field, &e))?;
        Ok(RenderedLater { method: self.method, path, body, credentials: credentials(&values) })
    }

    /// Renders the key of the message that this transition continues. `None`: the delivery is a message of its own.
    pub fn thread_key(&self, data: &Data) -> Result<Option<String>, Problem> {
        let Some(thread) = &self.thread else { return Ok(None) };
        thread.key(&self.values(data)?)
    }

    fn values(&self, data: &Data) -> Result<Values, Problem> {
        Values::new(data, &self.parameters).map_err(|e| Problem::template(&self.body_field, &e))
    }
}

fn credentials(values: &Values) -> Vec<String> {
    let parameters = values.rendered_parameters();
    parameters.filter(|(name, _)| is_secret(name)).map(|(_, value)| value.to_owned()).collect()
}

/// Renders everything with a sample of each wanted transition. So the condition `Ready` reports problems before the first send. If a forge is
/// asked, it is tried with an answer of the forge, and without one.
pub(crate) fn try_samples(sending: &Sending, wanted: &[TransitionType]) -> Result<(), Problem> {
    for data in wanted.iter().copied().map(Data::sample) {
        try_sample(sending, &data, "")?;
        if !sending.look_ups.is_none() {
            try_sample(sending, &data.with_looked_up(&LookedUp::sample()), " and an answer of the forge")?;
        }
    }
    Ok(())
}

fn try_sample(sending: &Sending, data: &Data, more: &str) -> Result<(), Problem> {
    let tried = |problem: Problem| problem.tried(&format!("tried with a sample of {}{more}", data.type_.as_str()));
    sending.render(data).map_err(tried)?;
    if let Some(thread) = &sending.thread
        && sending.thread_key(data).map_err(tried)?.is_some()
    {
        let sample = thread.remember.names().map(|name| (name.to_owned(), "1".to_owned())).collect();
        sending.render_later(data, &sample).map_err(tried)?;
        let number = [("number".to_owned(), "1".to_owned())].into();
        sending.render_parent(data).map_err(tried)?;
        sending.render_find(data, &number).map_err(tried)?;
        sending.render_create(data, &number).map_err(tried)?;
    }
    Ok(())
}
