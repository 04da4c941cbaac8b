//! What the cluster knows: applications and namespaces to choose from, what its controller follows already, and which Notifications exist.
//!
//! In: the API server, with the permissions of the person. Out: [`Choices`], [`Seen`] and names. Only names are listed. What the person may not list, and
//! kinds that are not installed, are left out.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectMeta};
use kube::{Api, Client, ResourceExt};
use tokio::time::timeout;

use crate::app::Access;
use crate::cli::shared::exit::{Code, Ended};
use relaybook_api::Notification;
use relaybook_pipelines::sets::Followed;
use relaybook_runtime::published::{LookupError, pipelines};
use relaybook_text::escaped;
use relaybook_tools::init::{Already, Answers, App, KNOWN};

/// Time after which the API server counts as away.
const WITHIN: Duration = Duration::from_secs(5);
/// What is not known without the published configuration.
const UNKNOWN: &str = "it is not known which kinds the controller follows already";
/// Maximum number of listed objects of each kind.
const MOST: u32 = 500;

/// What a person can choose.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// The applications, each with its namespaces.
    pub(super) apps: Vec<(App, Vec<String>)>,
    /// All namespaces.
    pub(super) namespaces: Vec<String>,
}

/// What is known about the kinds to follow.
#[derive(Debug)]
pub(super) struct Seen {
    /// The controller that follows some of them already.
    pub(super) already: Option<Already>,
    /// The number of objects, as far as the person may list them.
    pub(super) objects: Vec<(Followed, u64)>,
    /// Whether sets can select objects of other namespaces.
    pub(super) cross_namespace_refs: bool,
}

impl Seen {
    /// Nothing is known.
    pub(super) const fn nothing() -> Self {
        Self { already: None, objects: Vec::new(), cross_namespace_refs: true }
    }
}

/// Lists applications and namespaces.
pub(super) async fn choices(access: &Access, namespace: &str) -> anyhow::Result<Choices> {
    let client = access.client().await?;
    let work = async {
        let each = KNOWN.iter().map(|known| {
            let resource = resource(known.api_version, known.kind, known.plural());
            objects(&client, resource, namespace)
        });
        let (listed, namespaces) = tokio::join!(try_join_all(each), names(&client));
        anyhow::Ok((listed?, namespaces?))
    };
    let answered = timeout(WITHIN, work).await.context("the API server does not answer in time")?;
    let (listed, namespaces) = answered?;
    let mut apps = Vec::new();
    for (known, objects) in KNOWN.iter().zip(listed) {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (namespace, name) in objects.into_iter().filter(|(namespace, _)| is_of_people(namespace)) {
            places.entry(name).or_default().push(namespace);
        }
        apps.extend(places.into_iter().map(|(name, namespaces)| (known.named(&name), namespaces)));
    }
    Ok(Choices { apps, namespaces })
}

/// Whether a namespace can contain applications. The others belong to Kubernetes.
fn is_of_people(namespace: &str) -> bool {
    !namespace.starts_with("kube-")
}

fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// Lists namespace and name of the objects of a kind, in all namespaces or in the one that the person may list.
async fn objects(client: &Client, resource: ApiResource, namespace: &str) -> kube::Result<Vec<(String, String)>> {
    let params = ListParams::default().limit(MOST);
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = match all.list_metadata(&params).await {
        Err(error) if is_code(&error, &[403]) => {
            let one: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
            one.list_metadata(&params).await
        }
        found => found,
    };
    match found {
        Ok(page) => {
            let place = |of: ObjectMeta| (of.namespace.unwrap_or_default(), of.name.unwrap_or_default());
            Ok(page.items.into_iter().map(|object| place(object.metadata)).collect())
        }
        Err(error) if is_code(&error, &[403, 404]) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Lists the names of the namespaces.
async fn names(client: &Client) -> kube::Result<Vec<String>> {
    let all: Api<Namespace> = Api::all(client.clone());
    match all.list_metadata(&ListParams::default().limit(MOST)).await {
        Ok(page) => {
            let names = page.items.iter().map(ResourceExt::name_any);
            Ok(names.filter(|name| is_of_people(name)).collect())
        }
        Err(error) if is_code(&error, &[403]) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn is_code(error: &kube::Error, codes: &[u16]) -> bool {
    matches!(error, kube::Error::Api(status) if codes.contains(&status.code))
}

/// Asks what the controller follows already, and how many objects there are. If the API server does not answer, it is not known whether each
/// object would have two pipelines, so that is an error.
pub(super) async fn seen(
    access: &Access,
    controller: Option<&str>,
    answers: &Answers,
    kinds: &[Followed],
) -> anyhow::Result<Seen> {
    let client = access.client().await.with_context(|| format!("{UNKNOWN}; --offline does not ask"))?;
    if let Ok(seen) = timeout(WITHIN, followed(&client, controller, answers, kinds)).await {
        return seen;
    }
    let text = format!("{UNKNOWN}: the API server does not answer in time; --offline does not ask");
    Err(Ended::new(Code::Unanswered, text).into())
}

/// Asks what controllers publish, and counts objects.
async fn followed(client: &Client, controller: Option<&str>, answers: &Answers, kinds: &[Followed]) -> anyhow::Result<Seen> {
    let mut all = Vec::new();
    for found in pipelines(client, controller).await {
        match found {
            Ok(settings) => all.push(settings),
            Err(error @ (LookupError::Unlisted(_) | LookupError::Unread { .. })) => {
                let text = format!("{UNKNOWN}: {}; --offline does not ask", escaped(&error.to_string()));
                return Err(Ended::new(Code::Unanswered, text).into());
            }
            Err(error) => writeln!(io::stderr(), "relaybook: {UNKNOWN}: {}", escaped(&error.to_string()))?,
        }
    }
    let namespace = answers.namespace.as_ref().unwrap_or(&answers.default_namespace);
    let watches = |watched: &[String]| watched.is_empty() || watched.contains(namespace);
    let mut near = all.iter().filter(|(_, settings)| watches(&settings.watch_namespaces)).peekable();
    let is_unwatched = !all.is_empty() && near.peek().is_none();
    let cross_namespace_refs = near.peek().is_none() || near.any(|(_, settings)| !settings.no_cross_namespace_refs);
    let already = Already::find(&all, answers.namespace.as_deref(), kinds);
    let already = already.map_err(|error| Ended::new(Code::Usage, error.to_string()))?;
    if is_unwatched && already.is_none() {
        writeln!(io::stderr(), "relaybook: warning: no controller watches the namespace {}", escaped(namespace))?;
    }
    let counts = join_all(kinds.iter().map(|kind| count(client, *kind))).await;
    let objects = kinds.iter().zip(counts).filter_map(|(kind, count)| Some((*kind, count?))).collect();
    Ok(Seen { already, objects, cross_namespace_refs })
}

/// Returns the number of objects, if the person may list them and the API server counts them.
async fn count(client: &Client, kind: Followed) -> Option<u64> {
    let objects = kind.set("", false).spec.generators.into_iter().find_map(|generator| generator.objects)?;
    let resource = resource(&objects.api_version, &objects.kind, kind.name());
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let page = all.list_metadata(&ListParams::default().limit(1)).await.ok()?;
    let rest = u64::try_from(page.metadata.remaining_item_count.unwrap_or_default()).ok()?;
    Some(page.items.len() as u64 + rest)
}

/// Returns which of the Notifications exist already, as far as the API server answers in time.
pub(super) async fn existing(access: &Access, namespace: &str, names: &[String]) -> Vec<String> {
    let work = async {
        let Ok(client) = access.client().await else { return Vec::new() };
        let api: Api<Notification> = Api::namespaced(client, namespace);
        let found = join_all(names.iter().map(|name| api.get_metadata_opt(name))).await;
        let existing = names.iter().zip(found).filter(|(_, found)| matches!(found, Ok(Some(_))));
        existing.map(|(name, _)| name.clone()).collect::<Vec<String>>()
    };
    timeout(WITHIN, work).await.unwrap_or_default()
}
