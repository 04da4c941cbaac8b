//! Reads what a screen shows, with the permissions of the caller.
//!
//! In: the caller, and the query. Out: the values of [`screens`](crate::page::screens). A part that cannot be read becomes a sentence beside the
//! parts that can. Each screen makes at most ten calls, and no list is read further than some pages of it.

pub(super) mod call;
mod delivery;
mod fleet;
pub(super) mod health;
mod lists;
mod notification;
mod pipeline;
mod search;

use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::api::{Notification, Pipeline, Time};
use crate::audit::{self, Entry, Filter};
use crate::config::Global;
use crate::k8s::watch::Guarded;
use crate::page::Settings;
use crate::page::access::caller::Caller;
use crate::page::follow::{Followed, Following};
use crate::page::read::call::{call, in_time};
use crate::page::trouble::{Trouble, Wanted};
use crate::preview::{Asked, Explained, Known, explain, live};

/// Page size of a list of deliveries.
const PAGE: u32 = 500;

/// What all reads need.
pub(super) struct Reader<'a> {
    pub(super) caller: &'a Caller,
    pub(super) settings: &'a Settings,
    pub(super) following: &'a Following,
    /// The token of forms. `None`: the page only reads.
    pub(super) form_token: Option<String>,
    pub(super) now: Time,
}

/// Why a screen has nothing to show.
pub(super) enum Nothing {
    /// The object does not exist; with its kind and name.
    Missing(String),
    /// It cannot be read.
    Trouble(Trouble),
}

impl From<Trouble> for Nothing {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

/// Deliveries that were read from several pages of a list.
struct Entries {
    all: Vec<Entry>,
    next: Option<String>,
    trouble: Option<Trouble>,
}

impl Reader<'_> {
    /// Returns the rows that are followed, and asks the API server whether the caller may still see them.
    async fn rows(&self, namespace: Option<&str>) -> Result<std::sync::Arc<Followed>, Trouble> {
        let api: Api<Pipeline> = match namespace {
            Some(namespace) => Api::namespaced(self.caller.client.clone(), namespace),
            None => Api::all(self.caller.client.clone()),
        };
        let wanted = Wanted::new("list", "pipelines", namespace);
        // First, so that nothing is watched that the caller may not read.
        let checked = call(&wanted, api.list_metadata(&ListParams::default().limit(1))).await;
        if let Err(trouble) = &checked
            && !trouble.is_passing()
        {
            return Err(trouble.clone());
        }
        let rows = self.following.rows(self.caller, namespace).await;
        match checked {
            Ok(_) => rows.has_answered(),
            Err(trouble) => rows.is_troubled(trouble),
        }
        Ok(rows)
    }

    /// Reads deliveries, at most `pages` pages. What was read before a failure is returned with it.
    async fn deliveries(&self, namespace: Option<&str>, filter: &Filter, pages: usize, after: Option<&str>) -> Entries {
        let wanted = Wanted::new("list", "deliveries", namespace);
        let mut entries = Entries { all: Vec::new(), next: after.map(str::to_owned), trouble: None };
        for _ in 0..pages {
            let token = entries.next.take().unwrap_or_default();
            let page = audit::page(&self.caller.client, namespace, filter, PAGE, &token);
            match in_time(page, |error| Trouble::of_audit(&error, &wanted)).await {
                Ok(page) => {
                    entries.all.extend(page.entries);
                    entries.next = page.next;
                    if entries.next.is_none() {
                        break;
                    }
                }
                Err(trouble) => {
                    entries.trouble = Some(trouble);
                    break;
                }
            }
        }
        entries
    }

    /// Reads the Notifications of a namespace and the global configuration.
    async fn layers(&self, namespace: &str) -> Result<Layers, Trouble> {
        let wanted = Wanted::new("list", "notifications", Some(namespace));
        let api: Api<Guarded<Notification>> = Api::namespaced(self.caller.client.clone(), namespace);
        let (notifications, global) = tokio::join!(list(api, &wanted), self.global());
        let (global, unknown) = global?;
        Ok(Layers { notifications: notifications?, global, unknown })
    }

    /// Reads the global configuration. If the caller may not read it, or it is wrong, it counts as empty, and the trouble says that.
    async fn global(&self) -> Result<(Global, Option<Trouble>), Trouble> {
        let config_map = &self.settings.config_map;
        let wanted = Wanted::new("get", "configmaps", Some(&config_map.namespace));
        let read = live::global(&self.caller.client, config_map);
        match in_time(read, |error| Trouble::of_preview(&error, &wanted)).await? {
            Ok(global) => Ok((global, None)),
            Err(why) => {
                let words = format!("The global configuration in ConfigMap {config_map} is left out here: {why}");
                Ok((Global::default(), Some(Trouble::Other(words))))
            }
        }
    }

    /// Explains the notifications of a pipeline. This compiles templates for each target, so it runs outside of the threads that call the API
    /// server, and one at a time: the controllers need the processor too.
    async fn explained(&self, pipeline: &Pipeline, layers: &Layers, name: Option<&str>) -> Result<Vec<Explained>, Trouble> {
        static ONE: Semaphore = Semaphore::const_new(1);
        let (pipeline, layers, settings) = (pipeline.clone(), layers.clone(), self.settings.clone());
        let name = name.map(str::to_owned);
        let work = move || {
            let known = layers.known(&settings, &pipeline);
            explain(&pipeline, &known, Asked { notification: name.as_deref(), target: None }).unwrap_or_default()
        };
        let failed = || Trouble::Other("The effective settings cannot be computed".to_owned());
        let _permit = ONE.acquire().await.map_err(|_| failed())?;
        tokio::task::spawn_blocking(work).await.map_err(|_| failed())
    }
}

/// What is below the layers of pipelines.
#[derive(Clone)]
struct Layers {
    notifications: Vec<Notification>,
    global: Global,
    /// Why the global configuration is not known.
    unknown: Option<Trouble>,
}

impl Layers {
    /// Returns the layers that are below those of a pipeline. It has only the Notifications of its own namespace.
    fn known<'a>(&'a self, settings: &'a Settings, pipeline: &Pipeline) -> Known<'a> {
        let is_here = self.notifications.iter().all(|notification| notification.namespace() == pipeline.namespace());
        Known {
            global: &self.global,
            config_map: &settings.config_map,
            notifications: if is_here { &self.notifications } else { &[] },
            cluster: &settings.cluster_name,
            allow_http: settings.allow_http,
            egress: settings.egress.as_ref(),
        }
    }
}

/// Reads the first objects of a list. An object that this version cannot read does not hide the others.
async fn list<K>(api: Api<Guarded<K>>, wanted: &Wanted) -> Result<Vec<K>, Trouble>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = ListParams::default().limit(PAGE);
    let all = call(wanted, api.list(&params)).await?;
    Ok(all.items.iter().filter_map(|object| object.open().ok()).collect())
}

/// Sorts deliveries by their last event, the newest first.
fn newest_first(entries: &mut [Entry]) {
    entries.sort_by(|a, b| (b.row.last(), &b.row.name).cmp(&(a.row.last(), &a.row.name)));
}
