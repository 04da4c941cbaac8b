//! How a value is escaped where it stands.
//!
//! In: what stands before a value in the output ([`context`]). Out: its escape: of JSON, of a URL, or of the markup of a chat room
//! ([`markup`]).

pub(super) mod context;
pub(super) mod markup;
