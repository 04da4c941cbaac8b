//! A built-in template in use: its worked example as a Notification, and the rendered requests.

use std::collections::BTreeMap;

use http::HeaderName;
use relaybook_api::notification::credentials::AuthRef;
use relaybook_api::notification::{Builtin, Method};
use relaybook_api::{Notification, TransitionType};
use relaybook_settings::config::{Address, Given, Problem, Sending, resolve};
use relaybook_settings::render::{CredentialsKind, Data, Declared, Metadata};
use serde_json::{Value, json};
use url::Url;

/// Which parameters of a template are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameters {
    /// Parameters without a default.
    Required,
    /// All parameters that have an example.
    Examples,
    /// Parameters without a default, and titles, descriptions and names that contain text from the cluster.
    Messages,
}

/// Parameters that may be any text.
const TEXTS: [&str; 5] = ["title", "description", "context", "name", "key"];

impl Parameters {
    pub const ALL: [Self; 3] = [Self::Required, Self::Examples, Self::Messages];

    fn of(self, metadata: &Metadata) -> BTreeMap<String, String> {
        let value = |p: &Declared| match self {
            Self::Messages if TEXTS.contains(&p.name.as_str()) => Some("{{type}} {{message}}".to_owned()),
            Self::Required | Self::Messages if !p.is_required() => None,
            _ => p.example.clone(),
        };
        metadata.parameters.iter().filter_map(|p| Some((p.name.clone(), value(p)?))).collect()
    }
}

/// A resolved Notification with a built-in template.
pub struct Subject {
    pub builtin: Builtin,
    pub metadata: &'static Metadata,
    sending: Sending,
}

/// A rendered request.
pub struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: Vec<(HeaderName, String)>,
    /// The header of the credentials without their value, such as `authorization: Bearer <token>`.
    pub credentials: Option<String>,
    pub content_type: String,
    pub body: String,
}

impl Subject {
    /// Resolves the worked example of a template.
    pub fn example(builtin: Builtin, parameters: Parameters) -> Self {
        let metadata = &relaybook_settings::render::builtin(builtin).metadata;
        Self::with(builtin, metadata, &parameters.of(metadata))
    }

    /// Resolves the worked example of a template that continues messages in this way.
    pub fn in_mode(builtin: Builtin, mode: &str) -> Self {
        Self::setting(builtin, &[("mode", mode)])
    }

    /// Resolves the worked example of a template with these parameters, too.
    pub fn setting(builtin: Builtin, more: &[(&str, &str)]) -> Self {
        let metadata = &relaybook_settings::render::builtin(builtin).metadata;
        let mut parameters = Parameters::Required.of(metadata);
        parameters.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Self::with(builtin, metadata, &parameters)
    }

    fn with(builtin: Builtin, metadata: &'static Metadata, parameters: &BTreeMap<String, String>) -> Self {
        let endpoint = endpoint(metadata);
        let notification = json!({
            "apiVersion": "relaybook.dev/v1alpha1",
            "kind": "Notification",
            "metadata": {"name": "deploys", "namespace": "team-a"},
            "spec": {"endpoint": endpoint, "template": {"builtin": builtin.as_str(), "parameters": parameters}},
        });
        let notification: Notification = serde_json::from_value(notification).unwrap();
        let given = Given { allow_http: true, ..Given::nothing() };
        let sending = resolve(&notification, &given).sending;
        let sending = sending.unwrap_or_else(|problem| panic!("{}: {problem}", builtin.as_str()));
        Self { builtin, metadata, sending }
    }

    /// Returns the transitions that the template can report.
    pub fn types(&self) -> impl Iterator<Item = TransitionType> {
        TransitionType::ALL.into_iter().filter(|type_| self.metadata.reports(*type_))
    }

    /// Renders the request for one transition.
    pub fn render(&self, data: &Data) -> Result<Request, Problem> {
        let mut rendered = self.sending.render(data)?;
        let created = self.sending.render_create(data, &[("number".to_owned(), "<number>".to_owned())].into())?;
        rendered.body = created.body;
        let url = match rendered.address {
            Address::Url(url) => url,
            Address::Secret(_) => Url::parse(&self.metadata.example.url).unwrap(),
        };
        let url = created.path.map_or_else(|| url.clone(), |path| path.applied_to(&url));
        Ok(Request {
            method: self.sending.method,
            url,
            headers: rendered.headers,
            credentials: self.sending.auth.as_ref().map(shown),
            content_type: self.metadata.content_type.clone(),
            body: rendered.body,
        })
    }

    /// Renders the request for a transition that continues a message. A remembered value is `<NAME>`.
    pub fn render_later(&self, data: &Data) -> Request {
        let thread = self.sending.thread.as_ref().unwrap();
        let values = thread.remember.names().map(|name| (name.to_owned(), format!("<{name}>"))).collect();
        let first = self.render(data).unwrap();
        let later = self.sending.render_later(data, &values).unwrap();
        let url = self.base(data);
        let url = later.path.map_or_else(|| url.clone(), |path| path.applied_to(&url));
        Request { method: later.method, url, body: later.body, ..first }
    }

    /// Returns where the message of a transition is looked for.
    pub fn lookup(&self, data: &Data) -> Option<Url> {
        let number = [("number".to_owned(), "42".to_owned())].into();
        let lookup = self.sending.render_find(data, &number).unwrap()?;
        Some(lookup.applied_to(&self.base(data)))
    }

    /// Returns where the parent of the message is looked for.
    pub fn parent(&self, data: &Data) -> Option<Url> {
        let lookup = self.sending.render_parent(data).unwrap()?;
        Some(lookup.applied_to(&self.base(data)))
    }

    /// Returns the URL to which the other paths are relative.
    fn base(&self, data: &Data) -> Url {
        match self.sending.render(data).unwrap().address {
            Address::Url(url) => url,
            Address::Secret(_) => Url::parse(&self.metadata.example.url).unwrap(),
        }
    }

    /// Returns the key of the message of a transition.
    pub fn thread_key(&self, data: &Data) -> Option<String> {
        self.sending.thread_key(data).unwrap()
    }

    /// Renders the body for a changed sample of a transition.
    pub fn body(&self, type_: TransitionType, change: impl FnOnce(&mut Data)) -> Value {
        let mut data = Data::sample(type_);
        change(&mut data);
        let name = self.builtin.as_str();
        let request = self.render(&data).unwrap_or_else(|problem| panic!("{name}, {}: {problem}", type_.as_str()));
        request.json()
    }
}

impl Request {
    pub fn json(&self) -> Value {
        self.parsed().unwrap_or_else(|e| panic!("not JSON: {e}: {}", self.body))
    }

    /// Returns the body as JSON. A form is an object of texts.
    pub fn parsed(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_str(&self.body).or_else(|error| {
            let is_form =
                self.content_type == "application/x-www-form-urlencoded" && !self.body.contains(char::is_whitespace);
            let pairs = || url::form_urlencoded::parse(self.body.as_bytes()).map(|(n, v)| (n.into_owned(), Value::from(v)));
            if is_form { Ok(pairs().collect()) } else { Err(error) }
        })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// Returns the endpoint as the documentation of the template shows it.
fn endpoint(metadata: &Metadata) -> Value {
    let url = &metadata.example.url;
    let key = json!({"secretKeyRef": {"name": "receiver", "key": "key"}});
    match metadata.credentials.kind {
        CredentialsKind::Url => json!({"urlFrom": key}),
        CredentialsKind::Token => json!({"url": url, "auth": {"token": key}}),
        CredentialsKind::Basic => json!({"url": url, "auth": {"basic": {"secretRef": {"name": "receiver"}}}}),
        CredentialsKind::None => json!({"url": url}),
    }
}

fn shown(auth: &AuthRef) -> String {
    match auth {
        AuthRef::Basic { .. } => "authorization: Basic <username and password>".to_owned(),
        AuthRef::GithubApp(_) | AuthRef::OAuth2(_) | AuthRef::Workload(_) => "authorization: Bearer <token>".to_owned(),
        AuthRef::Token { header, scheme, .. } if scheme.is_empty() => format!("{header}: <token>"),
        AuthRef::Token { header, scheme, .. } => format!("{header}: {scheme} <token>"),
    }
}
