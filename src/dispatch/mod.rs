//! The dispatcher: reads the changes of every pipeline's log and turns them into recorded deliveries.
//!
//! In: Pipelines (spec, labels, status), Notifications, the ConfigMap with the global configuration and the ConfigMaps with templates, by
//! watch. Out: deliveries, recorded through `outbox`; cursors and times in `Pipeline.status.dispatched`, which only the dispatcher writes;
//! `Notification.status`; Events.
//!
//! It shares no memory with the pipeline controller and can run in another process. `follow` receives the objects from the watches, and
//! `config` keeps the settings of notifications.
//!
//! The path of one change: `reconcile` plans the cursors ([`cursor::plan`]). It derives deliveries ([`mod@derive`]), with timers for
//! delayed transitions ([`derive::timers`]), and has them recorded. It advances the cursors ([`cursor::progress`], or [`cursor::aged`] if
//! nothing can be recorded for long), and persists them (`cursor::persist`). What a change means and which notifications want it are pure
//! functions of values.

mod by_uid;
mod config;
mod context;
mod controller;
pub mod cursor;
pub mod derive;
mod follow;
mod reconcile;
mod references;
pub mod status;
mod wake;

pub use context::{Context, Given};
pub use controller::start;
