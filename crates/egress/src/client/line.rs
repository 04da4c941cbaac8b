//! Limits the incoming data of one connection, and closes the connection that exceeds them.
//!
//! With HTTP/2 a receiver can send meaningless frames as long as the connection is open, and reading them costs CPU time. So a
//! connection tracks its requests in flight ([`Call`]). Without such a request it accepts only a little data, for instance the
//! settings of the protocol, and is closed when more arrives. A connection with a timed-out request gets no new requests. It is
//! closed when its other requests end.

use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use http::Extensions;
use hyper_util::client::legacy::connect::{CaptureConnection, Connected};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How many bytes can arrive for one answer after another request has timed out, in addition to its body.
const HEAD: usize = 64 * 1024;
/// Part of a body that frames of HTTP/2 and records of TLS can add.
const FRAMING: usize = 8;

/// The state of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionBudget(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Whether the connection is established, including TLS. Before that, the connect timeout limits the incoming data.
    ready: bool,
    /// Number of requests in flight.
    in_flight: usize,
    /// Maximum number of bytes in their answers.
    expected: usize,
    /// Maximum number of bytes that can arrive while no request is in flight.
    idle_limit: usize,
    /// Whether a request has timed out. If so, the connection gets no new requests.
    draining: bool,
    /// Number of bytes that can still arrive before the connection is closed.
    bytes_left: usize,
    closed: bool,
    reader: Option<Waker>,
}

/// A request, and its connection as soon as it has one. If [`Call::finish`] is not called, the request counts as timed out.
#[derive(Debug)]
pub(crate) struct Call {
    captured: CaptureConnection,
    budget: Option<ConnectionBudget>,
    /// Maximum number of bytes in the answer.
    expected: usize,
    over: bool,
}

/// A TCP connection that counts the incoming bytes.
#[derive(Debug)]
pub(crate) struct Metered {
    tcp: TcpStream,
    budget: ConnectionBudget,
}

impl ConnectionBudget {
    /// Creates the state of a connection that is not established yet. `idle_limit`: how many bytes can arrive while no request is in
    /// flight.
    pub(crate) fn new(idle_limit: usize) -> Self {
        Self(Arc::new(Mutex::new(State { idle_limit, ..State::default() })))
    }

    /// Marks the connection as established.
    pub(crate) fn mark_ready(&self) {
        let mut state = self.state();
        state.ready = true;
        state.bytes_left = state.idle_limit;
    }

    /// Adds a request whose answer has at most this number of bytes.
    fn begin(&self, expected: usize) {
        let mut state = self.state();
        state.in_flight += 1;
        state.expected = state.expected.saturating_add(expected);
    }

    /// Removes a request that was added with the same number.
    fn end(&self, expected: usize, timed_out: bool) {
        let mut state = self.state();
        state.in_flight = state.in_flight.saturating_sub(1);
        state.expected = state.expected.saturating_sub(expected);
        if timed_out && !state.draining {
            state.draining = true;
            state.bytes_left = state.expected;
        } else if state.in_flight == 0 {
            state.bytes_left = state.idle_limit;
        }
        if state.draining && state.in_flight == 0 {
            state.close();
        }
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    /// Counts bytes that have arrived.
    fn count_incoming(&mut self, bytes: usize) {
        if self.ready && (self.in_flight == 0 || self.draining) {
            match self.bytes_left.checked_sub(bytes) {
                Some(bytes_left) => self.bytes_left = bytes_left,
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
    pub(crate) fn new(captured: CaptureConnection) -> Self {
        Self { captured, budget: None, expected: HEAD, over: false }
    }

    /// Sets the maximum number of bytes in the body of the answer, before the request has a connection.
    pub(crate) fn expect(&mut self, body: usize) {
        self.expected = HEAD.saturating_add(body).saturating_add(body / FRAMING);
    }

    /// Finds the connection of the request, and counts the request as in flight there. Callers must call this after each poll of the
    /// request.
    pub(crate) fn track_connection(&mut self) {
        let mut extensions = Extensions::new();
        if let Some(connected) = &*self.captured.connection_metadata() {
            connected.get_extras(&mut extensions);
        }
        let Some(budget) = extensions.remove::<ConnectionBudget>() else { return };
        if self.budget.as_ref().is_some_and(|before| before.is(&budget)) {
            return;
        }
        budget.begin(self.expected);
        // If the first connection had already ended, the request was not started on it and moves to another one.
        if let Some(before) = self.budget.replace(budget) {
            before.end(self.expected, false);
        }
    }

    /// Marks the request as completed: its answer has arrived, or its connection has ended.
    pub(crate) fn finish(mut self) {
        self.over = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(budget) = &self.budget else { return };
        if !self.over {
            // The pool must not use this connection for other requests.
            let captured = self.captured.connection_metadata();
            captured.iter().for_each(Connected::poison);
        }
        budget.end(self.expected, !self.over);
    }
}

impl Metered {
    pub(crate) fn new(tcp: TcpStream, budget: ConnectionBudget) -> Self {
        Self { tcp, budget }
    }
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        {
            let mut state = self.budget.state();
            state.check()?;
            if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
                state.reader = Some(cx.waker().clone());
            }
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(cx, buffer))?;
        let bytes = buffer.filled().len() - before;
        let mut state = self.budget.state();
        state.count_incoming(bytes);
        Poll::Ready(state.check())
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.budget.state().check()?;
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
        self.budget.state().check()?;
        Pin::new(&mut self.tcp).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: usize = 64 * 1024;

    fn is_closed_after(budget: &ConnectionBudget, bytes: usize) -> bool {
        budget.state().count_incoming(bytes);
        budget.state().closed
    }

    #[test]
    fn a_connection_without_a_request_accepts_a_little_data() {
        let budget = ConnectionBudget::new(IDLE);
        assert!(!is_closed_after(&budget, 10 * IDLE), "while it is being established");
        budget.mark_ready();
        assert!(!is_closed_after(&budget, IDLE));
        budget.begin(IDLE);
        assert!(!is_closed_after(&budget, 10 * IDLE), "an answer");
        budget.end(IDLE, false);
        assert!(!is_closed_after(&budget, IDLE));
        assert!(is_closed_after(&budget, 1));
    }

    #[test]
    fn a_connection_with_a_timed_out_request_is_closed_after_its_other_requests() {
        let budget = ConnectionBudget::new(IDLE);
        budget.mark_ready();
        for _ in 0..3 {
            budget.begin(IDLE);
        }
        budget.end(IDLE, true);
        assert!(!is_closed_after(&budget, 2 * IDLE), "the answers to two requests");
        budget.end(IDLE, false);
        assert!(!budget.state().closed);
        budget.end(IDLE, true);
        assert!(budget.state().closed);

        let budget = ConnectionBudget::new(IDLE);
        budget.mark_ready();
        budget.begin(IDLE);
        budget.begin(IDLE);
        budget.end(IDLE, true);
        assert!(is_closed_after(&budget, IDLE + 1), "more than the limit for one answer");
    }

    #[test]
    fn a_large_answer_is_not_cut_off_by_the_timeout_of_another_request() {
        const BODY: usize = 64 * 1024 * 1024;
        let budget = ConnectionBudget::new(IDLE);
        budget.mark_ready();
        budget.begin(BODY);
        budget.begin(IDLE);
        budget.end(IDLE, true);
        assert!(!is_closed_after(&budget, BODY));
        assert!(is_closed_after(&budget, 1));
    }
}
