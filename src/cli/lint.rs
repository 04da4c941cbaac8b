//! `pennant lint`: manifests, checked without a cluster.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use super::files::read;
use super::shared::Installation;
use crate::lint::{Options, Report, lint as check};

#[derive(Debug, Args)]
pub(super) struct LintArgs {
    /// Files with manifests, in YAML or JSON; `-` is stdin; of a folder, its *.yaml, *.yml and *.json.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// How it is printed.
    #[arg(short, long, default_value = "text")]
    output: Output,
    /// The namespace of objects that name none.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    #[command(flatten)]
    installation: Installation,
    /// Refuse targets outside the pipeline's own namespace, as `pennant run --no-cross-namespace-refs` does.
    #[arg(long, env = "PENNANT_NO_CROSS_NAMESPACE_REFS")]
    no_cross_namespace_refs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line each: `FILE:LINE: KIND NAME: FIELD: MESSAGE`.
    Text,
    /// A list of `{file, line, kind, name, field, message, source}`.
    Json,
}

/// Prints what is wrong. The error counts it.
pub(super) fn lint(args: LintArgs) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for named in &args.files {
        for file in within(named)? {
            let name = if file.as_os_str() == "-" { "<stdin>".to_owned() } else { file.display().to_string() };
            files.push((name, read(&file)?));
        }
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
        writeln!(std::io::stderr(), "pennant: {note}")?;
    }
    let (problems, objects) = (counted(report.findings.len(), "problem"), counted(report.objects, "object"));
    anyhow::ensure!(report.findings.is_empty(), "{problems}, {objects} checked");
    writeln!(std::io::stderr(), "pennant: no problems, {objects} checked")?;
    Ok(())
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The file itself, or the manifests of a folder.
fn within(named: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !named.is_dir() {
        return Ok(vec![named.to_owned()]);
    }
    let entries = std::fs::read_dir(named).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.with_context(|| format!("{} cannot be read", named.display()))?;
    let is_manifest = |file: &PathBuf| {
        file.is_file() && file.extension().and_then(OsStr::to_str).is_some_and(|e| ["yaml", "yml", "json"].contains(&e))
    };
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(is_manifest).collect();
    files.sort();
    Ok(files)
}

fn print(report: &Report, output: Output) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
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
