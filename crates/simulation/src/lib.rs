//! For tests only: a model of the API server, on which the real controllers run in one thread and in virtual time.
//!
//! In: requests of `kube::Client`, and for each of them what happens to it. Out: the answers and watch events of a real API server.
//!
//! | module | what it does |
//! |---|---|
//! | [`api_server`] | the model: a value with a function from a request to its answer |
//! | [`clock`] | the clocks and the random numbers of a thread |
//! | [`connection`] | what a client sends its requests to |
//! | [`service`] | the same as a service under `kube::Client`, with faults as data |
//!
//! `tests/it/api_server.rs` makes the same random calls on the model and on a real API server, and compares the answers. The program
//! never depends on this crate.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod api_server;
#[cfg(target_os = "linux")]
pub mod clock;
pub mod connection;
pub mod service;
