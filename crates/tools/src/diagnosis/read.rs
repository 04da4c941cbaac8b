//! Reads what a diagnosis needs, with the permissions of the person.
//!
//! In: a client, and a namespace or all of them. Out: the objects of a kind, kept up to date by a watch ([`Watched`]), and what is known of the
//! installation ([`installation`]). What may not be read is a sentence, and the rest is shown.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::Installation;
use crate::audit::{AuditError, Filter, Row, StateFilter, rows};
use crate::preview::live;
use relaybook_api::{ObjectName, now};
use relaybook_runtime::installed::acting::{self, OBSERVES, PROMOTES, SENDS};
use relaybook_runtime::installed::{CrdChecker, CrdState};
use relaybook_runtime::published::{Installation as Published, LookupError, all as all_published, find};
use relaybook_runtime::watch::api_in;
use relaybook_telemetry::chain;

/// Page size of a list.
const PAGE: u32 = 500;
/// Maximum number of pending deliveries that are read. The numbers of a notification are in its status.
const PENDING: usize = 1000;

/// The Leases that each installation needs.
pub const NEEDED: [(&str, &str); 2] = [OBSERVES, SENDS];
/// Time limit of the list of Leases.
const DEADLINE: Duration = Duration::from_secs(5);

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Namespace and name of an object.
type Key = (String, String);

/// A kind whose objects can be watched.
pub trait Watchable:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + 'static
{
}

impl<K> Watchable for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + 'static
{
}

/// The objects of one kind.
pub struct Watched<K> {
    events: BoxStream<'static, watcher::Result<watcher::Event<K>>>,
    objects: BTreeMap<Key, K>,
    /// The objects of the list in progress.
    listed: BTreeMap<Key, K>,
}

impl<K> fmt::Debug for Watched<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("objects", &self.objects.len()).finish_non_exhaustive()
    }
}

impl<K: Watchable> Watched<K> {
    /// Watches the objects of a namespace, or of all namespaces.
    #[must_use]
    pub fn new(client: &Client, namespace: Option<&str>) -> Self {
        let config = watcher::Config::default().page_size(PAGE);
        let events = watcher(api_in::<K>(client, namespace), config).default_backoff().boxed();
        Self { events, objects: BTreeMap::new(), listed: BTreeMap::new() }
    }

    /// Reads until the list is complete.
    ///
    /// # Errors
    /// The list fails.
    pub async fn list(&mut self) -> watcher::Result<()> {
        while let Some(event) = self.events.next().await {
            if self.on(event?) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for the next change.
    ///
    /// # Errors
    /// The watch fails. The next call tries again.
    pub async fn changed(&mut self) -> watcher::Result<()> {
        self.list().await
    }

    /// Returns the objects, by namespace and name.
    pub fn objects(&self) -> Vec<K> {
        self.objects.values().cloned().collect()
    }

    /// Applies an event. Returns whether the objects are complete and may have changed.
    fn on(&mut self, event: watcher::Event<K>) -> bool {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(object) => {
                self.listed.insert(key(&object), object);
            }
            watcher::Event::InitDone => {
                self.objects = std::mem::take(&mut self.listed);
                return true;
            }
            watcher::Event::Apply(object) => {
                self.objects.insert(key(&object), object);
                return true;
            }
            watcher::Event::Delete(object) => {
                self.objects.remove(&key(&object));
                return true;
            }
        }
        false
    }
}

fn key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Whether a person may not list or watch the objects.
#[must_use]
pub fn is_forbidden(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error)) = error else { return false };
    let error: &kube::Error = error;
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Returns the deliveries that are pending, at most 1,000.
///
/// # Errors
/// The list fails.
pub async fn pending(client: &Client, namespace: Option<&str>) -> Result<Vec<Row>, AuditError> {
    let filter = Filter { state: Some(StateFilter::Pending), ..Filter::default() };
    rows(client, namespace, filter).take(PENDING).try_collect().await
}

/// Returns what is known of the installation that watches a namespace, and a sentence for each part that is not known. `controller` is the
/// namespace of the controllers, if the person names it.
pub async fn installation(client: &Client, controller: Option<&str>, namespace: &str) -> (Installation, Vec<String>) {
    let (mut found, mut unknown) = (Installation::default(), Vec::new());
    found.crds = crds(client, &mut unknown).await;
    match find(client, controller, namespace).await {
        Ok(published) => known(client, &published, &mut found, &mut unknown).await,
        Err(why @ (LookupError::NotWatched { .. } | LookupError::NoInstallation)) => found.unwatched = Some(why.to_string()),
        Err(why) => unknown.push(format!("the controllers: {why}")),
    }
    (found, unknown)
}

/// Returns what is known of all installations of the cluster, and a sentence for each part that is not known.
pub async fn installations(client: &Client) -> (Vec<Installation>, Vec<String>) {
    let mut unknown = Vec::new();
    let mut all = vec![Installation { crds: crds(client, &mut unknown).await, ..Installation::default() }];
    match all_published(client).await {
        Ok(published) if published.is_empty() => all[0].unwatched = Some(LookupError::NoInstallation.to_string()),
        Ok(published) => {
            for one in published {
                let mut found = Installation::default();
                match one {
                    Ok(published) => known(client, &published, &mut found, &mut unknown).await,
                    Err(why) => unknown.push(format!("the controllers: {why}")),
                }
                all.push(found);
            }
        }
        Err(why) => unknown.push(format!("the controllers: {}", chain(&why))),
    }
    (all, unknown)
}

async fn crds(client: &Client, unknown: &mut Vec<String>) -> Option<String> {
    let why = match CrdChecker::new(client).check().await {
        CrdState::Outdated(why) | CrdState::Missing(why) => return Some(why),
        CrdState::Match => return None,
        CrdState::Unknown(why) => why,
        CrdState::Forbidden => "no permission to read the schemas of the API server".to_owned(),
    };
    unknown.push(format!("whether the CRDs are those of this program: {why}"));
    None
}

/// Adds what is known of one installation.
async fn known(client: &Client, published: &Published, found: &mut Installation, unknown: &mut Vec<String>) {
    found.versions = Some((VERSION.to_owned(), published.dispatch.version.clone()));
    match leases(client, &published.namespace).await {
        Ok(leases) => found.idle = acting::idle(&leases, &needed(&leases), now()),
        Err(why) => unknown.push(format!("whether a controller acts: {why}")),
    }
    let config_map = ObjectName::new(&published.namespace, &published.dispatch.config_map);
    match live::global(client, &config_map).await {
        Ok(Ok(_)) => {}
        Ok(Err(why @ live::GlobalUnavailable::Forbidden(_))) => unknown.push(format!("ConfigMap {config_map}: {why}")),
        Ok(Err(why)) => found.global = Some((config_map.to_string(), why.to_string())),
        Err(why) => unknown.push(chain(&why)),
    }
    found.namespace.clone_from(&published.namespace);
}

/// Returns the Leases that must be held. The promotion controller has one if it ever ran.
fn needed(leases: &[Lease]) -> Vec<(&'static str, &'static str)> {
    let promotes = leases.iter().any(|lease| lease.name_any().starts_with(PROMOTES.0));
    NEEDED.into_iter().chain(promotes.then_some(PROMOTES)).collect()
}

/// Returns a sentence for each part of the work that no controller in this namespace does. `Err`: why that is not known.
///
/// # Errors
/// The Leases cannot be read.
pub async fn idle(client: &Client, namespace: &str, needed: &[(&str, &'static str)]) -> Result<Vec<String>, String> {
    Ok(acting::idle(&leases(client, namespace).await?, needed, now()))
}

/// Returns all Leases of a namespace. `Err`: why they are not known.
///
/// # Errors
/// The Leases cannot be read, or there are too many.
pub(crate) async fn leases(client: &Client, namespace: &str) -> Result<Vec<Lease>, String> {
    let api = Api::<Lease>::namespaced(client.clone(), namespace);
    let leases = timeout(DEADLINE, api.list(&ListParams::default().limit(acting::MAX_LEASES))).await;
    let leases = leases.map_err(|_| "the API server does not answer".to_owned())?.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 403 => format!("no permission to list leases in namespace {namespace}"),
        error => format!("the Leases cannot be read: {}", chain(&error)),
    })?;
    if leases.metadata.continue_.as_deref().is_some_and(|more| !more.is_empty()) {
        return Err(format!("namespace {namespace} has more than {} Leases", acting::MAX_LEASES));
    }
    Ok(leases.items)
}
