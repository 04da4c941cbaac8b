//! `relaybook render`: shows the requests that a Notification would send.

use std::collections::{BTreeSet, HashMap};
use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kube::{Client, ResourceExt};
use url::Url;

use super::complete;
use super::shared::Place;
use super::shared::files::read;
use super::shared::named;
use super::shared::running::{Running, Settings, WithSettings};
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_api::{Notification, ObjectName, Pipeline, TransitionType};
use relaybook_settings::config::{Given, Global, Text};
use relaybook_settings::render::SampleContext;
use relaybook_tools::preview::{ExampleAnswer, LayeredNotification, Manifests, Preview, PreviewError, live, post, previews};

#[derive(Debug, Args)]
pub(super) struct RenderArgs {
    /// The notification, as `NAME` or `notification/NAME`. Without a file it is read from the cluster. A notification that is not
    /// a Notification object requires --pipeline.
    #[arg(value_name = "NAME", required_unless_present = "files", value_parser = named::notification, add = complete::notifications())]
    name: Option<String>,
    /// A file with Notifications, and with the ConfigMaps of their templates; `-` is stdin; can be repeated. Without --pipeline no
    /// cluster is used, and objects without a namespace are in `default`.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A Pipeline of the cluster that supplies the data [default: sample data].
    #[arg(long, value_parser = named::pipeline, add = complete::pipelines())]
    pipeline: Option<String>,
    /// A target of that pipeline, as `ENVIRONMENT/CLUSTER/NAMESPACE` [default: the first target].
    #[arg(long, requires = "pipeline")]
    target: Option<String>,
    /// The transition; can be repeated [default: the transitions that the Notification reports].
    #[arg(long = "trigger", value_parser = transition, value_delimiter = ',')]
    triggers: Vec<TransitionType>,
    /// Send the request to this URL, your own receiver, without credentials.
    #[arg(long, value_name = "URL", value_parser = receiver)]
    send_to: Option<Url>,
    /// Show what this answer of the receiver would mean. The file contains a body, or the output of `curl -i`; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    answer: Option<PathBuf>,
    /// The output format.
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    running: Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Request line, headers, and the body with JSON pretty-printed.
    Text,
    /// A list of `{notification, trigger, method, url, headers, headersFrom, body, answer, judgedBy}`.
    Json,
}

fn transition(text: &str) -> Result<TransitionType, String> {
    let found = TransitionType::ALL.into_iter().find(|type_| type_.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("allowed values: {}", TransitionType::ALL.map(TransitionType::as_str).join(", ")))
}

fn receiver(text: &str) -> Result<Url, String> {
    let problem = || {
        let remedy = if text.contains("://") { String::new() } else { format!(", such as https://{text}") };
        format!("a URL begins with https:// (or http://){remedy}")
    };
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(url),
        // Without a scheme, `localhost:8080` is a URL whose scheme is the host.
        Err(error) if text.starts_with("http://") || text.starts_with("https://") => Err(error.to_string()),
        _ => Err(problem()),
    }
}

/// Prints the requests, and sends them if `--send-to` is set. If the receiver rejects requests, the error is returned after the last
/// request.
pub(super) async fn render(args: RenderArgs) -> anyhow::Result<()> {
    // Files without a pipeline need no cluster.
    let (client, namespace) = if args.pipeline.is_some() || args.files.is_empty() {
        let (client, namespace) = args.place.open().await?;
        (Some(client), namespace)
    } else {
        (None, args.place.namespace.clone().unwrap_or_else(|| "default".to_owned()))
    };
    let files = manifests(&args, &namespace)?;
    let settings = args.running.resolve(client.as_ref(), &of_pipeline(&args, &files, &namespace)?).await?;
    let (all, pipeline) = layered(&args, &files, client.as_ref(), &settings, &namespace).await?;
    let texts = texts(&files, client.as_ref(), &all).await?;
    let text = |key: &ConfigMapKey| texts.get(key).cloned().unwrap_or(Text::NoConfigMap);
    let given = Given { allow_http: settings.allow_http, text: &text };
    let mut shown = Vec::new();
    for notification in &all {
        let mut context = match &pipeline {
            Some(pipeline) => {
                live::sample_context(pipeline, args.target.as_deref(), &settings.cluster_name, &notification.name)?
            }
            None => SampleContext::sample((notification.name.clone(), notification.namespace.clone())),
        };
        context.page.clone_from(&settings.page_url);
        context.web.clone_from(notification.web());
        shown.extend(previews(notification, &args.triggers, &given, &context)?);
    }
    anyhow::ensure!(!shown.is_empty(), "the Notification has no triggers; name one with --trigger");
    if let Some(client) = &client {
        add_secret_headers(client, &mut shown).await;
    }
    if let Some(file) = &args.answer {
        let answer = ExampleAnswer::parse(&read(file)?)?;
        for preview in &mut shown {
            preview.answer = Some(answer.meaning(preview));
        }
    }
    print(&shown, &settings, args.output)?;
    for preview in &shown {
        if let Some(why) = settings.egress.as_ref().and_then(|egress| egress.refuses(&preview.url)) {
            let (notification, trigger) = (&preview.notification, preview.trigger.as_str());
            writeln!(std::io::stderr(), "relaybook: {notification} {trigger}: the controller does not send it: {why}")?;
        }
    }
    match &args.send_to {
        Some(url) => send(&shown, url).await,
        None => Ok(()),
    }
}

/// Adds the names of headers whose values are in Secrets, as far as they can be read.
async fn add_secret_headers(client: &Client, shown: &mut [Preview]) {
    let secrets: BTreeSet<_> = shown.iter().filter_map(|preview| preview.headers_from.clone()).collect();
    for secret in secrets {
        let Some(keys) = live::keys(client, &secret).await else { continue };
        for preview in shown.iter_mut().filter(|preview| preview.headers_from.as_ref() == Some(&secret)) {
            preview.add_secret_headers(keys.iter().map(String::as_str));
        }
    }
}

fn manifests(args: &RenderArgs, namespace: &str) -> anyhow::Result<Manifests> {
    let mut manifests = Manifests::default();
    for file in &args.files {
        manifests.add(&file.display().to_string(), &read(file)?, namespace)?;
    }
    Ok(manifests)
}

/// Returns the notifications to show, and the pipeline that supplies the data. The global configuration comes from the cluster, if one is
/// used.
async fn layered(
    args: &RenderArgs,
    files: &Manifests,
    client: Option<&Client>,
    settings: &Settings,
    namespace: &str,
) -> anyhow::Result<(Vec<LayeredNotification>, Option<Pipeline>)> {
    let Some(client) = client else {
        let all = files.named(args.name.as_deref())?;
        return Ok((all.into_iter().map(|n| LayeredNotification::without_pipeline(&Global::default(), n)).collect(), None));
    };
    let global = settings.global(client).await?;
    let notifications: Vec<Notification> = match &args.name {
        Some(name) if args.files.is_empty() => live::notification(client, namespace, name).await?.into_iter().collect(),
        name => files.named(name.as_deref())?.into_iter().cloned().collect(),
    };
    let Some(pipeline) = &args.pipeline else {
        let name = args.name.clone().unwrap_or_default();
        return match notifications.first() {
            Some(notification) => Ok((vec![LayeredNotification::without_pipeline(&global, notification)], None)),
            None if global.get(&name).is_some() => Err(PreviewError::OnlyEverywhere(name).into()),
            None => Err(PreviewError::NotFound(ObjectName::new(namespace, name)).into()),
        };
    };
    let pipeline = live::pipeline(client, &of_pipeline(args, files, namespace)?, pipeline).await?;
    let mut notifications = notifications;
    if let Some(other) = pipeline.spec.other_layer_namespace(&pipeline.namespace().unwrap_or_default()) {
        for name in
            args.name.iter().cloned().chain(notifications.iter().map(Notification::name_any)).collect::<BTreeSet<_>>()
        {
            notifications.extend(live::notification(client, other, &name).await?);
        }
    }
    Ok((on_pipeline(args, &global, &settings.cluster_name, &notifications, &pipeline)?, Some(pipeline)))
}

/// Returns the namespace of the pipeline, which is the namespace of the Notification.
fn of_pipeline(args: &RenderArgs, files: &Manifests, namespace: &str) -> anyhow::Result<String> {
    if args.files.is_empty() || args.place.namespace.is_some() {
        return Ok(namespace.to_owned());
    }
    let of = files.named(args.name.as_deref())?.first().and_then(|notification| notification.namespace());
    Ok(of.unwrap_or_else(|| namespace.to_owned()))
}

/// Returns the named notification, or all notifications that apply to the pipeline.
fn on_pipeline(
    args: &RenderArgs,
    global: &Global,
    cluster: &str,
    notifications: &[Notification],
    pipeline: &Pipeline,
) -> anyhow::Result<Vec<LayeredNotification>> {
    let target = args.target.as_deref();
    let on = |name: &str| LayeredNotification::for_target(global, name, notifications, pipeline, target, cluster);
    if let Some(name) = &args.name {
        return Ok(vec![on(name)?]);
    }
    let mut all = Vec::new();
    for name in notifications.iter().map(Notification::name_any).collect::<BTreeSet<_>>() {
        match on(&name) {
            Ok(layered) => all.push(layered),
            Err(error @ PreviewError::NoSuchNotification { .. }) => writeln!(std::io::stderr(), "relaybook: {error}")?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Returns the content of the ConfigMaps that these notifications refer to, from the files and from the cluster.
async fn texts(
    files: &Manifests,
    client: Option<&Client>,
    all: &[LayeredNotification],
) -> anyhow::Result<HashMap<ConfigMapKey, Text>> {
    let keys = all.iter().flat_map(LayeredNotification::config_maps).map(|key| (files.text(&key), key));
    let (elsewhere, here): (Vec<_>, Vec<_>) = keys.partition(|(text, _)| *text == Text::NoConfigMap);
    let elsewhere = elsewhere.into_iter().map(|(_, key)| key);
    let mut texts: HashMap<_, _> = here.into_iter().map(|(text, key)| (key, text)).collect();
    if let Some(client) = client {
        texts.extend(live::texts(client, elsewhere).await?);
        return Ok(texts);
    }
    for key in elsewhere {
        writeln!(
            std::io::stderr(),
            "relaybook: ConfigMap {} is not among the files; add its manifest with -f",
            key.object()
        )?;
    }
    Ok(texts)
}

fn print(all: &[Preview], settings: &Settings, output: Output) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match output {
        Output::Json => {
            let list: Vec<_> = all.iter().map(|one| WithSettings { one, judged_by: settings }).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        }
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
    anyhow::ensure!(refused == 0, "the receiver did not accept {refused} of {} requests", all.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_needs_a_scheme() {
        assert_eq!(receiver("https://a.net/x").unwrap().as_str(), "https://a.net/x");
        for (text, problem) in [
            ("x/y", "a URL begins with https:// (or http://), such as https://x/y"),
            ("localhost:8080/in", "a URL begins with https:// (or http://), such as https://localhost:8080/in"),
            ("ftp://a.net", "a URL begins with https:// (or http://)"),
            ("https://", "empty host"),
        ] {
            assert_eq!(receiver(text).unwrap_err(), problem, "{text}");
        }
    }
}
