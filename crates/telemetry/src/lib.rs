//! The telemetry of the process: log lines, metrics and spans.
//!
//! In: nothing from other modules; every module can import this one. Log events arrive through `tracing`, numbers through the typed
//! methods of [`Metrics`], spans through a [`Tracer`].
//! Out: text or JSON lines on stderr ([`logging`]), `OpenMetrics` text ([`Metrics::encode`]), which the program serves, and a
//! queue of spans, which `relaybook_egress` exports.
//!
//! The log target `audit` ([`logging::AUDIT`]) is always on: it has one line for every settled Delivery.
//! Label values come from closed sets: enums, and words of the API, which callers have as enums. So the number of series is known at compile
//! time. The only exception is `by_notification`, which limits its number of series.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

pub mod api_error;
mod by_notification;
mod chain;
mod escape;
pub mod labels;
pub mod logging;
pub mod metrics;
pub mod spans;
mod tracer;

pub use chain::chain;
pub use metrics::Metrics;
pub use spans::{Sample, Span, SpanId, Trace};
pub use tracer::Tracer;

/// Errors of the telemetry setup.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `RELAYBOOK_LOG` or `RUST_LOG` is not a valid filter of `tracing-subscriber`.
    #[error("{variable} is not a valid log filter; set it to a filter such as info or relaybook=debug,warn")]
    Filter {
        /// The environment variable.
        variable: &'static str,
        /// The error of the parser.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// Logging is already set up.
    #[error("logging is already set up")]
    AlreadySet(#[source] tracing::subscriber::SetGlobalDefaultError),
    /// The name of a log format is unknown.
    #[error("unknown log format {0:?}: use text or json")]
    Format(String),
    /// The sample ratio is not a number from 0 to 1.
    #[error("use a number from 0 (no trace) to 1 (every trace)")]
    Sample,
}
