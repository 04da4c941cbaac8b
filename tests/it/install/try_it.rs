//! The commands of "Try it on your cluster" in the README, and of the Helm install in `docs/install.md`, run as they are written on a
//! fresh cluster.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::Api;
use pennant::api::Delivery;

use crate::support::chart::{answer, helm, root};
use crate::support::control_plane::{self, ControlPlane};
use crate::support::pennant::signal;
use crate::support::{Receiver, World, eventually, reaper};

const README: &str = include_str!("../../../README.md");
const INSTALL: &str = include_str!("../../../docs/install.md");

/// The URL that the page asks the reader to replace.
const WEBHOOK: &str = "https://hooks.slack.com/services/T000/B000/XXXX";
/// A release build lasts minutes. The tests have the same program already; it is in their `PATH`.
const BUILD: &str = "cargo install --locked --path .\n";
/// Another test may have this port.
const PORT: &str = "--http-addr 127.0.0.1:8080";
/// Commands that end only when Pods of Pennant run, for which there is neither an image nor a node.
const NEED_PODS: [&str; 2] = ["kubectl rollout status deployment/pennant ", "helm test "];

/// The fenced blocks of a section: language and text.
fn blocks<'a>(page: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let (_, section) = page.split_once(&format!("\n{heading}")).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let fenced = section.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').expect("a language, and a text")).collect()
}

/// A terminal in the root of the repository, with the programs that the reader has.
struct Terminal {
    path: OsString,
    kubeconfig: PathBuf,
}

impl Terminal {
    fn new(name: &str, plane: &ControlPlane) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let programs = [
            ("pennant", PathBuf::from(env!("CARGO_BIN_EXE_pennant"))),
            ("kubectl", control_plane::kubectl()),
            ("helm", helm().to_owned()),
        ];
        for (name, program) in programs {
            symlink(program, folder.join(name)).expect("a link");
        }
        let mut path = folder.into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Self { path, kubeconfig: plane.kubeconfig.clone() }
    }

    fn command(&self, text: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", text]).current_dir(root()).stdin(Stdio::null());
        command.env("PATH", &self.path).env("KUBECONFIG", &self.kubeconfig);
        command.env("HELM_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR")).env("HELM_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
        // The receiver of the test is on loopback, without TLS.
        command.env("PENNANT_ALLOW_HTTP", "true").env("PENNANT_ALLOW_DESTINATION", "127.0.0.0/8");
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
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("try-it.log");
        let log = File::create(log).expect("a log file");
        let mut command = terminal.command(&format!("exec {text}"));
        let child = command.stdout(log.try_clone().expect("another handle")).stderr(log).spawn().expect("bash");
        reaper::born(child.id());
        Self(child)
    }

    async fn stop(mut self) {
        signal(self.0.id(), "INT");
        let status = eventually("pennant ends after Ctrl-C", async || match self.0.try_wait() {
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

/// What the Deployment controller and the nodes do: there are none in this cluster. A new revision is up only after the message that it
/// is on its way.
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

/// What Helm owns after an install.
async fn installed(world: &World) {
    let deployed: Api<Deployment> = Api::namespaced(world.client.clone(), "pennant-system");
    let found = deployed.get("pennant").await.expect("the Deployment of Pennant");
    let container = &found.spec.expect("a spec").template.spec.expect("a spec").containers[0];
    let image = container.image.as_deref().unwrap_or_default();
    assert!(image.starts_with("registry.example.com/pennant:"), "{image}");
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    for name in ["deliveries.pennant.dev", "notifications.pennant.dev", "pipelines.pennant.dev"] {
        let owned = definitions.get(name).await.expect("a CRD").annotations().get("meta.helm.sh/release-name").cloned();
        assert_eq!(owned.as_deref(), Some("pennant"), "{name}");
    }
}

/// Everything that the section says: the commands, what is seen after each, and the install after it.
async fn all_steps(terminal: &Terminal, world: &World, receiver: &Receiver) {
    let blocks = blocks(README, "## Try it on your cluster");
    let languages: Vec<_> = blocks.iter().map(|(language, _)| *language).collect();
    assert_eq!(languages, ["sh", "sh", "yaml", "sh", "sh", "sh", "sh"]);
    let [prepare, run, manifests, apply, look, change, install] = [0, 1, 2, 3, 4, 5, 6].map(|n| blocks[n].1);

    assert_eq!([BUILD, WEBHOOK].map(|mark| prepare.matches(mark).count()), [1, 1]);
    terminal.run(&prepare.replace(BUILD, "").replace(WEBHOOK, &receiver.url("/slack"))).await;
    assert_eq!((run.trim().lines().count(), run.matches(PORT).count()), (1, 1));
    let pennant = Running::start(terminal, &run.replace(PORT, "--http-addr 127.0.0.1:0"));

    let file = fs::read_to_string(root().join("examples/podinfo.yaml")).expect("the example");
    assert_eq!(file.split_once('\n').map(|(_, manifests)| manifests.trim()), Some(manifests.trim()));
    terminal.run(apply).await;
    let looked = terminal.run(look).await;
    assert!(looked.contains("podinfo: Deployed in prod") && looked.contains("# chat for prod/"), "{looked}");
    assert!(receiver.log().is_empty() && world.deliveries().await.is_empty(), "nothing is sent and nothing is listed");

    let changed = terminal.run(change).await;
    assert!(changed.contains("Progressing") && changed.contains("pipeline.pennant.dev/podinfo"), "{changed}");
    let messages = receiver.wait("/slack", 2).await;
    let texts: Vec<_> = messages.iter().map(|message| message.json().to_string()).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    for (text, type_) in texts.iter().zip(["Progressing", "Deployed"]) {
        assert!(text.contains(&format!("podinfo: {type_} in prod")) && text.contains("6.7.1"), "{text}");
    }
    let is_settled = |d: &Delivery| d.status.as_ref().is_some_and(|status| status.outcome.is_some());
    world.delivery("Deployed 6.7.1", is_settled).await;

    pennant.stop().await;
    let before = world.get_pipeline("podinfo").await.uid();
    terminal.run(install).await;
    installed(world).await;
    assert_eq!(world.get_pipeline("podinfo").await.uid(), before, "what was created stays");
}

#[tokio::test]
async fn the_commands_of_the_readme_work_as_they_are_written() {
    let plane = ControlPlane::with(Vec::new()).expect("a control plane");
    let terminal = Terminal::new("try-it", &plane);
    let world = World::of_others(&plane.kubeconfig, "team-a").await;
    let receiver = Receiver::start();
    tokio::select! {
        () = rollouts(&world, &receiver) => {}
        () = all_steps(&terminal, &world, &receiver) => {}
    }
}

#[tokio::test]
async fn the_helm_install_of_the_page_works_as_it_is_written() {
    let plane = ControlPlane::with(Vec::new()).expect("a control plane");
    let terminal = Terminal::new("helm-install", &plane);
    let (_, text) = blocks(INSTALL, "## Helm")[0];
    let commands = text.replace("\\\n", " ");
    for command in commands.lines().filter(|command| !NEED_PODS.iter().any(|start| command.starts_with(start))) {
        terminal.run(command).await;
    }
    installed(&World::of_others(&plane.kubeconfig, "pennant-system").await).await;
}
