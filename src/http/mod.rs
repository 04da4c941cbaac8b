//! The HTTP ports of the process: one for liveness, readiness and metrics, one for hooks, and one for the audit page.
//!
//! In: read-only handles ([`Metrics`], [`Gates`]), the [`Service`](crate::hooks::Service) of hooks, the
//! [`Page`](relaybook_page::Page), bound listeners, and the token that
//! stops the servers. Out: `/healthz` (200 as long as the process runs), `/readyz` (200, or 503 with the closed gates, one per line),
//! `/metrics` (`OpenMetrics` text). On the other ports: the answers of the hooks, and HTML.
//!
//! No path of the first port accepts credentials or changes anything. The number, memory and duration of connections are limited on all
//! of them (see `listener.rs`).

mod body;
mod excess;
mod gates;
mod hooks;
mod listener;
mod page;

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use relaybook_telemetry::{Metrics, metrics};

pub use gates::{Gate, Gates};
pub use hooks::serve_hooks;
use listener::Limits;
pub use listener::listen;
pub use page::serve_page;

/// Maximum duration of requests in flight after the shutdown begins.
const LINGER: Duration = Duration::from_secs(2);

/// The values that the routes serve.
#[derive(Clone, Debug)]
pub struct Served {
    /// The metrics.
    pub metrics: Metrics,
    /// The conditions that must hold before the process is ready.
    pub gates: Gates,
    /// The runtimes whose tasks are counted.
    pub runtimes: Vec<Handle>,
}

/// Serves until `shutdown` is canceled. Then it answers the requests in flight, for two seconds at most.
pub async fn serve(listener: TcpListener, served: Served, shutdown: CancellationToken) {
    run(listener, router(served), Limits::default(), &shutdown).await;
}

async fn run(listener: TcpListener, router: Router, limits: Limits, shutdown: &CancellationToken) {
    let mut unanswered = listener::answer(listener, router, limits, shutdown).await;
    let answered = async { while unanswered.join_next().await.is_some() {} };
    // The connections of slower requests are closed.
    let _ = tokio::time::timeout(LINGER, answered).await;
}

fn router(served: Served) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(served)
}

async fn ready(State(served): State<Served>) -> (StatusCode, String) {
    let closed = served.gates.closed();
    if closed.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, closed.join("\n") + "\n")
}

async fn scrape(State(served): State<Served>) -> Response {
    served.metrics.tasks(served.runtimes.iter().map(|runtime| runtime.metrics().num_alive_tasks()).sum());
    match served.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "could not encode the metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;

    use super::*;
    use relaybook_api::Outcome;
    use relaybook_api::promotion::Phase;

    struct Running {
        address: SocketAddr,
        shutdown: CancellationToken,
        task: JoinHandle<()>,
    }

    async fn running(served: Served) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(serve(listener, served, shutdown.clone()));
        Running { address, shutdown, task }
    }

    impl Running {
        /// Sends one request. Returns head and body of the answer.
        async fn get(&self, path: &str) -> (String, String) {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head.to_owned(), body.to_owned())
        }
    }

    #[tokio::test]
    async fn readiness_names_the_gates_that_are_closed() {
        let gates = Gates::default();
        let (pipelines, deliveries) = (gates.add("pipelines"), gates.add("deliveries"));
        let server = running(Served { metrics: Metrics::new(), gates, runtimes: Vec::new() }).await;

        let (head, body) = server.get("/readyz").await;
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
        assert_eq!(body, "pipelines\ndeliveries\n");
        assert!(server.get("/healthz").await.0.starts_with("HTTP/1.1 200"));

        pipelines.open();
        assert_eq!(server.get("/readyz").await.1, "deliveries\n");
        deliveries.open();
        let (head, body) = server.get("/readyz").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(body, "ok\n");
    }

    #[tokio::test]
    async fn metrics_are_served_as_openmetrics() {
        let metrics = Metrics::new();
        let server = running(Served { metrics: metrics.clone(), gates: Gates::default(), runtimes: Vec::new() }).await;
        metrics.pending(3);
        let (head, body) = server.get("/metrics").await;
        assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
        assert!(body.contains("relaybook_deliveries_pending 3\n"), "{body}");
        assert!(server.get("/other").await.0.starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn the_words_of_the_api_have_series_from_the_start() {
        let text = Metrics::new().encode().unwrap();
        let outcomes =
            Outcome::ALL.map(|outcome| format!("relaybook_deliveries_total{{outcome=\"{}\"}} 0\n", outcome.as_str()));
        let phases = Phase::ALL.map(|phase| format!("relaybook_promotions{{phase=\"{}\"}} 0\n", phase.as_str()));
        for series in outcomes.iter().chain(&phases) {
            assert!(text.contains(series), "{series} is not in\n{text}");
        }
        assert_eq!(text.matches("relaybook_deliveries_total{").count(), outcomes.len());
        assert_eq!(text.matches("relaybook_promotions{").count(), phases.len());
    }

    #[tokio::test]
    async fn a_client_that_never_finishes_does_not_delay_the_shutdown() {
        let server = running(Served { metrics: Metrics::new(), gates: Gates::default(), runtimes: Vec::new() }).await;
        let mut half = TcpStream::connect(server.address).await.unwrap();
        half.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
        assert!(server.get("/healthz").await.0.starts_with("HTTP/1.1 200"));
        server.shutdown.cancel();
        let ended = tokio::time::timeout(LINGER * 4, server.task).await;
        assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
        assert!(TcpStream::connect(server.address).await.is_err(), "the port is closed");
    }
}
