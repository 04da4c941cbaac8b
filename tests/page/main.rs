//! The audit page in a real browser: a control plane, Relaybook under a small load, and a scenario that people understand. `make page` runs it.
//!
//! In: the folder `tests/page/browser` with the tests for Playwright, and the path of Chromium in `RELAYBOOK_CHROMIUM`. Arguments are passed
//! to Playwright, such as `-g overview`. `--stay` runs no test, and prints what a person needs to look at the page.
//! Out: the report of Playwright on stdout, its exit code, and screenshots in `target/page`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the report")]
#![allow(unused_imports, reason = "without a harness the unit tests of the pure parts are left out; `it` runs them")]

mod people;
mod scenario;
#[allow(dead_code, reason = "shared with the integration tests, which use all of it")]
#[path = "../support/mod.rs"]
mod support;

use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::json;

use scenario::Scenario;
use support::control_plane;
use support::own_page::OwnPage;
use support::relaybook::{Options, Relaybook};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--test-threads")).collect();
    println!("page: starting a control plane");
    let scenario = Scenario::begin().await;
    println!("page: starting Relaybook with the page");
    let options = Options {
        watch: Vec::new(),
        args: [
            "--page-addr=127.0.0.1:0".to_owned(),
            "--page-actions".to_owned(),
            "--cluster-grace=10s".to_owned(),
            format!("--proxy={}", scenario.receivers.url("")),
        ]
        .to_vec(),
        ..Options::of(&scenario.system)
    };
    let relaybook = Relaybook::with(&scenario.system, options).await;
    let public = relaybook.page_address().await;
    println!("page: pipelines are rolled out");
    scenario.play().await;
    let own = OwnPage::start(&scenario.system.kubeconfig, &["--controller-namespace", &scenario.system.ns]);
    let environment = json!({
        "own": own.first,
        "public": format!("http://{public}"),
        "tokens": people::tokens(&scenario.system.client).await,
        "hostile": scenario.hostile(),
        "kubeconfig": scenario.system.kubeconfig,
        "kubectl": control_plane::kubectl(),
    });
    if arguments.iter().any(|word| word == "--stay") {
        println!("{environment:#}\npage: Ctrl-C ends it");
        scenario.load().await;
        return ExitCode::SUCCESS;
    }
    let browser = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/browser");
    let mut tests = Command::new("npx")
        .args(["--no-install", "playwright", "test"])
        .args(arguments)
        .current_dir(browser)
        .env("RELAYBOOK_PAGE", environment.to_string())
        .stdin(Stdio::null())
        .spawn()
        .expect("npx, which is part of Node");
    let status = tokio::select! {
        status = ended(&mut tests) => status,
        () = scenario.load() => unreachable!("the load never ends"),
    };
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Waits until a process has ended.
async fn ended(child: &mut Child) -> ExitStatus {
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
