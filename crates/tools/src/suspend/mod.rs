//! What `relaybook suspend` and `relaybook resume` change, who sets it back, and what they say. Pure.
//!
//! In: a Notification or a Pipeline as the API server returns it, the layers of a notification, what waits, and the time. Out: the patch to
//! write ([`of_notification`], [`promotions`]), the [`Owner`] that sets the object back, and sentences for a person ([`words`]).

mod change;
mod layered;
mod owner;
pub mod words;

pub use change::{Promotions, SuspendError, Verb, is_suspended, of_notification, promotions};
pub use layered::{below, defines, has_url, layers};
pub use owner::{Owner, owner};
