//! A request that had no answer, in words of our own.
//!
//! The messages of libraries name hosts (`certificate not valid for name ...`) and URLs, and the URL may be a secret. So no
//! text here is taken from an error: its type picks one out of fixed words. Host and port are named where the URL is written out
//! in the configuration, in which they are always literal; of a URL in a Secret nothing is.

use std::error::Error;
use std::io;
use std::time::Duration;

use hyper_util::client::legacy;
use rustls::CertificateError;

use super::{AttemptResult, Failure, FailureKind, NotSent};
use crate::api::duration_text;
use crate::webhook::client::connect::{TooLate, Unresolved};
use crate::webhook::client::proxy::Proxy;
use crate::webhook::egress::resolver::AllForbidden;
use crate::webhook::request::outgoing::{Destination, Outgoing};

/// What an error of the HTTP library means.
pub fn explain(error: &legacy::Error, out: &Outgoing) -> AttemptResult {
    if let Some(AllForbidden(rule)) = find(error) {
        return AttemptResult::NotSent(NotSent::DestinationForbidden(*rule));
    }
    let (kind, text) = words(error, place(out).as_deref(), out.connect_timeout);
    failed(kind, text)
}

/// Host and port of the receiver, if they may be named.
fn place(out: &Outgoing) -> Option<String> {
    let Destination::Url(url) = &out.destination else { return None };
    let port = url.port_or_known_default().map_or_else(String::new, |port| format!(":{port}"));
    url.host_str().map(|host| format!("{host}{port}"))
}

/// In which part a request failed, and that in fixed words. `place`: host and port, where they may be named.
pub fn words(error: &legacy::Error, place: Option<&str>, connect_timeout: Duration) -> (FailureKind, String) {
    let io = innermost(error);
    let after = |word: &str| place.map_or_else(String::new, |place| format!(" {word} {place}"));
    if let Some(tls) = find::<rustls::Error>(error) {
        (FailureKind::Tls, format!("TLS{}: {}", after("with"), tls_words(tls)))
    } else if is_timeout(error) && error.is_connect() {
        (FailureKind::ConnectTimeout, format!("no connection{} within {}", after("to"), duration_text(connect_timeout)))
    } else if is_timeout(error) {
        (FailureKind::Timeout, format!("the connection{} timed out", after("to")))
    } else if is_dns(error) {
        (FailureKind::Dns, format!("the name{} could not be resolved", after("of")))
    } else if error.is_connect() {
        // The words of `ErrorKind` are fixed: connection refused, host unreachable, ...
        let why = io.map_or_else(String::new, |kind| format!(": {kind}"));
        (FailureKind::Connect, format!("no connection{}{why}", after("to")))
    } else if let Some(kind) = io {
        (FailureKind::Closed, format!("the connection{} broke: {kind}", after("to")))
    } else {
        (FailureKind::Closed, format!("the connection{} ended without an HTTP answer", after("to")))
    }
}

fn is_timeout(error: &legacy::Error) -> bool {
    let quiet = || find::<hyper::Error>(error).is_some_and(hyper::Error::is_timeout);
    find::<TooLate>(error).is_some() || innermost(error) == Some(io::ErrorKind::TimedOut) || quiet()
}

fn is_dns(error: &legacy::Error) -> bool {
    find::<Unresolved>(error).is_some()
}

/// What an error of the HTTP library means when all requests go through a proxy, and this one `plain`, that is, without a tunnel. What
/// went wrong on the way to the proxy, or was the proxy's own doing, is told of it, by host and port.
pub fn explain_by_proxy(error: &legacy::Error, out: &Outgoing, proxy: &Proxy, plain: bool) -> AttemptResult {
    if !error.is_connect() {
        return explain(error, out);
    }
    if is_timeout(error) {
        return failed(
            FailureKind::ConnectTimeout,
            format!("no connection by the proxy {proxy} within {}", duration_text(out.connect_timeout)),
        );
    }
    let refusal = tunnel_error(error);
    if refusal.is_none() && !plain {
        // The tunnel stands, and what came after it was with the receiver.
        return explain(error, out);
    }
    let words = match (refusal.as_deref(), find::<rustls::Error>(error)) {
        (Some("proxy authorization required"), _) => return proxy_wants_credentials(proxy),
        (Some("unsuccessful"), _) => format!("the proxy {proxy} refuses to connect to the receiver, or cannot"),
        (Some("unexpected end of file" | "proxy response headers too long"), _) => {
            format!("the proxy {proxy} does not answer as a proxy does")
        }
        (_, Some(tls)) => format!("the proxy {proxy}: TLS: {}", tls_words(tls)),
        _ if is_dns(error) => format!("the name of the proxy {proxy} could not be resolved"),
        _ => match find::<io::Error>(error) {
            Some(io) => format!("no connection to the proxy {proxy}: {}", io.kind()),
            None => format!("no connection to the proxy {proxy}"),
        },
    };
    failed(FailureKind::Connect, words)
}

/// The proxy has answered 407.
pub fn proxy_wants_credentials(proxy: &Proxy) -> AttemptResult {
    failed(FailureKind::Connect, format!("the proxy {proxy} asks for credentials, or does not accept those that it got"))
}

/// What hyper-util says of a tunnel that could not be made, if that is the trouble. Its type is not public, so it is told by its
/// words; one that is worded in another way still counts as one without a connection.
fn tunnel_error(error: &legacy::Error) -> Option<String> {
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(error) = next {
        if let Some(words) = error.to_string().strip_prefix("tunnel error: ") {
            return Some(words.to_owned());
        }
        next = error.source();
    }
    None
}

/// Nothing came in the time that the whole attempt has.
pub fn no_answer(out: &Outgoing) -> AttemptResult {
    let from = place(out).map_or_else(String::new, |place| format!(" from {place}"));
    failed(FailureKind::Timeout, format!("no answer{from} within {}", duration_text(out.timeout)))
}

/// No HTTP client could be made, which is the fault of this machine.
pub fn no_client() -> AttemptResult {
    failed(FailureKind::Connect, "no HTTP client could be made".to_owned())
}

fn failed(kind: FailureKind, text: String) -> AttemptResult {
    AttemptResult::Failed(Failure { kind, text })
}

/// What an I/O error is at its core: rustls puts one into another, whose kind says nothing.
fn innermost(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut found: &io::Error = find(error)?;
    while let Some(inner) = found.get_ref().and_then(|inner| find(inner as &(dyn Error + 'static))) {
        found = inner;
    }
    Some(found.kind())
}

/// The first error of this type among an error and its sources.
fn find<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // `io::Error::source` skips the error that it was made from.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inner.map(|e| e as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}

fn tls_words(error: &rustls::Error) -> String {
    let words = match error {
        rustls::Error::InvalidCertificate(why) => certificate_words(why),
        // The name of a constant of the protocol, or its number.
        rustls::Error::AlertReceived(alert) => return format!("the receiver broke off with the alert {alert:?}"),
        rustls::Error::PeerIncompatible(_) => "no version or cipher in common",
        rustls::Error::InvalidMessage(_) => "the receiver does not speak TLS",
        _ => "the handshake failed",
    };
    words.to_owned()
}

fn certificate_words(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "the certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "the certificate is not valid yet",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another name"
        }
        CertificateError::UnknownIssuer => "the certificate is self-signed or from an unknown authority",
        CertificateError::BadSignature => "the certificate is not signed by the authority that it names",
        CertificateError::Revoked => "the certificate is revoked",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not for a server"
        }
        _ => "the certificate is not acceptable",
    }
}
