//! Who asks.
//!
//! In: the headers of a request. Out: whether it can come from a page of this server ([`origin`]), whose it is ([`caller`]), and the cookie with
//! the person's token ([`seal`]).

pub(super) mod caller;
pub(super) mod origin;
pub(super) mod seal;
