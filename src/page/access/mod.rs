//! Who asks: whether a request can come from a page of this server, whose it is, and the cookie with its token.

pub(super) mod caller;
pub(super) mod origin;
pub(super) mod seal;
