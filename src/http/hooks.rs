//! The port for hooks. It reads requests within limits, and has [`Service`] answer them.
//!
//! A body is read completely before anything about the request is decided. So the answer and its time are the same for all requests without
//! a right signature, and no answer is lost because the other side is still sending.

use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, RETRY_AFTER};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::listener::{Limits, Peer};
use super::run;
use crate::hooks::{Answer, LONGEST_BODY, Service, Source, route};

/// Maximum time from the head of a request to the end of its body.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Maximum duration of a connection: the head, the body and the calls of the API server.
const LIFE: Duration = Duration::from_secs(45);
/// Of a body that is not needed, at most this much is read before the answer. Clients that are still sending would not read it.
const DRAINED: usize = 256 * 1024;
/// Maximum time for that.
const DRAIN_TIME: Duration = Duration::from_secs(1);

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
    let answer = match service.enter(source(peer.address().ip())) {
        Ok(entered) => match read(body, Instant::now() + BODY_TIME).await {
            Ok(body) => service.answer(&entered, &route, &parts.headers, &body, || peer.keep()).await,
            Err(answer) => answer,
        },
        Err(answer) => {
            drain(body.into_data_stream()).await;
            answer
        }
    };
    service.count(route.hook, &answer);
    response(&answer)
}

/// Returns the source with this address. A listener for IPv6 can have clients of IPv4.
fn source(address: IpAddr) -> Source {
    match address.to_canonical() {
        IpAddr::V4(address) => Source::v4(address.to_bits()),
        IpAddr::V6(address) => Source::v6(address.to_bits()),
    }
}

async fn refused(answer: &Answer, body: Body) -> Response {
    drain(body.into_data_stream()).await;
    response(answer)
}

/// Reads a body.
async fn read(body: Body, until: Instant) -> Result<Bytes, Answer> {
    let (mut chunks, mut bytes) = (body.into_data_stream(), Vec::<u8>::new());
    loop {
        match timeout_at(until, chunks.next()).await {
            Ok(None) => return Ok(bytes.into()),
            Ok(Some(Ok(chunk))) if bytes.len() + chunk.len() <= LONGEST_BODY => bytes.extend_from_slice(&chunk),
            Ok(Some(Ok(_))) => {
                drain(chunks).await;
                return Err(Answer::TooLarge);
            }
            Ok(Some(Err(_))) => return Err(Answer::Invalid("the body is incomplete".to_owned())),
            Err(_) => return Err(Answer::TooSlow),
        }
    }
}

/// Reads the beginning of a body, and drops it.
async fn drain(mut chunks: BodyDataStream) {
    let (until, mut length) = (Instant::now() + DRAIN_TIME, 0);
    while length < DRAINED
        && let Ok(Some(Ok(chunk))) = timeout_at(until, chunks.next()).await
    {
        length += chunk.len();
    }
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
    fn sources_are_addresses_and_networks() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }

    #[tokio::test]
    async fn a_body_is_bounded_in_length_and_time() {
        let until = || Instant::now() + Duration::from_secs(10);
        let longest = vec![b'x'; LONGEST_BODY];
        assert_eq!(read(Body::from(longest.clone()), until()).await.map(|bytes| bytes.len()), Ok(LONGEST_BODY));
        assert_eq!(read(Body::from([longest, vec![b'x']].concat()), until()).await, Err(Answer::TooLarge));
        assert_eq!(read(Body::empty(), until()).await, Ok(Bytes::new()));
        let drip = futures::stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok::<_, std::io::Error>("x")
        });
        let soon = Instant::now() + Duration::from_millis(100);
        assert_eq!(read(Body::from_stream(drip), soon).await, Err(Answer::TooSlow));
    }

    #[test]
    fn answers_have_a_line_of_text_and_headers() {
        let header = |answer: &Answer, name: HeaderName| response(answer).headers().get(name).cloned();
        assert_eq!(header(&Answer::Unavailable("a"), RETRY_AFTER).unwrap(), "5");
        assert_eq!(header(&Answer::NotAllowed, ALLOW).unwrap(), "POST");
        assert_eq!(header(&Answer::Unauthorized, RETRY_AFTER), None);
        assert_eq!(response(&Answer::Approved).status(), StatusCode::NO_CONTENT);
    }
}
