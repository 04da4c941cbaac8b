//! Why a cluster cannot be observed. In: the error of a call or of a watch. Out: an [`ObserveError`].
//!
//! The message is our own and does not change while the problem is the same. A message of a remote API server is included only if it
//! rejects a call, and is truncated.

use std::borrow::Cow;
use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use kube::core::Status;
use kube::error::DiscoveryError;
use kube::runtime::watcher;

use super::remote::bound::TooLarge;
use super::remote::dial::AllRefused;
use relaybook_core::reading::Reason;
use relaybook_runtime::certificates::remedy;

/// Maximum length of the message of an API server, in characters.
const MAX_WORDS: usize = 256;
/// Pause before a kind with too many objects is listed again.
pub(super) const CROWDED: Duration = Duration::from_mins(5);

/// What is wrong: a machine-readable reason and a human-readable message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObserveError {
    /// The machine-readable reason.
    pub reason: Reason,
    /// The human-readable message, with the name of the cluster.
    pub message: String,
}

impl ObserveError {
    /// Whether a watch can recover from it without a restart.
    pub fn is_passing(&self) -> bool {
        matches!(self.reason, Reason::Unreachable | Reason::Timeout)
    }

    /// Returns the pause before the kind is watched again: `usual`, except after too many objects, which are a burden for
    /// the cluster, too.
    pub fn pause(&self, usual: Duration) -> Duration {
        if self.reason == Reason::TooManyObjects { CROWDED } else { usual }
    }

    pub fn new(reason: Reason, message: String) -> Self {
        Self { reason, message }
    }

    /// Returns the error for a cluster that accepted a call and did not respond in time.
    pub fn timeout(cluster: &str) -> Self {
        Self::new(Reason::Timeout, format!("cluster {cluster} does not answer in time"))
    }

    /// Returns the error for a cluster whose responses are unusable.
    pub fn unusable_response(cluster: &str) -> Self {
        Self::new(Reason::Unreachable, format!("cluster {cluster} sent a response that is not from a Kubernetes API server"))
    }

    /// Maps a response other than success to an error.
    pub fn of_status(cluster: &str, code: u16, words: &str) -> Self {
        match code {
            401 => Self::new(Reason::Unauthorized, format!("cluster {cluster} does not accept the credentials")),
            403 if words.is_empty() => Self::new(Reason::Forbidden, format!("cluster {cluster} denies access (403)")),
            403 => Self::new(Reason::Forbidden, format!("cluster {cluster} denies access (403): {}", plain(words))),
            404 => Self::new(Reason::KindNotFound, format!("cluster {cluster} does not have the kind")),
            429 | 500.. => Self::new(Reason::Unreachable, format!("cluster {cluster} returned HTTP {code}")),
            _ => Self::unusable_response(cluster),
        }
    }

    /// Maps the error of a call.
    pub fn of_call(cluster: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(cluster, status.code, words_of(status)),
            kube::Error::Discovery(DiscoveryError::InvalidGroupVersion(_)) => Self::unusable_response(cluster),
            kube::Error::Discovery(_) => Self::of_status(cluster, 404, ""),
            other => Self::of_connection(cluster, other),
        }
    }

    /// Maps the error of a watch. Returns `None` for an error from which the watch recovers with a new list.
    pub fn of_watch(cluster: &str, error: &watcher::Error) -> Option<Self> {
        match error {
            watcher::Error::InitialListFailed(e) | watcher::Error::WatchStartFailed(e) | watcher::Error::WatchFailed(e) => {
                Some(Self::of_call(cluster, e))
            }
            watcher::Error::WatchError(status) if status.code == 410 => None,
            watcher::Error::WatchError(status) => Some(Self::of_status(cluster, status.code, words_of(status))),
            watcher::Error::NoResourceVersion => Some(Self::unusable_response(cluster)),
        }
    }

    /// Whether an error of a watch means that a page of its list exceeds the size limit.
    pub fn is_too_large(error: &watcher::Error) -> bool {
        let watcher::Error::InitialListFailed(error) = error else { return false };
        std::iter::successors(Some(error as &(dyn Error + 'static)), |&cause| cause.source()).any(is_too_large)
    }

    /// Maps a failure without a response: finds the step at which the connection failed.
    fn of_connection(cluster: &str, error: &(dyn Error + 'static)) -> Self {
        let mut unknown = Self::new(Reason::Unreachable, format!("cluster {cluster} does not answer"));
        let mut next = Some(error);
        while let Some(cause) = next {
            if let Some(problem) = describe(cause) {
                return match problem {
                    Problem::Slow => Self::timeout(cluster),
                    Problem::Step(step) => {
                        Self::new(Reason::Unreachable, format!("cluster {cluster} cannot be reached: {step}"))
                    }
                };
            }
            if cause.downcast_ref::<serde_json::Error>().is_some() {
                unknown = Self::unusable_response(cluster);
            }
            next = cause.source();
        }
        unknown
    }
}

enum Problem {
    Slow,
    Step(Cow<'static, str>),
}

fn is_too_large(cause: &(dyn Error + 'static)) -> bool {
    // The error inside an io::Error is not its source, so it is checked separately.
    let inner = || cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    cause.is::<TooLarge>() || inner().is_some_and(|inner| is_too_large(inner))
}

/// Returns what one cause in a chain means, if it is specific enough.
fn describe(cause: &(dyn Error + 'static)) -> Option<Problem> {
    if is_too_large(cause) {
        return Some(Problem::Step("a response exceeds the size limit".into()));
    }
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return Some(Problem::Step(tls(error)));
    }
    if let Some(error) = cause.downcast_ref::<std::io::Error>() {
        // The error inside an io::Error is not its source, so it is checked separately.
        if let Some(inner) = error.get_ref().and_then(|inner| describe(inner)) {
            return Some(inner);
        }
        return match error.kind() {
            ErrorKind::ConnectionRefused => Some(Problem::Step("the connection is refused".into())),
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                Some(Problem::Step("there is no route to the server".into()))
            }
            ErrorKind::TimedOut => Some(Problem::Slow),
            _ => None,
        };
    }
    // The type of this hyper-util error is private, so its text is compared.
    (cause.to_string() == "dns error").then(|| {
        let refused = cause.source().is_some_and(<dyn Error>::is::<AllRefused>);
        Problem::Step(if refused {
            "the name of its server resolves only to addresses that are not allowed for an API server".into()
        } else {
            "the name of its server cannot be resolved".into()
        })
    })
}

fn tls(error: &rustls::Error) -> Cow<'static, str> {
    use rustls::CertificateError as Certificate;
    if let rustls::Error::InvalidCertificate(why) = error
        && let Some(remedy) = remedy(why, "certificate-authority-data")
    {
        return format!("its certificate {remedy}").into();
    }
    let text = match error {
        rustls::Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => {
            "its certificate has expired"
        }
        rustls::Error::InvalidCertificate(Certificate::NotValidForName | Certificate::NotValidForNameContext { .. }) => {
            "its certificate is for another name (tls-server-name)"
        }
        // A CA that was created again has the same name and another key.
        rustls::Error::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            "its certificate is not trusted (certificate-authority-data)"
        }
        rustls::Error::InvalidCertificate(_) => "its certificate is not accepted",
        rustls::Error::AlertReceived(_) => "the server rejects the TLS connection or the client certificate",
        _ => "the TLS connection cannot be established",
    };
    text.into()
}

/// Returns the message of an API server that rejects a call. The response of any other kind of server yields no message, because kube puts
/// the whole page into the status. A kubeconfig must not be usable to read that page.
fn words_of(status: &Status) -> &str {
    if status.reason == "Forbidden" { &status.message } else { "" }
}

/// Returns text from a remote server as one short line without control characters.
fn plain(words: &str) -> String {
    words.chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a resolver, wrapped as hyper-util does it.
    #[derive(Debug, thiserror::Error)]
    #[error("dns error")]
    struct Dns(#[source] AllRefused);

    fn service(error: impl Error + Send + Sync + 'static) -> kube::Error {
        kube::Error::Service(Box::new(error))
    }

    #[test]
    fn each_connection_error_has_a_reason_and_a_message() {
        let io = |kind| service(std::io::Error::from(kind));
        let tls = |error| service(std::io::Error::other(rustls::Error::InvalidCertificate(error)));
        for (error, reason, words) in [
            (io(ErrorKind::ConnectionRefused), Reason::Unreachable, "cannot be reached: the connection is refused"),
            (io(ErrorKind::TimedOut), Reason::Timeout, "does not answer in time"),
            (io(ErrorKind::BrokenPipe), Reason::Unreachable, "does not answer"),
            (tls(rustls::CertificateError::UnknownIssuer), Reason::Unreachable, "not trusted"),
            (tls(rustls::CertificateError::NotValidForName), Reason::Unreachable, "another name"),
            (service(Dns(AllRefused)), Reason::Unreachable, "not allowed for an API server"),
            (service(TooLarge), Reason::Unreachable, "size limit"),
            (service(std::io::Error::other(TooLarge)), Reason::Unreachable, "size limit"),
        ] {
            let trouble = ObserveError::of_call("eu", &error);
            assert_eq!(trouble.reason, reason, "{error:?}");
            assert!(trouble.message.contains("eu") && trouble.message.contains(words), "{}", trouble.message);
        }
    }

    #[test]
    fn error_answers_have_reasons_and_their_messages_are_cut() {
        for (code, reason) in [
            (401, Reason::Unauthorized),
            (403, Reason::Forbidden),
            (404, Reason::KindNotFound),
            (429, Reason::Unreachable),
            (503, Reason::Unreachable),
            (302, Reason::Unreachable),
        ] {
            assert_eq!(ObserveError::of_status("eu", code, "no").reason, reason, "{code}");
        }
        let long = ObserveError::of_status("eu", 403, &"a\nb".repeat(9_000)).message;
        assert!(long.len() < 2 * MAX_WORDS && !long.contains('\n'), "{}", long.len());
        let refused = |reason| kube::Error::Api(Status::failure("secret page", reason).with_code(403).boxed());
        let said = |reason| ObserveError::of_call("eu", &refused(reason)).message;
        assert_eq!(said("Forbidden"), "cluster eu denies access (403): secret page");
        assert_eq!(said("Failed to parse error data"), "cluster eu denies access (403)");
        let gone = watcher::Error::WatchError(Status::failure("old", "Expired").with_code(410).boxed());
        assert_eq!(ObserveError::of_watch("eu", &gone), None);
    }
}
