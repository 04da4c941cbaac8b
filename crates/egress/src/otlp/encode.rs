//! Encodes spans in the format of OTLP (<https://github.com/open-telemetry/opentelemetry-proto>). Pure.

use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{self as proto, ResourceSpans, ScopeSpans};
use prost::Message as _;

use relaybook_telemetry::Span;
use relaybook_telemetry::spans::Value;

/// The flag for a sampled span, as in `traceparent`.
const SAMPLED: u32 = 1;

/// The resource of all spans of this process.
#[derive(Clone, Debug)]
pub(crate) struct Origin(Resource);

impl Origin {
    /// Creates the resource for this program, with attributes that distinguish this process from others.
    pub(crate) fn new(about: &[(&'static str, String)]) -> Self {
        let own = [("service.name", "relaybook"), ("service.version", env!("CARGO_PKG_VERSION"))];
        let own = own.map(|(key, value)| pair(key, Value::from(value)));
        let about = about.iter().map(|(key, value)| pair(key, Value::from(value.as_str())));
        Self(Resource { attributes: own.into_iter().chain(about).collect(), ..Resource::default() })
    }

    /// Returns the body of a request with these spans.
    pub(crate) fn request(&self, spans: Vec<Span>) -> Vec<u8> {
        let scope = InstrumentationScope {
            name: "relaybook".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let spans = spans.into_iter().map(written).collect();
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
        let resource = ResourceSpans { resource: Some(self.0.clone()), scope_spans, ..ResourceSpans::default() };
        ExportTraceServiceRequest { resource_spans: vec![resource] }.encode_to_vec()
    }
}

/// Returns how many spans a collector rejected although it answered 2xx.
pub(crate) fn refused(answer: &[u8]) -> usize {
    // An answer in another format counts as full success.
    let answer = ExportTraceServiceResponse::decode(answer).ok();
    let refused = answer.and_then(|answer| answer.partial_success).map_or(0, |partial| partial.rejected_spans);
    refused.try_into().unwrap_or(0)
}

fn written(span: Span) -> proto::Span {
    let kind = if span.is_call { proto::span::SpanKind::Client } else { proto::span::SpanKind::Internal };
    let failed = |message| proto::Status { message, code: proto::status::StatusCode::Error.into() };
    let start = nanos(span.start);
    proto::Span {
        trace_id: span.trace.id().to_vec(),
        span_id: span.id.bytes().to_vec(),
        parent_span_id: span.parent.map(|parent| parent.bytes().to_vec()).unwrap_or_default(),
        flags: SAMPLED,
        name: span.name.to_owned(),
        kind: kind.into(),
        start_time_unix_nano: start,
        // The clock may have been set back in between.
        end_time_unix_nano: nanos(span.end).max(start),
        attributes: span.attributes.into_iter().map(|(key, value)| pair(key, value)).collect(),
        status: span.error.map(failed),
        ..proto::Span::default()
    }
}

fn pair(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => any_value::Value::StringValue(text),
        Value::Number(number) => any_value::Value::IntValue(number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn nanos(time: Timestamp) -> u64 {
    time.as_nanosecond().try_into().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;
    use relaybook_telemetry::{SpanId, Trace};

    #[test]
    fn spans_are_written_completely() {
        let trace = Trace::of_change("p", 1, "1".parse().unwrap());
        let span = Span {
            trace,
            id: SpanId::of(7),
            parent: Some(trace.root()),
            name: "attempt",
            is_call: true,
            start: Timestamp::from_millisecond(1500).unwrap(),
            end: Timestamp::from_millisecond(1400).unwrap(),
            attributes: vec![("a", Value::from("b")), ("n", Value::from(503))],
            error: Some("503 Service Unavailable".to_owned()),
        };
        let plain = Span { parent: None, is_call: false, error: None, ..span.clone() };
        let request = Origin::new(&[("service.instance.id", "pod-1".to_owned())]).request(vec![span, plain]);
        let read = ExportTraceServiceRequest::decode(&*request).unwrap();
        let of = &read.resource_spans[0];
        let names: Vec<_> = of.resource.as_ref().unwrap().attributes.iter().map(|pair| pair.key.as_str()).collect();
        assert_eq!(names, ["service.name", "service.version", "service.instance.id"]);
        let [one, two] = &of.scope_spans[0].spans[..] else { panic!("two spans") };
        assert_eq!((&one.trace_id[..], &one.span_id[..]), (&trace.id()[..], &[0, 0, 0, 0, 0, 0, 0, 7][..]));
        assert_eq!(one.parent_span_id, trace.root().bytes());
        assert_eq!((one.start_time_unix_nano, one.end_time_unix_nano), (1_500_000_000, 1_500_000_000));
        assert_eq!((one.kind(), two.kind()), (proto::span::SpanKind::Client, proto::span::SpanKind::Internal));
        assert_eq!(one.status.as_ref().map(proto::Status::code), Some(proto::status::StatusCode::Error));
        assert_eq!((two.parent_span_id.len(), two.status.as_ref(), one.attributes.len()), (0, None, 2));
    }

    #[test]
    fn rejected_spans_of_a_request_are_counted() {
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too old".to_owned() };
        let answer = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        for (answer, count) in [(&answer[..], 3), (&b""[..], 0), (&b"{\"partialSuccess\":{}}"[..], 0)] {
            assert_eq!(refused(answer), count);
        }
    }
}
