//! A body that is available only until the deadline of its attempt.
//!
//! A timeout is checked *after* the work that it limits. A process can be suspended during a request and continue hours later. It
//! would first write the request to a connection that is still open, and only then detect the timeout. By then another replica may
//! have sent the request. So this module checks the clock again when the body is read. At that time all waiting is over, and the last
//! byte that a receiver needs is not yet written. A long body, such as a pack of Git, is read in parts, because the connection accepts the
//! next part only when most of the earlier ones are written.
//!
//! A request without a body has no such byte. The HTTP library asks for the length of the body immediately before it writes the head of the
//! request. After the deadline, the answer is one byte, which the receiver never gets.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use relaybook_api::since_boot;

/// Maximum number of bytes in a part. The body of a delivery seldom has more.
const PART: usize = 64 * 1024;

/// A body that returns an error if it is read too late.
#[derive(Debug)]
pub struct Timely {
    /// What was not read yet; `None` after all of it was read.
    bytes: Option<Bytes>,
    /// Whether the request has no body at all, not even an empty one.
    none: bool,
    until: Duration,
}

impl Timely {
    /// Creates a body that is available until this time, by [`since_boot`].
    pub fn new(bytes: Bytes, until: Duration) -> Self {
        Self { bytes: Some(bytes), none: false, until }
    }

    /// Creates the body of a request without a body, which is available until this time.
    pub fn none(until: Duration) -> Self {
        Self { bytes: Some(Bytes::new()), none: true, until }
    }

    fn is_late(&self) -> bool {
        since_boot() >= self.until
    }
}

impl Body for Timely {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(mut rest) = self.bytes.take() else { return Poll::Ready(None) };
        if self.is_late() {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        let part = rest.split_to(rest.len().min(PART));
        self.bytes = Some(rest).filter(|rest| !rest.is_empty());
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() || (self.none && !self.is_late())
    }

    fn size_hint(&self) -> SizeHint {
        let length = match &self.bytes {
            None => 0,
            Some(bytes) if bytes.is_empty() => u64::from(self.is_late()),
            Some(bytes) => bytes.len() as u64,
        };
        SizeHint::with_exact(length)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn next(body: &mut Timely) -> Option<Result<usize, io::ErrorKind>> {
        let Poll::Ready(frame) = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) else { panic!("waits") };
        frame.map(|frame| frame.map(|frame| frame.into_data().unwrap().len()).map_err(|error| error.kind()))
    }

    #[test]
    fn the_clock_is_checked_for_each_part_of_a_long_body() {
        let body = || Timely::new(vec![b'x'; 2 * PART + 1].into(), Duration::MAX);
        let mut whole = body();
        assert_eq!(whole.size_hint().exact(), Some(2 * PART as u64 + 1));
        assert_eq!([(); 2].map(|()| next(&mut whole)), [Some(Ok(PART)); 2]);
        assert!(!whole.is_end_stream());
        assert_eq!(next(&mut whole), Some(Ok(1)));
        assert!(whole.is_end_stream());
        assert_eq!(next(&mut whole), None);
        let mut late = body();
        assert_eq!(next(&mut late), Some(Ok(PART)));
        late.until = Duration::ZERO;
        assert_eq!(next(&mut late), Some(Err(io::ErrorKind::TimedOut)));
        assert_eq!(next(&mut late), None);
    }
}
