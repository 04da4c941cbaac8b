//! Pure: what the errors of servers mean for a promotion.

use super::clock::WaitedTooLong;
use relaybook_api::Time;
use relaybook_core::promotion::progress::{Lasts, Problem};
use relaybook_core::promotion::text::bounded;
use relaybook_egress::{FailureKind, NotSent, Unanswered};
use relaybook_forge::budget::End;
use relaybook_forge::limits::Limits;
use relaybook_git::GitError;
use relaybook_telemetry::chain;

/// Returns the problem of an error of the Git server.
pub(super) fn of_git(error: &GitError) -> Problem {
    use Lasts::{Always, ThreeAttempts, Until};
    let (reason, lasts) = match error {
        GitError::Transport(source) => {
            if let Some(unanswered) = source.downcast_ref::<Unanswered>() {
                return of_unanswered(unanswered);
            }
            if let Some(WaitedTooLong(problem)) = source.downcast_ref() {
                return problem.clone();
            }
            ("InternalError", Until(None))
        }
        GitError::CredentialsRejected { .. } => ("CredentialsRejected", Until(None)),
        GitError::RepositoryNotFound => ("RepositoryNotFound", ThreeAttempts),
        GitError::BranchNotFound(_) => ("BranchNotFound", ThreeAttempts),
        GitError::TooLarge(_) => ("RepositoryTooLarge", Always),
        GitError::InvalidAnswer(_) => ("InvalidAnswer", Until(None)),
        GitError::Unsupported(_) => ("Unsupported", Always),
        GitError::Status { status: 429, .. } => ("RateLimited", Until(None)),
        GitError::Status { .. } | GitError::Server(_) => ("ForgeError", Until(None)),
        GitError::NotARef(_) => ("BranchInvalid", Always),
    };
    Problem { reason, message: bounded(&error.to_string()), lasts }
}

/// What Gitea and Forgejo say if the user can read the repository, and not write it. Other forges answer with HTTP status 403.
const MAY_NOT_WRITE: &str = "User permission denied for writing";

/// Returns the reason of a push that the server refuses, and how long the problem lasts. A Secret can be corrected, as after status 403.
pub(super) fn of_refusal(words: &str) -> (&'static str, Lasts) {
    if words.contains(MAY_NOT_WRITE) {
        return ("CredentialsRejected", Lasts::Until(None));
    }
    ("PushRefused", Lasts::Always)
}

/// Returns the problem of an error of the API of a forge.
pub(super) fn of_forge(error: &relaybook_forge::Error, now: Time) -> Problem {
    use Lasts::{Always, ThreeAttempts, Until};
    let lasts = match error {
        relaybook_forge::Error::RateLimited { limits, .. } => Until(allowed(limits, now)),
        relaybook_forge::Error::RepositoryNotFound { .. } | relaybook_forge::Error::BranchNotFound { .. } => ThreeAttempts,
        relaybook_forge::Error::Refused { .. } => Always,
        relaybook_forge::Error::CredentialsRejected { .. }
        | relaybook_forge::Error::ForgeError { .. }
        | relaybook_forge::Error::InvalidAnswer { .. } => Until(None),
    };
    Problem { reason: error.reason(), message: bounded(&error.to_string()), lasts }
}

/// Returns when a forge allows the next request.
fn allowed(limits: &Limits, now: Time) -> Option<Time> {
    limits.retry.or(limits.reset).map(|when| when.at(now))
}

/// Returns the problem of a request without an answer, and how the request ended for the budget of the forge.
pub(super) fn unanswered(error: &Unanswered) -> (End, Problem) {
    let end = match error {
        Unanswered::Failed(_) => End::Unreachable,
        // Nothing was sent, or the forge has answered.
        Unanswered::NotSent(_) | Unanswered::TooLarge(_) => End::Answered { limits: Limits::default(), limited: false },
    };
    (end, of_unanswered(error))
}

fn of_unanswered(error: &Unanswered) -> Problem {
    let reason = match error {
        Unanswered::NotSent(why) => of_not_sent(why),
        Unanswered::Failed(failure) => match failure.kind {
            FailureKind::Timeout | FailureKind::ConnectTimeout => "Timeout",
            FailureKind::Tls => "TlsFailed",
            FailureKind::Dns | FailureKind::Connect | FailureKind::Closed => "Unreachable",
        },
        Unanswered::TooLarge(_) => "InvalidAnswer",
    };
    Problem { reason, message: bounded(&chain(error)), lasts: Lasts::Until(None) }
}

const fn of_not_sent(why: &NotSent) -> &'static str {
    match why {
        NotSent::SecretUnknown(_) | NotSent::SecretMissing(_) | NotSent::KeyMissing(_) => "SecretMissing",
        NotSent::SecretUnreadable(_) => "SecretUnreadable",
        NotSent::SecretReserved(_) => "SecretReserved",
        NotSent::SecretInvalid { .. } | NotSent::SecretCharacter { .. } => "SecretInvalid",
        NotSent::DestinationForbidden(_) | NotSent::RepositoryNotAllowed(_) => "DestinationForbidden",
        NotSent::TokenRefused { .. } | NotSent::TokenUnanswered(_) => "TokenRefused",
        NotSent::InstallationNotFound(_) => "InstallationNotFound",
        NotSent::PermissionMissing { .. } => "PermissionMissing",
        NotSent::InsecureScheme => "InsecureScheme",
        NotSent::InvalidRequest(_) => "InvalidRequest",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use Lasts::{Always, ThreeAttempts, Until};
    use relaybook_api::ObjectName;
    use relaybook_api::notification::credentials::SecretKey;
    use relaybook_core::promotion::testing::at;
    use relaybook_egress::{Failure, Rule};
    use relaybook_forge::limits::When;
    use relaybook_git::Bound;

    #[test]
    fn only_a_missing_permission_can_be_corrected_in_the_secret() {
        let denied = "pre-receive hook declined: Gitea: User permission denied for writing.";
        assert_eq!(of_refusal(denied), ("CredentialsRejected", Lasts::Until(None)));
        let protected = "pre-receive hook declined: Gitea: Not allowed to push to protected branch main";
        assert_eq!(of_refusal(protected), ("PushRefused", Lasts::Always));
    }

    fn failed(kind: FailureKind) -> Unanswered {
        Unanswered::Failed(Failure { kind, text: "it failed".into() })
    }

    fn unanswered_cases() -> Vec<(Unanswered, &'static str)> {
        let name = || ObjectName::new("team-a", "bot");
        let key = || SecretKey::new("team-a", "bot", "token");
        let not_sent = Unanswered::NotSent;
        vec![
            (not_sent(NotSent::SecretUnknown(name())), "SecretMissing"),
            (not_sent(NotSent::SecretMissing(name())), "SecretMissing"),
            (not_sent(NotSent::KeyMissing(key())), "SecretMissing"),
            (not_sent(NotSent::SecretUnreadable(name())), "SecretUnreadable"),
            (not_sent(NotSent::SecretReserved(name())), "SecretReserved"),
            (not_sent(NotSent::SecretInvalid { key: key(), problem: "it is empty" }), "SecretInvalid"),
            (not_sent(NotSent::DestinationForbidden(Rule::Loopback)), "DestinationForbidden"),
            (not_sent(NotSent::TokenUnanswered("a")), "TokenRefused"),
            (not_sent(NotSent::InstallationNotFound("acme/web".to_owned())), "InstallationNotFound"),
            (not_sent(NotSent::InsecureScheme), "InsecureScheme"),
            (not_sent(NotSent::InvalidRequest("x")), "InvalidRequest"),
            (failed(FailureKind::Timeout), "Timeout"),
            (failed(FailureKind::ConnectTimeout), "Timeout"),
            (failed(FailureKind::Tls), "TlsFailed"),
            (failed(FailureKind::Dns), "Unreachable"),
            (failed(FailureKind::Connect), "Unreachable"),
            (failed(FailureKind::Closed), "Unreachable"),
        ]
    }

    #[test]
    fn an_attempt_that_got_no_permit_keeps_that_problem_over_a_transport_error() {
        let problem = Problem { lasts: Lasts::NotYet(Time::UNIX_EPOCH), ..Problem::of_this_program("x") };
        assert_eq!(of_git(&GitError::Transport(Box::new(WaitedTooLong(problem.clone())))), problem);
    }

    #[test]
    fn a_request_without_an_answer_can_succeed_later() {
        for (error, reason) in unanswered_cases() {
            let (end, problem) = unanswered(&error);
            assert_eq!((problem.reason, problem.lasts), (reason, Until(None)), "{error}");
            assert!(problem.message.contains(&error.to_string()), "{error}");
            assert_eq!(matches!(end, End::Unreachable), matches!(error, Unanswered::Failed(_)), "{error}");
            let of_git = of_git(&GitError::Transport(Box::new(error)));
            assert_eq!((of_git.reason, of_git.lasts), (reason, Until(None)), "the same from the Git server");
        }
        assert_eq!(unanswered(&Unanswered::TooLarge(9)).1.reason, "InvalidAnswer");
    }

    #[test]
    fn an_error_of_the_git_server_says_whether_another_attempt_can_succeed() {
        let words = String::new;
        for (error, reason, lasts) in [
            (GitError::Transport("a panic".into()), "InternalError", Until(None)),
            (GitError::CredentialsRejected { status: 403, words: words() }, "CredentialsRejected", Until(None)),
            (GitError::RepositoryNotFound, "RepositoryNotFound", ThreeAttempts),
            (GitError::BranchNotFound("refs/heads/main".into()), "BranchNotFound", ThreeAttempts),
            (GitError::TooLarge(Bound::Objects), "RepositoryTooLarge", Always),
            (GitError::InvalidAnswer("x"), "InvalidAnswer", Until(None)),
            (GitError::Unsupported("x"), "Unsupported", Always),
            (GitError::Status { status: 429, words: words() }, "RateLimited", Until(None)),
            (GitError::Status { status: 502, words: words() }, "ForgeError", Until(None)),
            (GitError::Server("x".into()), "ForgeError", Until(None)),
            (GitError::NotARef("x".into()), "BranchInvalid", Always),
        ] {
            let problem = of_git(&error);
            assert_eq!((problem.reason, problem.lasts), (reason, lasts), "{error}");
            assert_eq!(problem.message, error.to_string());
        }
    }

    #[test]
    fn an_error_of_the_forge_says_whether_another_attempt_can_succeed() {
        let limited = |retry: Option<When>, reset: Option<When>| {
            let limits = Limits { reset, retry, ..Limits::default() };
            relaybook_forge::Error::RateLimited { status: 429, limits }
        };
        let (after, reset) = (When::After(Duration::from_secs(30)), When::At(at(400)));
        let (status, words) = (400, String::new);
        for (error, lasts) in [
            (relaybook_forge::Error::CredentialsRejected { status, words: words() }, Until(None)),
            (relaybook_forge::Error::RepositoryNotFound { status, words: words() }, ThreeAttempts),
            (relaybook_forge::Error::BranchNotFound { status, words: words() }, ThreeAttempts),
            (relaybook_forge::Error::Refused { status, words: words() }, Always),
            (relaybook_forge::Error::ForgeError { status, words: words() }, Until(None)),
            (relaybook_forge::Error::InvalidAnswer { status, problem: "x" }, Until(None)),
            (limited(None, None), Until(None)),
            (limited(None, Some(reset)), Until(Some(at(400)))),
            (limited(Some(after), Some(reset)), Until(Some(at(130)))),
        ] {
            let problem = of_forge(&error, at(100));
            assert_eq!((problem.reason, problem.lasts), (error.reason(), lasts), "{error}");
        }
    }
}
