//! Resolves Notifications and layers into effective notifications.
//!
//! In: the resources as users wrote them. Out: [`EffectiveNotification`], with a parsed URL, compiled and tried templates, parsed
//! durations, and all defaults; or a [`Problem`] that names the field and the remedy. Pure: the caller provides what it needs from the
//! cluster.
//!
//! An effective notification has two halves, because they fail separately. [`Intake`] decides whether a change is *recorded* (selector
//! and triggers). [`Sending`] decides how a recorded delivery is *sent*. A broken template must not lose a transition: it is recorded,
//! waits with the reason, and is sent when the template is fixed.

pub mod effective;
pub mod global;
pub mod layers;
mod problem;
#[cfg(test)]
mod properties;
mod resolve;
mod selector;
pub mod snapshot;
#[cfg(test)]
mod tests;

pub use effective::{EffectiveNotification, Intake, flatten, resolve, resolve_layers};
pub use global::{Edited, Global};
pub use problem::{Missing, Problem};
pub use relaybook_api::values::nearest::nearest;
pub use resolve::delivering::{Delivering, Rate, Retain, Retry};
pub use resolve::find::{Find, Lookup, Parent};
pub use resolve::given::{Given, Text};
pub use resolve::marking::Marking;
pub use resolve::path::note as url_note;
pub use resolve::rendered::{Address, Rendered, RenderedLater};
pub use resolve::sending::{Destination, LOOK_UP, Sending};
pub use resolve::template::config_maps;
pub use resolve::thread::{NewPath, Thread};
pub use resolve::trust::is_secret;
pub use selector::{PipelineSelector, SelectorError};
