//! The port for hooks. It reads requests within limits, and has [`Service`] answer them.
//!
//! A body is read completely before anything about the request is decided. So the answer and its time are the same for all requests without
//! a right signature, and no answer is lost because the other side is still sending.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, RETRY_AFTER};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::body::{Unread, drain, read};
use super::listener::{Limits, Peer};
use super::run;
use crate::hooks::{Answer, LONGEST_BODY, Service, route};

/// Maximum duration of a connection: the head, the body and the calls of the API server.
const LIFE: Duration = Duration::from_secs(45);

/// Serves until `shutdown` is canceled. Then it answers the requests in flight, for two seconds at most.
pub async fn serve_hooks(listener: TcpListener, service: Service, shutdown: CancellationToken) {
    let router = Router::new().fallback(answer).with_state(service);
    run(listener, router, Limits { life: LIFE, ..Limits::default() }, &shutdown).await;
}

async fn answer(State(service): State<Service>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Some(peer) = parts.extensions.get::<Peer>() else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let Some(route) = route(parts.uri.path()) else { return refused(&Answer::NotFound, body).await };
    if parts.method != Method::POST {
        return refused(&Answer::NotAllowed, body).await;
    }
    let answer = match read(peer, body, LONGEST_BODY).await {
        Ok(body) => service.answer(peer.source(), &route, &parts.headers, &body, || peer.keep()).await,
        Err(Unread::TooLong) => Answer::TooLarge,
        Err(Unread::TooSlow) => Answer::TooSlow,
        Err(Unread::Incomplete) => Answer::Invalid("the body is incomplete".to_owned()),
    };
    service.count(route.hook, &answer);
    response(&answer)
}

async fn refused(answer: &Answer, body: Body) -> Response {
    drain(body.into_data_stream()).await;
    response(answer)
}

fn response(answer: &Answer) -> Response {
    let text = answer.text();
    let mut response = if text.is_empty() {
        answer.status().into_response()
    } else {
        (answer.status(), format!("{text}\n")).into_response()
    };
    if let Some(seconds) = answer.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if *answer == Answer::NotAllowed {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    #[test]
    fn answers_have_a_line_of_text_and_headers() {
        let header = |answer: &Answer, name: HeaderName| response(answer).headers().get(name).cloned();
        assert_eq!(header(&Answer::Unavailable("a"), RETRY_AFTER).unwrap(), "5");
        assert_eq!(header(&Answer::NotAllowed, ALLOW).unwrap(), "POST");
        assert_eq!(header(&Answer::Unauthorized, RETRY_AFTER), None);
        assert_eq!(response(&Answer::Approved).status(), StatusCode::NO_CONTENT);
    }
}
