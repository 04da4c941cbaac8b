//! Pure: the objects of a repository.
//!
//! In: the bytes of a [`pack`], which the server can have chosen. Out: objects by the ids that are computed from their content, commits
//! ([`found`]), trees with checked names ([`tree`]), and the files below paths ([`walk`]). A pack can also be written.

pub(crate) mod found;
pub(crate) mod pack;
pub(crate) mod tree;
pub(crate) mod walk;
