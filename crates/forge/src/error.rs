//! Pure: why a forge did not do what it was asked for.

use super::limits::Limits;

/// Why a forge did not do what it was asked for. The words of the forge are bounded and contain no control characters. The caller masks what
/// it sent in them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The credentials are wrong, or lack a permission.
    #[error("the forge rejects the credentials (HTTP {status}){}", said(words))]
    CredentialsRejected {
        /// HTTP status.
        status: u16,
        /// The words of the forge, with the permission that is missing if the forge names it.
        words: String,
    },
    /// The repository does not exist, has moved, or the credentials may not see it.
    #[error("the forge does not find the repository (HTTP {status}){}", said(words))]
    RepositoryNotFound {
        /// HTTP status.
        status: u16,
        /// The words of the forge.
        words: String,
    },
    /// The branch or the base branch does not exist.
    #[error("the forge does not find the branch or the base branch (HTTP {status}){}", said(words))]
    BranchNotFound {
        /// HTTP status.
        status: u16,
        /// The words of the forge.
        words: String,
    },
    /// There were too many requests.
    #[error("the forge limits the rate of requests (HTTP {status})")]
    RateLimited {
        /// HTTP status.
        status: u16,
        /// When requests are allowed again. [`super::budget::Budget`] takes it into account.
        limits: Limits,
    },
    /// The forge does not accept the request.
    #[error("the forge refuses the request (HTTP {status}){}", said(words))]
    Refused {
        /// HTTP status.
        status: u16,
        /// The words of the forge.
        words: String,
    },
    /// The forge failed.
    #[error("the forge failed (HTTP {status}){}", said(words))]
    ForgeError {
        /// HTTP status.
        status: u16,
        /// The words of the forge.
        words: String,
    },
    /// The answer is not what the API of the forge describes.
    #[error("the answer of the forge is not valid (HTTP {status}): {problem}")]
    InvalidAnswer {
        /// HTTP status.
        status: u16,
        /// What is wrong.
        problem: &'static str,
    },
}

impl Error {
    /// Returns the reason for conditions, Events and metrics: one word.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::CredentialsRejected { .. } => "CredentialsRejected",
            Self::RepositoryNotFound { .. } => "RepositoryNotFound",
            Self::BranchNotFound { .. } => "BranchNotFound",
            Self::RateLimited { .. } => "RateLimited",
            Self::Refused { .. } => "Refused",
            Self::ForgeError { .. } => "ForgeError",
            Self::InvalidAnswer { .. } => "InvalidAnswer",
        }
    }
}

fn said(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(": {words}") }
}
