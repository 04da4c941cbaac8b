//! Pure: what the server says before and after a push.

use super::lines::{Lines, after_service};
use super::remote::NOT_SHA1;
use crate::id::Id;
use crate::{GitError, words};

/// Maximum length of the words of hooks that are kept, in bytes.
const MAX_REMARKS: usize = 64 * 1024;

/// What the server says before a push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// The id of the ref.
    pub(crate) now: Option<Id>,
    /// Whether the server supports these.
    pub(crate) bands: bool,
    pub(crate) quiet: bool,
    pub(crate) object_format: bool,
    pub(crate) delete: bool,
    pub(crate) agent: bool,
}

/// Reads all refs before a push.
pub(crate) fn before(answer: &[u8], name: &str) -> Result<Before, GitError> {
    let mut lines = after_service(answer, "git-receive-pack")?;
    let mut before = Before::default();
    let (mut is_first, mut reports) = (true, false);
    while let Some(line) = lines.text()? {
        let (line, capabilities) = match line.iter().position(|byte| *byte == 0) {
            Some(at) => (&line[..at], line.get(at + 1..).unwrap_or_default()),
            None => (line, &b""[..]),
        };
        if is_first {
            for capability in capabilities.split(|byte| *byte == b' ') {
                match capability {
                    b"report-status" => reports = true,
                    b"side-band-64k" => before.bands = true,
                    b"quiet" => before.quiet = true,
                    b"delete-refs" => before.delete = true,
                    b"object-format=sha1" => before.object_format = true,
                    _ if capability.starts_with(b"object-format=") => return Err(GitError::Unsupported(NOT_SHA1)),
                    _ if capability.starts_with(b"agent=") => before.agent = true,
                    _ => {}
                }
            }
            is_first = false;
        }
        if let Some((id, b" ", of)) = line.split_at_checked(40).and_then(|(id, rest)| {
            let (space, of) = rest.split_at_checked(1)?;
            Some((id, space, of))
        }) && of == name.as_bytes()
        {
            before.now = Some(Id::from_hex(id).ok_or(GitError::InvalidAnswer("the id of a ref is malformed"))?);
        }
    }
    if is_first {
        return Err(GitError::InvalidAnswer("there is no list of refs"));
    }
    if reports { Ok(before) } else { Err(GitError::Unsupported("the server does not report whether a push succeeds")) }
}

/// What the server reports after a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The ref has the new value.
    Done,
    /// The ref or the pack is refused.
    Refused {
        /// What kind of reason it is.
        reason: Reason,
        /// All that the server says.
        words: String,
    },
}

/// Kinds of reasons of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The ref has another value than expected.
    Moved,
    /// A rule of the server.
    Rule,
    /// Not known. The value of the ref shows it.
    Unsure,
}

/// Reads the report.
pub(crate) fn report(answer: &[u8], name: &str, has_bands: bool) -> Result<Report, GitError> {
    if !has_bands {
        return read(answer, name, &[]);
    }
    let (mut lines, mut report, mut remarks) = (Lines::new(answer), Vec::new(), Vec::new());
    while let Some(line) = lines.next()? {
        match line.as_slice().and_then(<[u8]>::split_first) {
            Some((1, data)) => report.extend_from_slice(data),
            Some((2 | 3, text)) if remarks.len() + text.len() <= MAX_REMARKS => remarks.extend_from_slice(text),
            Some((2 | 3, _)) => {}
            Some(_) => return Err(GitError::InvalidAnswer("a band is unknown")),
            None => break,
        }
    }
    if report.is_empty() && !remarks.is_empty() {
        return Err(GitError::Server(words::clean(&remarks)));
    }
    read(&report, name, &remarks)
}

fn read(report: &[u8], name: &str, remarks: &[u8]) -> Result<Report, GitError> {
    let mut lines = Lines::new(report);
    let unpack = lines.text()?.and_then(|line| line.strip_prefix(b"unpack "));
    let unpack = unpack.ok_or(GitError::InvalidAnswer("the report of the push is malformed"))?;
    if unpack != b"ok" {
        return Ok(Report::Refused { reason: Reason::Rule, words: words::join([unpack, remarks]) });
    }
    while let Some(line) = lines.text()? {
        if line.strip_prefix(b"ok ") == Some(name.as_bytes()) {
            return Ok(Report::Done);
        }
        let reason = line.strip_prefix(b"ng ").and_then(|rest| rest.strip_prefix(name.as_bytes()));
        if let Some(reason) = reason.and_then(|rest| rest.strip_prefix(b" ")) {
            return Ok(Report::Refused { reason: kind(reason), words: words::join([reason, remarks]) });
        }
    }
    Err(GitError::InvalidAnswer("the report of the push says nothing about the branch"))
}

/// Returns what a reason means.
pub(crate) fn kind(reason: &[u8]) -> Reason {
    let reason = String::from_utf8_lossy(reason).to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| reason.contains(word));
    let moved = ["fetch first", "non-fast-forward", "stale info", "already exists", "but expected", "old value"];
    if has(&moved) {
        Reason::Moved
    } else if has(&["hook declined", "protected", "prohibited", "denied", "not allowed", "permission"]) {
        Reason::Rule
    } else {
        Reason::Unsure
    }
}
