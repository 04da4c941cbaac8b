//! Pure: walks through the trees of a commit, and finds the YAML files.

use std::collections::BTreeMap;

use gix_hash::ObjectId;
use gix_object::Kind;
use gix_object::bstr::ByteSlice;
use gix_object::tree::EntryKind;

use super::pack::Pack;
use super::tree::{self, Trees};
use crate::GitError;
use crate::limits::{Bound, MAX_DEPTH, MAX_ENTRIES, MAX_FILES, MAX_PATH, MAX_TREES};
use crate::paths::Paths;

/// What is found.
#[derive(Default)]
pub(crate) struct Walked {
    /// The trees that were read.
    pub(crate) trees: Trees,
    /// The YAML files: their blobs, and whether they are executable.
    pub(crate) files: BTreeMap<String, (ObjectId, bool)>,
    /// The YAML files whose names are not UTF-8.
    pub(crate) not_utf8: Vec<String>,
    entries: usize,
    size: usize,
}

/// Finds the YAML files below a tree. Links and submodules are not followed.
pub(crate) fn walk(pack: &mut Pack, root: ObjectId, paths: &Paths) -> Result<Walked, GitError> {
    let mut walked = Walked::default();
    let mut folders = vec![(String::new(), root, 1)];
    while let Some((folder, id, depth)) = folders.pop() {
        if depth > MAX_DEPTH {
            return Err(GitError::TooLarge(Bound::Depth));
        }
        let content = walked.tree(pack, id)?;
        for entry in tree::read(&content)? {
            walked.entries += 1;
            if walked.entries > MAX_ENTRIES {
                return Err(GitError::TooLarge(Bound::Entries));
            }
            let name = entry.name.to_str_lossy();
            let path = if folder.is_empty() { name.to_string() } else { format!("{folder}/{name}") };
            let is_utf8 = entry.name.to_str().is_ok();
            if path.len() > MAX_PATH {
                return Err(GitError::TooLarge(Bound::Depth));
            }
            match entry.kind {
                // A name that is not UTF-8 would lead to the wrong folder.
                EntryKind::Tree if is_utf8 && paths.enter(&path) => folders.push((path, entry.id.to_owned(), depth + 1)),
                EntryKind::Blob | EntryKind::BlobExecutable if is_yaml(&name) && paths.read(&path) => {
                    if walked.files.len() + walked.not_utf8.len() == MAX_FILES {
                        return Err(GitError::TooLarge(Bound::Files));
                    }
                    if is_utf8 {
                        let is_executable = entry.kind == EntryKind::BlobExecutable;
                        walked.files.insert(path, (entry.id.to_owned(), is_executable));
                    } else {
                        walked.not_utf8.push(path);
                    }
                }
                _ => {}
            }
        }
        walked.trees.insert(id, content);
    }
    Ok(walked)
}

impl Walked {
    /// Returns the content of a tree, which can be at several places.
    fn tree(&mut self, pack: &mut Pack, id: ObjectId) -> Result<Vec<u8>, GitError> {
        if let Some(content) = self.trees.get(&id) {
            return Ok(content.clone());
        }
        if id == ObjectId::empty_tree(crate::id::KIND) {
            return Ok(Vec::new());
        }
        let content = pack.object(&id, Kind::Tree)?;
        self.size += content.len();
        if self.size > MAX_TREES { Err(GitError::TooLarge(Bound::Trees)) } else { Ok(content) }
    }
}

fn is_yaml(name: &str) -> bool {
    std::path::Path::new(name).extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}
