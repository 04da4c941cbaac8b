//! Checks a cluster before an installation. Nothing of Relaybook has to be there.
//!
//! In: an API server with its version, and how the controllers will be installed. Out: a [`Finding`] for each check. Nothing is changed.

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::{Api, Client, ResourceExt as _};

use super::before::{self, Other};
use super::created::{RBAC, Wanted, wanted};
use super::needs::{Installation, Need, needs};
use super::{Account, Finding, PARALLEL, allowed, attributes, permission};
use crate::diagnosis::{Level, read};
use relaybook_api::{GROUP, now};
use relaybook_core::leader::DISPATCH;
use relaybook_runtime::installed::acting::holders;
use relaybook_runtime::published::all as all_published;
use relaybook_telemetry::chain;

/// What a person can do who cannot grant the permissions of the controllers.
const GRANT: &str = "install with an account that has the ClusterRole cluster-admin, or the verbs escalate and bind on roles and \
    clusterroles";
/// Maximum number of missing permissions in a message.
const NAMED: usize = 3;

/// Runs all checks, with the permissions of the account that runs them.
pub async fn check(client: &Client, installation: &Installation, server: &Info) -> Vec<Finding> {
    let mut findings = vec![before::server(&server.git_version, &server.major, &server.minor)];
    findings.extend(namespaces(client, installation).await);
    findings.extend(definitions(client).await);
    let creates = wanted(installation).into_iter().map(|wanted| create(client, installation, wanted));
    findings.extend(stream::iter(creates).buffered(PARALLEL).collect::<Vec<_>>().await);
    findings.push(grants(client, installation).await);
    findings.push(leases(client, installation).await);
    findings.extend(others(client, installation).await);
    findings
}

/// Whether the account has a permission.
async fn may(client: &Client, installation: &Installation, need: &Need) -> Result<bool, String> {
    for verb in need.verbs {
        let is_allowed = allowed(client, installation, &Account::Own, attributes(need, verb)).await;
        if !is_allowed.map_err(|error| format!("the check failed: {}", chain(&error)))? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn create(client: &Client, installation: &Installation, wanted: Wanted) -> Finding {
    let Wanted { what, need, remedy } = wanted;
    match may(client, installation, &need).await {
        Ok(true) => Finding::ok(what),
        Ok(false) => Finding::problem(what, "not allowed".to_owned(), remedy),
        Err(why) => Finding::failed(what, why),
    }
}

/// Checks the namespace of the controllers, and those in which the chart creates Roles.
async fn namespaces(client: &Client, installation: &Installation) -> Vec<Finding> {
    let api: Api<Namespace> = Api::all(client.clone());
    let Installation { namespace, watch_namespaces, .. } = installation;
    let mut findings = match api.get_opt(namespace).await {
        Ok(Some(found)) => before::namespace(&found),
        Ok(None) => match may(client, installation, &Need::of("", "namespaces", &["create"])).await {
            Ok(may_create) => vec![before::no_namespace(namespace, may_create)],
            Err(why) => vec![Finding::failed(format!("namespace {namespace}"), why)],
        },
        Err(error) => vec![unchecked(format!("namespace {namespace}"), &error)],
    };
    for watched in watch_namespaces.iter().filter(|watched| *watched != namespace) {
        let what = format!("watched namespace {watched}");
        findings.push(match api.get_opt(watched).await {
            Ok(Some(_)) => Finding::ok(format!("{what} exists")),
            Ok(None) => {
                let why = "it does not exist, and the chart creates Roles in it".to_owned();
                Finding::problem(what, why, format!("`kubectl create namespace {watched}`, or do not watch it"))
            }
            Err(error) => unchecked(what, &error),
        });
    }
    findings
}

/// Returns the result of a check for which something could not be read.
fn unchecked(what: String, error: &kube::Error) -> Finding {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            Finding::ok(format!("{what}: not checked, no permission to read it"))
        }
        error => Finding::failed(what, chain(error)),
    }
}

async fn definitions(client: &Client) -> Vec<Finding> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let (all, mut found) = (relaybook_api::crds(), Vec::new());
    for own in &all {
        match api.get_opt(&own.name_any()).await {
            Ok(Some(theirs)) => found.push((own, theirs)),
            Ok(None) => {}
            Err(error) => return vec![unchecked(format!("CRDs of the group {GROUP}"), &error)],
        }
    }
    let pairs: Vec<_> = found.iter().map(|(own, theirs)| (*own, theirs)).collect();
    before::definitions(&pairs)
}

/// Checks whether the API server lets the account create Roles with the permissions of the controllers
/// (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>).
async fn grants(client: &Client, installation: &Installation) -> Finding {
    let what = "permission to grant the permissions of the controllers".to_owned();
    match may_grant_all(client, installation).await {
        Ok(true) => return Finding::ok(what),
        Ok(false) => {}
        Err(why) => return Finding::failed(what, why),
    }
    let own = needs(installation).into_iter().map(|need| permission(client, installation, &Account::Own, need));
    let own: Vec<Finding> = stream::iter(own).buffered(PARALLEL).collect().await;
    let missing = own.into_iter().filter(|finding| finding.level == Some(Level::Problem));
    let missing: Vec<String> = missing.map(|finding| finding.what.replace("permission to ", "")).collect();
    if missing.is_empty() {
        return Finding::ok(format!("{what}, except those on observed kinds and Secrets, which are not checked"));
    }
    let more = missing.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let named = missing.into_iter().take(NAMED).collect::<Vec<_>>().join("; ");
    let why = format!("an account can grant only what it has, and this one cannot {named}{more}");
    Finding::problem(what, why, GRANT.to_owned())
}

/// Whether the account can grant permissions that it does not have.
async fn may_grant_all(client: &Client, installation: &Installation) -> Result<bool, String> {
    const VERBS: &[&str] = &["escalate", "bind"];
    let Installation { namespace, watch_namespaces, .. } = installation;
    let roles = |namespace: &String| Need::of(RBAC, "roles", VERBS).within(Some(namespace));
    let of_cluster = watch_namespaces.is_empty().then(|| Need::of(RBAC, "clusterroles", VERBS));
    for need in of_cluster.into_iter().chain(std::iter::once(namespace).chain(watch_namespaces).map(roles)) {
        if !may(client, installation, &need).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn leases(client: &Client, installation: &Installation) -> Finding {
    match read::leases(client, &installation.namespace).await {
        Ok(leases) => before::leases(installation, &leases, now()),
        Err(why) => Finding::ok(format!("Leases in namespace {}: not checked, {why}", installation.namespace)),
    }
}

async fn others(client: &Client, installation: &Installation) -> Vec<Finding> {
    let what = "other installations";
    let all = match all_published(client).await {
        Ok(all) => all,
        Err(error) => return vec![unchecked(what.to_owned(), &error)],
    };
    let (mut known, mut unknown) = (Vec::<Other>::new(), Vec::new());
    for one in all {
        match one {
            Ok(published) => {
                let acts = acts(client, &published.namespace).await;
                known.push((published, acts));
            }
            Err(error) => unknown.push(Finding::ok(format!("{what}: not checked, {error}"))),
        }
    }
    let mut findings = before::others(installation, &known);
    findings.extend(unknown);
    findings
}

/// Whether a dispatcher acts in a namespace. `None`: that cannot be read.
async fn acts(client: &Client, namespace: &str) -> Option<bool> {
    let leases = read::leases(client, namespace).await.ok()?;
    Some(!holders(&leases, DISPATCH, now()).is_empty())
}
