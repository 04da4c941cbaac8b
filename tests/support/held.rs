//! Clients that open connections, and do not finish what they begin.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// The head of a request whose body does not arrive.
pub fn without_body(path: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n").into_bytes()
}

/// The beginning of a head.
pub fn without_head(path: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: ").into_bytes()
}

/// Open connections. Each sends one more byte in a second. They are closed when dropped.
pub struct Held(AbortHandle);

impl Held {
    /// Opens this number of connections, and sends these bytes on each.
    pub async fn open(address: SocketAddr, count: usize, bytes: &[u8]) -> Self {
        // Each connection is a file. Many systems start a process with a limit of 1,024, which it can raise.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("a limit that is allowed");
        let mut all = Vec::new();
        for _ in 0..count {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            // The server may have closed it already.
            let _ = stream.write_all(bytes).await;
            all.push(stream);
        }
        let drip = async move {
            loop {
                sleep(Duration::from_secs(1)).await;
                for stream in &all {
                    let _ = stream.try_write(b"x");
                }
            }
        };
        Self(tokio::spawn(drip).abort_handle())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.abort();
    }
}
