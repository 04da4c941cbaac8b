//! A repository on a server that supports protocol version 2, and its refs.

use std::collections::BTreeMap;

use bytes::Bytes;
use gix_packetline::PacketLineRef;

use super::lines::{AGENT, Lines, Written, after_service};
use super::transport::{Method, Request, Transport, exchange};
use crate::id::Id;
use crate::limits::{MAX_CAPABILITIES, MAX_FIRST, MAX_REFS};
use crate::{GitError, words};

/// The headers that ask for protocol version 2.
const VERSION: (&str, &str) = ("git-protocol", "version=2");
/// Maximum number of names that can be asked for at once.
const MAX_NAMES: usize = 16;

/// A repository, and what its server supports.
#[derive(Debug)]
pub struct Remote<'a, T> {
    pub(crate) transport: &'a T,
    pub(crate) supports: Supports,
}

/// What a server supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Supports {
    /// Objects can be left out of a pack.
    pub(crate) filter: bool,
    /// History can be left out of a pack.
    pub(crate) shallow: bool,
    /// The answer about refs says where `HEAD` points although there is no commit.
    unborn: bool,
    /// Requests can name the kind of ids.
    object_format: bool,
}

/// The refs that exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refs {
    /// The ids of the refs that were asked for, by their full names. A ref that does not exist is not there.
    pub ids: BTreeMap<String, Id>,
    /// Whether `HEAD` points to a branch without commits. In most cases the repository is empty then.
    pub is_unborn: bool,
}

impl Refs {
    /// Returns the id of a ref that must exist.
    pub fn id(&self, name: &str) -> Result<Id, GitError> {
        self.ids.get(name).copied().ok_or_else(|| GitError::BranchNotFound(words::clean(name.as_bytes())))
    }
}

impl<'a, T: Transport> Remote<'a, T> {
    /// Asks the server what it supports.
    pub async fn connect(transport: &'a T) -> Result<Self, GitError> {
        let request = Request {
            method: Method::Get,
            path: "/info/refs?service=git-upload-pack",
            headers: vec![VERSION, ("accept", "application/x-git-upload-pack-advertisement")],
            body: Bytes::new(),
            // A server without version 2 sends all refs. Up to this bound, the error names the version.
            limit: MAX_FIRST,
        };
        let answer = exchange(transport, request, "application/x-git-upload-pack-advertisement").await?;
        Ok(Self { transport, supports: capabilities(&answer)? })
    }

    /// Returns the refs with these full names, for example `refs/heads/main`.
    pub async fn refs(&self, names: &[&str]) -> Result<Refs, GitError> {
        if names.len() > MAX_NAMES {
            return Err(GitError::NotARef(words::clean(names.join(" ").as_bytes())));
        }
        let mut body = self.command("ls-refs")?;
        if self.supports.unborn {
            body = body.text("symrefs")?.text("unborn")?;
        }
        body = body.text("ref-prefix HEAD")?;
        for name in names {
            check_name(name)?;
            body = body.text(&format!("ref-prefix {name}"))?;
        }
        let answer = self.post(body.flush(), MAX_REFS).await?;
        read_refs(&answer, names)
    }

    /// Begins a request for a command.
    pub(crate) fn command(&self, name: &str) -> Result<Written, GitError> {
        let mut body = Written::default().text(&format!("command={name}"))?.text(AGENT)?;
        if self.supports.object_format {
            body = body.text("object-format=sha1")?;
        }
        Ok(body.delimiter())
    }

    pub(crate) async fn post(&self, body: Written, limit: usize) -> Result<Bytes, GitError> {
        let request = Request {
            method: Method::Post,
            path: "/git-upload-pack",
            headers: vec![
                VERSION,
                ("content-type", "application/x-git-upload-pack-request"),
                ("accept", "application/x-git-upload-pack-result"),
            ],
            body: body.finish(&[]),
            limit,
        };
        exchange(self.transport, request, "application/x-git-upload-pack-result").await
    }
}

/// Checks the full name of a ref.
pub(crate) fn check_name(name: &str) -> Result<(), GitError> {
    let is_valid = name.starts_with("refs/") && name.len() <= 1024 && gix_validate::reference::name(name.into()).is_ok();
    if is_valid { Ok(()) } else { Err(GitError::NotARef(words::clean(name.as_bytes()))) }
}

/// Whether Git accepts a name as that of a branch, without `refs/heads/`.
#[must_use]
pub fn is_branch(name: &str) -> bool {
    check_name(&format!("refs/heads/{name}")).is_ok()
}

/// Reads the capabilities of protocol version 2.
pub(crate) fn capabilities(answer: &[u8]) -> Result<Supports, GitError> {
    let mut lines = after_service(answer, "git-upload-pack")?;
    if lines.text()? != Some(b"version 2") {
        return Err(GitError::Unsupported("the server does not support version 2 of the Git protocol"));
    }
    let (mut supports, mut refs, mut fetch, mut length) = (Supports::default(), false, false, 0);
    while let Some(line) = lines.text()? {
        length += line.len();
        if length > MAX_CAPABILITIES {
            return Err(GitError::InvalidAnswer("the list of capabilities is too long"));
        }
        let line = String::from_utf8_lossy(line);
        let (key, value) = line.split_once('=').unwrap_or((&line, ""));
        let has = |word| value.split(' ').any(|it| it == word);
        match key {
            "ls-refs" => (refs, supports.unborn) = (true, has("unborn")),
            "fetch" => (fetch, supports.filter, supports.shallow) = (true, has("filter"), has("shallow")),
            "object-format" if value == "sha1" => supports.object_format = true,
            "object-format" => return Err(GitError::Unsupported(NOT_SHA1)),
            _ => {}
        }
    }
    if !refs || !fetch {
        return Err(GitError::Unsupported("the server does not support the commands ls-refs and fetch"));
    }
    if !supports.shallow {
        return Err(GitError::Unsupported("the server does not support a fetch without history"));
    }
    Ok(supports)
}

/// The message for a repository with other ids.
pub(crate) const NOT_SHA1: &str = "repositories with SHA-256 ids are not supported";

/// Reads the refs that have one of the names. The server sends all refs that begin with them.
pub(crate) fn read_refs(answer: &[u8], names: &[&str]) -> Result<Refs, GitError> {
    let mut lines = Lines::new(answer);
    let (mut refs, mut has_head) = (Refs::default(), false);
    loop {
        let line = match lines.next()? {
            Some(PacketLineRef::Flush) => break,
            Some(PacketLineRef::Data(line)) => line.strip_suffix(b"\n").unwrap_or(line),
            _ => return Err(GitError::InvalidAnswer("the list of refs does not end")),
        };
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(id), Some(name)) = (words.next(), words.next()) else {
            return Err(GitError::InvalidAnswer("a line about a ref is malformed"));
        };
        if id == b"unborn" {
            continue;
        }
        let id = Id::from_hex(id).ok_or(GitError::InvalidAnswer("the id of a ref is malformed"))?;
        has_head |= name == b"HEAD";
        if let Some(name) = names.iter().find(|asked| asked.as_bytes() == name)
            && refs.ids.insert((*name).to_owned(), id).is_some()
        {
            return Err(GitError::InvalidAnswer("a ref is there twice"));
        }
    }
    refs.is_unborn = !has_head && refs.ids.is_empty();
    Ok(refs)
}
