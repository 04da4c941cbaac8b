//! What is known of Deliveries that are not yet known to be recorded by Pennant. Values only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use crate::outbox::record::RecordId;
use crate::outbox::send_gate::genuine::Sight;

/// What the door knows of this leadership term.
#[derive(Default)]
pub(in crate::outbox) struct Admission {
    /// The term in which everything that was listed has been judged.
    pub(super) turn: Option<u64>,
    /// Uids of what was found to be Pennant's in this term.
    pub(super) proven: HashSet<String>,
    /// Uids of what has a lane though its pipeline is not known, and how it was seen: it is judged again before it is sent.
    pub(super) unproven: HashMap<String, Sight>,
    /// What the dispatcher has still to record, or somebody else has made.
    pub(super) undecided: BTreeMap<RecordId, Undecided>,
    /// What is to be deleted.
    pub(super) foreign: BTreeMap<RecordId, Foreign>,
    pub(super) deleting: HashSet<RecordId>,
    /// By namespace: when something foreign was last reported.
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
