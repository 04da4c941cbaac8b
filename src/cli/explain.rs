//! `pennant explain`: what holds for a pipeline's targets, and who said so.

use std::io::Write as _;

use clap::{Args, ValueEnum};

use crate::preview::{explain as explain_all, live};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The Pipeline.
    pipeline: String,
    /// One notification of it [default: all].
    notification: Option<String>,
    /// One target, as `ENVIRONMENT/CLUSTER/NAMESPACE`, with `/APP` where the target names another [default: all].
    #[arg(long)]
    target: Option<String>,
    /// How it is printed.
    #[arg(short, long, default_value = "yaml")]
    output: Output,
    /// The namespace of the Pipeline [default: that of the kubeconfig].
    #[arg(short, long)]
    namespace: Option<String>,
    /// What the local cluster is called in the names of targets.
    #[arg(long, env = "PENNANT_CLUSTER_NAME", default_value = "in-cluster")]
    cluster_name: String,
    /// Allow http to any host, as `pennant run --allow-http` does.
    #[arg(long, env = "PENNANT_ALLOW_HTTP")]
    allow_http: bool,
    /// The context of the kubeconfig to use.
    #[arg(long, env = "PENNANT_CONTEXT")]
    context: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The effective notification, with the layer beside each field.
    Yaml,
    /// A list of `{notification, targets, spec, fields, problem}`.
    Json,
}

/// Reads the pipeline and the Notifications of its namespace, and nothing else: no Secrets.
pub(super) async fn explain(args: ExplainArgs) -> anyhow::Result<()> {
    let client = crate::app::client(args.context.as_deref()).await?;
    let namespace = args.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let pipeline = live::pipeline(&client, &namespace, &args.pipeline).await?;
    let notifications = live::notifications(&client, &namespace).await?;
    let (name, target) = (args.notification.as_deref(), args.target.as_deref());
    let all = explain_all(&pipeline, &notifications, name, target, &args.cluster_name, args.allow_http)?;
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?,
        Output::Yaml => {
            let texts: Vec<_> = all.iter().map(crate::preview::Explained::text).collect();
            write!(out, "{}", texts.join("---\n"))?;
        }
    }
    Ok(out.flush()?)
}
