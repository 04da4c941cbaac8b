//! Tests `relaybook version`: the versions of the program, the controllers, the CRDs and the API server.

use std::process::{Command, Output, Stdio};

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::support::World;
use crate::support::relaybook::command;

const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// Runs the command without a cluster.
fn alone(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
    command.args(args).env("KUBECONFIG", "/nowhere").stdin(Stdio::null()).output().expect("relaybook runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[tokio::test]
async fn version_compares_the_program_with_the_installation() {
    let world = World::new("versions").await;
    let own = ["version", "--controller-namespace", &world.ns];
    let version = async |more: &[&str]| command(&world, &[&own[..], more].concat()).await;
    let none = version(&[]).await;
    let lines = text(&none.stdout);
    assert!(none.status.success() && lines.starts_with(&format!("program       {PROGRAM}\n")), "{lines}");
    assert!(lines.contains("controllers   unknown: ConfigMap relaybook-info not found in namespace versions"), "{lines}");
    assert!(
        lines.contains(&format!("CRDs          match version {PROGRAM}\n")) && lines.contains("API server    v1."),
        "{lines}"
    );

    let published = |version: &str| {
        json!({"metadata": {"name": "relaybook-info"}, "data": {
            "pipeline.yaml": format!("version: {version}\n"), "dispatch.yaml": format!("version: {version}\nlater: {{}}\n")}})
    };
    world.create::<ConfigMap>(published("99.1.0")).await;
    let differs = text(&version(&[]).await.stdout);
    let line = format!(
        "versions differ: this program has {PROGRAM}, and the controllers in namespace versions have 99.1.0; \
         install this program in version 99.1.0\n"
    );
    assert!(differs.contains("controllers   99.1.0 in namespace versions\n") && differs.ends_with(&line), "{differs}");

    world.patch::<ConfigMap>("relaybook-info", published(PROGRAM)).await;
    let output = version(&["-o", "json"]).await;
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(object["client"]["version"], PROGRAM);
    let controllers = json!([{"namespace": "versions", "pipeline": PROGRAM, "dispatch": PROGRAM}]);
    assert_eq!((&object["controllers"], &object["crds"]), (&controllers, &json!({"state": "Match"})), "{object}");
    assert!(object["server"]["version"].as_str().is_some_and(|version| version.starts_with("v1.")), "{object}");
    assert!(object.get("differences").is_none(), "{object}");

    // Everyone may read the version and the schemas. Without the permission to read the ConfigMap, its line has the reason.
    let stranger = version(&["--as", "nobody", "--as-group", "system:authenticated"]).await;
    let lines = text(&stranger.stdout);
    assert!(
        stranger.status.success() && lines.contains("reading ConfigMap relaybook-info in namespace versions"),
        "{lines}"
    );
}

#[test]
fn the_version_of_the_program_needs_no_cluster() {
    let client = alone(&["version", "--client", "-o", "yaml"]);
    let printed = text(&client.stdout);
    assert!(client.status.code() == Some(0) && printed.starts_with("client:\n") && printed.contains(PROGRAM), "{printed}");
    let away = alone(&["version"]);
    assert_eq!((away.status.code(), text(&away.stdout)), (Some(5), format!("program       {PROGRAM}\n")));
    assert!(text(&away.stderr).starts_with("relaybook: "), "{}", text(&away.stderr));
}
