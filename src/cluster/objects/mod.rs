//! Application objects of all clusters: watched while some pipeline refers to them.
//!
//! In: which objects pipelines want to know about. Out: what each says, reduced by `observe` as it arrives, and wake-ups for those who
//! wanted it. One `cache` a kind and cluster, made by `caches` and kept right by a `kind_watcher`.

pub(super) mod cache;
pub(super) mod caches;
pub(super) mod kind_watcher;
pub(super) mod kinds;
pub(super) mod raw_object;
pub(super) mod similar;
pub(super) mod store;
