//! `git http-backend` behind a small HTTP server on loopback.
//!
//! In: repositories of a test. Out: a server that everyone can read and write ([`GitServer`]), and what is in its repositories. Each
//! connection serves one request.

#[path = "../../crates/git/src/tests/http_backend.rs"]
mod http_backend;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use http_backend::{Behaviour, run, serve};

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
                std::thread::spawn(move || {
                    serve(stream, &root, Behaviour { only_v0: old.load(Ordering::Relaxed), authorization: None })
                });
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

/// Runs `git` in a folder, and returns what it prints, without the end of the last line.
fn git(folder: &Path, arguments: &[&str]) -> String {
    git_raw(folder, arguments).trim_end().to_owned()
}

fn git_raw(folder: &Path, arguments: &[&str]) -> String {
    run(Command::new("git").args(arguments).current_dir(folder))
}
