//! `relaybook setters`: sets the values that comments mark in YAML files, or lists them, without a cluster.

mod tree;

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::lint::counted;
use relaybook_settings::setters::{
    Change, Edit, EnvironmentRef, NoSetters, Part, Problem, Revision, Setter, edit, scan, unified,
};
use relaybook_text::escaped;
use tree::YamlFile;

#[derive(Debug, Args)]
pub(super) struct SettersArgs {
    /// Files, or folders with *.yaml and *.yml files below them.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Set the values that are marked with this environment, and show the difference [default: list all setters].
    #[arg(long, value_name = "NAMESPACE:PIPELINE:ENVIRONMENT", requires = "revision")]
    promotion: Option<EnvironmentRef>,
    /// The revision to set.
    // A revision comes from a cluster. One that starts with a dash must not become another flag.
    #[arg(long, requires = "promotion", allow_hyphen_values = true)]
    revision: Option<String>,
    /// Write the files. Without this flag, the difference is only shown.
    #[arg(long, requires = "promotion")]
    write: bool,
    /// The output format.
    #[arg(short, long, default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// With `--promotion` a unified diff, otherwise one line for each setter: `FILE:LINE: NAMESPACE:PIPELINE:ENVIRONMENT: VALUE`.
    Text,
    /// A list of `{file, line, namespace, pipeline, environment, part, value}`, with `--promotion` also `newValue`.
    Json,
}

/// One value in the output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    file: &'a str,
    line: u64,
    #[serde(flatten)]
    environment: &'a EnvironmentRef,
    part: Part,
    value: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_value: Option<&'a str>,
}

/// Sets or lists the values. The error says that nothing was found, or how many problems there are.
pub(super) fn setters(args: &SettersArgs) -> anyhow::Result<()> {
    let tree = tree::read(&args.paths)?;
    for note in &tree.notes {
        writeln!(io::stderr(), "relaybook: {}", escaped(note))?;
    }
    match (&args.promotion, &args.revision) {
        (Some(environment), Some(revision)) => set(args, &tree.files, environment, &Revision::new(revision)?),
        _ => list(args, &tree.files),
    }
}

/// Returns the paths of the command, for messages.
fn named(args: &SettersArgs) -> String {
    args.paths.iter().map(|path| escaped(&path.display().to_string())).collect::<Vec<_>>().join(", ")
}

fn list(args: &SettersArgs, files: &[YamlFile]) -> anyhow::Result<()> {
    anyhow::ensure!(!files.is_empty(), "found no *.yaml or *.yml file in {}", named(args));
    let found: Vec<_> = files.iter().map(|file| (file, scan(&file.text))).collect();
    let setters: Vec<_> =
        found.iter().flat_map(|(file, all)| all.setters.iter().map(move |setter| (file.name.as_str(), setter))).collect();
    match args.output {
        Output::Json => print_json(&setters.iter().map(|(file, setter)| listed(file, setter)).collect::<Vec<_>>())?,
        Output::Text => {
            let mut out = io::stdout().lock();
            for (file, Setter { line, environment, part, value, .. }) in &setters {
                writeln!(out, "{file}:{line}: {environment}{}: {}", part.suffix(), escaped(value))?;
            }
            out.flush()?;
        }
    }
    let problems: Vec<_> =
        found.iter().flat_map(|(file, all)| all.problems.iter().map(move |problem| (file.name.as_str(), problem))).collect();
    report(&problems)?;
    anyhow::ensure!(problems.is_empty(), "{}", counted(problems.len(), "problem"));
    if setters.is_empty() {
        writeln!(io::stderr(), "no setters found")?;
    }
    Ok(())
}

fn listed<'a>(file: &'a str, setter: &'a Setter) -> Row<'a> {
    let Setter { line, environment, part, value, .. } = setter;
    Row { file, line: *line, environment, part: *part, value, new_value: None }
}

fn set(args: &SettersArgs, files: &[YamlFile], environment: &EnvironmentRef, revision: &Revision) -> anyhow::Result<()> {
    let (mut edits, mut problems) = (Vec::new(), Vec::new());
    for file in files {
        match edit(&file.text, environment, revision) {
            Ok(edit) => edits.extend(edit.map(|edit| (file, edit))),
            Err(found) => problems.extend(found.into_iter().map(|problem| (file.name.as_str(), problem))),
        }
    }
    report(&problems.iter().map(|(file, problem)| (*file, problem)).collect::<Vec<_>>())?;
    anyhow::ensure!(problems.is_empty(), "{}; no file is changed", counted(problems.len(), "problem"));
    if edits.is_empty() {
        return Err(NoSetters { paths: named(args), environment: environment.clone() }.into());
    }
    if args.write {
        // The files are written first: the reader of a pipe must not decide which files are.
        for (file, edit) in edits.iter().filter(|(file, edit)| file.text != edit.text) {
            tree::replace(file, &edit.text)?;
        }
    }
    print_edits(args.output, &edits, environment)?;
    Ok(writeln!(io::stderr(), "relaybook: {}", summary(args.write, &edits))?)
}

fn print_edits(output: Output, edits: &[(&YamlFile, Edit)], environment: &EnvironmentRef) -> anyhow::Result<()> {
    match output {
        Output::Json => {
            let rows = edits
                .iter()
                .flat_map(|(file, edit)| edit.changes.iter().map(move |change| edited(&file.name, environment, change)));
            print_json(&rows.collect::<Vec<_>>())
        }
        Output::Text => {
            let mut out = io::stdout().lock();
            for (file, edit) in edits {
                write!(out, "{}", unified(&file.name, &file.text, &edit.text))?;
            }
            Ok(out.flush()?)
        }
    }
}

fn edited<'a>(file: &'a str, environment: &'a EnvironmentRef, change: &'a Change) -> Row<'a> {
    let Change { line, part, old, new, .. } = change;
    Row { file, line: *line, environment, part: *part, value: old, new_value: Some(new) }
}

/// Returns what was done, or would be done.
fn summary(is_written: bool, edits: &[(&YamlFile, Edit)]) -> String {
    let all: usize = edits.iter().map(|(_, edit)| edit.changes.len()).sum();
    let number = |edit: &Edit| edit.changes.iter().filter(|change| change.is_edit).count();
    let (changed, files) = edits
        .iter()
        .map(|(_, edit)| number(edit))
        .filter(|number| *number > 0)
        .fold((0, 0), |(changed, files), number| (changed + number, files + 1));
    let (values, files) = (counted(changed, "value"), counted(files, "file"));
    match (changed, is_written) {
        (0, _) => format!("nothing to change: {} set already", counted(all, "value")),
        (_, true) => format!("{values} set in {files}"),
        (_, false) => format!("{values} to set in {files}; --write writes them"),
    }
}

fn print_json(rows: &[Row<'_>]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string_pretty(rows)?)?;
    Ok(out.flush()?)
}

/// Prints problems to stderr, so that stdout is always a diff or a list.
fn report(problems: &[(&str, &Problem)]) -> io::Result<()> {
    problems.iter().try_for_each(|(file, Problem { line, error, .. })| {
        writeln!(io::stderr(), "relaybook: {file}:{line}: {}", escaped(&error.to_string()))
    })
}
