//! The built `relaybook` program as a child process, as users run it.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::Duration;

use serde_json::Value;

use super::reaper;
use super::under::Under;
use super::wait::{DEADLINE, eventually, within};
use super::world::World;

/// Number of log lines that are shown when a test fails.
const TAIL: usize = 40;

/// A running Relaybook. Killed when dropped; its log is kept if the test fails.
pub struct Relaybook {
    command: Start,
    child: Child,
    address: String,
    under: Option<Under>,
}

/// The command of each start.
struct Start {
    args: Vec<String>,
    kubeconfig: PathBuf,
    pod: Option<String>,
    log: PathBuf,
    program: PathBuf,
    env: Vec<(&'static str, String)>,
}

/// Options of a start. The default watches the namespace of the world and may send to loopback.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespaces to watch.
    pub watch: Vec<String>,
    /// `--controllers`. Empty: the controllers that the program runs by default.
    pub controllers: &'static str,
    /// Whether loopback is an allowed destination.
    pub loopback: bool,
    /// Whether `http` is allowed.
    pub http: bool,
    /// Whether it accepts hooks, on a free port. Requires the controller `promote`.
    pub hooks: bool,
    /// `POD_NAME`, for one of several replicas. `None`: the only replica, which is named after the host.
    pub pod: Option<&'static str>,
    /// Kubeconfig to use instead of the one of the world.
    pub kubeconfig: Option<PathBuf>,
    /// Path of the program.
    pub program: PathBuf,
    /// Additional arguments.
    pub args: Vec<String>,
    /// Additional environment variables.
    pub env: Vec<(&'static str, String)>,
}

/// The program that [`Options::of`] names.
static PROGRAM: LazyLock<RwLock<PathBuf>> = LazyLock::new(|| RwLock::new(env!("CARGO_BIN_EXE_relaybook").into()));

/// Selects the program that is started from now on. `None`: the built one.
#[allow(dead_code, reason = "the benchmark uses it")]
pub fn use_program(program: Option<PathBuf>) {
    let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_relaybook").into());
    *PROGRAM.write().unwrap_or_else(PoisonError::into_inner) = program;
}

impl Options {
    /// Returns the defaults for this world.
    pub fn of(world: &World) -> Self {
        Self {
            watch: vec![world.ns.clone()],
            controllers: "",
            loopback: true,
            http: true,
            hooks: false,
            pod: None,
            kubeconfig: None,
            program: PROGRAM.read().unwrap_or_else(PoisonError::into_inner).clone(),
            args: Vec::new(),
            env: Vec::new(),
        }
    }
}

impl Relaybook {
    /// Starts Relaybook and waits until it is ready.
    pub async fn start(world: &World) -> Self {
        Self::with(world, Options::of(world)).await
    }

    /// Starts Relaybook with options and waits until it is ready.
    pub async fn with(world: &World, options: Options) -> Self {
        let mut relaybook = Self::begin(world, options).await;
        relaybook.wait_ready().await;
        relaybook
    }

    /// Starts Relaybook with options, without waiting.
    pub async fn begin(world: &World, options: Options) -> Self {
        let mut args: Vec<String> =
            ["run", "--http-addr", "127.0.0.1:0", "--log-format", "json"].map(str::to_owned).to_vec();
        args.extend(["--namespace".to_owned(), world.ns.clone()]);
        if !options.controllers.is_empty() {
            args.extend(["--controllers".to_owned(), options.controllers.to_owned()]);
        }
        args.extend(options.watch.iter().flat_map(|ns| ["--watch-namespace".to_owned(), ns.clone()]));
        if options.http {
            args.push("--allow-http".to_owned());
        }
        if options.loopback {
            args.extend(["--allow-destination".to_owned(), "127.0.0.0/8".to_owned()]);
        }
        if options.hooks {
            args.extend(["--hooks-addr".to_owned(), "127.0.0.1:0".to_owned()]);
        }
        args.extend(options.args);
        let folder = crate::support::tmp().join("logs");
        std::fs::create_dir_all(&folder).expect("a folder for logs");
        let controllers = if options.controllers.is_empty() { "all" } else { options.controllers };
        let log = folder.join(format!("{}-{controllers}-{}.log", world.ns, options.pod.unwrap_or("0")));
        let _ = std::fs::remove_file(&log);
        let kubeconfig = options.kubeconfig.unwrap_or_else(|| world.kubeconfig.clone());
        let under = Under::rights(world, &options.watch, &args, &kubeconfig).await;
        let kubeconfig = under.as_ref().map_or(kubeconfig, Under::kubeconfig);
        if let Some(under) = &under {
            args = under.args(args);
        }
        let pod = options.pod.map(str::to_owned);
        let command = Start { args, kubeconfig, pod, log, program: options.program, env: options.env };
        let child = command.spawn();
        Self { command, child, address: String::new(), under }
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        reaper::dead(self.child.id());
    }

    /// Sets the program of the next start.
    #[allow(dead_code, reason = "chaos uses it")]
    pub fn become_program(&mut self, program: PathBuf) {
        self.command.program = program;
    }

    /// Returns the exit status if the process has ended.
    #[allow(dead_code, reason = "chaos uses it")]
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("a child can be asked");
        status.inspect(|_| reaper::dead(self.child.id()))
    }

    /// Sends SIGTERM without waiting.
    pub fn ask_to_stop(&self) {
        signal(self.pid(), "TERM");
    }

    /// Pauses the process with SIGSTOP, as on a frozen node, until [`Relaybook::thaw`].
    pub fn freeze(&self) {
        signal(self.pid(), "STOP");
    }

    /// Resumes the process after [`Relaybook::freeze`].
    pub fn thaw(&self) {
        signal(self.pid(), "CONT");
    }

    /// Returns the peak resident memory of the process, in KiB.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn peak_memory(&self) -> u64 {
        peak_memory(self.pid())
    }

    /// Returns the address of health and metrics.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        let status = eventually("relaybook ends", async || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            other => Err(format!("{other:?}")),
        })
        .await;
        reaper::dead(self.child.id());
        status
    }

    /// Stops the process with SIGTERM, and requires exit status 0.
    pub async fn stop(&mut self) {
        self.ask_to_stop();
        let status = self.ended().await;
        assert!(status.success(), "after SIGTERM: {status}");
    }

    /// Starts Relaybook again after it has ended, and waits until it is ready. The log is appended to the same file.
    pub async fn start_again(&mut self) {
        self.launch();
        self.wait_ready().await;
    }

    /// Starts Relaybook again after it has ended, without waiting.
    pub fn launch(&mut self) {
        self.child = self.command.spawn();
    }

    /// Stops Relaybook with SIGTERM and starts it again.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start_again().await;
    }

    /// Returns all metrics, by name with labels.
    pub async fn metrics(&self) -> BTreeMap<String, f64> {
        let text = self.get("/metrics").await.expect("metrics are served");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.rsplit_once(' ')).map(|(k, v)| (k.to_owned(), v.parse().unwrap_or(0.0))).collect()
    }

    /// Returns the buckets of a Lease that the process holds.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub async fn buckets(&self, lease: &str) -> Vec<u8> {
        let metrics = self.metrics().await;
        let held = |bucket: &u8| metrics[&format!("relaybook_bucket_held{{lease=\"{lease}\",bucket=\"{bucket}\"}}")] > 0.0;
        (0..16).filter(held).collect()
    }

    /// Waits until the process holds these buckets of a Lease.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub async fn holds(&self, lease: &str, buckets: Range<u8>) {
        self.holds_within(DEADLINE, lease, buckets).await;
    }

    /// Waits for this time until the process holds these buckets of a Lease.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub async fn holds_within(&self, limit: Duration, lease: &str, buckets: Range<u8>) {
        let expected: Vec<u8> = buckets.collect();
        within(limit, &format!("the buckets {expected:?} of {lease} are held"), async || {
            let held = self.buckets(lease).await;
            if held == expected { Ok(()) } else { Err(format!("{held:?}")) }
        })
        .await;
    }

    /// Returns how many writes Relaybook has sent to the API server.
    pub async fn writes(&self) -> f64 {
        self.metrics().await.iter().filter(|(name, _)| name.starts_with("relaybook_api_writes_total")).map(|(_, n)| n).sum()
    }

    /// Returns how many requests Relaybook has made.
    pub async fn attempts(&self) -> f64 {
        self.metrics().await.iter().filter(|(name, _)| name.starts_with("relaybook_attempts_total")).map(|(_, n)| n).sum()
    }

    /// Returns the page at this path, which must be served.
    pub async fn page(&self, path: &str) -> String {
        self.get(path).await.expect("it is served")
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.command.log).unwrap_or_default()
    }

    /// Returns the page at this path, if the status code is 2xx.
    pub async fn get(&self, path: &str) -> Result<String, String> {
        let answer = reqwest::get(format!("http://{}{path}", self.address)).await.map_err(|e| e.to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|e| e.to_string())?;
        if status.is_success() { Ok(text) } else { Err(format!("{status}: {text}")) }
    }

    /// Waits until `/readyz` succeeds.
    pub async fn wait_ready(&mut self) {
        self.wait_listening().await;
        eventually("relaybook is ready", async || self.get("/readyz").await).await;
    }

    /// Waits until the log reports the address of health and metrics.
    pub async fn wait_listening(&mut self) {
        self.address = eventually("relaybook listens", async || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("relaybook has ended: {status}");
            }
            address(&self.log(), "listening").ok_or_else(|| "it has not said where".to_owned())
        })
        .await;
    }

    /// Returns whether the process listens, according to its log. It handles signals by then.
    #[allow(dead_code, reason = "the chaos tests use it")]
    pub fn listens(&self) -> bool {
        address(&self.log(), "listening").is_some()
    }

    /// Returns the address of hooks, which the log reports.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub async fn hooks(&self) -> SocketAddr {
        let text = eventually("relaybook accepts hooks", async || {
            address(&self.log(), "accepting hooks").ok_or_else(|| "it has not said where".to_owned())
        })
        .await;
        text.parse().expect("an address")
    }

    /// Returns the address of the audit page, which the log reports.
    #[allow(dead_code, reason = "the tests of the page use it")]
    pub async fn page_address(&self) -> SocketAddr {
        let text = eventually("relaybook serves the page", async || {
            address(&self.log(), "serving the audit page").ok_or_else(|| "it has not said where".to_owned())
        })
        .await;
        text.parse().expect("an address")
    }

    /// Returns the text of `/readyz`. It is an error while Relaybook is not ready.
    pub async fn ready(&self) -> Result<String, String> {
        self.get("/readyz").await
    }
}

/// Finds the address in the first line after the last start that has these words.
fn address(log: &str, words: &str) -> Option<String> {
    let since = log.rfind(STARTED).unwrap_or(0);
    let lines = log[since..].lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut said = lines.filter(|line| line["message"].as_str().is_some_and(|m| m.contains(words)));
    said.find_map(|line| line["address"].as_str().map(str::to_owned))
}

/// The line that precedes each start in the log.
const STARTED: &str = "--- started\n";

impl Start {
    fn spawn(&self) -> Child {
        use std::io::Write as _;
        let mut file = File::options().create(true).append(true).open(&self.log).expect("a log file");
        file.write_all(STARTED.as_bytes()).expect("written");
        let child = Command::new(&self.program)
            .args(&self.args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("RELAYBOOK_LOG", "info,relaybook=debug")
            .envs(self.pod.as_ref().map(|pod| ("POD_NAME", pod)))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("another handle"))
            .stderr(file)
            .spawn()
            .expect("relaybook starts");
        reaper::born(child.id());
        child
    }
}

/// Runs another command of the program, as users do in a terminal, and waits for its end.
pub async fn command(world: &World, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
    command.args(args).env("KUBECONFIG", &world.kubeconfig).stdin(Stdio::null());
    // On a blocking thread, so that the receivers of this runtime keep running.
    tokio::task::spawn_blocking(move || command.output().expect("relaybook runs")).await.expect("joined")
}

/// Returns the items of the `List` that a command prints with `-o json`.
#[allow(dead_code, reason = "the integration tests use it")]
pub fn items(printed: &[u8]) -> Vec<Value> {
    let list: Value = serde_json::from_slice(printed).expect("JSON");
    assert!(list["apiVersion"] == "v1" && list["kind"] == "List", "{list}");
    list["items"].as_array().expect("items").clone()
}

impl World {
    /// Runs another command of the program in this namespace. Returns its exit code, stdout and stderr.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub async fn command(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let output = command(self, &[args, &["-n", &self.ns]].concat()).await;
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

/// Returns the peak resident memory of a process, in KiB.
#[allow(dead_code, reason = "the integration tests use it")]
pub fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs, on Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line on memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Sends a signal to a process.
pub fn signal(pid: u32, name: &str) {
    let told = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(told.expect("kill runs").success(), "SIG{name} to {pid}");
}

impl Drop for Relaybook {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(TAIL)..];
            eprintln!("--- the end of {} ---\n{}\n---", self.command.log.display(), tail.join("\n"));
        } else {
            let _ = std::fs::remove_file(&self.command.log);
            self.under.iter().for_each(Under::check);
        }
    }
}
