//! The effective notifications of all pipelines. They are updated when Notifications, ConfigMaps, layers or the global configuration
//! change.
//!
//! In: those objects, from the watches. Out: the [snapshot](relaybook_settings::config::snapshot) in the outbox, and [what each change
//! affects](changed::Changed). The [`configuration`] contains the objects. `results` contains what was compiled, with its `sources`. If they
//! differ from those in the `state`, it is compiled again. `layer_job` compiles the layers of a pipeline in the `background`, within the
//! [`budget`] of its namespace.

pub(super) mod background;
pub(super) mod budget;
pub(super) mod changed;
pub(super) mod config_maps;
pub(super) mod configuration;
mod edits;
pub(super) mod last_good;
pub(super) mod layer_job;
mod results;
mod sources;
mod state;
#[cfg(test)]
mod tests;
