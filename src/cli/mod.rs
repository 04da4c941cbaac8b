//! The command line: turns arguments into one call of the library.
//!
//! In: arguments and `RELAYBOOK_…` variables. Out: data on stdout, messages on stderr, and an exit code: 0 for yes, otherwise as
//! `shared/exit.rs` says.

mod audit;
mod check;
mod complete;
mod convert;
#[cfg(test)]
mod docs;
mod explain;
mod init;
mod lint;
mod man;
mod page;
mod promote;
mod promotions;
mod redeliver;
mod render;
mod run;
mod setters;
mod shared;
mod status;
mod suspend;
mod templates;
mod test;
mod version;
mod wait;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::CompleteEnv;
use clap_complete::env::Shells;

use crate::app::Access;
use crate::options::Options;
use relaybook_telemetry::chain;
use shared::exit::{self, Code, Ended};
use shared::failure;

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
    Run(Box<Options>),
    /// Print the custom resource definitions as YAML.
    Crds,
    /// Write the first Pipeline or `PipelineSets`, and the first Notifications. On a terminal, it asks for what is missing.
    Init(Box<init::InitArgs>),
    /// Convert notifications of another program to manifests, with a report about each field.
    Convert(Box<convert::ConvertArgs>),
    /// Check manifests without a cluster: schema, rules, templates, triggers.
    Lint(Box<lint::LintArgs>),
    /// Show the requests that a Notification would send, with secrets masked.
    Render(Box<render::RenderArgs>),
    /// Show the effective settings of a pipeline's targets, with the layer that set each field.
    Explain(Box<explain::ExplainArgs>),
    /// List the templates that come with Relaybook, or show one to start from.
    Templates(templates::TemplatesArgs),
    /// Show what is wrong, worst first, with the remedy, and what runs where.
    Status(Box<status::StatusArgs>),
    /// Wait until an environment runs a revision.
    Wait(Box<wait::WaitArgs>),
    /// Show deliveries: what was sent, when, and what the receiver answered.
    Audit(Box<audit::AuditArgs>),
    /// Send settled deliveries again, with the same `webhook-id`, without waiting for other deliveries.
    Redeliver(Box<redeliver::RedeliverArgs>),
    /// Send a sample to the receiver of a Notification. The test says that it is one, and changes no real status or alert.
    Test(Box<test::TestArgs>),
    /// Show promotions: which revision goes to which environment, and what became of it.
    Promotions(Box<promotions::PromotionsArgs>),
    /// Start a promotion: the revision of the environment before goes to an environment.
    Promote(Box<promote::PromoteArgs>),
    /// Approve the promotion that waits for it.
    Approve(Box<promote::ApproveArgs>),
    /// Suspend a Notification, or the promotions of a Pipeline. What happens meanwhile is recorded, and waits.
    Suspend(Box<suspend::SuspendArgs>),
    /// Resume what was suspended. What waits is sent.
    Resume(Box<suspend::ResumeArgs>),
    /// Set the values that comments mark in YAML files, or list them, without a cluster.
    Setters(Box<setters::SettersArgs>),
    /// Open the audit page in the browser: pipelines, what was sent, and what the receivers answered.
    Page(Box<page::PageArgs>),
    /// Check an installation: CRDs, permissions of the controller, readiness.
    Check(Box<check::CheckArgs>),
    /// Print the versions of this program, the controllers, the CRDs and the API server.
    Version(Box<version::VersionArgs>),
    /// Print the completion script for a shell.
    #[command(alias = "completions")]
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command.
    Man(man::ManArgs),
}

impl Cli {
    /// Parses the arguments of the process. As a plugin of kubectl (`kubectl-relaybook`), it has the name `kubectl relaybook` in its help. If a
    /// shell asks for candidates, they are printed, and the process ends.
    #[must_use]
    pub fn of_process() -> Self {
        CompleteEnv::with_factory(Self::command).bin(NAME).completer(NAME).complete();
        let started = std::env::args_os().next().unwrap_or_default();
        let matches = Self::command().bin_name(name(Path::new(&started))).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Runs the command.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let is_controller = matches!(self.command, Command::Run(_));
        let result = match self.command {
            Command::Run(options) => run::run(*options),
            Command::Crds => crds(),
            Command::Init(args) => run_on_cluster(&args.place.access.clone(), init::init(*args)),
            Command::Convert(args) => run_on_cluster(&args.access(), convert::convert(*args)),
            Command::Lint(args) => lint::lint(*args),
            Command::Render(args) => run_on_cluster(&args.place.access.clone(), render::render(*args)),
            Command::Explain(args) => run_on_cluster(&args.place.access.clone(), explain::explain(*args)),
            Command::Templates(args) => templates::templates(&args),
            Command::Status(args) => run_on_cluster(&args.scope.place.access.clone(), status::status(*args)),
            Command::Wait(args) => run_on_cluster(&args.place.access.clone(), wait::wait(*args)),
            Command::Audit(args) => run_on_cluster(&args.scope.place.access.clone(), audit::audit(*args)),
            Command::Redeliver(args) => run_on_cluster(&args.scope.place.access.clone(), redeliver::redeliver(*args)),
            Command::Test(args) => run_on_cluster(&args.place.access.clone(), test::test(*args)),
            Command::Promotions(args) => run_on_cluster(&args.scope.place.access.clone(), promotions::promotions(*args)),
            Command::Promote(args) => run_on_cluster(&args.place.access.clone(), promote::promote(*args)),
            Command::Approve(args) => run_on_cluster(&args.place.access.clone(), promote::approve(*args)),
            Command::Suspend(args) => run_on_cluster(&args.place.access.clone(), suspend::suspend(*args)),
            Command::Resume(args) => run_on_cluster(&args.place.access.clone(), suspend::resume(*args)),
            Command::Setters(args) => setters::setters(&args),
            Command::Page(args) => run_on_cluster(&args.access.clone(), page::page(*args)),
            Command::Check(args) => run_on_cluster(&args.access.clone(), check::check(*args)),
            Command::Version(args) => run_on_cluster(&args.access.clone(), version::version(*args)),
            Command::Completion { shell } => completion(shell),
            Command::Man(args) => man::man(&args, Self::command()),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            // The program that reads the output has closed the pipe, as `head` does. This is not a failure.
            Err(error) if !is_controller && failure::is_closed_pipe(error.as_ref()) => ExitCode::SUCCESS,
            Err(error) => {
                if !exit::is_quiet(error.as_ref()) {
                    let _ = writeln!(std::io::stderr(), "relaybook: {}", chain(error.as_ref()));
                }
                if is_controller { ExitCode::FAILURE } else { exit::code(error.as_ref()).into() }
            }
        }
    }
}

/// Runs a command that uses an API server. If a call of the API server fails, the error is one sentence.
fn run_on_cluster(access: &Access, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let all = async {
        match work.await {
            Err(error) if failure::is_of_server(error.as_ref()) => {
                let text = failure::sentence(error.as_ref(), &access.server().await);
                Err(Ended::new(Code::Unanswered, text).into())
            }
            done => done,
        }
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(all)
}

/// The name of the program.
const NAME: &str = "relaybook";

/// Returns the name with which the process was started.
fn name(started: &Path) -> &'static str {
    let is_plugin = started.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kubectl-"));
    if is_plugin { "kubectl relaybook" } else { NAME }
}

/// Prints the script that lets a shell ask this program for candidates. It stays valid when the program is upgraded.
fn completion(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let (shells, mut text) = (Shells::builtins(), Vec::new());
    let shell = shells.completer(&shell.to_string()).context("this shell is not known")?;
    shell.write_registration("COMPLETE", NAME, NAME, NAME, &mut text)?;
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
    fn invalid_options_are_refused() {
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
    fn the_plugin_of_kubectl_has_its_name_in_the_help() {
        for (started, expected) in
            [("/usr/bin/relaybook", "Usage: relaybook explain"), ("kubectl-relaybook", "Usage: kubectl relaybook explain")]
        {
            let mut command = Cli::command().bin_name(name(Path::new(started)));
            let error = command.try_get_matches_from_mut([started, "explain", "--help"]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn shared_options_have_the_same_environment_variables_in_each_command() {
        let mut command = Cli::command();
        let shared = [
            ("cluster_name", "RELAYBOOK_CLUSTER_NAME"),
            ("allow_http", "RELAYBOOK_ALLOW_HTTP"),
            ("config_map", "RELAYBOOK_CONFIG_MAP"),
            ("controller_namespace", "RELAYBOOK_CONTROLLER_NAMESPACE"),
            ("context", "RELAYBOOK_CONTEXT"),
        ];
        for (name, without) in [
            ("run", &["controller_namespace"][..]),
            ("explain", &[]),
            ("render", &[]),
            ("lint", &["context"]),
            ("check", &["cluster_name", "allow_http"]),
            ("version", &["cluster_name", "allow_http", "config_map"]),
        ] {
            let command = command.find_subcommand_mut(name).unwrap();
            for (argument, variable) in shared.iter().filter(|(argument, _)| !without.contains(argument)) {
                let found = command.get_arguments().find(|a| a.get_id() == argument).and_then(clap::Arg::get_env);
                assert_eq!(found.and_then(|v| v.to_str()), Some(*variable), "{name}");
            }
        }
        for bad in [
            &["audit", "web", "--pipeline", "web"][..],
            &["redeliver", "-A", "a"],
            &["redeliver", "-A"],
            &["promote", "web"],
            &["approve", "delivery/web", "prod"],
        ] {
            assert!(Cli::try_parse_from(std::iter::once(&"relaybook").chain(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn all_namespaces_take_precedence_over_one_and_earlier_names_are_accepted() {
        for good in [
            &["audit", "-A", "-n", "a"][..],
            &["audit", "pipeline/web", "-o", "name"],
            &["redeliver", "--parked", "-A", "-n", "a"],
            &["promotions", "-A", "-n", "a", "-o", "yaml"],
            &["status", "-A", "-n", "a"],
            &["check", "-n", "a"],
            &["check", "--namespace", "a"],
            &["completions", "bash"],
        ] {
            let parsed = Cli::try_parse_from(std::iter::once(&"relaybook").chain(good));
            assert!(parsed.is_ok(), "{good:?}: {:?}", parsed.err());
        }
    }

    #[test]
    fn no_error_and_no_help_shows_the_password_of_a_proxy() {
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
    fn crds_are_read_back_from_their_yaml_unchanged() {
        for crd in relaybook_api::crds() {
            let text = serde_saphyr::to_string(&crd).unwrap();
            let back: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(back, serde_json::to_value(&crd).unwrap());
        }
    }
}
