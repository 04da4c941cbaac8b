//! Limits the incoming data of one connection, and closes the connection that exceeds them.
//!
//! With HTTP/2 a receiver can send meaningless frames as long as the connection is open, and reading them costs CPU time. So a
//! connection tracks its requests in flight ([`Call`]). Without such a request it accepts only a little data, for instance the
//! settings of the protocol, and is closed when more arrives. A connection with a timed-out request gets no new requests. It is
//! closed when its other requests end.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use http::Extensions;
use hyper_util::client::legacy::connect::{CaptureConnection, Connected};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Maximum number of bytes that can arrive while no request is in flight. After a timeout, this limit applies per remaining request.
const UNASKED: usize = 64 * 1024;

/// The state of one connection.
#[derive(Clone, Debug, Default)]
pub(in crate::webhook) struct Line(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The connection is established, including TLS. Before that, the connect timeout limits the incoming data.
    ready: bool,
    /// Number of requests in flight.
    under_way: usize,
    /// A request has timed out. The connection gets no new requests.
    last_ones: bool,
    /// Number of bytes that can still arrive.
    left: usize,
    closed: bool,
    reader: Option<Waker>,
}

/// A request, from the time at which it has a connection. Without a call of [`Call::finish`] it counts as timed out.
#[derive(Debug)]
pub(in crate::webhook) struct Call {
    captured: CaptureConnection,
    line: Option<Line>,
    over: bool,
}

/// A TCP connection that counts the incoming bytes.
#[derive(Debug)]
pub(in crate::webhook) struct Metered {
    tcp: TcpStream,
    line: Line,
}

impl Line {
    /// Marks the connection as established.
    pub(in crate::webhook) fn is_ready(&self) {
        let mut state = self.state();
        state.ready = true;
        state.left = UNASKED;
    }

    fn begin(&self) {
        self.state().under_way += 1;
    }

    fn end(&self, timed_out: bool) {
        let mut state = self.state();
        state.under_way = state.under_way.saturating_sub(1);
        if timed_out && !state.last_ones {
            state.last_ones = true;
            state.left = UNASKED * state.under_way;
        } else if state.under_way == 0 {
            state.left = UNASKED;
        }
        if state.last_ones && state.under_way == 0 {
            state.close();
        }
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts bytes that have arrived.
    fn brought(&mut self, bytes: usize) {
        if self.ready && (self.under_way == 0 || self.last_ones) {
            match self.left.checked_sub(bytes) {
                Some(left) => self.left = left,
                None => self.close(),
            }
        }
    }

    fn close(&mut self) {
        self.closed = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.closed { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

impl Call {
    /// Creates a request that has no connection yet.
    pub(in crate::webhook) fn new(captured: CaptureConnection) -> Self {
        Self { captured, line: None, over: false }
    }

    /// Checks which connection the request has. The caller must call this after each poll of the request.
    pub(in crate::webhook) fn look(&mut self) {
        let mut extensions = Extensions::new();
        if let Some(connected) = &*self.captured.connection_metadata() {
            connected.get_extras(&mut extensions);
        }
        let Some(line) = extensions.remove::<Line>() else { return };
        if self.line.as_ref().is_some_and(|before| before.is(&line)) {
            return;
        }
        line.begin();
        // If the first connection had already ended, the request was not started on it and moves to another one.
        if let Some(before) = self.line.replace(line) {
            before.end(false);
        }
    }

    /// Marks the request as completed: its answer has arrived, or its connection has ended.
    pub(in crate::webhook) fn finish(mut self) {
        self.over = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(line) = &self.line else { return };
        if !self.over {
            // The pool must not use this connection for other requests.
            let captured = self.captured.connection_metadata();
            captured.iter().for_each(Connected::poison);
        }
        line.end(!self.over);
    }
}

impl Metered {
    pub(in crate::webhook) fn new(tcp: TcpStream, line: Line) -> Self {
        Self { tcp, line }
    }
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        {
            let mut state = self.line.state();
            state.check()?;
            if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
                state.reader = Some(cx.waker().clone());
            }
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(cx, buffer))?;
        let bytes = buffer.filled().len() - before;
        let mut state = self.line.state();
        state.brought(bytes);
        Poll::Ready(state.check())
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.line.state().check()?;
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.line.state().check()?;
        Pin::new(&mut self.tcp).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brought(line: &Line, bytes: usize) -> bool {
        line.state().brought(bytes);
        line.state().closed
    }

    #[test]
    fn a_connection_without_a_request_accepts_a_little_data() {
        let line = Line::default();
        assert!(!brought(&line, 10 * UNASKED), "while it is being established");
        line.is_ready();
        assert!(!brought(&line, UNASKED));
        line.begin();
        assert!(!brought(&line, 10 * UNASKED), "an answer");
        line.end(false);
        assert!(!brought(&line, UNASKED));
        assert!(brought(&line, 1));
    }

    #[test]
    fn a_connection_with_a_timed_out_request_is_closed_after_its_other_requests() {
        let line = Line::default();
        line.is_ready();
        for _ in 0..3 {
            line.begin();
        }
        line.end(true);
        assert!(!brought(&line, 2 * UNASKED), "the answers to two requests");
        line.end(false);
        assert!(!line.state().closed);
        line.end(true);
        assert!(line.state().closed);

        let line = Line::default();
        line.is_ready();
        line.begin();
        line.begin();
        line.end(true);
        assert!(brought(&line, UNASKED + 1), "more than the limit for one answer");
    }
}
