//! What is known of Deliveries that are not yet known to be recorded by Pennant. Values only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use crate::outbox::record::RecordId;
use crate::outbox::send_gate::genuine::Sight;

/// What the engine knows about the origin of Deliveries in this leadership term.
#[derive(Default)]
pub(in crate::outbox) struct Admission {
    /// The term in which everything that was listed has been judged.
    pub(super) turn: Option<u64>,
    /// Uids of Deliveries that were found to be recorded by Pennant in this term.
    pub(super) proven: HashSet<String>,
    /// Deliveries that have a lane although their pipeline is not known, by uid, with how they were seen. They are judged again before they
    /// are sent.
    pub(super) unproven: HashMap<String, Sight>,
    /// Deliveries that the dispatcher still has to record, or that somebody else has created.
    pub(super) undecided: BTreeMap<RecordId, Undecided>,
    /// Deliveries that have to be deleted.
    pub(super) foreign: BTreeMap<RecordId, Foreign>,
    pub(super) deleting: HashSet<RecordId>,
    /// By namespace: when a foreign Delivery was last reported.
    pub(super) reported: BTreeMap<String, Instant>,
}

pub(super) struct Undecided {
    pub(super) uid: String,
    pub(super) version: u64,
    pub(super) pipeline: String,
    pub(super) notification: String,
    pub(super) serial: i64,
}

pub(super) struct Foreign {
    pub(super) version: u64,
    pub(super) not_before: Instant,
}
