//! Limits the time until a service responds, because the client of kube does not. Without it, a watch that an API server accepts and never
//! answers would wait without end.
//!
//! In: calls of a service. Out: the same calls, which fail with a timeout if no response has started in time. The duration of the response
//! body is not limited here.

use std::io::{Error, ErrorKind};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::timeout;
use tower::{BoxError, Layer, Service};

/// The layer that adds the limit to a client or to a connector.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Duration);

impl Deadline {
    /// Timeout for the head of a response of an API server.
    pub const HEAD: Self = Self(Duration::from_secs(30));

    /// Returns a layer with this timeout.
    pub(crate) const fn of(longest: Duration) -> Self {
        Self(longest)
    }
}

impl<S> Layer<S> for Deadline {
    type Service = Timely<S>;

    fn layer(&self, inner: S) -> Timely<S> {
        Timely { inner, longest: self.0 }
    }
}

/// A service with a timeout.
#[derive(Clone, Debug)]
pub struct Timely<S> {
    inner: S,
    longest: Duration,
}

impl<S, R> Service<R> for Timely<S>
where
    S: Service<R>,
    S::Response: 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (answer, longest) = (self.inner.call(request), self.longest);
        async move {
            match timeout(longest, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(Error::from(ErrorKind::TimedOut).into()),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use kube::Config;
    use kube::client::ClientBuilder;
    use tokio::net::TcpListener;

    use super::*;
    use crate::error::ObserveError;
    use relaybook_core::reading::Reason;

    #[tokio::test]
    async fn an_answer_that_never_begins_is_a_timeout() {
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = Config::new(format!("http://{}", mute.local_addr().unwrap()).parse().unwrap());
        let deadline = Deadline::of(Duration::from_millis(50));
        let client = ClientBuilder::try_from(config).unwrap().with_layer(&deadline).build();
        let watch = http::Request::get("/api/v1/secrets?&watch=true").body(Vec::new()).unwrap();
        let error = client.request_events::<kube::core::DynamicObject>(watch).await.err().unwrap();
        assert_eq!(ObserveError::of_call("eu", &error).reason, Reason::Timeout, "{error:?}");
    }

    #[tokio::test]
    async fn answers_and_errors_within_the_deadline_are_passed_on() {
        let mut echo = Deadline::HEAD.layer(tower::service_fn(|n: u8| async move { Ok::<_, BoxError>(n) }));
        assert_eq!(echo.call(7).await.unwrap(), 7);
        let mut refuse =
            Deadline::HEAD.layer(tower::service_fn(|n: u8| async move { Err::<(), BoxError>(n.to_string().into()) }));
        assert_eq!(refuse.call(7).await.unwrap_err().to_string(), "7");
    }
}
