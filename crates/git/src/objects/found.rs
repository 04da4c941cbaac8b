//! A commit that exists in a repository.

use gix_object::bstr::{BStr, ByteSlice};
use gix_object::commit::MessageRef;
use gix_object::{CommitRef, Kind};

use super::pack::Pack;
use crate::id::{Id, KIND};
use crate::limits::{MAX_PARENTS, MAX_TRAILERS};
use crate::{GitError, words};

const MALFORMED: GitError = GitError::InvalidAnswer("a commit is malformed");

/// A commit that exists in a repository. All its texts are cut and have no control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The id.
    pub id: Id,
    /// The commits before it. A merge has several.
    pub parents: Vec<Id>,
    /// When it was committed, in seconds since 1970.
    pub seconds: i64,
    /// The trailers at the end of the message: tokens and values. Of very many trailers, the last ones are kept.
    pub trailers: Vec<(String, String)>,
    /// The id of the tree.
    pub(crate) tree: gix_hash::ObjectId,
}

impl Found {
    /// Whether the message has this trailer, with this value.
    pub fn has_trailer(&self, token: &str, value: &str) -> bool {
        self.trailers.iter().any(|(of, it)| of.eq_ignore_ascii_case(token) && it == value)
    }

    /// Reads a commit from a pack that must contain it.
    pub(crate) fn read(pack: &mut Pack, id: Id) -> Result<Self, GitError> {
        Self::parse(&pack.object(&id.0, Kind::Commit)?, id)
    }

    pub(crate) fn parse(content: &[u8], id: Id) -> Result<Self, GitError> {
        let commit = CommitRef::from_bytes(content, KIND).map_err(|_| MALFORMED)?;
        if commit.parents.len() > MAX_PARENTS {
            return Err(GitError::InvalidAnswer("a commit has too many parents"));
        }
        Ok(Self {
            id,
            parents: commit.parents().map(Id).collect(),
            seconds: commit.committer().map_err(|_| MALFORMED)?.seconds(),
            trailers: trailers(&commit.message()),
            tree: commit.tree(),
        })
    }
}

fn trailers(message: &MessageRef<'_>) -> Vec<(String, String)> {
    let text = |bytes: &BStr| words::clean(bytes.as_bytes());
    let mut trailers = Vec::new();
    for trailer in message.body().into_iter().flat_map(|body| body.trailers()) {
        if trailers.len() == MAX_TRAILERS {
            trailers.remove(0);
        }
        trailers.push((text(trailer.token), text(trailer.value.as_ref())));
    }
    trailers
}
