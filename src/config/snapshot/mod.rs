//! What every notification means for every pipeline. Values only.

mod layered;
#[expect(clippy::module_inception, reason = "the snapshot is what the folder is about")]
mod snapshot;

pub use layered::{Applied, Based, Everywhere, Layered, Overridden};
pub use snapshot::Snapshot;
