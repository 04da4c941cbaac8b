//! Pennant as people run it: the built program, as a child process.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use serde_json::Value;

use super::reaper;
use super::under::Under;
use super::wait::eventually;
use super::world::World;

/// So many lines of the log are shown when a test fails.
const TAIL: usize = 40;

/// One running Pennant. Killed when dropped; its log is kept if the test fails.
pub struct Pennant {
    command: Start,
    child: Child,
    address: String,
    under: Option<Under>,
}

/// What it is started with, each time.
struct Start {
    args: Vec<String>,
    kubeconfig: PathBuf,
    pod: Option<String>,
    log: PathBuf,
    program: PathBuf,
    env: Vec<(&'static str, String)>,
}

/// How one is started. The default watches the world's namespace and may send to loopback.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespaces to watch.
    pub watch: Vec<String>,
    /// `--controllers`.
    pub controllers: &'static str,
    /// Whether loopback is allowed.
    pub loopback: bool,
    /// `POD_NAME`: one of several replicas. `None`: the only one, which is called by the name of the host.
    pub pod: Option<&'static str>,
    /// Another way to the API server than the world's own.
    pub kubeconfig: Option<PathBuf>,
    /// The program.
    pub program: PathBuf,
    /// More of its command line.
    pub args: Vec<String>,
    /// More of its environment.
    pub env: Vec<(&'static str, String)>,
}

impl Options {
    /// For this world.
    pub fn of(world: &World) -> Self {
        Self {
            watch: vec![world.ns.clone()],
            controllers: "pipeline,dispatch",
            loopback: true,
            pod: None,
            kubeconfig: None,
            program: env!("CARGO_BIN_EXE_pennant").into(),
            args: Vec::new(),
            env: Vec::new(),
        }
    }
}

impl Pennant {
    /// Starts one and waits until it is ready.
    pub async fn start(world: &World) -> Self {
        Self::with(world, Options::of(world)).await
    }

    /// Starts one with options and waits until it is ready.
    pub async fn with(world: &World, options: Options) -> Self {
        let mut pennant = Self::begin(world, options).await;
        pennant.wait_ready().await;
        pennant
    }

    /// Starts one with options.
    pub async fn begin(world: &World, options: Options) -> Self {
        let mut args: Vec<String> =
            ["run", "--http-addr", "127.0.0.1:0", "--log-format", "json", "--allow-http"].map(str::to_owned).to_vec();
        args.extend(["--namespace".to_owned(), world.ns.clone()]);
        args.extend(["--controllers".to_owned(), options.controllers.to_owned()]);
        args.extend(options.watch.iter().flat_map(|ns| ["--watch-namespace".to_owned(), ns.clone()]));
        if options.loopback {
            args.extend(["--allow-destination".to_owned(), "127.0.0.0/8".to_owned()]);
        }
        args.extend(options.args);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("logs");
        std::fs::create_dir_all(&folder).expect("a folder for logs");
        let log = folder.join(format!("{}-{}-{}.log", world.ns, options.controllers, options.pod.unwrap_or("0")));
        let _ = std::fs::remove_file(&log);
        let kubeconfig = options.kubeconfig.unwrap_or_else(|| world.kubeconfig.clone());
        let under = Under::rights(world, &options.watch, &kubeconfig).await;
        let kubeconfig = under.as_ref().map_or(kubeconfig, Under::kubeconfig);
        if let Some(under) = &under {
            args = under.args(args);
        }
        let pod = options.pod.map(str::to_owned);
        let command = Start { args, kubeconfig, pod, log, program: options.program, env: options.env };
        let child = command.spawn();
        Self { command, child, address: String::new(), under }
    }

    /// Kills it as `kill -9` does.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        reaper::dead(self.child.id());
    }

    /// The next start is one of this program.
    #[allow(dead_code, reason = "chaos uses it")]
    pub fn become_program(&mut self, program: PathBuf) {
        self.command.program = program;
    }

    /// Whether it has ended, and how.
    #[allow(dead_code, reason = "chaos uses it")]
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("a child can be asked");
        status.inspect(|_| reaper::dead(self.child.id()))
    }

    /// Sends SIGTERM and goes on.
    pub fn ask_to_stop(&self) {
        signal(self.pid(), "TERM");
    }

    /// Stops its clock, as a frozen node does, until [`Pennant::thaw`].
    pub fn freeze(&self) {
        signal(self.pid(), "STOP");
    }

    /// Lets it go on after [`Pennant::freeze`].
    pub fn thaw(&self) {
        signal(self.pid(), "CONT");
    }

    /// The most memory that it ever had, in KiB.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs, on Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line on memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Where it serves health and metrics.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let status = eventually("pennant ends", async || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            other => Err(format!("{other:?}")),
        })
        .await;
        reaper::dead(self.child.id());
        status
    }

    /// Stops it with SIGTERM, which must go well.
    pub async fn stop(&mut self) {
        self.ask_to_stop();
        let status = self.ended().await;
        assert!(status.success(), "after SIGTERM: {status}");
    }

    /// Starts it again, after it has ended, and waits until it is ready. The log goes on in the same file.
    pub async fn start_again(&mut self) {
        self.launch();
        self.wait_ready().await;
    }

    /// Starts it again, after it has ended, and goes on at once.
    pub fn launch(&mut self) {
        self.child = self.command.spawn();
    }

    /// Stops it in an orderly way and starts it again.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start_again().await;
    }

    /// All metrics, by name with labels.
    pub async fn metrics(&self) -> BTreeMap<String, f64> {
        let text = self.get("/metrics").await.expect("metrics are served");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.rsplit_once(' ')).map(|(k, v)| (k.to_owned(), v.parse().unwrap_or(0.0))).collect()
    }

    /// How many writes it has sent to the API server.
    pub async fn writes(&self) -> f64 {
        self.metrics().await.iter().filter(|(name, _)| name.starts_with("pennant_api_writes_total")).map(|(_, n)| n).sum()
    }

    /// How many requests it has made.
    pub async fn attempts(&self) -> f64 {
        self.metrics().await.iter().filter(|(name, _)| name.starts_with("pennant_attempts_total")).map(|(_, n)| n).sum()
    }

    /// What it serves at this path.
    pub async fn page(&self, path: &str) -> String {
        self.get(path).await.expect("it is served")
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.command.log).unwrap_or_default()
    }

    /// What it serves at this path, if it answers with 2xx.
    pub async fn get(&self, path: &str) -> Result<String, String> {
        let answer = reqwest::get(format!("http://{}{path}", self.address)).await.map_err(|e| e.to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|e| e.to_string())?;
        if status.is_success() { Ok(text) } else { Err(format!("{status}: {text}")) }
    }

    /// Waits until it is ready.
    pub async fn wait_ready(&mut self) {
        self.wait_listening().await;
        eventually("pennant is ready", async || self.get("/readyz").await).await;
    }

    /// Waits until it serves health and metrics.
    pub async fn wait_listening(&mut self) {
        self.address = eventually("pennant listens", async || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("pennant has ended: {status}");
            }
            address(&self.log()).ok_or_else(|| "it has not said where".to_owned())
        })
        .await;
    }

    /// What it waits for before it is ready; an error while it waits for something.
    pub async fn ready(&self) -> Result<String, String> {
        self.get("/readyz").await
    }
}

/// Where it listens, from the last line that says so after the last start.
fn address(log: &str) -> Option<String> {
    let since = log.rfind(STARTED).unwrap_or(0);
    let lines = log[since..].lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut said = lines.filter(|line| line["message"].as_str().is_some_and(|m| m.contains("listening")));
    said.find_map(|line| line["address"].as_str().map(str::to_owned))
}

/// Stands in the log before each start.
const STARTED: &str = "--- started\n";

impl Start {
    fn spawn(&self) -> Child {
        use std::io::Write as _;
        let mut file = File::options().create(true).append(true).open(&self.log).expect("a log file");
        file.write_all(STARTED.as_bytes()).expect("written");
        let child = Command::new(&self.program)
            .args(&self.args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("PENNANT_LOG", "info,pennant=debug")
            .envs(self.pod.as_ref().map(|pod| ("POD_NAME", pod)))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("another handle"))
            .stderr(file)
            .spawn()
            .expect("pennant starts");
        reaper::born(child.id());
        child
    }
}

/// Runs another command of the program, as people do at a terminal, and waits for its end.
pub async fn command(world: &World, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pennant"));
    command.args(args).env("KUBECONFIG", &world.kubeconfig).stdin(Stdio::null());
    // Receivers go on meanwhile.
    tokio::task::spawn_blocking(move || command.output().expect("pennant runs")).await.expect("joined")
}

/// Sends a signal to one process, by its pid.
pub fn signal(pid: u32, name: &str) {
    let told = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(told.expect("kill runs").success(), "SIG{name} to {pid}");
}

impl Drop for Pennant {
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
