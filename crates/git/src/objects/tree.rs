//! Pure: the entries of a tree, after all checks.

use std::collections::HashSet;

use gix_hash::{ObjectId, oid};
use gix_object::bstr::{BStr, ByteSlice};
use gix_object::tree::{EntryKind, name_order};
use gix_object::{TreeRef, WriteTo};
use gix_validate::path::component;

use crate::GitError;
use crate::id::KIND;
use crate::limits::MAX_NAME;

/// One entry of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a BStr,
    pub(crate) kind: EntryKind,
    pub(crate) id: &'a oid,
}

/// Reads a tree. Its names must be names, once each, and in the order of Git.
pub(crate) fn read(content: &[u8]) -> Result<Vec<Entry<'_>>, GitError> {
    const MALFORMED: GitError = GitError::InvalidAnswer("a tree is malformed");
    let tree = TreeRef::from_bytes(content, KIND).map_err(|_| MALFORMED)?;
    let mut names = HashSet::with_capacity(tree.entries.len());
    let mut entries: Vec<Entry> = Vec::with_capacity(tree.entries.len());
    for entry in &tree.entries {
        let kind = match entry.mode.value() {
            // Old versions of Git wrote 100664.
            0o100_644 | 0o100_664 => EntryKind::Blob,
            0o100_755 => EntryKind::BlobExecutable,
            0o040_000 => EntryKind::Tree,
            0o120_000 => EntryKind::Link,
            0o160_000 => EntryKind::Commit,
            _ => return Err(GitError::InvalidAnswer("a tree has an entry with an unknown mode")),
        };
        check_name(entry.filename)?;
        if entry.oid.is_null() {
            return Err(MALFORMED);
        }
        if !names.insert(entry.filename) {
            return Err(GitError::InvalidAnswer("a tree has a name twice"));
        }
        let is_tree = kind == EntryKind::Tree;
        if entries.last().is_some_and(|last| {
            name_order(last.name, last.kind == EntryKind::Tree, entry.filename, is_tree) != std::cmp::Ordering::Less
        }) {
            return Err(GitError::InvalidAnswer("a tree is not sorted"));
        }
        entries.push(Entry { name: entry.filename, kind, id: entry.oid });
    }
    // What the library does not keep would be lost when the tree is written with another entry.
    let mut again = Vec::with_capacity(content.len());
    let is_written = tree.write_to(&mut again).is_ok();
    if is_written && again == content { Ok(entries) } else { Err(MALFORMED) }
}

/// Checks the name of a file or folder. Names that can mean `.git` on another file system are refused, too.
fn check_name(name: &BStr) -> Result<(), GitError> {
    // Git permits the characters that only Windows forbids.
    let options = component::Options { protect_windows: false, protect_hfs: true, protect_ntfs: true };
    let is_valid = name.len() <= MAX_NAME && name.find_byte(0).is_none();
    if is_valid && gix_validate::path::component(name, None, options).is_ok() {
        Ok(())
    } else {
        Err(GitError::InvalidAnswer("a tree has a forbidden name, like .. or .git"))
    }
}

/// The contents of trees, by their ids.
pub(crate) type Trees = std::collections::HashMap<ObjectId, Vec<u8>>;
