//! `relaybook convert`: notifications and pipelines of another program as manifests.
//!
//! In: files of the other program, or with `--live` its objects in a cluster. Out: manifests that `relaybook lint` accepts, in files or on stdout, and a report about each field. Errors and
//! problems leave nothing behind.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::lint::counted;
use super::shared::Scope;
use super::shared::exit::{Code, Ended};
use super::shared::files::{ManifestFile, read_manifests};
use super::shared::write::write;
use crate::app::Access;
use crate::options::values::{CLUSTER_NAME, CONFIG_MAP, NAMESPACE};
use relaybook_api::ObjectName;
use relaybook_text::escaped;
use relaybook_tools::convert::live::{self, Kind};
use relaybook_tools::convert::{Conversion, Input, Item, List, Options, argocd, check, flux, kargo, weave};
use relaybook_tools::lint;

#[derive(Debug, Args)]
pub(super) struct ConvertArgs {
    #[command(subcommand)]
    program: Program,
}

impl ConvertArgs {
    /// Returns the access to the cluster, for `--live`.
    pub(super) fn access(&self) -> Access {
        let files = match &self.program {
            Program::Flux(args) | Program::Argocd(args) => &args.files,
            Program::Weave(args) | Program::Kargo(args) => args,
        };
        files.scope.place.access.clone()
    }
}

/// The program whose objects are converted.
#[derive(Debug, Subcommand)]
enum Program {
    /// Convert Alerts and Providers of Flux to `PipelineSets`, Pipelines and Notifications. Of Secrets, only the names of their keys are
    /// used.
    Flux(NotificationArgs),
    /// Convert the configuration and the subscriptions of Argo CD Notifications to `PipelineSets` and Notifications. Secrets are referred to, and
    /// never read.
    Argocd(NotificationArgs),
    /// Convert Pipelines of Weave GitOps to Pipelines. Their promotions are suspended.
    Weave(FileArgs),
    /// Convert the names of Stages of Kargo to Pipelines that follow their Applications of Argo CD.
    Kargo(FileArgs),
}

/// What differs between the programs.
struct Words {
    command: &'static str,
    run: fn(&[Input], &Options) -> Conversion,
    /// The kinds of which one has to be in the input.
    kinds: &'static [&'static str],
    missing: &'static str,
    none: &'static str,
    /// What `--live` lists.
    live: &'static [Kind],
    /// What to do with the manifests.
    next: [&'static str; 2],
}

const fn kind(group: &'static str, kind: &'static str) -> Kind {
    Kind { group, kind, name: None }
}

const FLUX: Words = Words {
    command: "relaybook convert flux",
    run: flux,
    kinds: &["Alert", "Provider"],
    missing: "no Alert and no Provider of Flux",
    none: "no Alert has a counterpart",
    live: &[kind("notification.toolkit.fluxcd.io", "Alert"), kind("notification.toolkit.fluxcd.io", "Provider")],
    next: [
        "To switch without a gap, apply the manifests, compare the messages of both, and delete the Alerts.",
        "To switch without double messages, convert with --no-triggers: docs/migrate-flux.md has the steps.",
    ],
};
const ARGOCD: Words = Words {
    command: "relaybook convert argocd",
    run: argocd,
    kinds: &["ConfigMap", "NotificationsConfiguration"],
    missing: "no ConfigMap argocd-notifications-cm",
    none: "no subscription has a counterpart; the input needs the Applications and AppProjects that subscribe, too",
    live: &[
        Kind { group: "", kind: "ConfigMap", name: Some("argocd-notifications-cm") },
        kind("argoproj.io", "NotificationsConfiguration"),
        kind("argoproj.io", "Application"),
        kind("argoproj.io", "AppProject"),
    ],
    next: [
        "To switch without a gap, apply the manifests, compare the messages of both, and stop the notifications controller of Argo CD. \
         Keep the subscriptions, because Relaybook reads them.",
        "To switch without double messages, convert with --no-triggers: docs/migrate-argocd.md has the steps.",
    ],
};
const WEAVE: Words = Words {
    command: "relaybook convert weave",
    run: weave,
    kinds: &["Pipeline"],
    missing: "no Pipeline of Weave GitOps",
    none: "no Pipeline is complete",
    live: &[kind("pipelines.weave.works", "Pipeline")],
    next: [
        "Apply the manifests. All promotions are suspended, so both programs cannot promote at the same time.",
        "docs/promotions-weave-gitops.md has the steps to switch.",
    ],
};
const KARGO: Words = Words {
    command: "relaybook convert kargo",
    run: kargo,
    kinds: &["Stage"],
    missing: "no Stage of Kargo",
    none: "no Application of the input belongs to a Stage; the input needs the Applications, too",
    live: &[kind("kargo.akuity.io", "Stage"), kind("argoproj.io", "Application")],
    next: [
        "The Pipelines only follow the Applications: Kargo continues to promote.",
        "Add Notifications: relaybook init writes one.",
    ],
};

/// Options for what sends notifications.
#[derive(Debug, Args)]
struct NotificationArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Write the triggers as comments, so that nothing is sent until you activate them.
    #[arg(long)]
    no_triggers: bool,
}

#[derive(Debug, Args)]
struct FileArgs {
    /// Files with manifests, in YAML or JSON. `-` is stdin. In a folder, all *.yaml, *.yml and *.json files below it.
    #[arg(value_name = "FILE", required_unless_present = "live")]
    files: Vec<PathBuf>,
    /// Convert the objects of the cluster, with your rights. No Secret is read. Files can add what the cluster does not have.
    #[arg(long)]
    live: bool,
    /// The folder for the manifests [default: stdout].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Replace files that exist.
    #[arg(long, requires = "dir")]
    force: bool,
    /// Also write the report to this file, in JSON: `{files, steps, items}`.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// End with 1 if a field differs or has no counterpart.
    #[arg(long)]
    strict: bool,
    /// The output format.
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// Allow http to any host, as `relaybook run --allow-http` does.
    #[arg(long, env = "RELAYBOOK_ALLOW_HTTP")]
    allow_http: bool,
    #[command(flatten)]
    scope: Scope,
}

impl FileArgs {
    /// Returns the namespace of objects without a namespace.
    fn namespace(&self) -> String {
        self.scope.place.namespace.clone().unwrap_or_else(|| "default".to_owned())
    }

    /// Reads the files, or the objects of the cluster.
    async fn inputs(&self, words: &Words) -> anyhow::Result<Vec<Input>> {
        let mut inputs = Vec::new();
        if self.live {
            let (client, namespace) = self.scope.open().await?;
            let listed = live::list(&client, words.live, namespace.as_deref()).await?;
            for forbidden in listed.forbidden {
                writeln!(io::stderr(), "relaybook: cannot list {}; the output does not include them", escaped(&forbidden))?;
            }
            inputs = listed.inputs;
        }
        for named in &self.files {
            let files = read_manifests(named, words.command)?.into_iter();
            inputs.extend(files.map(|ManifestFile { name, text, is_found }| Input { name, text, is_found }));
        }
        Ok(inputs)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The manifests, or the names of their files, and what a person must read. Fields that were converted or ignored are counted.
    Text,
    /// One object: `{files, steps, items}`. Each field of the input is in one item: `{list, file, line, kind, name, field, text}`.
    Json,
}

/// The output in JSON.
#[derive(Debug, Serialize)]
struct Whole<'a> {
    files: Vec<Made<'a>>,
    steps: &'a [String],
    items: &'a [Item],
}

/// A manifest in JSON.
#[derive(Debug, Serialize)]
struct Made<'a> {
    file: &'a str,
    about: &'a str,
    text: &'a str,
}

/// Converts files, or the objects of a cluster. The error says that there is an error in the input, that nothing was found, or with `--strict` that something differs.
pub(super) async fn convert(args: ConvertArgs) -> anyhow::Result<()> {
    let (args, no_triggers, words) = match args.program {
        Program::Flux(args) => (args.files, args.no_triggers, &FLUX),
        Program::Argocd(args) => (args.files, args.no_triggers, &ARGOCD),
        Program::Weave(args) => (args, false, &WEAVE),
        Program::Kargo(args) => (args, false, &KARGO),
    };
    let inputs = args.inputs(words).await?;
    let options = Options { namespace: args.namespace(), no_triggers };
    let conversion = (words.run)(&inputs, &options);
    let errors = conversion.report.of(List::Error).count();
    if errors == 0 {
        lint(&conversion, &args)?;
    }
    let paths = match &args.dir {
        Some(dir) if !conversion.manifests.is_empty() => write(dir, &conversion.manifests, args.force, "--dir")?,
        _ => Vec::new(),
    };
    if let Some(file) = &args.report {
        let mut report = Vec::new();
        json(&conversion, &mut report)?;
        fs::write(file, report)
            .with_context(|| format!("the report cannot be written to {}", escaped(&file.display().to_string())))?;
    }
    match args.output {
        Output::Json => json(&conversion, &mut io::stdout().lock())?,
        Output::Text => text(&conversion, words, args.dir.as_deref(), &paths)?,
    }
    outcome(&conversion, words, &args, errors)
}

/// Returns the answer of the command.
fn outcome(conversion: &Conversion, words: &Words, args: &FileArgs, errors: usize) -> anyhow::Result<()> {
    let report = &conversion.report;
    let no = |text: String| Err(Ended::new(Code::No, text).into());
    if errors > 0 {
        return no(format!("{}; nothing was converted", counted(errors, "error")));
    }
    if !report.items.iter().any(|item| words.kinds.contains(&item.kind.as_str()) && !item.field.is_empty()) {
        let named: Vec<_> = args.files.iter().map(|file| escaped(&file.display().to_string())).collect();
        let places: Vec<_> = args.live.then(|| "the cluster".to_owned()).into_iter().chain(named).collect();
        return no(format!("found {} in {}", words.missing, places.join(", ")));
    }
    if conversion.manifests.is_empty() {
        return no(format!("nothing was converted: {}", words.none));
    }
    let differences = report.of(List::Differs).chain(report.of(List::NoCounterpart)).count();
    if args.strict && differences > 0 {
        return no(format!("{} with another effect, or without a counterpart", counted(differences, "field")));
    }
    Ok(())
}

/// Lints the manifests. The error says that nothing was written.
fn lint(conversion: &Conversion, args: &FileArgs) -> anyhow::Result<()> {
    let options = lint::Options {
        namespace: args.namespace(),
        config_map: ObjectName::new(NAMESPACE, CONFIG_MAP),
        cluster_name: CLUSTER_NAME.to_owned(),
        allow_http: args.allow_http,
        cross_namespace_refs: true,
    };
    let report = check(conversion, &options)?;
    if report.findings.is_empty() {
        return Ok(());
    }
    for finding in &report.findings {
        writeln!(io::stderr(), "{}", escaped(&finding.to_string()))?;
    }
    let problems = counted(report.findings.len(), "problem");
    let text = format!("the manifests would have {problems}; nothing was written; change the input");
    Err(Ended::new(Code::No, text).into())
}

fn json(conversion: &Conversion, out: &mut impl Write) -> anyhow::Result<()> {
    let made = conversion.manifests.iter();
    let files = made.map(|one| Made { file: &one.file, about: &one.about, text: &one.text }).collect();
    let whole = Whole { files, steps: &conversion.steps, items: &conversion.report.items };
    writeln!(out, "{}", serde_json::to_string_pretty(&whole)?)?;
    Ok(out.flush()?)
}

/// Prints the manifests on stdout and the report on stderr. If there are files, their names and the report are on stdout.
fn text(conversion: &Conversion, words: &Words, dir: Option<&Path>, paths: &[String]) -> anyhow::Result<()> {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    if dir.is_some() {
        let width = paths.iter().map(|path| path.chars().count()).max().unwrap_or_default();
        for (path, manifest) in paths.iter().zip(&conversion.manifests) {
            writeln!(out, "{:width$}   {}", escaped(path), manifest.about)?;
        }
        lines(conversion, words, &mut out)?;
        return Ok(out.flush()?);
    }
    for (at, manifest) in conversion.manifests.iter().enumerate() {
        write!(out, "{}{}", if at > 0 { "---\n" } else { "" }, manifest.text)?;
    }
    out.flush()?;
    lines(conversion, words, &mut err)
}

/// Prints the report, and what to do.
fn lines(conversion: &Conversion, words: &Words, to: &mut impl Write) -> anyhow::Result<()> {
    for line in conversion.report.lines() {
        writeln!(to, "{}", escaped(&line))?;
    }
    if !conversion.steps.is_empty() {
        writeln!(to, "BEFORE YOU APPLY")?;
        for step in &conversion.steps {
            writeln!(to, "  {}", escaped(step))?;
        }
    }
    if !conversion.manifests.is_empty() {
        for line in words.next {
            writeln!(to, "{line}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::Cli;

    #[test]
    fn a_program_and_a_file_are_required() {
        for bad in [
            &["convert"][..],
            &["convert", "flux"],
            &["convert", "helm", "a"],
            &["convert", "weave", "a", "--no-triggers"],
            &["convert", "flux", "a", "--force"],
        ] {
            let error = Cli::try_parse_from([&["relaybook"][..], bad].concat()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad:?}");
        }
        let good =
            ["relaybook", "convert", "flux", "a", "-", "--dir", "out", "--force", "--strict", "--no-triggers", "-o", "json"];
        assert!(Cli::try_parse_from(good).is_ok());
        assert!(Cli::try_parse_from(["relaybook", "convert", "flux", "--live", "-A", "--report", "report.json"]).is_ok());
        for program in ["argocd", "weave", "kargo"] {
            assert!(Cli::try_parse_from(["relaybook", "convert", program, "-", "--strict"]).is_ok(), "{program}");
        }
    }
}
