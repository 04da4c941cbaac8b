//! Why a cluster cannot be asked: in: the error of a call or of a watch. Out: an [`ObserveError`], in words of our own that are the
//! same as long as the trouble is. What a remote API server says is passed on only where it refuses, and cut.

use std::error::Error;
use std::io::ErrorKind;

use kube::core::Status;
use kube::error::DiscoveryError;
use kube::runtime::watcher;

use super::Reason;
use super::remote::bound::TooLarge;
use super::remote::dial::AllRefused;

/// No more of what an API server says is passed on.
const MAX_WORDS: usize = 256;

/// What is wrong, for machines and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObserveError {
    /// For machines.
    pub reason: Reason,
    /// For people; names the cluster.
    pub message: String,
}

impl ObserveError {
    /// Whether a watch may get over it by itself.
    pub fn is_passing(&self) -> bool {
        matches!(self.reason, Reason::Unreachable | Reason::Timeout)
    }

    pub fn new(reason: Reason, message: String) -> Self {
        Self { reason, message }
    }

    /// The cluster took a call and did not answer it.
    pub fn timeout(cluster: &str) -> Self {
        Self::new(Reason::Timeout, format!("cluster {cluster} does not answer in time"))
    }

    /// The cluster answers, but not with anything of use.
    pub fn useless(cluster: &str) -> Self {
        Self::new(Reason::Unreachable, format!("cluster {cluster} does not answer like an API server"))
    }

    /// What an answer other than success means.
    pub fn answered(cluster: &str, code: u16, words: &str) -> Self {
        match code {
            401 => Self::new(Reason::Unauthorized, format!("cluster {cluster} does not accept the credentials")),
            403 if words.is_empty() => Self::new(Reason::Forbidden, format!("cluster {cluster} refuses")),
            403 => Self::new(Reason::Forbidden, format!("cluster {cluster} refuses: {}", plain(words))),
            404 => Self::new(Reason::KindNotFound, format!("cluster {cluster} does not have the kind")),
            429 | 500.. => Self::new(Reason::Unreachable, format!("cluster {cluster} answers {code}")),
            _ => Self::useless(cluster),
        }
    }

    /// What an error of a call means.
    pub fn of_call(cluster: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::answered(cluster, status.code, words_of(status)),
            kube::Error::Discovery(DiscoveryError::InvalidGroupVersion(_)) => Self::useless(cluster),
            kube::Error::Discovery(_) => Self::answered(cluster, 404, ""),
            other => Self::of_connection(cluster, other),
        }
    }

    /// What an error of a watch means; `None` for one from which the watch recovers by listing again.
    pub fn of_watch(cluster: &str, error: &watcher::Error) -> Option<Self> {
        match error {
            watcher::Error::InitialListFailed(e) | watcher::Error::WatchStartFailed(e) | watcher::Error::WatchFailed(e) => {
                Some(Self::of_call(cluster, e))
            }
            watcher::Error::WatchError(status) if status.code == 410 => None,
            watcher::Error::WatchError(status) => Some(Self::answered(cluster, status.code, words_of(status))),
            watcher::Error::NoResourceVersion => Some(Self::useless(cluster)),
        }
    }

    /// Whether an error of a watch is that a page of its list is longer than is read.
    pub fn is_too_large(error: &watcher::Error) -> bool {
        let watcher::Error::InitialListFailed(error) = error else { return false };
        std::iter::successors(Some(error as &(dyn Error + 'static)), |&cause| cause.source()).any(is_too_large)
    }

    /// No answer came: says at which step.
    fn of_connection(cluster: &str, error: &(dyn Error + 'static)) -> Self {
        let mut unknown = Self::new(Reason::Unreachable, format!("cluster {cluster} does not answer"));
        let mut next = Some(error);
        while let Some(cause) = next {
            if let Some(words) = words(cause) {
                return match words {
                    Words::Slow => Self::timeout(cluster),
                    Words::Step(step) => {
                        Self::new(Reason::Unreachable, format!("cluster {cluster} cannot be reached: {step}"))
                    }
                };
            }
            if cause.downcast_ref::<serde_json::Error>().is_some() {
                unknown = Self::useless(cluster);
            }
            next = cause.source();
        }
        unknown
    }
}

enum Words {
    Slow,
    Step(&'static str),
}

fn is_too_large(cause: &(dyn Error + 'static)) -> bool {
    // What an io::Error wraps is not its source.
    let inner = || cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    cause.is::<TooLarge>() || inner().is_some_and(|inner| is_too_large(inner))
}

/// What one cause in a chain says, if it says enough.
fn words(cause: &(dyn Error + 'static)) -> Option<Words> {
    if is_too_large(cause) {
        return Some(Words::Step("a response exceeds the size limit"));
    }
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return Some(Words::Step(tls(error)));
    }
    if let Some(error) = cause.downcast_ref::<std::io::Error>() {
        // What an io::Error wraps is not its source.
        if let Some(inner) = error.get_ref().and_then(|inner| words(inner)) {
            return Some(inner);
        }
        return match error.kind() {
            ErrorKind::ConnectionRefused => Some(Words::Step("the connection is refused")),
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                Some(Words::Step("there is no route to the server"))
            }
            ErrorKind::TimedOut => Some(Words::Slow),
            _ => None,
        };
    }
    // hyper-util has no type for it that can be named.
    (cause.to_string() == "dns error").then(|| {
        let refused = cause.source().is_some_and(<dyn Error>::is::<AllRefused>);
        Words::Step(if refused {
            "the name of its server resolves only to addresses that are not allowed for an API server"
        } else {
            "the name of its server cannot be resolved"
        })
    })
}

fn tls(error: &rustls::Error) -> &'static str {
    use rustls::CertificateError as Certificate;
    match error {
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
    }
}

/// The message of an API server that refuses. Another kind of server has none: kube makes a status of the page that it sent. Nobody may
/// use a kubeconfig to read that page.
fn words_of(status: &Status) -> &str {
    if status.reason == "Forbidden" { &status.message } else { "" }
}

/// Words of somebody else as one short line.
fn plain(words: &str) -> String {
    words.chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As hyper-util wraps what a resolver says.
    #[derive(Debug, thiserror::Error)]
    #[error("dns error")]
    struct Dns(#[source] AllRefused);

    fn service(error: impl Error + Send + Sync + 'static) -> kube::Error {
        kube::Error::Service(Box::new(error))
    }

    #[test]
    fn each_step_has_its_words() {
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
    fn answers_have_reasons_and_their_words_are_cut() {
        for (code, reason) in [
            (401, Reason::Unauthorized),
            (403, Reason::Forbidden),
            (404, Reason::KindNotFound),
            (429, Reason::Unreachable),
            (503, Reason::Unreachable),
            (302, Reason::Unreachable),
        ] {
            assert_eq!(ObserveError::answered("eu", code, "no").reason, reason, "{code}");
        }
        let long = ObserveError::answered("eu", 403, &"a\nb".repeat(9_000)).message;
        assert!(long.len() < 2 * MAX_WORDS && !long.contains('\n'), "{}", long.len());
        let refused = |reason| kube::Error::Api(Status::failure("secret page", reason).with_code(403).boxed());
        let said = |reason| ObserveError::of_call("eu", &refused(reason)).message;
        assert_eq!(said("Forbidden"), "cluster eu refuses: secret page");
        assert_eq!(said("Failed to parse error data"), "cluster eu refuses");
        let gone = watcher::Error::WatchError(Status::failure("old", "Expired").with_code(410).boxed());
        assert_eq!(ObserveError::of_watch("eu", &gone), None);
    }
}
