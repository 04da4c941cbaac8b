//! Helm installs, upgrades and uninstalls on a real API server: each upgrade updates the CRDs, and the objects of users stay.

use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use crate::support::chart::{answer, helm, root, run};
use crate::support::control_plane::{self, ControlPlane};
use crate::support::world::{apps::Kind, pipeline};
use crate::support::{World, eventually};

const CRDS: [&str; 5] = [
    "deliveries.relaybook.dev",
    "notifications.relaybook.dev",
    "pipelines.relaybook.dev",
    "pipelinesets.relaybook.dev",
    "promotions.relaybook.dev",
];
const OWN: &str = "relaybook-system";
const IMAGE: &str = "image.repository=relaybook";

/// A cluster into which Helm installs.
struct Stage {
    plane: ControlPlane,
    client: Client,
}

impl Stage {
    /// A cluster without the CRDs of Relaybook.
    async fn new() -> Self {
        let plane = ControlPlane::with(Vec::new()).expect("a control plane");
        let client = control_plane::client(&plane.kubeconfig).await;
        let stage = Self { plane, client };
        assert!(stage.crds().list(&ListParams::default()).await.expect("listed").items.is_empty());
        stage
    }

    fn crds(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    /// Waits until all CRDs are deleted. After a failed deletion the API server waits up to five minutes, unless the CRD changes.
    async fn no_definitions(&self) {
        let mut tries = 0;
        eventually("the CRDs are deleted", async || {
            tries += 1;
            let all = self.crds().list(&ListParams::default()).await.map_err(|e| e.to_string())?;
            let names: Vec<_> = all.iter().map(kube::ResourceExt::name_any).collect();
            // A second or so after the one before, because a deletion fails if the CRD changes meanwhile.
            for name in names.iter().filter(|_| tries % 10 == 0) {
                let patch = Patch::Merge(json!({"metadata": {"annotations": {"tries": tries.to_string()}}}));
                // It may be gone by now.
                let _ = self.crds().patch_metadata(name, &PatchParams::default(), &patch).await;
            }
            if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
    }

    async fn columns(&self) -> usize {
        let crd = self.crds().get("pipelines.relaybook.dev").await.expect("the CRD");
        crd.spec.versions[0].additional_printer_columns.as_ref().map_or(0, Vec::len)
    }

    fn helm(&self, args: &[&str]) -> Result<String, String> {
        let kubeconfig = self.plane.kubeconfig.to_str().expect("UTF-8");
        answer(run(helm(), &[args, &["--namespace", OWN, "--kubeconfig", kubeconfig][..]].concat(), ""))
    }

    fn must(&self, args: &[&str]) -> String {
        self.helm(args).unwrap_or_else(|why| panic!("helm {args:?}: {why}"))
    }

    /// Runs a command line with the control plane's kubectl.
    fn shell(&self, command: &str) -> String {
        let kubectl = control_plane::kubectl();
        let (folder, kubeconfig) = (kubectl.parent().expect("a folder").display(), self.plane.kubeconfig.display());
        let script = format!("export KUBECONFIG='{kubeconfig}' PATH='{folder}':\"$PATH\"\n{command}");
        answer(run(Path::new("bash"), &["-e", "-c", &script], "")).unwrap_or_else(|why| panic!("{command}: {why}"))
    }

    async fn deployment(&self) -> Option<Deployment> {
        Api::namespaced(self.client.clone(), OWN).get_opt("relaybook").await.expect("read")
    }
}

/// Writes the chart of an older version, in which the Pipeline CRD has one column.
fn older(name: &str) -> PathBuf {
    let folder = crate::support::tmp().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    copy(&root().join("charts/relaybook"), &folder);
    let file = folder.join("files/crds/pipelines.relaybook.dev.yaml");
    let mut crd: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file).expect("a file")).expect("YAML");
    crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array_mut().expect("columns").truncate(1);
    // JSON is YAML.
    std::fs::write(&file, crd.to_string()).expect("written");
    let file = folder.join("Chart.yaml");
    let text = std::fs::read_to_string(&file)
        .expect("a file")
        .replace(concat!("ersion: ", env!("CARGO_PKG_VERSION")), "ersion: 0.0.1");
    std::fs::write(&file, text).expect("written");
    folder
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let to = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).expect("copied");
        }
    }
}

/// Returns the commands of the next steps in the notes, each as a user copies it.
fn commands(notes: &str) -> Vec<String> {
    let (_, steps) = notes.split_once("Next steps").expect("the notes name next steps");
    let (mut commands, mut lines) = (Vec::new(), steps.lines());
    while let Some(line) = lines.next().map(str::to_owned) {
        if !line.starts_with("kubectl ") {
            continue;
        }
        let mut command = line + "\n";
        if command.ends_with("<<'END'\n") {
            let input: Vec<_> = lines.by_ref().take_while(|line| *line != "END").collect();
            command += &[&input[..], &["END\n"]].concat().join("\n");
        }
        commands.push(command);
    }
    commands
}

#[tokio::test]
async fn helm_upgrades_an_older_version_and_adopts_existing_crds() {
    let stage = Stage::new().await;
    an_older_version_is_upgraded_and_uninstalled(&stage).await;
    existing_crds_are_adopted_with_take_ownership(&stage).await;
}

/// Ends without CRDs, as it began.
async fn an_older_version_is_upgraded_and_uninstalled(stage: &Stage) {
    let older = older("chart-of-old");
    stage.must(&["install", "relaybook", older.to_str().expect("UTF-8"), "--create-namespace", "--set", IMAGE]);
    assert_eq!(stage.columns().await, 1);
    let image = |deployment: &Deployment| serde_json::to_value(deployment).unwrap()["spec"]["template"]["spec"].clone();
    let before = stage.deployment().await.expect("deployed");
    assert_eq!(image(&before)["containers"][0]["image"], "relaybook:0.0.1");

    let world = World::on(&stage.plane.kubeconfig, "team-a").await;
    eventually("pipelines are served", async || {
        let object = pipeline("team-a", "shop", Kind::Deployment, &["dev/web"]);
        let object: Pipeline = serde_json::from_value(object).expect("a pipeline");
        world.api::<Pipeline>().create(&PostParams::default(), &object).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    let uid = world.get_pipeline("shop").await.uid();

    stage.must(&["upgrade", "relaybook", "charts/relaybook", "--reset-then-reuse-values"]);
    assert!(stage.columns().await > 1, "the upgrade updates the CRDs");
    let after = stage.deployment().await.expect("deployed");
    assert_eq!(image(&after)["containers"][0]["image"], format!("relaybook:{}", env!("CARGO_PKG_VERSION")));
    assert_eq!((after.uid(), world.get_pipeline("shop").await.uid()), (before.uid(), uid.clone()));

    // The objects of users stay, and have no finalizers.
    stage.must(&["uninstall", "relaybook"]);
    assert!(stage.deployment().await.is_none());
    let kept = world.get_pipeline("shop").await;
    assert_eq!((kept.uid(), kept.finalizers().len()), (uid.clone(), 0));

    // The next installation continues with them, and deletes everything if `crds.keep` is false.
    let notes = stage.must(&["install", "relaybook", "charts/relaybook", "--set", IMAGE]);
    assert_eq!(world.get_pipeline("shop").await.uid(), uid);
    assert!(notes.contains("\nhelm test relaybook -n relaybook-system\n"), "{notes}");
    let [pipeline, notification, status] = &commands(&notes)[..] else { panic!("not three commands: {notes}") };
    stage.shell(pipeline);
    stage.shell(notification);
    let seen = stage.shell(status);
    assert!(seen.contains("pipeline.relaybook.dev/web") && seen.contains("notification.relaybook.dev/chat"), "{seen}");
    stage.must(&["upgrade", "relaybook", "charts/relaybook", "--set", IMAGE, "--set", "crds.keep=false"]);
    stage.must(&["uninstall", "relaybook"]);
    stage.no_definitions().await;
}

async fn existing_crds_are_adopted_with_take_ownership(stage: &Stage) {
    let folder = older("chart-of-hand").join("files/crds");
    let (kubectl, kubeconfig) = (control_plane::kubectl(), stage.plane.kubeconfig.to_str().expect("UTF-8"));
    let applied = ["--kubeconfig", kubeconfig, "apply", "--server-side", "-f", folder.to_str().expect("UTF-8")];
    answer(run(&kubectl, &applied, "")).unwrap_or_else(|why| panic!("{why}"));
    let refused = stage.helm(&["install", "relaybook", "charts/relaybook", "--set", IMAGE]).expect_err("not owned by Helm");
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    stage.must(&["install", "relaybook", "charts/relaybook", "--set", IMAGE, "--take-ownership", "--force-conflicts"]);
    assert!(stage.columns().await > 1 && stage.deployment().await.is_some());
    // With `crds.install=false` Helm does not manage the CRDs.
    stage.must(&["uninstall", "relaybook"]);
    stage.must(&["install", "relaybook", "charts/relaybook", "--set", IMAGE, "--set", "crds.install=false"]);
    let manifest = stage.must(&["get", "manifest", "relaybook"]);
    assert!(manifest.contains("kind: Deployment") && !manifest.contains("CustomResourceDefinition"), "{manifest}");
    assert_eq!(stage.crds().list(&ListParams::default()).await.expect("listed").items.len(), CRDS.len());
}
