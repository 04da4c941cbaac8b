//! How a delivery becomes a request: URL, method, headers, body, and credentials by reference.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::credentials::{auth, secret_key, secret_name, signing, tls};
use super::defaults::{CONNECT_TIMEOUT, TIMEOUT, URL, duration};
use super::given::{Given, Places};
use super::marking::{Marking, Reads, marking};
use super::rendered::try_samples;
use super::template::{Chosen, choose, parameter_field};
use super::thread::{Thread, remembered, thread};
use super::trust::is_secret;
use crate::answer::Success;
use crate::config::layers::escape;
use crate::config::problem::Problem;
use crate::render::{Body, HeaderTemplate, Parameters, UrlTemplate};
use relaybook_api::notification as spec;
use relaybook_api::notification::Method;
use relaybook_api::notification::credentials::{AuthRef, Authorities, Needed, SecretKey, SigningRef, TlsRef};
use relaybook_api::values::looked_up::LookUps;
use relaybook_api::values::refs::is_service;
use relaybook_api::{NotificationSpec, ObjectName, TransitionType};

/// How long an attempt waits for what a forge says about the commit.
pub const LOOK_UP: Duration = Duration::from_secs(2);
/// The problem of a template that cannot use what a forge is asked for.
const ONLY_IN_BODY: &str = "only the body can use git.author, git.message, git.time and pullRequest, also as parts of git or @root, because \
                            they are empty if the forge does not answer; remove them here";

/// How a delivery becomes a request.
#[derive(Clone, Debug)]
pub struct Sending {
    /// The destination of the requests.
    pub destination: Destination,
    /// The HTTP method.
    pub method: Method,
    /// Further headers.
    pub headers: Vec<HeaderTemplate>,
    /// Credentials, by reference.
    pub auth: Option<AuthRef>,
    /// Which receivers to trust, and the client certificate to send.
    pub tls: TlsRef,
    /// The Secret with more headers.
    pub headers_from: Option<ObjectName>,
    /// How requests are signed, with the keys by reference.
    pub signing: Option<SigningRef>,
    /// Timeout of the whole attempt.
    pub timeout: Duration,
    /// Timeout of the connection setup.
    pub connect_timeout: Duration,
    /// What an answer means. `None`: its status decides.
    pub success: Option<Success>,
    /// How deliveries continue a message. `None`: each delivery is a message of its own.
    pub thread: Option<Thread>,
    /// The template of the body.
    pub body: Body,
    /// The parameters that the templates can use.
    pub parameters: Parameters,
    /// Whether rendering fails for each revision that names no commit.
    pub needs_commit: bool,
    /// What a forge is asked for, because the body uses it.
    pub look_ups: LookUps,
    /// The parameters with data of the Git repository of a target, or none if the URL itself contains such data. `None`: the
    /// URL contains no such data.
    pub needs_source: Option<Vec<String>>,
    /// The namespaces of the layers that set literal credentials. These are headers and parameters whose names suggest credentials.
    pub literal_credentials: BTreeSet<String>,
    /// How the receiver can see that a request is a test.
    pub marking: Marking,
    /// The field that contains the template of the URL, for messages.
    pub url_field: String,
    /// The field that contains the template of the body, for messages.
    pub body_field: String,
}

/// Where requests go.
#[derive(Clone, Debug)]
pub enum Destination {
    /// A URL with templates in path and query.
    Url(UrlTemplate),
    /// The whole URL is a secret.
    Secret(SecretKey),
}

impl Sending {
    /// The keys and Secrets that it needs, and the ServiceAccount.
    #[must_use]
    pub fn secrets(&self) -> Vec<Needed> {
        let url = match &self.destination {
            Destination::Secret(key) => Some(Needed::Url(key.clone())),
            Destination::Url(_) => None,
        };
        let credentials = self.auth.iter().cloned().map(Needed::Auth);
        let authorities = match &self.tls.authorities {
            Authorities::Secret(key) => Some(Needed::Authorities(key.clone())),
            Authorities::System | Authorities::Pem(_) => None,
        };
        url.into_iter()
            .chain(credentials)
            .chain(self.headers_from.iter().cloned().map(Needed::Headers))
            .chain(self.signing.iter().cloned().map(Needed::SigningKeys))
            .chain(authorities)
            .chain(self.tls.client_certificate.iter().cloned().map(Needed::ClientCertificate))
            .collect()
    }

    /// The namespaces that its credentials are from. CA certificates are not credentials.
    pub fn credentials_from(&self) -> impl Iterator<Item = String> {
        let secrets = self.secrets().into_iter().filter(|needed| !matches!(needed, Needed::Authorities(_)));
        secrets.filter_map(|needed| needed.namespace()).chain(self.literal_credentials.iter().cloned())
    }

    /// How long an attempt takes at most: the wait for a forge, and the request.
    #[must_use]
    pub fn longest(&self) -> Duration {
        if self.look_ups.is_none() { self.timeout } else { self.timeout + LOOK_UP }
    }

    /// The identity of the receiver, which its lanes share: the origin of the URL, or the Secret key that hides it.
    #[must_use]
    pub fn origin(&self) -> String {
        match &self.destination {
            Destination::Url(url) => url.origin().to_owned(),
            Destination::Secret(key) => format!("secret:{}/{}/{}", key.namespace, key.name, key.key),
        }
    }
}

/// Resolves how a notification is sent, and tries it with a sample of each wanted transition. If the layers are not `trusted`, nothing is
/// rendered.
pub(crate) fn sending(
    spec: &NotificationSpec,
    places: &Places<'_>,
    given: &Given<'_>,
    trusted: Result<(), Problem>,
) -> Result<Sending, Problem> {
    let endpoint = spec.endpoint.as_ref().ok_or(Problem::Incomplete { field: "spec.endpoint" })?;
    let chosen = choose(spec, places, given)?;
    let mut sending = compiled(endpoint, &chosen, places, given)?;
    sending.literal_credentials = literal_credentials(spec, places);
    let wanted = chosen.reported(wanted(spec), spec.triggers.is_some())?;
    trusted?;
    try_samples(&sending, &wanted)?;
    Ok(sending)
}

/// Compiles all templates. A parameter is missing only if something that is sent uses it. So missing parameters are found by their use. All
/// of them are reported at once, with the other problems.
fn compiled(endpoint: &spec::Endpoint, chosen: &Chosen, places: &Places<'_>, given: &Given<'_>) -> Result<Sending, Problem> {
    let mut missing: Vec<String> = Vec::new();
    loop {
        let parameters = chosen.parameters(&missing)?.with_hidden(places.hidden.clone());
        let problems = match compile(endpoint, chosen, parameters, places, given) {
            Ok(sending) if missing.is_empty() => return Ok(sending),
            Ok(_) => Vec::new(),
            Err(problem) => problem.each(),
        };
        let unset: BTreeSet<_> = problems.iter().filter_map(Problem::unset).filter(|name| !missing.contains(name)).collect();
        if unset.is_empty() {
            let lacks = Some(&missing).filter(|missing| !missing.is_empty()).map(|missing| chosen.lacks(missing));
            return Err(Problem::several(lacks.into_iter().chain(problems)));
        }
        missing.extend(unset.into_iter().cloned());
    }
}

fn literal_credentials(spec: &NotificationSpec, places: &Places<'_>) -> BTreeSet<String> {
    let headers = spec.endpoint.iter().flat_map(|endpoint| endpoint.headers.iter().flatten());
    let parameters = spec.template.iter().flat_map(|template| template.parameters.iter().flatten());
    let headers = headers.map(|(name, _)| ("/endpoint/headers", name));
    let all = headers.chain(parameters.map(|(name, _)| ("/template/parameters", name)));
    all.filter(|(_, name)| is_secret(name))
        .map(|(at, name)| places.of(&format!("{at}/{}", escape(name))).to_owned())
        .collect()
}

fn compile(
    endpoint: &spec::Endpoint,
    chosen: &Chosen,
    parameters: Parameters,
    places: &Places<'_>,
    given: &Given<'_>,
) -> Result<Sending, Problem> {
    let with_remembered = parameters.clone().with_remembered(remembered(endpoint, chosen));
    let body = Body::compile(&chosen.content_type, &chosen.body, &places.seen_at(chosen.at, &with_remembered))
        .map_err(|e| Problem::template(&chosen.field, &e));
    let destination = destination(endpoint, chosen, &parameters, places, given.allow_http);
    let headers = headers(endpoint, chosen, &parameters, places);
    let ((destination, url_field), headers, body) = match (destination, headers, body) {
        (Ok(destination), Ok(headers), Ok(body)) => (destination, headers, body),
        (destination, headers, body) => {
            let problems = [destination.err(), headers.err(), body.err()];
            return Err(Problem::several(problems.into_iter().flatten()));
        }
    };
    let listed = parameters.with_fields(body.listed());
    let parameters = listed.map_err(|(name, error)| Problem::template(parameter_field(&name), &error))?;
    let (in_url, needs_source) = match &destination {
        Destination::Url(url) => (url.needs_commit(&parameters), url.needs_source(&parameters)),
        Destination::Secret(_) => (false, None),
    };
    let reads = Reads {
        url: matches!(&destination, Destination::Url(url) if url.reads_test(&parameters)),
        body: body.reads_test(&parameters),
    };
    let auth = endpoint.auth.as_ref().map(|a| auth(a, endpoint, chosen, places, given)).transpose()?.flatten();
    let headers_from = endpoint.headers_from.as_ref();
    let thread = thread(endpoint, chosen, &with_remembered, places)?;
    let look_ups = body.look_ups(&parameters);
    only_in_body((&destination, url_field.as_str()), &headers, thread.as_ref(), &parameters, look_ups)?;
    Ok(Sending {
        look_ups,
        marking: marking(chosen.metadata, reads),
        needs_source,
        needs_commit: in_url
            || body.needs_commit(&parameters)
            || headers.iter().any(|header| header.needs_commit(&parameters))
            || thread.as_ref().is_some_and(|thread| thread.needs_commit(&parameters)),
        destination,
        url_field,
        method: endpoint.method.unwrap_or(chosen.method),
        headers,
        headers_from: headers_from.map(|h| secret_name(&h.secret_ref.name, places.of("/endpoint/headersFrom"))),
        signing: endpoint.signing.as_ref().map(|s| signing(s, auth.as_ref(), places)).transpose()?,
        auth,
        tls: tls(endpoint.tls.as_ref(), places, given)?,
        timeout: duration("spec.endpoint.timeout", endpoint.timeout.as_deref(), TIMEOUT)?,
        success: chosen.success(endpoint)?,
        thread,
        connect_timeout: duration("spec.endpoint.connectTimeout", endpoint.connect_timeout.as_deref(), CONNECT_TIMEOUT)?,
        body,
        parameters,
        literal_credentials: BTreeSet::new(),
        body_field: chosen.field.clone(),
    })
}

/// Checks that nothing besides the body depends on what a forge says. `asked`: what the body asks for. Where and as what a request is sent must
/// not depend on the answer of a third party, and an empty text is no valid part of a path.
fn only_in_body(
    (destination, url_field): (&Destination, &str),
    headers: &[HeaderTemplate],
    thread: Option<&Thread>,
    parameters: &Parameters,
    asked: LookUps,
) -> Result<(), Problem> {
    let url = match destination {
        Destination::Url(url) if url.depends_on_forge(parameters, asked) => Some(url_field.to_owned()),
        Destination::Url(_) | Destination::Secret(_) => None,
    };
    let headers = headers.iter().filter(|header| header.depends_on_forge(parameters, asked));
    let headers = headers.map(|header| header_field(header.name()));
    let thread = thread.and_then(|thread| thread.depends_on_forge(parameters, asked)).map(str::to_owned);
    let problems: Vec<_> =
        url.into_iter().chain(headers).chain(thread).map(|at| Problem::invalid(at, ONLY_IN_BODY)).collect();
    if problems.is_empty() { Ok(()) } else { Err(Problem::several(problems)) }
}

fn destination(
    endpoint: &spec::Endpoint,
    chosen: &Chosen,
    parameters: &Parameters,
    places: &Places<'_>,
    allow_http: bool,
) -> Result<(Destination, String), Problem> {
    match (&endpoint.url, &endpoint.url_from) {
        (Some(url), None) => {
            let (source, field) = chosen.with_path(url)?;
            // Only the path contains templates, so the layer that set the path is the author.
            let seen = places.seen_at(if field == URL { "/endpoint/url" } else { chosen.at }, parameters);
            let url = UrlTemplate::compile(&source, &seen).map_err(|e| Problem::template(&field, &e))?;
            if url.scheme() == "http" && !allow_http && !is_service(url.host()) {
                return Err(Problem::InsecureScheme { field: URL });
            }
            Ok((Destination::Url(url), field))
        }
        (None, Some(from)) => {
            Ok((Destination::Secret(secret_key(&from.secret_key_ref, places.of("/endpoint/urlFrom"))), URL.to_owned()))
        }
        (None, None) => Err(Problem::Incomplete { field: "spec.endpoint.url or spec.endpoint.urlFrom" }),
        (Some(_), Some(_)) => Err(Problem::invalid("spec.endpoint", "set url or urlFrom, not both")),
    }
}

/// The headers of the template and of the user. The user's headers take precedence.
fn headers(
    endpoint: &spec::Endpoint,
    chosen: &Chosen,
    parameters: &Parameters,
    places: &Places<'_>,
) -> Result<Vec<HeaderTemplate>, Problem> {
    let mut all: BTreeMap<String, (&str, &str, Parameters)> = BTreeMap::new();
    for (name, value) in &chosen.headers {
        all.insert(name.to_ascii_lowercase(), (name, value, places.seen_at(chosen.at, parameters)));
    }
    let mut own = BTreeSet::new();
    for (name, value) in endpoint.headers.iter().flatten() {
        if !own.insert(name.to_ascii_lowercase()) {
            let message = "occurs twice (names are not case-sensitive); remove one";
            return Err(Problem::invalid(header_field(name), message));
        }
        let seen = places.seen_at(&format!("/endpoint/headers/{}", escape(name)), parameters);
        all.insert(name.to_ascii_lowercase(), (name, value, seen));
    }
    let (mut headers, mut problems) = (Vec::with_capacity(all.len()), Vec::new());
    for (name, value, parameters) in all.values() {
        match HeaderTemplate::compile(name, value, parameters) {
            Ok(header) => headers.push(header),
            Err(error) => problems.push(Problem::template(header_field(name), &error)),
        }
    }
    if problems.is_empty() { Ok(headers) } else { Err(Problem::several(problems)) }
}

pub(crate) fn header_field(name: &str) -> String {
    format!("spec.endpoint.headers[{name}]")
}

/// Returns the transitions for which this notification has a trigger. Returns all transitions if `triggers` is not set.
fn wanted(spec: &NotificationSpec) -> Vec<TransitionType> {
    let Some(triggers) = &spec.triggers else { return TransitionType::ALL.to_vec() };
    TransitionType::ALL.into_iter().filter(|type_| triggers.iter().any(|t| t.type_ == *type_)).collect()
}
