//! `pennant render`: what would be sent.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kube::ResourceExt;
use url::Url;

use super::files::read;
use crate::api::refs::ConfigMapKey;
use crate::api::{Notification, Pipeline, TransitionType};
use crate::config::{Given, Text};
use crate::preview::{Manifests, Preview, live, post, previews};
use crate::render::Scene;

#[derive(Debug, Args)]
pub(super) struct RenderArgs {
    /// The Notification; without a file it is read from the cluster.
    #[arg(value_name = "NAME", required_unless_present = "files")]
    name: Option<String>,
    /// A file with Notifications, and ConfigMaps that hold their templates; `-` is stdin; may be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A Pipeline of the cluster to speak of; without one, of a sample.
    #[arg(long)]
    pipeline: Option<String>,
    /// A target of that pipeline, as `ENVIRONMENT/CLUSTER/NAMESPACE` [default: its first].
    #[arg(long, requires = "pipeline")]
    target: Option<String>,
    /// The transition; may be repeated [default: those that the Notification reports].
    #[arg(long = "trigger", value_parser = transition, value_delimiter = ',')]
    triggers: Vec<TransitionType>,
    /// Send it to this URL, a receiver of your own, without credentials.
    #[arg(long, value_name = "URL", value_parser = receiver)]
    send_to: Option<Url>,
    /// How it is printed.
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// The namespace of the Notification and the Pipeline [default: that of the kubeconfig; `default` for files
    /// without a pipeline].
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
    /// Request line, headers, and the body with JSON pretty-printed.
    Text,
    /// A list of `{notification, trigger, method, url, headers, body}`.
    Json,
}

fn transition(text: &str) -> Result<TransitionType, String> {
    let found = TransitionType::ALL.into_iter().find(|type_| type_.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("there are {}", TransitionType::ALL.map(TransitionType::as_str).join(", ")))
}

fn receiver(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| e.to_string())?;
    if matches!(url.scheme(), "http" | "https") { Ok(url) } else { Err("must begin with http:// or https://".to_owned()) }
}

/// Shows, and sends where that is asked for. The error of what a receiver of one's own refuses is told at the end.
pub(super) async fn render(args: RenderArgs) -> anyhow::Result<()> {
    let (mut notifications, mut texts) = notifications(&args).await?;
    let pipeline = pipeline(&args, notifications.first()).await?;
    if let Some(pipeline) = &pipeline {
        for notification in &mut notifications {
            *notification = live::layered(notification, pipeline, args.target.as_deref(), &args.cluster_name)?;
        }
        // The layers may refer to ConfigMaps of their own, which are in the cluster as the pipeline is.
        let layered = live::texts(&client(&args).await?, &notifications).await?;
        for (key, text) in layered {
            texts.entry(key).or_insert(text);
        }
    }
    let given = Given { allow_http: args.allow_http, text: &|key| texts.get(key).cloned().unwrap_or(Text::NoConfigMap) };
    let mut all = Vec::new();
    for notification in &notifications {
        let scene = match &pipeline {
            Some(pipeline) => live::scene(pipeline, args.target.as_deref(), &args.cluster_name, notification)?,
            None => Scene::sample((notification.name_any(), notification.namespace().unwrap_or_default())),
        };
        all.extend(previews(notification, &args.triggers, &given, &scene)?);
    }
    anyhow::ensure!(!all.is_empty(), "nothing is reported: the Notification has no triggers; name one with --trigger");
    print(&all, args.output)?;
    match &args.send_to {
        Some(url) => send(&all, url).await,
        None => Ok(()),
    }
}

type Texts = HashMap<ConfigMapKey, Text>;

/// The Notifications, and what the ConfigMaps hold that they refer to: out of the files, or out of the cluster.
async fn notifications(args: &RenderArgs) -> anyhow::Result<(Vec<Notification>, Texts)> {
    if let (Some(name), []) = (&args.name, args.files.as_slice()) {
        let client = client(args).await?;
        let notification = live::notification(&client, &namespace(args, Some(&client)), name).await?;
        let texts = live::texts(&client, std::slice::from_ref(&notification)).await?;
        return Ok((vec![notification], texts));
    }
    // Without a pipeline no cluster is asked for anything, not even its namespace.
    let client = if args.pipeline.is_some() { Some(client(args).await?) } else { None };
    let mut manifests = Manifests::default();
    for file in &args.files {
        manifests.add(&file.display().to_string(), &read(file)?, &namespace(args, client.as_ref()))?;
    }
    let notifications: Vec<_> = manifests.named(args.name.as_deref())?.into_iter().cloned().collect();
    let texts = manifests.texts(&notifications);
    for (key, _) in texts.iter().filter(|(_, text)| **text == Text::NoConfigMap) {
        writeln!(std::io::stderr(), "pennant: ConfigMap {} is not among the files; add its manifest with -f", key.object())?;
    }
    Ok((notifications, texts))
}

/// The pipeline to speak of, in the namespace of the Notification.
async fn pipeline(args: &RenderArgs, notification: Option<&Notification>) -> anyhow::Result<Option<Pipeline>> {
    let Some(name) = &args.pipeline else { return Ok(None) };
    let client = client(args).await?;
    let namespace = match notification.and_then(ResourceExt::namespace) {
        Some(namespace) if args.namespace.is_none() => namespace,
        _ => namespace(args, Some(&client)),
    };
    Ok(Some(live::pipeline(&client, &namespace, name).await?))
}

async fn client(args: &RenderArgs) -> anyhow::Result<kube::Client> {
    Ok(crate::app::client(args.context.as_deref()).await?)
}

fn namespace(args: &RenderArgs, client: Option<&kube::Client>) -> String {
    let given = args.namespace.clone();
    given.unwrap_or_else(|| client.map_or("default", |client| client.default_namespace()).to_owned())
}

fn print(all: &[Preview], output: Output) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(all)?)?,
        Output::Text => {
            for (index, preview) in all.iter().enumerate() {
                let gap = if index == 0 { "" } else { "\n" };
                write!(out, "{gap}# {}: {}\n{}", preview.notification, preview.trigger.as_str(), preview.text())?;
            }
        }
    }
    Ok(out.flush()?)
}

async fn send(all: &[Preview], url: &Url) -> anyhow::Result<()> {
    let mut refused = 0;
    for preview in all {
        let posted = post(preview, url).await?;
        refused += usize::from(!posted.accepted);
        writeln!(std::io::stderr(), "{} {}: {}", preview.notification, preview.trigger.as_str(), posted.words)?;
    }
    anyhow::ensure!(refused == 0, "{refused} of {} were not accepted", all.len());
    Ok(())
}
