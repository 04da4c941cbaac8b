//! What several commands have: arguments and their values, files that are named, errors.

pub(super) mod failure;
pub(super) mod files;
pub(super) mod named;
pub(super) mod running;

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kube::Client;

use crate::app::{Access, Followed, Server};
use relaybook_api::values::refs::ObjectName;
use relaybook_settings::config::Global;
use relaybook_tools::preview::live;

/// Parses a kind of `--follow`.
pub(super) fn followed() -> impl TypedValueParser<Value = Followed> {
    let names = PossibleValuesParser::new(Followed::ALL.map(Followed::name));
    let of = |name: String| Followed::ALL.into_iter().find(|kind| kind.name() == name);
    names.try_map(move |name| of(name).ok_or("unknown kind"))
}

/// The cluster and the namespace of a command.
#[derive(Clone, Debug, Args)]
pub(super) struct Place {
    /// The namespace [default: the namespace of the kubeconfig].
    #[arg(short, long)]
    pub(super) namespace: Option<String>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Place {
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        self.connection.client().await
    }

    pub(super) fn namespace(&self, client: &Client) -> String {
        self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned())
    }
}

/// The cluster and the user of a command. The flags have the names that kubectl uses.
#[derive(Clone, Debug, Args)]
pub(super) struct Connection {
    /// The kubeconfig to use [default: `KUBECONFIG`, or `~/.kube/config`].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long, env = "RELAYBOOK_CONTEXT")]
    context: Option<String>,
    /// The user to impersonate. The user of the kubeconfig needs the permission for it.
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// A group to impersonate; can be repeated.
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,
}

impl Connection {
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        Ok(self.access().client().await?)
    }

    /// Returns these flags as a person would write them.
    pub(super) fn flags(&self) -> String {
        let quoted = |text: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
            if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
        };
        let kubeconfig = self.kubeconfig.as_ref().map(|file| file.display().to_string());
        let single = [("--kubeconfig", kubeconfig), ("--context", self.context.clone()), ("--as", self.user.clone())];
        let groups = self.groups.iter().map(|group| ("--as-group", Some(group.clone())));
        let all = single.into_iter().chain(groups).filter_map(|(flag, text)| Some(format!("{flag} {}", quoted(&text?))));
        all.collect::<Vec<_>>().join(" ")
    }

    /// Returns the address of the API server, for messages.
    pub(super) async fn server(&self) -> Server {
        self.access().server().await
    }

    pub(super) fn access(&self) -> Access {
        Access {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            user: self.user.clone(),
            groups: self.groups.clone(),
            proxy_of_environment: true,
        }
    }
}

/// The installation of Relaybook, for a command that uses no cluster.
#[derive(Debug, Args)]
pub(super) struct Installation {
    /// The name of the local cluster in the names of targets.
    #[arg(long, env = "RELAYBOOK_CLUSTER_NAME", default_value = "in-cluster")]
    pub(super) cluster_name: String,
    /// Allow http to any host, as `relaybook run --allow-http` does.
    #[arg(long, env = "RELAYBOOK_ALLOW_HTTP")]
    pub(super) allow_http: bool,
    /// The ConfigMap of the global configuration, as in `relaybook run --config-map`.
    #[arg(long, env = "RELAYBOOK_CONFIG_MAP", default_value = "relaybook-config", value_name = "NAME")]
    config_map: String,
    /// The namespace of the controller and of that ConfigMap.
    #[arg(long, env = "RELAYBOOK_CONTROLLER_NAMESPACE", default_value = "relaybook-system", value_name = "NAMESPACE")]
    controller_namespace: String,
}

impl Installation {
    /// Returns the ConfigMap of the global configuration.
    pub(super) fn config_map(&self) -> ObjectName {
        ObjectName { namespace: self.controller_namespace.clone(), name: self.config_map.clone() }
    }
}

/// Reads the global configuration from this ConfigMap. If it cannot be used, a message on stderr reports it, and the command continues
/// without it.
pub(super) async fn global(client: &Client, of: &ObjectName) -> anyhow::Result<Global> {
    match live::global(client, of).await? {
        Ok(global) => Ok(global),
        Err(why) => {
            writeln!(std::io::stderr(), "relaybook: ConfigMap {of}: {why}; the output does not include it")?;
            Ok(Global::default())
        }
    }
}
