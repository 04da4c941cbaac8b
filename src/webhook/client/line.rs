//! What one connection brings, and when it is closed for it.
//!
//! HTTP/2 lets a receiver send frames that mean nothing for as long as the connection is open, and to read them costs processor time.
//! So a connection knows which requests are under way on it ([`Call`]). Without one it may bring a little, for instance the settings of
//! the protocol, and is closed when it brings more. One whose request has timed out gets no others, and is closed when those that it
//! has are over.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use http::Extensions;
use hyper_util::client::legacy::connect::{CaptureConnection, Connected};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// So many bytes may come while no request is under way, and for each that is left after one has timed out.
const UNASKED: usize = 64 * 1024;

/// What is known of one connection.
#[derive(Clone, Debug, Default)]
pub(in crate::webhook) struct Line(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// It has been made, TLS and all. Until then the time for making connections bounds what comes.
    ready: bool,
    /// Requests.
    under_way: usize,
    /// A request has timed out; the connection is for those under way and no others.
    last_ones: bool,
    /// Bytes that may still come.
    left: usize,
    closed: bool,
    reader: Option<Waker>,
}

/// A request, from when it has a connection. Until [`Call::finish`] says otherwise it counts as one that has timed out.
#[derive(Debug)]
pub(in crate::webhook) struct Call {
    captured: CaptureConnection,
    line: Option<Line>,
    over: bool,
}

/// A TCP connection that counts what comes.
#[derive(Debug)]
pub(in crate::webhook) struct Metered {
    tcp: TcpStream,
    line: Line,
}

impl Line {
    /// The connection can be used.
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
    /// So many bytes have come.
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
    /// A request that has no connection yet.
    pub(in crate::webhook) fn new(captured: CaptureConnection) -> Self {
        Self { captured, line: None, over: false }
    }

    /// Looks at which connection the request has got. To be called whenever anything has happened to it.
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
        // A request that was not begun on one connection, because that had ended, goes to another.
        if let Some(before) = self.line.replace(line) {
            before.end(false);
        }
    }

    /// All that was wanted of it is here, or the connection has ended.
    pub(in crate::webhook) fn finish(mut self) {
        self.over = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(line) = &self.line else { return };
        if !self.over {
            // No other request gets this connection.
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
    fn a_connection_without_a_request_may_bring_a_little() {
        let line = Line::default();
        assert!(!brought(&line, 10 * UNASKED), "while it is being made");
        line.is_ready();
        assert!(!brought(&line, UNASKED));
        line.begin();
        assert!(!brought(&line, 10 * UNASKED), "an answer");
        line.end(false);
        assert!(!brought(&line, UNASKED));
        assert!(brought(&line, 1));
    }

    #[test]
    fn a_connection_whose_request_has_timed_out_is_closed_after_the_others() {
        let line = Line::default();
        line.is_ready();
        for _ in 0..3 {
            line.begin();
        }
        line.end(true);
        assert!(!brought(&line, 2 * UNASKED), "the answers of two");
        line.end(false);
        assert!(!line.state().closed);
        line.end(true);
        assert!(line.state().closed);

        let line = Line::default();
        line.is_ready();
        line.begin();
        line.begin();
        line.end(true);
        assert!(brought(&line, UNASKED + 1), "more than one answer can be");
    }
}
