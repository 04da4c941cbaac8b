//! Traces from a change to its outcome: they continue after a restart, contain no secrets, and a failing collector delays nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use prost::Message as _;
use serde_json::json;

use crate::support::receiver::Request;
use crate::support::relaybook::Options;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

/// The path at which a collector receives spans.
const PATH: &str = "/v1/traces";

/// Returns all spans that a collector has received.
fn spans(collector: &Receiver) -> Vec<Span> {
    let read = |request: &Request| ExportTraceServiceRequest::decode(&*request.body).expect("protobuf");
    let all = collector.to(PATH).iter().map(read).flat_map(|request| request.resource_spans).collect::<Vec<_>>();
    all.into_iter().flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
}

/// Returns the attributes as text.
fn texts(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    pairs.iter().map(|pair| (pair.key.clone(), text(pair))).collect()
}

/// Waits until a collector has this number of spans with this name in a trace. Returns them ordered by start time.
async fn wait(collector: &Receiver, trace: &str, name: &str, count: usize) -> Vec<Span> {
    eventually(&format!("{count} spans {name} of {trace}"), async || {
        let all = spans(collector);
        let mut found: Vec<_> =
            all.iter().filter(|s| hex::encode(&s.trace_id) == trace && s.name == name).cloned().collect();
        found.sort_by_key(|span| span.start_time_unix_nano);
        let names = || all.iter().map(|s| (hex::encode(&s.trace_id), s.name.clone())).collect::<Vec<_>>();
        if found.len() == count { Ok(found) } else { Err(format!("{:?}", names())) }
    })
    .await
}

/// Returns trace ID, span ID and flags of the `traceparent` of a request.
fn parent(request: &Request) -> (String, String, String) {
    let header = request.header("traceparent");
    let parts: Vec<_> = header.split('-').map(str::to_owned).collect();
    let [version, trace, span, flags] = <[String; 4]>::try_from(parts).unwrap_or_else(|_| panic!("{header:?}"));
    assert_eq!((version.as_str(), trace.len(), span.len(), flags.len()), ("00", 32, 16, 2), "{header}");
    (trace, span, flags)
}

fn traced(world: &World, collector: &Receiver, more: &[&str]) -> Options {
    let url = collector.url("");
    let args = [&["--tracing-endpoint", url.as_str()][..], more].concat();
    let headers = "authorization=Bearer%20c0llector-s3cr3t".to_owned();
    let env = vec![("OTEL_EXPORTER_OTLP_HEADERS", headers)];
    Options { args: args.into_iter().map(str::to_owned).collect(), env, ..Options::of(world) }
}

#[tokio::test]
async fn a_trace_goes_from_the_change_to_the_outcome_also_over_a_kill() {
    let world = World::new("traced").await;
    let (receiver, collector) = (Receiver::start(), Receiver::start());
    receiver.script("/hook/web", [Reply::status(503).body("s3cr3t-token")]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.secret("token", json!({"key": "s3cr3t-token"})).await;
    let hook = json!({
        "endpoint": {"auth": {"token": {"secretKeyRef": {"name": "token", "key": "key"}}}, "headers": {"x-key": "s3cr3t-header"}},
        "delivery": {"retry": {"initial": "30s", "max": "30s"}},
    });
    world.notification("hook", &receiver, hook).await;
    let mut relaybook = Relaybook::with(&world, traced(&world, &collector, &[])).await;
    world.settled().await;

    world.ship("web", "2").await;
    let first = receiver.wait("/hook/web", 1).await.remove(0);
    let (trace, span, flags) = parent(&first);
    assert_eq!(flags, "01");
    let change = wait(&collector, &trace, "change", 1).await.remove(0);
    let failed = wait(&collector, &trace, "attempt", 1).await.remove(0);
    assert_eq!(hex::encode(&failed.span_id), span);
    world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.next_attempt_time.is_some())).await;
    relaybook.kill9();
    relaybook.start_again().await;
    let second = receiver.wait("/hook/web", 2).await.remove(1);
    let attempts = wait(&collector, &trace, "attempt", 2).await;
    let whole = wait(&collector, &trace, "delivery", 1).await.remove(0);
    assert_eq!(parent(&second), (trace.clone(), hex::encode(&attempts[1].span_id), "01".to_owned()));
    assert_ne!(parent(&second), parent(&first));

    assert_eq!((change.parent_span_id.len(), &whole.parent_span_id), (0, &change.span_id));
    assert!(attempts.iter().all(|attempt| attempt.parent_span_id == whole.span_id && attempt.kind() == SpanKind::Client));
    let told: Vec<_> = attempts.iter().map(|attempt| texts(&attempt.attributes)).collect();
    let url = receiver.url("");
    let port = url.rsplit(':').next().unwrap();
    for (name, one, two) in [
        ("http.request.method", Some("POST"), Some("POST")),
        ("server.address", Some("127.0.0.1"), Some("127.0.0.1")),
        ("server.port", Some(port), Some(port)),
        ("http.response.status_code", Some("503"), Some("200")),
        ("error.type", Some("503"), None),
        ("http.request.resend_count", None, Some("1")),
    ] {
        assert_eq!(told.iter().map(|t| t.get(name).map(String::as_str)).collect::<Vec<_>>(), [one, two], "{name}");
    }
    let code = |span: &Span| span.status.as_ref().map(opentelemetry_proto::tonic::trace::v1::Status::code);
    assert_eq!((code(&attempts[0]), code(&attempts[1]), code(&whole)), (Some(StatusCode::Error), None, None));
    let (of_change, of_delivery) = (texts(&change.attributes), texts(&whole.attributes));
    let recorded = world.delivery("Deployed 2", |_| true).await;
    assert_eq!(
        (&of_change["relaybook.serial"], &of_change["relaybook.revision"]),
        (&recorded.spec.serial.to_string(), &"2".to_owned())
    );
    assert_eq!(Some(&of_delivery["relaybook.delivery"]), recorded.metadata.name.as_ref());
    assert_eq!((&*of_delivery["relaybook.outcome"], &*of_delivery["relaybook.attempts"]), ("Delivered", "2"));
    let in_time = |span: &Span| change.start_time_unix_nano <= span.start_time_unix_nano;
    assert!(attempts.iter().chain([&whole]).all(in_time) && whole.end_time_unix_nano >= attempts[1].start_time_unix_nano);

    // Each change has its own trace.
    world.fence("shop", &["hook"]).await;
    assert_ne!(parent(&receiver.to("/hook/fence")[0]).0, trace);
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
    relaybook.stop().await;
    for request in collector.log() {
        assert_eq!((&*request.path, request.header("authorization")), (PATH, "Bearer c0llector-s3cr3t"));
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains("s3cr3t") && !body.contains("/hook/"), "no credential and no path: {body}");
    }
    let shown = format!("{}{:?}", relaybook.log(), world.events().await);
    assert!(!shown.contains("s3cr3t"), "{shown}");
}

#[tokio::test]
async fn a_hanging_collector_delays_nothing() {
    let world = World::new("traced-hangs").await;
    let (receiver, collector) = (Receiver::start(), Receiver::start());
    collector.always(PATH, Reply::Hang);
    world.deploy("web", "0").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let mut relaybook = Relaybook::with(&world, traced(&world, &collector, &[])).await;
    world.settled().await;
    let tags: Vec<_> = (1..=10).map(|n| n.to_string()).collect();
    world.ship("web", &tags[0]).await;
    collector.wait(PATH, 1).await;
    for tag in &tags[1..] {
        world.ship("web", tag).await;
    }
    world.fence("shop", &["hook"]).await;
    assert_eq!(relaybook.metrics().await["relaybook_spans_total{result=\"exported\"}"], 0.0);

    // No request to the receiver is in flight, but the spans of the fence are not exported yet. So the stop waits only for the collector.
    let asked = Instant::now();
    relaybook.stop().await;
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    let log = relaybook.log();
    assert!(log.contains("the last spans were not exported in time"), "{log}");
    let steps: Vec<_> = tags.iter().map(|tag| format!("Deployed {tag}")).collect();
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &steps).check().await;
    assert!(receiver.to("/hook/web").iter().all(|request| parent(request).2 == "01"));
}

#[tokio::test]
async fn tracing_is_off_by_default() {
    let world = World::new("traced-off").await;
    let (receiver, collector) = (Receiver::start(), Receiver::start());
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let env = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"].map(|name| (name, collector.url("")));
    let env = [&env[..], &[("OTEL_EXPORTER_OTLP_HEADERS", "no header at all".to_owned())]].concat();
    let mut relaybook = Relaybook::with(&world, Options { env, ..Options::of(&world) }).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
    relaybook.stop().await;
    assert!(receiver.log().iter().all(|request| !request.headers.contains_key("traceparent")));
    assert_eq!(collector.connections(), 0);
}

#[tokio::test]
async fn unsampled_traces_are_marked_and_a_configured_traceparent_takes_precedence() {
    let world = World::new("traced-sample").await;
    let (receiver, collector) = (Receiver::start(), Receiver::start());
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    world.notification("own", &receiver, json!({"endpoint": {"headers": {"traceparent": theirs}}})).await;
    let mut relaybook = Relaybook::with(&world, traced(&world, &collector, &["--tracing-sample", "0"])).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook", "own"]).await;
    let oracle = Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]);
    oracle.lane("shop/own/dev/web", &["Deployed 2"]).check().await;
    relaybook.stop().await;
    assert_eq!(parent(&receiver.to("/hook/web")[0]).2, "00");
    assert_eq!(receiver.to("/own/web")[0].header("traceparent"), theirs);
    assert_eq!(collector.connections(), 0);
}

#[tokio::test]
async fn a_secret_url_does_not_appear_in_traces() {
    let world = World::new("traced-secret").await;
    let (receiver, collector) = (Receiver::start(), Receiver::start());
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.secret("url", json!({"url": receiver.url("/services/T0/B0")})).await;
    let from = json!({"endpoint": {"url": null, "urlFrom": {"secretKeyRef": {"name": "url", "key": "url"}}}});
    world.notification("hook", &receiver, from).await;
    let _relaybook = Relaybook::with(&world, traced(&world, &collector, &[])).await;
    world.settled().await;
    world.ship("web", "2").await;
    let sent = receiver.wait("/services/T0/B0", 1).await.remove(0);
    let attempt = wait(&collector, &parent(&sent).0, "attempt", 1).await.remove(0);
    let told = texts(&attempt.attributes);
    assert_eq!(told["http.response.status_code"], "200");
    assert!(told.keys().all(|name| !name.starts_with("server.") && !name.starts_with("url.")), "{told:?}");
    wait(&collector, &parent(&sent).0, "delivery", 1).await;
    let address = receiver.url("").trim_start_matches("http://").to_owned();
    for request in collector.log() {
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains(&address) && !body.contains("services"), "{body}");
    }
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
}
