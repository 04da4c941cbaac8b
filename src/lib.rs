//! Pennant
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

pub mod api;
pub mod app;
pub mod changelog;
pub mod cli;
pub mod clusters;
pub mod config;
pub mod delivery;
pub mod dispatch;
pub mod http;
pub mod observe;
pub mod pipeline;
pub mod render;
pub mod report;
pub mod send;
pub mod telemetry;
pub mod trigger;
pub mod watch;
