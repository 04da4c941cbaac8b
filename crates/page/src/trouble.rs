//! Why something cannot be shown, in one sentence with the remedy. Pure.

use relaybook_text::cut_chars;

use relaybook_telemetry::api_error;
use relaybook_tools::audit::{AuditError, RedeliverError};
use relaybook_tools::preview::PreviewError;

/// Maximum length of a message of the API server on the page, in characters.
const LONGEST: usize = 400;

/// What was read or written, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The verb, as in a Role.
    pub(super) verb: &'static str,
    /// The resource, as in a Role.
    pub(super) resource: &'static str,
    /// The namespace. `None`: all namespaces, or the resource has none.
    pub(super) namespace: Option<String>,
}

impl Wanted {
    /// Returns a call in a namespace.
    pub(super) fn new(verb: &'static str, resource: &'static str, namespace: Option<&str>) -> Self {
        Self { verb, resource, namespace: namespace.map(str::to_owned) }
    }
}

impl Wanted {
    /// Returns the call that reads an object, from its kind, namespace and name, such as `Secret team-a/chat`.
    fn read(what: &str) -> Option<Self> {
        let (kind, name) = what.split_once(' ')?;
        let resource = match kind {
            "Secret" => "secrets",
            "ConfigMap" => "configmaps",
            "Pipeline" => "pipelines",
            "Notification" => "notifications",
            _ => return None,
        };
        Some(Self::new("get", resource, Some(name.split_once('/')?.0)))
    }
}

/// Why something cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The API server does not accept the credentials, or no longer.
    SignedOut,
    /// A permission is missing.
    Forbidden(Wanted),
    /// The CRDs are not installed.
    NotInstalled,
    /// The API server could not be reached; with the reason.
    Away(String),
    /// The API server did not answer in time.
    Slow,
    /// The token of the next page of a list has expired.
    Expired,
    /// Another answer of the API server, or an object that cannot be used; with the message.
    Other(String),
}

impl Trouble {
    /// Returns the trouble that an error of a call means.
    pub(super) fn new(error: &kube::Error, wanted: &Wanted) -> Self {
        let error = innermost(error);
        match error {
            kube::Error::Api(status) => match status.code {
                401 => Self::SignedOut,
                403 => Self::Forbidden(wanted.clone()),
                404 if status.message.contains("page not found") || status.reason != "NotFound" => Self::NotInstalled,
                410 => Self::Expired,
                _ => Self::Other(short(&api_error::client_error_message(error))),
            },
            kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::Auth(_) => {
                Self::Away(short(&api_error::client_error_message(error)))
            }
            _ => Self::Other(short(&api_error::client_error_message(error))),
        }
    }

    /// Returns the trouble that an error of a list of deliveries means.
    pub(super) fn of_audit(error: &AuditError, wanted: &Wanted) -> Self {
        match error {
            AuditError::List(error) => Self::new(error, wanted),
            AuditError::Watch(error) => Self::Other(short(&error.to_string())),
        }
    }

    /// Returns the trouble that an error of a preview means.
    pub(super) fn of_preview(error: &PreviewError, wanted: &Wanted) -> Self {
        match error {
            PreviewError::Read { source, what } => Self::new(source, &Wanted::read(what).unwrap_or_else(|| wanted.clone())),
            other => Self::Other(short(&other.to_string())),
        }
    }

    /// Returns the trouble that an error of a redelivery means.
    pub(super) fn of_redelivery(error: &RedeliverError, wanted: &Wanted) -> Self {
        match error {
            RedeliverError::Api(_, error) => Self::new(error, wanted),
            other => Self::Other(short(&other.to_string())),
        }
    }

    /// Whether what was shown before can still be shown, because nobody has forbidden it.
    pub(super) const fn is_passing(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Slow | Self::Expired | Self::Other(_))
    }

    /// Returns the sentence for people.
    pub(super) fn sentence(&self) -> String {
        match self {
            Self::SignedOut => "The API server no longer accepts your token; sign in again.".to_owned(),
            Self::Forbidden(Wanted { verb, resource, namespace }) => match namespace {
                Some(namespace) => format!("No permission: needs {verb} on {resource} in {namespace}."),
                None => format!("No permission: needs {verb} on {resource} in all namespaces."),
            },
            Self::NotInstalled => {
                "Relaybook is not installed in this cluster: install its chart, or apply the output of `relaybook crds`."
                    .to_owned()
            }
            Self::Away(why) => format!("The API server cannot be reached: {why}."),
            Self::Slow => "The API server did not answer in time; reload the page to try again.".to_owned(),
            Self::Expired => "The list has changed too much since its first page; start at the first page again.".to_owned(),
            Self::Other(message) => format!("{message}."),
        }
    }
}

/// Returns the error that another client has wrapped.
fn innermost(error: &kube::Error) -> &kube::Error {
    match error {
        kube::Error::Service(cause) => cause.downcast_ref::<kube::Error>().map_or(error, innermost),
        other => other,
    }
}

fn short(text: &str) -> String {
    cut_chars(text.trim_end_matches('.'), LONGEST).into_owned()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn api(code: u16, reason: &str, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, reason).with_code(code).boxed())
    }

    #[test]
    fn a_sentence_names_the_permission_or_the_remedy() {
        let team = Wanted::new("get", "deliveries", Some("team-a"));
        let all = Wanted::new("list", "pipelines", None);
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        for (error, wanted, words) in [
            (api(401, "Unauthorized", "Unauthorized"), &team, "sign in again"),
            (api(403, "Forbidden", "x"), &team, "No permission: needs get on deliveries in team-a."),
            (api(403, "Forbidden", "x"), &all, "No permission: needs list on pipelines in all namespaces."),
            (api(404, "NotFound", "404 page not found"), &all, "install its chart"),
            (api(410, "Expired", "too old"), &all, "start at the first page"),
            (api(500, "InternalError", "etcd is full."), &all, "etcd is full."),
            (kube::Error::Service(Box::new(refused)), &all, "cannot be reached: connection refused."),
            (kube::Error::Service(Box::new(api(403, "Forbidden", "x"))), &team, "No permission"),
        ] {
            let sentence = Trouble::new(&error, wanted).sentence();
            assert!(sentence.contains(words), "{sentence}");
        }
    }

    #[test]
    fn a_preview_names_the_object_that_it_could_not_read() {
        let of = |what: &str| {
            let error = PreviewError::Read { what: what.to_owned(), source: Box::new(api(403, "Forbidden", "x")) };
            Trouble::of_preview(&error, &Wanted::new("list", "notifications", Some("b"))).sentence()
        };
        assert_eq!(of("Secret a/chat"), "No permission: needs get on secrets in a.");
        assert_eq!(of("ConfigMap c/texts"), "No permission: needs get on configmaps in c.");
        assert_eq!(of("the Notifications of b"), "No permission: needs list on notifications in b.");
    }

    #[test]
    fn a_message_of_the_api_server_is_bounded() {
        let sentence = Trouble::new(&api(500, "x", &"é".repeat(5000)), &Wanted::new("get", "pods", None)).sentence();
        assert_eq!(sentence.chars().count(), LONGEST + 1);
    }
}
