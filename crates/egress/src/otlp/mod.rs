//! The export of spans to a collector with OTLP over HTTP.
//!
//! In: spans of Deliveries, from [`telemetry`](relaybook_telemetry). Out: requests with batches of spans, in the background. No Delivery
//! waits for an export: spans that the collector does not accept are dropped and counted.

pub(super) mod collector;
pub(super) mod encode;
pub(super) mod export;
