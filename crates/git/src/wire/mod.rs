//! What is said with a Git server: smart HTTP, with version 2 of the protocol to read and version 0 to push
//! (<https://git-scm.com/docs/gitprotocol-http>).
//!
//! In: a [`transport`] that sends requests, and what is wanted: ids of branches ([`remote`]), a pack ([`fetch`]), or another value of a branch
//! ([`push`]). Out: refs, the bytes of a pack, or the report of the server ([`report`]). All answers consist of packet lines ([`lines`]), and
//! are read within the bounds of `limits`.

pub(crate) mod fetch;
pub(crate) mod lines;
pub(crate) mod push;
pub(crate) mod remote;
pub(crate) mod report;
pub(crate) mod transport;
