//! Pure: the decisions about a promotion whose request a receiver carries out, and what all say while they wait for their environment.
//!
//! In: the promotion, and what became of its last request ([`fate`]). Out: its next status. It has failed as soon as no receiver has accepted
//! the request and none can any more. It continues if one accepts the request later, because a person sent it again.
//!
//! `status.succeeded` keeps that a receiver has accepted the request. So nothing is lost when retention deletes the Delivery.

use super::{Case, Next, bounded, index_of, later};
use crate::promotion::pair::Pair;
use crate::promotion::policy::Policy;
use crate::promotion::reason;
use crate::promotion::sent::{Fate, fate};
use relaybook_api::group;
use relaybook_api::promotion::{Phase, with_missing};
use relaybook_api::{PromotionStatus, duration_text};

/// Whether a status ends a promotion because no receiver has accepted its request. All Deliveries are read live before it is written.
#[must_use]
pub fn gives_up(before: Option<&PromotionStatus>, status: &PromotionStatus) -> bool {
    let is_failed = |status: &PromotionStatus| status.phase == Some(Phase::Failed);
    is_failed(status) && status.reason == reason::REQUEST_FAILED && before.is_none_or(|before| !is_failed(before))
}

impl Case<'_> {
    /// Returns what became of the last request.
    fn fate(&self) -> Fate {
        let is_asked = self.status.strategy.as_ref().is_some_and(|strategy| strategy.notification.is_some());
        let dispatched = self.pipeline.status.as_ref().and_then(|status| status.dispatched.as_ref());
        match self.status.last_attempted_time.filter(|_| is_asked) {
            Some(requested) => fate(&self.progress.sent, requested, dispatched),
            None => Fate::Unknown,
        }
    }

    /// Decides about a promotion that was requested. While the environment tries the revision, somebody carries it out, so it has not failed.
    pub(super) fn sent(&self, pair: &Pair<'_>, policy: &Policy) -> Next {
        let fate = self.fate();
        if let Fate::Refused(why) = &fate
            && !self.status.succeeded
            && !pair.tries(&self.spec().revision)
        {
            let message = format!("no receiver has accepted the request: {why}; {AGAIN}");
            return self.step(Phase::Failed, reason::REQUEST_FAILED, &message);
        }
        let next = self.requested(pair, policy);
        let Next::Wait(until) = next else { return next };
        self.unless_same(self.told(&fate), until)
    }

    /// Returns the status of a promotion that waits for its environment. If the Deliveries are not known any more, it stays as it is.
    fn told(&self, fate: &Fate) -> PromotionStatus {
        let mut status = self.noted();
        let step = status.steps.last().filter(|step| step.phase == Phase::Requested);
        let Some(mut reason) = step.map(|step| step.reason.clone()) else { return status };
        let mut message = self.waiting(&reason);
        match fate {
            Fate::Accepted { without, .. } => {
                status.succeeded = true;
                if let Some(without) = without {
                    message = format!("{message}; not every receiver has accepted the request: {without}");
                }
            }
            Fate::Unknown => return status,
            _ if status.succeeded => return status,
            Fate::Open { why: None, .. } => {}
            Fate::Open { why: Some(why), is_tried: true } => {
                reason::REQUEST_RETRYING.clone_into(&mut reason);
                message = format!("no receiver has accepted the request yet: {why}; Relaybook tries again");
            }
            Fate::Open { why: Some(why), is_tried: false } => {
                reason::REQUEST_WAITING.clone_into(&mut reason);
                message = format!("the request was not sent yet: {why}");
            }
            Fate::Refused(why) => message = format!("{message}; no receiver has accepted the request: {why}"),
        }
        (status.reason, status.message) = (reason, bounded(&message));
        status
    }

    /// Says that no receiver has accepted the request, if that is known.
    pub(super) fn unaccepted(&self) -> Option<String> {
        match self.fate() {
            Fate::Open { why: Some(why), .. } | Fate::Refused(why) if !self.status.succeeded => {
                Some(format!("no receiver has accepted the request: {why}"))
            }
            _ => None,
        }
    }

    /// Decides about a promotion that was requested, or whose revision the environment tries.
    pub(super) fn requested(&self, pair: &Pair<'_>, policy: &Policy) -> Next {
        let stepped = self.status.steps.last().map(|step| step.time).or(self.status.last_attempted_time);
        let until = later(stepped.unwrap_or_else(|| self.created()), policy.timeout);
        if until > self.now {
            return self.unless_same(self.noted(), Some(until));
        }
        let (to, revision, timeout) = (self.environment(), self.revision(), duration_text(policy.timeout));
        let unaccepted = self.unaccepted().map(|why| format!("; {why}")).unwrap_or_default();
        let message = format!("{to} does not run {revision} after {timeout}: {}{unaccepted}", pair.described());
        self.step(Phase::Failed, reason::NOT_RUNNING, &message)
    }

    /// The environment runs the revision, so somebody has carried out what was requested.
    pub(super) fn finished(&self) -> Next {
        let mut status = self.noted();
        status.succeeded |= status.strategy.is_some() && !self.is_external();
        self.step_from(status, Phase::Finished, reason::RUNNING, &self.running())
    }

    /// Returns the message of an open promotion with the missing targets of its environment. While they are not known, it stays as it is.
    pub(super) fn with_missing(&self, message: &str) -> String {
        let index = index_of(self.pipeline, &self.spec().environment);
        match index.and_then(|index| Pair::new(self.pipeline, index)).map(|pair| pair.missing()) {
            Some(Ok(missing)) => bounded(&with_missing(message, missing.as_deref())),
            Some(Err(())) | None => message.to_owned(),
        }
    }

    /// Decides about a failed promotion whose request was accepted since. `None`: it was not, or the promotion is not needed any more.
    pub(super) fn accepted_since(&self, pair: &Pair<'_>) -> Option<Next> {
        let Fate::Accepted { resent, .. } = self.fate() else { return None };
        // If the time of the promotion was over before, only what a person does since then counts.
        let failed = self.status.steps.last().map(|step| step.time);
        let is_later = self.status.reason == reason::REQUEST_FAILED
            || resent.zip(failed).is_some_and(|(resent, failed)| resent > failed);
        if !is_later || self.replaced(pair).is_some() {
            return None;
        }
        let mut status = self.noted();
        status.succeeded = true;
        Some(self.step_from(status, Phase::Requested, reason::REQUEST_ACCEPTED, &self.waiting(reason::REQUEST_ACCEPTED)))
    }

    /// Says what the promotion waits for, after a step with this reason.
    fn waiting(&self, reason: &str) -> String {
        let waiting = self.requesting().1;
        if reason == reason::REQUEST_ACCEPTED { format!("a receiver has accepted the request; {waiting}") } else { waiting }
    }
}

/// What a person does about a request that no receiver has accepted.
const AGAIN: &str = concat!(
    "fix the cause, then send it again with relaybook redeliver, or set the annotation ",
    group!(),
    "/retry to a new value"
);

#[cfg(test)]
mod tests {
    use kube_core::ResourceExt as _;

    use super::*;
    use crate::promotion::commits::Commits;
    use crate::promotion::progress::Progress;
    use crate::promotion::sent::Sent;
    use crate::promotion::state::next;
    use crate::promotion::testing::{PROD, STAGING, at, environment, new, pipeline, spec};
    use relaybook_api::pipeline::{Cursor, Dispatched};
    use relaybook_api::promotion::RETRY;
    use relaybook_api::{DeliveryStatus, Outcome, Pipeline, Promotion};

    /// Returns the pipeline after each notification has recorded what it sends.
    fn dispatched(mut pipeline: Pipeline) -> Pipeline {
        let cursors = vec![Cursor { serial: 30, ..Cursor::default() }];
        pipeline.status.as_mut().unwrap().dispatched = Some(Dispatched { cursors, ..Dispatched::default() });
        pipeline
    }

    fn edited(edit: impl FnOnce(&mut Pipeline)) -> Pipeline {
        let mut pipeline = dispatched(pipeline());
        edit(&mut pipeline);
        pipeline
    }

    /// Returns a Delivery of the request that was made at second 100. If it has an outcome, it was settled at second 110.
    fn delivery(notification: &str, outcome: Option<Outcome>, (attempts, error): (i64, &str)) -> Sent {
        let error = Some(error.to_owned()).filter(|error| !error.is_empty());
        let settled_time = outcome.map(|_| at(110));
        let status = DeliveryStatus { outcome, attempts, settled_time, error, ..DeliveryStatus::default() };
        Sent { notification: notification.to_owned(), serial: 30, time: at(100), status }
    }

    fn parked() -> Sent {
        delivery("ci", Some(Outcome::Parked), (3, "404 Not Found"))
    }

    fn delivered() -> Sent {
        delivery("ci", Some(Outcome::Delivered), (1, ""))
    }

    fn decide(pipeline: &Pipeline, promotion: &Promotion, sent: &[Sent], now: i64) -> Next {
        let progress = Progress { sent: sent.to_vec(), ..Progress::default() };
        next(pipeline, promotion, (&[promotion], &Commits::default()), &progress, at(now))
    }

    /// Applies all writes until the promotion waits. There must be no write that changes nothing.
    fn after(pipeline: &Pipeline, promotion: &Promotion, sent: &[Sent], now: i64) -> Promotion {
        let mut promotion = promotion.clone();
        for _ in 0..5 {
            match decide(pipeline, &promotion, sent, now) {
                Next::Write(status) => {
                    assert_ne!(promotion.status.as_ref(), Some(&*status));
                    promotion.status = Some(*status);
                }
                _ => return promotion,
            }
        }
        panic!("the writes do not end: {:?}", promotion.status);
    }

    /// Returns a promotion that was requested at second 100.
    fn requested() -> Promotion {
        after(&pipeline(), &new(spec(20, 0)), &[], 100)
    }

    fn shown(promotion: &Promotion) -> String {
        let status = promotion.status.as_ref().unwrap();
        let phase = status.phase.map_or("none", Phase::as_str);
        format!("{phase} {} {} {}", status.reason, status.step, if status.succeeded { "succeeded" } else { "-" })
    }

    #[test]
    fn the_outcome_of_the_request_reaches_its_promotion() {
        use Outcome::{Canceled, Parked};
        let ready = dispatched(pipeline());
        let behind = edited(|p| p.status.as_mut().unwrap().dispatched.as_mut().unwrap().cursors[0].serial = 29);
        let tries = edited(|p| p.status.as_mut().unwrap().environments[PROD].targets[0].attempted_revision = "2".into());
        let runs = edited(|p| p.status.as_mut().unwrap().environments[PROD] = environment("prod", "2", 40));
        let moved = edited(|p| p.status.as_mut().unwrap().environments[STAGING] = environment("staging", "3", 50));
        let retrying = delivery("ci", None, (2, "503 Service Unavailable"));
        let blocked = delivery("ci", None, (0, "the Notification is suspended"));
        let chat = |outcome| delivery("chat", outcome, (0, ""));
        for (what, pipeline, sent, expected) in [
            ("nothing is known", &ready, vec![], "Requested WaitingForEnvironment 1 -"),
            ("not sent yet", &ready, vec![chat(None)], "Requested WaitingForEnvironment 1 -"),
            ("accepted", &ready, vec![delivered()], "Requested WaitingForEnvironment 1 succeeded"),
            ("tried again", &ready, vec![retrying], "Requested RequestRetrying 1 -"),
            ("suspended", &ready, vec![blocked], "Requested RequestWaiting 1 -"),
            ("parked", &ready, vec![parked()], "Failed RequestFailed 2 -"),
            ("canceled", &ready, vec![delivery("ci", Some(Canceled), (0, ""))], "Failed RequestFailed 2 -"),
            ("parked, and another one is not", &ready, vec![parked(), chat(None)], "Requested RequestRetrying 1 -"),
            ("all are parked", &ready, vec![parked(), chat(Some(Parked))], "Failed RequestFailed 2 -"),
            (
                "another one is accepted",
                &ready,
                vec![chat(Some(Parked)), delivered()],
                "Requested WaitingForEnvironment 1 succeeded",
            ),
            ("another one is not recorded", &behind, vec![parked()], "Requested RequestRetrying 1 -"),
            ("parked, and somebody deploys it", &tries, vec![parked()], "Requested WaitingForEnvironment 1 -"),
            ("parked, and it runs", &runs, vec![parked()], "Finished Running 2 succeeded"),
            ("parked, and replaced", &moved, vec![parked()], "Withdrawn Superseded 2 -"),
        ] {
            assert_eq!(shown(&after(pipeline, &requested(), &sent, 120)), expected, "{what}");
        }
        let failed = after(&ready, &requested(), &[parked()], 120).status.unwrap();
        assert_eq!(
            failed.message,
            "no receiver has accepted the request: Notification ci: 404 Not Found (3 attempts); fix the cause, then send it \
             again with relaybook redeliver, or set the annotation relaybook.dev/retry to a new value"
        );
        assert!(gives_up(requested().status.as_ref(), &failed) && !gives_up(Some(&failed), &failed));
        let partly = after(&ready, &requested(), &[delivered(), chat(Some(Canceled))], 120).status.unwrap();
        assert!(partly.message.ends_with("; not every receiver has accepted the request: Notification chat: canceled ()"));
    }

    #[test]
    fn an_accepted_request_stays_accepted() {
        let ready = dispatched(pipeline());
        let accepted =
            after(&ready, &requested(), &[delivered(), delivery("chat", Some(Outcome::Parked), (1, "410 Gone"))], 120);
        for (what, sent) in [
            ("retention has deleted all Deliveries", vec![]),
            ("only the parked one is left", vec![parked()]),
            ("it is sent again", vec![delivery("ci", None, (1, ""))]),
            ("it was sent again, and refused", vec![parked()]),
        ] {
            assert_eq!(decide(&ready, &accepted, &sent, 130), Next::Wait(Some(at(100 + 168 * 3600))), "{what}");
        }
        let late = after(&ready, &accepted, &[], 100 + 168 * 3600);
        assert_eq!(shown(&late), "Failed NotRunning 2 succeeded");
        assert!(!late.status.unwrap().message.contains("receiver"));
    }

    #[test]
    fn a_timed_out_promotion_says_that_no_receiver_has_accepted_its_request() {
        let ready = dispatched(pipeline());
        let retrying = delivery("ci", None, (9, "503 Service Unavailable"));
        let late = after(&ready, &requested(), &[retrying], 100 + 168 * 3600).status.unwrap();
        assert_eq!(late.reason, "NotRunning");
        let end = "; no receiver has accepted the request: Notification ci: 503 Service Unavailable (9 attempts)";
        assert!(late.message.ends_with(end), "{}", late.message);
    }

    #[test]
    fn a_failed_promotion_continues_when_its_request_is_accepted() {
        let ready = dispatched(pipeline());
        let failed = after(&ready, &requested(), &[parked()], 105);
        let again = delivery("ci", None, (3, "404 Not Found"));
        assert_eq!(decide(&ready, &failed, &[again], 106), Next::Wait(None), "it is sent again");
        assert_eq!(decide(&ready, &failed, &[], 106), Next::Wait(None), "the Delivery was deleted");
        let accepted = after(&ready, &failed, &[delivered()], 120);
        assert_eq!(shown(&accepted), "Requested RequestAccepted 3 succeeded");
        let (before, status) = (failed.status.as_ref().unwrap(), accepted.status.as_ref().unwrap());
        assert_eq!((before.attempts, status.attempts, status.retries), (1, 1, 0), "it is not requested again");
        assert_eq!(decide(&ready, &accepted, &[delivered()], 121), Next::Wait(Some(at(120 + 168 * 3600))));
        // Its time is over later, and then a person sends the request again.
        let late = after(&ready, &accepted, &[delivered()], 120 + 168 * 3600);
        assert_eq!(shown(&late), "Failed NotRunning 4 succeeded");
        assert_eq!(decide(&ready, &late, &[delivered()], 700_000), Next::Wait(None), "that was before");
        let mut resent = delivered();
        resent.status.settled_time = Some(at(700_000));
        assert_eq!(decide(&ready, &late, &[resent.clone()], 700_001), Next::Wait(None), "nobody has sent it again");
        resent.status.redelivered = Some(relaybook_api::delivery::Redelivered { value: "1".into(), time: at(699_999) });
        assert_eq!(shown(&after(&ready, &late, &[resent], 700_001)), "Requested RequestAccepted 5 succeeded");
        let moved = edited(|p| p.status.as_mut().unwrap().environments[STAGING] = environment("staging", "3", 50));
        assert_eq!(decide(&moved, &failed, &[delivered()], 120), Next::Wait(None), "it is not needed any more");
    }

    #[test]
    fn a_retry_is_another_request() {
        let ready = dispatched(pipeline());
        let mut failed = after(&ready, &requested(), &[parked()], 120);
        failed.annotations_mut().insert(RETRY.to_owned(), "1".to_owned());
        let again = after(&ready, &failed, &[parked()], 200);
        assert_eq!(
            shown(&again),
            "Requested WaitingForEnvironment 3 -",
            "the outcome of the first request is not that of the second"
        );
        let second = |outcome| Sent { serial: 40, time: at(200), ..delivery("ci", outcome, (1, "410 Gone")) };
        let ready = edited(|p| p.status.as_mut().unwrap().dispatched.as_mut().unwrap().cursors[0].serial = 40);
        let end = after(&ready, &again, &[parked(), second(Some(Outcome::Parked))], 220);
        assert_eq!(shown(&end), "Failed RequestFailed 4 -");
        assert!(end.status.unwrap().message.contains("410 Gone"));
    }
}
