//! Reads the body of a request, within a length and at a rate.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use futures::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use super::listener::Peer;

/// Maximum time from the head of a request to the end of its body, without the time for what has arrived.
const FIRST: Duration = Duration::from_secs(5);
/// Number of bytes that extend this time by one second.
const RATE: usize = 16 * 1024;
/// After a body that is too long or not needed, at most this much is read before the answer. Clients that are still sending would not read
/// it.
const DRAINED: usize = 256 * 1024;
/// Maximum time for that.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is too long.
    TooLong,
    /// It did not arrive in time.
    TooSlow,
    /// The connection ended before it, or its framing is wrong.
    Incomplete,
}

/// Reads a body. Then the request of this peer is complete.
pub(super) async fn read(peer: &Peer, body: Body, longest: usize) -> Result<Bytes, Unread> {
    let bytes = read_within(body, longest, time).await?;
    peer.complete();
    Ok(bytes)
}

/// Reads a body. `time`: that it has, if this much of it has arrived.
async fn read_within(body: Body, longest: usize, time: impl Fn(usize) -> Duration) -> Result<Bytes, Unread> {
    let (mut chunks, mut bytes) = (body.into_data_stream(), Vec::<u8>::new());
    let begun = Instant::now();
    loop {
        match timeout_at(begun + time(bytes.len()), chunks.next()).await {
            Ok(None) => return Ok(bytes.into()),
            Ok(Some(Ok(chunk))) if bytes.len() + chunk.len() <= longest => bytes.extend_from_slice(&chunk),
            Ok(Some(Ok(_))) => {
                drain(chunks).await;
                return Err(Unread::TooLong);
            }
            Ok(Some(Err(_))) => return Err(Unread::Incomplete),
            Err(_) => return Err(Unread::TooSlow),
        }
    }
}

/// Returns the time that a body has, if this much of it has arrived.
fn time(arrived: usize) -> Duration {
    let milliseconds = arrived.saturating_mul(1000) / RATE;
    FIRST + Duration::from_millis(milliseconds.try_into().unwrap_or(u64::MAX))
}

/// Reads the beginning of a body, and drops it.
pub(super) async fn drain(mut chunks: BodyDataStream) {
    let (until, mut length) = (Instant::now() + DRAIN_TIME, 0);
    while length < DRAINED
        && let Ok(Some(Ok(chunk))) = timeout_at(until, chunks.next()).await
    {
        length += chunk.len();
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures::stream;
    use tokio::time::sleep;

    use super::*;

    const LONGEST: usize = 64 * 1024;

    /// Reads a body in this time.
    async fn reads(body: Body, time: Duration) -> Result<usize, Unread> {
        read_within(body, LONGEST, |_| time).await.map(|bytes| bytes.len())
    }

    #[tokio::test]
    async fn a_body_has_a_maximum_length_and_time() {
        let long = Duration::from_mins(5);
        assert_eq!(reads(Body::empty(), long).await, Ok(0));
        assert_eq!(reads(Body::from(vec![b'x'; LONGEST]), long).await, Ok(LONGEST));
        assert_eq!(reads(Body::from(vec![b'x'; LONGEST + 1]), long).await, Err(Unread::TooLong));
        let breaks = stream::iter([Ok("x"), Err(io::Error::other("it ends"))]);
        assert_eq!(reads(Body::from_stream(breaks), long).await, Err(Unread::Incomplete));
        let drips = stream::repeat(()).then(|()| async {
            sleep(Duration::from_millis(10)).await;
            Ok::<_, io::Error>("x")
        });
        assert_eq!(reads(Body::from_stream(drips), Duration::from_millis(100)).await, Err(Unread::TooSlow));
        assert_eq!(
            reads(Body::from_stream(stream::pending::<io::Result<Bytes>>()), Duration::ZERO).await,
            Err(Unread::TooSlow)
        );
    }

    #[tokio::test]
    async fn received_bytes_extend_the_time_of_a_body() {
        let parts = stream::iter([Ok::<_, io::Error>("xx"), Ok("yyy")]).chain(stream::pending());
        let asked = parking_lot::Mutex::new(Vec::new());
        let time = |arrived| {
            asked.lock().push(arrived);
            if arrived < 5 { Duration::from_mins(5) } else { Duration::ZERO }
        };
        assert_eq!(read_within(Body::from_stream(parts), LONGEST, time).await, Err(Unread::TooSlow));
        assert_eq!(*asked.lock(), [0, 2, 5]);
    }

    /// Returns how much has arrived after which second, if this much arrives in each second and the client never ends.
    fn arrived(each: usize) -> (usize, usize) {
        let ends = (0..100).find(|seconds| time(each * seconds) < Duration::from_secs(*seconds as u64 + 1)).unwrap();
        (each * ends, ends)
    }

    #[test]
    fn a_body_has_a_least_rate() {
        for (each, bytes, seconds) in
            [(0, 0, 5), (1, 5, 5), (1024, 5 * 1024, 5), (4 * 1024, 24 * 1024, 6), (8 * 1024, 72 * 1024, 9)]
        {
            assert_eq!(arrived(each), (bytes, seconds), "{each} bytes in each second");
        }
        assert_eq!(time(LONGEST), Duration::from_secs(9));
        assert!(time(usize::MAX) > time(LONGEST));
    }
}
