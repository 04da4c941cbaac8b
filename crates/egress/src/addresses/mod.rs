//! The egress policy for addresses, and keys for receivers that reveal nothing about them.
//!
//! In: the policy of the command line, and names to resolve. Out: checked addresses. Connections are made only to these.

pub(super) mod origin;
pub(super) mod policy;
pub(super) mod resolver;
pub(super) mod rule;
pub(super) mod server;
