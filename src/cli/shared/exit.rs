//! How a command ends: its exit code.
//!
//! In: the error of a command. Out: one of the exit codes that all commands share. 0 means yes.

use std::error::Error;
use std::process::ExitCode;

use super::failure;
use crate::app::AppError;
use relaybook_tools::audit::RedeliverError;
use relaybook_tools::preview::PreviewError;

/// Why a command does not end with 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The answer is no: something failed, is false, or has problems.
    No = 1,
    /// The arguments are wrong.
    Usage = 2,
    /// Another revision replaced the requested one.
    Replaced = 3,
    /// The time limit has passed.
    TimeOver = 4,
    /// There is no answer: the API server is away or refuses the request, Relaybook is not installed, or the object does not exist.
    Unanswered = 5,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// An error that chooses the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Ended {
    code: Code,
    text: String,
}

impl Ended {
    /// Ends the command with this code, and with this message on stderr.
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Ends the command with this code. The command has already printed why.
    pub(crate) fn quietly(code: Code) -> Self {
        Self::new(code, "")
    }
}

/// Returns the exit code for an error.
pub(crate) fn code(error: &(dyn Error + 'static)) -> Code {
    let mut causes = std::iter::successors(Some(error), |&cause| cause.source());
    match causes.clone().find_map(|cause| cause.downcast_ref::<Ended>()) {
        Some(ended) => ended.code,
        // Without a client, nothing can be asked.
        None if failure::is_of_server(error) || causes.any(|cause| cause.is::<AppError>() || is_missing(cause)) => {
            Code::Unanswered
        }
        None => Code::No,
    }
}

/// Whether an object does not exist.
fn is_missing(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(PreviewError::NotFound(_)))
        || matches!(error.downcast_ref(), Some(RedeliverError::NotFound(_)))
}

/// Whether the command has already printed why it ends.
pub(crate) fn is_quiet(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<Ended>().is_some_and(|ended| ended.text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_chooses_the_exit_code_also_below_a_context() {
        let status = kube::core::Status::failure("no", "Forbidden").with_code(403).boxed();
        let over = || anyhow::Error::from(Ended::new(Code::TimeOver, "over"));
        for (error, expected) in [
            (anyhow::anyhow!("2 checks failed"), Code::No),
            (anyhow::Error::from(kube::Error::Api(status)).context("the Pipelines cannot be read"), Code::Unanswered),
            (over(), Code::TimeOver),
            (over().context("more"), Code::TimeOver),
        ] {
            assert_eq!(code(error.as_ref()), expected, "{error:?}");
        }
        assert!(is_quiet(anyhow::Error::from(Ended::quietly(Code::No)).as_ref()) && !is_quiet(over().as_ref()));
    }
}
