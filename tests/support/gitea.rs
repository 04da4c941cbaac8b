//! A real Gitea on loopback, over HTTPS with a certificate of its own CA.
//!
//! In: the program that `hack/gitea.sh` builds once. Out: a server ([`Gitea`]), its users ([`Person`]), and their repositories with pull
//! requests ([`Repository`]). All files of a server are in a folder of its own, which is deleted after its end.
//!
//! All tests share a server ([`shared`]), because each has users of its own. A test that stops the server starts its own.

pub mod person;
pub mod repository;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::sync::OnceCell;

use super::reaper;
use super::tls::{Authority, params};
use super::wait::within;
pub use person::{Answer, Person};
pub use repository::Repository;

/// How long a server may need until it answers. It needs two seconds on a machine with nothing else to do.
const START: Duration = Duration::from_mins(2);
/// How often a server is started on another port, if another process takes the chosen port first.
const STARTS: usize = 3;
/// Number of log lines that are shown if a server does not start.
const TAIL: usize = 30;
/// Prefix of the folders.
const FOLDER: &str = "gitea-";
/// The user who creates all other users.
const ADMIN: &str = "root";
/// The command that creates [`ADMIN`], and prints a token.
const CREATE_ADMIN: &str = "admin user create --admin --username root --email root@example.com --random-password --must-change-password=false --access-token";

/// A running Gitea. Killed when dropped, or when the tests end.
pub struct Gitea {
    child: Child,
    program: PathBuf,
    /// Host and port.
    host: String,
    authority: Authority,
    /// A token with all permissions, of the user [`ADMIN`].
    token: String,
    folder: Folder,
}

/// The Gitea that all tests share. The first call starts it.
pub async fn shared() -> &'static Gitea {
    static SHARED: OnceCell<Gitea> = OnceCell::const_new();
    SHARED.get_or_init(Gitea::start).await
}

impl Gitea {
    /// Starts a server with no repository, and waits until it answers. The first start on a machine builds the program, which takes
    /// minutes; the script reports that on stderr.
    pub async fn start() -> Self {
        let program = tokio::task::spawn_blocking(program).await.expect("no panic").to_owned();
        let (authority, folder) = (Authority::new(), Folder::new());
        let pair = authority.issue(&params("127.0.0.1"));
        folder.write("server.crt", &pair.certificate.pem());
        folder.write("server.key", &pair.key.serialize_pem());
        let port = free_port();
        folder.write("app.ini", &settings(&folder.path, &statics(&program), port));
        folder.run(&program, "migrate");
        let said = folder.run(&program, CREATE_ADMIN);
        let token = said.lines().find_map(|line| line.strip_prefix("Access token was successfully created... "));
        let token = token.unwrap_or_else(|| panic!("no token in {said}")).trim().to_owned();
        let child = folder.serve(&program);
        let mut gitea = Self { child, program, host: format!("127.0.0.1:{port}"), authority, token, folder };
        for start in 1.. {
            match gitea.answers().await {
                Ok(()) => break,
                Err(why) => assert!(start < STARTS, "Gitea does not start: {why}"),
            }
            let port = free_port();
            gitea.folder.write("app.ini", &settings(&gitea.folder.path, &statics(&gitea.program), port));
            gitea.host = format!("127.0.0.1:{port}");
            gitea.child = gitea.folder.serve(&gitea.program);
        }
        gitea
    }

    /// Waits until the server answers. Fails if it has ended.
    async fn answers(&mut self) -> Result<(), String> {
        let (client, url) = (self.client(), self.url("/api/healthz"));
        let child = &mut self.child;
        let started = within(START, "Gitea answers", async || {
            if let Some(status) = child.try_wait().expect("a child can be asked") {
                reaper::dead(child.id());
                return Ok(Err(status.to_string()));
            }
            let answer = client.get(&url).send().await.map_err(|e| e.to_string())?;
            if answer.status().is_success() { Ok(Ok(())) } else { Err(answer.status().to_string()) }
        });
        started.await.map_err(|status| format!("{status}; the end of its log:\n{}", self.folder.log()))
    }

    /// Returns the URL of a path of this server.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.host)
    }

    /// Returns the host and the port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the certificate, in PEM, of the CA that clients must trust.
    pub fn ca(&self) -> String {
        self.authority.pem()
    }

    /// Returns a client that trusts this server, for requests to paths that are not of the API.
    pub fn client(&self) -> reqwest::Client {
        self.authority.client()
    }

    /// Returns the process ID of the server.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server with SIGKILL. Connections to its port are then refused.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        reaper::dead(self.child.id());
    }

    /// Starts the server again after [`Gitea::kill9`], on the same port and with the same data.
    pub async fn start_again(&mut self) {
        self.child = self.folder.serve(&self.program);
        self.answers().await.unwrap_or_else(|why| panic!("Gitea does not start again: {why}"));
    }

    /// Returns the user who may do everything.
    pub fn admin(&self) -> Person {
        Person::new(self, ADMIN, &self.token)
    }

    /// Creates a user. Their token has all scopes. Names differ, because tests share the server.
    pub async fn person(&self, name: &str) -> Person {
        let admin = self.admin();
        let password = format!("secret of {name}");
        let user = json!({"username": name, "password": password, "email": format!("{name}@example.com"),
            "must_change_password": false});
        admin.post("/admin/users", user).await;
        let mut person = Person::new(self, name, "");
        person.password = password;
        person.token = person.token(&["all"]).await;
        person
    }
}

impl Drop for Gitea {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Returns the path of the program. The first call on a machine builds it.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/gitea.sh");
        let built = Command::new("bash").arg(script).stderr(Stdio::inherit()).output().expect("bash");
        assert!(built.status.success(), "Gitea does not build; it says why above");
        String::from_utf8(built.stdout).expect("a path").trim().into()
    })
}

/// Returns the folder with the templates and other files that belong to the program.
fn statics(program: &Path) -> PathBuf {
    program.ancestors().nth(2).expect("it is in bin").join("static")
}

/// Returns a port that was free now. Another process may take it, which [`Gitea::start`] notices.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Returns the configuration, for the port.
fn settings(folder: &Path, statics: &Path, port: u16) -> String {
    let settings = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/hack/tools/gitea/app.ini"));
    let settings = settings.replace("@FOLDER@", &folder.display().to_string());
    settings.replace("@STATIC@", &statics.display().to_string()).replace("@PORT@", &port.to_string())
}

/// The folder of a server. Deleted when dropped.
///
/// A test process may end without dropping it. So a process locks a file in its folders, and removes those that no process has locked.
struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let tmp = crate::support::tmp();
        // Held until the new folder is locked. Otherwise another process could remove it before.
        let all = File::create(tmp.join("gitea.lock")).expect("a file");
        all.lock().expect("a lock");
        sweep(&tmp);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = tmp.join(format!("{FOLDER}{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        let lock = File::create(path.join("lock")).expect("a file");
        lock.lock().expect("a lock");
        Self { path, _lock: lock }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path.join(name), text).expect("a file is written");
    }

    /// Returns the command that runs Gitea in this folder, without settings of the user of this machine.
    fn command(&self, program: &Path, words: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(words.split(' '))
            .arg("--config")
            .arg(self.path.join("app.ini"))
            .current_dir(&self.path)
            .stdin(Stdio::null());
        // `make` sets GOGC for the control plane. With its value, Gitea would need a third more memory.
        command.env("HOME", &self.path).env("GITEA_WORK_DIR", &self.path).env_remove("GOGC");
        // Gitea writes to the global configuration of Git, which must be the one in this folder.
        command.env_remove("GIT_CONFIG_GLOBAL").env_remove("XDG_CONFIG_HOME");
        // In a container, the tests often run as root, which Gitea otherwise refuses.
        command.env("GITEA_I_AM_BEING_UNSAFE_RUNNING_AS_ROOT", "true");
        command
    }

    /// Runs a command of Gitea, which must succeed, and returns its output.
    fn run(&self, program: &Path, words: &str) -> String {
        let output = self.command(program, words).output().expect("Gitea can be run");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "gitea {words}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Starts the server. Its output is appended to the log.
    fn serve(&self, program: &Path) -> Child {
        let log = File::options().create(true).append(true).open(self.path.join("log")).expect("a log");
        let mut command = self.command(program, "web");
        let child = command.stdout(log.try_clone().expect("a log")).stderr(log).spawn().expect("Gitea starts");
        reaper::born(child.id());
        child
    }

    /// Returns the end of the log.
    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.path.join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of processes that have ended.
fn sweep(tmp: &Path) {
    for entry in std::fs::read_dir(tmp).expect("a folder").flatten() {
        if !entry.file_name().to_string_lossy().starts_with(FOLDER) {
            continue;
        }
        let locked = File::open(entry.path().join("lock")).is_ok_and(|lock| {
            let tried = lock.try_lock();
            matches!(tried, Err(TryLockError::WouldBlock))
        });
        if !locked {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
