//! The client for the API server, and the name of that server in messages.
//!
//! In: the kubeconfig options of the command line. Out: a client, and the [`Server`] for messages. Without a kubeconfig, the client
//! uses the service account of its own pod.

use std::path::PathBuf;

use clap::Args;
use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig, NamedContext};

use super::AppError;

/// The API server to use, and the user to impersonate. The flags have the names that kubectl uses.
#[derive(Clone, Debug, Default, Args)]
pub struct Access {
    /// The kubeconfig to use [default: `KUBECONFIG`, or `~/.kube/config`].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long, env = "RELAYBOOK_CONTEXT")]
    pub context: Option<String>,
    /// The user to impersonate. The user of the kubeconfig needs the permission for it.
    #[arg(long = "as", value_name = "USER")]
    pub user: Option<String>,
    /// A group to impersonate; can be repeated.
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    pub groups: Vec<String>,
    /// Whether `HTTPS_PROXY` sets the proxy, as for kubectl. The controller has its own setting for outgoing requests.
    #[arg(skip = true)]
    pub proxy_of_environment: bool,
}

/// Description of the API server for error messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// URL of the server. Empty if it is not known.
    pub url: String,
    /// The context of the kubeconfig, if one was used.
    pub context: Option<String>,
    /// The exec plugin that provides the credentials, and the `installHint` of the kubeconfig for it.
    pub plugin: Option<(String, Option<String>)>,
}

impl Access {
    /// Creates a client. It sends no request yet.
    ///
    /// # Errors
    /// [`AppError::NoCluster`] if there is neither a usable kubeconfig nor a service account. [`AppError::Kubeconfig`] if the given
    /// kubeconfig is not usable, or one that was read has an invalid server or token. [`AppError::Client`] if the client cannot be
    /// created from it.
    pub async fn client(&self) -> Result<Client, AppError> {
        self.built(|auth| {
            if self.user.is_some() || !self.groups.is_empty() {
                auth.impersonate.clone_from(&self.user);
                auth.impersonate_groups = Some(self.groups.clone()).filter(|groups| !groups.is_empty());
            }
        })
        .await
    }

    /// Creates a client that sends no credentials of its own.
    ///
    /// # Errors
    /// The same as those of [`Access::client`].
    pub async fn anonymous(&self) -> Result<Client, AppError> {
        self.built(|auth| *auth = AuthInfo::default()).await
    }

    /// Creates a client with the credentials that `change` leaves.
    async fn built(&self, change: impl FnOnce(&mut AuthInfo)) -> Result<Client, AppError> {
        let (mut config, kubeconfig) = self.config().await?;
        change(&mut config.auth_info);
        usable(&config).map_err(|why| AppError::Kubeconfig(why.into()))?;
        // kube also writes the proxy of the environment to `proxy_url`, as if the kubeconfig named it.
        if !self.proxy_of_environment && self.cluster_proxy(kubeconfig.as_ref()).is_none() {
            config.proxy_url = None;
        }
        let client = ClientBuilder::try_from(config).map_err(|e| AppError::Client(Box::new(e)))?;
        Ok(client.with_layer(&relaybook_clusters::Deadline::HEAD).build())
    }

    /// Returns these flags as a person would write them.
    pub(crate) fn flags(&self) -> String {
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

    /// Returns the server that a client uses, as far as it is known. Returns no error, because it is used to describe another error.
    pub async fn server(&self) -> Server {
        let Ok((config, kubeconfig)) = self.config().await else { return Server::default() };
        let context = kubeconfig.as_ref().and_then(|k| self.context.clone().or_else(|| k.current_context.clone()));
        let exec = kubeconfig.as_ref().and_then(|k| self.auth(k)).and_then(|auth| auth.exec.as_ref());
        let plugin = exec.and_then(|exec| Some((exec.command.clone()?, exec.install_hint.clone())));
        // A URL can contain credentials, which must not be in messages.
        let (scheme, host) = (config.cluster_url.scheme_str().unwrap_or_default(), config.cluster_url.host());
        let port = config.cluster_url.port().map_or_else(String::new, |port| format!(":{port}"));
        Server { url: host.map_or_else(String::new, |host| format!("{scheme}://{host}{port}")), context, plugin }
    }

    /// Returns the namespace of the context, as far as it is known. No request is sent, and no credential plugin runs.
    pub async fn namespace(&self) -> Option<String> {
        self.config().await.ok().map(|(config, _)| config.default_namespace)
    }

    async fn config(&self) -> Result<(Config, Option<Kubeconfig>), AppError> {
        let read = match &self.kubeconfig {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        let named = self.kubeconfig.is_some() || self.context.is_some();
        match read {
            Ok(kubeconfig) => {
                let which = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
                match Config::from_custom_kubeconfig(kubeconfig.clone(), &which).await {
                    Ok(config) => Ok((config, Some(kubeconfig))),
                    Err(error) => in_pod(named, error.into()),
                }
            }
            Err(error) => in_pod(named, error.into()),
        }
    }

    fn context<'a>(&self, kubeconfig: &'a Kubeconfig) -> Option<&'a NamedContext> {
        let name = self.context.as_ref().or(kubeconfig.current_context.as_ref())?;
        kubeconfig.contexts.iter().find(|context| context.name == *name)
    }

    fn cluster_proxy(&self, kubeconfig: Option<&Kubeconfig>) -> Option<String> {
        let kubeconfig = kubeconfig?;
        let name = &self.context(kubeconfig)?.context.as_ref()?.cluster;
        let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == *name)?.cluster.as_ref()?;
        cluster.proxy_url.clone().filter(|url| !url.is_empty())
    }

    fn auth<'a>(&self, kubeconfig: &'a Kubeconfig) -> Option<&'a AuthInfo> {
        let name = self.context(kubeconfig)?.context.as_ref()?.user.as_ref()?;
        kubeconfig.auth_infos.iter().find(|auth| auth.name == *name)?.auth_info.as_ref()
    }
}

/// Rejects values on which the client would panic instead of returning an error.
fn usable(config: &Config) -> Result<(), &'static str> {
    let url = &config.cluster_url;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none() {
        return Err("the server of this context is not a URL; write it as https://HOST:PORT");
    }
    if config.auth_info.token.as_ref().is_some_and(|token| !relaybook_clusters::is_token(token)) {
        return Err("the token of this context contains an invalid character, such as a line break; correct it");
    }
    Ok(())
}

/// Uses the service account of the pod, if no kubeconfig or context was given.
fn in_pod(named: bool, error: Box<dyn std::error::Error + Send + Sync>) -> Result<(Config, Option<Kubeconfig>), AppError> {
    if named {
        return Err(AppError::Kubeconfig(error));
    }
    Config::incluster().map(|config| (config, None)).map_err(|_| AppError::NoCluster(error))
}
