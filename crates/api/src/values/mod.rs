//! Values of the custom resources that all modules share.
//!
//! In: texts as users write them. Out: kinds, durations, delays after failures, references, addresses of receivers and of Git repositories,
//! times, and parts of generated names. Of a revision: its commit, its short hashes, and whether it is whole. Also whether a Secret has keys
//! for hooks, whether configurations differ, and what a forge says about a commit. Of names: the known one closest to a misspelled one, and the
//! shard of an object.

pub mod address;
pub(super) mod backoff;
pub(super) mod clock;
pub mod commit;
pub mod configuration;
pub(super) mod duration;
pub mod git;
pub mod hook_keys;
pub mod kind;
pub mod looked_up;
pub mod names;
pub mod nearest;
pub mod permalink;
pub mod redirect;
pub mod refs;
pub mod repository;
pub mod revision;
pub mod shard;
pub mod status;
pub mod subject;
pub mod transition;
