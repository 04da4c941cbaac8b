//! The export of spans to a collector, and the trace that receivers get.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use relaybook_telemetry::{Span, Tracer};

/// A collector that answers with these statuses, and then with 200.
struct Taker {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Taker {
    async fn answering(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bodies = Arc::<Mutex<Vec<_>>>::default();
        let log = Arc::clone(&bodies);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(take(BufReader::new(stream), statuses, Arc::clone(&log)));
            }
        });
        Self { address, bodies }
    }

    /// The spans of each request.
    fn spans(&self) -> Vec<usize> {
        let read = |body: &Vec<u8>| ExportTraceServiceRequest::decode(&**body).unwrap();
        let count = |body| read(body).resource_spans[0].scope_spans[0].spans.len();
        self.bodies.lock().iter().map(count).collect()
    }
}

async fn take(mut stream: BufReader<TcpStream>, statuses: &[u16], log: Arc<Mutex<Vec<Vec<u8>>>>) {
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n") && head.contains("application/x-protobuf"), "{head}");
        assert!(head.contains("\r\nx-scope: open sesame\r\n"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let number = {
            let mut log = log.lock();
            log.push(body);
            log.len() - 1
        };
        let status = statuses.get(number).unwrap_or(&200);
        let answer = format!("HTTP/1.1 {status} X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n");
        stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
    }
}

fn exporter(address: SocketAddr) -> (Tracer, Exporter, Metrics) {
    provider();
    let metrics = Metrics::new();
    let (tracer, spans): (_, mpsc::Receiver<Span>) = Tracer::on("1".parse().unwrap(), metrics.clone());
    let collector: Collector = format!("http://{address}").parse().unwrap();
    let collector = collector.with_headers("x-scope=open%20sesame").unwrap();
    let exporter = Exporter::new(collector, &[], spans, metrics.clone()).unwrap();
    (tracer, exporter, metrics)
}

fn make(tracer: &Tracer, count: i64) {
    for serial in 0..count {
        let trace = tracer.trace("p", serial).unwrap();
        let (start, end) = (relaybook_api::now(), relaybook_api::now());
        let attributes = Vec::new();
        let id = trace.root();
        tracer.take(Span { trace, id, parent: None, name: "x", is_call: false, start, end, attributes, error: None });
    }
}

fn counted(metrics: &Metrics, result: &str) -> usize {
    let (text, name) = (metrics.encode().unwrap(), format!("relaybook_spans_total{{result=\"{result}\"}} "));
    text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_batch_after_a_retryable_status_is_sent_again() {
    let taker = Taker::answering(&[503]).await;
    let (tracer, exporter, metrics) = exporter(taker.address);
    make(&tracer, 3);
    drop(tracer);
    exporter.run(CancellationToken::new()).await;
    assert_eq!(taker.spans(), [3, 3]);
    let bodies = taker.bodies.lock().clone();
    assert_eq!(bodies[0], bodies[1]);
    assert_eq!((counted(&metrics, "exported"), counted(&metrics, "failed")), (3, 0));
}

#[tokio::test]
async fn a_rejected_batch_is_dropped_and_counted_and_the_next_one_is_sent() {
    let taker = Taker::answering(&[400, 307]).await;
    let (tracer, exporter, metrics) = exporter(taker.address);
    make(&tracer, 1200);
    drop(tracer);
    exporter.run(CancellationToken::new()).await;
    assert_eq!(taker.spans(), [512, 512, 176], "a redirect is a rejection");
    assert_eq!((counted(&metrics, "exported"), counted(&metrics, "failed")), (176, 1024));
}

#[tokio::test]
async fn waiting_spans_are_sent_immediately_at_the_end() {
    let taker = Taker::answering(&[]).await;
    let (tracer, exporter, metrics) = exporter(taker.address);
    let closing = CancellationToken::new();
    closing.cancel();
    make(&tracer, 600);
    exporter.run(closing.clone()).await;
    assert_eq!(taker.spans(), [512, 88]);
    assert_eq!(counted(&metrics, "exported"), 600);
    make(&tracer, 1);
    assert_eq!(counted(&metrics, "dropped"), 1, "the exporter has ended");

    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (tracer, exporter, metrics) = self::exporter(nobody);
    make(&tracer, 5);
    exporter.run(closing).await;
    assert_eq!(counted(&metrics, "failed"), 5);
}

#[tokio::test]
async fn receivers_get_our_trace_unless_the_headers_have_another() {
    let receiver = Receiver::answering(OK).await;
    let ours = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let parent = HeaderName::from_static("traceparent");
    let traced = || Outgoing { trace_parent: Some(ours.parse().unwrap()), ..to(receiver.url("/")) };
    let mut told = traced();
    told.headers.push((parent, "theirs".parse().unwrap()));
    for out in [traced(), told, to(receiver.url("/"))] {
        assert_eq!(sender().send(out).await.result.status(), Some(200));
    }
    let said = |request: &String| {
        let lines = request.lines().filter_map(|line| line.strip_prefix("traceparent: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        receiver.requests().iter().map(said).collect::<Vec<_>>(),
        [vec![ours.to_owned()], vec!["theirs".to_owned()], vec![]]
    );
}
