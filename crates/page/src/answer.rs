//! A request of a browser, and its answer, as values that do not depend on a server.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream::BoxStream;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use maud::Markup;

/// What a page may load and where it may send: only to this server, and nothing that is written in the page itself
/// (<https://www.w3.org/TR/CSP3/>).
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// A request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: Method,
    /// The path, percent-encoded.
    pub path: String,
    /// The query, percent-encoded. Empty if there is none.
    pub query: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body. The server limits its length.
    pub body: Bytes,
}

/// An answer.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers, all that are needed.
    pub headers: HeaderMap,
    /// The body.
    pub content: Content,
    /// For whom it was made. `None`: for somebody who is not signed in.
    pub person: Option<String>,
}

/// The body of an answer.
pub enum Content {
    /// All of it.
    Whole(Bytes),
    /// A text or a file of the program, which needs no memory of its own.
    Fixed(&'static [u8]),
    /// Parts that follow over time.
    Stream(BoxStream<'static, Result<Bytes, Infallible>>),
}

impl Answer {
    fn new(status: StatusCode, media_type: &'static str, content: Content) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
            (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
            (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
            (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
            (
                HeaderName::from_static("permissions-policy"),
                HeaderValue::from_static("camera=(), geolocation=(), microphone=()"),
            ),
        ] {
            headers.insert(name, value);
        }
        Self { status, headers, content, person: None }
    }

    /// A page.
    pub(super) fn html(status: StatusCode, page: Markup) -> Self {
        Self::new(status, "text/html; charset=utf-8", Content::Whole(page.into_string().into()))
    }

    /// A sentence for programs, and for browsers that must not be shown a page.
    pub(super) fn text(status: StatusCode, text: &'static str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", Content::Fixed(text.as_bytes()))
    }

    /// A file of the page. Its path contains a hash of its content.
    pub(super) fn asset(asset: &'static crate::screens::asset::Asset) -> Self {
        let content = Content::Fixed(asset.content.as_bytes());
        let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
        Self::new(StatusCode::OK, asset.media_type, content).with(header::CACHE_CONTROL, kept)
    }

    /// A stream of events.
    pub(super) fn events(stream: BoxStream<'static, Result<Bytes, Infallible>>) -> Self {
        let answer = Self::new(StatusCode::OK, "text/event-stream", Content::Stream(stream));
        // nginx would otherwise collect the events.
        answer.with(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))
    }

    /// The address of another page, which the browser reads with GET.
    pub(super) fn see_other(path: &str) -> Self {
        let answer = Self::text(StatusCode::SEE_OTHER, "see the other address\n");
        match HeaderValue::from_str(path) {
            Ok(path) => answer.with(header::LOCATION, path),
            Err(_) => answer.with(header::LOCATION, HeaderValue::from_static("/")),
        }
    }

    /// Notes for whom it was made.
    pub(super) fn to(self, person: String) -> Self {
        Self { person: Some(person), ..self }
    }

    /// Sets a header.
    pub(super) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets a cookie.
    pub(super) fn with_cookie(self, cookie: &str) -> Self {
        match HeaderValue::from_str(cookie) {
            Ok(mut value) => {
                value.set_sensitive(true);
                self.with(header::SET_COOKIE, value)
            }
            Err(_) => self,
        }
    }
}
