//! Finds where the entries of a pack are, and computes the ids of objects without deltas.

use gix_hash::ObjectId;
use gix_pack::data::{self, entry::Header};
use gix_zlib::{Decompress, FlushDecompress, Status};

use super::{Base, DAMAGED, Entry, GitError, KIND, MAX_OBJECT, Pack};

/// The objects of a pack, and the deltas between them.
#[derive(Default)]
pub(super) struct Deltas {
    /// The positions and ids of all objects that are no deltas.
    pub(super) whole: Vec<(u32, ObjectId)>,
    /// Pairs of the position of the base and the position of the delta. They are sorted.
    pub(super) by_position: Vec<(u32, u32)>,
    /// Pairs of the id of the base and the position of the delta. They are sorted.
    pub(super) by_id: Vec<(ObjectId, u32)>,
}

/// How many bytes of a large object are inflated at once.
const STEP: usize = 64 * 1024;

impl Pack {
    /// Reads all entries in their order.
    pub(super) fn scan(&mut self) -> Result<Deltas, GitError> {
        let (mut deltas, mut content) = (Deltas::default(), Vec::new());
        let end = self.file.pack_end() as u64;
        let mut offset = data::header::SIZE as u64;
        for position in 0..self.file.num_objects() {
            if offset >= end {
                return Err(DAMAGED);
            }
            let entry = self.file.entry(offset).map_err(|_| DAMAGED)?;
            let base = self.base(&entry, position, &mut deltas)?;
            let start = entry.data_offset;
            let read = if entry.decompressed_size > MAX_OBJECT as u64 {
                self.has_skipped = true;
                self.entries.push(Entry { offset: small(offset)?, base: Base::Skipped });
                self.skip(&entry)?
            } else {
                self.entries.push(Entry { offset: small(offset)?, base });
                self.inflated(&entry, position, &mut content, &mut deltas)?
            };
            offset = start + read;
            if offset > end {
                return Err(DAMAGED);
            }
        }
        if offset != end {
            return Err(GitError::InvalidAnswer("the pack has more objects than it says"));
        }
        self.check_trailer()?;
        deltas.by_position.sort_unstable();
        deltas.by_id.sort_unstable();
        Ok(deltas)
    }

    /// Returns the base of an entry, and adds the entry to the deltas.
    fn base(&self, entry: &data::Entry, position: u32, deltas: &mut Deltas) -> Result<Base, GitError> {
        match entry.header {
            Header::OfsDelta { base_distance } => {
                let at = entry.checked_base_pack_offset(base_distance).ok_or(DAMAGED)?;
                let base = self.entries.binary_search_by_key(&at, |it| it.offset.into()).map_err(|_| DAMAGED)?;
                let base = small(base as u64)?;
                deltas.by_position.push((base, position));
                Ok(Base::At(base))
            }
            Header::RefDelta { base_id } => {
                deltas.by_id.push((base_id, position));
                Ok(Base::Unknown)
            }
            Header::Commit | Header::Tree | Header::Blob | Header::Tag => Ok(Base::Whole),
        }
    }

    /// Inflates an entry, and computes its id if it is no delta. Returns how many bytes it has in the pack.
    fn inflated(
        &mut self,
        entry: &data::Entry,
        position: u32,
        content: &mut Vec<u8>,
        deltas: &mut Deltas,
    ) -> Result<u64, GitError> {
        let size = usize::try_from(entry.decompressed_size).map_err(|_| DAMAGED)?;
        self.work.object(entry.decompressed_size)?;
        if content.len() < size {
            content.resize(size, 0);
        }
        let content = content.get_mut(..size).ok_or(DAMAGED)?;
        let input = self.file.entry_slice(entry.data_offset..self.file.pack_end() as u64).ok_or(DAMAGED)?;
        let input = input.get(..input.len().min(longest(size))).ok_or(DAMAGED)?;
        self.inflate.reset();
        let (status, read, written) = self.inflate.once(input, content).map_err(|_| DAMAGED)?;
        if status != Status::StreamEnd || written != size {
            return Err(DAMAGED);
        }
        if let Some(kind) = entry.header.as_kind() {
            let id = gix_object::compute_hash(KIND, kind, content).map_err(|_| DAMAGED)?;
            self.ids.entry(id).or_insert(position);
            deltas.whole.push((position, id));
        }
        Ok(read as u64)
    }

    /// Returns how many bytes an entry has in the pack, without keeping what it inflates to.
    fn skip(&mut self, entry: &data::Entry) -> Result<u64, GitError> {
        let mut rest = self.file.entry_slice(entry.data_offset..self.file.pack_end() as u64).ok_or(DAMAGED)?;
        let (mut stream, mut scratch) = (Decompress::new(), vec![0; STEP]);
        loop {
            let (read, written) = (stream.total_in(), stream.total_out());
            let input = rest.get(..rest.len().min(STEP)).ok_or(DAMAGED)?;
            let status = stream.decompress(input, &mut scratch, FlushDecompress::None).map_err(|_| DAMAGED)?;
            let (read, written) = (stream.total_in() - read, stream.total_out() - written);
            self.work.spend(written)?;
            let longest = longest(usize::try_from(stream.total_out()).map_err(|_| DAMAGED)?) + 2 * STEP;
            let is_stuck = status != Status::StreamEnd && read == 0 && written == 0;
            let is_padded = stream.total_in() > longest as u64;
            if is_stuck || is_padded || stream.total_out() > entry.decompressed_size {
                return Err(DAMAGED);
            }
            if status == Status::StreamEnd {
                return if stream.total_out() == entry.decompressed_size { Ok(stream.total_in()) } else { Err(DAMAGED) };
            }
            rest = rest.get(usize::try_from(read).map_err(|_| DAMAGED)?..).ok_or(DAMAGED)?;
        }
    }

    /// Compares the id at the end of the pack with its content.
    fn check_trailer(&self) -> Result<(), GitError> {
        let end = self.file.pack_end() as u64;
        let (content, trailer) = (self.file.entry_slice(0..end), self.file.entry_slice(end..self.file.data_len() as u64));
        let mut hasher = gix_hash::hasher(KIND);
        hasher.update(content.ok_or(DAMAGED)?);
        let id = hasher.try_finalize().map_err(|_| DAMAGED)?;
        if trailer == Some(id.as_slice()) { Ok(()) } else { Err(DAMAGED) }
    }
}

/// Returns the maximum length of a stream that inflates to a number of bytes. Compression makes no content much longer. A stream could
/// otherwise have many blocks that contain nothing, and need much time.
fn longest(size: usize) -> usize {
    size + size / 8 + 64
}

/// Converts a position or offset. A pack is far smaller than 4 GiB.
fn small(number: u64) -> Result<u32, GitError> {
    u32::try_from(number).map_err(|_| DAMAGED)
}
