//! Values that stand in the custom resources and that all rooms share.
//!
//! In: texts as people write them. Out: durations, references, addresses, times; what is most likely meant by a misspelt name.

pub mod address;
pub(super) mod clock;
pub(super) mod duration;
pub mod nearest;
pub mod refs;
pub mod transition;
