//! The options of `relaybook run`, and the values of options that several commands have.
//!
//! In: arguments and `RELAYBOOK_…` variables. Out: [`Options`], which the command line fills and the parts of the program read.

pub(crate) mod values;

mod unseen;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;
use secrecy::SecretString;

use relaybook_api::ObjectName;
use relaybook_api::values::permalink::PageUrl;
use relaybook_api::values::shard::{SHARD_LABEL, Sharding};
use relaybook_core::leader;
use relaybook_egress::{Collector, Policy, Proxy};
use relaybook_pipelines::sets::Followed;
use relaybook_telemetry::{Sample, logging};
use unseen::Unseen;
use values::{CLUSTER_NAME, CONFIG_MAP};

/// A user can put a password into this URL by mistake, so errors must not repeat it.
const COLLECTOR: Unseen<Collector> = Unseen::of("--tracing-endpoint (or RELAYBOOK_TRACING_ENDPOINT)");
/// The URL can contain a password, so errors must not repeat it.
const PROXY: Unseen<Proxy> = Unseen::of("--proxy (or RELAYBOOK_PROXY)");

/// A controller that can run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Controller {
    /// Observes application objects and writes the change log.
    Pipeline,
    /// Reads the change log, records Deliveries and sends them.
    Dispatch,
    /// Promotes revisions from one environment to the next, and records it in Promotions.
    Promote,
}

impl Controller {
    /// Returns the Lease of this controller.
    pub(crate) const fn lease(self) -> &'static str {
        match self {
            Self::Pipeline => leader::PIPELINE,
            Self::Dispatch => leader::DISPATCH,
            Self::Promote => leader::PROMOTE,
        }
    }

    /// Returns how long the usual work takes at most that starts while its membership in the Lease lasts.
    pub(crate) const fn work(self) -> Duration {
        match self {
            // Two calls of ten seconds.
            Self::Pipeline => Duration::from_secs(20),
            // A request with the default timeout, and the call that records it.
            Self::Dispatch => Duration::from_secs(25),
            // An attempt of a promotion, and the call that records it.
            Self::Promote => Duration::from_secs(70),
        }
    }
}

/// The options of `relaybook run`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The controllers to run. Each can run in its own process.
    #[arg(long, env = "RELAYBOOK_CONTROLLERS", value_delimiter = ',', default_value = "pipeline,dispatch,promote")]
    pub controllers: Vec<Controller>,
    /// The namespace of the process and of its Leases [default: `$POD_NAMESPACE` or relaybook-system].
    #[arg(short, long, env = "RELAYBOOK_NAMESPACE", default_value_t = values::own_namespace(), hide_default_value = true)]
    pub namespace: String,
    /// The ConfigMap in that namespace with the global configuration, in the key config.yaml. The ConfigMap is optional.
    #[arg(long, env = "RELAYBOOK_CONFIG_MAP", default_value = CONFIG_MAP, value_name = "NAME")]
    pub config_map: String,
    /// The holder identity in the Leases.
    #[arg(skip = values::identity())]
    pub identity: String,
    /// Watch pipelines and application objects only in these namespaces; can be repeated [default: all].
    #[arg(long = "watch-namespace", env = "RELAYBOOK_WATCH_NAMESPACE", value_delimiter = ',', value_name = "NS")]
    pub watch_namespaces: Vec<String>,
    /// The name of the local cluster in the names of targets.
    #[arg(long, env = "RELAYBOOK_CLUSTER_NAME", default_value = CLUSTER_NAME, value_parser = values::cluster_name)]
    pub cluster_name: String,
    /// Maximum number of concurrent requests.
    #[arg(long, env = "RELAYBOOK_WORKERS", default_value_t = 256, value_parser = clap::value_parser!(u16).range(2..=4096))]
    pub workers: u16,
    /// Maximum number of settled deliveries in the whole cluster. Above it, the oldest are deleted, parked ones last.
    #[arg(long, env = "RELAYBOOK_KEEP_DELIVERIES", default_value_t = 100_000, value_name = "NUMBER")]
    pub keep_deliveries: usize,
    /// Allow http to any host, not only to *.svc names of the cluster.
    #[arg(long, env = "RELAYBOOK_ALLOW_HTTP")]
    pub allow_http: bool,
    /// Allow these addresses, which are refused by default (loopback, link-local, …); can be repeated.
    #[arg(long = "allow-destination", env = "RELAYBOOK_ALLOW_DESTINATION", value_delimiter = ',', value_name = "CIDR")]
    pub allow_destinations: Vec<IpNet>,
    /// Refuse these addresses, even if another flag allows them; can be repeated.
    #[arg(long = "deny-destination", env = "RELAYBOOK_DENY_DESTINATION", value_delimiter = ',', value_name = "CIDR")]
    pub deny_destinations: Vec<IpNet>,
    /// Send all requests through this HTTP proxy, `http://HOST:PORT` or `https://HOST:PORT`. Set a URL
    /// with `USER:PASSWORD@` in the environment, because other users can see arguments. No other variable sets a proxy.
    #[arg(long, env = "RELAYBOOK_PROXY", hide_env_values = true, value_name = "URL", value_parser = PROXY)]
    pub proxy: Option<Proxy>,
    /// Refuse targets and cluster objects outside the pipeline's own namespace.
    #[arg(long, env = "RELAYBOOK_NO_CROSS_NAMESPACE_REFS")]
    pub no_cross_namespace_refs: bool,
    /// Watch the `BundleDeployments` of Fleet in all namespaces, although --watch-namespace restricts everything else. Fleet creates them in a
    /// namespace for each cluster.
    #[arg(long, env = "RELAYBOOK_FLEET_EVERYWHERE")]
    pub fleet_everywhere: bool,
    /// The shard of this process: it handles only objects whose label has this value. Without it, the process handles the others.
    #[arg(long, env = "RELAYBOOK_SHARD_ID", value_name = "ID", value_parser = values::shard)]
    pub shard_id: Option<String>,
    /// The IDs of all shards that run; can be repeated. A label that names none of them is ignored.
    #[arg(long, env = "RELAYBOOK_SHARDS", value_delimiter = ',', value_name = "ID", value_parser = values::shard)]
    pub shards: Vec<String>,
    /// The label that names the shard of an object.
    #[arg(long, env = "RELAYBOOK_SHARD_LABEL", default_value = SHARD_LABEL, value_name = "LABEL", value_parser = values::label_key)]
    pub shard_label: String,
    /// Make no pipelines of `PipelineSets`.
    #[arg(long, env = "RELAYBOOK_NO_PIPELINE_SETS")]
    pub no_pipeline_sets: bool,
    /// Make a pipeline for every object of these kinds, with a `PipelineSet` in the namespace of the process; can be repeated.
    #[arg(long, env = "RELAYBOOK_FOLLOW", value_delimiter = ',', value_name = "KIND", value_parser = values::followed(), conflicts_with = "no_pipeline_sets")]
    pub follow: Vec<Followed>,
    /// Let the Notifications in the namespace of each followed object be layers of its pipeline.
    #[arg(long, env = "RELAYBOOK_FOLLOW_LAYERS", requires = "follow")]
    pub follow_layers: bool,
    /// A remote cluster is offline when it has not answered for this time.
    #[arg(long, env = "RELAYBOOK_CLUSTER_GRACE", default_value = "2m", value_name = "DURATION", value_parser = values::grace)]
    pub cluster_grace: Duration,
    /// Accept kubeconfigs of remote clusters with http, or with insecure-skip-tls-verify.
    #[arg(long, env = "RELAYBOOK_ALLOW_INSECURE_CLUSTERS")]
    pub allow_insecure_clusters: bool,
    /// The address of /healthz, /readyz and /metrics.
    #[arg(long, env = "RELAYBOOK_HTTP_ADDR", default_value = "0.0.0.0:8080", value_name = "ADDR")]
    pub http_addr: SocketAddr,
    /// The address of hooks: signed approvals of promotions, and requests to check promotions [default: no hooks].
    #[arg(long, env = "RELAYBOOK_HOOKS_ADDR", value_name = "ADDR")]
    pub hooks_addr: Option<SocketAddr>,
    /// The audit page.
    #[command(flatten)]
    pub page: PageOptions,
    /// The format of log lines: text or json. `RELAYBOOK_LOG` sets the level, such as `info` or `relaybook=debug`.
    #[arg(long, env = "RELAYBOOK_LOG_FORMAT", default_value_t = logging::Format::Text, value_name = "FORMAT")]
    pub log_format: logging::Format,
    /// Tracing.
    #[command(flatten)]
    pub tracing: Tracing,
    /// The context of the kubeconfig to use. Without a kubeconfig, the service account of the Pod is used.
    #[arg(long, env = "RELAYBOOK_CONTEXT")]
    pub context: Option<String>,
}

/// The options of the page that `relaybook run` serves.
#[derive(Clone, Debug, Args)]
pub struct PageOptions {
    /// The address of the audit page, which people with a token of the cluster can open [default: no page].
    #[arg(long = "page-addr", env = "RELAYBOOK_PAGE_ADDR", value_name = "ADDR")]
    pub address: Option<SocketAddr>,
    /// The URL under which users reach the audit page, such as `https://relaybook.example.com`. Templates use it for links, and the page
    /// answers only to this host and to localhost.
    #[arg(long = "page-url", env = "RELAYBOOK_PAGE_URL", value_name = "URL")]
    pub url: Option<PageUrl>,
    /// Let people send deliveries again and tests, and approve promotions, from the audit page, with their own permissions.
    #[arg(long = "page-actions", env = "RELAYBOOK_PAGE_ACTIONS", requires = "address")]
    pub actions: bool,
    /// A file with the key of the cookies of the audit page. All replicas need the same key [default: a key of the process].
    #[arg(long = "page-key-file", env = "RELAYBOOK_PAGE_KEY_FILE", requires = "address", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// The key in that file.
    #[arg(skip)]
    pub key: Option<SecretString>,
}

/// Which changes are traced, and where spans are sent.
#[derive(Clone, Debug, Args)]
pub struct Tracing {
    /// Send spans to this collector by OTLP over HTTP, and `traceparent` to receivers. `/v1/traces` is appended to the path. Headers
    /// are read from `OTEL_EXPORTER_OTLP_HEADERS`; no other `OTEL_` variable is read [default: no tracing].
    #[arg(long = "tracing-endpoint", env = "RELAYBOOK_TRACING_ENDPOINT", hide_env_values = true, value_name = "URL", value_parser = COLLECTOR)]
    pub collector: Option<Collector>,
    /// The share of changes that are traced: a number from 0 to 1.
    #[arg(long = "tracing-sample", env = "RELAYBOOK_TRACING_SAMPLE", default_value = "1", value_name = "RATIO")]
    pub sample: Sample,
}

impl Options {
    /// Whether this process runs the controller.
    pub fn runs(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    /// Returns the ConfigMap with the global configuration.
    pub fn global(&self) -> ObjectName {
        ObjectName::new(&self.namespace, &self.config_map)
    }

    /// Returns the shard of this process, and all shards, which include it.
    pub fn sharding(&self) -> Sharding {
        let all = self.shards.iter().chain(&self.shard_id).cloned().collect();
        Sharding { id: self.shard_id.clone().unwrap_or_default(), all, label: self.shard_label.clone() }
    }

    /// Returns which destinations requests may have.
    pub fn policy(&self) -> Policy {
        Policy { allow: self.allow_destinations.clone(), deny: self.deny_destinations.clone(), allow_http: self.allow_http }
    }

    /// Returns the watched namespaces, sorted and without repetition. Empty: all.
    pub fn watched(&self) -> Vec<String> {
        self.watch_namespaces.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the scopes of watches: one over all namespaces, or one for each namespace.
    pub fn scopes(&self) -> Vec<Option<String>> {
        let watched = self.watched();
        if watched.is_empty() { vec![None] } else { watched.into_iter().map(Some).collect() }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(args: &[&str]) -> Options {
        Line::try_parse_from(std::iter::once(&"relaybook").chain(args)).unwrap().options
    }

    #[test]
    fn a_shard_is_one_of_all_shards() {
        for (args, id, all) in [
            (&["--shards=us"][..], "", &["us"][..]),
            (&["--shards=us", "--shard-id=eu"], "eu", &["us", "eu"]),
            (&[], "", &[]),
        ] {
            let sharding = options(args).sharding();
            assert_eq!((sharding.id.as_str(), sharding.label.as_str()), (id, SHARD_LABEL), "{args:?}");
            assert_eq!(sharding.all, all, "{args:?}");
        }
    }

    #[test]
    fn each_watched_namespace_is_a_scope() {
        let namespace = |name: &str| Some(name.to_owned());
        assert_eq!(options(&[]).scopes(), [None]);
        assert_eq!(options(&["--watch-namespace=b,a", "--watch-namespace=b"]).scopes(), [namespace("a"), namespace("b")]);
    }
}
