//! `relaybook page`, as a person starts it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running `relaybook page`. It ends when dropped.
pub struct OwnPage {
    child: Child,
    /// The first address, which lets one browser in.
    pub first: String,
}

impl OwnPage {
    /// Starts it with this kubeconfig, and waits for its first address.
    pub fn start(kubeconfig: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_relaybook"))
            .args(["page", "--no-open"])
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the built program");
        let mut first = String::new();
        BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut first).expect("an address");
        Self { child, first: first.trim().to_owned() }
    }

    /// Returns scheme, host and port.
    pub fn origin(&self) -> &str {
        self.first.split("/enter").next().expect("the address has this path")
    }

    /// Returns the process ID.
    #[allow(dead_code, reason = "the benchmark uses it")]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens the first address, and returns the cookie that the browser gets.
    #[allow(dead_code, reason = "the tests in a browser let the browser do it")]
    pub async fn enter(&self) -> String {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
        let entered = client.build().expect("a client").get(&self.first).send().await.expect("an answer");
        assert_eq!(entered.status(), 303, "{entered:?}");
        let cookie = entered.headers()["set-cookie"].to_str().expect("text");
        cookie.split(';').next().expect("a name and a value").to_owned()
    }
}

impl Drop for OwnPage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
