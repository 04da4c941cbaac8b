//! Tests the installation: a real API server accepts the manifests of the chart and of the kustomize bases, they grant the permissions
//! that the program needs and no others, and Helm can install and remove them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{LazyLock, OnceLock};

use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::support::chart::{self, Release};
use crate::support::control_plane::{self, ControlPlane};

mod admitted;
mod calls;
mod checked;
mod documented;
mod kustomize;
mod lifecycle;
mod people;
mod policy;
mod rights;
mod tables;
mod values;

/// The value sets of the chart, `charts/relaybook/ci/*-values.yaml`.
const SETS: [&str; 8] =
    ["default", "everything", "isolated", "minimal", "namespaced", "observer", "promoter", "secrets-listed"];

/// A control plane for whole installations. No other test uses their names there.
fn kubeconfig() -> &'static Path {
    static PLANE: OnceLock<ControlPlane> = OnceLock::new();
    crate::support::turn::wait();
    &PLANE.get_or_init(|| ControlPlane::start().expect("a control plane")).kubeconfig
}

/// Creates those of the namespaces that do not exist.
async fn namespaces(client: &Client, names: &[&str]) {
    for name in names {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
        match Api::all(client.clone()).create(&PostParams::default(), &namespace).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => panic!("namespace {name} is refused: {error}"),
        }
    }
}

/// Creates all namespaces in which a release has objects.
async fn room(client: &Client, release: &Release) {
    let homes = release.objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str());
    let names: Vec<_> = homes.chain([release.namespace.as_str()]).collect();
    namespaces(client, &names).await;
}

/// Returns the release of a value set of the chart. Its name is that of the set. All of them are rendered once.
fn of_set(name: &str) -> &'static Release {
    static RELEASES: LazyLock<BTreeMap<String, Release>> = LazyLock::new(|| {
        let sets = chart::value_sets().into_iter();
        sets.map(|(name, values)| (name.clone(), render(&name, &format!("own-{name}"), &values))).collect()
    });
    RELEASES.get(name).unwrap_or_else(|| panic!("there is no set {name}"))
}

fn render(name: &str, namespace: &str, values: &Value) -> Release {
    Release::render(name, namespace, values).unwrap_or_else(|why| panic!("{name} does not render: {why}"))
}

async fn client() -> Client {
    control_plane::client(kubeconfig()).await
}
