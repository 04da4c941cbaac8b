//! Packet lines: the units of requests and answers.

use bytes::{Bytes, BytesMut};
use gix_packetline::PacketLineRef;
use gix_packetline::blocking_io::encode;
use gix_packetline::decode::{Stream, streaming};

use crate::{GitError, words};

/// Sent as `agent`.
pub(crate) const AGENT: &str = concat!("agent=relaybook/", env!("CARGO_PKG_VERSION"));

const MALFORMED: GitError = GitError::InvalidAnswer("a packet line is malformed");

/// Reads packet lines.
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the next line. At the end there is none. A line that reports an error is an error.
    pub(crate) fn next(&mut self) -> Result<Option<PacketLineRef<'a>>, GitError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let Ok(Stream::Complete { line, bytes_consumed }) = streaming(self.rest) else { return Err(MALFORMED) };
        self.rest = self.rest.get(bytes_consumed..).unwrap_or_default();
        match line.check_error() {
            Some(error) => Err(GitError::Server(words::clean(error.0))),
            None => Ok(Some(line)),
        }
    }

    /// Returns the next line without its line break. At a line without content, or at the end, there is none.
    pub(crate) fn text(&mut self) -> Result<Option<&'a [u8]>, GitError> {
        Ok(self.next()?.and_then(|line| line.as_text()).map(|text| text.as_slice()))
    }

    /// Returns what was not read.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }
}

/// Skips the line `# service=…` and the flush after it, which precede most answers about a service.
pub(crate) fn after_service<'a>(answer: &'a [u8], service: &str) -> Result<Lines<'a>, GitError> {
    let mut lines = Lines::new(answer);
    match lines.text()? {
        Some(line) if line.strip_prefix(b"# service=") == Some(service.as_bytes()) => match lines.next()? {
            Some(PacketLineRef::Flush) => Ok(lines),
            _ => Err(GitError::InvalidAnswer("there is no flush after the name of the service")),
        },
        _ => Ok(Lines::new(answer)),
    }
}

/// Writes packet lines.
#[derive(Default)]
pub(crate) struct Written(Vec<u8>);

impl Written {
    /// Adds a line of text.
    pub(crate) fn text(mut self, line: &str) -> Result<Self, GitError> {
        // A line can be too long only if a name is. Writing to memory cannot fail.
        encode::text_to_write(line.as_bytes(), &mut self.0).map_err(|_| GitError::NotARef(words::clean(line.as_bytes())))?;
        Ok(self)
    }

    /// Adds a line of bytes.
    pub(crate) fn data(mut self, line: &[u8]) -> Result<Self, GitError> {
        encode::data_to_write(line, &mut self.0).map_err(|_| GitError::NotARef(words::clean(line)))?;
        Ok(self)
    }

    pub(crate) fn delimiter(mut self) -> Self {
        self.0.extend_from_slice(b"0001");
        self
    }

    pub(crate) fn flush(mut self) -> Self {
        self.0.extend_from_slice(b"0000");
        self
    }

    pub(crate) fn finish(self, after: &[u8]) -> Bytes {
        let mut body = self.0;
        body.extend_from_slice(after);
        Bytes::from(body)
    }
}

/// Returns the data of an answer that is split into bands, in place of the answer. The data starts at `from`. An error band is an error.
pub(crate) fn joined(answer: Bytes, from: usize) -> Result<Bytes, GitError> {
    let mut buffer = answer.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    let (mut read, mut written) = (from, 0);
    loop {
        let Ok(Stream::Complete { line, bytes_consumed }) = streaming(buffer.get(read..).unwrap_or_default()) else {
            return Err(MALFORMED);
        };
        if let Some(error) = line.check_error() {
            return Err(GitError::Server(words::clean(error.0)));
        }
        let PacketLineRef::Data(data) = line else { break };
        match data.split_first() {
            Some((1, data)) => {
                let end = read + bytes_consumed;
                let start = end - data.len();
                buffer.copy_within(start..end, written);
                written += end - start;
            }
            Some((2, _)) => {}
            Some((3, error)) => return Err(GitError::Server(words::clean(error))),
            _ => return Err(GitError::InvalidAnswer("a band is unknown")),
        }
        read += bytes_consumed;
    }
    buffer.truncate(written);
    Ok(buffer.freeze())
}
