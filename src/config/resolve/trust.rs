//! What layers may do with what others wrote. Pure.
//!
//! The credential rule: credentials that one layer wrote are never sent to where a more specific layer leads.
//! In: the layers, folded one after the other. Out: `CredentialOriginMismatch`, with what is whose. Otherwise whoever may write a
//! target could have the token of whoever wrote the notification sent to a host of his own.
//!
//! Where a request goes is its origin (scheme, host, port), and whether that is really who answers: `tls.caFrom` and
//! `tls.insecureSkipVerify`. To change the path is harmless, and so is to say the same origin once more. A reference is the same only
//! if it resolves in the same namespace: a Secret of the team may be called as the platform's is, and hold another URL.
//!
//! Parameters: one that a layer of another namespace wrote is hidden from the templates that a more specific layer wrote, unless
//! `shareParameters` is set there. Otherwise a template that compares could find out what it is.

use serde_json::{Map, Value};

use crate::config::layers::{Folded, Source, escape};
use crate::config::problem::Problem;
use crate::render::{Hidden, origin_of};

const SHARES: &str = "/template/shareParameters";

/// Where a layer's credentials would go if no other lay above it.
#[derive(Clone, Debug, PartialEq)]
struct Way {
    /// The origin, or the reference to it.
    to: Option<To>,
    /// `tls.caFrom`.
    authorities: Option<Reference>,
    /// `tls.insecureSkipVerify`.
    anybody: bool,
    /// Whether the layers of this namespace so far share their parameters with others.
    shares: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum To {
    Origin(String),
    Secret(Reference),
    /// Not a URL: the same as nothing else.
    Unreadable,
}

/// A reference as it is written, and the namespace in which it resolves.
#[derive(Clone, Debug, PartialEq)]
struct Reference {
    written: Value,
    namespace: Option<String>,
}

impl Way {
    fn of(folded: &Folded) -> Self {
        let endpoint = |path: &str| folded.value.get("endpoint").and_then(|e| e.pointer(path));
        let reference = |path: &str| {
            let namespace = folded.namespace(&format!("/endpoint{path}")).map(str::to_owned);
            endpoint(path).map(|written| Reference { written: written.clone(), namespace })
        };
        let url = endpoint("/url").and_then(Value::as_str);
        let to = url.map(|url| origin_of(url).map_or(To::Unreadable, To::Origin));
        Self {
            to: to.or_else(|| reference("/urlFrom").map(To::Secret)),
            authorities: reference("/tls/caFrom"),
            anybody: endpoint("/tls/insecureSkipVerify").and_then(Value::as_bool).unwrap_or(false),
            shares: folded.last_namespace() == folded.namespace(SHARES)
                && folded.value.get("template").and_then(|t| t.get("shareParameters")) == Some(&Value::Bool(true)),
        }
    }
}

/// What every layer so far came to, for the rule.
#[derive(Clone, Debug, Default)]
pub(in crate::config) struct Ways(Vec<Way>);

impl Ways {
    /// Takes note of the state after one more layer.
    pub(in crate::config) fn see(&mut self, folded: &Folded) {
        self.0.push(Way::of(folded));
    }

    /// The parameters that templates of this namespace may not see.
    pub(in crate::config) fn hidden(&self, folded: &Folded, namespace: &str) -> Hidden {
        let parameters = folded.value.get("template").and_then(|t| t.get("parameters")).and_then(Value::as_object);
        let names = parameters.into_iter().flat_map(Map::keys);
        let hidden = names.filter_map(|name| {
            let pointer = format!("/template/parameters/{}", escape(name));
            let owner = folded.namespace(&pointer).filter(|owner| *owner != namespace)?;
            let shares = folded.last_of(owner).and_then(|index| self.0.get(index)).is_some_and(|way| way.shares);
            (!shares).then(|| (name.clone(), self::name(folded.author(&pointer))))
        });
        hidden.collect()
    }

    /// Whether all credentials go only where those who wrote them could see.
    pub(in crate::config) fn check(&self, folded: &Folded) -> Result<(), Problem> {
        let Some(last) = self.0.last().filter(|last| last.to.is_some()) else { return Ok(()) };
        for credential in credentials(&folded.value) {
            let Some(then) = folded.wrote_first(&credential).and_then(|index| self.0.get(index)) else { continue };
            let field = if last.to != then.to || last.to == Some(To::Unreadable) {
                destination(folded)
            } else if last.anybody && !then.anybody {
                "/endpoint/tls/insecureSkipVerify"
            } else if last.authorities != then.authorities {
                "/endpoint/tls/caFrom"
            } else {
                continue;
            };
            let (owner, author) = (folded.first_author(&credential), folded.author(field));
            return Err(Problem::CredentialOrigin(format!(
                "{} is from {}, and {} from {}: credentials are not sent where a more specific layer leads; set them in that \
                 layer, too, or take them away there with remove",
                dotted(&credential),
                name(owner),
                dotted(field),
                name(author),
            )));
        }
        Ok(())
    }
}

fn destination(folded: &Folded) -> &'static str {
    let from_secret = folded.value.get("endpoint").and_then(|e| e.get("urlFrom")).is_some();
    if from_secret { "/endpoint/urlFrom" } else { "/endpoint/url" }
}

/// The fields that carry credentials, as JSON Pointers.
fn credentials(value: &Map<String, Value>) -> Vec<String> {
    let Some(endpoint) = value.get("endpoint") else { return Vec::new() };
    // A URL that stands in a Secret is secret itself: of those who answer, only the right one may see it.
    let whole = [
        "/auth/basic/secretRef",
        "/auth/token/secretKeyRef",
        "/signing/secretRef",
        "/tls/clientCertificate/secretRef",
        "/urlFrom/secretKeyRef",
    ];
    let mut all: Vec<_> = whole.iter().filter(|p| endpoint.pointer(p).is_some()).map(|p| format!("/endpoint{p}")).collect();
    let named = |of: Option<&Value>, at: &str| -> Vec<String> {
        let names = of.and_then(Value::as_object).into_iter().flat_map(Map::keys);
        names.filter(|name| is_secret(name)).map(|name| format!("{at}/{}", escape(name))).collect()
    };
    all.extend(named(endpoint.get("headers"), "/endpoint/headers"));
    all.extend(named(value.get("template").and_then(|t| t.get("parameters")), "/template/parameters"));
    all
}

/// Whether what has this name is likely a credential: a header such as `Authorization` or `X-Api-Key`, a parameter such as
/// `routingKey`. Too many rather than too few, for what is named here only has to be said by the layer that leads elsewhere.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = ["auth", "cookie", "token", "secret", "key", "passw", "credential", "session", "signature", "jwt", "bearer"];
    words.iter().any(|word| name.contains(word))
}

fn name(source: Option<&Source>) -> String {
    source.map_or_else(|| "a more specific layer".to_owned(), ToString::to_string)
}

fn dotted(pointer: &str) -> String {
    format!("spec{}", pointer.replace('/', "."))
}

#[cfg(test)]
mod tests;
