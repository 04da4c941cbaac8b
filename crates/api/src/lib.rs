//! The custom resources of group `relaybook.dev`, version `v1alpha1`, and nothing else.
//!
//! In: nothing from other modules; every module can import this one.
//! Out: [`Pipeline`], [`PipelineSet`], [`Notification`], [`Delivery`], [`Promotion`], the value types that they share, and [`crds`], from which `crds/` is
//! generated. The API server enforces the schema at `kubectl apply`. The controllers report all other problems in a condition.
//!
//! Lists and objects that one writer replaces as a whole are marked atomic (see `crd.rs`). The API server then tracks one field
//! instead of hundreds, which makes every write a quarter to a third cheaper.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

/// The API group as a literal, for `concat!`. The product has this text nowhere else, except in the attributes of the resources, which need a
/// literal of their own. `crd.rs` compares them.
#[macro_export]
macro_rules! group {
    () => {
        "relaybook.dev"
    };
}

/// Defines an enum. The text of each value is its name, as in the API.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$about:meta])* $value:ident,)+ }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$about])* $value,)+
        }

        impl $name {
            /// All values, in the order of the documentation.
            pub const ALL: [Self; [$(stringify!($value)),+].len()] = [$(Self::$value),+];

            /// Returns the text in the API.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => stringify!($value),)+
                }
            }

            /// Returns the value with this text.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == text)
            }
        }
    };
}

pub mod conditions;
mod crd;
pub mod delivery;
pub mod global;
pub mod notification;
pub mod pipeline;
pub mod pipeline_set;
pub mod promotion;
#[cfg(feature = "testing")]
pub mod testing;
pub mod values;

pub use crd::crds;
pub use delivery::{Delivery, DeliverySpec, DeliveryStatus, Outcome, TransitionType};
pub use notification::{Notification, NotificationSpec, NotificationStatus};
pub use pipeline::{Change, ChangeLog, Pipeline, PipelineSpec, PipelineStatus, Settled, State, Status};
pub use pipeline_set::{PipelineSet, PipelineSetSpec, PipelineSetStatus};
pub use promotion::{Promotion, PromotionSpec, PromotionStatus};
pub use values::backoff::Backoff;
pub use values::clock::{Age, now, since_boot};
pub use values::duration::{duration, duration_text};
pub use values::refs::{ObjectName, SecretKeyRef, SecretRef};
pub use values::subject::LogSubject;

/// The API group of all resources.
pub const GROUP: &str = group!();
/// The annotation of ConfigMaps that says what they are for.
pub const ABOUT: &str = concat!(group!(), "/about");
/// The served and stored version.
pub const VERSION: &str = "v1alpha1";

/// A point in time in the API: RFC 3339 in UTC. The schema has `string` without `format: date-time`. The API server would parse
/// that format on every write, and the controller is the only writer.
pub type Time = jiff::Timestamp;

/// Returns a resource version as a number. Resource versions of one resource can be compared as numbers
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>). An absent version, or a text that is not a
/// number, counts as the newest version.
#[must_use]
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|t| t.parse().ok()).unwrap_or(u64::MAX)
}
