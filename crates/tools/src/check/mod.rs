//! Checks an installation: CRDs, permissions, controllers that act, versions, the global configuration, objects, readiness. [`pre`] checks a
//! cluster before an installation.
//!
//! In: an API server, the settings of the controllers ([`Installation`]), the account whose permissions are checked ([`Account`]), the URL
//! of the readiness probe. Out: a [`Finding`] for each check. Nothing is changed.

mod before;
mod created;
mod endpoints;
pub mod needs;
mod objects;
pub mod pre;
mod probe;

use futures::{StreamExt as _, stream};
use http::Uri;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Serialize;

pub use needs::{Installation, Need, needs};

use crate::diagnosis::read::{idle, installation};
use crate::diagnosis::{self, Level};
use relaybook_runtime::installed::acting::{OBSERVES, PROMOTES, SENDS, command as show_leases};
use relaybook_runtime::installed::{CrdChecker, CrdState};
use relaybook_telemetry::chain;

/// Maximum number of concurrent requests.
const PARALLEL: usize = 8;

/// The account whose permissions are checked.
#[derive(Clone, Debug)]
pub enum Account {
    /// The account that runs the check.
    Own,
    /// A service account in the namespace of the controllers.
    ServiceAccount(String),
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is. `None`: the check passed.
    pub level: Option<Level>,
    /// The subject of the check.
    pub what: String,
    /// The problem. Empty if the check passed.
    pub why: String,
    /// What a person can do. Empty if the problem says it.
    pub remedy: String,
}

impl Finding {
    const fn ok(what: String) -> Self {
        Self { level: None, what, why: String::new(), remedy: String::new() }
    }

    const fn failed(what: String, why: String) -> Self {
        Self { level: Some(Level::Problem), what, why, remedy: String::new() }
    }

    const fn problem(what: String, why: String, remedy: String) -> Self {
        Self { level: Some(Level::Problem), what, why, remedy }
    }

    const fn warning(what: String, why: String, remedy: String) -> Self {
        Self { level: Some(Level::Warning), what, why, remedy }
    }

    /// The check failed if there is a problem, and otherwise passed.
    fn of(what: String, wrong: Option<String>) -> Self {
        match wrong {
            Some(why) => Self::failed(what, why),
            None => Self::ok(what),
        }
    }
}

/// Runs all checks. Without a URL, readiness is not checked.
pub async fn check(client: &Client, installation: &Installation, account: &Account, ready: Option<&Uri>) -> Vec<Finding> {
    let mut findings = vec![definitions(client).await];
    let reviews = needs(installation).into_iter().map(|need| permission(client, installation, account, need));
    findings.extend(stream::iter(reviews).buffered(PARALLEL).collect::<Vec<_>>().await);
    findings.push(controllers(client, installation).await);
    findings.extend(published(client, &installation.namespace).await);
    findings.extend(objects::check(client, installation).await);
    if let Some(url) = ready {
        let wrong = probe::ready(url).await.err().map(|error| chain(&error));
        findings.push(Finding::of(format!("readiness at {url}"), wrong));
    }
    findings
}

async fn definitions(client: &Client) -> Finding {
    let what = format!("CRDs of version {}", env!("CARGO_PKG_VERSION"));
    match CrdChecker::new(client).check().await {
        CrdState::Match => Finding::ok(what),
        CrdState::Forbidden => {
            Finding::ok(format!("{what}: not checked, no permission to read the schemas of the API server"))
        }
        CrdState::Outdated(words) | CrdState::Missing(words) => Finding::failed(what, words),
        CrdState::Unknown(error) => Finding::failed(what, format!("could not read the schemas of the API server: {error}")),
    }
}

/// Compares the version of the controller with that of this program, and checks the global configuration that it uses.
async fn published(client: &Client, namespace: &str) -> Vec<Finding> {
    let (found, unknown) = installation(client, Some(namespace), "").await;
    let unknown = unknown.into_iter().map(|text| Finding::ok(format!("not checked: {text}")));
    let Some((program, controller)) = &found.versions else { return unknown.collect() };
    let versions = format!("controller {controller}, this program {program}");
    let differ = diagnosis::of_installation(&diagnosis::Installation { crds: None, idle: Vec::new(), ..found.clone() });
    let mut all: Vec<_> = differ
        .into_iter()
        .map(|finding| Finding {
            level: Some(finding.level),
            what: finding.name,
            why: finding.message,
            remedy: finding.remedy,
        })
        .collect();
    if program == controller {
        all.insert(0, Finding::ok(versions));
    }
    all.extend(unknown);
    all
}

async fn controllers(client: &Client, installation: &Installation) -> Finding {
    let what = format!("controllers that act in namespace {}", installation.namespace);
    let needed = [(installation.pipeline, OBSERVES), (installation.dispatch, SENDS), (installation.promote, PROMOTES)];
    let needed: Vec<_> = needed.into_iter().filter_map(|(is_wanted, lease)| is_wanted.then_some(lease)).collect();
    match idle(client, &installation.namespace, &needed).await {
        Ok(texts) if texts.is_empty() => Finding::ok(what),
        Ok(texts) => {
            let more = show_leases(&installation.namespace);
            Finding::failed(what, format!("{} To see more: {more}", texts.join(" ")))
        }
        Err(why) => Finding::ok(format!("{what}: not checked, {why}")),
    }
}

async fn permission(client: &Client, installation: &Installation, account: &Account, need: Need) -> Finding {
    let mut refused = Vec::new();
    for verb in need.verbs {
        match allowed(client, installation, account, attributes(&need, verb)).await {
            Ok(true) => {}
            Ok(false) => refused.push(*verb),
            Err(error) => {
                return Finding::failed(format!("permission to {need}"), format!("the check failed: {}", chain(&error)));
            }
        }
    }
    let wrong = (!refused.is_empty()).then(|| format!("not allowed: {}", refused.join(", ")));
    Finding::of(format!("permission to {need}"), wrong)
}

fn attributes(need: &Need, verb: &str) -> ResourceAttributes {
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(need.group.to_owned()),
        resource: Some(need.resource.to_owned()),
        subresource: need.subresource.map(str::to_owned),
        namespace: need.namespace.clone(),
        name: need.name.clone(),
        ..ResourceAttributes::default()
    }
}

async fn allowed(
    client: &Client,
    installation: &Installation,
    account: &Account,
    attributes: ResourceAttributes,
) -> kube::Result<bool> {
    let (params, resource_attributes) = (PostParams::default(), Some(attributes));
    let status = match account {
        Account::Own => {
            let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..SelfSubjectAccessReviewSpec::default() };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            Api::all(client.clone()).create(&params, &review).await?.status
        }
        Account::ServiceAccount(name) => {
            let namespace = &installation.namespace;
            let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
            let spec = SubjectAccessReviewSpec {
                user: Some(format!("system:serviceaccount:{namespace}:{name}")),
                groups: Some(groups.map(str::to_owned).to_vec()),
                resource_attributes,
                ..SubjectAccessReviewSpec::default()
            };
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            Api::all(client.clone()).create(&params, &review).await?.status
        }
    };
    Ok(status.is_some_and(|status| status.allowed))
}
