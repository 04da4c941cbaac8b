//! A server with `git http-backend` on the loopback interface, and a transport to it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;

use super::http_backend::{Behaviour, run, serve};
use crate::{Method, Request, Response, Transport, TransportError};

/// A folder for repositories, served until the process ends.
pub(super) struct Backend {
    pub(super) root: PathBuf,
    address: SocketAddr,
}

impl Backend {
    pub(super) fn start(behaviour: Behaviour) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("relaybook-git-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&root).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = root.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let root = served.clone();
                std::thread::spawn(move || serve(stream, &root, behaviour));
            }
        });
        Self { root, address }
    }

    /// Returns a transport to a repository below the root.
    pub(super) fn transport(&self, repository: &str) -> Loopback {
        Loopback { address: self.address, repository: repository.to_owned(), authorization: None }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// Runs `git` in a folder, and returns what it prints. All commits have the same time, so that their ids are the same on each machine.
pub(super) fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    for name in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
        command.env(name, "1700000000 +0000");
    }
    run(command.args(arguments).current_dir(folder)).trim_end().to_owned()
}

/// A transport that blocks.
#[derive(Clone, Debug)]
pub(super) struct Loopback {
    address: SocketAddr,
    repository: String,
    pub(super) authorization: Option<&'static str>,
}

impl Transport for Loopback {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        self.exchange(&request).map_err(|error| TransportError::Failed(Box::new(error)))?.ok_or(TransportError::TooLong)
    }
}

impl Loopback {
    fn exchange(&self, request: &Request) -> io::Result<Option<Response>> {
        let mut stream = TcpStream::connect(self.address)?;
        let method = if request.method == Method::Get { "GET" } else { "POST" };
        let mut head = format!("{method} /{}{} HTTP/1.1\r\nhost: localhost\r\n", self.repository, request.path);
        for (name, value) in &request.headers {
            head = format!("{head}{name}: {value}\r\n");
        }
        if let Some(value) = self.authorization {
            head = format!("{head}authorization: {value}\r\n");
        }
        stream.write_all(format!("{head}content-length: {}\r\n\r\n", request.body.len()).as_bytes())?;
        stream.write_all(&request.body)?;
        let mut answer = Vec::new();
        stream.take(request.limit as u64 + 64 * 1024).read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let head = String::from_utf8_lossy(&answer[..end]).to_string();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        let content_type =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-type: ").map(str::to_owned));
        let body = Bytes::from(answer.split_off(end + 4));
        Ok((body.len() <= request.limit).then_some(Response { status, content_type, redirect: None, body }))
    }
}
