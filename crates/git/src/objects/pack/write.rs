//! Writes a pack without deltas.

use std::io::{self, Write};

use bytes::Bytes;
use gix_hash::ObjectId;
use gix_object::{Kind, WriteTo};
use gix_pack::data::{Version, entry::Header, header};
use gix_zlib::Compression;
use gix_zlib::stream::deflate;

use crate::id::KIND;

/// An object for a pack.
pub(crate) struct Written {
    /// Computed from the content.
    pub(crate) id: ObjectId,
    header: Header,
    content: Vec<u8>,
}

impl Written {
    /// Serializes an object.
    pub(crate) fn new(object: &dyn WriteTo) -> io::Result<Self> {
        let mut content = Vec::new();
        object.write_to(&mut content)?;
        let id = gix_object::compute_hash(KIND, object.kind(), &content).map_err(io::Error::other)?;
        let header = match object.kind() {
            Kind::Blob => Header::Blob,
            Kind::Tree => Header::Tree,
            Kind::Commit => Header::Commit,
            Kind::Tag => Header::Tag,
        };
        Ok(Self { id, header, content })
    }
}

/// Returns a pack with these objects. The same objects lead to the same bytes.
pub(crate) fn write(objects: &[Written]) -> io::Result<Bytes> {
    let count = u32::try_from(objects.len()).map_err(io::Error::other)?;
    let mut pack = gix_hash::io::Write::new(Vec::new(), KIND);
    pack.write_all(&header::encode(Version::V2, count))?;
    for object in objects {
        object.header.write_to(object.content.len() as u64, &mut pack)?;
        let mut compressed = deflate::Write::new(&mut pack, Compression::DEFAULT);
        compressed.write_all(&object.content)?;
        compressed.flush()?;
    }
    let id = pack.hash.try_finalize().map_err(io::Error::other)?;
    let mut pack = pack.inner;
    pack.extend_from_slice(id.as_slice());
    Ok(Bytes::from(pack))
}
