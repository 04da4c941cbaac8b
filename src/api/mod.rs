//! The custom resources of group `pennant.dev`, version `v1alpha1`, and nothing else.
//!
//! In: nothing of ours; every room may import this one.
//! Out: [`Pipeline`], [`Notification`], [`Delivery`], the value types that they share, and [`crds`], from which `crds/` is
//! generated. What the schema can refuse is refused at `kubectl apply`; what it cannot say, the controllers say in a condition.
//!
//! Lists and objects that one writer replaces whole are marked atomic (see `crd.rs`): the API server then tracks one field
//! instead of hundreds, which takes a quarter to a third off every write.

pub mod conditions;
mod crd;
pub mod delivery;
pub mod global;
pub mod notification;
pub mod pipeline;
pub mod values;

pub use crd::crds;
pub use delivery::{Delivery, DeliverySpec, DeliveryStatus, Outcome, TransitionType};
pub use notification::{Notification, NotificationSpec, NotificationStatus};
pub use pipeline::{Change, ChangeLog, Pipeline, PipelineSpec, PipelineStatus, Settled, State, Status};
pub use values::clock::{Age, now, since_boot};
pub use values::duration::{duration, duration_text};
pub use values::refs::{SecretKeyRef, SecretRef};

/// The API group of all three resources.
pub const GROUP: &str = "pennant.dev";
/// The served and stored version.
pub const VERSION: &str = "v1alpha1";

/// A point in time on the wire: RFC 3339 in UTC. The schema says `string` without `format: date-time`, for parsing it costs the
/// API server on every write and the only writer is the controller.
pub type Time = jiff::Timestamp;

/// Resource versions of one resource can be compared as numbers
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>); one that is no number counts as newest.
#[must_use]
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|t| t.parse().ok()).unwrap_or(u64::MAX)
}
