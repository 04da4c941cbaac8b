//! Log lines on stderr, as text or JSON. Only our own events are written, because libraries log secret values.

use std::fmt;
use std::io::IsTerminal as _;
use std::str::FromStr;

use tracing::{Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use super::TelemetryError;
use super::escape::{JsonLines, TextFields};

/// The log target of the audit: one line at level info for every settled Delivery, independent of the filter.
pub const AUDIT: &str = "audit";

/// The beginning of the targets of our own events: the name of the program, which begins the names of all its crates.
const OURS: &str = "relaybook";

/// The environment variables for the filter. The first one that is set and not empty counts.
const VARIABLES: [&str; 2] = ["RELAYBOOK_LOG", "RUST_LOG"];

/// The directive that is added to the filter of the environment.
const FIXED: &str = "audit=info";

/// Whether an event is our own. Other events are never written, independent of the filter.
///
/// The URL of a receiver can be secret, and so can headers and bodies. Libraries log them:
/// - The certificate verifier logs the host at level `error` when it rejects a certificate.
/// - The HTTP libraries log hosts and the text of headers at `trace`.
/// - The Kubernetes client logs at `warn` an answer that it cannot parse, even a list of Secrets.
///
/// Our modules that call these libraries log the relevant errors in their own words. A list of excluded libraries would miss a new
/// one that an upgrade adds.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let rest = target.split("::").next().and_then(|name| name.strip_prefix(OURS));
    target == AUDIT || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object in each line, for programs.
    Json,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

impl FromStr for Format {
    type Err = TelemetryError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(TelemetryError::Format(word.to_owned())),
        }
    }
}

/// Sends the log events of the whole process to stderr. The program calls it once, at start.
pub fn init(format: Format) -> Result<(), TelemetryError> {
    let filter = filter(|variable| std::env::var(variable).ok())?;
    // An empty NO_COLOR does not count: https://no-color.org
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let colour = std::io::stderr().is_terminal() && !plain;
    // Not `try_init`, because it would also accept what libraries log through the crate `log`.
    let subscriber = subscriber(format, filter, colour, std::io::stderr);
    tracing::subscriber::set_global_default(subscriber).map_err(TelemetryError::AlreadySet)
}

/// Returns the filter of the environment, by default `info`, with the fixed directive added.
fn filter(environment: impl Fn(&str) -> Option<String>) -> Result<EnvFilter, TelemetryError> {
    let asked = VARIABLES.into_iter().find_map(|v| environment(v).filter(|text| !text.is_empty()).map(|text| (v, text)));
    let (variable, text) = asked.unwrap_or(("the default", "info".to_owned()));
    let wrong = |source| TelemetryError::Filter { variable, source };
    let filter = EnvFilter::builder().parse(text).map_err(wrong)?;
    Ok(filter.add_directive(FIXED.parse().map_err(wrong)?))
}

/// Returns a subscriber that writes lines of this format.
fn subscriber<W>(format: Format, filter: EnvFilter, colour: bool, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(writer);
    match format {
        Format::Text => Box::new(builder.fmt_fields(TextFields).finish().with(filter_fn(is_ours))),
        Format::Json => {
            let builder = builder.json().flatten_event(true).with_current_span(false).map_event_format(JsonLines);
            Box::new(builder.finish().with(filter_fn(is_ours)))
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::io::Write;
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the log output for some events with this environment.
    fn printed(format: Format, environment: &[(&str, &str)]) -> String {
        let get = |v: &str| environment.iter().find(|(name, _)| *name == v).map(|(_, text)| (*text).to_owned());
        page(format, filter(get).unwrap(), false, || {
            tracing::info!(target: AUDIT, delivery = "a-b", "settled");
            tracing::info!("hello");
            tracing::debug!("detail");
            tracing::debug!(target: "reqwest::connect", "starting new connection");
            tracing::error!(target: "rustls_platform_verifier::verification::others", "bad connection");
            tracing::warn!(target: "kube_client::client", "unreadable connection");
            let span = tracing::error_span!(target: "hyper_util::client", "connection");
            span.in_scope(|| tracing::error!(target: "relaybookry", "other connection"));
        })
    }

    fn page(format: Format, filter: EnvFilter, colour: bool, events: impl FnOnce()) -> String {
        let page = Page::default();
        let writer = page.clone();
        let subscriber = subscriber(format, filter, colour, move || writer.clone());
        tracing::subscriber::with_default(subscriber, events);
        let bytes = page.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Wrong(String, #[source] std::io::Error);

    /// Logs one event with this value in every place and in every form that a field can have.
    fn say(value: &str) {
        let error = Wrong(value.to_owned(), std::io::Error::other(value.to_owned()));
        let span = tracing::error_span!("span", display = %value, text = value, r#type = ?format_args!("{value}"), later = tracing::field::Empty);
        span.record("later", tracing::field::display(value));
        span.in_scope(|| {
            tracing::info!(target: AUDIT, revision = %value, reason = value, debug = ?format_args!("{value}"),
                error = &error as &dyn std::error::Error, "settled {value}");
        });
    }

    #[test]
    fn a_value_cannot_add_a_line_or_control_the_terminal() {
        let separators = ['\u{2028}', '\u{2029}', '\u{200e}', '\u{200f}', '\u{61c}', '\u{feff}', '\u{e0041}'];
        let directions = ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        let controls = ('\0'..='\u{9f}').filter(|c| c.is_control());
        for c in controls.chain(separators).chain(directions) {
            let value = format!("1{c}2026-01-01T00:00:00Z  INFO audit: settled delivery=b");
            for format in [Format::Text, Format::Json] {
                let text = page(format, filter(|_| None).unwrap(), false, || say(&value));
                let line = text.strip_suffix('\n').unwrap();
                let found = line.chars().find(|found| found.is_control() || *found == c);
                assert_eq!(found, None, "{format} {c:?}: {line:?}");
                if format == Format::Json {
                    let line: serde_json::Value = serde_json::from_str(line).unwrap();
                    assert_eq!((&line["revision"], &line["reason"]), (&value.clone().into(), &value.clone().into()));
                }
            }
            let colours = page(Format::Text, filter(|_| None).unwrap(), true, || say(&value));
            assert_eq!(colours.lines().count(), 1, "{c:?}: {colours:?}");
            assert!(!colours.contains(&value), "{c:?}: {colours:?}");
        }
    }

    #[test]
    fn safe_text_is_written_unchanged() {
        let text = page(Format::Text, filter(|_| None).unwrap(), false, || say("v1 \"ü\" \u{1F600} \\"));
        for part in [
            "span{display=v1 \"ü\" \u{1F600} \\ text=\"v1 \\\"ü\\\" \u{1F600} \\\\\" type=v1 ",
            " later=v1 \"ü\"",
            "audit: settled v1 \"ü\" \u{1F600} \\ revision=v1 \"ü\" \u{1F600} \\ reason=\"v1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_environment_sets_the_level() {
        for (environment, hello, detail) in [
            (&[][..], true, false),
            (&[("RUST_LOG", "debug")][..], true, true),
            (&[("RUST_LOG", "debug"), ("RELAYBOOK_LOG", "warn")][..], false, false),
            (&[("RUST_LOG", "warn"), ("RELAYBOOK_LOG", "")][..], false, false),
            (&[("RELAYBOOK_LOG", "off,audit=off")][..], false, false),
            (&[("RELAYBOOK_LOG", "trace,reqwest=trace,rustls_platform_verifier::verification=trace")][..], true, true),
            (&[("RELAYBOOK_LOG", "trace,kube_client=trace,[connection]=trace,relaybookry=trace")][..], true, true),
        ] {
            let text = printed(Format::Text, environment);
            assert_eq!((text.contains("hello"), text.contains("detail")), (hello, detail), "{environment:?}");
            assert!(text.contains("settled"), "the audit is always on: {environment:?}");
            assert!(!text.contains("connection"), "events of libraries are not written: {environment:?}");
        }
    }

    #[test]
    fn json_has_one_object_in_each_line() {
        let text = printed(Format::Json, &[]);
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["target"], &lines[0]["delivery"]), (&"audit".into(), &"a-b".into()));
    }

    #[test]
    fn an_invalid_filter_is_an_error_that_names_the_variable() {
        let error = filter(|v| (v == "RUST_LOG").then(|| "relaybook=loud".to_owned())).unwrap_err();
        assert!(error.to_string().contains("RUST_LOG"), "{error}");
    }

    #[test]
    fn formats_have_names() {
        for format in [Format::Text, Format::Json] {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        assert!("xml".parse::<Format>().is_err());
    }
}
