//! What several commands have: arguments and their values, files that are named, errors.

pub(super) mod exit;
pub(super) mod failure;
pub(super) mod files;
pub(super) mod named;
pub(super) mod output;
pub(super) mod running;
pub(super) mod table;
pub(super) mod write;

use std::io::Write as _;

use clap::Args;
use kube::Client;

use crate::app::Access;
use crate::cli::complete;
use crate::options::values::{CLUSTER_NAME, CONFIG_MAP, NAMESPACE};
use relaybook_api::ObjectName;
use relaybook_settings::config::Global;
use relaybook_tools::preview::live;

/// The cluster and the namespace of a command.
#[derive(Clone, Debug, Args)]
pub(super) struct Place {
    /// The namespace [default: the namespace of the kubeconfig].
    #[arg(short, long, add = complete::namespaces())]
    pub(super) namespace: Option<String>,
    #[command(flatten)]
    pub(super) access: Access,
}

impl Place {
    /// Returns a client, and the namespace.
    pub(super) async fn open(&self) -> anyhow::Result<(Client, String)> {
        let client = self.access.client().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        Ok((client, namespace))
    }
}

/// The cluster of a command, and one namespace or all of them.
#[derive(Clone, Debug, Args)]
pub(super) struct Scope {
    #[command(flatten)]
    pub(super) place: Place,
    /// All namespaces, also with --namespace.
    #[arg(short = 'A', long)]
    pub(super) all_namespaces: bool,
}

impl Scope {
    /// Returns a client, and the namespace. `None`: all namespaces.
    pub(super) async fn open(&self) -> anyhow::Result<(Client, Option<String>)> {
        let (client, namespace) = self.place.open().await?;
        Ok((client, Some(namespace).filter(|_| !self.all_namespaces)))
    }
}

/// The installation of Relaybook, for a command that uses no cluster.
#[derive(Debug, Args)]
pub(super) struct Installation {
    /// The name of the local cluster in the names of targets.
    #[arg(long, env = "RELAYBOOK_CLUSTER_NAME", default_value = CLUSTER_NAME)]
    pub(super) cluster_name: String,
    /// Allow http to any host, as `relaybook run --allow-http` does.
    #[arg(long, env = "RELAYBOOK_ALLOW_HTTP")]
    pub(super) allow_http: bool,
    /// The ConfigMap of the global configuration, as in `relaybook run --config-map`.
    #[arg(long, env = "RELAYBOOK_CONFIG_MAP", default_value = CONFIG_MAP, value_name = "NAME")]
    config_map: String,
    /// The namespace of the controller and of that ConfigMap.
    #[arg(long, env = "RELAYBOOK_CONTROLLER_NAMESPACE", default_value = NAMESPACE, value_name = "NAMESPACE")]
    controller_namespace: String,
}

impl Installation {
    /// Returns the ConfigMap of the global configuration.
    pub(super) fn config_map(&self) -> ObjectName {
        ObjectName::new(&self.controller_namespace, &self.config_map)
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
