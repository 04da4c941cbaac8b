//! The spans of a delivery: one from its recording to its outcome, and one child span for each request. Pure.
//!
//! In: a record, an attempt. Out: [`Span`]s. They contain no more than the status of the Delivery and the spec of the Notification. They
//! contain no path of a URL, no header, no body, and nothing from a Secret.

use http::HeaderValue;

use super::record::{Record, webhook_id};
use relaybook_api::{Outcome, Time};
use relaybook_egress::{Attempt, AttemptResult, Destination, Outgoing};
use relaybook_telemetry::spans::Value;
use relaybook_telemetry::{Span, SpanId, Trace, Tracer};

/// A request that is about to be sent.
pub(super) struct Call {
    trace: Trace,
    id: SpanId,
    parent: SpanId,
    attributes: Vec<(&'static str, Value)>,
}

impl Call {
    /// Starts the span of the next request for a delivery, if the delivery is traced. `lot` is a random number that distinguishes the
    /// request from all others. If a process is killed during a request, the next process repeats the request with a span of its own.
    pub(super) fn begin(tracer: &Tracer, record: &Record, outgoing: &Outgoing, lot: u64) -> Option<Self> {
        let spec = &record.spec;
        let trace = tracer.trace(&spec.pipeline_ref.uid, spec.serial)?;
        let mut attributes = vec![("http.request.method", Value::from(outgoing.method.as_str()))];
        // If the URL is in a Secret, the whole URL is secret, including the host.
        if let Destination::Url(url) = &outgoing.destination {
            attributes.push(("url.scheme", Value::from(url.scheme())));
            attributes.extend(url.host_str().map(|host| ("server.address", Value::from(host))));
            attributes.extend(url.port_or_known_default().map(|port| ("server.port", Value::from(i64::from(port)))));
        }
        if record.status.attempts > 0 {
            attributes.push(("http.request.resend_count", Value::from(record.status.attempts)));
        }
        attributes.push(("relaybook.delivery", Value::from(&*record.id.name)));
        Some(Self { trace, id: SpanId::of(lot), parent: own(record), attributes })
    }

    /// Returns the value of the header that identifies the request to the receiver.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.trace.parent_header(self.id)).ok()
    }

    /// Ends the span of the request. A request that was never made has no span.
    pub(super) fn end(mut self, attempt: &Attempt) -> Option<Span> {
        let error = match &attempt.result {
            AttemptResult::NotSent(_) => return None,
            AttemptResult::Answered { status, .. } => {
                self.attributes.push(("http.response.status_code", Value::from(i64::from(*status))));
                let counts_as = attempt.result.counts_as();
                counts_as.map_or_else(|| Some("unreadable".to_owned()), |s| (s >= 400).then(|| s.to_string()))
            }
            AttemptResult::Failed(failure) => Some(failure.kind.as_str().to_owned()),
        };
        let is_error = error.is_some();
        self.attributes.extend(error.map(|error| ("error.type", Value::Text(error))));
        Some(Span {
            trace: self.trace,
            id: self.id,
            parent: Some(self.parent),
            name: "attempt",
            is_call: true,
            start: attempt.started,
            end: attempt.started.checked_add(attempt.duration).unwrap_or(attempt.started),
            attributes: self.attributes,
            error: attempt.error().filter(|_| is_error),
        })
    }
}

/// Returns the span of a settled delivery, if the delivery is traced.
pub(super) fn settled(tracer: &Tracer, record: &Record, outcome: Outcome, now: Time) -> Option<Span> {
    let (spec, status) = (&record.spec, &record.status);
    let trace = tracer.sampled(&spec.pipeline_ref.uid, spec.serial)?;
    let mut attributes = vec![
        ("relaybook.delivery", Value::from(&*record.id.name)),
        ("relaybook.delivery.namespace", Value::from(&*record.id.namespace)),
        ("relaybook.notification", Value::from(&*spec.notification)),
        ("relaybook.transition", Value::from(spec.type_.as_str())),
        ("relaybook.outcome", Value::from(outcome.as_str())),
        ("relaybook.attempts", Value::from(status.attempts)),
    ];
    attributes.extend(status.reason.as_deref().map(|reason| ("relaybook.reason", Value::from(reason))));
    if status.superseded > 0 {
        attributes.push(("relaybook.superseded", Value::from(status.superseded)));
    }
    if record.again {
        attributes.push(("relaybook.redelivery", Value::from("true")));
    }
    // The API server stores whole seconds, so the recording can seem to precede the observation.
    let start = record.since().max(spec.time);
    let parked = outcome == Outcome::Parked;
    Some(Span {
        trace,
        id: own(record),
        parent: Some(trace.root()),
        name: "delivery",
        is_call: false,
        start,
        end: status.settled_time.unwrap_or(now).max(start),
        attributes,
        error: status.reason.clone().filter(|_| parked),
    })
}

/// Returns the span ID of a delivery. It is the same in every process. A redelivery has a different ID.
fn own(record: &Record) -> SpanId {
    let again = record.status.redelivered.as_ref().filter(|_| record.again);
    let again = again.map(|redelivered| redelivered.time.to_string()).unwrap_or_default();
    SpanId::hashed(&["delivery", &webhook_id(&record.spec), &again])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outbox::testing::record;
    use relaybook_api::delivery::Redelivered;
    use relaybook_api::notification::Method;
    use relaybook_api::notification::credentials::{SecretKey, TlsRef};
    use relaybook_egress::{Failure, FailureKind, Hidden, NotSent};
    use relaybook_telemetry::Metrics;

    fn tracer() -> Tracer {
        Tracer::on("1".parse().unwrap(), Metrics::new()).0
    }

    fn outgoing(destination: Destination) -> Outgoing {
        Outgoing {
            destination,
            method: Method::Put,
            headers: vec![("x-key".parse().unwrap(), "s3cr3t".parse().unwrap())],
            body: "s3cr3t".into(),
            id: "msg_1".to_owned(),
            trace_parent: None,
            auth: None,
            headers_from: None,
            signing: None,
            tls: TlsRef::default(),
            timeout: Duration::from_secs(1),
            until: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(1),
            success: None,
            thread: None,
            hidden: Hidden::default(),
            withhold_answer: false,
            is_test: false,
        }
    }

    fn literal() -> Destination {
        Destination::Url("https://hooks.example/s3cr3t?key=s3cr3t".parse().unwrap())
    }

    fn attempt(result: AttemptResult) -> Attempt {
        Attempt {
            started: Time::from_second(5).unwrap(),
            duration: Duration::from_millis(1500),
            result,
            step: None,
            learned: None,
        }
    }

    fn answered(status: u16) -> AttemptResult {
        AttemptResult::Answered {
            status,
            judged: None,
            retry_after: None,
            redirect: None,
            body: "s3cr3t".to_owned(),
            rotated: false,
        }
    }

    fn span(record: &Record, destination: Destination, result: AttemptResult) -> Span {
        Call::begin(&tracer(), record, &outgoing(destination), 7).unwrap().end(&attempt(result)).unwrap()
    }

    fn text<'a>(span: &'a Span, name: &str) -> Option<&'a Value> {
        span.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    #[test]
    fn attempts_and_outcome_of_a_delivery_have_one_trace() {
        let mut record = record(7);
        let first = span(&record, literal(), answered(503));
        record.status.attempts = 1;
        let second = span(&record, literal(), answered(200));
        let whole = settled(&tracer(), &record, Outcome::Delivered, Time::UNIX_EPOCH).unwrap();
        assert!(first.trace == second.trace && first.trace == whole.trace);
        assert_eq!((first.parent, second.parent, whole.parent), (Some(whole.id), Some(whole.id), Some(whole.trace.root())));
        assert_eq!(text(&first, "http.request.resend_count"), None);
        assert_eq!(text(&second, "http.request.resend_count"), Some(&Value::Number(1)));
        let other = settled(&tracer(), &crate::outbox::testing::record(8), Outcome::Delivered, Time::UNIX_EPOCH).unwrap();
        assert!(other.trace != whole.trace && other.id != whole.id);
    }

    #[test]
    fn a_redelivery_has_a_span_of_its_own_in_the_same_trace() {
        let before = record(7);
        let mut again = Record { again: true, ..before.clone() };
        let since =
            |record: &Record| settled(&tracer(), record, Outcome::Delivered, Time::from_second(90).unwrap()).unwrap();
        again.status.redelivered = Some(Redelivered { value: "1".into(), time: Time::from_second(60).unwrap() });
        let (one, two) = (since(&before), since(&again));
        assert!(one.trace == two.trace && one.id != two.id);
        assert_eq!(two.start, Time::from_second(60).unwrap());
        assert_eq!(span(&again, literal(), answered(200)).parent, Some(two.id));
        again.status.redelivered = Some(Redelivered { value: "1".into(), time: Time::from_second(61).unwrap() });
        assert_ne!(since(&again).id, two.id);
    }

    #[test]
    fn a_span_has_the_error_of_its_request() {
        let failed = |kind| AttemptResult::Failed(Failure { kind, text: "no answer within 15s".to_owned() });
        for (result, kind, error) in [
            (answered(204), None, None),
            (answered(302), None, None),
            (answered(404), Some("404"), Some("404 Not Found")),
            (answered(503), Some("503"), Some("503 Service Unavailable")),
            (failed(FailureKind::Timeout), Some("timeout"), Some("no answer within 15s")),
        ] {
            let span = span(&record(7), literal(), result);
            assert_eq!(text(&span, "error.type"), kind.map(Value::from).as_ref());
            assert_eq!(span.error.as_deref(), error);
            assert_eq!(span.end.as_millisecond() - span.start.as_millisecond(), 1500);
        }
        let call = Call::begin(&tracer(), &record(7), &outgoing(literal()), 7).unwrap();
        let never = AttemptResult::NotSent(NotSent::InsecureScheme);
        assert_eq!(call.end(&attempt(never)), None, "a request that was never made");
    }

    #[test]
    fn a_span_has_scheme_host_and_port_of_a_url_and_nothing_of_a_secret_one() {
        let shown = span(&record(7), literal(), answered(500));
        for (name, value) in [("http.request.method", "PUT"), ("url.scheme", "https"), ("server.address", "hooks.example")] {
            assert_eq!(text(&shown, name), Some(&Value::from(value)));
        }
        assert_eq!(text(&shown, "server.port"), Some(&Value::Number(443)));
        let hidden = span(&record(7), Destination::Secret(SecretKey::new("team-a", "chat", "url")), answered(500));
        assert!(["url.scheme", "server.address", "server.port"].iter().all(|name| text(&hidden, name).is_none()));
        for span in [shown, hidden] {
            assert!(!format!("{span:?}").contains("s3cr3t"), "{span:?}");
        }
    }

    #[test]
    fn a_parked_delivery_says_why() {
        let mut record = record(7);
        record.status.reason = Some("Rejected".to_owned());
        let parked = settled(&tracer(), &record, Outcome::Parked, Time::UNIX_EPOCH).unwrap();
        assert_eq!(parked.error.as_deref(), Some("Rejected"));
        let canceled = settled(&tracer(), &record, Outcome::Canceled, Time::UNIX_EPOCH).unwrap();
        assert_eq!((canceled.error, parked.end >= parked.start), (None, true));
        assert_eq!(settled(&Tracer::default(), &record, Outcome::Parked, Time::UNIX_EPOCH), None, "off");
    }

    #[test]
    fn the_header_names_the_request() {
        let call = Call::begin(&tracer(), &record(7), &outgoing(literal()), 7).unwrap();
        let header = call.header().unwrap();
        assert!(header.to_str().unwrap().ends_with("-0000000000000007-01"), "{header:?}");
        assert!(Call::begin(&Tracer::default(), &record(7), &outgoing(literal()), 7).is_none(), "off");
    }
}
