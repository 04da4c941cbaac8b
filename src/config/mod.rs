//! What a Notification means once it is understood.
//!
//! In: the resources as users wrote them. Out: [`EffectiveNotification`], in which the URL is parsed, the templates are
//! compiled and tried, the durations are durations, and every default is filled in; or a [`Problem`] that names the field and
//! the remedy. Pure: what it needs from the cluster is given to it.
//!
//! An effective notification has two halves, for they fail apart. What decides whether a change is *recorded* (selector and
//! triggers) is [`Intake`]; what decides how a recorded delivery is *sent* is [`Sending`]. A broken template must not lose a
//! transition: it is recorded, waits with the reason, and goes when the template is mended.

mod defaults;
mod delivering;
pub mod effective;
mod given;
pub mod global;
pub mod layers;
mod problem;
#[cfg(test)]
mod properties;
mod rules;
mod selector;
mod sending;
pub mod snapshot;
mod template;
#[cfg(test)]
mod tests;
mod trust;

pub use crate::api::values::nearest::nearest;
pub use delivering::{Delivering, Rate, Retain, Retry};
pub use effective::{EffectiveNotification, Intake, flatten, resolve, resolve_layers};
pub use given::{Given, Text};
pub use global::{Edited, Global};
pub use problem::{Missing, Problem};
pub use selector::{PipelineSelector, SelectorError};
pub use sending::{Address, Destination, Rendered, Sending};
pub use template::config_maps;
pub use trust::is_secret;
