//! `relaybook init`: the first Pipeline or `PipelineSets`, and the first Notifications.
//!
//! In: flags, or answers on a terminal. Out: manifests that `relaybook lint` accepts, in files or on stdout, and the next commands on stderr. No
//! question is about a credential. The cluster is only asked for choices, what its controller follows, and which Notifications exist.

mod again;
mod ask;
mod cluster;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use super::lint::counted;
use super::shared::exit::{Code, Ended};
use super::shared::write::write;
use super::shared::{Place, failure};
use crate::options::values::{CLUSTER_NAME, CONFIG_MAP, NAMESPACE, followed};
use ask::{Draft, Terminal};
use cluster::{Choices, Seen};
use relaybook_api::ObjectName;
use relaybook_api::notification::Builtin;
use relaybook_pipelines::sets::Followed;
use relaybook_text::escaped;
use relaybook_tools::init::{
    Answers, App, InitError, On, Plan, SecretName, Source, Spot, check, many, next_steps, plan, receiver, setting,
};
use relaybook_tools::lint::{Options, Report};

#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// The application to follow, as `KIND/NAME`, such as `deploy/web` or `kustomization/web`.
    #[arg(long, value_name = "KIND/NAME", value_parser = App::parse, conflicts_with = "follow")]
    app: Option<App>,
    /// An environment, and the namespace of the application in it; can be repeated, in the order of the environments. CLUSTER is a Secret with a
    /// kubeconfig, or `GitopsCluster/NAME`.
    #[arg(
        long = "env",
        value_name = "NAME=NAMESPACE[@CLUSTER]",
        value_delimiter = ',',
        value_parser = Spot::parse,
        conflicts_with = "follow"
    )]
    spots: Vec<Spot>,
    /// Follow every object of these kinds, with a `PipelineSet` for each kind that the controller does not follow already; can be repeated.
    #[arg(long, value_delimiter = ',', value_name = "KIND", value_parser = followed())]
    follow: Vec<Followed>,
    /// Where to send: the name of a built-in template, such as slack; can be repeated.
    #[arg(long = "to", value_delimiter = ',', value_name = "RECEIVER", value_parser = receiver)]
    receivers: Vec<Builtin>,
    /// Which changes to report [default: failures].
    #[arg(long, value_name = "CHANGES")]
    on: Option<Changes>,
    /// The name of the Pipeline or `PipelineSet`, and the first part of the names of Notifications [default: the names of the application and
    /// of the receiver].
    #[arg(long)]
    name: Option<String>,
    /// The folder for the files [default: print them].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Replace files that exist.
    #[arg(long)]
    force: bool,
    /// The Secret with the credentials of the receiver, and the key in it [default: the name of the receiver].
    #[arg(long, value_name = "NAME[:KEY]")]
    secret: Option<String>,
    /// The URL of the receiver, if it is not a credential.
    #[arg(long)]
    url: Option<String>,
    /// Set a parameter of the receiver's template; can be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Do not connect to a cluster.
    #[arg(long)]
    offline: bool,
    /// Allow http to any host, as `relaybook run --allow-http` does.
    #[arg(long, env = "RELAYBOOK_ALLOW_HTTP")]
    allow_http: bool,
    /// The namespace of the controller [default: all namespaces].
    #[arg(long, env = "RELAYBOOK_CONTROLLER_NAMESPACE", value_name = "NAMESPACE")]
    controller_namespace: Option<String>,
    #[command(flatten)]
    pub(super) place: Place,
}

/// Which changes are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Changes {
    /// Failed and Recovered. For a receiver that shows a state, also the transitions that end a failure there.
    Failures,
    /// Also Progressing and Deployed.
    Deployments,
    /// Everything that the receiver can show.
    All,
}

impl Changes {
    const fn on(self) -> On {
        match self {
            Self::Failures => On::Failures,
            Self::Deployments => On::Deployments,
            Self::All => On::All,
        }
    }
}

/// The answers that only flags give.
struct Flags<'a> {
    args: &'a InitArgs,
    settings: BTreeMap<String, String>,
    secret: Option<SecretName>,
    default_namespace: String,
}

/// Writes or prints the manifests.
pub(super) async fn init(args: InitArgs) -> anyhow::Result<()> {
    let settings: Result<BTreeMap<_, _>, InitError> = args.settings.iter().map(|text| setting(text)).collect();
    let settings = settings.map_err(|error| usage(&error))?;
    let secret = args.secret.as_deref().map(SecretName::parse).transpose().map_err(|error| usage(&error))?;
    let mut draft = draft(&args);
    let missing = draft.missing();
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !missing.is_empty() && !can_ask {
        return Err(Ended::new(Code::Usage, required(&missing)).into());
    }
    let default_namespace = match args.place.namespace {
        Some(_) => None,
        None => args.place.access.namespace().await,
    };
    let default_namespace = default_namespace.unwrap_or_else(|| "default".to_owned());
    let flags = Flags { args: &args, settings, secret, default_namespace };
    if !missing.is_empty() {
        complete(&flags, &mut draft).await?;
    }
    let answers = answers(&flags, &draft);
    let seen = seen(&flags, &answers).await?;
    let plan = plan(&answers, seen.already.as_ref()).map_err(|error| usage(&error))?;
    let mut err = io::stderr();
    for (kind, objects) in &seen.objects {
        let pipelines = usize::try_from(*objects).unwrap_or(usize::MAX);
        writeln!(err, "relaybook: there are {objects} {} now, so at most {}", kind.name(), counted(pipelines, "pipeline"))?;
        if let Some(warning) = many(*kind, *objects, answers.on) {
            writeln!(err, "relaybook: warning: {warning}")?;
        }
    }
    let report = linted(&plan, &args, seen.cross_namespace_refs)?;
    for note in plan.notes.iter().chain(&report.notes) {
        writeln!(err, "relaybook: {}", escaped(note))?;
    }
    if !args.offline {
        let Plan { namespace, notifications, .. } = &plan;
        for name in cluster::existing(&args.place.access, namespace, notifications).await {
            let text = "exists already, and kubectl apply changes it; to keep it, add --name NAME";
            writeln!(err, "relaybook: warning: Notification {namespace}/{name} {text}")?;
        }
    }
    output(&plan, &report, draft.dir.as_deref(), args.force)
}

/// Asks for what is missing. If a flag must be added, the error has the complete command line.
async fn complete(flags: &Flags<'_>, draft: &mut Draft) -> anyhow::Result<()> {
    let (choices, before) = (choices(flags).await?, draft.clone());
    let mut terminal = Terminal::new(io::stdin().lock(), io::stderr());
    let refused = |draft: &Draft| plan(&answers(flags, draft), None).err();
    let asked = ask::fill(draft, &choices, &mut terminal, io::stdout().is_terminal(), refused);
    asked.map_err(|error| match error.downcast::<InitError>() {
        Ok(error) => Ended::new(Code::Usage, again::message(&error, &before, draft)).into(),
        Err(error) => error,
    })
}

fn usage(error: &InitError) -> anyhow::Error {
    Ended::new(Code::Usage, error.to_string()).into()
}

fn draft(args: &InitArgs) -> Draft {
    Draft {
        app: args.app.clone(),
        spots: args.spots.clone(),
        follow: args.follow.clone(),
        receivers: args.receivers.clone(),
        on: args.on,
        dir: args.dir.clone(),
    }
}

/// Returns the message about answers that nobody can give.
fn required(missing: &[&str]) -> String {
    let verb = if missing.len() == 1 { "is" } else { "are" };
    format!("{} {verb} required without a terminal", missing.join(", and "))
}

fn answers(flags: &Flags<'_>, draft: &Draft) -> Answers {
    let Flags { args, settings, secret, default_namespace } = flags;
    let source = match &draft.app {
        Some(app) => Source::App { app: app.clone(), spots: draft.spots.clone() },
        None => Source::Follow(draft.follow.clone()),
    };
    Answers {
        source,
        receivers: draft.receivers.clone(),
        on: draft.on.map(Changes::on).unwrap_or_default(),
        namespace: args.place.namespace.clone(),
        default_namespace: default_namespace.clone(),
        name: args.name.clone(),
        secret: secret.clone(),
        url: args.url.clone(),
        settings: settings.clone(),
    }
}

/// Returns what the cluster has. Without it, the person can still answer.
async fn choices(flags: &Flags<'_>) -> anyhow::Result<Choices> {
    let Flags { args, default_namespace, .. } = flags;
    if args.offline {
        return Ok(Choices::default());
    }
    let namespace = args.place.namespace.as_ref().unwrap_or(default_namespace);
    match cluster::choices(&args.place.access, namespace).await {
        Ok(choices) => Ok(choices),
        Err(error) => {
            let why = failure::said(error.as_ref(), &args.place.access).await;
            writeln!(io::stderr(), "relaybook: the cluster offers no choices: {}", escaped(&why))?;
            Ok(Choices::default())
        }
    }
}

/// Returns what a controller follows already, and how many objects there are. An application needs no cluster.
async fn seen(flags: &Flags<'_>, answers: &Answers) -> anyhow::Result<Seen> {
    let args = flags.args;
    match &answers.source {
        Source::Follow(kinds) if !args.offline => {
            let controller = args.controller_namespace.as_deref();
            cluster::seen(&args.place.access, controller, answers, kinds).await
        }
        Source::Follow(_) | Source::App { .. } => Ok(Seen::nothing()),
    }
}

/// Lints the manifests. The error says that the flags must change.
fn linted(plan: &Plan, args: &InitArgs, cross_namespace_refs: bool) -> anyhow::Result<Report> {
    let options = Options {
        namespace: plan.namespace.clone(),
        config_map: ObjectName::new(NAMESPACE, CONFIG_MAP),
        cluster_name: CLUSTER_NAME.to_owned(),
        allow_http: args.allow_http,
        cross_namespace_refs,
    };
    let report = check(plan, &options)?;
    if report.findings.is_empty() {
        return Ok(report);
    }
    for finding in &report.findings {
        writeln!(io::stderr(), "{}", escaped(&finding.to_string()))?;
    }
    let problems = counted(report.findings.len(), "problem");
    let text = format!("the manifests would have {problems}; nothing was written; change the flags");
    Err(Ended::new(Code::Usage, text).into())
}

/// Writes the files, or prints the manifests, and then the next commands.
fn output(plan: &Plan, report: &Report, dir: Option<&Path>, force: bool) -> anyhow::Result<()> {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let checked = format!("Lint: no problems, {} checked.", counted(report.objects, "object"));
    let mut paths = Vec::new();
    if let Some(dir) = dir {
        // From here on, Ctrl-C waits until all files are written.
        let _interrupt = signal(SignalKind::interrupt())?;
        paths = write(dir, &plan.manifests, force, "--dir or --name")?;
        let width = paths.iter().map(|path| path.chars().count()).max().unwrap_or_default();
        for (path, manifest) in paths.iter().zip(&plan.manifests) {
            writeln!(out, "{:width$}   {}", escaped(path), manifest.about)?;
        }
        writeln!(out, "{checked}")?;
    } else {
        for (at, manifest) in plan.manifests.iter().enumerate() {
            write!(out, "{}{}", if at > 0 { "---\n" } else { "" }, manifest.text)?;
            writeln!(err, "{}", manifest.about)?;
        }
        out.flush()?;
        writeln!(err, "{checked}")?;
    }
    next_steps(plan, &paths).iter().try_for_each(|line| writeln!(err, "{}", escaped(line)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn flags_that_contradict_each_other_or_have_no_meaning_are_refused() {
        for bad in [
            &["--app", "deploy/web", "--follow", "deployments"][..],
            &["--follow", "deployments", "--env", "prod=web"],
            &["--follow", "pods"],
            &["--app", "web"],
            &["--env", "prod"],
            &["--to", "slak"],
            &["--on", "everything"],
        ] {
            let error = Cli::try_parse_from([&["relaybook", "init"][..], bad].concat()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad:?}");
        }
        let error = Cli::try_parse_from(["relaybook", "init", "--to", "slak"]).unwrap_err().to_string();
        assert!(error.contains("--to") && error.contains("no such receiver; did you mean slack?"), "{error}");
        let good =
            ["--app", "deploy/web", "--env", "dev=a,prod=b@eu", "--to", "slack,teams", "--set", "title=a,b", "-n", "a"];
        assert!(Cli::try_parse_from([&["relaybook", "init"][..], &good].concat()).is_ok());
    }

    #[test]
    fn what_is_required_without_a_terminal_is_named() {
        assert_eq!(required(&["--app or --follow"]), "--app or --follow is required without a terminal");
        assert_eq!(required(&["--env", "--to"]), "--env, and --to are required without a terminal");
    }
}
