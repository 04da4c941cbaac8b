//! The dispatcher: takes the changes of every pipeline's log and turns them into recorded deliveries.
//!
//! In: Pipelines (spec, labels, status), Notifications, the ConfigMap with the global configuration and those that hold templates,
//! by watch. Out: deliveries, recorded through `outbox`; cursors and times in `Pipeline.status.dispatched`, which it alone
//! writes; `Notification.status`; Events.
//!
//! It shares no memory with the pipeline controller and could run in another process. `follow` takes the objects as the watches bring them,
//! and `config` keeps what notifications mean. The way of one change: `reconcile` plans the cursors ([`cursor::plan`]), derives deliveries ([`mod@derive`]), with the timers of those that must hold for a time ([`derive::timers`]), has
//! them recorded, moves the cursors ([`cursor::progress`], or [`cursor::aged`] where nothing can be recorded for long), and persists them
//! (`cursor::persist`). What a change means and who wants it are pure functions of values.

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
