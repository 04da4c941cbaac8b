//! `relaybook man`: writes a man page for each command.
//!
//! In: the program with its commands, as clap knows them, and a folder. Out: one file for each command, such as `relaybook-audit.1`, with
//! its options, its exit codes, and the files that it reads.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::NAME;
use relaybook_text::escaped;

/// The exit codes of all commands but `run`, as `docs/commands.md` has them.
const CODES: [(&str, &str); 6] = [
    (
        "0",
        "Yes: done, true, or without problems. \
         It is also 0 if the program that reads a pipe closes it early, as `head` does.",
    ),
    ("1", "No: something failed, is false, or has problems."),
    ("2", "The arguments are wrong."),
    ("3", "Another revision has replaced the requested one."),
    ("4", "The time limit has passed."),
    (
        "5",
        "There is no answer. \
         The API server is unreachable or refuses the request, Relaybook is not installed, or the object does not exist.",
    ),
];
/// Those of `run`.
const CODES_OF_RUN: &str =
    "`relaybook run` ends with 0 after SIGTERM, with 2 if its arguments are wrong, and otherwise with 1.";
/// The files of commands that use a cluster.
const FILES: [(&str, &str); 2] = [
    ("~/.kube/config", "The kubeconfig, unless an option or the variable KUBECONFIG names another one."),
    ("/var/run/secrets/kubernetes.io/serviceaccount", "The service account of the Pod, used without a kubeconfig."),
];

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The folder to write to, such as `~/.local/share/man/man1`. It is created if it does not exist.
    #[arg(long)]
    dir: PathBuf,
}

/// Writes all pages, and says where they are.
pub(super) fn man(args: &ManArgs, program: Command) -> anyhow::Result<()> {
    let folder = escaped(&args.dir.display().to_string());
    let hint = "name another folder with --dir";
    fs::create_dir_all(&args.dir).with_context(|| format!("the folder {folder} cannot be created; {hint}"))?;
    let pages = pages(program)?;
    for (name, text) in &pages {
        fs::write(args.dir.join(name), text).with_context(|| format!("{name} cannot be written to {folder}; {hint}"))?;
    }
    writeln!(io::stderr(), "relaybook: wrote {} man pages to {folder}", pages.len())?;
    Ok(())
}

/// Returns the file name and the text of each page.
fn pages(program: Command) -> io::Result<Vec<(String, String)>> {
    commands(&built(program)).into_iter().map(page).collect()
}

/// Returns the program without the `help` that clap adds, and with the names of all its commands.
fn built(program: Command) -> Command {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    program
}

/// Returns the program itself, and all commands that are not hidden.
fn commands(program: &Command) -> Vec<&Command> {
    let (mut all, mut open) = (Vec::new(), vec![program]);
    while let Some(command) = open.pop() {
        all.push(command);
        open.extend(command.get_subcommands().filter(|command| !command.is_hide_set()));
    }
    all
}

fn page(command: &Command) -> io::Result<(String, String)> {
    let source = concat!("relaybook ", env!("CARGO_PKG_VERSION"));
    // Without a date, each run writes the same pages. An empty one would not be quoted, and the source would be in its place.
    let man = Man::new(command.clone()).date(" ").source(source).manual("Relaybook");
    let mut text = Vec::new();
    man.render(&mut text)?;
    more(command).to_writer(&mut text)?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    // A terminal would show a plain one as a curly quote.
    Ok((man.get_filename(), text.replace('`', "\\(ga")))
}

/// Returns the sections that clap does not know.
fn more(command: &Command) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", ["EXIT STATUS"]);
    let is_run = command.get_name() == "run";
    if !is_run {
        for (code, meaning) in CODES {
            item(&mut roff, code, meaning);
        }
    }
    if is_run || command.get_name() == NAME {
        roff.control("PP", []);
        roff.text([roman(CODES_OF_RUN)]);
    }
    if command.get_arguments().any(|arg| arg.get_long() == Some("context")) {
        roff.control("SH", ["FILES"]);
        for (file, meaning) in FILES {
            item(&mut roff, file, meaning);
        }
    }
    if command.get_name() != NAME {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([bold(NAME), roman("(1)")]);
    }
    roff
}

/// Adds a line with a word, and its meaning below.
fn item(roff: &mut Roff, word: &str, meaning: &str) {
    roff.control("TP", []);
    roff.text([bold(word)]);
    roff.text([roman(meaning)]);
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    const DOCUMENTED: &str = include_str!("../../docs/commands.md");

    /// Returns the text of each page by its name, as a reader sees it, with the marks of bold and italic words.
    fn read() -> BTreeMap<String, String> {
        let plain = |text: &str| text.replace("\\-", "-").replace("\\(ga", "`").replace("\\*(Aq", "'");
        pages(Cli::command()).unwrap().into_iter().map(|(name, text)| (name, plain(&text))).collect()
    }

    /// Returns the section with this title. One of two words is in quotes.
    fn section<'t>(text: &'t str, title: &str) -> &'t str {
        let after = text.split_once(&format!("\n.SH {title}\n")).map_or("", |(_, after)| after);
        after.split("\n.SH ").next().unwrap_or_default()
    }

    #[test]
    fn each_documented_command_has_a_page() {
        let commands = DOCUMENTED.lines().filter_map(|line| line.strip_prefix("## relaybook "));
        let expected = commands.map(|command| format!("relaybook-{}.1", command.replace(' ', "-")));
        let found: BTreeSet<_> = read().into_keys().collect();
        assert_eq!(found, expected.chain(["relaybook.1".to_owned()]).collect());
    }

    #[test]
    fn each_argument_is_among_the_options_of_its_page() {
        let (program, pages, mut checked) = (built(Cli::command()), read(), 0);
        for command in commands(&program) {
            let name = format!("{}.1", command.get_display_name().unwrap_or(NAME));
            let options = section(&pages[&name], "OPTIONS");
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let short = arg.get_short().map(|letter| format!("-{letter}"));
                let long = arg.get_long().map(|name| format!("--{name}"));
                let variable = arg.get_env().filter(|_| !arg.is_hide_env_set());
                let variable = variable.map(|name| name.to_string_lossy().into_owned());
                for word in [short, long, variable].into_iter().flatten() {
                    assert!(options.contains(&format!("\\fB{word}\\fR")), "{name} has no {word}:\n{options}");
                    checked += 1;
                }
                if arg.is_positional() {
                    let value = arg.get_value_names().map_or_else(|| arg.get_id().to_string(), |names| names.join(" "));
                    assert!(options.contains(&format!("\\fI{value}\\fR")), "{name} has no {value}:\n{options}");
                }
            }
        }
        assert!(checked > 100, "{checked}");
    }

    #[test]
    fn pages_have_the_documented_exit_codes_and_the_files_of_their_command() {
        let table = DOCUMENTED.split_once("\n## Exit codes\n").unwrap().1.split_once("\n`relaybook run`").unwrap().0;
        let rows: Vec<_> = table.lines().filter(|line| line.starts_with('|')).skip(2).collect();
        assert_eq!(rows, CODES.map(|(code, meaning)| format!("| {code} | {meaning} |")));
        assert!(DOCUMENTED.contains(CODES_OF_RUN));
        let pages = read();
        for (name, has_codes, has_codes_of_run, has_files) in [
            ("relaybook", true, true, false),
            ("relaybook-run", false, true, true),
            ("relaybook-audit", true, false, true),
            ("relaybook-lint", true, false, false),
            ("relaybook-templates-show", true, false, false),
        ] {
            let page = &pages[&format!("{name}.1")];
            let status = section(page, "\"EXIT STATUS\"");
            assert_eq!(CODES.iter().all(|(_, meaning)| status.contains(meaning)), has_codes, "{name}: {status}");
            assert_eq!(status.contains(CODES_OF_RUN), has_codes_of_run, "{name}: {status}");
            assert_eq!(section(page, "FILES").contains("~/.kube/config"), has_files, "{name}: {page}");
        }
    }

    #[test]
    fn pages_are_written_to_a_new_folder_and_an_error_names_the_folder() {
        let folder = std::env::temp_dir().join(format!("relaybook-man-{}", std::process::id()));
        let write = |dir: PathBuf| man(&ManArgs { dir }, Cli::command());
        write(folder.join("man1")).unwrap();
        let (written, expected) = (fs::read_dir(folder.join("man1")).unwrap().count(), read().len());
        let error = write(folder.join("man1").join("relaybook.1")).unwrap_err().to_string();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(written, expected);
        assert!(error.contains("relaybook.1 cannot be created; name another folder with --dir"), "{error}");
    }
}
