//! Composes a request from the rendered parts, the values of Secrets, and our own headers about the message.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, AUTHORIZATION, CONTENT_TYPE, HeaderName, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Method as HttpMethod, Request, Uri};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::forge::ForgeRequest;
use super::outgoing::Outgoing;
use super::signing::{Signing, WEBHOOK_SIGNATURE};
use super::timely::Timely;
use crate::addresses::policy::Policy;
use crate::attempt::NotSent;
use crate::client;
use crate::client::proxy::Proxy;
use crate::client::tls::Tls;
use crate::secrets::contents::Contents;
use crate::secrets::redact::Hidden;
use crate::tokens::Lent;
use relaybook_api::notification::Method;
use relaybook_api::notification::credentials::{PASSWORD, SecretKey, TOKEN, USERNAME};
use relaybook_api::{ObjectName, Time};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
/// <https://www.w3.org/TR/trace-context/#traceparent-header>
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// The credentials from Secrets that are added to a request.
pub(crate) enum Credentials {
    None,
    Basic { username: SecretString, password: SecretString },
    Header(HeaderName, HeaderValue),
}

/// What a request needs in addition to the rendered parts. It is not `Debug`, because the URL can be a secret.
pub(crate) struct Prepared {
    pub(crate) url: Url,
    pub(crate) credentials: Credentials,
    /// The headers from a Secret.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) signing: Signing,
    pub(crate) tls: Tls,
    pub(crate) hidden: Hidden,
    /// The Secrets that were read for the request.
    pub(crate) used: Vec<(ObjectName, Arc<Contents>)>,
    /// The issued token that is sent.
    pub(crate) lent: Option<Lent>,
}

/// Returns the URL in the value of a key, if the policy allows it, and adds it to `hidden`.
pub(crate) fn secret_url(
    contents: &Contents,
    key: &SecretKey,
    policy: &Policy,
    hidden: &mut Hidden,
) -> Result<Url, NotSent> {
    let url = parsed_url(contents, key)?;
    hidden.add_url(&url);
    match policy.url(&url) {
        Ok(()) => Ok(url),
        Err(NotSent::InvalidRequest(problem)) => Err(NotSent::SecretInvalid { key: key.clone(), problem }),
        Err(why) => Err(why),
    }
}

/// Returns the URL in the value of a key.
///
/// A parser of URLs removes line breaks, so two lines would be one URL. A literal URL with a line break is refused, too.
pub(crate) fn parsed_url(contents: &Contents, key: &SecretKey) -> Result<Url, NotSent> {
    let text = visible(contents.text(key)?, key, Characters::All)?;
    let is_quoted = text.starts_with(['"', '\'']);
    let problem = if is_quoted { "is not a URL: remove the quotation marks" } else { "is not a URL" };
    Url::parse(text).map_err(|_| NotSent::SecretInvalid { key: key.clone(), problem })
}

/// The characters that a value may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Characters {
    /// Those that an editor shows.
    All,
    /// Those of them that are ASCII.
    Ascii,
}

/// Returns a value if all its characters are allowed. Otherwise the error names the first one that is not, because an editor does not show it.
pub(super) fn visible<'t>(text: &'t str, key: &SecretKey, allowed: Characters) -> Result<&'t str, NotSent> {
    let odd = text.chars().zip(1..).find_map(|(c, at)| Some((at, refused(c, allowed)?)));
    match odd {
        Some((at, what)) => Err(NotSent::SecretCharacter { key: key.clone(), at, what }),
        None => Ok(text),
    }
}

/// Returns what a character is, if a value must not contain it.
fn refused(c: char, allowed: Characters) -> Option<&'static str> {
    match c {
        '\n' | '\r' => Some("a line break"),
        '\0' => Some("the character NUL"),
        '\u{feff}' => Some("a byte order mark"),
        c if relaybook_text::is_invisible(c) => Some("an invisible character"),
        '\u{a0}' | '\u{202f}' => Some("a no-break space"),
        c if c.is_control() => Some("a control character"),
        '\u{2018}'..='\u{201f}' if allowed == Characters::Ascii => Some("a typographic quotation mark"),
        c if allowed == Characters::Ascii && !c.is_ascii() => Some("not an ASCII character"),
        _ => None,
    }
}

/// Reads the user name and the password from a Secret, and adds them to `hidden`.
pub(crate) fn basic(contents: &Contents, namespace: &str, name: &str, hidden: &mut Hidden) -> Result<Credentials, NotSent> {
    let (user_key, pass_key) = (SecretKey::new(namespace, name, USERNAME), SecretKey::new(namespace, name, PASSWORD));
    let (username, password) = (contents.text(&user_key)?, contents.text(&pass_key)?);
    hidden.add(username);
    login((user_key, username), (pass_key, password), hidden)
}

/// Reads a password or a token for Git from a Secret, and the user name, if the Secret has one. Adds them to `hidden`.
pub(crate) fn git(contents: &Contents, name: &ObjectName, user: &str, hidden: &mut Hidden) -> Result<Credentials, NotSent> {
    let key = |key| SecretKey::new(&name.namespace, &name.name, key);
    let username = optional(contents, &key(USERNAME))?;
    let password = match optional(contents, &key(PASSWORD))? {
        Some(password) => Some((key(PASSWORD), password)),
        None => optional(contents, &key(TOKEN))?.map(|token| (key(TOKEN), token)),
    };
    let password = password.ok_or_else(|| NotSent::KeyMissing(key("password or token")))?;
    username.inspect(|username| hidden.add(username));
    login((key(USERNAME), username.unwrap_or(user)), password, hidden)
}

/// Returns the value of a key, or `None` if the Secret has no such key.
fn optional<'c>(contents: &'c Contents, key: &SecretKey) -> Result<Option<&'c str>, NotSent> {
    match contents.text(key) {
        Err(NotSent::KeyMissing(_)) => Ok(None),
        value => value.map(Some),
    }
}

/// Checks a user name and a password, and adds the password to `hidden`.
fn login(user: (SecretKey, &str), pass: (SecretKey, &str), hidden: &mut Hidden) -> Result<Credentials, NotSent> {
    let (username, password) = (user.1, pass.1);
    if username.contains(':') {
        return Err(NotSent::SecretInvalid { key: user.0, problem: "a user name must not contain a colon" });
    }
    for (key, value) in [user, pass] {
        visible(value, &key, Characters::All)?;
    }
    hidden.add(password);
    hidden.add_basic(username, password);
    Ok(Credentials::Basic { username: username.into(), password: password.into() })
}

/// Reads the token for a header from a Secret, and adds it to `hidden`.
pub(crate) fn token(
    contents: &Contents,
    key: &SecretKey,
    header: &HeaderName,
    scheme: &str,
    hidden: &mut Hidden,
) -> Result<Credentials, NotSent> {
    if is_ours(header) {
        return Err(NotSent::InvalidRequest("endpoint.auth.token.header names a header that Relaybook sets itself"));
    }
    let token = visible(contents.text(key)?, key, Characters::Ascii)?;
    let line = if scheme.is_empty() { token.to_owned() } else { format!("{scheme} {token}") };
    let mut value = HeaderValue::from_str(&line).map_err(|_| NotSent::SecretInvalid {
        key: key.clone(),
        problem: "is not allowed in a header: use printable ASCII",
    })?;
    value.set_sensitive(true);
    hidden.add(token);
    Ok(Credentials::Header(header.clone(), value))
}

/// Headers that only Relaybook or its HTTP client sets: about the message, the client, the connection and the end of a message. Values
/// of a template are removed. Two different ends of a message would allow request smuggling. The headers for the proxy belong to the
/// operator. The host must be that of the URL, because the policy checked the URL.
const OURS: [HeaderName; 14] = [
    WEBHOOK_ID,
    WEBHOOK_TIMESTAMP,
    WEBHOOK_SIGNATURE,
    header::USER_AGENT,
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
];

/// Whether only Relaybook or its HTTP client sets this header. The content type is that of the template.
pub(super) fn is_ours(header: &HeaderName) -> bool {
    OURS.contains(header) || header == CONTENT_TYPE || header.as_str() == "proxy-connection"
}

/// The methods of requests to forges.
const METHODS: [HttpMethod; 5] = [HttpMethod::GET, HttpMethod::POST, HttpMethod::PATCH, HttpMethod::PUT, HttpMethod::DELETE];

/// The parts in which the requests of one attempt differ.
pub(crate) struct Own<'r> {
    pub(crate) url: &'r Url,
    /// The method and the body. `None`: a GET request without a body.
    pub(crate) sends: Option<(Method, &'r Bytes)>,
}

/// Builds a request of a delivery. `proxy`: the proxy, if it forwards the request itself instead of opening a tunnel.
pub(crate) fn delivery(
    out: &Outgoing,
    own: &Own<'_>,
    prepared: &Prepared,
    started: Time,
    proxy: Option<&Proxy>,
) -> Result<Request<Timely>, NotSent> {
    let (method, body) = match own.sends {
        None => (HttpMethod::GET, None),
        Some((Method::Post, body)) => (HttpMethod::POST, Some(body)),
        Some((Method::Put, body)) => (HttpMethod::PUT, Some(body)),
        Some((Method::Patch, body)) => (HttpMethod::PATCH, Some(body)),
    };
    let mut headers = rendered(&out.headers);
    for (name, value) in &prepared.headers {
        headers.insert(name, value.clone());
    }
    let invalid_id = |_| NotSent::InvalidRequest("the delivery id contains characters that are not allowed in a header");
    let id = HeaderValue::from_str(&out.id).map_err(invalid_id)?;
    headers.insert(WEBHOOK_ID, id);
    if let Some(parent) = out.trace_parent.as_ref().filter(|_| !headers.contains_key(TRACE_PARENT)) {
        headers.insert(TRACE_PARENT, parent.clone());
    }
    headers.insert(WEBHOOK_TIMESTAMP, started.as_second().into());
    let signed = body.map_or(&[][..], |body| body);
    if let Some((name, signature)) = prepared.signing.header(&out.id, started.as_second(), signed)? {
        headers.insert(name, signature);
    }
    let Some(body) = body else {
        headers.remove(CONTENT_TYPE);
        return composed(method, own.url, headers, prepared, proxy, Timely::none(out.until));
    };
    composed(method, own.url, headers, prepared, proxy, Timely::new(body.clone(), out.until))
}

/// Builds a request to a forge. `proxy`: as for a delivery.
pub(crate) fn to_forge(
    asked: &ForgeRequest,
    prepared: &Prepared,
    proxy: Option<&Proxy>,
) -> Result<Request<Timely>, NotSent> {
    if !METHODS.contains(&asked.method) {
        return Err(NotSent::InvalidRequest("the method is not GET, POST, PATCH, PUT or DELETE"));
    }
    let mut headers = rendered(&asked.headers);
    headers.remove(header::ACCEPT_ENCODING);
    let bodiless = asked.body.is_empty() && matches!(asked.method, HttpMethod::GET | HttpMethod::DELETE);
    let body = if bodiless { Timely::none(asked.until) } else { Timely::new(asked.body.clone(), asked.until) };
    composed(asked.method.clone(), &prepared.url, headers, prepared, proxy, body)
}

/// Returns the headers that were rendered, and those that every request has.
fn rendered(list: &[(HeaderName, HeaderValue)]) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(list.len() + 6);
    for (name, value) in list {
        headers.append(name, value.clone());
    }
    for ours in OURS {
        headers.remove(ours);
    }
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(client::USER_AGENT));
    headers
}

/// Adds the credentials, and builds the request.
fn composed(
    method: HttpMethod,
    url: &Url,
    mut headers: HeaderMap,
    prepared: &Prepared,
    proxy: Option<&Proxy>,
    body: Timely,
) -> Result<Request<Timely>, NotSent> {
    match &prepared.credentials {
        Credentials::None => {}
        Credentials::Basic { username, password } => {
            let credentials = client::basic(username.expose_secret(), password.expose_secret());
            let unfit =
                NotSent::InvalidRequest("user name and password contain characters that are not allowed in a header");
            headers.insert(AUTHORIZATION, credentials.ok_or(unfit)?);
        }
        Credentials::Header(name, value) => {
            headers.insert(name, value.clone());
        }
    }
    if let Some(credentials) = proxy.and_then(Proxy::authorization) {
        headers.insert(PROXY_AUTHORIZATION, credentials);
    }
    let unwritable = |_| NotSent::InvalidRequest("the URL is not valid in an HTTP request");
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = Uri::try_from(url.as_str()).map_err(unwritable)?;
    *request.headers_mut() = headers;
    Ok(request)
}
