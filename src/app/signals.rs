//! The signals of the kubelet and of a terminal to stop.

use tokio::signal::unix::{SignalKind, signal};

use super::AppError;

/// SIGTERM (sent by the kubelet) and SIGINT (sent by a terminal).
pub(super) struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl Signals {
    pub fn new() -> Result<Self, AppError> {
        let of = |kind| signal(kind).map_err(AppError::Signal);
        Ok(Self { term: of(SignalKind::terminate())?, int: of(SignalKind::interrupt())? })
    }

    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
    /// Waits for the work. Returns its result, or the name of a signal that arrived first.
    pub async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, &'static str> {
        tokio::select! {
            name = self.next() => Err(name),
            done = work => Ok(done),
        }
    }
}
