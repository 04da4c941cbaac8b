//! State of the check whether Relaybook has recorded a Delivery. Values only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use crate::outbox::lane::redeliver::wanted;
use crate::outbox::record::Record;
use crate::outbox::send_gate::genuine::Sight;
use relaybook_api::{ObjectName, version};

/// What the engine knows about the origin of Deliveries in this leadership term.
#[derive(Default)]
pub(crate) struct Admission {
    /// The leadership term in which the origin of all listed Deliveries was determined.
    pub(crate) term: Option<u64>,
    /// Until when deliveries wait for the dispatcher to compare the one whose message they continue.
    pub(crate) compared: Option<Instant>,
    /// Uids of Deliveries that were proven in this term to be recorded by Relaybook.
    pub(crate) proven: HashSet<String>,
    /// Deliveries that have a lane although their pipeline is not known, by uid, with how they were first read. Their origin is determined
    /// before they are sent.
    pub(crate) unproven: HashMap<String, Sight>,
    /// Deliveries that the dispatcher still has to record, or that another client has created.
    pub(crate) undecided: BTreeMap<ObjectName, Undecided>,
    /// Deliveries that have to be deleted.
    pub(crate) foreign: BTreeMap<ObjectName, Foreign>,
    pub(crate) deleting: HashSet<ObjectName>,
    /// By namespace: when a foreign Delivery was last reported.
    pub(crate) reported: BTreeMap<String, Instant>,
}

pub(crate) struct Undecided {
    pub(crate) uid: String,
    pub(crate) version: u64,
    /// Uid of its pipeline.
    pub(crate) pipeline: String,
    pub(crate) pipeline_name: String,
    pub(crate) notification: String,
    pub(crate) serial: i64,
    /// The delivery, if a user has requested its redelivery. The request is kept until the origin is determined.
    pub(crate) asked: Option<Box<Record>>,
}

impl Undecided {
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            uid: record.uid.clone(),
            version: version(Some(&record.version)),
            pipeline: record.spec.pipeline_ref.uid.clone(),
            pipeline_name: record.spec.pipeline_ref.name.clone(),
            notification: record.spec.notification.clone(),
            serial: record.spec.serial,
            asked: wanted(record).map(|_| Box::new(record.clone())),
        }
    }
}

pub(crate) struct Foreign {
    pub(crate) version: u64,
    /// Uid of its pipeline.
    pub(crate) pipeline: String,
    pub(crate) not_before: Instant,
}
