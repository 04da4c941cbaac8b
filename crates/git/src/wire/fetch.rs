//! Fetches objects as a pack.

use bytes::Bytes;
use gix_hash::ObjectId;
use gix_packetline::PacketLineRef;

use super::lines::{Lines, joined};
use super::remote::Remote;
use super::transport::Transport;
use crate::GitError;
use crate::limits::MAX_ANSWER;

/// What is fetched.
pub(crate) struct Wanted<'a> {
    /// The objects.
    pub(crate) ids: &'a [ObjectId],
    /// How many commits of each history.
    pub(crate) depth: Option<usize>,
    /// Which objects are left out, if the server supports that.
    pub(crate) filter: Option<&'static str>,
}

impl<T: Transport> Remote<'_, T> {
    /// Returns the bytes of a pack with the objects.
    pub(crate) async fn fetch(&self, wanted: Wanted<'_>) -> Result<Bytes, GitError> {
        let mut body = self.command("fetch")?.text("no-progress")?.text("ofs-delta")?;
        if let Some(depth) = wanted.depth {
            body = body.text(&format!("deepen {depth}"))?;
        }
        if let Some(filter) = wanted.filter.filter(|_| self.supports.filter) {
            body = body.text(&format!("filter {filter}"))?;
        }
        for id in wanted.ids {
            body = body.text(&format!("want {id}"))?;
        }
        let answer = self.post(body.text("done")?.flush(), MAX_ANSWER).await?;
        let from = start(&answer)?;
        // Copies up to 64 MiB within the answer.
        self.transport.calculate(move || joined(answer, from)).await?
    }
}

/// Returns where the lines of the pack start. The sections before it are of no use.
pub(crate) fn start(answer: &[u8]) -> Result<usize, GitError> {
    let mut lines = Lines::new(answer);
    loop {
        match lines.next()? {
            Some(PacketLineRef::Data(b"packfile\n" | b"packfile")) => return Ok(answer.len() - lines.rest().len()),
            Some(PacketLineRef::Data(_) | PacketLineRef::Delimiter) => {}
            _ => return Err(GitError::InvalidAnswer("there is no pack")),
        }
    }
}
