//! The dispatcher: takes the changes of every pipeline's log and turns them into recorded deliveries.
//!
//! In: Pipelines (spec, labels, status), Notifications, the ConfigMap with the global configuration and those that hold templates,
//! by watch. Out: deliveries, recorded through `delivery`; cursors and times in `Pipeline.status.dispatched`, which it alone
//! writes; `Notification.status`; Events.
//!
//! It shares no memory with the pipeline controller and could run in another process. The way of one change: `pass` plans the
//! cursors ([`cursors`]), derives deliveries ([`mod@derive`]), with the clocks of those that must hold for a time ([`clocks`]), has
//! them recorded, moves the cursors ([`progress`], or [`aged`] where nothing can be recorded for long), and persists them (`persist`). What a change means and who wants it are pure
//! functions of values.

pub mod aged;
mod by_uid;
pub mod clocks;
mod config_maps;
mod context;
pub mod cursors;
pub mod derive;
pub mod figures;
mod folding;
mod follow;
pub mod given_up;
mod globals;
mod last_good;
mod layers;
mod notifications;
mod pass;
mod persist;
mod pipelines;
pub mod progress;
mod refused;
mod run;
pub mod sent;
mod standing;
pub mod subjects;
mod troubles;
mod turns;
mod understood;

pub use context::{Context, Given};
pub use run::start;
