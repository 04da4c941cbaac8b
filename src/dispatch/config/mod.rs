//! What every notification means for every pipeline, kept right as Notifications, ConfigMaps, layers and the global configuration change.
//!
//! In: those objects, as the watches bring them. Out: effective notifications in the [index](crate::outbox::Directory) of the outbox, and
//! which pipelines, notifications and lanes are to be looked at again.

pub(super) mod budget;
pub(super) mod config_maps;
pub(super) mod folding;
pub(super) mod globals;
pub(super) mod last_good;
pub(super) mod layers;
pub(super) mod understood;
