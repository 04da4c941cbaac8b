//! Decides what happens to a Delivery after an attempt. Pure.

use std::time::Duration;

use super::{AttemptResult, FailureKind, Judged, NotSent};
use relaybook_api::delivery::Reason;

/// The Delivery is parked after this many consecutive 404 answers. One 404 is not enough, because the receiver can be starting behind
/// a proxy.
const TRIES_404: u32 = 3;

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The receiver accepted the request.
    Delivered,
    /// Park the delivery: the receiver does not accept the request.
    Parked {
        /// The reason.
        reason: Reason,
    },
    /// Retry on schedule.
    Retry {
        /// The minimum time after the answer, even if the schedule is earlier.
        not_before: Option<Duration>,
        /// The reason.
        reason: Reason,
    },
    /// Retry immediately: the receiver rejected the credentials, and they changed while the request was in flight, or the token was not new. Each
    /// such answer requires one more change of the Secret, or a token that was issued a minute ago, so this cannot loop.
    Again {
        /// The reason.
        reason: Reason,
    },
    /// Cancel the delivery: there is nothing that it could report on.
    Canceled {
        /// The reason.
        reason: Reason,
    },
    /// No request was sent. Retry when the cause may have been fixed.
    Blocked {
        /// The reason.
        reason: Reason,
    },
}

/// Returns what to do after an attempt with this result. `earlier_404s`: number of consecutive 404 answers immediately before it.
#[must_use]
pub fn classify(result: &AttemptResult, earlier_404s: u32) -> Verdict {
    match result {
        AttemptResult::Answered { judged: Some(Judged::NoPullRequest), .. } => {
            let reason = Reason::PullRequestMissing;
            let is_last = earlier_404s.saturating_add(1) >= TRIES_404;
            if is_last { Verdict::Canceled { reason } } else { Verdict::Retry { not_before: None, reason } }
        }
        AttemptResult::Answered { retry_after, rotated, .. } => match result.counts_as() {
            Some(status) => answered(status, *retry_after, *rotated, earlier_404s),
            None => Verdict::Retry { not_before: *retry_after, reason: Reason::AnswerUnreadable },
        },
        AttemptResult::NotSent(why) => Verdict::Blocked { reason: not_sent(why) },
        AttemptResult::Failed(why) => Verdict::Retry { not_before: None, reason: failed(why.kind) },
    }
}

fn answered(status: u16, not_before: Option<Duration>, rotated: bool, earlier_404s: u32) -> Verdict {
    let retry = |reason| Verdict::Retry { not_before, reason };
    match status {
        200..=299 => Verdict::Delivered,
        300..=399 => Verdict::Parked { reason: Reason::Redirected },
        401 | 403 if rotated => Verdict::Again { reason: Reason::CredentialsRejected },
        // GitHub answers so at a limit on the rate.
        403 if not_before.is_some() => retry(Reason::ReceiverError),
        401 | 403 => retry(Reason::CredentialsRejected),
        404 if earlier_404s.saturating_add(1) < TRIES_404 => retry(Reason::ReceiverNotFound),
        404 => Verdict::Parked { reason: Reason::ReceiverNotFound },
        410 => Verdict::Parked { reason: Reason::ReceiverGone },
        408 | 425 | 429 => retry(Reason::ReceiverError),
        400..=499 => Verdict::Parked { reason: Reason::ReceiverRejected },
        // 5xx, and statuses that HTTP does not define: the receiver has a problem.
        _ => retry(Reason::ReceiverError),
    }
}

/// Returns the reason for an attempt that was not made.
#[must_use]
pub fn not_sent(why: &NotSent) -> Reason {
    match why {
        NotSent::SecretUnknown(_) => Reason::SecretUnknown,
        NotSent::SecretUnreadable(_) => Reason::SecretUnreadable,
        NotSent::SecretReserved(_) => Reason::SecretReserved,
        NotSent::SecretMissing(_) | NotSent::KeyMissing(_) => Reason::SecretMissing,
        NotSent::SecretInvalid { .. } | NotSent::SecretCharacter { .. } => Reason::SecretInvalid,
        NotSent::DestinationForbidden(_) | NotSent::RepositoryNotAllowed(_) => Reason::DestinationForbidden,
        NotSent::TokenRefused { .. } | NotSent::TokenUnanswered(_) => Reason::TokenRefused,
        NotSent::InstallationNotFound(_) => Reason::InstallationNotFound,
        NotSent::PermissionMissing { .. } => Reason::PermissionMissing,
        NotSent::InsecureScheme => Reason::InsecureScheme,
        NotSent::InvalidRequest(_) => Reason::InvalidRequest,
    }
}

fn failed(kind: FailureKind) -> Reason {
    match kind {
        FailureKind::Dns => Reason::DnsFailed,
        FailureKind::Connect | FailureKind::Closed => Reason::ConnectionFailed,
        FailureKind::Tls => Reason::TlsFailed,
        FailureKind::ConnectTimeout | FailureKind::Timeout => Reason::Timeout,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Failure, Rule};
    use relaybook_api::notification::credentials::SecretKey;

    const LATER: Option<Duration> = Some(Duration::from_secs(7));

    fn answer(status: u16, rotated: bool, earlier_404s: u32) -> Verdict {
        let result = AttemptResult::Answered {
            status,
            judged: None,
            retry_after: LATER,
            redirect: None,
            body: String::new(),
            rotated,
        };
        classify(&result, earlier_404s)
    }

    #[test]
    fn each_status_code_has_its_verdict() {
        let retry = |reason| Verdict::Retry { not_before: LATER, reason };
        let parked = |reason| Verdict::Parked { reason };
        for (statuses, verdict) in [
            (&[200, 201, 202, 204, 299][..], Verdict::Delivered),
            (&[300, 301, 302, 303, 304, 307, 308], parked(Reason::Redirected)),
            (&[400, 402, 405, 406, 409, 411, 413, 415, 418, 422, 451, 499], parked(Reason::ReceiverRejected)),
            (&[410], parked(Reason::ReceiverGone)),
            (&[401], retry(Reason::CredentialsRejected)),
            (&[404], retry(Reason::ReceiverNotFound)),
            (&[403, 408, 425, 429, 500, 501, 502, 503, 504, 599, 600, 999], retry(Reason::ReceiverError)),
        ] {
            for &status in statuses {
                assert_eq!(answer(status, false, 0), verdict, "{status}");
            }
        }
    }

    #[test]
    fn a_403_without_a_time_to_wait_is_about_credentials() {
        let forbidden = AttemptResult::Answered {
            status: 403,
            judged: None,
            retry_after: None,
            redirect: None,
            body: String::new(),
            rotated: false,
        };
        let verdict = Verdict::Retry { not_before: None, reason: Reason::CredentialsRejected };
        assert_eq!(classify(&forbidden, 0), verdict);
    }

    #[test]
    fn the_third_404_in_a_row_parks() {
        for (earlier, parked) in [(0, false), (1, false), (2, true), (3, true), (u32::MAX, true)] {
            assert_eq!(matches!(answer(404, false, earlier), Verdict::Parked { .. }), parked, "{earlier}");
        }
        assert!(matches!(answer(503, false, 2), Verdict::Retry { .. }));
    }

    #[test]
    fn rejected_credentials_that_have_changed_are_retried_immediately() {
        for status in [401, 403] {
            assert_eq!(answer(status, true, 0), Verdict::Again { reason: Reason::CredentialsRejected });
        }
        assert_eq!(answer(400, true, 0), Verdict::Parked { reason: Reason::ReceiverRejected });
        assert_eq!(answer(200, true, 0), Verdict::Delivered);
    }

    #[test]
    fn failures_are_retried_on_schedule() {
        for (kind, reason) in [
            (FailureKind::Dns, Reason::DnsFailed),
            (FailureKind::Connect, Reason::ConnectionFailed),
            (FailureKind::Closed, Reason::ConnectionFailed),
            (FailureKind::Tls, Reason::TlsFailed),
            (FailureKind::ConnectTimeout, Reason::Timeout),
            (FailureKind::Timeout, Reason::Timeout),
        ] {
            let result = AttemptResult::Failed(Failure { kind, text: String::new() });
            assert_eq!(classify(&result, 0), Verdict::Retry { not_before: None, reason });
        }
    }

    #[test]
    fn a_request_that_was_not_sent_is_blocked() {
        let key = SecretKey::new("a", "b", "k");
        for (why, reason) in [
            (NotSent::SecretUnknown(key.secret()), Reason::SecretUnknown),
            (NotSent::SecretUnreadable(key.secret()), Reason::SecretUnreadable),
            (NotSent::SecretReserved(key.secret()), Reason::SecretReserved),
            (NotSent::SecretMissing(key.secret()), Reason::SecretMissing),
            (NotSent::KeyMissing(key.clone()), Reason::SecretMissing),
            (NotSent::SecretInvalid { key, problem: "" }, Reason::SecretInvalid),
            (NotSent::DestinationForbidden(Rule::Loopback), Reason::DestinationForbidden),
            (NotSent::InsecureScheme, Reason::InsecureScheme),
            (NotSent::InvalidRequest(""), Reason::InvalidRequest),
        ] {
            assert_eq!(classify(&AttemptResult::NotSent(why), 0), Verdict::Blocked { reason });
        }
    }

    proptest! {
        #[test]
        fn only_2xx_delivers_and_a_server_error_never_parks(status in 100u16..=999, rotated: bool, earlier in 0u32..5) {
            let verdict = answer(status, rotated, earlier);
            prop_assert_eq!(verdict == Verdict::Delivered, (200..300).contains(&status));
            if let Verdict::Retry { not_before, .. } = verdict {
                prop_assert_eq!(not_before, LATER, "not earlier than the receiver requested");
            }
            if matches!(verdict, Verdict::Parked { .. }) {
                prop_assert!((300..500).contains(&status));
            }
        }
    }
}
