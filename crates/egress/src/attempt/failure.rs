//! Creates the messages for requests without an answer. All texts are our own.
//!
//! The messages of libraries contain hosts (`certificate not valid for name ...`) and URLs, and the URL can be a secret. So no text
//! here comes from an error: the type of the error selects one of several fixed texts. The text contains host and port if the
//! configuration contains the URL, because they are literal there. It contains no part of a URL that comes from a Secret.

use std::error::Error;
use std::io;
use std::time::Duration;

use hyper_util::client::legacy;
use rustls::CertificateError;

use super::{AttemptResult, Failure, FailureKind, NotSent};
use crate::addresses::resolver::AllForbidden;
use crate::client::connect::{ConnectTimedOut, Unresolved};
use crate::client::proxy::Proxy;
use crate::request::exchange::Terms;
use relaybook_api::duration_text;
use relaybook_runtime::certificates::remedy;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// No request was made.
    NotSent(NotSent),
    /// The request failed.
    Failed(Failure),
}

impl From<NoAnswer> for AttemptResult {
    fn from(why: NoAnswer) -> Self {
        match why {
            NoAnswer::NotSent(why) => Self::NotSent(why),
            NoAnswer::Failed(why) => Self::Failed(why),
        }
    }
}

/// Returns the result of a request that ended with this error of the HTTP library.
pub fn explain(error: &legacy::Error, terms: &Terms<'_>) -> NoAnswer {
    if let Some(AllForbidden(rule)) = find(error) {
        return NoAnswer::NotSent(NotSent::DestinationForbidden(*rule));
    }
    let (kind, text) = describe(error, host_and_port(terms).as_deref(), terms.connect_timeout);
    failed(kind, text)
}

/// Returns host and port of the receiver, if a message can contain them.
fn host_and_port(terms: &Terms<'_>) -> Option<String> {
    let url = terms.shown?;
    let port = url.port_or_known_default().map_or_else(String::new, |port| format!(":{port}"));
    url.host_str().map(|host| format!("{host}{port}"))
}

/// Returns the part of a request that failed, and a fixed text for it. `receiver`: host and port, if the text can contain them.
pub fn describe(error: &legacy::Error, receiver: Option<&str>, connect_timeout: Duration) -> (FailureKind, String) {
    let io = innermost(error);
    let after = |word: &str| receiver.map_or_else(String::new, |receiver| format!(" {word} {receiver}"));
    if let Some(tls) = find::<rustls::Error>(error) {
        (FailureKind::Tls, format!("TLS{}: {}", after("with"), describe_tls(tls)))
    } else if is_timeout(error) && error.is_connect() {
        (FailureKind::ConnectTimeout, format!("no connection{} within {}", after("to"), duration_text(connect_timeout)))
    } else if is_timeout(error) {
        (FailureKind::Timeout, format!("the connection{} timed out", after("to")))
    } else if is_dns(error) {
        (FailureKind::Dns, format!("the name{} could not be resolved", after("of")))
    } else if error.is_connect() {
        // The texts of `ErrorKind` are fixed: connection refused, host unreachable, ...
        let why = io.map_or_else(String::new, |kind| format!(": {kind}"));
        (FailureKind::Connect, format!("no connection{}{why}", after("to")))
    } else if let Some(kind) = io {
        (FailureKind::Closed, format!("the connection{} was interrupted: {kind}", after("to")))
    } else {
        (FailureKind::Closed, format!("the connection{} ended without an HTTP answer", after("to")))
    }
}

fn is_timeout(error: &legacy::Error) -> bool {
    let quiet = || find::<hyper::Error>(error).is_some_and(hyper::Error::is_timeout);
    find::<ConnectTimedOut>(error).is_some() || innermost(error) == Some(io::ErrorKind::TimedOut) || quiet()
}

fn is_dns(error: &legacy::Error) -> bool {
    find::<Unresolved>(error).is_some()
}

/// Returns the result of a request through a proxy that ended with this error. `plain`: the request uses no tunnel. If the connection to
/// the proxy failed, or the proxy itself caused the error, the message contains host and port of the proxy.
pub fn explain_by_proxy(error: &legacy::Error, terms: &Terms<'_>, proxy: &Proxy, plain: bool) -> NoAnswer {
    if !error.is_connect() {
        return explain(error, terms);
    }
    if is_timeout(error) {
        return failed(
            FailureKind::ConnectTimeout,
            format!("no connection through the proxy {proxy} within {}", duration_text(terms.connect_timeout)),
        );
    }
    let refusal = tunnel_error(error);
    if refusal.is_none() && !plain {
        // The tunnel is established, so the error concerns the receiver.
        return explain(error, terms);
    }
    let text = match (refusal.as_deref(), find::<rustls::Error>(error)) {
        (Some("proxy authorization required"), _) => return proxy_wants_credentials(proxy),
        (Some("unsuccessful"), _) => {
            format!("the proxy {proxy} refuses to connect to the receiver, or cannot connect to it")
        }
        (Some("unexpected end of file" | "proxy response headers too long"), _) => {
            format!("the proxy {proxy} sent an invalid answer")
        }
        (_, Some(tls)) => format!("the proxy {proxy}: TLS: {}", describe_tls(tls)),
        _ if is_dns(error) => format!("the name of the proxy {proxy} could not be resolved"),
        _ => match find::<io::Error>(error) {
            Some(io) => format!("no connection to the proxy {proxy}: {}", io.kind()),
            None => format!("no connection to the proxy {proxy}"),
        },
    };
    failed(FailureKind::Connect, text)
}

/// Returns the result for an answer 407 of the proxy.
pub fn proxy_wants_credentials(proxy: &Proxy) -> NoAnswer {
    failed(FailureKind::Connect, format!("the proxy {proxy} requires credentials, or rejects the configured ones"))
}

/// Returns the text of hyper-util for a tunnel that could not be established, if that is the cause. The type of the error is not public, so
/// it is recognised by its text. An error with another text still counts as a failed connection.
fn tunnel_error(error: &legacy::Error) -> Option<String> {
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(error) = next {
        if let Some(text) = error.to_string().strip_prefix("tunnel error: ") {
            return Some(text.to_owned());
        }
        next = error.source();
    }
    None
}

/// Returns the result if no answer arrived within the timeout of the whole request.
pub fn no_answer(terms: &Terms<'_>) -> NoAnswer {
    failed(FailureKind::Timeout, format!("no answer{} within {}", from(terms), duration_text(terms.timeout)))
}

/// Returns the result if an answer has begun, but did not end within the timeout of the whole request.
pub fn late_body(terms: &Terms<'_>) -> NoAnswer {
    failed(FailureKind::Timeout, format!("no complete answer{} within {}", from(terms), duration_text(terms.timeout)))
}

/// Returns the result if the connection ended before the end of an answer.
pub fn broken_body(terms: &Terms<'_>) -> NoAnswer {
    failed(FailureKind::Closed, format!("the answer{} ended too early", from(terms)))
}

fn from(terms: &Terms<'_>) -> String {
    host_and_port(terms).map_or_else(String::new, |receiver| format!(" from {receiver}"))
}

/// Returns the result if no HTTP client could be created. The cause is this machine, not the receiver.
pub fn no_client() -> NoAnswer {
    failed(FailureKind::Connect, "the HTTP client could not be created".to_owned())
}

fn failed(kind: FailureKind, text: String) -> NoAnswer {
    NoAnswer::Failed(Failure { kind, text })
}

/// Returns the kind of the innermost I/O error. rustls wraps it in another I/O error, whose kind is not informative.
fn innermost(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut found: &io::Error = find(error)?;
    while let Some(inner) = found.get_ref().and_then(|inner| find(inner as &(dyn Error + 'static))) {
        found = inner;
    }
    Some(found.kind())
}

/// Returns the first error of this type among an error and its sources.
fn find<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // `io::Error::source` skips the error from which it was created.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inner.map(|e| e as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}

fn describe_tls(error: &rustls::Error) -> String {
    let text = match error {
        rustls::Error::InvalidCertificate(why) => match remedy(why, "caFrom") {
            Some(remedy) => return format!("the certificate {remedy}"),
            None => describe_certificate(why),
        },
        // The name of a protocol constant, or its number.
        rustls::Error::AlertReceived(alert) => return format!("the receiver closed the connection with alert {alert:?}"),
        rustls::Error::PeerIncompatible(_) => "there is no common TLS version or cipher",
        rustls::Error::InvalidMessage(_) => "the receiver does not speak TLS",
        _ => "the handshake failed",
    };
    text.to_owned()
}

fn describe_certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "the certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "the certificate is not valid yet",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is not valid for this host name"
        }
        CertificateError::UnknownIssuer => "the certificate is self-signed or signed by an unknown CA",
        CertificateError::BadSignature => "the certificate is not signed by the CA that it names as issuer",
        CertificateError::Revoked => "the certificate is revoked",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not valid for a server"
        }
        _ => "the certificate is not acceptable",
    }
}
