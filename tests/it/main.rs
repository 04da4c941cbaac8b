//! The integration tests: they run the built program against a real API server and real sockets.
//!
//! Each test has its own namespace and its own Relaybook, so all tests can run in parallel. `tests/support` contains what they need. To
//! prove that nothing is sent, a test later makes a change that must be sent (the *fence*), and checks everything that was received
//! until then.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::float_cmp, reason = "what is compared are counts")]
#![allow(clippy::needless_pass_by_value, reason = "JSON is made where it is passed")]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "here for its tests; the target `chaos` uses it")]
#[path = "../chaos/plan.rs"]
mod chaos_plan;
#[allow(dead_code, reason = "here for its tests; the target `chaos` uses it")]
#[path = "../chaos/script.rs"]
mod chaos_script;

mod answers;
mod api_server;
mod app_data;
mod attempts;
mod audit;
mod builtins;
mod chain;
mod checked;
mod clocks;
mod clusters;
mod command_errors;
mod comments;
mod completion;
mod conditions;
mod configured;
mod convert;
mod deleted;
mod delivering;
mod deployments;
mod edited;
mod egress;
mod explained;
mod faults;
mod fleet;
mod forged;
mod generated;
mod global_config;
mod hooks;
mod hostile;
mod init;
mod install;
mod installed;
mod isolated;
mod lanes;
mod layers;
mod links;
mod linted;
mod missing;
mod monitoring;
mod order;
mod paced;
mod page;
mod promotions;
mod published;
mod pull_requests;
mod quiet;
mod recordings;
mod recover;
mod recreated;
mod redeliver;
mod remote;
mod render;
mod replay;
mod replicas;
mod restart;
mod restored;
mod retention;
mod retry_after;
mod scopes;
mod secrets;
mod sets;
mod setters;
mod status;
mod statuses;
mod subjects;
mod suspend;
mod sweep;
mod templates;
mod tested;
mod threads;
mod tls;
mod tokens;
mod traced;
mod unreadable;
mod validation;
mod version;
mod visible;
mod wait;
