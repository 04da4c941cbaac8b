//! The audit page: what pipelines do, what was sent and what the receivers answered, as HTML for people.
//!
//! In: requests of browsers ([`Asked`]), and the API server, with exactly the permissions of the person who asks ([`Entry`]).
//! Out: [`Answer`]s: HTML that works without a script, and a stream of events that says when it has changed. The page has no permissions
//! of its own, and stores nothing. It only reads, unless [`Settings::actions`] allows people to send deliveries again, and to approve promotions.
//!
//! `access` decides who asks, `query` what for. `read` makes values of it, also from the rows that `follow` keeps, and `screens` makes HTML of
//! the values. `service` joins them.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

mod access;
mod answer;
mod events;
mod follow;
mod forms;
mod query;
mod read;
mod screens;
mod service;
mod trouble;

pub use access::caller::{Entry, Own, Tokens};
pub use access::seal::{Seal, SealError};
pub use answer::{Answer, Asked, Content};
pub use screens::parts::banners;
pub use service::Page;

use relaybook_api::ObjectName;
use relaybook_api::values::permalink::PageUrl;
use relaybook_tools::preview::Egress;

/// The settings of a page.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the local cluster in the names of targets.
    pub cluster_name: String,
    /// What the header names: the cluster, and for a page on a machine also the context and the host of the API server.
    pub place: String,
    /// The ConfigMap of the global configuration, in the namespace of the controllers.
    pub config_map: ObjectName,
    /// Whether the controllers allow `http` to any host.
    pub allow_http: bool,
    /// The addresses that the controllers do not send to, if they are known.
    pub egress: Option<Egress>,
    /// Whether people can send deliveries again and tests, and approve promotions.
    pub actions: bool,
    /// The URL under which users reach the page.
    pub url: Option<PageUrl>,
    /// The flags of the commands for the same cluster and user, such as `--context prod`. Empty: none are needed.
    pub flags: String,
}
