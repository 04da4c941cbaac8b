//! Shared test support: real components that the tests start, and that end with the tests.
//!
//! In: the launcher in `hack/control-plane`, the built `relaybook`. Out: a control plane ([`control_plane`]), a proxy in front of it
//! that loses calls and answers ([`proxy`]), Relaybook as a child process ([`relaybook`]), its commands while they run ([`running`]), scripted HTTP receivers on loopback
//! ([`receiver`]), a Git forge with a proxy in front of it ([`gitea`], [`forge_proxy`]), a Git server ([`git`]), valid and invalid certificates ([`tls`]), the rendered chart and its permissions
//! ([`chart`], [`under`]), tokens of accounts ([`account`]), the audit page of a person ([`own_page`]), clients that do not finish their requests ([`held`]), objects as users and their controllers write them ([`world`]), waiting for a condition ([`wait`]), as
//! many tests at a time as the machine can run ([`turn`]), and the [`oracle`], which every test calls at its end: nothing missing, nothing unexpected, no order violated, no duplicate beyond
//! what the test allows, and an audit that agrees with what the receiver saw.
//!
//! Nothing here depends on the internals of Relaybook: only the API types and `crds()` of its library are used.

#[allow(dead_code, reason = "the integration tests and those of the page use it")]
pub mod account;
#[allow(dead_code, reason = "the integration tests use it")]
pub mod chart;
pub mod control_plane;
#[allow(dead_code, reason = "the tests of pull requests use it")]
pub mod forge_proxy;
#[allow(dead_code, reason = "the tests of pull requests use it")]
pub mod git;
#[allow(dead_code, reason = "the tests of pull requests use it")]
pub mod gitea;
#[allow(dead_code, reason = "the integration tests use it")]
pub mod held;
pub mod lanes;
pub mod oracle;
#[allow(dead_code, reason = "the tests of the page and the benchmark use it")]
pub mod own_page;
pub mod proxy;
pub mod reaper;
pub mod receiver;
pub mod relaybook;
#[allow(dead_code, reason = "the integration tests use it")]
pub mod remote;
#[allow(dead_code, reason = "the integration tests use it")]
pub mod running;
#[allow(dead_code, reason = "the integration tests use it")]
pub mod tls;
pub mod turn;
pub mod under;
pub mod wait;
pub mod world;

pub use oracle::Oracle;
pub use proxy::{Fault, Proxy};
pub use receiver::{Receiver, Reply};
pub use relaybook::Relaybook;
use std::path::PathBuf;

pub use wait::eventually;
pub use world::World;

/// Returns the folder for files of tests. A run with other permissions has its own, so two of them can run side by side.
pub fn tmp() -> PathBuf {
    let rights = std::env::var_os("RELAYBOOK_TEST_RIGHTS").unwrap_or_default();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(rights);
    std::fs::create_dir_all(&folder).expect("a folder for tests");
    folder
}
