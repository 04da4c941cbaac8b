//! Application objects of all clusters, which are watched while a pipeline refers to them.
//!
//! In: the objects that pipelines need. Out: the observations of each object, reduced by `observe` on arrival, and wake-ups of the
//! pipelines that need it. There is one `cache` for each kind and cluster. `caches` creates it and a `kind_watcher` keeps it up to date.

pub(super) mod cache;
pub(super) mod caches;
pub(super) mod kind_watcher;
pub(super) mod kinds;
pub(super) mod raw_object;
pub(super) mod similar;
pub(super) mod store;
