//! The id of an object.

use std::fmt;
use std::str::FromStr;

use gix_hash::{Kind, ObjectId};

/// The only kind of ids that is supported.
pub(super) const KIND: Kind = Kind::Sha1;

/// The SHA-1 id of a commit, never the null id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(super) ObjectId);

/// The text is not an id of 40 hexadecimal digits, or is the null id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a Git object: 40 hexadecimal digits are expected")]
pub struct NotAnId;

impl Id {
    /// Reads an id as servers write it. Returns `None` for the null id and for everything that is not an id.
    pub(super) fn from_hex(hex: &[u8]) -> Option<Self> {
        ObjectId::from_hex(hex).ok().filter(|id| !id.is_null()).map(Self)
    }
}

/// Writes an id, or the null id where there is none.
pub(super) fn or_null(id: Option<Id>) -> ObjectId {
    id.map_or_else(|| ObjectId::null(KIND), |Id(id)| id)
}

impl FromStr for Id {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        Self::from_hex(text.as_bytes()).ok_or(NotAnId)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
