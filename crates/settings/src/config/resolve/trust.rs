//! Limits what a layer can do with the credentials and parameters of other layers. Pure.
//!
//! The credential rule: credentials of one layer are never sent to a receiver that a more specific layer sets. In: the layers, merged one
//! by one. Out: `CredentialOriginMismatch`, with both layers. Otherwise the author of a target could send the token of the notification's
//! author to any host.
//!
//! The receiver is the origin of the URL (scheme, host, port), and how its identity is verified (`tls.caFrom` and
//! `tls.insecureSkipVerify`). A layer can change the path, or set the same origin again, without harm. A reference is the same only if it
//! resolves in the same namespace. A Secret of the team can have the same name as a Secret of the platform and contain another URL.
//!
//! `success`, and the expressions of `thread`, read the answers to the credentials, and their results are visible. So a layer of another
//! namespace cannot set them either. It can remove them, or choose a built-in template, whose rules tell only which class of error an answer
//! is, and the ID of the message.
//!
//! `auth.githubApp` and `auth.oauth2` are no merged objects. A layer replaces them as a whole, with a Secret or a ServiceAccount of its own, so no layer can change
//! which tokens another one requests, or where.
//!
//! A parameter that a layer of another namespace set is hidden from the templates of more specific layers, unless `shareParameters` is set
//! there. Otherwise a template could find out the value by comparisons.

use serde_json::{Map, Value};

use crate::config::layers::{Folded, Source, escape};
use crate::config::problem::Problem;
use crate::render::{Hidden, origin_of};

/// The expressions that read answers to the credentials. They would tell their author about them.
const READERS: [&str; 3] = ["/endpoint/success", "/endpoint/thread/remember", "/endpoint/thread/update/lost"];
const SHARES: &str = "/template/shareParameters";

/// Where the credentials of a layer would go if there were no more specific layer.
#[derive(Clone, Debug, PartialEq)]
struct Receiver {
    /// The origin, or the reference to it.
    to: Option<To>,
    /// `tls.caFrom`.
    authorities: Option<Reference>,
    /// `tls.insecureSkipVerify`.
    skips_verification: bool,
    /// The namespace of the layer.
    namespace: Option<String>,
    /// Whether the layers of this namespace so far share their parameters with other namespaces.
    shares: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum To {
    Origin(String),
    Secret(Reference),
    /// Not a URL. It never counts as the same destination.
    Unreadable,
}

/// A reference as it is written, and the namespace in which it resolves.
#[derive(Clone, Debug, PartialEq)]
struct Reference {
    written: Value,
    namespace: Option<String>,
}

impl Receiver {
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
            skips_verification: endpoint("/tls/insecureSkipVerify").and_then(Value::as_bool).unwrap_or(false),
            namespace: folded.last_namespace().map(str::to_owned),
            shares: folded.last_namespace() == folded.namespace(SHARES)
                && folded.value.get("template").and_then(|t| t.get("shareParameters")) == Some(&Value::Bool(true)),
        }
    }
}

/// Where credentials would go after each layer, for the credential rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceiverHistory(Vec<Receiver>);

impl ReceiverHistory {
    /// Records the state after one more layer.
    pub(crate) fn see(&mut self, folded: &Folded) {
        self.0.push(Receiver::of(folded));
    }

    /// The parameters that templates of the pipeline's namespace are not allowed to see, and those that templates of its layer namespace are
    /// not allowed to see.
    pub(crate) fn hidden(&self, folded: &Folded, namespace: &str) -> [Hidden; 2] {
        let from_pipeline =
            self.hidden_if(folded, |author, owner| owner != namespace && !matches!(author, Some(Source::LayerNamespace(_))));
        let from_layer = self.hidden_if(folded, |author, _| !matches!(author, Some(Source::LayerNamespace(_))));
        [from_pipeline, from_layer]
    }

    /// The parameters that are not shared, and whose author and namespace meet a condition.
    fn hidden_if(&self, folded: &Folded, is_foreign: impl Fn(Option<&Source>, &str) -> bool) -> Hidden {
        let parameters = folded.value.get("template").and_then(|t| t.get("parameters")).and_then(Value::as_object);
        let names = parameters.into_iter().flat_map(Map::keys);
        let hidden = names.filter_map(|name| {
            let pointer = format!("/template/parameters/{}", escape(name));
            let owner = folded.namespace(&pointer).filter(|owner| is_foreign(folded.author(&pointer), owner))?;
            let shares = folded.last_of(owner).and_then(|index| self.0.get(index)).is_some_and(|receiver| receiver.shares);
            (!shares).then(|| (name.clone(), self::name(folded.author(&pointer))))
        });
        hidden.collect()
    }

    /// Returns the expression about answers that a more specific layer than this one, of another namespace, sets.
    fn read_elsewhere(&self, folded: &Folded, index: usize, then: &Receiver) -> Option<&'static str> {
        let is_foreign =
            |reader: usize| reader > index && self.0.get(reader).is_some_and(|reader| reader.namespace != then.namespace);
        READERS.into_iter().find(|field| folded.within(field).any(is_foreign))
    }

    /// Checks that each credential goes only to the receiver that was set when its layer was merged.
    pub(crate) fn check(&self, folded: &Folded) -> Result<(), Problem> {
        let Some(last) = self.0.last().filter(|last| last.to.is_some()) else { return Ok(()) };
        for credential in credentials(&folded.value) {
            let Some(index) = folded.wrote_first(&credential) else { continue };
            let Some(then) = self.0.get(index) else { continue };
            let field = if last.to != then.to || last.to == Some(To::Unreadable) {
                destination(folded)
            } else if last.skips_verification && !then.skips_verification {
                "/endpoint/tls/insecureSkipVerify"
            } else if last.authorities != then.authorities {
                "/endpoint/tls/caFrom"
            } else if let Some(field) = self.read_elsewhere(folded, index, then) {
                field
            } else {
                continue;
            };
            let (owner, author) = (folded.first_author(&credential), folded.author(field));
            return Err(Problem::CredentialOrigin(format!(
                "{} is from {}, and {} is from {}, a more specific layer; set the credentials in that layer too, or delete them there with remove",
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
    // A URL in a Secret is itself secret, so only the intended receiver is allowed to see it.
    let whole = [
        "/auth/basic/secretRef",
        "/auth/token/secretKeyRef",
        "/auth/githubApp/secretRef",
        "/auth/oauth2/secretRef",
        "/auth/oauth2/serviceAccount",
        "/headersFrom/secretRef",
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

/// Whether a header such as `Authorization` or `X-Api-Key`, or a parameter such as `routingKey`, is likely a credential by its name. The
/// check accepts too many names rather than too few. A match only means that a layer that sets another receiver must also set this value.
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
