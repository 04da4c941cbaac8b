//! A real kube-apiserver with its etcd, run by the launcher in `hack/control-plane`.
//!
//! The launcher ends when its stdin is closed or its parent ends, so no process is left behind, however the tests end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Once, OnceLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use serde_json::{Value, json};

use super::turn;
use super::wait::eventually;

/// A running control plane.
pub struct ControlPlane {
    /// Path of a kubeconfig with all permissions.
    pub kubeconfig: PathBuf,
    /// Process ID of the API server.
    pub api_server: u32,
    launcher: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// The control plane that all tests share, with Relaybook's CRDs installed. The first call starts it.
pub fn shared() -> &'static Path {
    static SHARED: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
    turn::wait();
    match SHARED.get_or_init(ControlPlane::start) {
        Ok(control_plane) => &control_plane.kubeconfig,
        Err(why) => panic!("no control plane: {why}"),
    }
}

/// A second shared control plane: the remote cluster in all tests that do not stop it. The first call starts it.
#[allow(dead_code, reason = "the integration tests use it")]
pub fn remote() -> &'static Path {
    static REMOTE: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
    turn::wait();
    match REMOTE.get_or_init(ControlPlane::start) {
        Ok(control_plane) => &control_plane.kubeconfig,
        Err(why) => panic!("no second control plane: {why}"),
    }
}

/// Path of the kubectl that belongs to the control plane.
#[allow(dead_code, reason = "the integration tests use it")]
pub fn kubectl() -> PathBuf {
    let built = Command::new(launcher().expect("the launcher")).arg("build").output().expect("the launcher can be run");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Path::new(String::from_utf8_lossy(&built.stdout).trim()).join("kubectl")
}

/// Returns a client for this kubeconfig. The client belongs to the runtime in which it was created.
pub async fn client(kubeconfig: &Path) -> Client {
    static PROVIDER: Once = Once::new();
    turn::wait();
    PROVIDER.call_once(|| rustls::crypto::ring::default_provider().install_default().expect("installed once"));
    let file = Kubeconfig::read_from(kubeconfig).expect("the launcher wrote a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("which is valid");
    Client::try_from(config).expect("and makes a client")
}

/// Installs a CRD and waits until the API server serves it.
pub async fn install(client: &Client, crd: &CustomResourceDefinition) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    match api.create(&PostParams::default(), crd).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => panic!("{} is refused: {error}", crd.name_any()),
    }
    eventually(&format!("{} is established", crd.name_any()), async || {
        let crd = api.get(&crd.name_any()).await.map_err(|e| e.to_string())?;
        let conditions = crd.status.unwrap_or_default().conditions.unwrap_or_default();
        let established = conditions.iter().any(|c| c.type_ == "Established" && c.status == "True");
        established.then_some(()).ok_or_else(|| format!("{conditions:?}"))
    })
    .await;
    // The API server serves it when its own watch has delivered the condition, which can be later.
    for version in crd.spec.versions.iter().filter(|version| version.served) {
        let path = format!("/apis/{}/{}/{}?limit=1", crd.spec.group, version.name, crd.spec.names.plural);
        eventually(&format!("{path} is served"), async || {
            let request = http::Request::get(&path).body(Vec::new()).expect("a request");
            client.request_text(request).await.map(drop).map_err(|e| e.to_string())
        })
        .await;
    }
}

/// Installs the kinds of Fleet.
pub async fn install_fleet(client: &Client) {
    for (kind, plural) in [
        ("GitRepo", "gitrepos"),
        ("HelmOp", "helmops"),
        ("Bundle", "bundles"),
        ("BundleDeployment", "bundledeployments"),
        ("Cluster", "clusters"),
        ("ClusterGroup", "clustergroups"),
    ] {
        install(client, &foreign("fleet.cattle.io", "v1alpha1", kind, plural)).await;
    }
}

/// Returns a minimal CRD of a third-party kind: all fields are allowed, and status is a subresource.
pub fn foreign(group: &str, version: &str, kind: &str, plural: &str) -> CustomResourceDefinition {
    let definition = json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    serde_json::from_value(definition).expect("a definition")
}

impl ControlPlane {
    /// Starts a control plane and installs Relaybook's CRDs. The first start on a machine builds the programs, which takes minutes;
    /// the launcher reports that on stderr.
    pub fn start() -> Result<Self, String> {
        Self::with(relaybook_api::crds())
    }

    /// Starts a control plane and installs these CRDs.
    pub fn with(definitions: Vec<CustomResourceDefinition>) -> Result<Self, String> {
        Self::launch(definitions, &[])
    }

    /// Starts a control plane with Relaybook's CRDs, in which kube-controller-manager's controller aggregates `ClusterRole`s.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn aggregating() -> Result<Self, String> {
        Self::launch(relaybook_api::crds(), &["--aggregation"])
    }

    fn launch(definitions: Vec<CustomResourceDefinition>, flags: &[&str]) -> Result<Self, String> {
        turn::wait();
        let launcher = launcher()?;
        let mut child = Command::new(launcher)
            .arg("run")
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("the launcher does not start: {e}"))?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let mut started = Self { kubeconfig: PathBuf::new(), api_server: 0, launcher: child, stdin, stdout };
        let announced = started.line()?;
        started.kubeconfig = announced["kubeconfig"].as_str().ok_or("no kubeconfig announced")?.into();
        started.api_server = pid(&announced["pids"]["kube-apiserver"])?;
        let kubeconfig = started.kubeconfig.clone();
        // On a separate thread, because the caller may already be inside a runtime.
        let installed = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let client = client(&kubeconfig).await;
                for crd in definitions {
                    install(&client, &crd).await;
                }
            });
        });
        installed.join().map_err(|_| "the definitions could not be installed")?;
        Ok(started)
    }

    /// Kills the API server and starts it again, on the same port and with the same data.
    pub fn restart_api_server(&mut self) {
        self.kill_api_server();
        self.start_api_server();
    }

    /// Kills the API server.
    pub fn kill_api_server(&mut self) {
        let answer = self.order("stop-apiserver");
        assert_eq!(answer["event"], "apiserver-stopped");
    }

    /// Starts the API server again after it was killed.
    pub fn start_api_server(&mut self) {
        let answer = self.order("start-apiserver");
        assert_eq!(answer["event"], "apiserver-ready");
        self.api_server = pid(&answer["pid"]).expect("announced");
    }

    /// Pauses the API server with SIGSTOP: connections stay open without an answer, until [`ControlPlane::thaw_api_server`].
    #[allow(dead_code, reason = "chaos uses it")]
    pub fn freeze_api_server(&self) {
        super::relaybook::signal(self.api_server, "STOP");
    }

    /// Resumes the API server.
    #[allow(dead_code, reason = "chaos uses it")]
    pub fn thaw_api_server(&self) {
        super::relaybook::signal(self.api_server, "CONT");
    }

    fn order(&mut self, command: &str) -> Value {
        let stdin = self.stdin.as_mut().expect("open until dropped");
        writeln!(stdin, "{command}").expect("the launcher listens");
        self.line().expect("the launcher answers")
    }

    fn line(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line).map_err(|e| e.to_string())?;
        if read == 0 {
            return Err("the launcher has ended; it says why above".to_owned());
        }
        serde_json::from_str(&line).map_err(|e| format!("not a line of JSON: {e}: {line}"))
    }
}

fn pid(value: &Value) -> Result<u32, String> {
    value.as_u64().and_then(|pid| u32::try_from(pid).ok()).ok_or_else(|| format!("no pid: {value}"))
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.launcher.wait();
    }
}

/// Builds the launcher, which takes about a second the first time.
fn launcher() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        let program = crate::support::tmp().join("control-plane");
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/control-plane"))
            .status()
            .map_err(|e| format!("go cannot be run: {e}"))?;
        if built.success() { Ok(program) } else { Err("the launcher does not build".to_owned()) }
    };
    BUILT.get_or_init(build).clone()
}
