//! `relaybook lint`: checks manifests without a cluster.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::shared::Installation;
use super::shared::files::{ManifestFile, read_manifests};
use relaybook_tools::lint::{File, Options, Report, lint as check};

#[derive(Debug, Args)]
pub(super) struct LintArgs {
    /// Files with manifests, in YAML or JSON. `-` is stdin. In a folder, all *.yaml, *.yml and *.json files below it.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The output format.
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// The namespace of objects without a namespace.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    #[command(flatten)]
    installation: Installation,
    /// Refuse targets outside the pipeline's own namespace, as `relaybook run --no-cross-namespace-refs` does.
    #[arg(long, env = "RELAYBOOK_NO_CROSS_NAMESPACE_REFS")]
    no_cross_namespace_refs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One line for each problem: `FILE:LINE: KIND NAME: FIELD: MESSAGE`.
    Text,
    /// A list of `{file, line, kind, name, field, message, source}`.
    Json,
}

/// Prints the problems. The error contains their number, or reports that nothing was checked.
pub(super) fn lint(args: LintArgs) -> anyhow::Result<()> {
    let (mut files, mut number) = (Vec::new(), 0);
    for named in &args.files {
        number += add(named, &mut files)?;
    }
    let options = Options {
        namespace: args.namespace,
        config_map: args.installation.config_map(),
        cluster_name: args.installation.cluster_name,
        allow_http: args.installation.allow_http,
        cross_namespace_refs: !args.no_cross_namespace_refs,
    };
    let report = check(&files, &options)?;
    print(&report, args.output)?;
    for note in &report.notes {
        writeln!(io::stderr(), "relaybook: {note}")?;
    }
    let (problems, objects) = (counted(report.findings.len(), "problem"), counted(report.objects, "object"));
    anyhow::ensure!(report.findings.is_empty(), "{problems}, {objects} checked");
    anyhow::ensure!(report.objects > 0, "nothing was checked: {}", nothing(&args.files, number));
    writeln!(io::stderr(), "relaybook: no problems, {objects} checked")?;
    Ok(())
}

/// Returns why nothing was checked.
fn nothing(named: &[PathBuf], files: usize) -> String {
    let named = named.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    if files == 0 {
        return format!("found no *.yaml, *.yml or *.json file in {named}");
    }
    format!("found no Pipeline, no Notification and no global configuration in {named} ({} read)", counted(files, "file"))
}

/// Returns a number with its noun, in the plural if necessary.
pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Adds the file itself, or the manifests in a folder and its subfolders. Returns how many files were read.
fn add(named: &Path, files: &mut Vec<File>) -> anyhow::Result<usize> {
    let read = read_manifests(named, "relaybook lint")?;
    let number = read.len();
    for ManifestFile { name, text, is_found } in read {
        if is_found { files.extend(File::found(&name, text)) } else { files.push(File::named(&name, text)) }
    }
    Ok(number)
}

fn print(report: &Report, output: Output) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&report.findings)?)?,
        Output::Text => {
            for finding in &report.findings {
                writeln!(out, "{finding}")?;
            }
        }
    }
    Ok(out.flush()?)
}
