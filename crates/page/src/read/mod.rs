//! Reads what a screen shows, with the permissions of the caller.
//!
//! In: the caller, and the query. Out: the values of [`screens`](crate::screens). A part that cannot be read becomes a sentence beside the
//! parts that can. Each screen makes at most ten calls, and one for each of some Applications of Argo CD. No list is read further than some
//! pages of it.

pub(super) mod call;
mod delivery;
pub(super) mod destination;
mod fleet;
mod fresh;
pub(super) mod health;
mod lists;
mod notification;
mod pipeline;
pub(super) mod recent;
mod search;
pub(super) mod send_test;
pub(super) mod uncounted;

use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::Settings;
use crate::access::caller::Caller;
use crate::follow::{Followed, Following};
use crate::read::call::{call, in_time};
use crate::read::destination::Destinations;
use crate::read::recent::Recent;
use crate::read::uncounted::Uncounted;
use crate::screens::names;
use crate::trouble::{Trouble, Wanted};
use relaybook_api::{Notification, Pipeline, Time};
use relaybook_runtime::watch::{Guarded, api_in};
use relaybook_settings::config::Global;
use relaybook_tools::audit;
use relaybook_tools::audit::{Entry, Filter};
use relaybook_tools::preview::{Asked, Explained, Known, explain, live};

/// Page size of a list.
const PAGE: u32 = 500;
/// Number of pages of notifications or promotions of a namespace that are read.
const PAGES: usize = 4;

/// What all reads need.
pub(super) struct Reader<'a> {
    pub(super) caller: &'a Caller,
    pub(super) settings: &'a Settings,
    pub(super) following: &'a Following,
    pub(super) uncounted: &'a Uncounted,
    pub(super) recent: &'a Recent,
    pub(super) destinations: &'a Destinations,
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
#[derive(Default)]
struct Entries {
    all: Vec<Entry>,
    next: Option<String>,
    trouble: Option<Trouble>,
}

impl Reader<'_> {
    /// Returns the rows that are followed, and asks the API server whether the caller may still see them.
    async fn rows(&self, namespace: Option<&str>) -> Result<std::sync::Arc<Followed>, Trouble> {
        let api = api_in::<Pipeline>(&self.caller.client, namespace);
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
                    entries.all.extend(page.entries.into_iter().map(|entry| self.named(entry)));
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

    /// Returns a delivery with the name of its subject for people.
    fn named(&self, mut entry: Entry) -> Entry {
        entry.row.subject = names::shown(&entry.spec.subject, &self.settings.cluster_name);
        entry
    }

    /// Reads deliveries about the pipelines of a namespace. Those whose URL is set in the global configuration are recorded in the namespace of
    /// the controllers. The second value says why these are not known.
    async fn about(&self, namespace: &str, filter: &Filter, pages: usize) -> (Entries, Option<Trouble>) {
        let filter = filter.clone().about_pipelines_in(namespace);
        let own = self.deliveries(Some(namespace), &filter, pages, None);
        let (mut own, mut elsewhere) = tokio::join!(own, self.elsewhere(Some(namespace), &filter));
        let trouble = elsewhere.trouble.take();
        own.add(elsewhere);
        (own, trouble)
    }

    /// Reads deliveries about the pipelines of a namespace that are recorded in the namespace of the controllers. Those are none without a
    /// namespace, because then all namespaces are read.
    async fn elsewhere(&self, namespace: Option<&str>, filter: &Filter) -> Entries {
        let home = self.settings.config_map.namespace.as_str();
        match namespace.filter(|namespace| *namespace != home) {
            Some(namespace) => {
                let filter = filter.clone().about_pipelines_in(namespace);
                self.deliveries(Some(home), &filter, 1, None).await
            }
            None => Entries::default(),
        }
    }

    /// Returns what is not known of the layers and of the deliveries in the namespace of the controllers. A missing permission there does not
    /// matter if the global configuration sets no URL.
    fn left_out(&self, layers: &Layers, elsewhere: Option<Trouble>) -> Vec<Trouble> {
        let home = self.settings.config_map.namespace.as_str();
        let mut all = layers.unknown.clone();
        match (elsewhere, all.first_mut()) {
            (None, _) => {}
            (Some(Trouble::Forbidden(_)), Some(first)) => {
                let words = format!("{} The deliveries that are recorded in {home} are left out, too", first.sentence());
                *first = Trouble::Other(words);
            }
            (Some(Trouble::Forbidden(_)), None) if lists::origins_below(&layers.global, home).is_empty() => {}
            (Some(trouble), _) => all.push(Trouble::Other(format!(
                "The deliveries that are recorded in {home} are left out. {}",
                trouble.sentence().trim_end_matches('.')
            ))),
        }
        all
    }

    /// Reads the Notifications of a namespace and the global configuration.
    async fn layers(&self, namespace: &str) -> Result<Layers, Trouble> {
        let wanted = Wanted::new("list", "notifications", Some(namespace));
        let api: Api<Guarded<Notification>> = Api::namespaced(self.caller.client.clone(), namespace);
        let (notifications, global) = tokio::join!(list(api, PAGES, &wanted), self.global());
        let ((notifications, unread), (global, unknown)) = (notifications?, global?);
        Ok(Layers { notifications, global, unknown: unknown.into_iter().chain(unread).collect() })
    }

    /// Adds the Notifications of the layer namespace of a pipeline.
    async fn with_layer_namespace(&self, mut layers: Layers, pipeline: &Pipeline) -> Layers {
        let Some(namespace) = pipeline.spec.other_layer_namespace(&pipeline.namespace().unwrap_or_default()) else {
            return layers;
        };
        let wanted = Wanted::new("list", "notifications", Some(namespace));
        let api: Api<Guarded<Notification>> = Api::namespaced(self.caller.client.clone(), namespace);
        match list(api, PAGES, &wanted).await {
            Ok((notifications, unread)) => {
                layers.notifications.extend(notifications);
                layers.unknown.extend(unread);
            }
            Err(trouble) => layers.unknown.push(trouble),
        }
        layers
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
        let (pipeline, layers, settings) = (pipeline.clone(), layers.clone(), self.settings.clone());
        let name = name.map(str::to_owned);
        let work = move || {
            let known = layers.known(&settings, &pipeline);
            explain(&pipeline, &known, Asked { notification: name.as_deref(), target: None }).unwrap_or_default()
        };
        computed(work).await
    }
}

/// Computes effective settings outside of the threads that call the API server, one at a time.
async fn computed<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Trouble> {
    static ONE: Semaphore = Semaphore::const_new(1);
    let failed = || Trouble::Other("The effective settings cannot be computed".to_owned());
    let permit = ONE.acquire().await.map_err(|_| failed())?;
    // Held until the end: the person can close the screen before.
    let work = move || {
        let _permit = permit;
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| failed())
}

/// Returns what is missing in the rows that are followed.
fn unfinished(followed: &Followed) -> impl Iterator<Item = Trouble> {
    let is_listing = !followed.is_complete() && followed.pipelines(|rows| rows.trouble.is_none());
    let words = || Trouble::Other("The first list of pipelines has not ended yet; more of them follow".to_owned());
    is_listing.then(words).into_iter().chain(followed.unreadable())
}

impl Entries {
    /// Adds those of another list.
    fn add(&mut self, other: Self) {
        self.all.extend(other.all);
        self.next = self.next.take().or(other.next);
        let trouble = other.trouble.filter(|trouble| !matches!(trouble, Trouble::Forbidden(_)));
        self.trouble = self.trouble.take().or(trouble);
    }
}

/// What is below the layers of pipelines.
#[derive(Clone)]
struct Layers {
    notifications: Vec<Notification>,
    global: Global,
    /// Why some of it is not known.
    unknown: Vec<Trouble>,
}

impl Layers {
    /// Returns the layers that are below those of a pipeline. It has only the Notifications of its own namespace and of its layer namespace.
    fn known<'a>(&'a self, settings: &'a Settings, pipeline: &Pipeline) -> Known<'a> {
        let own = pipeline.namespace().unwrap_or_default();
        let is_near = |other: &str| other == own || pipeline.spec.other_layer_namespace(&own) == Some(other);
        let is_here = self.notifications.iter().all(|n| n.metadata.namespace.as_deref().is_some_and(is_near));
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

/// Reads the objects of a list, at most `pages` pages. The second value names what is missing: objects that this version cannot read, which
/// do not hide the others, and the rest of the list.
async fn list<K>(api: Api<Guarded<K>>, pages: usize, wanted: &Wanted) -> Result<(Vec<K>, Vec<Trouble>), Trouble>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let (mut all, mut missing, mut params) = (Vec::new(), Vec::new(), ListParams::default().limit(PAGE));
    for _ in 0..pages {
        let page = call(wanted, api.list(&params)).await?;
        for object in &page.items {
            match object.open() {
                Ok(object) => all.push(object),
                Err(_) if missing.is_empty() => {
                    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                    let words =
                        format!("This version cannot read {} {namespace}/{name}; the others are shown", K::kind(&()));
                    missing.push(Trouble::Other(words));
                }
                Err(_) => {}
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok((all, missing)),
        }
    }
    let place = wanted.namespace.as_deref().map_or_else(String::new, |namespace| format!(" in {namespace}"));
    let words = format!("Only the first {} of the {}{place} are read here", all.len(), wanted.resource);
    missing.push(Trouble::Other(words));
    Ok((all, missing))
}

/// Sorts deliveries by their last event, the newest first.
fn newest_first(entries: &mut [Entry]) {
    entries.sort_by(|a, b| (b.row.last(), &b.row.name).cmp(&(a.row.last(), &a.row.name)));
}
