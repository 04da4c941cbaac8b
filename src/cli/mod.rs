//! The command line: turns arguments into one call of the library.
//!
//! In: arguments and `RELAYBOOK_…` variables. Out: data on stdout, messages on stderr, and an exit code: 0 success, 1 failure, 2 wrong usage.

mod approve;
mod audit;
mod check;
mod explain;
mod lint;
mod page;
mod promote;
mod promotions;
mod redeliver;
mod render;
mod setters;
mod shared;
mod templates;
mod traced;
mod unseen;

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use ipnet::IpNet;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use shared::failure;
use unseen::Unseen;

use crate::app::{self, Controller, Follow, Followed, Options, Proxy};
use relaybook_api::values::shard::{SHARD_LABEL, Sharding};
use relaybook_telemetry::{chain, logging};

/// Notifies receivers about changes of deployment pipelines: recorded first, in order, at least once.
#[derive(Debug, Parser)]
#[command(name = "relaybook", version, max_term_width = 120)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controllers.
    Run(Box<RunArgs>),
    /// Print the custom resource definitions as YAML.
    Crds,
    /// Check manifests without a cluster: schema, rules, templates, triggers.
    Lint(Box<lint::LintArgs>),
    /// Show the requests that a Notification would send, with secrets masked.
    Render(Box<render::RenderArgs>),
    /// Show the effective settings of a pipeline's targets, with the layer that set each field.
    Explain(Box<explain::ExplainArgs>),
    /// List the templates that come with Relaybook, or show one to start from.
    Templates(templates::TemplatesArgs),
    /// Show deliveries: what was sent, when, and what the receiver answered.
    Audit(Box<audit::AuditArgs>),
    /// Send settled deliveries again, with the same `webhook-id`, without waiting for other deliveries.
    Redeliver(Box<redeliver::RedeliverArgs>),
    /// Show promotions: which revision goes to which environment, and what became of it.
    Promotions(Box<promotions::PromotionsArgs>),
    /// Start a promotion: the revision of the environment before goes to an environment.
    Promote(Box<promote::PromoteArgs>),
    /// Approve the promotion that waits for it.
    Approve(Box<approve::ApproveArgs>),
    /// Set the values that comments mark in YAML files, or list them, without a cluster.
    Setters(Box<setters::SettersArgs>),
    /// Open the audit page in the browser: pipelines, what was sent, and what the receivers answered.
    Page(Box<page::PageArgs>),
    /// Check an installation: CRDs, permissions of the controller, readiness.
    Check(Box<check::CheckArgs>),
    /// Print the completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The controllers to run. Each can run in its own process.
    #[arg(long, env = "RELAYBOOK_CONTROLLERS", value_delimiter = ',', default_value = "pipeline,dispatch,promote")]
    controllers: Vec<Controller>,
    /// The namespace of the process and of its Leases [default: `$POD_NAMESPACE` or relaybook-system].
    #[arg(short, long, env = "RELAYBOOK_NAMESPACE")]
    namespace: Option<String>,
    /// The ConfigMap in that namespace with the global configuration, in the key config.yaml. The ConfigMap is optional.
    #[arg(long, env = "RELAYBOOK_CONFIG_MAP", default_value = "relaybook-config", value_name = "NAME")]
    config_map: String,
    /// Watch pipelines and application objects only in these namespaces; can be repeated [default: all].
    #[arg(long, env = "RELAYBOOK_WATCH_NAMESPACE", value_delimiter = ',', value_name = "NS")]
    watch_namespace: Vec<String>,
    /// The name of the local cluster in the names of targets.
    #[arg(long, env = "RELAYBOOK_CLUSTER_NAME", default_value = "in-cluster", value_parser = cluster_name)]
    cluster_name: String,
    /// Maximum number of concurrent requests.
    #[arg(long, env = "RELAYBOOK_WORKERS", default_value_t = 256, value_parser = clap::value_parser!(u16).range(2..=4096))]
    workers: u16,
    /// Maximum number of settled deliveries in the whole cluster. Above it, the oldest are deleted, parked ones last.
    #[arg(long, env = "RELAYBOOK_KEEP_DELIVERIES", default_value_t = 100_000, value_name = "NUMBER")]
    keep_deliveries: usize,
    /// Allow http to any host, not only to *.svc names of the cluster.
    #[arg(long, env = "RELAYBOOK_ALLOW_HTTP")]
    allow_http: bool,
    /// Allow these addresses, which are refused by default (loopback, link-local, …); can be repeated.
    #[arg(long, env = "RELAYBOOK_ALLOW_DESTINATION", value_delimiter = ',', value_name = "CIDR")]
    allow_destination: Vec<IpNet>,
    /// Refuse these addresses, even if another flag allows them; can be repeated.
    #[arg(long, env = "RELAYBOOK_DENY_DESTINATION", value_delimiter = ',', value_name = "CIDR")]
    deny_destination: Vec<IpNet>,
    /// Send all requests through this HTTP proxy, `http://HOST:PORT` or `https://HOST:PORT`. Set a URL
    /// with `USER:PASSWORD@` in the environment, because other users can see arguments. No other variable sets a proxy.
    #[arg(long, env = "RELAYBOOK_PROXY", hide_env_values = true, value_name = "URL", value_parser = PROXY)]
    proxy: Option<Proxy>,
    /// Refuse targets and cluster objects outside the pipeline's own namespace.
    #[arg(long, env = "RELAYBOOK_NO_CROSS_NAMESPACE_REFS")]
    no_cross_namespace_refs: bool,
    /// Watch the `BundleDeployments` of Fleet in all namespaces, although --watch-namespace restricts everything else. Fleet creates them in a
    /// namespace for each cluster.
    #[arg(long, env = "RELAYBOOK_FLEET_EVERYWHERE")]
    fleet_everywhere: bool,
    /// The shard of this process: it handles only objects whose label has this value. Without it, the process handles the others.
    #[arg(long, env = "RELAYBOOK_SHARD_ID", value_name = "ID", value_parser = shard)]
    shard_id: Option<String>,
    /// The IDs of all shards that run; can be repeated. A label that names none of them is ignored.
    #[arg(long, env = "RELAYBOOK_SHARDS", value_delimiter = ',', value_name = "ID", value_parser = shard)]
    shards: Vec<String>,
    /// The label that names the shard of an object.
    #[arg(long, env = "RELAYBOOK_SHARD_LABEL", default_value = SHARD_LABEL, value_name = "LABEL", value_parser = label_key)]
    shard_label: String,
    /// Make no pipelines of `PipelineSets`.
    #[arg(long, env = "RELAYBOOK_NO_PIPELINE_SETS")]
    no_pipeline_sets: bool,
    /// Make a pipeline for every object of these kinds, with a `PipelineSet` in the namespace of the process; can be repeated.
    #[arg(long, env = "RELAYBOOK_FOLLOW", value_delimiter = ',', value_name = "KIND", value_parser = shared::followed(), conflicts_with = "no_pipeline_sets")]
    follow: Vec<Followed>,
    /// Let the Notifications in the namespace of each followed object be layers of its pipeline.
    #[arg(long, env = "RELAYBOOK_FOLLOW_LAYERS", requires = "follow")]
    follow_layers: bool,
    /// A remote cluster is offline when it has not answered for this time.
    #[arg(long, env = "RELAYBOOK_CLUSTER_GRACE", default_value = "2m", value_name = "DURATION", value_parser = grace)]
    cluster_grace: Duration,
    /// Accept kubeconfigs of remote clusters with http, or with insecure-skip-tls-verify.
    #[arg(long, env = "RELAYBOOK_ALLOW_INSECURE_CLUSTERS")]
    allow_insecure_clusters: bool,
    /// The address of /healthz, /readyz and /metrics.
    #[arg(long, env = "RELAYBOOK_HTTP_ADDR", default_value = "0.0.0.0:8080", value_name = "ADDR")]
    http_addr: SocketAddr,
    /// The address of hooks: signed approvals of promotions, and requests to check promotions [default: no hooks].
    #[arg(long, env = "RELAYBOOK_HOOKS_ADDR", value_name = "ADDR")]
    hooks_addr: Option<SocketAddr>,
    #[command(flatten)]
    page: page::ServeArgs,
    /// The format of log lines: text or json. `RELAYBOOK_LOG` sets the level, such as `info` or `relaybook=debug`.
    #[arg(long, env = "RELAYBOOK_LOG_FORMAT", default_value_t = logging::Format::Text, value_name = "FORMAT")]
    log_format: logging::Format,
    #[command(flatten)]
    tracing: traced::TracingArgs,
    /// The context of the kubeconfig to use. Without a kubeconfig, the service account of the Pod is used.
    #[arg(long, env = "RELAYBOOK_CONTEXT")]
    context: Option<String>,
}

/// The URL can contain a password, so errors must not repeat it.
const PROXY: Unseen<Proxy> = Unseen::of("--proxy (or RELAYBOOK_PROXY)");

/// Parses a duration from one second to one day. The minimum is one second because a network call can take that long.
fn grace(text: &str) -> Result<Duration, String> {
    let span = audit::span(text).ok().and_then(|span| Duration::try_from(span).ok());
    let fits = span.filter(|span| (Duration::from_secs(1)..=Duration::from_hours(24)).contains(span));
    fits.ok_or_else(|| "must be a duration from 1s to 24h, such as 90s or 2m".to_owned())
}

/// Parses the ID of a shard. It becomes a part of the names of Leases, and is the value of a label.
fn shard(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !text.is_empty() && text.len() <= 40 && text.chars().all(fits) && !text.starts_with('-') && !text.ends_with('-') {
        Ok(text.to_owned())
    } else {
        Err("must have only lower case letters, digits and dashes, at most 40 characters, such as eu-1".to_owned())
    }
}

/// Parses the key of a label (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>).
fn label_key(text: &str) -> Result<String, String> {
    let (prefix, name) = text.rsplit_once('/').unwrap_or(("", text));
    let ends = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let is_name = name.len() <= 63 && ends(name) && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let is_prefix = prefix.len() <= 253 && ends(prefix) && prefix.chars().all(is_part);
    if is_name && (is_prefix || !text.contains('/')) {
        Ok(text.to_owned())
    } else {
        Err("must be the key of a label, such as example.com/shard".to_owned())
    }
}

/// Returns the shard of this process, and all shards, which include it.
fn sharding(id: Option<String>, mut all: Vec<String>, label: String) -> Sharding {
    all.extend(id.clone());
    Sharding { id: id.unwrap_or_default(), all, label }
}

/// Parses a cluster name. It has no slash, because it becomes a part of subjects.
fn cluster_name(text: &str) -> Result<String, String> {
    let fits =
        !text.is_empty() && text.len() <= 253 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.');
    if fits {
        Ok(text.to_owned())
    } else {
        Err("must have only letters, digits, dashes and dots, at most 253 characters".to_owned())
    }
}

impl Cli {
    /// Runs the command.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let is_controller = matches!(self.command, Command::Run(_));
        let result = match self.command {
            Command::Run(args) => run(*args),
            Command::Crds => crds(),
            Command::Lint(args) => lint::lint(*args),
            Command::Render(args) => run_on_cluster(&args.place.connection.clone(), render::render(*args)),
            Command::Explain(args) => run_on_cluster(&args.place.connection.clone(), explain::explain(*args)),
            Command::Templates(args) => templates::templates(&args),
            Command::Audit(args) => run_on_cluster(&args.place.connection.clone(), audit::audit(*args)),
            Command::Redeliver(args) => run_on_cluster(&args.place.connection.clone(), redeliver::redeliver(*args)),
            Command::Promotions(args) => run_on_cluster(&args.place.connection.clone(), promotions::promotions(*args)),
            Command::Promote(args) => run_on_cluster(&args.place.connection.clone(), promote::promote(*args)),
            Command::Approve(args) => run_on_cluster(&args.place.connection.clone(), approve::approve(*args)),
            Command::Setters(args) => setters::setters(&args),
            Command::Page(args) => run_on_cluster(&args.connection.clone(), page::page(*args)),
            Command::Check(args) => run_on_cluster(&args.connection.clone(), check::check(*args)),
            Command::Completions { shell } => completions(shell),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            // The program that reads the output has closed the pipe, as `head` does. This is not a failure.
            Err(error) if !is_controller && failure::is_closed_pipe(error.as_ref()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "relaybook: {}", chain(error.as_ref()));
                ExitCode::FAILURE
            }
        }
    }
}

fn run(args: RunArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.hooks_addr.is_none() || args.controllers.contains(&Controller::Promote),
        "--hooks-addr requires the controller promote; add it to --controllers"
    );
    anyhow::ensure!(
        args.follow.is_empty() || args.controllers.contains(&Controller::Pipeline),
        "--follow requires the controller pipeline; add it to --controllers"
    );
    anyhow::ensure!(
        args.follow.is_empty() || !args.no_cross_namespace_refs,
        "--follow selects objects in all namespaces, which --no-cross-namespace-refs forbids; remove one of them"
    );
    anyhow::ensure!(
        args.follow.is_empty() || args.shard_id.is_none(),
        "--follow makes sets for all shards; give it to the process without --shard-id"
    );
    relaybook_telemetry::logging::init(args.log_format)?;
    allow_open_files();
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let own = || variable("POD_NAMESPACE");
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    // Answers of receivers are read in a separate runtime, so that they never block the threads that call the API server.
    let sending = tokio::runtime::Builder::new_multi_thread().thread_name("sending").enable_all().build()?;
    // Data from remote clusters is read in another separate runtime, for the same reason.
    let remote = tokio::runtime::Builder::new_multi_thread().thread_name("remote").enable_all().build()?;
    let namespace = args.namespace.or_else(own).unwrap_or_else(|| "relaybook-system".to_owned());
    anyhow::ensure!(
        args.follow.is_empty() || args.watch_namespace.is_empty() || args.watch_namespace.contains(&namespace),
        "--follow makes sets in the namespace {namespace}, which is not watched; add it to --watch-namespace"
    );
    let options = Options {
        sending: sending.handle().clone(),
        remote: remote.handle().clone(),
        controllers: args.controllers,
        namespace,
        config_map: args.config_map,
        identity: variable("POD_NAME").unwrap_or_else(host),
        watch_namespaces: args.watch_namespace,
        cluster_name: args.cluster_name,
        workers: usize::from(args.workers),
        keep_deliveries: args.keep_deliveries,
        allow_http: args.allow_http,
        allow_destinations: args.allow_destination,
        deny_destinations: args.deny_destination,
        proxy: args.proxy,
        tracing: args.tracing.read(variable)?,
        no_cross_namespace_refs: args.no_cross_namespace_refs,
        fleet_everywhere: args.fleet_everywhere,
        sharding: sharding(args.shard_id, args.shards, args.shard_label),
        pipeline_sets: !args.no_pipeline_sets,
        follow: Follow { kinds: args.follow, layers: args.follow_layers },
        cluster_grace: args.cluster_grace,
        allow_insecure_clusters: args.allow_insecure_clusters,
        http_addr: args.http_addr,
        hooks_addr: args.hooks_addr,
        page: args.page.options()?,
        context: args.context,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(app::run(options));
    sending.shutdown_background();
    remote.shutdown_background();
    ended?;
    Ok(())
}

/// Raises the number of files that the process can open to what the system allows. Many systems start a process with 1,024, and each
/// connection is a file: clients of one port must not use up those that deliveries need.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Without it, the process has the limit with which it was started.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Runs a command that uses an API server. If a call of the API server fails, the error is one sentence.
fn run_on_cluster(connection: &shared::Connection, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let all = async {
        match work.await {
            Err(error) if failure::is_of_server(error.as_ref()) => {
                Err(anyhow::anyhow!(failure::sentence(error.as_ref(), &connection.server().await)))
            }
            done => done,
        }
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(all)
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "relaybook", &mut text);
    Ok(std::io::stdout().lock().write_all(&text)?)
}

fn crds() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for crd in relaybook_api::crds() {
        write!(out, "---\n{}", serde_saphyr::to_string(&crd)?)?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        for bad in [
            &["run", "--workers", "1"][..],
            &["run", "--allow-destination", "localhost"],
            &["run", "--cluster-name", "a/b"],
            &["run", "--cluster-grace", "0s"],
            &["run", "--cluster-grace", "soon"],
            &["run", "--controllers", "sender"],
            &["run", "--log-format", "xml"],
            &["run", "--hooks-addr", "8081"],
            &["run", "--shard-id", "EU"],
            &["run", "--shards", "eu,us/1"],
            &["run", "--shard-label", "/shard"],
            &["run", "--shard-label", "Example.com/shard"],
            &["check", "--wait", "100000000d"],
            &["setters"],
            &["setters", ".", "--promotion", "team-a:podinfo:prod"],
            &["setters", ".", "--promotion", "podinfo:prod", "--revision", "1"],
            &["setters", ".", "--promotion", "--write", "--revision", "1"],
            &["setters", ".", "--revision", "1"],
            &["setters", ".", "--write"],
            &["check", "--ready-url", "https://relaybook.example/readyz"],
            &["fly"],
        ] {
            assert!(Cli::try_parse_from(std::iter::once(&"relaybook").chain(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_shard_is_one_of_all_shards() {
        let of = |id: Option<&str>| sharding(id.map(str::to_owned), vec!["us".to_owned()], SHARD_LABEL.to_owned());
        assert_eq!((of(None).all, of(None).id), (vec!["us".to_owned()], String::new()));
        assert_eq!((of(Some("eu")).all, of(Some("eu")).id), (vec!["us".to_owned(), "eu".to_owned()], "eu".to_owned()));
        for good in ["shard", "a", "example.com/a-b_c.D", SHARD_LABEL] {
            assert_eq!(label_key(good).as_deref(), Ok(good));
        }
    }

    #[test]
    fn what_commands_share_has_the_same_variables() {
        let mut command = Cli::command();
        let shared = [
            ("cluster_name", "RELAYBOOK_CLUSTER_NAME"),
            ("allow_http", "RELAYBOOK_ALLOW_HTTP"),
            ("config_map", "RELAYBOOK_CONFIG_MAP"),
            ("controller_namespace", "RELAYBOOK_CONTROLLER_NAMESPACE"),
            ("context", "RELAYBOOK_CONTEXT"),
        ];
        for (name, without) in
            [("run", &["controller_namespace"][..]), ("explain", &[]), ("render", &[]), ("lint", &["context"])]
        {
            let command = command.find_subcommand_mut(name).unwrap();
            for (argument, variable) in shared.iter().filter(|(argument, _)| !without.contains(argument)) {
                let found = command.get_arguments().find(|a| a.get_id() == argument).and_then(clap::Arg::get_env);
                assert_eq!(found.and_then(|v| v.to_str()), Some(*variable), "{name}");
            }
        }
        for bad in [
            &["audit", "-A", "-n", "a"][..],
            &["redeliver", "--parked", "-A", "-n", "a"],
            &["redeliver", "-A", "a"],
            &["promotions", "-A", "-n", "a"],
            &["promote", "web"],
            &["approve", "delivery/web", "prod"],
        ] {
            assert!(Cli::try_parse_from(std::iter::once(&"relaybook").chain(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_complaint_and_no_help_shows_the_password_of_a_proxy() {
        let run = |proxy: &str| Cli::try_parse_from(["relaybook", "run", "--proxy", proxy]);
        let cli = run("http://someone:sesame@proxy.example:3128").unwrap();
        assert!(format!("{cli:?}").contains("proxy.example:3128"), "{cli:?}");
        assert!(!format!("{cli:?}").contains("sesame"), "{cli:?}");
        for (url, word) in [
            ("http://someone:ses/ame@proxy.example", "is not a URL"),
            ("socks5://someone:sesame@proxy.example", "must begin with http:// or https://"),
            ("http://someone:sesame@proxy.example/path", "must have no path"),
            ("someone:sesame@proxy.example:3128", "must begin with"),
            ("", "is not a URL"),
        ] {
            let error = run(url).unwrap_err();
            let (text, debug) = (error.to_string(), format!("{error:?}"));
            assert!(text.contains("--proxy") && text.contains(word) && error.exit_code() == 2, "{text}");
            assert!(!text.contains("ses") && !debug.contains("ses"), "{text} {debug}");
        }
        let mut command = Cli::command();
        let proxy = command.find_subcommand_mut("run").unwrap().get_arguments().find(|a| a.get_id() == "proxy").unwrap();
        assert!(proxy.is_hide_env_values_set(), "--help would show the value of the variable");
    }

    #[test]
    fn definitions_come_back_from_their_yaml() {
        for crd in relaybook_api::crds() {
            let text = serde_saphyr::to_string(&crd).unwrap();
            let back: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(back, serde_json::to_value(&crd).unwrap());
        }
    }
}
