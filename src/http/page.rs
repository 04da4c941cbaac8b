//! The port of the audit page. It reads requests within limits, and has [`Page`] answer them.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::listener::Limits;
use super::run;
use crate::page::{Answer, Asked, Content, Page};

/// Maximum length of the body of a form.
const LONGEST_BODY: usize = 64 * 1024;
/// Maximum time in which it arrives.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Limits of connections. A stream of events ends by itself after ten minutes, and each open page has one.
const LIMITS: Limits =
    Limits { max_connections: 320, head: 16 * 1024, head_time: Duration::from_secs(10), life: Duration::from_mins(11) };

/// Serves until `shutdown` is canceled. Then it answers the requests in flight, for two seconds at most.
pub async fn serve_page(listener: TcpListener, page: Page, shutdown: CancellationToken) {
    let router = Router::new().fallback(answer).with_state(page.clone());
    tokio::select! {
        () = run(listener, router, LIMITS, &shutdown) => {}
        () = page.sweep() => {}
    }
}

async fn answer(State(page): State<Page>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = match tokio::time::timeout(BODY_TIME, to_bytes(body, LONGEST_BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return (StatusCode::PAYLOAD_TOO_LARGE, "The form is too large.\n").into_response(),
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "The form did not arrive in time.\n").into_response(),
    };
    let asked = Asked {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body,
    };
    response(page.answer(asked).await)
}

fn response(answer: Answer) -> Response {
    let body = match answer.content {
        Content::Whole(bytes) => Body::from(bytes),
        Content::Stream(stream) => Body::from_stream(stream),
    };
    let mut response = Response::new(body);
    (*response.status_mut(), *response.headers_mut()) = (answer.status, answer.headers);
    response
}
