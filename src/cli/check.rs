//! `relaybook check`: checks an installation, or a cluster before an installation.

use std::io::{self, Write as _};
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::Uri;
use tokio::time::{Instant, sleep};

use crate::app::Access;
use crate::options::Controller;
use crate::options::values::{CONFIG_MAP, grace, own_namespace};
use relaybook_api::values::shard::Sharding;
use relaybook_text::escaped;
use relaybook_tools::check::{Account, Finding, Installation, check as ask, pre};
use relaybook_tools::diagnosis::Level;

/// Interval between checks.
const AGAIN: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Check what must be true before an installation: the version of Kubernetes, the permissions to install, the namespace, CRDs and other
    /// installations.
    #[arg(long, conflicts_with_all = ["service_account", "ready_url"])]
    pre: bool,
    /// The controllers whose permissions are checked.
    #[arg(long, env = "RELAYBOOK_CONTROLLERS", value_delimiter = ',', default_value = "pipeline,dispatch,promote")]
    controllers: Vec<Controller>,
    /// The namespace of the controllers [default: `$POD_NAMESPACE` or relaybook-system].
    // `-n` and `--namespace` are the names that this flag had before.
    #[arg(long, alias = "namespace", short_alias = 'n', env = "RELAYBOOK_CONTROLLER_NAMESPACE", value_name = "NAMESPACE")]
    #[arg(default_value_t = own_namespace(), hide_default_value = true)]
    controller_namespace: String,
    /// The ConfigMap of the global configuration, as in `relaybook run --config-map`.
    #[arg(long, env = "RELAYBOOK_CONFIG_MAP", default_value = CONFIG_MAP, value_name = "NAME")]
    config_map: String,
    /// The watched namespaces, as in `relaybook run --watch-namespace`; can be repeated [default: all].
    #[arg(long, env = "RELAYBOOK_WATCH_NAMESPACE", value_delimiter = ',', value_name = "NS")]
    watch_namespace: Vec<String>,
    /// Do not check the permissions for `PipelineSets`, as in `relaybook run --no-pipeline-sets`.
    #[arg(long, env = "RELAYBOOK_NO_PIPELINE_SETS")]
    no_pipeline_sets: bool,
    /// The shard of the controllers, as in `relaybook run --shard-id`.
    #[arg(long, env = "RELAYBOOK_SHARD_ID", value_name = "ID")]
    shard_id: Option<String>,
    /// Check the permissions of this service account in the namespace of the controllers, not those of the account that runs the
    /// check. Requires the permission to create `subjectaccessreviews`.
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Check also that the controller is ready: its URL, such as `http://relaybook-metrics.relaybook-system:8080/readyz`.
    #[arg(long, value_name = "URL", value_parser = url)]
    ready_url: Option<Uri>,
    /// Repeat the checks until all are passed, for at most this time, such as 30s or 2m [default: check once].
    #[arg(long, value_name = "DURATION", value_parser = grace)]
    wait: Option<Duration>,
    /// The output format.
    #[arg(short, long, default_value = "table")]
    output: Output,
    #[command(flatten)]
    pub(super) access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One line for each check: `ok`, `WARN` or `FAILED`.
    Table,
    /// A list of `{level, what, why, remedy}`. The level is `null`, `Warning` or `Problem`.
    Json,
}

/// Prints the result of each check, and fails if one check fails.
pub(super) async fn check(args: CheckArgs) -> anyhow::Result<()> {
    let installation = Installation {
        pipeline: args.controllers.contains(&Controller::Pipeline),
        dispatch: args.controllers.contains(&Controller::Dispatch),
        promote: args.controllers.contains(&Controller::Promote),
        namespace: args.controller_namespace,
        watch_namespaces: args.watch_namespace,
        config_map: args.config_map,
        no_pipeline_sets: args.no_pipeline_sets,
        sharding: Sharding { id: args.shard_id.unwrap_or_default(), ..Sharding::default() },
    };
    let account = args.service_account.map_or(Account::Own, Account::ServiceAccount);
    let client = args.access.client().await?;
    let end = Instant::now() + args.wait.unwrap_or_default();
    let findings = loop {
        let is_over = Instant::now() + AGAIN > end;
        let server = match client.apiserver_version().await {
            Err(error) if is_over => {
                return Err(anyhow::Error::from(error).context("the version of the API server cannot be read"));
            }
            Err(_) => {
                sleep(AGAIN).await;
                continue;
            }
            Ok(server) => server,
        };
        let findings = if args.pre {
            pre::check(&client, &installation, &server).await
        } else {
            ask(&client, &installation, &account, args.ready_url.as_ref()).await
        };
        if failed(&findings) == 0 || is_over {
            break findings;
        }
        sleep(AGAIN).await;
    };
    print(&findings, args.output)?;
    let (failed, warnings) = (failed(&findings), of(&findings, Level::Warning));
    let warnings = match warnings {
        0 => String::new(),
        1 => ", 1 warning".to_owned(),
        n => format!(", {n} warnings"),
    };
    anyhow::ensure!(failed == 0, "{failed} of {} checks failed{warnings}", findings.len());
    Ok(())
}

/// Returns the number of findings of a level.
fn of(findings: &[Finding], level: Level) -> usize {
    findings.iter().filter(|finding| finding.level == Some(level)).count()
}

fn failed(findings: &[Finding]) -> usize {
    of(findings, Level::Problem)
}

fn print(findings: &[Finding], output: Output) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if output == Output::Json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(findings)?)?);
    }
    for finding in findings {
        let (what, why) = (escaped(&finding.what), escaped(&finding.why));
        match finding.level {
            None => writeln!(out, "ok      {what}")?,
            Some(Level::Warning) => writeln!(out, "WARN    {what}: {why}")?,
            Some(Level::Problem) => writeln!(out, "FAILED  {what}: {why}")?,
        }
        if !finding.remedy.is_empty() {
            writeln!(out, "  do    {}", escaped(&finding.remedy))?;
        }
    }
    Ok(())
}

/// Parses the URL of the readiness endpoint, which has no TLS.
fn url(text: &str) -> Result<Uri, String> {
    let url: Option<Uri> = text.parse().ok();
    let fits = url.filter(|url| url.scheme_str() == Some("http") && url.host().is_some());
    fits.ok_or_else(|| "must be a URL such as http://HOST:PORT/readyz".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: CheckArgs,
    }

    #[test]
    fn before_an_installation_there_is_neither_an_account_nor_a_process() {
        let parsed = |args: &[&str]| Command::try_parse_from(std::iter::once(&"check").chain(args));
        assert!(parsed(&["--pre", "--watch-namespace", "a", "--wait", "1m"]).unwrap().args.pre);
        for bad in [["--service-account", "relaybook"], ["--ready-url", "http://relaybook:8080/readyz"]] {
            assert!(parsed(&bad).is_ok() && parsed(&[&["--pre"][..], &bad].concat()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn readiness_is_asked_over_http() {
        assert!(url("http://relaybook-metrics.relaybook-system:8080/readyz").is_ok());
        for bad in ["https://relaybook/readyz", "relaybook:8080", "/readyz", "", "http://"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
