//! What users write, read and compiled: triggers, templates, layers of configuration, and manifests.
//!
//! In: Notifications, layers, the global ConfigMap, files, and the data of a transition. Out: who wants a transition ([`trigger`]), and the rendered
//! parts of a request ([`render`]). Also what its answer means ([`answer`]), the effective notification or its problem ([`config`]), and triggers
//! that match nothing ([`reach`]). Files give objects with the line numbers of their fields ([`manifests`]), or come back edited
//! ([`setters`]). [`cel`] compiles the expressions. Pure: nothing is read from a disk or a network.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

pub mod answer;
pub mod cel;
pub mod config;
pub mod manifests;
pub mod reach;
pub mod render;
pub mod setters;
pub mod trigger;
