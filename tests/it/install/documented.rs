//! The commands of the README, of `docs/quick-start.md` and of `docs/installation.md`, run as they are written, each page on a fresh
//! cluster. A block of commands that no test runs is an error.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use relaybook_api::Delivery;

use crate::support::chart::{answer, helm, root};
use crate::support::control_plane::{self, ControlPlane};
use crate::support::relaybook::signal;
use crate::support::{Receiver, World, eventually, reaper};

/// The URL that the pages ask the reader to replace.
const WEBHOOK: &str = "https://hooks.slack.com/services/T000/B000/XXXX";
/// A release build lasts minutes. The tests have the same program already; it is in their `PATH`.
const BUILD: &str = "cargo install --locked --path .\n";
/// Another test can use this port.
const PORT: &str = "--http-addr 127.0.0.1:8080";
/// Commands that end only when Pods of Relaybook run, for which there is neither an image nor a node.
const NEED_PODS: [&str; 2] = ["kubectl rollout status deployment/relaybook ", "helm test "];
/// A command that copies images between registries.
const COPY_IMAGE: &str = "skopeo ";

/// A page, and which of its blocks of commands have been run.
struct Page {
    blocks: Vec<(&'static str, &'static str)>,
    taken: BTreeSet<usize>,
}

impl Page {
    /// The fenced blocks of a page: language and text.
    fn read(text: &'static str) -> Self {
        let fenced = text.split("\n```").skip(1).step_by(2);
        let blocks = fenced.map(|block| block.split_once('\n').expect("a language, and a text")).collect();
        Self { blocks, taken: BTreeSet::new() }
    }

    /// The block that contains these words. Exactly one does.
    fn block(&mut self, words: &str) -> &'static str {
        let found: Vec<_> = (0..self.blocks.len()).filter(|n| self.blocks[*n].1.contains(words)).collect();
        let [only] = found[..] else { panic!("{} blocks contain {words:?}", found.len()) };
        self.taken.insert(only);
        self.blocks[only].1
    }

    /// Checks that every block of commands has been run.
    fn done(self) {
        let left = self.blocks.iter().enumerate().filter(|(n, (language, _))| *language == "sh" && !self.taken.contains(n));
        let left: Vec<_> = left.map(|(_, (_, text))| text).filter(|text| calls(text)).collect();
        assert!(left.is_empty(), "no test runs these commands: {left:#?}");
    }
}

/// Whether a block calls kubectl, helm or relaybook.
fn calls(text: &str) -> bool {
    text.lines().any(|line| ["kubectl ", "helm ", "relaybook "].iter().any(|program| line.starts_with(program)))
}

/// Returns the command lines that can end here.
fn without_pods(text: &str) -> String {
    let text = text.replace("\\\n", " ");
    let ends = |line: &&str| !NEED_PODS.iter().any(|start| line.starts_with(start)) && !line.starts_with(COPY_IMAGE);
    text.lines().filter(ends).flat_map(|line| [line, "\n"]).collect()
}

/// A terminal with the programs that the reader has.
struct Terminal {
    path: OsString,
    kubeconfig: PathBuf,
    /// The working directory.
    at: PathBuf,
}

impl Terminal {
    fn new(name: &str, plane: &ControlPlane) -> Self {
        let folder = folder(name);
        let programs = [
            ("relaybook", PathBuf::from(env!("CARGO_BIN_EXE_relaybook"))),
            ("kubectl", control_plane::kubectl()),
            ("helm", helm().to_owned()),
        ];
        for (name, program) in programs {
            symlink(program, folder.join(name)).expect("a link");
        }
        let mut path = folder.into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Self { path, kubeconfig: plane.kubeconfig.clone(), at: root().to_owned() }
    }

    fn command(&self, text: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", text]).current_dir(&self.at).stdin(Stdio::null());
        command.env("PATH", &self.path).env("KUBECONFIG", &self.kubeconfig);
        command.env("HELM_CONFIG_HOME", crate::support::tmp()).env("HELM_CACHE_HOME", crate::support::tmp());
        // The receiver of the test is on loopback, without TLS.
        command.env("RELAYBOOK_ALLOW_HTTP", "true").env("RELAYBOOK_ALLOW_DESTINATION", "127.0.0.0/8");
        command
    }

    /// Runs the commands of a block; the first that fails ends the test.
    async fn run(&self, text: &str) -> String {
        let mut command = self.command(text);
        let output = tokio::task::spawn_blocking(move || command.output().expect("bash")).await.expect("joined");
        answer(output).unwrap_or_else(|why| panic!("{text}\n{why}"))
    }
}

/// A program in a terminal of its own, until Ctrl-C.
struct Running(Child);

impl Running {
    fn start(terminal: &Terminal, text: &str) -> Self {
        let log = crate::support::tmp().join("try-it.log");
        let log = File::create(log).expect("a log file");
        let mut command = terminal.command(&format!("exec {text}"));
        let child = command.stdout(log.try_clone().expect("another handle")).stderr(log).spawn().expect("bash");
        reaper::born(child.id());
        Self(child)
    }

    async fn stop(mut self) {
        signal(self.0.id(), "INT");
        let status = eventually("relaybook ends after Ctrl-C", async || match self.0.try_wait() {
            Ok(Some(status)) => Ok(status),
            other => Err(format!("{other:?}")),
        })
        .await;
        assert!(status.success(), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        reaper::dead(self.0.id());
    }
}

/// Does the work of the Deployment controller and the nodes, because this cluster has none. A new revision becomes ready only after the
/// message about its progress has arrived.
async fn rollouts(world: &World, receiver: &Receiver) {
    let api: Api<Deployment> = Api::namespaced(world.client.clone(), "team-a");
    loop {
        if let Ok(Some(found)) = api.get_opt("podinfo").await {
            let is_first = found.metadata.generation == Some(1);
            if is_first || !receiver.to("/slack").is_empty() {
                let _ = world.try_finish("podinfo").await;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Checks what Helm owns after an install.
async fn installed(world: &World) {
    let found = deployed(world).await.expect("the Deployment of Relaybook");
    let container = &found.spec.expect("a spec").template.spec.expect("a spec").containers[0];
    let image = container.image.as_deref().unwrap_or_default();
    assert!(image.starts_with("registry.example.com/relaybook:"), "{image}");
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    for kind in ["deliveries", "notifications", "pipelines", "pipelinesets", "promotions"] {
        let name = format!("{kind}.relaybook.dev");
        let owned = definitions.get(&name).await.expect("a CRD").annotations().get("meta.helm.sh/release-name").cloned();
        assert_eq!(owned.as_deref(), Some("relaybook"), "{name}");
    }
}

/// Runs the steps of the quick start, and checks the result of each.
async fn quick_start(terminal: &Terminal, world: &World, receiver: &Receiver) {
    let mut page = Page::read(include_str!("../../../docs/quick-start.md"));
    let prepare = page.block("relaybook crds");
    assert_eq!([BUILD, WEBHOOK].map(|mark| prepare.matches(mark).count()), [1, 1]);
    terminal.run(&prepare.replace(BUILD, "").replace(WEBHOOK, &receiver.url("/slack"))).await;
    let run = page.block("relaybook run");
    assert_eq!((run.trim().lines().count(), run.matches(PORT).count()), (1, 1));
    let relaybook = Running::start(terminal, &run.replace(PORT, "--http-addr 127.0.0.1:0"));

    let file = fs::read_to_string(root().join("examples/podinfo.yaml")).expect("the example");
    let manifests = page.block("kind: Pipeline");
    assert_eq!(file.split_once('\n').map(|(_, manifests)| manifests.trim()), Some(manifests.trim()));
    terminal.run(page.block("kubectl apply -f")).await;
    let shown = terminal.run(page.block("relaybook explain")).await;
    assert!(shown.contains("podinfo: Deployed in prod") && shown.contains("# chat for prod/"), "{shown}");
    assert!(receiver.log().is_empty() && world.deliveries().await.is_empty(), "nothing is sent and nothing is listed");

    let changed = terminal.run(page.block("kubectl set image")).await;
    assert!(changed.contains("Progressing") && changed.contains("pipeline.relaybook.dev/podinfo"), "{changed}");
    let messages = receiver.wait("/slack", 2).await;
    let texts: Vec<_> = messages.iter().map(|message| message.json().to_string()).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    for (text, type_) in texts.iter().zip(["Progressing", "Deployed"]) {
        assert!(text.contains(&format!("podinfo: {type_} in prod")) && text.contains("6.7.1"), "{text}");
    }
    let is_settled = |d: &Delivery| d.status.as_ref().is_some_and(|status| status.outcome.is_some());
    world.delivery("Deployed 6.7.1", is_settled).await;

    relaybook.stop().await;
    let before = world.get_pipeline("podinfo").await.uid();
    terminal.run(page.block("helm install")).await;
    installed(world).await;
    assert_eq!(world.get_pipeline("podinfo").await.uid(), before, "what was created stays");
    let printed = terminal.run(page.block("relaybook init")).await;
    assert!(printed.contains("kind: Pipeline\n") && printed.contains("builtin: slack\n"), "{printed}");
    page.done();
}

#[tokio::test]
async fn the_commands_of_the_quick_start_work_as_they_are_written() {
    let plane = ControlPlane::with(Vec::new()).expect("a control plane");
    let terminal = Terminal::new("quick-start", &plane);
    let world = World::of_others(&plane.kubeconfig, "team-a").await;
    let receiver = Receiver::start();
    tokio::select! {
        () = rollouts(&world, &receiver) => {}
        () = quick_start(&terminal, &world, &receiver) => {}
    }
}

/// The README, and after it the installation page: each installs Relaybook, on the same cluster.
#[tokio::test]
async fn the_commands_of_the_readme_and_of_the_installation_work_as_they_are_written() {
    let plane = ControlPlane::with(Vec::new()).expect("a control plane");
    let mut terminal = Terminal::new("installation", &plane);
    let world = World::of_others(&plane.kubeconfig, "team-a").await;
    readme(&terminal, &world).await;
    let mut page = Page::read(include_str!("../../../docs/installation.md"));
    let uninstall = page.block("helm uninstall");
    terminal.run(uninstall).await;
    with_helm(&terminal, &mut page, &world, uninstall).await;
    without_network(&mut terminal, &mut page, &world, uninstall).await;
    with_kustomize(&mut terminal, &mut page, &world).await;
    page.done();
}

async fn readme(terminal: &Terminal, world: &World) {
    let mut page = Page::read(include_str!("../../../README.md"));
    terminal.run(&without_pods(page.block("helm install"))).await;
    installed(world).await;
    let shown = terminal.run(page.block("kubectl apply -f")).await;
    for name in ["pipeline.relaybook.dev/podinfo", "notification.relaybook.dev/chat"] {
        assert!(shown.contains(name), "{shown}");
    }
    page.done();
}

async fn with_helm(terminal: &Terminal, page: &mut Page, world: &World, uninstall: &str) {
    terminal.run(&without_pods(page.block("helm test"))).await;
    installed(world).await;
    terminal.run(page.block("egress.proxy.secretName")).await;
    terminal.run(page.block("helm upgrade relaybook charts/relaybook --namespace")).await;
    let deployment = deployed(world).await.expect("the Deployment of Relaybook");
    assert!(format!("{deployment:?}").contains("relaybook-proxy"), "an upgrade keeps the values");
    terminal.run(uninstall).await;
    // The README has already created one of the namespaces.
    let single = page.block("watchNamespaces").replace("kubectl create namespace team-a;", "");
    terminal.run(&single).await;
    let deployment = deployed(world).await.expect("the Deployment of Relaybook");
    assert!(format!("{deployment:?}").contains("--watch-namespace=team-b"), "{deployment:?}");
    terminal.run(uninstall).await;
}

/// The package is written to the working directory.
async fn without_network(terminal: &mut Terminal, page: &mut Page, world: &World, uninstall: &str) {
    terminal.at = folder("installation-packages");
    symlink(root().join("charts"), terminal.at.join("charts")).expect("a link");
    terminal.run(&without_pods(page.block("helm package"))).await;
    assert!(deployed(world).await.is_some(), "the Deployment of Relaybook");
    terminal.run(uninstall).await;
}

/// The overlay of the page is beside the clone.
async fn with_kustomize(terminal: &mut Terminal, page: &mut Page, world: &World) {
    let beside = folder("installation-kustomize");
    symlink(root(), beside.join("relaybook")).expect("a link");
    terminal.at = beside.join("overlay");
    fs::create_dir_all(&terminal.at).expect("a folder");
    let overlay = page.block("kind: Kustomization");
    fs::write(terminal.at.join("kustomization.yaml"), overlay).expect("written");
    terminal.run(page.block("kubectl apply --server-side -k .")).await;
    assert!(deployed(world).await.is_some(), "the Deployment of Relaybook");
    terminal.run(page.block("kubectl delete deployment,service")).await;
    assert!(deployed(world).await.is_none(), "the Deployment is deleted");
    // This cluster has no controller that empties a namespace.
    let rest = page.block("kubectl delete crd").replace("delete namespace", "delete --wait=false namespace");
    terminal.run(&rest).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let left = definitions.list(&ListParams::default()).await.expect("listed").items;
    assert!(left.iter().all(|crd| !crd.name_any().ends_with("relaybook.dev")), "CRDs are left");
}

/// An empty folder of this name.
fn folder(name: &str) -> PathBuf {
    let folder = crate::support::tmp().join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

async fn deployed(world: &World) -> Option<Deployment> {
    Api::namespaced(world.client.clone(), "relaybook-system").get_opt("relaybook").await.expect("read")
}
