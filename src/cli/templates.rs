//! `relaybook templates`: the templates that come with Relaybook.

use std::io::Write as _;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use relaybook_api::notification::Builtin;
use relaybook_settings::config::nearest;
use relaybook_settings::render::{BuiltinTemplate, builtin};
use relaybook_tools::preview::{page, starter};

#[derive(Debug, Args)]
pub(super) struct TemplatesArgs {
    #[command(subcommand)]
    command: Option<Command>,
    /// The output format of the list.
    #[arg(short, long, default_value = "table")]
    output: List,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print one template, as a Notification to start from.
    Show {
        /// Its name.
        name: String,
        /// The output format.
        #[arg(short, long, default_value = "yaml")]
        output: One,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum List {
    /// Name, credentials, title.
    Table,
    /// All metadata.
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum One {
    /// A Notification with the template inline.
    Yaml,
    /// All metadata and the body.
    Json,
    /// The page of the documentation.
    Markdown,
}

fn named(text: &str) -> anyhow::Result<&'static BuiltinTemplate> {
    let names = Builtin::ALL.map(Builtin::as_str);
    let meant = nearest(text, names).map_or_else(String::new, |name| format!("; did you mean {name}?"));
    let found = Builtin::named(text).with_context(|| format!("there is no built-in template {text}{meant}"));
    found.map(builtin)
}

/// Lists the templates, or shows one.
pub(super) fn templates(args: &TemplatesArgs) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match &args.command {
        None => match args.output {
            List::Table => write!(out, "{}", table())?,
            List::Json => {
                let all: Vec<_> = Builtin::ALL.map(|name| described(builtin(name))).to_vec();
                writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
            }
        },
        Some(Command::Show { name, output }) => match output {
            One::Yaml => write!(out, "{}", starter(named(name)?))?,
            One::Json => writeln!(out, "{}", serde_json::to_string_pretty(&described(named(name)?))?)?,
            One::Markdown => write!(out, "{}", page(named(name)?)?)?,
        },
    }
    Ok(out.flush()?)
}

fn described(template: &BuiltinTemplate) -> serde_json::Value {
    json!({"name": template.name, "metadata": template.metadata, "body": template.body})
}

fn table() -> String {
    let rows = Builtin::ALL.map(|name| {
        let metadata = &builtin(name).metadata;
        let credentials = serde_json::to_value(metadata.credentials.kind).ok();
        let credentials = credentials.as_ref().and_then(|c| c.as_str()).unwrap_or_default().to_owned();
        (name.as_str(), credentials, metadata.title.as_str())
    });
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
    let head = format!("{:width$}   CREDENTIALS   TITLE\n", "NAME");
    let lines = rows.iter().map(|(name, credentials, title)| format!("{name:width$}   {credentials:11}   {title}\n"));
    std::iter::once(head).chain(lines).collect()
}
