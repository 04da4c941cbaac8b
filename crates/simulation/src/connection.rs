//! The connection of one client: the service that `kube::Client` sends its requests to.
//!
//! In: requests. Out: what the [`Network`] answers, and the events of watches as the bodies of answers.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use kube::Client;
use kube::client::Body;
use tower::{BoxError, Service};

use crate::service::{Answered, Network, Reply};

impl Network {
    /// Returns a client with this number. It must be called within a tokio runtime.
    #[must_use]
    pub fn client(&self, number: usize) -> Client {
        Client::new(self.connection(number), "default")
    }

    /// Returns what a client with this number sends its requests to.
    #[must_use]
    pub fn connection(&self, number: usize) -> Connection {
        Connection { network: self.clone(), client: number }
    }
}

impl http_body::Body for Reply {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Body(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Events(network, id) => network.poll(*id, context).map(|line| line.map(|line| line.map(Frame::data))),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Self::Events(network, id) = self {
            network.leave(*id);
        }
    }
}

/// The connection of one client.
#[derive(Clone)]
pub struct Connection {
    network: Network,
    client: usize,
}

impl Service<http::Request<Body>> for Connection {
    type Response = Response<Reply>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Answered> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (network, client) = (self.network.clone(), self.client);
        Box::pin(async move { network.send(client, request).await })
    }
}
