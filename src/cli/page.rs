//! `relaybook page`: the audit page on this machine.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use secrecy::{ExposeSecret as _, SecretString};

use super::shared::running::Running;
use crate::app::{self, Access};
use relaybook_page::Settings;

#[derive(Debug, Args)]
pub(super) struct PageArgs {
    /// The port on the loopback address [default: any free port].
    #[arg(short, long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Do not open the browser; only print the address.
    #[arg(long)]
    no_open: bool,
    /// Only read: people cannot send deliveries again or tests, or approve promotions.
    #[arg(long)]
    no_actions: bool,
    #[command(flatten)]
    pub(super) access: Access,
    #[command(flatten)]
    running: Running,
}

/// Serves the page until the command is stopped.
pub(super) async fn page(args: PageArgs) -> anyhow::Result<()> {
    let client = args.access.client().await?;
    let running = args.running.resolve(Some(&client), client.default_namespace()).await?;
    let server = args.access.server().await;
    let settings = Settings {
        cluster_name: running.cluster_name.clone(),
        place: place(&running.cluster_name, server.context.as_deref(), &server.url),
        config_map: running.config_map(),
        allow_http: running.allow_http,
        url: running.page_url.clone(),
        egress: running.egress,
        actions: !args.no_actions,
        flags: args.access.flags(),
    };
    let (no_open, mut opened) = (args.no_open, None);
    let begun = |address: &SecretString| {
        // The address is for the person at this terminal, and useless once it was opened.
        let _ = writeln!(std::io::stdout(), "{}", address.expose_secret());
        let _ = writeln!(std::io::stderr(), "relaybook: the address can be opened once; Ctrl-C ends the page");
        if !no_open {
            opened = Opened::new(address);
            if opened.is_none() {
                let _ = writeln!(std::io::stderr(), "relaybook: no browser could be opened; open the address manually");
            }
        }
    };
    Ok(app::page(&args.access, args.port, settings, begun).await?)
}

/// Returns what the header of the page shows: the name of the cluster, the context, and the host of the API server.
fn place(cluster: &str, context: Option<&str>, url: &str) -> String {
    let host = url.split_once("://").map_or(url, |(_, host)| host);
    let parts = [Some(cluster), context.filter(|context| *context != cluster), Some(host)];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}

/// A file that leads a browser to the address. Other users of the machine can see the arguments of programs, but not this file.
struct Opened(PathBuf);

impl Opened {
    /// Opens the browser of the desktop. `None`: there is no program for it, or the file cannot be written.
    fn new(address: &SecretString) -> Option<Self> {
        let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let file = folder.join(format!("relaybook-page-{:016x}.html", fastrand::u64(..)));
        let address = address.expose_secret();
        let text = format!(
            "<!DOCTYPE html><meta http-equiv=\"refresh\" content=\"0;url={address}\"><a href=\"{address}\">Relaybook</a>\n"
        );
        let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).ok()?;
        let opened = Self(file);
        written.write_all(text.as_bytes()).ok()?;
        let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let mut command = Command::new(program);
        command.arg(&opened.0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().ok().map(|_| opened)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_names_cluster_context_and_host() {
        for (cluster, context, url, shown) in [
            ("prod-eu", Some("admin@prod"), "https://10.0.0.1:6443", "prod-eu · admin@prod · 10.0.0.1:6443"),
            ("prod", Some("prod"), "https://k8s.example.com", "prod · k8s.example.com"),
            ("in-cluster", None, "https://10.0.0.1", "in-cluster · 10.0.0.1"),
            ("in-cluster", None, "", "in-cluster"),
        ] {
            assert_eq!(place(cluster, context, url), shown);
        }
    }
}
