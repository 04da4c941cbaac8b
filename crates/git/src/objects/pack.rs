//! Pure: the objects of a pack, by the ids that are computed from their content.
//!
//! In: the bytes of a pack from a server that is not trusted. Out: [`Pack::object`]. A pack is read in two passes. `scan` finds where its
//! entries are. `resolve` derives each object from its base, and computes the ids. Only positions and ids are kept. An object that is asked
//! for is derived again.
//!
//! Memory is bounded by the size of the pack, `MAX_OBJECTS`, `MAX_BASES` and a few times `MAX_OBJECT`. Time is bounded by `MAX_WORK`.

mod resolve;
mod scan;
mod write;

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::Bytes;
use gix_hash::ObjectId;
use gix_object::Kind;
use gix_pack::cache;
use gix_pack::data::decode::{entry, header};
use gix_pack::data::entry::Header;
use gix_pack::data::{self, File};
use gix_zlib::Inflate;

use crate::GitError;
use crate::id::KIND;
use crate::limits::{Bound, MAX_DELTAS, MAX_OBJECT, MAX_OBJECTS, MAX_PACK, MAX_WORK};
pub(crate) use write::{Written, write};

const MISSING: GitError = GitError::InvalidAnswer("the pack lacks an object that is needed");
const DAMAGED: GitError = GitError::InvalidAnswer("the pack is damaged");

/// A pack whose objects are known.
pub(crate) struct Pack {
    file: File<Bytes>,
    entries: Vec<Entry>,
    /// The positions of objects in `entries`.
    ids: HashMap<ObjectId, u32>,
    inflate: Inflate,
    work: Work,
    /// Whether objects were skipped because of their size.
    has_skipped: bool,
}

/// Where an object is.
#[derive(Clone, Copy)]
struct Entry {
    offset: u32,
    base: Base,
}

/// What an object is derived from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// Nothing: the entry contains the whole object.
    Whole,
    /// The entry with this position.
    At(u32),
    /// An object whose position is not yet known.
    Unknown,
    /// The object is not read, because it is too large.
    Skipped,
}

/// The work for an object besides its bytes, as a number of bytes that needs the same time.
const EACH: u64 = 512;

/// The work that is left, in bytes.
struct Work(u64);

impl Work {
    fn spend(&mut self, bytes: u64) -> Result<(), GitError> {
        self.0 = self.0.checked_sub(bytes).ok_or(GitError::TooLarge(Bound::Work))?;
        Ok(())
    }

    /// Adds what each object costs, however small it is.
    fn object(&mut self, bytes: u64) -> Result<(), GitError> {
        self.spend(bytes.saturating_add(EACH))
    }
}

impl Pack {
    /// Reads all entries, and computes the ids of all objects that are not too large. The time is bounded, but can be a few seconds.
    pub(crate) fn read(bytes: Bytes) -> Result<Self, GitError> {
        if bytes.len() > MAX_PACK {
            return Err(GitError::TooLarge(Bound::Answer));
        }
        let file = File::from_data(bytes, PathBuf::new(), KIND).map_err(|_| DAMAGED)?;
        if file.num_objects() > MAX_OBJECTS {
            return Err(GitError::TooLarge(Bound::Objects));
        }
        // A delta needs two objects and its instructions at the same time.
        let file = file.with_alloc_limit_bytes(Some(3 * MAX_OBJECT));
        let mut pack = Self {
            file,
            entries: Vec::new(),
            ids: HashMap::new(),
            inflate: Inflate::default(),
            work: Work(MAX_WORK),
            has_skipped: false,
        };
        let deltas = pack.scan()?;
        pack.resolve(&deltas)?;
        Ok(pack)
    }

    /// Returns the content of an object that must be there, with this kind.
    pub(crate) fn object(&mut self, id: &ObjectId, kind: Kind) -> Result<Vec<u8>, GitError> {
        let missing = if self.has_skipped { GitError::TooLarge(Bound::Object) } else { MISSING };
        let (found, content) = self.find(id)?.ok_or(missing)?;
        if found == kind {
            Ok(content)
        } else {
            Err(GitError::InvalidAnswer("an object has another kind than its name says"))
        }
    }

    /// Returns an object, if it is there and was not skipped.
    pub(crate) fn find(&mut self, id: &ObjectId) -> Result<Option<(Kind, Vec<u8>)>, GitError> {
        let Some(position) = self.ids.get(id).copied() else { return Ok(None) };
        let mut chain = vec![position];
        while let Some(Base::At(base)) = chain.last().and_then(|at| self.entries.get(*at as usize)).map(|entry| entry.base) {
            chain.push(base);
            if chain.len() > MAX_DELTAS + 1 {
                return Err(GitError::TooLarge(Bound::Deltas));
            }
        }
        let (kind, mut content) = self.whole(chain.pop().unwrap_or(position))?;
        while let Some(delta) = chain.pop() {
            content = self.derived(delta, kind, &content)?.ok_or(GitError::TooLarge(Bound::Object))?;
        }
        Ok(Some((kind, content)))
    }

    fn entry(&self, position: u32) -> Result<data::Entry, GitError> {
        let entry = self.entries.get(position as usize).ok_or(DAMAGED)?;
        self.file.entry(entry.offset.into()).map_err(|_| DAMAGED)
    }

    /// Returns an object that is not a delta.
    fn whole(&mut self, position: u32) -> Result<(Kind, Vec<u8>), GitError> {
        let entry = self.entry(position)?;
        let kind = entry.header.as_kind().ok_or(DAMAGED)?;
        self.work.object(entry.decompressed_size)?;
        let mut content = Vec::new();
        self.decode(entry, &mut content, kind, &[])?;
        Ok((kind, content))
    }

    /// Derives an object from its base. Returns `None` if the object is too large.
    fn derived(&mut self, position: u32, kind: Kind, base: &[u8]) -> Result<Option<Vec<u8>>, GitError> {
        let mut entry = self.entry(position)?;
        // The library asks for the base by its id. It would look for a base at an offset by itself.
        entry.header = Header::RefDelta { base_id: ObjectId::null(KIND) };
        let of_base = |_: &gix_hash::oid| Ok(Some(header::ResolvedBase::OutOfPack { kind, num_deltas: None }));
        let size = self.file.decode_header(entry.clone(), &mut self.inflate, &of_base).map_err(|_| DAMAGED)?.object_size;
        if size > MAX_OBJECT as u64 {
            return Ok(None);
        }
        // The base is only copied, which is cheaper than inflating it.
        self.work.object(entry.decompressed_size + size + base.len() as u64 / 2)?;
        let mut content = Vec::new();
        self.decode(entry, &mut content, kind, base)?;
        content.shrink_to_fit();
        Ok(Some(content))
    }

    fn decode(&mut self, entry: data::Entry, content: &mut Vec<u8>, kind: Kind, base: &[u8]) -> Result<(), GitError> {
        let give_base = |_: &gix_hash::oid, out: &mut Vec<u8>| {
            out.clear();
            out.extend_from_slice(base);
            Ok(Some(entry::ResolvedBase::OutOfPack { kind, end: base.len() }))
        };
        let decoded = self.file.decode_entry(entry, content, &mut self.inflate, &give_base, &mut cache::Never);
        decoded.map(|_| ()).map_err(|_| DAMAGED)
    }
}
