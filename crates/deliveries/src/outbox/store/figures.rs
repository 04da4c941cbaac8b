//! The figures of one notification: counts, times and blocked lanes. Plain data.

use std::collections::{BTreeMap, BTreeSet};

use crate::outbox::lane::parked::Parked;
use crate::outbox::record::LaneKey;
use relaybook_api::Time;

/// What a delivery is about, within its pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic {
    /// The subject, as in the change log.
    pub subject: String,
    /// Name of the notification.
    pub notification: String,
}

/// Why a lane makes no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Machine-readable.
    pub reason: String,
    /// Human-readable.
    pub message: String,
}

/// The figures of one notification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Pending deliveries.
    pub pending: i64,
    /// Delivered deliveries that are kept.
    pub delivered: i64,
    /// Parked deliveries that are kept.
    pub parked: i64,
    /// The time of the last 2xx response.
    pub last_sent: Option<Time>,
    /// The time of the last attempt.
    pub last_attempt: Option<Time>,
    /// The error of the last attempt, if it failed.
    pub last_error: Option<String>,
    /// The deliveries that were parked since one was last Delivered.
    pub given_up: Parked,
    /// Lanes that make no progress, in order.
    pub troubles: BTreeMap<LaneKey, Trouble>,
    /// Lanes that have been waiting since the start of this leadership term for an unknown cause.
    pub untried: BTreeSet<LaneKey>,
}

impl Figures {
    /// Whether nothing must be kept. The next delivery sets the remaining fields again.
    pub(super) fn is_idle(&self) -> bool {
        let counts = [self.pending, self.delivered, self.parked];
        counts == [0; 3] && self.given_up.is_empty() && self.troubles.is_empty() && self.untried.is_empty()
    }
}
