//! Limits on how much is read from a remote API server, which may send without end, and on how often it is called.
//!
//! In: the responses of a client. Out: the same, with limits. A list or any other response ends with [`TooLarge`] above 64 MiB, an error
//! response above 1 MiB. One line of a watch, which is one event, ends above 8 MiB. Everything except a watch must be complete after a
//! minute. Watches of one path start at least a second apart.

mod pace;

use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tower::{BoxError, Layer, Service};

use pace::Pace;

const MAX_ANSWER: u64 = 64 << 20;
const MAX_REFUSAL: u64 = 1 << 20;
const MAX_LINE: u64 = 8 << 20;
/// Maximum time of a response body after its head, except for a watch.
const LONGEST: Duration = Duration::from_mins(1);

/// A response exceeds the size limit.
#[derive(Debug, thiserror::Error)]
#[error("the response is too large")]
pub(crate) struct TooLarge;

/// The layer that adds the limits to a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds(Pace);

impl<S> Layer<S> for Bounds {
    type Service = Bounding<S>;

    fn layer(&self, inner: S) -> Bounding<S> {
        Bounding { inner, pace: self.0.clone() }
    }
}

/// A client with limits.
pub(crate) struct Bounding<S> {
    inner: S,
    pace: Pace,
}

impl<S, R, B> Service<Request<R>> for Bounding<S>
where
    S: Service<Request<R>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<Bounded<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let pace = self.pace.clone();
        let watched = is_watch(request.uri()).then(|| request.uri().path().to_owned());
        // The request is sent only when the future is polled.
        let answer = self.inner.call(request);
        async move {
            if let Some(path) = &watched {
                pace.turn(path).await;
            }
            let answer = answer.await?;
            let bound = Bound::of(watched.is_some(), answer.status());
            Ok(answer.map(|body| Bounded::new(body, bound, LONGEST)))
        }
        .boxed()
    }
}

fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

/// The size limit of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// Maximum size of the whole body, in bytes.
    Whole(u64),
    /// Any number of lines, each with its own limit.
    Lines,
}

impl Bound {
    /// Returns the limit of a response. kube reads line by line only if a watch was accepted. It collects any other response as a whole.
    fn of(watch: bool, status: StatusCode) -> Self {
        match (status.is_success(), watch) {
            (true, true) => Self::Lines,
            (true, false) => Self::Whole(MAX_ANSWER),
            (false, _) => Self::Whole(MAX_REFUSAL),
        }
    }

    /// Counts the data in `read`. Returns whether it is within the limit.
    fn takes(self, read: &mut u64, data: &[u8]) -> bool {
        if let Self::Whole(most) = self {
            *read += data.len() as u64;
            return *read <= most;
        }
        for (i, line) in data.split(|byte| *byte == b'\n').enumerate() {
            *read = if i == 0 { *read } else { 0 } + line.len() as u64;
            if *read > MAX_LINE {
                return false;
            }
        }
        true
    }
}

/// A response body with a limit.
pub(crate) struct Bounded<B> {
    body: B,
    bound: Bound,
    read: u64,
    /// Deadline of the body. `None` for a watch.
    end: Option<Pin<Box<Sleep>>>,
}

impl<B> Bounded<B> {
    fn new(body: B, bound: Bound, longest: Duration) -> Self {
        let end = (bound != Bound::Lines).then(|| Box::pin(sleep(longest)));
        Self { body, bound, read: 0, end }
    }
}

impl<B> Body for Bounded<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.end.as_mut().is_some_and(|end| end.poll_unpin(cx).is_ready()) {
            return Poll::Ready(Some(Err(Error::from(ErrorKind::TimedOut).into())));
        }
        let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)) else { return Poll::Ready(None) };
        let frame = frame.map_err(Into::into)?;
        let fits = frame.data_ref().is_none_or(|data| this.bound.takes(&mut this.read, data));
        Poll::Ready(Some(if fits { Ok(frame) } else { Err(Box::new(TooLarge)) }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::poll_fn;
    use futures::poll;

    use super::*;

    /// A body that repeats the same data without end, or never sends any.
    struct Endless(Option<Bytes>);

    impl Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.clone().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
        }
    }

    async fn error<B>(body: &mut Bounded<B>) -> BoxError
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        loop {
            if let Err(error) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await.unwrap() {
                return error;
            }
        }
    }

    #[test]
    fn the_size_of_an_answer_is_limited_and_that_of_each_line_of_a_watch() {
        let mebibyte = vec![b'x'; 1 << 20];
        let taken = |bound: Bound, chunk: &[u8]| {
            let mut read = 0;
            (0..1000).take_while(|_| bound.takes(&mut read, chunk)).count()
        };
        let [list, refusal, watch] = [(false, 200), (true, 500), (true, 200)]
            .map(|(watch, code)| Bound::of(watch, StatusCode::from_u16(code).unwrap()));
        assert_eq!(taken(list, &mebibyte), 64);
        assert_eq!(taken(watch, &mebibyte), 8);
        assert_eq!(taken(refusal, &mebibyte), 1);
        let mut event = mebibyte.clone();
        event.push(b'\n');
        assert_eq!(taken(watch, &event), 1000, "a watch goes on for ever");
        assert_eq!(taken(list, &event), 63);
        let two: Vec<u8> = [&mebibyte[..], b"\n", &mebibyte[..]].concat();
        assert_eq!(taken(watch, &two), 1000, "a line may go over the end of a chunk");
    }

    #[tokio::test]
    async fn endless_short_lines_are_read_only_from_a_watch_that_was_accepted() {
        for (code, ends) in [(200, false), (302, true), (403, true), (500, true)] {
            let answer = move |_: Request<()>| async move {
                let lines = Bytes::from_static(&[b'\n'; 1 << 13]);
                Response::builder().status(code).body(Endless(Some(lines)))
            };
            let mut service = Bounds::default().layer(tower::service_fn(answer));
            let watch = Request::get("/api/v1/pods?&watch=true&timeoutSeconds=290").body(()).unwrap();
            let mut body = service.call(watch).await.unwrap().into_body();
            let mut read = 0;
            while read < 200 && poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().is_ok() {
                read += 1;
            }
            assert_eq!(read, if ends { 128 } else { 200 }, "{code}");
        }
    }

    #[tokio::test]
    async fn a_missing_body_is_a_timeout_except_for_a_watch() {
        let short = Duration::from_millis(20);
        let mut list = Bounded::new(Endless(None), Bound::Whole(MAX_ANSWER), short);
        assert_eq!(error(&mut list).await.downcast_ref::<Error>().unwrap().kind(), ErrorKind::TimedOut);
        assert!(Bounded::new(Endless(None), Bound::Lines, short).end.is_none());
    }

    #[tokio::test]
    async fn a_watch_that_has_ended_at_once_does_not_begin_again_at_once() {
        let begun = Arc::new(AtomicUsize::new(0));
        let seen = begun.clone();
        let mut service = Bounds::default().layer(tower::service_fn(move |_: Request<()>| {
            let begun = begun.clone();
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(Response::new(Endless(None)))
            }
        }));
        let mut call = |uri: &str| service.call(Request::get(uri).body(()).unwrap());
        for (uri, at_once) in [
            ("/api/v1/pods?&watch=true&resourceVersion=1", true),
            ("/api/v1/pods?&watch=true&resourceVersion=2", false),
            ("/api/v1/secrets?&watch=true", true),
            ("/api/v1/pods?limit=500", true),
            ("/api/v1/pods?limit=500", true),
        ] {
            let before = seen.load(Ordering::Relaxed);
            assert_eq!(poll!(call(uri)).is_ready(), at_once, "{uri}");
            assert_eq!(seen.load(Ordering::Relaxed) - before, usize::from(at_once), "{uri}");
        }
        let start = tokio::time::Instant::now();
        assert!(call("/api/v1/secrets?&watch=true").await.is_ok(), "it begins in the end");
        assert!(start.elapsed() > Duration::from_millis(500), "{:?}", start.elapsed());
    }
}
