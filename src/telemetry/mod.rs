//! What the process says of itself: log lines, metrics and spans.
//!
//! In: nothing of ours; every room may import this one. Log events come through `tracing`, numbers through the typed methods
//! of [`Metrics`], spans through a [`Tracer`].
//! Out: text or JSON lines on stderr ([`logging`]), `OpenMetrics` text ([`Metrics::encode`]), which [`crate::http`] serves, and a
//! queue of spans, which [`crate::webhook`] exports.
//!
//! The target `audit` ([`logging::AUDIT`]) is always on: it carries one line for every settled delivery.
//! Labels come from closed sets (enums), so that the number of series is known when the program is written; but for one family,
//! which is bounded (`by_notification`).

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
pub use escape::escaped;
pub use metrics::Metrics;
pub use spans::{Sample, Span, SpanId, Trace};
pub use tracer::Tracer;

/// What can go wrong when telemetry is set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `PENNANT_LOG` or `RUST_LOG` is not a filter as `tracing-subscriber` reads them.
    #[error("{variable} is not a log filter such as info or pennant=debug,warn")]
    Filter {
        /// The environment variable.
        variable: &'static str,
        /// What the parser says.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// Logging was set up before.
    #[error("logging is already set up")]
    AlreadySet(#[source] tracing::subscriber::SetGlobalDefaultError),
    /// The name of a log format is unknown.
    #[error("unknown log format {0:?}: text or json")]
    Format(String),
    /// Not a part of a whole.
    #[error("a number from 0 (no trace) to 1 (every trace)")]
    Sample,
}
