//! The message of a command when the API server does not return what the command requested.
//!
//! In: an error, and the API server. Out: one sentence with the request, the answer, the name of the server, and the remedy.

use std::error::Error;

use kube::Error as KubeError;
use kube::client::AuthError;

use crate::app::{Access, Server};
use relaybook_telemetry::{api_error, chain};

/// Whether an error was caused by a call of the API server.
pub(crate) fn is_of_server(error: &(dyn Error + 'static)) -> bool {
    cause(error).is_some()
}

/// Whether the output pipe was closed by the program that reads it.
pub(crate) fn is_closed_pipe(error: &(dyn Error + 'static)) -> bool {
    let is_pipe = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    };
    !is_of_server(error) && std::iter::successors(Some(error), |&cause| cause.source()).any(is_pipe)
}

/// Returns the message about a failure after which the command continues.
pub(crate) async fn said(error: &(dyn Error + 'static), access: &Access) -> String {
    if is_of_server(error) { sentence(error, &access.server().await) } else { chain(error) }
}

/// Whether a retry is useless, because the answer stays the same until a person changes something.
pub(crate) fn is_final(error: &(dyn Error + 'static)) -> bool {
    matches!(cause(error), Some(KubeError::Api(status)) if matches!(status.code, 401 | 403 | 404))
}

/// Returns the sentence about a failed call of this API server.
pub(crate) fn sentence(error: &(dyn Error + 'static), server: &Server) -> String {
    let place = match (server.url.as_str(), &server.context) {
        ("", _) => String::new(),
        (url, Some(context)) => format!(" (server {url}, context {context})"),
        (url, None) => format!(" (server {url})"),
    };
    let remedy = cause(error).map_or_else(String::new, |cause| remedy(cause, server));
    let separator = if remedy.is_empty() { "" } else { "; " };
    format!("{}{place}{separator}{remedy}", chain(error))
}

fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a KubeError> {
    std::iter::successors(Some(error), |&cause| cause.source()).find_map(|cause| {
        let watch = cause.downcast_ref().or_else(|| cause.downcast_ref().map(|boxed: &Box<_>| &**boxed));
        api_error::find(cause).or_else(|| watch.and_then(of_watch))
    })
}

fn of_watch(error: &kube::runtime::watcher::Error) -> Option<&KubeError> {
    use kube::runtime::watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => Some(error),
        _ => None,
    }
}

fn remedy(error: &KubeError, server: &Server) -> String {
    let plugin = server.plugin.as_ref().map_or("the exec plugin", |(command, _)| command.as_str());
    match error {
        KubeError::Api(status) => match status.code {
            401 => "the credentials are not accepted or have expired: log in again, or choose another --context".to_owned(),
            403 => "bind a role that allows this, or choose another --context".to_owned(),
            404 if is_of_no_kind(&status.message) => {
                "Relaybook is not installed in this cluster: install its chart, or apply the output of `relaybook crds`"
                    .to_owned()
            }
            429 | 500.. => "try again".to_owned(),
            _ => String::new(),
        },
        KubeError::Auth(AuthError::AuthExecStart(_)) => {
            let hint =
                server.plugin.as_ref().and_then(|(_, hint)| hint.as_deref()).map(str::trim).filter(|hint| !hint.is_empty());
            let hint = hint.map_or_else(String::new, |hint| format!(": {}", hint.replace(char::is_control, " ")));
            format!("install {plugin}, the credential plugin of this context{hint}")
        }
        KubeError::Auth(AuthError::AuthExecRun { .. } | AuthError::AuthExecParse(_)) => {
            format!("run {plugin} manually to see its error, or log in again")
        }
        KubeError::Auth(_) => "check the user of this context in the kubeconfig".to_owned(),
        KubeError::Service(cause) if speaks_of_certificate(&**cause) => {
            "check certificate-authority and server of this context in the kubeconfig".to_owned()
        }
        KubeError::Service(_) | KubeError::HyperError(_) => {
            "check that the API server runs, and that this is the right context".to_owned()
        }
        _ => String::new(),
    }
}

/// Whether the API server does not know the resource: it has no such path.
fn is_of_no_kind(message: &str) -> bool {
    message.contains("page not found") || message.contains("could not find the requested resource")
}

fn speaks_of_certificate(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&cause| cause.source()).any(|cause| {
        // The inner error of an `io::Error` is not its `source()`.
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause.is::<rustls::Error>() || inner.is_some_and(|inner| speaks_of_certificate(inner))
    })
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use relaybook_tools::preview::PreviewError;

    fn asked(error: KubeError) -> PreviewError {
        PreviewError::Read { what: "Pipeline team-a/nope".to_owned(), source: Box::new(error) }
    }

    fn api(code: u16, message: &str) -> KubeError {
        KubeError::Api(Status::failure(message, "x").with_code(code).boxed())
    }

    #[test]
    fn an_error_of_the_api_server_is_one_sentence_with_a_remedy() {
        let plugin = Some(("login".to_owned(), Some("get it\nfrom the shelf".to_owned())));
        let server = Server { url: "https://a.example:6443".to_owned(), context: Some("kind-a".to_owned()), plugin };
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        for (error, words, remedy) in [
            (api(404, "pipelines \"nope\" not found"), "pipelines \"nope\" not found", ""),
            (
                api(404, "404 page not found"),
                "404 page not found",
                "; Relaybook is not installed in this cluster: install its chart, or apply the output of `relaybook crds`",
            ),
            (
                api(401, "Unauthorized"),
                "Unauthorized",
                "; the credentials are not accepted or have expired: log in again, or choose another --context",
            ),
            (api(403, "may not"), "may not", "; bind a role that allows this, or choose another --context"),
            (api(503, "away"), "away", "; try again"),
            (
                KubeError::Service(Box::new(refused())),
                "connection refused",
                "; check that the API server runs, and that this is the right context",
            ),
            (
                KubeError::Service(Box::new(std::io::Error::other(rustls::Error::DecryptError))),
                "cannot decrypt peer's message",
                "; check certificate-authority and server of this context in the kubeconfig",
            ),
            (
                KubeError::Auth(AuthError::AuthExecStart(missing())),
                "the exec plugin cannot be started: entity not found",
                "; install login, the credential plugin of this context: get it from the shelf",
            ),
        ] {
            let said = sentence(&asked(error), &server);
            let place = "(server https://a.example:6443, context kind-a)";
            assert_eq!(said, format!("Pipeline team-a/nope cannot be read: {words} {place}{remedy}"));
        }
        let said = sentence(&asked(api(404, "x")), &Server::default());
        assert_eq!(said, "Pipeline team-a/nope cannot be read: x");
        assert!(!is_of_server(&missing()));
        let closed = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert!(is_closed_pipe(&closed()) && !is_closed_pipe(&missing()));
        assert!(!is_closed_pipe(&asked(KubeError::Service(Box::new(closed())))), "a broken connection is a failure");
    }
}
