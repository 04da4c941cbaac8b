//! Pure: makes a commit from a snapshot and edited files.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use gix_actor::Signature;
use gix_hash::{ObjectId, oid};
use gix_object::date::Time;
use gix_object::tree::{Editor, EntryKind};
use gix_object::{Blob, Data, Find, Kind, Tree, TreeRef};

use super::id::{Id, KIND};
use super::limits::MAX_FILE;
use super::message::{Author, Message};
use super::objects::pack::{self, Written};
use super::objects::tree::Trees;
use super::snapshot::Snapshot;

/// A commit that is not yet in the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The id. The same snapshot, files, message, author and time lead to the same id.
    pub id: Id,
    /// A pack with the commit and its new objects.
    pub pack: Bytes,
}

/// Why no commit can be made.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The snapshot does not contain the file.
    #[error("{0:?} is not one of the files that were read")]
    NotAFile(String),
    /// The edited file has more than [`MAX_FILE`] bytes.
    #[error("{0:?} becomes larger than {MAX_FILE} bytes")]
    TooLarge(String),
    /// The library cannot write an object.
    #[error("an object cannot be written")]
    Object(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<io::Error> for CommitError {
    fn from(error: io::Error) -> Self {
        Self::Object(Box::new(error))
    }
}

/// Makes a commit on top of a snapshot. `edits` has the new contents of files by their paths, and `seconds` is the time since 1970. Returns
/// `None` if no file changes.
///
/// All other files, and the modes of all files, stay as they are.
pub fn commit(
    base: &Snapshot,
    edits: &BTreeMap<String, Bytes>,
    message: &Message,
    author: &Author,
    seconds: i64,
) -> Result<Option<Commit>, CommitError> {
    let mut objects = Vec::new();
    let tree = edit_tree(base, edits, &mut objects)?;
    if tree == base.commit.tree {
        return Ok(None);
    }
    let time = Time { seconds, offset: 0 };
    let signature = Signature { name: author.name.as_str().into(), email: author.email.as_str().into(), time };
    let commit = gix_object::Commit {
        tree,
        parents: [base.commit.id.0].into_iter().collect(),
        author: signature.clone(),
        committer: signature,
        encoding: None,
        message: message.text().into(),
        extra_headers: Vec::new(),
    };
    let id = add(&mut objects, &commit)?;
    Ok(Some(Commit { id: Id(id), pack: pack::write(&objects)? }))
}

/// Writes new blobs, and the trees on the way to them. Returns the id of the new root.
fn edit_tree(base: &Snapshot, edits: &BTreeMap<String, Bytes>, objects: &mut Vec<Written>) -> Result<ObjectId, CommitError> {
    let library = |error: gix_error::Error| CommitError::Object(Box::new(error));
    let find = InSnapshot(&base.trees);
    let root = base.trees.get(&base.commit.tree).map(Vec::as_slice).unwrap_or_default();
    let root = Tree::from(TreeRef::from_bytes(root, KIND).map_err(library)?);
    let mut editor = Editor::new(root, &find, KIND);
    let mut has_edits = false;
    for (path, bytes) in edits {
        let file = base.files.get(path).ok_or_else(|| CommitError::NotAFile(path.clone()))?;
        if bytes.len() > MAX_FILE {
            return Err(CommitError::TooLarge(path.clone()));
        }
        if file.bytes == bytes {
            continue;
        }
        has_edits = true;
        let blob = add(objects, &Blob { data: bytes.to_vec() })?;
        let kind = if file.is_executable { EntryKind::BlobExecutable } else { EntryKind::Blob };
        editor.upsert(path.split('/'), kind, blob).map_err(library)?;
    }
    if !has_edits {
        return Ok(base.commit.tree);
    }
    editor.write(|tree| add(objects, tree))
}

/// Adds an object to those of the pack, once.
fn add(objects: &mut Vec<Written>, object: &dyn gix_object::WriteTo) -> Result<ObjectId, CommitError> {
    let written = Written::new(object)?;
    let id = written.id;
    if objects.iter().all(|it| it.id != id) {
        objects.push(written);
    }
    Ok(id)
}

/// The trees of a snapshot, for the editor of the library.
struct InSnapshot<'a>(&'a Trees);

impl Find for InSnapshot<'_> {
    fn try_find<'a>(&self, id: &oid, buffer: &'a mut Vec<u8>) -> gix_error::Result<Option<Data<'a>>> {
        let Some(content) = self.0.get(id) else { return Ok(None) };
        buffer.clear();
        buffer.extend_from_slice(content);
        Ok(Some(Data::new(buffer, Kind::Tree, KIND)))
    }
}
