//! `relaybook run`: runs the controllers.

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::app;
use crate::options::values::variable;
use crate::options::{Controller, Options, Tracing};

/// The only variable of OpenTelemetry that Relaybook reads, and only if tracing is enabled. Other users can see arguments, so credentials
/// must not be in them.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Runs until SIGTERM or SIGINT.
pub(super) fn run(mut options: Options) -> anyhow::Result<()> {
    check(&options)?;
    relaybook_telemetry::logging::init(options.log_format)?;
    allow_open_files();
    read_headers(&mut options.tracing, variable)?;
    if let Some(file) = &options.page.key_file {
        let key = std::fs::read_to_string(file);
        let key = key.map_err(|e| anyhow::anyhow!("--page-key-file {}: {e}", file.display()))?;
        options.page.key = Some(key.into());
    }
    let threads = |name: &str| Builder::new_multi_thread().thread_name(name).enable_all().build();
    // Answers of receivers are read in a separate runtime, so that they never block the threads that call the API server.
    let sending = threads("sending")?;
    // Data from remote clusters is read in another separate runtime, for the same reason.
    let remote = threads("remote")?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(app::run(options, sending.handle().clone(), remote.handle().clone()));
    [sending, remote].into_iter().for_each(Runtime::shutdown_background);
    Ok(ended?)
}

/// Checks what the parser of arguments cannot.
fn check(options: &Options) -> anyhow::Result<()> {
    let Options { namespace, watch_namespaces, .. } = options;
    let follows = !options.follow.is_empty();
    anyhow::ensure!(
        options.hooks_addr.is_none() || options.runs(Controller::Promote),
        "--hooks-addr requires the controller promote; add it to --controllers"
    );
    anyhow::ensure!(
        !follows || options.runs(Controller::Pipeline),
        "--follow requires the controller pipeline; add it to --controllers"
    );
    anyhow::ensure!(
        !follows || !options.no_cross_namespace_refs,
        "--follow selects objects in all namespaces, which --no-cross-namespace-refs forbids; remove one of them"
    );
    anyhow::ensure!(
        !follows || options.shard_id.is_none(),
        "--follow makes sets for all shards; give it to the process without --shard-id"
    );
    anyhow::ensure!(
        !follows || watch_namespaces.is_empty() || watch_namespaces.contains(namespace),
        "--follow makes sets in the namespace {namespace}, which is not watched; add it to --watch-namespace"
    );
    Ok(())
}

/// Adds the headers for the collector from the environment.
fn read_headers(tracing: &mut Tracing, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
    tracing.collector = match (tracing.collector.take(), variable(HEADERS)) {
        (Some(collector), Some(headers)) => Some(collector.with_headers(headers).context(HEADERS)?),
        (collector, _) => collector,
    };
    Ok(())
}

/// Raises the number of files that the process can open to what the system allows. Many systems start a process with 1,024, and each
/// connection is a file: clients of one port must not use up those that deliveries need.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Without it, the process has the limit with which it was started.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        tracing: Tracing,
    }

    fn read(args: &[&str], headers: Option<&str>) -> anyhow::Result<Tracing> {
        let Line { mut tracing } = Line::try_parse_from(std::iter::once(&"x").chain(args))?;
        read_headers(&mut tracing, |name| (name == HEADERS).then_some(headers).flatten().map(str::to_owned))?;
        Ok(tracing)
    }

    #[test]
    fn tracing_is_off_without_an_endpoint() {
        for args in [&[][..], &["--tracing-sample", "0.5"]] {
            assert!(read(args, Some("what=ever,is not read")).unwrap().collector.is_none(), "{args:?}");
        }
        let tracing = read(&["--tracing-endpoint", "http://collector:4318"], None).unwrap();
        assert_eq!(tracing.collector.unwrap().to_string(), "collector:4318");
        assert_eq!(tracing.sample, "1".parse().unwrap());
    }

    #[test]
    fn no_error_about_tracing_options_shows_a_secret() {
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
