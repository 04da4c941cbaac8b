//! What the commands read: the Notification, its pending deliveries, and its layers.
//!
//! In: a client with the permissions of the person, and a namespace. Out: objects, rows, and the layers that decide otherwise. If the
//! Notification does not exist, the error says where it can be suspended.

use std::io::{self, Write as _};

use futures::TryStreamExt as _;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use crate::app::Access;
use crate::cli::shared::exit::{Code, Ended};
use crate::cli::shared::{Place, failure};
use crate::options::values::{CONFIG_MAP, NAMESPACE};
use relaybook_api::{Notification, ObjectName, Pipeline};
use relaybook_runtime::published;
use relaybook_settings::config::Global;
use relaybook_tools::audit::{AuditError, Filter, Row, StateFilter, rows};
use relaybook_tools::preview::{PreviewError, live};
use relaybook_tools::suspend::words::{ClusterWide, missing};
use relaybook_tools::suspend::{Verb, below, defines, has_url, layers};

/// Page size of a list.
const PAGE: u32 = 500;

/// One namespace, and what is above it.
pub(super) struct Site<'a> {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) access: &'a Access,
    /// The ConfigMap of the global configuration.
    config_map: ObjectName,
    /// The global configuration. `None`: it is not known, because the person may not read it.
    global: Option<Global>,
}

impl<'a> Site<'a> {
    /// Reads the global configuration, as far as the permissions of the person allow. Many people have only those of one namespace, so
    /// their absence is no error.
    pub(super) async fn open(place: &'a Place) -> anyhow::Result<Self> {
        let (client, namespace) = place.open().await?;
        let (config_map, global) = match published::find(&client, None, &namespace).await {
            Ok(found) => {
                let config_map = ObjectName::new(&found.namespace, &found.dispatch.config_map);
                let global = live::global(&client, &config_map).await.ok().and_then(Result::ok);
                (config_map, global)
            }
            Err(_) => (ObjectName::new(NAMESPACE, CONFIG_MAP), None),
        };
        Ok(Self { client, namespace, access: &place.access, config_map, global })
    }

    /// Reads a Notification.
    pub(super) async fn notification(&self, name: &str) -> anyhow::Result<Notification> {
        match live::notification(&self.client, &self.namespace, name).await? {
            Some(found) => Ok(found),
            None => Err(self.missing(name).await),
        }
    }

    /// Returns the error about a Notification that does not exist.
    async fn missing(&self, name: &str) -> anyhow::Error {
        let of_pipelines = match self.pipelines(|pipeline| defines(pipeline, name)).await {
            Ok(found) => found,
            Err(error) if is_forbidden(&error) => Vec::new(),
            // If the CRDs are not installed, the Notification seems to be absent, too.
            Err(error) => return self.unread(error).into(),
        };
        let found = match &self.global {
            Some(global) if global.get(name).is_some() => ClusterWide::Yes,
            Some(_) => ClusterWide::No,
            None => ClusterWide::Unknown,
        };
        let of = ObjectName::new(&self.namespace, name);
        Ended::new(Code::Unanswered, missing(&of, &self.config_map, found, &of_pipelines)).into()
    }

    /// Lists the pending deliveries of a Notification about the pipelines of the namespace. If the Notification does not set the URL, they
    /// can also be in the namespace of the global configuration. Without the permission to list them there, a message on stderr reports it.
    pub(super) async fn pending(&self, notification: &Notification) -> anyhow::Result<Vec<Row>> {
        let state = Some(StateFilter::Pending);
        let filter = Filter { notification: Some(notification.name_any()), state, ..Filter::default() };
        let filter = filter.about_pipelines_in(&self.namespace);
        let mut all: Vec<Row> = rows(&self.client, Some(&self.namespace), filter.clone()).try_collect().await?;
        let home = &self.config_map.namespace;
        if !has_url(notification) && *home != self.namespace {
            let there: Result<Vec<Row>, AuditError> = rows(&self.client, Some(home), filter).try_collect().await;
            match there {
                Ok(rows) => all.extend(rows),
                Err(AuditError::List(error)) if is_forbidden(&error) => {
                    let why =
                        format!("deliveries that are recorded in {home} are not counted; grant list on deliveries there");
                    writeln!(io::stderr(), "relaybook: {why}")?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(all)
    }

    /// Returns the layers of a notification that decide otherwise than the person wants. A message on stderr says which layers are not known.
    pub(super) async fn layers(&self, name: &str, verb: Verb) -> anyhow::Result<Vec<String>> {
        let mut found = match self.pipelines(|pipeline| layers(pipeline, name, !verb.value())).await {
            Ok(found) => found,
            Err(error) => {
                let why = failure::said(&self.unread(error), self.access).await;
                writeln!(
                    io::stderr(),
                    "relaybook: {why}; it is not known whether layers of Pipelines change suspend of {name}"
                )?;
                Vec::new()
            }
        };
        if verb == Verb::Resume {
            match &self.global {
                Some(global) if below(global, name, &self.namespace) => {
                    found.push(format!("the global configuration in ConfigMap {}", self.config_map));
                }
                Some(_) => {}
                None => {
                    let why = "it cannot be read, so it is not known whether it suspends";
                    writeln!(io::stderr(), "relaybook: the global configuration: {why} {name}, too")?;
                }
            }
        }
        Ok(found)
    }

    /// Reads all Pipelines of the namespace, page by page, and collects what they have.
    async fn pipelines(&self, see: impl Fn(&Pipeline) -> Vec<String>) -> Result<Vec<String>, kube::Error> {
        let api: Api<Pipeline> = Api::namespaced(self.client.clone(), &self.namespace);
        let (mut params, mut all) = (ListParams::default().limit(PAGE), Vec::new());
        loop {
            let page = api.list(&params).await?;
            all.extend(page.items.iter().flat_map(&see));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    fn unread(&self, error: kube::Error) -> PreviewError {
        PreviewError::Read { what: format!("the Pipelines of {}", self.namespace), source: Box::new(error) }
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}
