//! Checks an installation: CRDs, permissions, controllers that act, keys of hooks, readiness.
//!
//! In: an API server, the settings of the controllers ([`Installation`]), the account whose permissions are checked ([`Account`]), the URL
//! of the readiness probe. Out: a [`Finding`] for each check. Nothing is changed.

mod hooks;
pub mod needs;
mod probe;

use std::time::Duration;

use futures::{StreamExt as _, stream};
use http::Uri;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use tokio::time::timeout;

pub use needs::{Installation, Need, needs};

use relaybook_api::now;
use relaybook_runtime::installed::acting;
pub use relaybook_runtime::installed::acting::command as show_leases;
use relaybook_runtime::installed::acting::{OBSERVES, SENDS};
use relaybook_runtime::installed::{CrdChecker, CrdState};
use relaybook_telemetry::chain;

/// Maximum number of concurrent requests.
const PARALLEL: usize = 8;
/// The Leases that each installation needs.
pub const NEEDED: [(&str, &str); 2] = [OBSERVES, SENDS];
/// Time limit of the list of Leases.
const DEADLINE: Duration = Duration::from_secs(5);

/// The account whose permissions are checked.
#[derive(Clone, Debug)]
pub enum Account {
    /// The account that runs the check.
    Own,
    /// A service account in the namespace of the controllers.
    ServiceAccount(String),
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The subject of the check.
    pub what: String,
    /// The problem. `None`: the check passed.
    pub wrong: Option<String>,
}

/// Runs all checks. Without a URL, readiness is not checked.
pub async fn check(client: &Client, installation: &Installation, account: &Account, ready: Option<&Uri>) -> Vec<Finding> {
    let mut findings = vec![definitions(client).await];
    let reviews = needs(installation).into_iter().map(|need| permission(client, installation, account, need));
    findings.extend(stream::iter(reviews).buffered(PARALLEL).collect::<Vec<_>>().await);
    findings.push(controllers(client, installation).await);
    if installation.promote {
        findings.extend(hooks::check(client, installation).await);
    }
    if let Some(url) = ready {
        let wrong = probe::ready(url).await.err().map(|error| chain(&error));
        findings.push(Finding { what: format!("readiness at {url}"), wrong });
    }
    findings
}

async fn definitions(client: &Client) -> Finding {
    let what = format!("CRDs of version {}", env!("CARGO_PKG_VERSION"));
    match CrdChecker::new(client).check().await {
        CrdState::Match => Finding { what, wrong: None },
        CrdState::Forbidden => Finding {
            what: format!("{what}: not checked, no permission to read the schemas of the API server"),
            wrong: None,
        },
        CrdState::Outdated(words) | CrdState::Missing(words) => Finding { what, wrong: Some(words) },
        CrdState::Unknown(error) => {
            Finding { what, wrong: Some(format!("could not read the schemas of the API server: {error}")) }
        }
    }
}

async fn controllers(client: &Client, installation: &Installation) -> Finding {
    let what = format!("controllers that act in namespace {}", installation.namespace);
    let needed = [(installation.pipeline, OBSERVES), (installation.dispatch, SENDS)];
    let needed: Vec<_> = needed.into_iter().filter_map(|(is_wanted, lease)| is_wanted.then_some(lease)).collect();
    match idle(client, &installation.namespace, &needed).await {
        Ok(texts) if texts.is_empty() => Finding { what, wrong: None },
        Ok(texts) => {
            let more = show_leases(&installation.namespace);
            Finding { what, wrong: Some(format!("{} To see more: {more}", texts.join(" "))) }
        }
        Err(why) => Finding { what: format!("{what}: not checked, {why}"), wrong: None },
    }
}

/// Returns a sentence for each part of the work that no controller in this namespace does. `Err`: why that is not known.
///
/// # Errors
/// The Leases cannot be read.
pub async fn idle(client: &Client, namespace: &str, needed: &[(&str, &'static str)]) -> Result<Vec<String>, String> {
    let api = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(client.clone(), namespace);
    let leases = timeout(DEADLINE, api.list(&ListParams::default().limit(acting::MAX_LEASES))).await;
    let leases = leases.map_err(|_| "the API server does not answer".to_owned())?.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 403 => format!("no permission to list leases in namespace {namespace}"),
        error => format!("the Leases cannot be read: {}", chain(&error)),
    })?;
    if leases.metadata.continue_.as_deref().is_some_and(|more| !more.is_empty()) {
        return Err(format!("namespace {namespace} has more than {} Leases", acting::MAX_LEASES));
    }
    Ok(acting::idle(&leases.items, needed, now()))
}

async fn permission(client: &Client, installation: &Installation, account: &Account, need: Need) -> Finding {
    let mut refused = Vec::new();
    for verb in need.verbs {
        match allowed(client, installation, account, attributes(&need, verb)).await {
            Ok(true) => {}
            Ok(false) => refused.push(*verb),
            Err(error) => {
                return Finding {
                    what: format!("permission to {need}"),
                    wrong: Some(format!("the check failed: {}", chain(&error))),
                };
            }
        }
    }
    let wrong = (!refused.is_empty()).then(|| format!("not allowed: {}", refused.join(", ")));
    Finding { what: format!("permission to {need}"), wrong }
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
