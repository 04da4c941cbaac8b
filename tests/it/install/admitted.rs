//! A real API server accepts what each value set renders, and the Pods pass the `restricted` Pod Security Standard.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{SETS, client, kubeconfig, namespaces, of_set, render, room};
use crate::support::{chart, control_plane};

/// The CRDs of other projects whose kinds the chart renders: the folder below `hack/tools`, the Go module, the folder in it, the files.
const OTHERS: [(&str, &str, &str, &[&str]); 2] = [
    (
        "monitoring",
        "github.com/prometheus-operator/prometheus-operator",
        "example/prometheus-operator-crd",
        &[
            "monitoring.coreos.com_servicemonitors.yaml",
            "monitoring.coreos.com_podmonitors.yaml",
            "monitoring.coreos.com_prometheusrules.yaml",
        ],
    ),
    ("gateway", "sigs.k8s.io/gateway-api", "config/crd/standard", &["gateway.networking.k8s.io_httproutes.yaml"]),
];

/// Installs the CRDs of other projects, from their own Go modules.
async fn others(client: &Client) {
    for (home, module, folder, files) in OTHERS {
        let mut asked = Command::new("go");
        asked.args(["mod", "download", "-json", module]).current_dir(chart::root().join("hack/tools").join(home));
        let answer = chart::answer(asked.output().expect("go can be run")).unwrap_or_else(|why| panic!("{why}"));
        let module: Value = serde_json::from_str(&answer).expect("JSON");
        let folder = PathBuf::from(module["Dir"].as_str().expect("a folder")).join(folder);
        for file in files {
            let text = std::fs::read_to_string(folder.join(file)).expect("a file");
            let crd: CustomResourceDefinition = serde_saphyr::from_str(&text).expect("a definition");
            control_plane::install(client, &crd).await;
        }
    }
}

#[tokio::test]
async fn the_api_server_accepts_what_each_set_of_values_renders() {
    let sets = chart::value_sets();
    assert_eq!(sets.keys().collect::<Vec<_>>(), SETS.iter().collect::<Vec<_>>());
    let client = client().await;
    others(&client).await;
    for set in SETS {
        let release = of_set(set);
        room(&client, release).await;
        for dry in [true, false] {
            // A policy that is in force would reject the deliveries of all other tests on this control plane.
            let is_applied = |object: &Value| dry || object["kind"] != "ValidatingAdmissionPolicyBinding";
            let applied = release.apply(kubeconfig(), dry, is_applied).unwrap_or_else(|why| panic!("{set}: {why}"));
            let count = release.objects.iter().filter(|object| is_applied(object)).count();
            assert_eq!(applied.lines().count(), count, "{set}: {applied}");
        }
    }
}

#[tokio::test]
async fn pods_are_admitted_by_the_restricted_pod_security_standard() {
    let client = client().await;
    namespaces(&client, &["restricted"]).await;
    let enforce = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let all: Api<Namespace> = Api::all(client.clone());
    all.patch("restricted", &PatchParams::default(), &Patch::Merge(enforce)).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "restricted");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for set in SETS {
        let release = of_set(set);
        let pod = |spec: &Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": set}, "spec": spec})).expect("a Pod")
        };
        pods.create(&dry, &pod(release.pod())).await.unwrap_or_else(|why| panic!("{set}: {why}"));
        pods.create(&dry, &pod(release.test_pod())).await.unwrap_or_else(|why| panic!("{set}: helm test: {why}"));

        // The check works: with one privilege more, the Pod is rejected.
        let mut loose = release.pod().clone();
        loose["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = true.into();
        let refused = pods.create(&dry, &pod(&loose)).await.unwrap_err();
        assert!(refused.to_string().contains("violates PodSecurity"), "{refused}");
    }
}

#[test]
fn a_container_has_probes_and_limits() {
    for set in SETS {
        let release = of_set(set);
        let pod = release.pod();
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{set}");
        assert_eq!(container["startupProbe"]["httpGet"]["path"], "/healthz", "{set}");
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz", "{set}");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz", "{set}");
        // 25 s to finish work in progress, and 4 s to release the Leases.
        assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(29), "{set}");
        assert!(container["resources"]["requests"]["memory"].is_string(), "{set}");
        let port = container["ports"][0]["containerPort"].as_u64().expect("a port");
        assert!(release.args().iter().any(|arg| arg.ends_with(&format!(":{port}"))), "{set}: the program listens there");
        let names: Vec<_> = container["env"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"POD_NAME") && names.contains(&"POD_NAMESPACE"), "{set}: {names:?}");
    }
}

#[test]
fn a_namespaced_installation_has_no_cluster_wide_objects_except_crds() {
    for (set, cluster_wide) in [("namespaced", false), ("isolated", false), ("default", true)] {
        let release = of_set(set);
        let outside = release.objects.iter().filter(|object| object["metadata"]["namespace"].is_null());
        let kinds: Vec<_> = outside.map(|object| object["kind"].as_str().unwrap()).collect();
        let rights = kinds.iter().filter(|kind| **kind != "CustomResourceDefinition").count();
        assert_eq!((kinds.len() - rights, rights), (5, if cluster_wide { 7 } else { 0 }), "{set}: {kinds:?}");
    }
}

#[test]
fn two_releases_with_one_name_are_independent() {
    for (set, mut values) in chart::value_sets() {
        let mut seen = BTreeSet::new();
        for namespace in ["here", "there"] {
            for object in render("relaybook", namespace, &values).objects {
                let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("-").to_owned();
                let name = ["/kind", "/metadata/namespace", "/metadata/name"].map(text);
                assert!(seen.insert(name.clone()), "{set}: two releases have {name:?}");
            }
            // Only the first release installs the CRDs.
            values["crds"] = json!({"install": false});
        }
    }
}
