//! Pure: the span of a change, from its observation until it is recorded.

use relaybook_api::{Change, Pipeline, Time};
use relaybook_telemetry::spans::Value;
use relaybook_telemetry::{Span, Tracer};

/// Returns the span of a change that was just recorded in a pipeline.
pub(crate) fn recorded(tracer: &Tracer, pipeline: &Pipeline, change: &Change, now: Time) -> Option<Span> {
    let of = &pipeline.metadata;
    let trace = tracer.sampled(of.uid.as_deref()?, change.serial)?;
    // The `Debug` name of a status is its value in the API.
    let attributes = vec![
        ("relaybook.pipeline", Value::from(of.name.as_deref().unwrap_or_default())),
        ("relaybook.pipeline.namespace", Value::from(of.namespace.as_deref().unwrap_or_default())),
        ("relaybook.subject", Value::from(&*change.subject)),
        ("relaybook.serial", Value::from(change.serial)),
        ("relaybook.status", Value::Text(format!("{:?}", change.to.status))),
        ("relaybook.revision", Value::from(&*change.to.revision)),
    ];
    Some(Span {
        trace,
        id: trace.root(),
        parent: None,
        name: "change",
        is_call: false,
        start: change.time,
        end: now.max(change.time),
        attributes,
        error: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::{PipelineSpec, State, Status};
    use relaybook_telemetry::Metrics;

    #[test]
    fn a_change_is_the_root_of_its_trace() {
        let mut pipeline = Pipeline::new("shop", PipelineSpec::default());
        let state = |message: &str| State {
            status: Status::Failed,
            revision: "2".into(),
            message: message.into(),
            ..State::default()
        };
        let time = Time::from_second(5).unwrap();
        let change = Change { serial: 7, subject: "target/dev/c/web".into(), time, to: state("said"), ..Change::default() };
        let tracer = Tracer::on("1".parse().unwrap(), Metrics::new()).0;
        assert_eq!(recorded(&tracer, &pipeline, &change, time), None, "an object without a uid is not from the API");
        pipeline.metadata.uid = Some("u".into());
        let span = recorded(&tracer, &pipeline, &change, Time::from_second(4).unwrap()).unwrap();
        assert_eq!((Some(span.trace), span.id, span.parent), (tracer.trace("u", 7), span.trace.root(), None));
        assert_eq!((span.start, span.end), (time, time), "the clock was set back");
        assert!(span.attributes.contains(&("relaybook.status", Value::from("Failed"))));
        assert!(!format!("{span:?}").contains("said"), "a span does not contain messages of application objects");
        assert_eq!(recorded(&Tracer::default(), &pipeline, &change, time), None, "tracing is off");
    }
}
