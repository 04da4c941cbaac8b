//! The configuration of the controllers that a command uses: from flags, otherwise as published by the controllers, otherwise defaults.

use std::io::Write as _;

use clap::Args;
use kube::Client;
use serde::Serialize;

use super::global;
use crate::options::values::{CLUSTER_NAME, CONFIG_MAP, NAMESPACE};
use relaybook_api::ObjectName;
use relaybook_api::values::permalink::PageUrl;
use relaybook_runtime::installed::acting;
use relaybook_runtime::published::{Installation, LookupError, NAME, find};
use relaybook_settings::config::Global;
use relaybook_tools::diagnosis::read;
use relaybook_tools::preview::Egress;

/// Flags of `relaybook run` that influence the result. Without a flag, the setting of the running controller applies.
#[derive(Debug, Args)]
pub(crate) struct Running {
    /// The name of the local cluster in the names of targets [default: as the controller publishes it, otherwise in-cluster].
    #[arg(long, env = "RELAYBOOK_CLUSTER_NAME", value_name = "NAME")]
    cluster_name: Option<String>,
    /// Whether http to any host is allowed [default: as the controller publishes it, otherwise false].
    #[arg(long, env = "RELAYBOOK_ALLOW_HTTP", value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_parser = clap::builder::BoolishValueParser::new())]
    allow_http: Option<bool>,
    /// The ConfigMap of the global configuration [default: as the controller publishes it, otherwise relaybook-config].
    #[arg(long, env = "RELAYBOOK_CONFIG_MAP", value_name = "NAME")]
    config_map: Option<String>,
    /// The namespace of the controller and of its ConfigMaps [default: relaybook-system if the controller there watches the
    /// pipeline's namespace, otherwise the namespace of the controller that watches it].
    #[arg(long, env = "RELAYBOOK_CONTROLLER_NAMESPACE", value_name = "NAMESPACE")]
    controller_namespace: Option<String>,
}

/// The settings that a command uses.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Settings {
    /// The source of the controller's configuration.
    configuration: Source,
    /// The namespace of the controller.
    controller_namespace: String,
    /// The version of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Why the configuration of the controller is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// The settings that are assumed because they are unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assumed: Vec<String>,
    /// The name of the local cluster in the names of targets.
    pub(crate) cluster_name: String,
    /// Whether `http` is allowed to any host.
    pub(crate) allow_http: bool,
    /// The name of the ConfigMap with the global configuration.
    config_map: String,
    /// The URL of the audit page, if the controller publishes it.
    #[serde(skip)]
    pub(crate) page_url: Option<PageUrl>,
    /// The addresses that the controller does not send to, if it publishes them.
    #[serde(skip)]
    pub(crate) egress: Option<Egress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Source {
    /// Flags set all of the configuration.
    Flags,
    /// The controller publishes its configuration. Flags take precedence.
    Published,
    /// No published configuration was found. Flags apply, and defaults are assumed for the rest.
    Unknown,
}

/// One object of a command's output, with the settings that were used.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WithSettings<'a, T> {
    #[serde(flatten)]
    pub(crate) one: &'a T,
    pub(crate) judged_by: &'a Settings,
}

impl Running {
    /// Returns the settings for the pipelines of a namespace. If the controller's configuration is unknown, a message on stderr reports it.
    pub(crate) async fn resolve(&self, client: Option<&Client>, namespace: &str) -> anyhow::Result<Settings> {
        let Some(client) = client else { return Ok(self.with(Err(LookupError::NoCluster))) };
        if self.is_complete() {
            return Ok(self.with(Err(LookupError::NoCluster)));
        }
        let found = find(client, self.controller_namespace.as_deref(), namespace).await;
        let elsewhere = found.as_ref().is_ok_and(|found| !found.watches(namespace));
        let settings = self.with(found);
        let mut err = std::io::stderr();
        if elsewhere {
            let controller = &settings.controller_namespace;
            writeln!(err, "relaybook: the controller in namespace {controller} does not watch namespace {namespace}")?;
        }
        if let Some(why) = &settings.why {
            let assumed = settings.assumed.join(", ");
            writeln!(err, "relaybook: the configuration of the controller is unknown: {why}; assumed: {assumed}")?;
        }
        Ok(settings)
    }

    /// Whether flags set all of the configuration.
    fn is_complete(&self) -> bool {
        self.cluster_name.is_some()
            && self.allow_http.is_some()
            && self.config_map.is_some()
            && self.controller_namespace.is_some()
    }

    fn with(&self, found: Result<Installation, LookupError>) -> Settings {
        let (found, why) = match found {
            Ok(found) => (Some(found), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let configuration = match &found {
            _ if self.is_complete() => Source::Flags,
            Some(_) => Source::Published,
            None => Source::Unknown,
        };
        let known = found.as_ref();
        let published = |value: fn(&Installation) -> &String| known.map(value).cloned();
        let or = |given: &Option<String>, published: Option<String>, assumed: &str| {
            given.clone().or(published).unwrap_or_else(|| assumed.to_owned())
        };
        let mut settings = Settings {
            configuration,
            controller_namespace: or(&self.controller_namespace, published(|i| &i.namespace), NAMESPACE),
            version: published(|i| &i.dispatch.version),
            why: why.filter(|_| configuration == Source::Unknown),
            assumed: Vec::new(),
            cluster_name: or(&self.cluster_name, published(|i| &i.dispatch.cluster_name), CLUSTER_NAME),
            allow_http: self.allow_http.or(known.map(|i| i.dispatch.allow_http)).unwrap_or_default(),
            config_map: or(&self.config_map, published(|i| &i.dispatch.config_map), CONFIG_MAP),
            page_url: known.and_then(|i| i.dispatch.page_url.as_ref()).and_then(|url| url.parse().ok()),
            egress: known.and_then(|i| Egress::new(&i.dispatch.allow_destinations, &i.dispatch.deny_destinations)),
        };
        if configuration == Source::Unknown {
            settings.assumed = self.assumptions(&settings);
        }
        settings
    }

    /// Returns the settings without a flag, written as the flags that would set them.
    fn assumptions(&self, settings: &Settings) -> Vec<String> {
        let Settings { cluster_name, config_map, controller_namespace, .. } = settings;
        let all = [
            self.cluster_name.is_none().then(|| format!("--cluster-name={cluster_name}")),
            self.allow_http.is_none().then(|| "--allow-http=false".to_owned()),
            self.config_map.is_none().then(|| format!("--config-map={config_map}")),
            self.controller_namespace.is_none().then(|| format!("--controller-namespace={controller_namespace}")),
        ];
        all.into_iter().flatten().collect()
    }
}

impl Settings {
    /// Returns the ConfigMap of the global configuration.
    pub(crate) fn config_map(&self) -> ObjectName {
        ObjectName::new(&self.controller_namespace, &self.config_map)
    }

    /// Reads the global configuration. If it cannot be used, a message on stderr reports it, and the command continues without it.
    pub(crate) async fn global(&self, client: &Client) -> anyhow::Result<Global> {
        global(client, &self.config_map()).await
    }

    /// If no controller acts, a message on stderr reports it. Without the permission to list Leases, that is not known.
    pub(crate) async fn warn_if_idle(&self, client: &Client) -> anyhow::Result<()> {
        if self.assumed.iter().any(|flag| flag.starts_with("--controller-namespace")) {
            // It is not known where the controllers are, which another message reports.
            return Ok(());
        }
        let namespace = &self.controller_namespace;
        for text in read::idle(client, namespace, &read::NEEDED).await.unwrap_or_default() {
            writeln!(std::io::stderr(), "relaybook: {text} To see more: {}", acting::command(namespace))?;
        }
        Ok(())
    }

    /// Returns one line for users. It is empty if flags or assumptions apply, because stderr already reports those.
    pub(crate) fn line(&self) -> String {
        match &self.version {
            Some(version) if self.configuration == Source::Published => {
                let namespace = &self.controller_namespace;
                format!("# settings from ConfigMap {namespace}/{NAME} of the running controller, version {version}\n")
            }
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use relaybook_runtime::published::Dispatch;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        running: Running,
    }

    fn running(args: &[&str]) -> Running {
        Command::try_parse_from(std::iter::once(&"relaybook").chain(args)).unwrap().running
    }

    fn installation() -> Installation {
        let dispatch = Dispatch {
            version: "0.1.0".to_owned(),
            watch_namespaces: Vec::new(),
            cluster_name: "eu-1".to_owned(),
            config_map: "own-config".to_owned(),
            allow_http: true,
            allow_destinations: Vec::new(),
            deny_destinations: Vec::new(),
            page_url: None,
        };
        Installation { namespace: "tools".to_owned(), dispatch }
    }

    #[test]
    fn flags_take_precedence_over_published_settings() {
        let complete = ["--cluster-name", "a", "--allow-http", "--config-map", "b", "--controller-namespace", "c"];
        for (args, published, expected) in [
            (&[][..], true, (Source::Published, "eu-1", true, "tools/own-config")),
            (&["--allow-http=false", "--cluster-name=x"], true, (Source::Published, "x", false, "tools/own-config")),
            (&["--config-map", "mine"], true, (Source::Published, "eu-1", true, "tools/mine")),
            (&[], false, (Source::Unknown, "in-cluster", false, "relaybook-system/relaybook-config")),
            (&["--allow-http"], false, (Source::Unknown, "in-cluster", true, "relaybook-system/relaybook-config")),
            (&complete, false, (Source::Flags, "a", true, "c/b")),
        ] {
            let found = if published { Ok(installation()) } else { Err(LookupError::NoInstallation) };
            let settings = running(args).with(found);
            let config_map = settings.config_map().to_string();
            let Settings { configuration, cluster_name, allow_http, .. } = &settings;
            assert_eq!((*configuration, cluster_name.as_str(), *allow_http, config_map.as_str()), expected, "{args:?}");
            assert_eq!(settings.why.is_some(), expected.0 == Source::Unknown, "{args:?}");
            assert_eq!(settings.line().is_empty(), expected.0 != Source::Published, "{args:?}");
        }
    }

    #[test]
    fn assumed_settings_are_named() {
        let unknown = |args: &[&str]| running(args).with(Err(LookupError::NoInstallation)).assumed.join(" ");
        assert_eq!(
            unknown(&[]),
            "--cluster-name=in-cluster --allow-http=false --config-map=relaybook-config --controller-namespace=relaybook-system"
        );
        assert_eq!(
            unknown(&["--allow-http", "--controller-namespace=a"]),
            "--cluster-name=in-cluster --config-map=relaybook-config"
        );
        assert!(running(&[]).with(Ok(installation())).assumed.is_empty());
    }
}
