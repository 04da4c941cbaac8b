//! What a person asks: what would be sent, what was sent, what is wrong with files, and whether an installation can work.
//!
//! In: files, objects of the API server, and the permissions of the person. Out: findings of files ([`lint`]), rendered requests, tests and
//! explanations ([`preview`]), Deliveries that match a filter ([`audit`]), and the state of an installation ([`check`]). Also what is wrong,
//! with the remedy ([`diagnosis`]), and the first manifests ([`init`]). Also whether an environment runs a revision ([`wait`]), a test of a
//! Notification ([`send_test`]), and changes that a person requests ([`suspend`]). Notifications of other programs become objects of Relaybook
//! ([`convert`]).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

pub mod audit;
pub mod check;
pub mod convert;
pub mod diagnosis;
pub mod init;
pub mod lint;
pub mod preview;
pub mod send_test;
pub mod suspend;
pub mod wait;
