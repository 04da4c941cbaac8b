//! The port of the audit page. It reads requests within limits, and has [`Page`] answer them.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::body::{Unread, read};
use super::listener::{Limits, Peer};
use super::run;
use relaybook_page::{Answer, Asked, Content, Page};
use relaybook_runtime::fair::{Limits as Permitted, Permit, Permits};

/// Maximum length of the body of a form.
const LONGEST_BODY: usize = 64 * 1024;
/// Number of bytes in answers that were made and are not sent yet, in total and for each person. A client can read slowly, and the page shares
/// the memory of the controllers.
const UNSENT: Permitted = Permitted::new(16 * 1024 * 1024, 8 * 1024 * 1024);
/// Maximum duration of a connection. A stream of events ends by itself after ten minutes.
const LIFE: Duration = Duration::from_mins(11);

/// What answers requests.
#[derive(Clone)]
struct Served {
    page: Page,
    /// One permit for each byte of an answer that is not sent yet.
    memory: Memory,
}

/// The memory of answers, by person.
type Memory = Permits<Option<String>>;

/// Serves until `shutdown` is canceled. Then it answers the requests in flight, for two seconds at most.
pub async fn serve_page(listener: TcpListener, page: Page, shutdown: CancellationToken) {
    let served = Served { page: page.clone(), memory: Permits::new(UNSENT) };
    let router = Router::new().fallback(answer).with_state(served);
    tokio::select! {
        () = run(listener, router, Limits { life: LIFE, ..Limits::default() }, &shutdown) => {}
        () = page.sweep() => {}
    }
}

async fn answer(State(served): State<Served>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Some(peer) = parts.extensions.get::<Peer>() else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let body = match read(peer, body, LONGEST_BODY).await {
        Ok(body) => body,
        Err(why) => return refused(why),
    };
    let asked = Asked {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body,
    };
    let Answer { status, headers, content, person } = served.page.answer(asked, || peer.keep()).await;
    let body = match content {
        Content::Whole(bytes) => match unsent(&served.memory, person, bytes) {
            Some(bytes) => Body::from(bytes),
            None => return busy(),
        },
        Content::Fixed(bytes) => Body::from(bytes),
        Content::Stream(stream) => Body::from_stream(stream),
    };
    let mut response = Response::new(body);
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

fn refused(why: Unread) -> Response {
    match why {
        Unread::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "The form is too large.\n"),
        Unread::TooSlow => (StatusCode::REQUEST_TIMEOUT, "The form arrived too slowly.\n"),
        Unread::Incomplete => (StatusCode::BAD_REQUEST, "The form is incomplete.\n"),
    }
    .into_response()
}

fn busy() -> Response {
    let words = "Too much of what was sent is not read yet; reload the screen to try again.\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5"), (header::CACHE_CONTROL, "no-store")], words)
        .into_response()
}

/// An answer with its part of the memory for answers.
struct Unsent {
    bytes: Bytes,
    _memory: Permit<Option<String>>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Takes the part of the memory that an answer needs. It is free again when the server drops the last byte, because it was sent or the
/// connection is closed. `None`: too much of the memory is in use.
fn unsent(memory: &Memory, person: Option<String>, bytes: Bytes) -> Option<Bytes> {
    let permit = memory.try_acquire(person, (), bytes.len())?;
    Some(Bytes::from_owner(Unsent { bytes, _memory: permit }))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::http::listen;

    #[test]
    fn an_answer_holds_its_memory_until_its_last_byte_is_dropped() {
        let memory = Permits::new(Permitted::new(20, 10));
        let answer = |person: &str, length: usize| unsent(&memory, Some(person.to_owned()), vec![b'x'; length].into());
        let first = answer("ann", 8).unwrap();
        assert_eq!(answer("ann", 3), None, "more than her part");
        assert_eq!(answer("bob", 10).unwrap().len(), 10);
        let rest = first.slice(7..);
        drop(first);
        assert_eq!(answer("ann", 3), None, "the last byte is not sent");
        drop(rest);
        assert_eq!(answer("ann", 3).unwrap().len(), 3);
    }

    /// The server must not copy an answer, because the copy would not count.
    #[tokio::test]
    async fn an_answer_that_nobody_reads_keeps_its_memory_reserved() {
        const LENGTH: usize = 32 * 1024 * 1024;
        let memory: Memory = Permits::new(Permitted::new(LENGTH, LENGTH));
        let held = memory.clone();
        let whole = async move || Body::from(unsent(&held, None, vec![b'x'; LENGTH].into()).unwrap());
        let is_free = || memory.try_acquire(None, (), LENGTH).is_some();
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", axum::routing::get(whole));
        let stop = CancellationToken::new();
        tokio::spawn(async move { run(listener, router, Limits::default(), &stop).await });
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut read = vec![0; 4096];
        client.read_exact(&mut read).await.unwrap();
        assert!(!is_free());
        client.read_to_end(&mut read).await.unwrap();
        assert!(read.len() > LENGTH);
        // The server closes the connection after it has dropped the answer.
        assert!(is_free());
    }
}
