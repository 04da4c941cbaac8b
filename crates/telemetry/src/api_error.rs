//! The message for an error of the Kubernetes client, in one sentence.
//!
//! In: an error. Out: a human-readable message. The client's own message is not usable. It contains the answer of the API server
//! twice, once as a Rust value. For a failed exec plugin it contains the whole output of the plugin, which can be a token.

use relaybook_text::first_line;
use std::error::Error;

use kube::Error as KubeError;
use kube::client::AuthError;
use kube::config::{KubeconfigError, LoadDataError};
use kube::core::Status;
use kube::runtime::watcher;

/// Returns the error of the Kubernetes client if `error` is one, directly or in a box.
#[must_use]
pub fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a KubeError> {
    error.downcast_ref::<KubeError>().or_else(|| error.downcast_ref::<Box<KubeError>>().map(|boxed| &**boxed))
}

/// Returns the message for an error whose own message is not human-readable, or `None` for other errors. The message includes the causes.
pub(super) fn readable_message(error: &(dyn Error + 'static)) -> Option<String> {
    let watch = error.downcast_ref::<watcher::Error>().or_else(|| error.downcast_ref::<Box<watcher::Error>>().map(|e| &**e));
    find(error).map(client_error_message).or_else(|| watch.map(of_watch)).or_else(|| error.downcast_ref().map(of_kubeconfig))
}

/// Returns the problem with a kubeconfig, and how to fix it.
fn of_kubeconfig(error: &KubeconfigError) -> String {
    let data = |what: &str, error: &LoadDataError| match error {
        LoadDataError::ReadFile(error, file) => format!("its {what} cannot be read from {}: {error}", file.display()),
        LoadDataError::DecodeBase64(_) => format!("its {what}-data is not base64"),
        LoadDataError::NoBase64DataOrFile => format!("it has no {what}"),
    };
    match error {
        KubeconfigError::ReadConfig(error, file) => {
            format!("{} cannot be read: {error}; use another kubeconfig", file.display())
        }
        KubeconfigError::Parse(error) => format!("it is not a kubeconfig: {}; correct it", first_line(&error.to_string())),
        KubeconfigError::CurrentContextNotSet => "it has no current context; set one with --context".to_owned(),
        KubeconfigError::LoadContext(name) => {
            format!("it has no context {name}; `kubectl config get-contexts` lists its contexts")
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("its context refers to cluster {name}, which is missing; add it")
        }
        KubeconfigError::LoadCertificateAuthority(error) => data("certificate-authority", error),
        KubeconfigError::LoadClientCertificate(error) => data("client-certificate", error),
        KubeconfigError::LoadClientKey(error) => data("client-key", error),
        other => first_line(&other.to_string()),
    }
}

/// Returns the message for an error of the client.
#[must_use]
pub fn client_error_message(error: &KubeError) -> String {
    match error {
        KubeError::Api(status) => answer(status),
        KubeError::Auth(error) => of_auth(error),
        KubeError::InferKubeconfig(error) => of_kubeconfig(error),
        KubeError::Service(cause) => innermost(&**cause),
        KubeError::HyperError(cause) => innermost(cause),
        KubeError::ProxyProtocolUnsupported { proxy_url } | KubeError::ProxyProtocolDisabled { proxy_url, .. } => {
            let scheme = proxy_url.scheme_str().unwrap_or_default();
            format!("proxy-url begins with {scheme}://, which is not supported; use http:// or https://")
        }
        KubeError::SerdeError(error) => format!("the answer of the API server cannot be read: {error}"),
        other => other.to_string(),
    }
}

/// Returns the error of the API server.
fn answer(status: &Status) -> String {
    match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("the API server answers {}", status.code),
        ("", reason) => format!("the API server answers {} {reason}", status.code),
        (message, _) => message.trim_end().to_owned(),
    }
}

fn of_watch(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error) => format!("the list failed: {}", client_error_message(error)),
        watcher::Error::WatchStartFailed(error) => format!("the watch could not start: {}", client_error_message(error)),
        watcher::Error::WatchFailed(error) => format!("the watch was interrupted: {}", client_error_message(error)),
        watcher::Error::WatchError(status) => format!("the API server ended the watch: {}", answer(status)),
        watcher::Error::NoResourceVersion => "the API server returned no resource version".to_owned(),
    }
}

/// Returns the message for an error of authentication. Exec plugins write tokens to stdout, so the message contains only the first line of
/// their stderr.
fn of_auth(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecStart(error) => format!("the exec plugin cannot be started: {error}"),
        AuthError::AuthExecRun { out, .. } => {
            let stderr = String::from_utf8_lossy(&out.stderr);
            // If there is a terminal, the plugin writes to it directly.
            let line: String = first_line(&stderr).chars().take(200).collect();
            let separator = if line.is_empty() { "" } else { ": " };
            format!("the exec plugin failed with {}{separator}{line}", out.status)
        }
        AuthError::AuthExecParse(_) => "the output of the exec plugin is not an ExecCredential".to_owned(),
        AuthError::ReadTokenFile(error, path) => format!("the token file {} cannot be read: {error}", path.display()),
        other => other.to_string(),
    }
}

/// Returns the causes of a failed call. It omits a cause that repeats a deeper one, and the generic texts of the HTTP library (`client
/// error (Connect)`).
fn innermost(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&cause| cause.source()).map(ToString::to_string);
    let all: Vec<String> = causes.filter(|text| !text.is_empty()).collect();
    let informative = |(n, text): (usize, &String)| {
        let is_generic = text.starts_with("client error (") || text == "tcp connect error";
        let repeats = all.iter().skip(n + 1).any(|deeper| text.contains(deeper.as_str()) || deeper.contains(text.as_str()));
        (!is_generic && !repeats).then(|| text.clone())
    };
    let parts: Vec<_> = all.iter().enumerate().filter_map(informative).collect();
    if parts.is_empty() { all.last().cloned().unwrap_or_default() } else { parts.join(": ") }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{ExitStatus, Output};

    use super::*;
    use crate::chain;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Step(&'static str, #[source] Option<Box<Step>>);

    #[derive(Debug, thiserror::Error)]
    #[error("Pipeline team-a/nope cannot be read")]
    struct Wrapped(#[source] Box<KubeError>);

    fn api(code: u16, message: &str, reason: &str) -> KubeError {
        KubeError::Api(Status::failure(message, reason).with_code(code).boxed())
    }

    #[test]
    fn messages_contain_no_rust_values() {
        let refused =
            Step("client error (Connect)", Some(Box::new(Step("tcp connect error", Some(Box::new(Step("refused", None)))))));
        let cut = Step("client error (SendRequest)", Some(Box::new(Step("connection closed", None))));
        let bare = Step("client error (SendRequest)", None);
        let failed = |stdout: &[u8], stderr: &[u8]| {
            let out = Output { status: ExitStatus::from_raw(256), stdout: stdout.to_vec(), stderr: stderr.to_vec() };
            KubeError::Auth(AuthError::AuthExecRun { cmd: "login".to_owned(), out: Box::new(out) })
        };
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        for (error, expected) in [
            (api(404, "pipelines \"nope\" not found", "NotFound"), "pipelines \"nope\" not found"),
            (api(404, "404 page not found\n", "Failed to parse error data"), "404 page not found"),
            (api(503, "", "ServiceUnavailable"), "the API server answers 503 ServiceUnavailable"),
            (api(500, "", ""), "the API server answers 500"),
            (KubeError::Service(Box::new(refused)), "refused"),
            (KubeError::Service(Box::new(cut)), "connection closed"),
            (KubeError::Service(Box::new(bare)), "client error (SendRequest)"),
            (KubeError::Auth(AuthError::AuthExecStart(missing)), "the exec plugin cannot be started: entity not found"),
            (failed(b"sesame", b"\nlog in first\nsecond"), "the exec plugin failed with exit status: 1: log in first"),
            (failed(b"sesame", b""), "the exec plugin failed with exit status: 1"),
            (
                KubeError::ProxyProtocolUnsupported { proxy_url: Box::new("ftp://a:sesame@b".parse().unwrap()) },
                "proxy-url begins with ftp://, which is not supported; use http:// or https://",
            ),
        ] {
            assert_eq!(client_error_message(&error), expected);
            let (whole, expected) =
                (chain(&Wrapped(Box::new(error))), format!("Pipeline team-a/nope cannot be read: {expected}"));
            assert_eq!(whole, expected);
        }
    }

    #[test]
    fn a_watch_error_contains_the_error_of_the_api_server_once() {
        let error = watcher::Error::InitialListFailed(api(403, "no", "Forbidden"));
        assert_eq!(chain(&error), "the list failed: no");
        assert_eq!(chain(&watcher::Error::NoResourceVersion), "the API server returned no resource version");
    }
}
