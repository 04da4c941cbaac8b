//! `relaybook check`: checks an installation.

use std::io::{self, Write as _};
use std::time::Duration;

use clap::Args;
use http::Uri;
use tokio::time::{Instant, sleep};

use crate::app::Access;
use crate::options::Controller;
use crate::options::values::{CONFIG_MAP, grace, own_namespace};
use relaybook_api::values::shard::Sharding;
use relaybook_tools::check::{Account, Installation, check as ask};

/// Interval between checks.
const AGAIN: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The controllers whose permissions are checked.
    #[arg(long, env = "RELAYBOOK_CONTROLLERS", value_delimiter = ',', default_value = "pipeline,dispatch,promote")]
    controllers: Vec<Controller>,
    /// The namespace of the controllers [default: `$POD_NAMESPACE` or relaybook-system].
    #[arg(short, long, env = "RELAYBOOK_NAMESPACE", default_value_t = own_namespace(), hide_default_value = true)]
    namespace: String,
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
    #[command(flatten)]
    pub(super) access: Access,
}

/// Prints the result of each check, and fails if one check fails.
pub(super) async fn check(args: CheckArgs) -> anyhow::Result<()> {
    let installation = Installation {
        pipeline: args.controllers.contains(&Controller::Pipeline),
        dispatch: args.controllers.contains(&Controller::Dispatch),
        promote: args.controllers.contains(&Controller::Promote),
        namespace: args.namespace,
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
        match client.apiserver_version().await {
            Err(error) if is_over => {
                return Err(anyhow::Error::from(error).context("the version of the API server cannot be read"));
            }
            Err(_) => {
                sleep(AGAIN).await;
                continue;
            }
            Ok(_) => {}
        }
        let findings = ask(&client, &installation, &account, args.ready_url.as_ref()).await;
        if findings.iter().all(|finding| finding.wrong.is_none()) || is_over {
            break findings;
        }
        sleep(AGAIN).await;
    };
    let mut out = io::stdout().lock();
    for finding in &findings {
        match &finding.wrong {
            None => writeln!(out, "ok      {}", finding.what)?,
            Some(why) => writeln!(out, "FAILED  {}: {why}", finding.what)?,
        }
    }
    let failed = findings.iter().filter(|finding| finding.wrong.is_some()).count();
    anyhow::ensure!(failed == 0, "{failed} of {} checks failed", findings.len());
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
    use super::*;

    #[test]
    fn readiness_is_asked_over_http() {
        assert!(url("http://relaybook-metrics.relaybook-system:8080/readyz").is_ok());
        for bad in ["https://relaybook/readyz", "relaybook:8080", "/readyz", "", "http://"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
