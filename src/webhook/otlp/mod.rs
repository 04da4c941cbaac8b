//! Spans on their way to a collector that speaks OTLP over HTTP.
//!
//! In: spans of deliveries, from [`telemetry`](crate::telemetry). Out: batches of them in requests, in the background. No delivery waits for
//! it: what the collector does not take is dropped and counted.

pub(super) mod collector;
pub(super) mod encode;
pub(super) mod export;
