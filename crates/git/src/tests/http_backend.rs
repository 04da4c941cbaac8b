//! One connection to `git http-backend`. It needs only the standard library and `git`.
//!
//! In: a connection, and a folder with repositories. Out: the answer to its request. `tests/support/git.rs` uses this file, too.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// How the server behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Behaviour {
    /// The expected header `authorization`. Without it, everyone can read and write.
    pub authorization: Option<&'static str>,
    /// Ignores that clients ask for version 2 of the protocol.
    pub only_v0: bool,
}

/// Runs a `git` command as the same person on each machine, and returns what it prints.
pub fn run(command: &mut Command) -> String {
    let output = isolated(command).output().expect("git runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out.into_owned()
}

fn isolated(command: &mut Command) -> &mut Command {
    for name in ["GIT_AUTHOR", "GIT_COMMITTER"] {
        command.env(format!("{name}_NAME"), "A Person").env(format!("{name}_EMAIL"), "person@example.com");
    }
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("LC_ALL", "C")
}

/// Serves one request of a connection.
pub fn serve(stream: TcpStream, root: &Path, behaviour: Behaviour) -> io::Result<()> {
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
        .env("REMOTE_USER", "relaybook")
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
