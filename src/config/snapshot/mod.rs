//! What every notification means for every pipeline. Values only.

mod layered;

pub use layered::{Applied, Based, Everywhere, Layered, Overridden};
