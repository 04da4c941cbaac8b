//! The arguments and variables that configure tracing.

use anyhow::Context as _;
use clap::Args;

use super::unseen::Unseen;
use crate::app::{Collector, Tracing};
use relaybook_telemetry::Sample;

/// The only variable of OpenTelemetry that Relaybook reads, and only if tracing is enabled. Other users can see arguments, so credentials
/// must not be in them.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// A user can put a password into this URL by mistake, so errors must not repeat it.
const COLLECTOR: Unseen<Collector> = Unseen::of("--tracing-endpoint (or RELAYBOOK_TRACING_ENDPOINT)");

#[derive(Debug, Args)]
pub(super) struct TracingArgs {
    /// Send spans to this collector by OTLP over HTTP, and `traceparent` to receivers. `/v1/traces` is appended to the path. Headers
    /// are read from `OTEL_EXPORTER_OTLP_HEADERS`; no other `OTEL_` variable is read [default: no tracing].
    #[arg(long, env = "RELAYBOOK_TRACING_ENDPOINT", hide_env_values = true, value_name = "URL", value_parser = COLLECTOR)]
    tracing_endpoint: Option<Collector>,
    /// The share of changes that are traced: a number from 0 to 1.
    #[arg(long, env = "RELAYBOOK_TRACING_SAMPLE", default_value = "1", value_name = "RATIO")]
    tracing_sample: Sample,
}

impl TracingArgs {
    /// Adds the headers for the collector from the environment.
    pub(super) fn read(self, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Tracing>> {
        let Some(mut collector) = self.tracing_endpoint else { return Ok(None) };
        if let Some(headers) = variable(HEADERS) {
            collector = collector.with_headers(headers).context(HEADERS)?;
        }
        Ok(Some(Tracing { collector, sample: self.tracing_sample }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        tracing: TracingArgs,
    }

    fn read(args: &[&str], headers: Option<&str>) -> anyhow::Result<Option<Tracing>> {
        let line = Line::try_parse_from(std::iter::once(&"x").chain(args))?;
        line.tracing.read(|name| (name == HEADERS).then_some(headers).flatten().map(str::to_owned))
    }

    #[test]
    fn nothing_is_traced_unless_somebody_says_where() {
        for args in [&[][..], &["--tracing-sample", "0.5"]] {
            assert!(read(args, Some("what=ever,is not read")).unwrap().is_none(), "{args:?}");
        }
        let tracing = read(&["--tracing-endpoint", "http://collector:4318"], None).unwrap().unwrap();
        assert_eq!((tracing.collector.to_string().as_str(), tracing.sample), ("collector:4318", "1".parse().unwrap()));
    }

    #[test]
    fn no_complaint_shows_what_may_be_secret() {
        let at = "--tracing-endpoint";
        for (args, headers, word) in [
            (&[at, "http://someone:sesame@collector"][..], None, "--tracing-endpoint"),
            (&[at, "sesame"], None, "is not a URL"),
            (&[at, "http://collector:4318"], Some("open sesame"), "OTEL_EXPORTER_OTLP_HEADERS"),
            (&["--tracing-sample", "2"], None, "--tracing-sample"),
        ] {
            let error = read(args, headers).unwrap_err();
            let text = format!("{error:#} {error:?}");
            assert!(text.contains(word) && !text.contains("sesame"), "{text}");
        }
        let tracing = read(&[at, "http://collector:4318"], Some("authorization=sesame")).unwrap();
        assert!(!format!("{tracing:?}").contains("sesame"), "{tracing:?}");
    }
}
