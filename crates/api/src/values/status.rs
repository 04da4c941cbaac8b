//! The kstatus of an application object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// kstatus of an application object
/// (<https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Status {
    /// The object has reached its desired state.
    Current,
    /// The object has not reached its desired state yet.
    InProgress,
    /// The object tried to reach its desired state and failed.
    Failed,
    /// The object does not exist.
    NotFound,
    /// The object is being deleted.
    Terminating,
    /// The object could not be observed.
    #[default]
    Unknown,
}

impl Status {
    /// How bad the status is. The worst is 0.
    #[must_use]
    pub const fn badness(self) -> u8 {
        match self {
            Self::Failed => 0,
            Self::Unknown => 1,
            Self::NotFound => 2,
            Self::Terminating => 3,
            Self::InProgress => 4,
            Self::Current => 5,
        }
    }
}
