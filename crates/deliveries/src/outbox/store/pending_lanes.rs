//! Which lanes have pending deliveries. Values only.
//!
//! In: each record as it is created, settled or deleted. Out: whether a lane has pending deliveries, and the pipelines that wait until a
//! lane has none.

use std::collections::HashMap;
use std::sync::Arc;

use crate::outbox::record::LaneKey;
use relaybook_api::ObjectName;
use relaybook_api::delivery::PipelineRef;

/// The lanes with pending deliveries.
#[derive(Debug, Default)]
pub struct PendingLanes {
    /// The number of pending deliveries.
    counts: HashMap<Arc<LaneKey>, usize>,
    /// Deliveries that were just created, and that the index does not have yet.
    created: HashMap<ObjectName, Arc<LaneKey>>,
    /// By uid: the pipelines that wait.
    waiting: HashMap<String, PipelineRef>,
}

impl PendingLanes {
    /// Counts a pending delivery that was created. The index adds it later.
    pub fn created(&mut self, id: &ObjectName, lane: LaneKey) {
        let lane = Arc::new(lane);
        if self.created.insert(id.clone(), lane.clone()).is_none() {
            self.added(&lane);
        }
    }

    /// Counts a delivery less that was created, because the index has it now, or because it is gone. Returns its lane.
    pub fn accepted(&mut self, id: &ObjectName) -> Option<Arc<LaneKey>> {
        let lane = self.created.remove(id)?;
        self.removed(&lane);
        Some(lane)
    }

    /// Counts a pending delivery of the index.
    pub fn added(&mut self, lane: &Arc<LaneKey>) {
        *self.counts.entry(lane.clone()).or_default() += 1;
    }

    /// Counts a pending delivery of the index less.
    pub fn removed(&mut self, lane: &Arc<LaneKey>) {
        let Some(count) = self.counts.get_mut(lane) else { return };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(lane);
        }
    }

    /// Returns the subjects of a pipeline that have pending deliveries of these notifications. If there are any, the pipeline waits.
    pub fn pending<'a>(
        &mut self,
        of: &PipelineRef,
        subjects: impl IntoIterator<Item = &'a str>,
        notifications: &[&str],
    ) -> Vec<String> {
        let lane = |lane: &str, notification: &str| LaneKey {
            namespace: of.namespace.clone(),
            pipeline: of.uid.clone(),
            notification: notification.to_owned(),
            lane: lane.to_owned(),
        };
        let is_pending = |subject: &&str| {
            notifications.iter().any(|notification| {
                let own = lane(subject, notification);
                // If the whole pipeline has one lane, its deliveries can be about any subject.
                let whole = own.of_pipeline();
                [own, whole].iter().any(|lane| self.counts.contains_key(lane))
            })
        };
        let pending: Vec<String> = subjects.into_iter().filter(is_pending).map(str::to_owned).collect();
        if pending.is_empty() {
            self.waiting.remove(&of.uid);
        } else {
            self.waiting.insert(of.uid.clone(), of.clone());
        }
        pending
    }

    /// Returns the pipeline of this lane if it waits and the lane has no pending deliveries.
    pub fn woken(&self, lane: &LaneKey) -> Option<PipelineRef> {
        self.waiting.get(&lane.pipeline).filter(|_| !self.counts.contains_key(lane)).cloned()
    }

    /// Removes the pipelines that are gone.
    pub fn tidy(&mut self, is_there: impl Fn(&str) -> bool) {
        self.waiting.retain(|uid, _| is_there(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::testing::record;

    #[test]
    fn a_pipeline_waits_until_its_lanes_have_no_pending_deliveries() {
        let mut lanes = PendingLanes::default();
        let record = record(9);
        let (of, lane) = (&record.spec.pipeline_ref, Arc::new(record.home()));
        let subject = record.spec.lane.as_str();
        let pending = |lanes: &mut PendingLanes| lanes.pending(of, [subject, "target/other"], &["chat", "deploys"]);
        assert!(pending(&mut lanes).is_empty());
        lanes.created(&record.id, record.home());
        assert_eq!(pending(&mut lanes), [subject], "it is not in the index yet");
        lanes.added(&lane);
        lanes.added(&lane);
        assert_eq!((lanes.accepted(&record.id), lanes.accepted(&record.id)), (Some(lane.clone()), None));
        lanes.removed(&lane);
        assert_eq!((pending(&mut lanes), lanes.woken(&lane)), (vec![subject.to_owned()], None), "one more is pending");
        lanes.removed(&lane);
        assert_eq!(lanes.woken(&lane).as_ref(), Some(of));
        assert_eq!((pending(&mut lanes), lanes.woken(&lane)), (vec![], None), "it waits no more");
    }

    #[test]
    fn pending_deliveries_in_the_lane_of_a_pipeline_count_for_each_subject() {
        let mut lanes = PendingLanes::default();
        let record = record(9);
        lanes.added(&Arc::new(record.home().of_pipeline()));
        let of = &record.spec.pipeline_ref;
        assert_eq!(lanes.pending(of, ["target/any"], &["deploys"]), ["target/any"]);
        assert!(lanes.pending(of, ["target/any"], &["other"]).is_empty());
        let other = PipelineRef { uid: "p2".into(), ..of.clone() };
        assert!(lanes.pending(&other, ["target/any"], &["deploys"]).is_empty());
    }
}
