//! A body that is available only until the deadline of its attempt.
//!
//! A timeout is checked *after* the work that it limits. A process can be suspended during a request and continue hours later. It
//! would first write the request to a connection that is still open, and only then detect the timeout. By then another replica may
//! have sent the request. So this module checks the clock again when the body is read. At that time all waiting is over, and the last
//! byte that a receiver needs is not yet written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::api::since_boot;

/// A body that returns an error if it is read too late.
#[derive(Debug)]
pub struct Timely {
    bytes: Option<Bytes>,
    until: Duration,
}

impl Timely {
    /// Creates a body that is available until this time, by [`since_boot`].
    pub fn new(bytes: Bytes, until: Duration) -> Self {
        Self { bytes: Some(bytes), until }
    }
}

impl Body for Timely {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let bytes = self.bytes.take();
        if since_boot() >= self.until {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
