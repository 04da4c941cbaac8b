//! The condition of a notification whose last deliveries were parked. Pure.
//!
//! In: the parked deliveries, the newest first. Out: reason and message of the condition `Delivering`.

use crate::outbox::Park;
use relaybook_api::Time;
use relaybook_api::delivery::Reason;

/// The reason if the last delivery was parked and nothing more is known about it.
pub const UNKNOWN: &str = "DeliveryParked";

/// Returns reason and message of the condition. `None` if there are no parked deliveries.
#[must_use]
pub fn condition<'a>(parks: impl Iterator<Item = (Time, &'a Park)>) -> Option<(String, String)> {
    let mut parks = parks.peekable();
    let (time, last) = parks.peek().copied()?;
    let (mut same, mut all) = (0usize, 0usize);
    for (_, park) in parks {
        all += 1;
        same += usize::from((&park.reason, park.code) == (&last.reason, last.code));
    }
    let when = if all == 1 { "at" } else { "last at" };
    let how_many = match all {
        1 => "the last delivery was".to_owned(),
        _ if same == 1 => format!("1 of the last {all} deliveries was"),
        _ => format!("{same} of the last {all} deliveries were"),
    };
    let Description { reason, what, advice } = describe(last);
    let at = Time::from_second(time.as_second()).unwrap_or(time);
    let about = &last.subject;
    Some((reason, format!("{how_many} {what}; {when} {at} for {about}; {advice}")))
}

struct Description {
    reason: String,
    what: String,
    advice: &'static str,
}

fn describe(park: &Park) -> Description {
    let error = &park.error;
    let code = park.code.unwrap_or_default();
    match Reason::parse(&park.reason) {
        Some(Reason::ReceiverGone) => Description {
            reason: park.reason.clone(),
            what: "rejected with 410 Gone".to_owned(),
            advice: "change spec.endpoint, or delete this Notification",
        },
        Some(Reason::ReceiverRejected | Reason::ReceiverNotFound | Reason::Redirected) => {
            let advice = match code {
                300..=399 => "Relaybook does not follow redirects; check the URL",
                404 => "check the URL",
                405 => "check the method and the URL",
                413 => "the body is too large for the receiver; check the template",
                _ => "check the template; status.response of the Delivery has the receiver's answer",
            };
            Description { reason: "ReceiverRejects".to_owned(), what: format!("rejected with {code}"), advice }
        }
        Some(Reason::ExpressionFailed) => Description {
            reason: park.reason.clone(),
            what: format!("parked because `when` of a trigger could not be evaluated ({error})"),
            advice: "correct the expression",
        },
        Some(Reason::TemplateInvalid | Reason::TemplateFailed | Reason::TemplatesCompiling) => Description {
            reason: park.reason.clone(),
            what: format!("parked because the template failed ({error})"),
            advice: "correct the template",
        },
        _ => Description {
            reason: if park.reason.is_empty() { UNKNOWN } else { &park.reason }.to_owned(),
            what: format!("parked after maxAge ({error})"),
            advice: "send it again with `relaybook redeliver` after you correct the cause",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn park(reason: &str, code: Option<u16>, error: &str) -> Park {
        Park { reason: reason.into(), code, error: error.into(), subject: "prod/c/web".into() }
    }

    fn told(parks: &[Park]) -> (String, String) {
        let times = (0..).map(|n| Time::from_millisecond(100_500 - n * 1000).unwrap());
        condition(times.zip(parks)).unwrap()
    }

    #[test]
    fn each_mix_of_parked_deliveries_has_its_reason_and_message() {
        let not_found = park("ReceiverNotFound", Some(404), "404 Not Found");
        let refused = park("ReceiverRejected", Some(422), "422 Unprocessable Entity");
        let table = [
            (
                vec![not_found.clone(); 4],
                "ReceiverRejects",
                "4 of the last 4 deliveries were rejected with 404; last at 1970-01-01T00:01:40Z for prod/c/web; check the URL",
            ),
            (
                vec![not_found.clone()],
                "ReceiverRejects",
                "the last delivery was rejected with 404; at 1970-01-01T00:01:40Z for prod/c/web; check the URL",
            ),
            (
                vec![refused.clone(), not_found.clone(), refused],
                "ReceiverRejects",
                "2 of the last 3 deliveries were rejected with 422; last at 1970-01-01T00:01:40Z for prod/c/web; check the template; \
                 status.response of the Delivery has the receiver's answer",
            ),
            (
                vec![park("Redirected", Some(302), "302 Found"), not_found.clone()],
                "ReceiverRejects",
                "1 of the last 2 deliveries was rejected with 302; last at 1970-01-01T00:01:40Z for prod/c/web; Relaybook does not \
                 follow redirects; check the URL",
            ),
            (
                vec![park("ReceiverGone", Some(410), "410 Gone")],
                "ReceiverGone",
                "the last delivery was rejected with 410 Gone; at 1970-01-01T00:01:40Z for prod/c/web; change spec.endpoint, or \
                 delete this Notification",
            ),
            (
                vec![park("ExpressionFailed", None, "there is no \"team\"")],
                "ExpressionFailed",
                "the last delivery was parked because `when` of a trigger could not be evaluated (there is no \"team\"); at \
                 1970-01-01T00:01:40Z for prod/c/web; correct the expression",
            ),
            (
                vec![park("TemplateInvalid", None, "no commit hash")],
                "TemplateInvalid",
                "the last delivery was parked because the template failed (no commit hash); at 1970-01-01T00:01:40Z for \
                 prod/c/web; correct the template",
            ),
            (
                vec![park("ReceiverError", Some(503), "503 Service Unavailable")],
                "ReceiverError",
                "the last delivery was parked after maxAge (503 Service Unavailable); at 1970-01-01T00:01:40Z for prod/c/web; \
                 send it again with `relaybook redeliver` after you correct the cause",
            ),
        ];
        for (parks, reason, message) in table {
            assert_eq!(told(&parks), (reason.to_owned(), message.to_owned()));
        }
        assert_eq!(condition(std::iter::empty()), None);
    }
}
