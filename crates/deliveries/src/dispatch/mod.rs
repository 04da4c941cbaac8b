//! The dispatcher: derives deliveries from the changes of every pipeline's log, and has them recorded. It shares no memory with the pipeline
//! controller and can run in another process.
//!
//! In: Pipelines (spec, labels, status), Notifications, the ConfigMap with the global configuration, and the ConfigMaps with templates, by
//! watch (`follow`). Out: deliveries, recorded through `outbox`; cursors and times in `Pipeline.status.dispatched`, which only the
//! dispatcher writes; `Notification.status`; Events. `config` contains the settings of notifications. `reconcile` plans the cursors
//! ([`cursor::plan`]), derives deliveries ([`mod@derive`]) with timers for delayed transitions ([`derive::timers`]), and has them recorded,
//! within the share of their namespace (`share`).
//! Then it advances the cursors ([`cursor::progress`], or [`cursor::aged`] if nothing can be recorded for long) and persists them
//! (`cursor::persist`). What a change means, and which notifications report it, is decided by pure functions.

mod config;
mod context;
mod controller;
pub mod cursor;
pub mod derive;
mod follow;
mod gone;
mod reconcile;
mod references;
mod share;
pub mod status;
mod subject;
mod test_send;
mod wake;

pub use context::{Context, Given};
pub use controller::start;
