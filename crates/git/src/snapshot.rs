//! The YAML files of a commit.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use gix_hash::ObjectId;
use gix_object::Kind;

use super::GitError;
use super::id::Id;
use super::limits::{Bound, MAX_ALL_FILES, MAX_FILE};
use super::objects::found::Found;
use super::objects::pack::Pack;
use super::objects::tree::Trees;
use super::objects::walk::{Walked, walk};
use super::paths::Paths;
use super::wire::fetch::Wanted;
use super::wire::remote::Remote;
use super::wire::transport::Transport;

/// The YAML files of a commit, and what is necessary to change them.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The commit.
    pub commit: Found,
    /// The files by their paths, with `/` between folders. They are regular files that end in `.yaml` or `.yml`.
    pub files: BTreeMap<String, File>,
    /// YAML files that were not read.
    pub left_out: Vec<LeftOut>,
    /// The trees on the way to the files.
    pub(super) trees: Trees,
}

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The content.
    pub bytes: Bytes,
    /// Whether it can be executed. An edit does not change that.
    pub is_executable: bool,
}

/// A YAML file that was not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// The path. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The reason.
    pub why: WhyLeftOut,
}

/// Why a file was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhyLeftOut {
    /// It has more than [`MAX_FILE`] bytes.
    TooLarge,
    /// Its path is not UTF-8.
    NotUtf8,
}

#[cfg(feature = "testing")]
impl Snapshot {
    /// Returns a commit with these files, for the tests of other crates.
    #[must_use]
    pub fn of(files: &[(&str, &[u8])], left_out: Vec<LeftOut>) -> Self {
        let null = ObjectId::null(super::id::KIND);
        let commit = Found { id: Id(null), parents: Vec::new(), seconds: 0, trailers: Vec::new(), tree: null };
        let file = |bytes: &[u8]| File { bytes: Bytes::copy_from_slice(bytes), is_executable: false };
        let files = files.iter().map(|(path, bytes)| ((*path).to_owned(), file(bytes))).collect();
        Self { commit, files, left_out, trees: Trees::default() }
    }
}

impl<T: Transport> Remote<'_, T> {
    /// Returns the YAML files of a commit.
    ///
    /// If the server supports it, the trees are fetched first, and then only the files. Otherwise all files of the commit are fetched.
    pub async fn snapshot(&self, commit: Id, paths: &Paths) -> Result<Snapshot, GitError> {
        let wanted = Wanted { ids: &[commit.0], depth: Some(1), filter: Some("blob:none") };
        let pack = self.fetch(wanted).await?;
        let (paths, is_filtered) = (paths.clone(), self.supports.filter);
        let mut partial = self.transport.calculate(move || Partial::of_trees(pack, commit, &paths, is_filtered)).await??;
        if !partial.lacking.is_empty() {
            let pack = self.fetch(Wanted { ids: &partial.lacking, depth: None, filter: None }).await?;
            partial = self.transport.calculate(move || partial.with_files(pack)).await??;
        }
        Ok(partial.finish())
    }
}

/// A snapshot whose files are perhaps not all there.
pub(super) struct Partial {
    commit: Found,
    walked: Walked,
    /// The blobs that are there. `None` if a blob is too large.
    blobs: HashMap<ObjectId, Option<Bytes>>,
    /// The blobs that must be fetched.
    lacking: Vec<ObjectId>,
    /// The size of all blobs.
    size: usize,
}

impl Partial {
    /// Reads the commit and its trees, and the files if they are there.
    pub(super) fn of_trees(pack: Bytes, commit: Id, paths: &Paths, is_filtered: bool) -> Result<Self, GitError> {
        let mut pack = Pack::read(pack)?;
        let commit = Found::read(&mut pack, commit)?;
        let walked = walk(&mut pack, commit.tree, paths)?;
        let blobs: HashSet<ObjectId> = walked.files.values().map(|(id, _)| *id).collect();
        let mut lacking: Vec<ObjectId> = blobs.into_iter().collect();
        lacking.sort_unstable();
        let mut partial = Self { commit, walked, blobs: HashMap::new(), lacking, size: 0 };
        if !is_filtered {
            partial.take(&mut pack)?;
        }
        Ok(partial)
    }

    /// Adds the files.
    pub(super) fn with_files(mut self, pack: Bytes) -> Result<Self, GitError> {
        self.take(&mut Pack::read(pack)?)?;
        Ok(self)
    }

    /// Takes all blobs that lack.
    fn take(&mut self, pack: &mut Pack) -> Result<(), GitError> {
        for id in std::mem::take(&mut self.lacking) {
            let content = match pack.object(&id, Kind::Blob) {
                Ok(content) if content.len() <= MAX_FILE => Some(content),
                Ok(_) | Err(GitError::TooLarge(Bound::Object)) => None,
                Err(error) => return Err(error),
            };
            self.size += content.as_ref().map_or(0, Vec::len);
            if self.size > MAX_ALL_FILES {
                return Err(GitError::TooLarge(Bound::AllFiles));
            }
            self.blobs.insert(id, content.map(Bytes::from));
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Snapshot {
        let Walked { trees, files, not_utf8, .. } = self.walked;
        let not_utf8 = not_utf8.into_iter().map(|path| LeftOut { path, why: WhyLeftOut::NotUtf8 });
        let (mut read, mut left_out) = (BTreeMap::new(), not_utf8.collect::<Vec<_>>());
        for (path, (id, is_executable)) in files {
            match self.blobs.get(&id) {
                Some(Some(bytes)) => {
                    read.insert(path, File { bytes: bytes.clone(), is_executable });
                }
                _ => left_out.push(LeftOut { path, why: WhyLeftOut::TooLarge }),
            }
        }
        left_out.sort_unstable();
        Snapshot { commit: self.commit, files: read, left_out, trees }
    }
}
