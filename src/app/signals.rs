//! The order to stop, as the kubelet and a terminal give it.

use tokio::signal::unix::{SignalKind, signal};

use super::AppError;

/// SIGTERM (what the kubelet sends) and SIGINT (what a terminal sends).
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
    /// What this comes to, or the name of the signal that came before.
    pub async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, &'static str> {
        tokio::select! {
            name = self.next() => Err(name),
            done = work => Ok(done),
        }
    }
}
