//! Reads the body of an answer: its beginning, or all of it.
//!
//! In: a body, whose length and speed the other side determines. Out: at most a given number of bytes, at the latest at a deadline.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::Bytes;
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::exchange::in_time;
use crate::secrets::redact::Beginning;

/// Maximum number of bytes that are read of an answer whose beginning is enough. A shorter answer is read completely, and its connection is
/// reused.
pub(crate) const READ: usize = 4 * 1024;

/// The relevant part of a body.
pub(crate) struct Read {
    pub(crate) body: Beginning,
    /// Why a part is missing. `None`: the body is complete, or it has more bytes than were wanted.
    pub(crate) lacks: Option<Incomplete>,
}

impl Read {
    /// Whether the read was aborted at the deadline.
    pub(crate) fn is_late(&self) -> bool {
        self.lacks == Some(Incomplete::Late)
    }
}

/// Why a body could not be read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incomplete {
    /// It did not end in time.
    Late,
    /// The connection or the stream ended earlier, or the encoding is invalid.
    Broken,
    /// It has more bytes than the limit.
    TooLarge,
}

/// Reads at most the first `limit` bytes of a body. An error only ends the read.
pub(crate) async fn beginning(mut body: Incoming, limit: usize, deadline: Instant) -> Read {
    let mut bytes = Vec::new();
    let read = async {
        while bytes.len() <= limit {
            let Ok(frame) = next(&mut body).await? else { return Some(Incomplete::Broken) };
            let chunk = frame.into_data().unwrap_or_default();
            bytes.extend_from_slice(&chunk[..chunk.len().min(limit + 1 - bytes.len())]);
        }
        Some(Incomplete::TooLarge)
    };
    let end = in_time(deadline, read).await.unwrap_or(Some(Incomplete::Late));
    bytes.truncate(limit);
    let lacks = end.filter(|end| *end != Incomplete::TooLarge);
    Read { body: Beginning { bytes, cut: end.is_some() }, lacks }
}

/// Reads a whole body of at most `limit` bytes. Nothing is read of a body that announces more.
pub(crate) async fn whole(body: Incoming, limit: usize, deadline: Instant) -> Result<Bytes, Incomplete> {
    if body.size_hint().lower() > limit as u64 {
        return Err(Incomplete::TooLarge);
    }
    in_time(deadline, collected(body, limit)).await.unwrap_or(Err(Incomplete::Late))
}

async fn collected(mut body: Incoming, limit: usize) -> Result<Bytes, Incomplete> {
    let mut bytes = Vec::new();
    while let Some(frame) = next(&mut body).await {
        let chunk = frame.map_err(|_| Incomplete::Broken)?.into_data().unwrap_or_default();
        if chunk.len() > limit - bytes.len() {
            return Err(Incomplete::TooLarge);
        }
        append(&mut bytes, &chunk, limit);
    }
    Ok(bytes.into())
}

/// Appends a chunk that fits into the limit. The memory grows with what has arrived, and never beyond the limit.
fn append(bytes: &mut Vec<u8>, chunk: &[u8], limit: usize) {
    let needed = bytes.len() + chunk.len();
    if needed > bytes.capacity() {
        let capacity = bytes.capacity().saturating_mul(2).clamp(needed, limit.max(needed));
        bytes.reserve_exact(capacity - bytes.len());
    }
    bytes.extend_from_slice(chunk);
}

async fn next(body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_the_body_and_not_beyond_the_limit() {
        const LIMIT: usize = 100_000;
        let (mut bytes, mut grown) = (Vec::new(), 0);
        while bytes.len() + 7 <= LIMIT {
            let before = bytes.capacity();
            append(&mut bytes, b"1234567", LIMIT);
            assert!(bytes.capacity() <= LIMIT && bytes.capacity() <= 2 * bytes.len(), "{}", bytes.capacity());
            grown += usize::from(bytes.capacity() != before);
        }
        assert!(grown < 20, "{grown}");
        assert!(bytes.iter().zip(b"1234567".iter().cycle()).all(|(a, b)| a == b));
    }
}
