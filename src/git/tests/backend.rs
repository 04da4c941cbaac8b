//! `git http-backend` behind a small HTTP server on the loopback interface, and a transport to it.
//!
//! It needs only the standard library and `git`. Each connection serves one request.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;

use crate::git::{Method, Request, Response, Transport, TransportError};

/// How the server behaves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Behaviour {
    /// The expected header `authorization`. Without it, everyone can read and write.
    pub(super) authorization: Option<&'static str>,
    /// Ignores that clients ask for version 2 of the protocol.
    pub(super) only_v0: bool,
}

/// A folder for repositories, served until the process ends.
pub(super) struct Backend {
    pub(super) root: PathBuf,
    address: SocketAddr,
}

impl Backend {
    pub(super) fn start(behaviour: Behaviour) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("pennant-git-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
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

/// Runs `git` in a folder with a fixed environment, and returns what it prints.
pub(super) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = isolated(Command::new("git").args(arguments).current_dir(folder)).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "git {arguments:?}: {out}{err}");
    out.trim_end().to_owned()
}

fn isolated(command: &mut Command) -> &mut Command {
    for name in ["GIT_AUTHOR", "GIT_COMMITTER"] {
        command.env(format!("{name}_NAME"), "A Person").env(format!("{name}_EMAIL"), "person@example.com");
        command.env(format!("{name}_DATE"), "1700000000 +0000");
    }
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("LC_ALL", "C")
}

fn serve(stream: TcpStream, root: &Path, behaviour: Behaviour) -> io::Result<()> {
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
    if behaviour.authorization.is_some_and(|expected| header("authorization") != expected) {
        return stream.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-type: text/plain\r\n\r\nwho are you?\n");
    }
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
    if !behaviour.only_v0 && !header("git-protocol").is_empty() {
        command.env("GIT_PROTOCOL", header("git-protocol"));
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut input = child.stdin.take().unwrap();
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
    let mut answer = format!("HTTP/1.1 {status}\r\n{head}\r\n\r\n").into_bytes();
    answer.extend_from_slice(output.get(end + 4..).unwrap_or_default());
    answer
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
        Ok((body.len() <= request.limit).then_some(Response { status, content_type, body }))
    }
}
