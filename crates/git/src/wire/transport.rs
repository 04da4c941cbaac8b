//! What the module needs from HTTP, and what statuses mean.

use bytes::Bytes;

use crate::limits::Bound;
use crate::{GitError, words};

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`, without a body.
    Get,
    /// `POST`.
    Post,
}

/// One request to a repository.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// What follows the URL of the repository, for example `/info/refs?service=git-upload-pack`.
    pub path: &'static str,
    /// The headers, with names in lower case. The transport adds `user-agent` and the credentials. It must not ask for compression.
    pub headers: Vec<(&'static str, &'static str)>,
    /// The body.
    pub body: Bytes,
    /// Maximum size of the body of the answer, in bytes. Beyond it the transport fails with [`TransportError::TooLong`].
    pub limit: usize,
}

/// The answer to a [`Request`].
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The header `content-type`.
    pub content_type: Option<String>,
    /// Scheme, host and port to which the server redirects.
    pub redirect: Option<String>,
    /// The body. If nothing else refers to it, a pack is read from it without a copy.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The body of the answer has more than [`Request::limit`] bytes.
    #[error("the answer is too long")]
    TooLong,
    /// Another reason. It must not contain secrets.
    #[error(transparent)]
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

/// Sends requests below the URL of one repository. It holds the credentials, the deadlines, and the policy for egress, and follows no
/// redirects.
pub trait Transport: Sync {
    /// Sends one request.
    fn send(&self, request: Request) -> impl Future<Output = Result<Response, TransportError>> + Send;

    /// Runs a calculation that needs up to a few seconds. By default it runs in the task of the caller. With tokio, use `spawn_blocking`.
    fn calculate<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = Result<R, TransportError>> + Send {
        async { Ok(work()) }
    }
}

impl From<TransportError> for GitError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::TooLong => Self::TooLarge(Bound::Answer),
            TransportError::Failed(error) => Self::Transport(error),
        }
    }
}

/// Sends a request, and returns the body of an answer that has the type.
pub(crate) async fn exchange(
    transport: &impl Transport,
    request: Request,
    content_type: &'static str,
) -> Result<Bytes, GitError> {
    let limit = request.limit;
    let response = transport.send(request).await?;
    let is_text = |kind: &str| kind.starts_with("text/plain");
    let kind = response.content_type.as_deref().unwrap_or_default().trim().to_ascii_lowercase();
    if response.status != 200 {
        let words = match &response.redirect {
            Some(origin) => format!("a redirect to {origin}"),
            None if is_text(&kind) => words::clean(&response.body),
            None => String::new(),
        };
        return Err(match response.status {
            status @ (401 | 403) => GitError::CredentialsRejected { status, words },
            404 => GitError::RepositoryNotFound,
            status => GitError::Status { status, words },
        });
    }
    if response.body.len() > limit {
        return Err(GitError::TooLarge(Bound::Answer));
    }
    match kind.split(';').next() {
        Some(kind) if kind.trim() == content_type => Ok(response.body),
        Some(kind) if is_text(kind) => Err(GitError::Unsupported("the server supports only the dumb protocol of Git")),
        _ => Err(GitError::InvalidAnswer("it has another content type than answers of Git servers have")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Redirecting;

    impl Transport for Redirecting {
        async fn send(&self, _: Request) -> Result<Response, TransportError> {
            let redirect = Some("https://git.example:99".to_owned());
            Ok(Response { status: 301, content_type: Some("text/plain".to_owned()), redirect, body: Bytes::from("moved") })
        }
    }

    #[tokio::test]
    async fn the_error_of_a_redirect_names_only_its_origin() {
        let request = Request { method: Method::Get, path: "/", headers: Vec::new(), body: Bytes::new(), limit: 9 };
        let error = exchange(&Redirecting, request, "x/y").await.unwrap_err().to_string();
        assert_eq!(error, "the server answers with status 301: a redirect to https://git.example:99");
    }
}
