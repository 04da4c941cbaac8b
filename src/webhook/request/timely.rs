//! A body that is only given out while its attempt lasts.
//!
//! Time-outs are looked at *after* what they bound: a process that was suspended in the middle of a request, and wakes up hours
//! later, would first write the request to a connection that is still open, and then find that it is out of time. By then
//! another replica may long have sent it. So the clock is asked once more when the body is asked for, which is after all waiting
//! is over and before the last byte that a receiver needs is written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::api::since_boot;

/// A body that ends in an error when it is asked for too late.
#[derive(Debug)]
pub struct Timely {
    bytes: Option<Bytes>,
    until: Duration,
}

impl Timely {
    /// May be given out until then, by [`since_boot`].
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
