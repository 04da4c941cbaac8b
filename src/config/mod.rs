//! What a Notification means once it is understood.
//!
//! In: the resources as users wrote them. Out: [`EffectiveNotification`], in which the URL is parsed, the templates are
//! compiled and tried, the durations are durations, and every default is filled in; or a [`Problem`] that names the field and
//! the remedy. Pure: what it needs from the cluster is given to it.
//!
//! An effective notification has two halves, for they fail apart. What decides whether a change is *recorded* (selector and
//! triggers) is [`Intake`]; what decides how a recorded delivery is *sent* is [`Sending`]. A broken template must not lose a
//! transition: it is recorded, waits with the reason, and goes when the template is mended.

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

pub use crate::api::values::nearest::nearest;
pub use effective::{EffectiveNotification, Intake, flatten, resolve, resolve_layers};
pub use global::{Edited, Global};
pub use problem::{Missing, Problem};
pub use resolve::delivering::{Delivering, Rate, Retain, Retry};
pub use resolve::given::{Given, Text};
pub use resolve::sending::{Address, Destination, Rendered, Sending};
pub use resolve::template::config_maps;
pub use resolve::trust::is_secret;
pub use selector::{PipelineSelector, SelectorError};
