//! `relaybook status`: what is wrong, the worst first, and what runs where.

mod screen;
#[cfg(test)]
mod states;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::complete;
use super::shared::exit::{Code, Ended};
use super::shared::table::terminal_width;
use super::shared::{Scope, named};
use relaybook_api::pipeline_set::PipelineSet;
use relaybook_api::{Notification, Pipeline, Time, now};
use relaybook_telemetry::chain;
use relaybook_tools::audit::Row;
use relaybook_tools::diagnosis::read::{self, Watchable, Watched};
use relaybook_tools::diagnosis::{Installation, Known, Level, diagnose, environments, targets};
use relaybook_tools::preview::live;
use screen::{Screen, write_table};

/// Minimum time between two outputs of `--watch`.
const PACE: Duration = Duration::from_secs(1);
/// Interval at which `--watch` reads the installation again, and updates the ages.
const AGAIN: Duration = Duration::from_secs(30);
/// Minimum time between two lists of the pending deliveries. Their numbers are also in the Notifications, which are watched.
const COUNT_AGAIN: Duration = Duration::from_secs(10);
/// Maximum number of lines of `--watch` on a terminal. The worst are first.
const LINES: usize = 60;

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Only this Pipeline, with its targets, as `NAME` or `pipeline/NAME` [default: all of the namespace].
    #[arg(value_parser = named::pipeline, add = complete::pipelines(), conflicts_with = "all_namespaces")]
    pipeline: Option<String>,
    /// Print again when something changes: on a terminal the whole screen, otherwise one JSON object on each line. In YAML, each screen is one
    /// document.
    #[arg(short, long)]
    watch: bool,
    /// End with exit code 1 if there is a problem, and with 5 if there is none in what could be read, and not all could. A warning is no problem.
    #[arg(long, conflicts_with = "watch")]
    exit_code: bool,
    /// The output format.
    #[arg(short, long, default_value = "table")]
    output: Output,
    /// The namespace of the controller [default: that of the controller that watches the namespace].
    #[arg(long, env = "RELAYBOOK_CONTROLLER_NAMESPACE", value_name = "NAMESPACE")]
    controller_namespace: Option<String>,
    #[command(flatten)]
    pub(super) scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Findings with their remedies, and a table. On a terminal, long cells of the table are cut, so that a line has at most 120 characters.
    Table,
    /// The same. Lines have any length.
    Wide,
    /// One object: `{pipelines, notifications, findings, environments, targets, notShown}`.
    Json,
    /// The same in YAML.
    Yaml,
    /// The name of each Pipeline on one line, the worst first.
    Name,
}

impl Output {
    /// Whether it is the screen for people.
    const fn is_screen(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// Returns the maximum number of characters of a line of the table. `None`: no maximum.
    fn width(self) -> Option<usize> {
        if self == Self::Table { terminal_width() } else { None }
    }
}

/// Prints what is wrong and what runs where.
pub(super) async fn status(args: StatusArgs) -> anyhow::Result<()> {
    let (client, namespace) = args.scope.open().await?;
    if let (Some(name), Some(namespace)) = (&args.pipeline, &namespace) {
        // A pipeline that does not exist is an error, and not an empty screen.
        live::pipeline(&client, namespace, name).await?;
    }
    let mut source = Source::open(client, namespace, &args).await?;
    if args.watch {
        return follow(source, args.output).await;
    }
    source.refresh().await;
    let screen = source.screen(now());
    print(&screen, args.output, now())?;
    let is_wrong = screen.findings.iter().any(|finding| finding.level == Level::Problem);
    match args.exit_code {
        true if is_wrong => Err(Ended::quietly(Code::No).into()),
        // What was not read can be wrong.
        true if !screen.not_shown.is_empty() => Err(Ended::quietly(Code::Unanswered).into()),
        _ => Ok(()),
    }
}

/// The objects that the screen is made from.
struct Source {
    client: Client,
    namespace: Option<String>,
    pipeline: Option<String>,
    controller: Option<String>,
    pipelines: Option<Watched<Pipeline>>,
    sets: Option<Watched<PipelineSet>>,
    notifications: Option<Watched<Notification>>,
    pending: Vec<Row>,
    installations: Vec<Installation>,
    /// When the pending deliveries were read.
    counted: Option<Instant>,
    /// When the installation was read.
    read: Option<Instant>,
    /// What may not be listed.
    forbidden: Vec<String>,
    /// What is not known of the installation.
    unknown: Vec<String>,
    /// Why the pending deliveries are not known.
    unread: Option<String>,
    /// The kinds whose watch fails, and why.
    stale: BTreeMap<&'static str, String>,
}

impl Source {
    /// Lists pipelines, sets and Notifications. What a person may not list is left out.
    async fn open(client: Client, namespace: Option<String>, args: &StatusArgs) -> anyhow::Result<Self> {
        let (place, mut forbidden) = (in_words(namespace.as_deref()), Vec::new());
        let at = namespace.as_deref();
        let pipelines = opened(Watched::new(&client, at), "pipelines", &place, &mut forbidden).await?;
        let notifications = opened(Watched::new(&client, at), "notifications", &place, &mut forbidden).await?;
        let sets = opened(Watched::new(&client, at), "pipelinesets", &place, &mut forbidden).await?;
        Ok(Self {
            pipeline: args.pipeline.clone(),
            controller: args.controller_namespace.clone(),
            client,
            namespace,
            pipelines,
            sets,
            notifications,
            pending: Vec::new(),
            installations: Vec::new(),
            counted: None,
            stale: BTreeMap::new(),
            read: None,
            forbidden,
            unknown: Vec::new(),
            unread: None,
        })
    }

    /// Reads the deliveries that are pending, and now and then the installation.
    async fn refresh(&mut self) {
        if self.counted.is_none_or(|counted| counted.elapsed() >= COUNT_AGAIN) {
            match read::pending(&self.client, self.namespace.as_deref()).await {
                Ok(pending) => (self.pending, self.unread) = (pending, None),
                Err(error) => self.unread = Some(format!("pending deliveries: {}", chain(&error))),
            }
            self.counted = Some(Instant::now());
        }
        if self.read.is_none_or(|read| read.elapsed() >= AGAIN) {
            let controller = self.controller.as_deref();
            (self.installations, self.unknown) = match self.namespace.as_deref() {
                None if controller.is_none() => read::installations(&self.client).await,
                namespace => {
                    let (one, unknown) = read::installation(&self.client, controller, namespace.unwrap_or_default()).await;
                    (vec![one], unknown)
                }
            };
            self.read = Some(Instant::now());
        }
    }

    fn screen(&self, now: Time) -> Screen {
        let mut pipelines = self.pipelines.as_ref().map_or_else(Vec::new, Watched::objects);
        let mut notifications = self.notifications.as_ref().map_or_else(Vec::new, Watched::objects);
        let mut sets = self.sets.as_ref().map_or_else(Vec::new, Watched::objects);
        let mut rows = Vec::new();
        if let Some(name) = &self.pipeline {
            pipelines.retain(|pipeline| pipeline.name_any() == *name);
            let applies = applying(pipelines.first());
            notifications.retain(|notification| applies.contains(&notification.name_any()));
            sets.clear();
            rows = pipelines.first().map(targets).unwrap_or_default();
        }
        let known = Known {
            installations: &self.installations,
            pipelines: &pipelines,
            sets: &sets,
            notifications: &notifications,
            pending: &self.pending,
        };
        Screen {
            place: in_words(self.namespace.as_deref()),
            all_namespaces: self.namespace.is_none(),
            pipelines: pipelines.len(),
            notifications: notifications.len(),
            findings: diagnose(&known, now),
            environments: environments(&pipelines),
            targets: rows,
            not_shown: self.not_shown(),
        }
    }

    fn not_shown(&self) -> Vec<String> {
        let stale = self.stale.iter().map(|(kind, why)| format!("changes of {kind}: {why}; trying again"));
        self.forbidden.iter().chain(&self.unread).chain(&self.unknown).cloned().chain(stale).collect()
    }

    /// Waits for the next change of an object, or for a watch that fails. A watch that fails is tried again.
    async fn changed(&mut self) {
        let (kind, result) = tokio::select! {
            result = changed(&mut self.pipelines) => ("pipelines", result),
            result = changed(&mut self.notifications) => ("notifications", result),
            result = changed(&mut self.sets) => ("pipelinesets", result),
        };
        match result {
            Ok(()) => self.stale.remove(kind),
            Err(error) => self.stale.insert(kind, chain(&error)),
        };
    }
}

/// Returns the names of the notifications that apply to a pipeline.
fn applying(pipeline: Option<&Pipeline>) -> Vec<String> {
    let status = pipeline.and_then(|pipeline| pipeline.status.as_ref());
    let cursors = status.and_then(|status| status.dispatched.as_ref()).map_or(&[][..], |dispatched| &dispatched.cursors);
    cursors.iter().map(|cursor| cursor.notification.clone()).collect()
}

fn in_words(namespace: Option<&str>) -> String {
    namespace.map_or_else(|| "all namespaces".to_owned(), ToOwned::to_owned)
}

/// Lists the objects of a kind. Without the permission, the output names what is missing, and the rest is shown.
async fn opened<K: Watchable>(
    mut watched: Watched<K>,
    resource: &str,
    place: &str,
    forbidden: &mut Vec<String>,
) -> anyhow::Result<Option<Watched<K>>> {
    match watched.list().await {
        Ok(()) => Ok(Some(watched)),
        Err(error) if read::is_forbidden(&error) => {
            forbidden.push(format!("{resource}: needs list and watch on {resource} in {place}"));
            Ok(None)
        }
        Err(error) => Err(anyhow::Error::from(error).context(format!("{resource} cannot be listed"))),
    }
}

async fn changed<K: Watchable>(watched: &mut Option<Watched<K>>) -> watcher::Result<()> {
    match watched {
        Some(watched) => watched.changed().await,
        None => std::future::pending().await,
    }
}

/// Prints the screen again when it changes, at most once a second.
async fn follow(mut source: Source, output: Output) -> anyhow::Result<()> {
    let is_terminal = io::stdout().is_terminal() && output.is_screen();
    let mut last = String::new();
    loop {
        let refreshed = Instant::now();
        source.refresh().await;
        let text = shown_again(&source.screen(now()), output, is_terminal, now())?;
        if text != last {
            let mut out = io::stdout().lock();
            // Moves the cursor to the top left corner, and erases the screen.
            let start = if is_terminal { "\x1b[H\x1b[2J" } else { "" };
            write!(out, "{start}{text}")?;
            out.flush()?;
            last = text;
        }
        tokio::select! {
            () = source.changed() => {}
            () = sleep(AGAIN) => {}
        }
        // Further changes of the same second are in the same output.
        let end = refreshed + PACE;
        while timeout_at(end, source.changed()).await.is_ok() {}
        sleep_until(end).await;
    }
}

/// Returns the next output of `--watch`: the first lines of the screen, or what a program reads.
fn shown_again(screen: &Screen, output: Output, is_terminal: bool, now: Time) -> anyhow::Result<String> {
    match output {
        Output::Yaml => return Ok(format!("---\n{}", text(screen, output, now)?)),
        Output::Name => return text(screen, output, now),
        Output::Table | Output::Wide | Output::Json if !is_terminal => return Ok(serde_json::to_string(screen)? + "\n"),
        Output::Table | Output::Wide | Output::Json => {}
    }
    let text = text(screen, output, now)?;
    let more = text.lines().count().saturating_sub(LINES);
    let first: String = text.split_inclusive('\n').take(LINES).collect();
    Ok(if more == 0 { first } else { format!("{first}… {more} more lines\n") })
}

/// Returns the screen in a format.
fn text(screen: &Screen, output: Output, now: Time) -> anyhow::Result<String> {
    Ok(match output {
        Output::Table | Output::Wide => {
            let mut text = Vec::new();
            write_table(&mut text, screen, output.width(), now)?;
            String::from_utf8(text)?
        }
        Output::Json => serde_json::to_string_pretty(screen)? + "\n",
        Output::Yaml => serde_saphyr::to_string(screen)?,
        Output::Name => screen.names().into_iter().map(|name| name + "\n").collect(),
    })
}

fn print(screen: &Screen, output: Output, now: Time) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text(screen, output, now)?.as_bytes())?;
    Ok(out.flush()?)
}
