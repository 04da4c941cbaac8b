//! From a Notification to what the other rooms work with. Defaults are here and nowhere else.

use std::str::FromStr as _;
use std::time::Duration;

use http::HeaderName;
use kube::ResourceExt as _;

use super::problem::Problem;
use super::selector::PipelineSelector;
use crate::api::credentials::{AuthRef, SecretKey};
use crate::api::notification::{self as spec, InlineTemplate, Method};
use crate::api::refs::{SecretKeyRef, is_service};
use crate::api::{Notification, NotificationSpec, TransitionType};
use crate::render::{Body, Data, HeaderTemplate, UrlTemplate};
use crate::trigger::Triggers;

const TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CONTENT_TYPE: &str = "application/json";

/// A notification that has been understood, half by half.
#[derive(Clone, Debug)]
pub struct EffectiveNotification {
    /// Uid of the Notification: one made again under its name is another.
    pub uid: String,
    /// Generation that this was made from.
    pub generation: Option<i64>,
    /// What is recorded.
    pub intake: Result<Intake, Problem>,
    /// How it is sent.
    pub sending: Result<Sending, Problem>,
    /// Recorded and held.
    pub suspend: bool,
    /// How often it is tried. Valid also when the rest is not, for a delivery that waits grows old all the same.
    pub retry: Retry,
}

/// Which changes become deliveries.
#[derive(Clone, Debug)]
pub struct Intake {
    /// Pipelines.
    pub selector: PipelineSelector,
    /// Transitions.
    pub triggers: Triggers,
}

/// How a delivery becomes a request.
#[derive(Clone, Debug)]
pub struct Sending {
    /// Where to.
    pub destination: Destination,
    /// How.
    pub method: Method,
    /// Further headers.
    pub headers: Vec<HeaderTemplate>,
    /// Credentials, by reference.
    pub auth: Option<AuthRef>,
    /// For the whole attempt.
    pub timeout: Duration,
    /// For making the connection.
    pub connect_timeout: Duration,
    /// What.
    pub body: Body,
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub enum Destination {
    /// A URL with templates in path and query.
    Url(UrlTemplate),
    /// The whole URL is a secret.
    Secret(SecretKey),
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// First gap.
    pub initial: Duration,
    /// Largest gap.
    pub max: Duration,
    /// From recording to giving up.
    pub max_age: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { initial: Duration::from_secs(5), max: Duration::from_mins(10), max_age: Duration::from_hours(24) }
    }
}

impl Sending {
    /// The keys of Secrets that it needs.
    #[must_use]
    pub fn secrets(&self) -> Vec<SecretKey> {
        let url = match &self.destination {
            Destination::Secret(key) => Some(key.clone()),
            Destination::Url(_) => None,
        };
        url.into_iter().chain(self.auth.iter().flat_map(AuthRef::keys)).collect()
    }

    /// What lanes to one receiver share: the origin, or the Secret that hides it.
    #[must_use]
    pub fn origin(&self) -> String {
        match &self.destination {
            Destination::Url(url) => url.origin().to_owned(),
            Destination::Secret(key) => format!("secret:{}/{}/{}", key.namespace, key.name, key.key),
        }
    }
}

/// Understands a notification. `allow_http` is the operator's word.
#[must_use]
pub fn resolve(notification: &Notification, allow_http: bool) -> EffectiveNotification {
    let namespace = notification.namespace().unwrap_or_default();
    let spec = &notification.spec;
    let (retry, retry_problem) = match retry(spec) {
        Ok(retry) => (retry, None),
        Err(problem) => (Retry::default(), Some(problem)),
    };
    EffectiveNotification {
        uid: notification.uid().unwrap_or_default(),
        generation: notification.metadata.generation,
        intake: intake(spec),
        sending: retry_problem.map_or_else(|| sending(spec, &namespace, allow_http), Err),
        suspend: spec.suspend.unwrap_or(false),
        retry,
    }
}

fn intake(spec: &NotificationSpec) -> Result<Intake, Problem> {
    let selector = PipelineSelector::parse(spec.pipeline_selector.as_ref()).map_err(Problem::Selector)?;
    let triggers = spec.triggers.as_deref().ok_or(Problem::Incomplete { field: "spec.triggers" })?;
    Ok(Intake { selector, triggers: Triggers::compile(triggers)? })
}

fn sending(spec: &NotificationSpec, namespace: &str, allow_http: bool) -> Result<Sending, Problem> {
    let endpoint = spec.endpoint.as_ref().ok_or(Problem::Incomplete { field: "spec.endpoint" })?;
    let inline = spec
        .template
        .as_ref()
        .and_then(|t| t.inline.as_ref())
        .ok_or(Problem::Incomplete { field: "spec.template.inline" })?;
    let sending = Sending {
        destination: destination(endpoint, namespace, allow_http)?,
        method: endpoint.method.unwrap_or_default(),
        headers: headers(endpoint)?,
        auth: endpoint.auth.as_ref().map(|a| auth(a, namespace)).transpose()?.flatten(),
        timeout: duration("spec.endpoint.timeout", endpoint.timeout.as_deref(), TIMEOUT)?,
        connect_timeout: duration("spec.endpoint.connectTimeout", endpoint.connect_timeout.as_deref(), CONNECT_TIMEOUT)?,
        body: body(inline)?,
    };
    try_samples(&sending, &wanted(spec))?;
    Ok(sending)
}

fn destination(endpoint: &spec::Endpoint, namespace: &str, allow_http: bool) -> Result<Destination, Problem> {
    match (&endpoint.url, &endpoint.url_from) {
        (Some(url), None) => {
            let field = "spec.endpoint.url";
            let url = UrlTemplate::compile(url).map_err(|e| Problem::template(field, &e))?;
            if url.scheme() == "http" && !allow_http && !is_service(url.host()) {
                return Err(Problem::InsecureScheme { field });
            }
            Ok(Destination::Url(url))
        }
        (None, Some(from)) => Ok(Destination::Secret(secret_key(&from.secret_key_ref, namespace))),
        (None, None) => Err(Problem::Incomplete { field: "spec.endpoint.url or spec.endpoint.urlFrom" }),
        (Some(_), Some(_)) => Err(Problem::invalid("spec.endpoint", "set url or urlFrom, not both")),
    }
}

fn headers(endpoint: &spec::Endpoint) -> Result<Vec<HeaderTemplate>, Problem> {
    let compile = |(name, value): (&String, &String)| {
        HeaderTemplate::compile(name, value).map_err(|e| Problem::template(format!("spec.endpoint.headers[{name}]"), &e))
    };
    endpoint.headers.iter().flatten().map(compile).collect()
}

fn auth(auth: &spec::Auth, namespace: &str) -> Result<Option<AuthRef>, Problem> {
    match (&auth.basic, &auth.token) {
        (Some(basic), None) => {
            Ok(Some(AuthRef::Basic { namespace: namespace.to_owned(), name: basic.secret_ref.name.clone() }))
        }
        (None, Some(token)) => {
            let name = token.header.as_deref().unwrap_or("Authorization");
            let header = HeaderName::from_str(name).map_err(|_| {
                Problem::invalid("spec.endpoint.auth.token.header", format!("{name:?} is not a header name"))
            })?;
            let default = if header == http::header::AUTHORIZATION { "Bearer" } else { "" };
            Ok(Some(AuthRef::Token {
                secret: secret_key(&token.secret_key_ref, namespace),
                header,
                scheme: token.scheme.as_deref().unwrap_or(default).to_owned(),
            }))
        }
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Problem::invalid("spec.endpoint.auth", "set exactly one of basic and token")),
    }
}

/// References resolve in the namespace of the object that wrote them.
fn secret_key(reference: &SecretKeyRef, namespace: &str) -> SecretKey {
    SecretKey::new(namespace, &reference.name, &reference.key)
}

fn body(inline: &InlineTemplate) -> Result<Body, Problem> {
    let content_type = inline.content_type.as_deref().unwrap_or(CONTENT_TYPE);
    Body::compile(content_type, &inline.body).map_err(|e| Problem::template("spec.template.inline.body", &e))
}

/// The transitions that can occur to this notification; all of them, while it does not say.
fn wanted(spec: &NotificationSpec) -> Vec<TransitionType> {
    let Some(triggers) = &spec.triggers else { return TransitionType::ALL.to_vec() };
    TransitionType::ALL.into_iter().filter(|type_| triggers.iter().any(|t| t.type_ == *type_)).collect()
}

/// Renders everything against a sample of each transition that is wanted, so that `Ready` tells before the first send.
fn try_samples(sending: &Sending, wanted: &[TransitionType]) -> Result<(), Problem> {
    for data in wanted.iter().copied().map(Data::sample) {
        let of = |field: &str| format!("{field} (tried with a sample of {})", data.type_.as_str());
        sending.body.render(&data).map_err(|e| Problem::template(of("spec.template.inline.body"), &e))?;
        if let Destination::Url(url) = &sending.destination {
            url.render(&data).map_err(|e| Problem::template(of("spec.endpoint.url"), &e))?;
        }
        for header in &sending.headers {
            let field = format!("spec.endpoint.headers[{}]", header.name());
            header.render(&data).map_err(|e| Problem::template(of(&field), &e))?;
        }
    }
    Ok(())
}

fn retry(spec: &NotificationSpec) -> Result<Retry, Problem> {
    let default = Retry::default();
    let Some(given) = spec.delivery.as_ref().and_then(|d| d.retry.as_ref()) else { return Ok(default) };
    let field = |name: &str| format!("spec.delivery.retry.{name}");
    let retry = Retry {
        initial: duration(&field("initial"), given.initial.as_deref(), default.initial)?,
        max: duration(&field("max"), given.max.as_deref(), default.max)?,
        max_age: duration(&field("maxAge"), given.max_age.as_deref(), default.max_age)?,
    };
    if retry.initial > retry.max {
        return Err(Problem::invalid(field("initial"), "must not be over max (default 10m)"));
    }
    Ok(retry)
}

/// Reads a duration such as `15s` or `1h30m`.
fn duration(field: &str, given: Option<&str>, default: Duration) -> Result<Duration, Problem> {
    let Some(given) = given else { return Ok(default) };
    jiff::SignedDuration::from_str(given)
        .ok()
        .and_then(|d| Duration::try_from(d).ok())
        .filter(|d| !d.is_zero())
        .ok_or_else(|| Problem::invalid(field, format!("{given:?} is not a duration such as 5s, 10m or 24h")))
}
