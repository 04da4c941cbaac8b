//! `git http-backend` behind a small HTTP server on loopback.
//!
//! In: repositories of a test. Out: a server that everyone can read and write ([`GitServer`]), and what is in its repositories. Each
//! connection serves one request.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A folder for repositories, served until the process ends. The folder is deleted when dropped.
pub struct GitServer {
    root: PathBuf,
    address: SocketAddr,
    only_v0: Arc<AtomicBool>,
}

impl GitServer {
    /// Starts a server without repositories.
    pub fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("git-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = crate::support::tmp().join(name);
        std::fs::create_dir_all(&root).expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let only_v0 = Arc::<AtomicBool>::default();
        let (served, old) = (root.clone(), only_v0.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (root, old) = (served.clone(), old.clone());
                std::thread::spawn(move || serve(stream, &root, old.load(Ordering::Relaxed)));
            }
        });
        Self { root, address, only_v0 }
    }

    /// Returns the URL without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ignores from now on that clients ask for version 2 of the protocol.
    pub fn only_v0(&self) {
        self.only_v0.store(true, Ordering::Relaxed);
    }

    /// Creates the repository `NAME.git`, whose branch `main` has one commit with these files.
    pub fn repository(&self, name: &str, files: &[(&str, &str)]) -> Bare {
        let bare = Bare { folder: self.root.join(format!("{name}.git")) };
        git(&self.root, &["init", "--quiet", "--bare", "--initial-branch=main", &format!("{name}.git")]);
        bare.commit("initial", files);
        bare
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// A repository on the server.
#[derive(Clone)]
pub struct Bare {
    folder: PathBuf,
}

impl Bare {
    /// Commits files to `main`, as another person who pushes, and returns the commit.
    pub fn commit(&self, message: &str, files: &[(&str, &str)]) -> String {
        let clone = self.folder.with_extension("clone");
        let _ = std::fs::remove_dir_all(&clone);
        std::fs::create_dir_all(&clone).expect("a folder");
        let url = self.folder.to_str().expect("UTF-8");
        git(&clone, &["clone", "--quiet", url, "."]);
        for (path, text) in files {
            let path = clone.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("written");
        }
        git(&clone, &["add", "--all"]);
        git(&clone, &["commit", "--quiet", "--message", message]);
        // Hooks are for what comes over HTTP.
        git(
            &clone,
            &[
                "push",
                "--quiet",
                "--no-verify",
                "--receive-pack=git -c core.hooksPath=/dev/null receive-pack",
                "origin",
                "HEAD:refs/heads/main",
            ],
        );
        self.git(&["rev-parse", "main"])
    }

    /// Runs `git` in the repository, and returns what it prints.
    pub fn git(&self, arguments: &[&str]) -> String {
        git(&self.folder, arguments)
    }

    /// Returns the subjects of the commits of `main`, the oldest first.
    pub fn subjects(&self) -> Vec<String> {
        self.git(&["log", "--reverse", "--format=%s", "main"]).lines().map(str::to_owned).collect()
    }

    /// Returns a file of `main`.
    pub fn file(&self, path: &str) -> String {
        git_raw(&self.folder, &["cat-file", "blob", &format!("main:{path}")])
    }

    /// Writes a hook that is run for each push.
    pub fn hook(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.folder.join("hooks").join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    }

    /// Removes a hook.
    pub fn unhook(&self, name: &str) {
        std::fs::remove_file(self.folder.join("hooks").join(name)).expect("removed");
    }

    /// Checks all objects of the repository.
    pub fn check(&self) {
        let said = self.git(&["fsck", "--full", "--strict", "--no-dangling"]);
        assert_eq!(said, "", "git fsck");
    }
}

/// Runs `git` in a folder with a fixed environment, and returns what it prints, without the end of the last line.
fn git(folder: &Path, arguments: &[&str]) -> String {
    git_raw(folder, arguments).trim_end().to_owned()
}

fn git_raw(folder: &Path, arguments: &[&str]) -> String {
    let output = isolated(Command::new("git").args(arguments).current_dir(folder)).output().expect("git runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "git {arguments:?}: {out}{err}");
    out.into_owned()
}

fn isolated(command: &mut Command) -> &mut Command {
    for name in ["GIT_AUTHOR", "GIT_COMMITTER"] {
        command.env(format!("{name}_NAME"), "A Person").env(format!("{name}_EMAIL"), "person@example.com");
    }
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("LC_ALL", "C")
}

fn serve(stream: TcpStream, root: &Path, only_v0: bool) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let header = |name: &str| headers.iter().find(|(of, _)| of == name).map_or("", |(_, value)| value.as_str());
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let mut stream = stream;
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut command = Command::new("git");
    isolated(command.arg("http-backend"))
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REMOTE_USER", "pennant")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env_remove("GIT_PROTOCOL");
    if !only_v0 && !header("git-protocol").is_empty() {
        command.env("GIT_PROTOCOL", header("git-protocol"));
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut input = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || input.write_all(&body));
    let output = child.wait_with_output()?.stdout;
    let _ = writer.join();
    stream.write_all(&answer(&output))
}

/// Returns the HTTP answer of the output of a CGI program.
fn answer(output: &[u8]) -> Vec<u8> {
    let end = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(output.len());
    let head = String::from_utf8_lossy(&output[..end]);
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let mut answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\n{head}\r\n\r\n").into_bytes();
    answer.extend_from_slice(output.get(end + 4..).unwrap_or_default());
    answer
}
