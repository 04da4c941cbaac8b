//! `pennant explain`: the effective settings of a pipeline's targets, and the layer that set each of them.

use std::io::Write as _;

use clap::{Args, ValueEnum};

use super::shared::Place;
use super::shared::named;
use super::shared::running::{Running, WithSettings};
use crate::preview::{Asked, Known, explain as explain_all, live};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The Pipeline, as `NAME` or `pipeline/NAME`.
    #[arg(value_parser = named::pipeline)]
    pipeline: String,
    /// A notification of the Pipeline, as `NAME` or `notification/NAME` [default: all].
    #[arg(value_parser = named::notification)]
    notification: Option<String>,
    /// One target, as `ENVIRONMENT/CLUSTER/NAMESPACE`, with `/APP` if the target names another application [default: all].
    #[arg(long)]
    target: Option<String>,
    /// The output format.
    #[arg(short, long, default_value = "yaml")]
    output: Output,
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    running: Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The effective notification, with the layer beside each field.
    Yaml,
    /// A list of `{notification, targets, subjects, spec, fields, lastSentTime, lastSent, unobserved, problem, judgedBy}`.
    Json,
}

/// Reads the pipeline, the Notifications of its namespace, the published configuration of the controller and the global configuration. It
/// reads no Secrets.
pub(super) async fn explain(args: ExplainArgs) -> anyhow::Result<()> {
    let ExplainArgs { place, running, .. } = &args;
    let client = place.client().await?;
    let namespace = place.namespace(&client);
    let pipeline = live::pipeline(&client, &namespace, &args.pipeline).await?;
    let settings = running.resolve(Some(&client), &namespace).await?;
    let known = Known {
        notifications: &live::notifications(&client, &namespace).await?,
        global: &settings.global(&client).await?,
        config_map: &settings.config_map(),
        cluster: &settings.cluster_name,
        allow_http: settings.allow_http,
        egress: settings.egress.as_ref(),
    };
    let asked = Asked { notification: args.notification.as_deref(), target: args.target.as_deref() };
    let all = explain_all(&pipeline, &known, asked)?;
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => {
            let list: Vec<_> = all.iter().map(|one| WithSettings { one, judged_by: &settings }).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        }
        Output::Yaml => {
            let texts: Vec<_> = all.iter().map(crate::preview::Explained::text).collect();
            write!(out, "{}{}", settings.line(), texts.join("---\n"))?;
        }
    }
    Ok(out.flush()?)
}
