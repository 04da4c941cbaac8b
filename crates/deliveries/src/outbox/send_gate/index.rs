//! The pipeline index: what is known about pipelines and notifications.
//!
//! In: facts, which the dispatcher stores here from its watches. Out: whether a recorded delivery can be sent now, and with what. Pure.
//! The lock is held for a look-up and never across I/O.

use parking_lot::{RwLock, RwLockReadGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::decision::judge;
pub use super::decision::{Gone, SendDecision};
pub use super::facts::{Cursors, PersistedCursor, PipelineFacts, Source};
use super::genuine::{self, History};
use crate::outbox::record::LaneKey;
use relaybook_api::delivery::{GLOBAL, Reason, is_same_notification};
use relaybook_api::{DeliverySpec, Time};
use relaybook_settings::config::snapshot::{Applied, Based, EffectiveClusterWide, Layered, Snapshot};
use relaybook_settings::config::{EffectiveNotification, Retry};
use relaybook_settings::render::Web;

/// The effective notification of a target, and what the target lacks.
pub type OfTarget = (Arc<EffectiveNotification>, Lacks);

/// What a template can need and a target does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Its revision contains no commit.
    pub commit: bool,
    /// Its Git repository is not known.
    pub source: bool,
}

/// What is known about pipelines and notifications.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The leadership term in which everything was last listed.
    term: Option<u64>,
    /// The namespaces whose pipelines are known. `None`: all.
    watched: Option<BTreeSet<String>>,
    pipelines: HashMap<String, Arc<PipelineFacts>>,
    source: Source,
    cursors: HashMap<String, Arc<Cursors>>,
    histories: HashMap<String, Arc<History>>,
    snapshot: Snapshot,
}

type Labels = BTreeMap<String, String>;

static NO_LABELS: Labels = Labels::new();

impl Known {
    /// Returns the effective notification of one subject of a pipeline.
    fn of_subject(&self, pipeline: &str, namespace: &str, name: &str, subject: &str) -> Option<&Arc<EffectiveNotification>> {
        let labels = self.pipelines.get(pipeline).map_or(&NO_LABELS, |facts| &facts.labels);
        self.snapshot.effective((pipeline, namespace, labels), name, subject)
    }

    /// Returns the effective notification for a delivery's subject.
    pub(crate) fn effective(&self, spec: &DeliverySpec) -> Option<&Arc<EffectiveNotification>> {
        let of = &spec.pipeline_ref;
        self.of_subject(&of.uid, &of.namespace, &spec.notification, &spec.log_subject().to_string())
    }

    /// Returns the effective notification of a lane, if there is one. Its settings decide how long the deliveries of the lane are kept.
    pub(crate) fn of_lane(&self, lane: &LaneKey) -> Option<&Arc<EffectiveNotification>> {
        self.of_subject(&lane.pipeline, &lane.namespace, &lane.notification, &lane.lane)
    }

    /// The leadership term in which everything was last listed.
    pub(crate) fn term(&self) -> Option<u64> {
        self.term
    }

    /// Returns whether the pipelines of this namespace are known. Pipelines of other namespaces can have deliveries in the namespace of the
    /// global configuration. Those deliveries are left unchanged.
    pub(crate) fn is_watched(&self, namespace: &str) -> bool {
        self.watched.as_ref().is_none_or(|watched| watched.contains(namespace))
    }

    /// Returns the facts of a pipeline.
    pub(crate) fn pipeline(&self, uid: &str) -> Option<&Arc<PipelineFacts>> {
        self.pipelines.get(uid)
    }

    /// Returns the uids of the pipelines of a namespace to which this notification applies.
    pub(crate) fn pipelines_of<'a>(&'a self, namespace: &'a str, notification: &'a str) -> impl Iterator<Item = &'a str> {
        let applies = move |p: &PipelineFacts| {
            self.snapshot.base(namespace, notification, &p.labels).is_some()
                || p.targets().any(|subject| self.of_subject(&p.uid, namespace, notification, subject).is_some())
        };
        let here = self.pipelines.values().filter(move |p| p.namespace == namespace && applies(p));
        here.map(|p| p.uid.as_str())
    }

    /// Returns the persisted cursors of all pipelines.
    pub(crate) fn cursors(&self) -> &HashMap<String, Arc<Cursors>> {
        &self.cursors
    }

    /// Returns what is known about the global configuration.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Returns a number that changes whenever the meaning of notifications changes.
    pub(crate) fn meanings(&self) -> u64 {
        self.snapshot.version()
    }

    /// Returns when the newest Delivery was recorded that the status of a pipeline covers.
    pub(crate) fn recorded_until(&self, uid: &str) -> Option<Time> {
        self.histories.get(uid).and_then(|history| history.recorded)
    }

    /// Returns the facts that determine the origin of a Delivery.
    pub(crate) fn known_of(&self, spec: &DeliverySpec) -> genuine::Known {
        let uid = &spec.pipeline_ref.uid;
        genuine::Known {
            facts: self.pipelines.get(uid).cloned(),
            history: self.histories.get(uid).cloned(),
            cursors: self.cursors.get(uid).cloned(),
            controller: self.source.config_map.as_ref().map(|map| map.namespace.clone()),
            is_watched: self.is_watched(&spec.pipeline_ref.namespace),
            is_global: self.effective(spec).is_none_or(|effective| effective.uid == GLOBAL),
        }
    }

    /// Whether the cursor of its notification has passed the change of a delivery, as persisted.
    pub(crate) fn has_passed(&self, spec: &DeliverySpec) -> bool {
        let cursors = self.cursors.get(&spec.pipeline_ref.uid).and_then(|cursors| cursors.as_ref().as_ref());
        cursors.and_then(|cursors| cursors.get(&spec.notification)).is_some_and(|taken| taken.is_beyond(spec.serial))
    }

    /// Decides whether this delivery can be sent now.
    pub(crate) fn find(&self, spec: &DeliverySpec) -> SendDecision {
        let (of, subject) = (&spec.pipeline_ref, spec.log_subject().to_string());
        if self.term.is_none() || !self.is_watched(&of.namespace) {
            return SendDecision::NotYet;
        }
        let absent = |what| SendDecision::Gone { what, sure: false };
        let Some(facts) = self.pipelines.get(&of.uid).cloned() else { return absent(Gone::Pipeline) };
        // The global layer is unknown. Without it, the delivery could go to the wrong receiver.
        if let Some(message) = self.source.unknown.clone().filter(|_| spec.notification_uid == GLOBAL) {
            return SendDecision::Wait { reason: Reason::GlobalConfigInvalid, message, until: Some(Retry::default()) };
        }
        let notification = self.of_subject(&of.uid, &of.namespace, &spec.notification, &subject).cloned();
        let Some(notification) = notification else {
            // If the pipeline itself defined the notification, the pipeline proves that the notification is gone.
            return SendDecision::Gone { what: Gone::Notification, sure: spec.notification_uid == of.uid };
        };
        let Some(since) = facts.subjects.get(&subject) else { return absent(Gone::Target) };
        // Until a target was observed, it cannot be distinguished from an earlier target of the same name.
        let Some(since) = since else { return SendDecision::NotYet };
        if spec.serial <= *since {
            return SendDecision::Gone { what: Gone::Target, sure: true };
        }
        if !is_same_notification(&spec.notification_uid, &notification.uid) {
            // Without a base, only the pipeline itself defines the notification. A live read must then confirm that the Notification is
            // gone.
            let sure = self.snapshot.base(&of.namespace, &spec.notification, &facts.labels).is_some();
            return SendDecision::Gone { what: Gone::Notification, sure };
        }
        // The delivery was recorded with the global configuration, which no longer applies to this pipeline. The notification that now has
        // its name does not apply to it, either.
        let was_global = spec.notification_uid == GLOBAL && notification.uid != GLOBAL;
        if was_global && self.source.is_in_force && !notification.selects(&facts.labels) {
            return SendDecision::Gone { what: Gone::Notification, sure: true };
        }
        judge(notification, facts)
    }
}

/// The pipeline index; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PipelineIndex(Arc<RwLock<Known>>);

impl PipelineIndex {
    /// Returns all that is known, for a short time: nobody changes it meanwhile. Callers do not read the index a second time while they hold
    /// this, because that waits for a writer that waits for this. They can lock the delivery index, but not the other way round.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.0.read()
    }

    fn with<T>(&self, f: impl FnOnce(&Known) -> T) -> T {
        f(&self.read())
    }

    fn write<T>(&self, f: impl FnOnce(&mut Known) -> T) -> T {
        f(&mut self.0.write())
    }

    /// Records that everything was listed in this leadership term. From now on, an object that is not in the index counts as absent.
    pub fn complete(&self, term: u64) {
        self.write(|k| k.term = Some(term));
    }

    /// Restricts the known pipelines to these namespaces.
    pub fn put_watched(&self, namespaces: Option<BTreeSet<String>>) {
        self.write(|k| k.watched = namespaces);
    }

    /// Returns whether the pipelines of this namespace are known.
    #[must_use]
    pub fn is_watched(&self, namespace: &str) -> bool {
        self.with(|k| k.is_watched(namespace))
    }

    /// Stores a pipeline by its uid. Returns `true` if its facts have changed.
    pub fn put_pipeline(&self, uid: &str, facts: PipelineFacts) -> bool {
        if self.with(|k| k.pipelines.get(uid).is_some_and(|old| **old == facts)) {
            return false;
        }
        self.write(|k| k.pipelines.insert(uid.to_owned(), Arc::new(facts)));
        true
    }

    /// Stores a pipeline together with the compiled form of its own layers, in one step. Otherwise a target that was removed together with
    /// its layers would for a moment be in the index without its layers. Its deliveries could then go to the wrong receiver.
    pub fn put_pipeline_with_layers(&self, uid: &str, facts: PipelineFacts, layered: Layered) {
        self.write(|k| {
            k.pipelines.insert(uid.to_owned(), Arc::new(facts));
            k.snapshot.put_layers(uid, layered);
        });
    }

    /// Stores the compiled form of a pipeline's layers, if the pipeline itself has not changed.
    pub fn put_layers(&self, uid: &str, layered: Layered) {
        self.write(|k| k.snapshot.put_layers(uid, layered));
    }

    /// Removes a pipeline. Returns `true` if it was there.
    pub fn remove_pipeline(&self, uid: &str) -> bool {
        self.write(|k| {
            k.cursors.remove(uid);
            k.histories.remove(uid);
            k.snapshot.put_layers(uid, Layered::default());
            k.pipelines.remove(uid)
        })
        .is_some()
    }

    /// Stores the cursors of a pipeline, as the API server has reported them. This wakes no component; components read the cursors when
    /// they use them.
    pub fn put_cursors(&self, uid: &str, cursors: Cursors) {
        self.write(|k| k.cursors.insert(uid.to_owned(), Arc::new(cursors)));
    }

    /// Stores what the status of a pipeline contains about the Deliveries that were recorded for it. `None`: the pipeline was not observed
    /// yet. The history is used only to determine the origin of a Delivery.
    pub fn put_history(&self, uid: &str, history: Option<History>) {
        self.write(|k| match history {
            Some(history) => drop(k.histories.insert(uid.to_owned(), Arc::new(history))),
            None => drop(k.histories.remove(uid)),
        });
    }

    /// Returns the facts of a pipeline.
    #[must_use]
    pub fn pipeline(&self, uid: &str) -> Option<Arc<PipelineFacts>> {
        self.with(|k| k.pipelines.get(uid).cloned())
    }

    /// Returns all pipelines of a namespace.
    #[must_use]
    pub fn pipelines_in(&self, namespace: &str) -> Vec<Arc<PipelineFacts>> {
        self.with(|k| k.pipelines.values().filter(|p| p.namespace == namespace).cloned().collect())
    }

    /// Returns the pipelines of other namespaces for which a Notification is a layer, over a notification of the same name.
    #[must_use]
    pub fn pipelines_under(&self, namespace: &str, name: &str, others: &[String]) -> Vec<Arc<PipelineFacts>> {
        self.with(|k| {
            let is_under = |p: &&Arc<PipelineFacts>| {
                p.layer_namespace.as_deref() == Some(namespace)
                    && others.contains(&p.namespace)
                    && k.snapshot.base(&p.namespace, name, &p.labels).is_some_and(|base| base.selects(&p.labels))
            };
            k.pipelines.values().filter(is_under).cloned().collect()
        })
    }

    /// Returns the pipelines for which `keep` is false, by uid, with their facts.
    #[must_use]
    pub fn pipelines_but(&self, keep: impl Fn(&str) -> bool) -> Vec<(String, Arc<PipelineFacts>)> {
        self.with(|k| k.pipelines.iter().filter(|(uid, _)| !keep(uid)).map(|(u, f)| (u.clone(), f.clone())).collect())
    }

    /// Stores a notification.
    pub fn put_notification(&self, namespace: &str, name: &str, notification: impl Into<Based>) {
        let based = notification.into();
        self.write(|k| k.snapshot.put_notification(namespace, name, Some(based)));
    }

    /// Removes a notification. Returns `true` if it was there.
    pub fn remove_notification(&self, namespace: &str, name: &str) -> bool {
        self.write(|k| k.snapshot.put_notification(namespace, name, None))
    }

    /// Returns one notification.
    #[must_use]
    pub fn notification(&self, namespace: &str, name: &str) -> Option<Based> {
        self.with(|k| k.snapshot.notification(namespace, name).cloned())
    }

    /// Returns the effective notification for a pipeline, without the pipeline's own layers.
    #[must_use]
    pub fn base(&self, namespace: &str, name: &str, labels: &Labels) -> Option<Arc<EffectiveNotification>> {
        self.with(|k| k.snapshot.base(namespace, name, labels).cloned())
    }

    /// Stores a cluster-wide notification, or removes it.
    pub fn put_cluster_wide(&self, name: &str, cluster_wide: Option<EffectiveClusterWide>) {
        self.write(|k| k.snapshot.put_cluster_wide(name, cluster_wide));
    }

    /// Stores what is known about the global configuration.
    pub fn put_source(&self, source: Source) {
        self.write(|k| k.source = source);
    }

    /// Returns what is known about the global configuration.
    #[must_use]
    pub fn source(&self) -> Source {
        self.with(|k| k.source.clone())
    }

    /// Returns the forges and the links of the global configuration in force.
    #[must_use]
    pub fn web(&self) -> Arc<Web> {
        self.with(|k| k.source.web.clone())
    }

    /// Returns all notifications that can apply to a pipeline of this namespace, by name.
    #[must_use]
    pub fn notifications_of(&self, pipeline: &str, namespace: &str, labels: &Labels) -> BTreeMap<String, Applied> {
        self.with(|k| k.snapshot.applied((pipeline, namespace, labels)))
    }

    /// Returns one notification, and its effective settings for each target of these pipelines that has it. Each comes with what the
    /// target lacks. All are read in one step, because callers compare them.
    #[must_use]
    pub fn applied(&self, namespace: &str, name: &str, pipelines: &[Arc<PipelineFacts>]) -> Option<(Based, Vec<OfTarget>)> {
        self.with(|k| {
            let each = pipelines.iter().flat_map(|p| p.targets().map(move |subject| (p, subject)));
            let of = |(p, subject): (&Arc<PipelineFacts>, &String)| {
                let effective = k.of_subject(&p.uid, &p.namespace, name, subject)?;
                let lacks = Lacks { commit: p.commitless.contains(subject), source: p.sourceless.contains(subject) };
                Some((effective.clone(), lacks))
            };
            Some((k.snapshot.notification(namespace, name)?.clone(), each.filter_map(of).collect()))
        })
    }

    /// Returns the names of the Notifications of a namespace.
    #[must_use]
    pub fn names_in(&self, namespace: &str) -> Vec<String> {
        self.with(|k| k.snapshot.names_in(namespace).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::outbox::Overridden;
    use crate::outbox::testing::notification;
    use relaybook_api::TransitionType;
    use relaybook_api::delivery::{Subject, SubjectKind};
    use relaybook_api::testing::spec;

    fn pipeline_index(suspend: bool) -> PipelineIndex {
        let pipeline_index = PipelineIndex::default();
        let facts = PipelineFacts {
            namespace: "team-a".into(),
            subjects: HashMap::from([
                ("target/prod/in-cluster/podinfo".to_owned(), Some(5)),
                ("target/new/in-cluster/podinfo".to_owned(), None),
            ]),
            ..PipelineFacts::default()
        };
        pipeline_index.put_pipeline("p1", facts);
        let mut n = notification("n1");
        n.suspend = suspend;
        pipeline_index.put_notification("team-a", "deploys", n);
        pipeline_index.complete(1);
        pipeline_index
    }

    #[test]
    fn the_decision_to_send_depends_on_pipeline_target_and_suspension() {
        assert!(matches!(PipelineIndex::default().read().find(&spec(9)), SendDecision::NotYet));
        let d = pipeline_index(false);
        assert!(matches!(d.read().find(&spec(9)), SendDecision::Send(..)));
        assert!(matches!(d.read().find(&spec(5)), SendDecision::Gone { what: Gone::Target, sure: true }));
        let mut unseen = spec(9);
        unseen.subject.name = "new/in-cluster/podinfo".into();
        assert!(matches!(d.read().find(&unseen), SendDecision::NotYet));
        let mut elsewhere = spec(9);
        elsewhere.subject.name = "dev/in-cluster/podinfo".into();
        assert!(matches!(d.read().find(&elsewhere), SendDecision::Gone { what: Gone::Target, sure: false }));
        let mut other = spec(9);
        other.pipeline_ref.uid = "p2".into();
        assert!(matches!(d.read().find(&other), SendDecision::Gone { what: Gone::Pipeline, sure: false }));
        assert!(matches!(
            pipeline_index(true).read().find(&spec(9)),
            SendDecision::Wait { reason: Reason::Suspended, until: None, .. }
        ));
    }

    #[test]
    fn deliveries_about_environments_clusters_and_pipelines_are_decided_too() {
        let d = pipeline_index(false);
        let subjects = [("environment/prod", Some(5)), ("cluster/fleet.eu", Some(5)), ("pipeline", None)];
        let facts = PipelineFacts {
            namespace: "team-a".into(),
            subjects: subjects.map(|(subject, since)| (subject.to_owned(), since)).into(),
            ..PipelineFacts::default()
        };
        d.put_pipeline("p1", facts);
        let about = |kind, name: &str| {
            let mut spec = spec(9);
            spec.subject = Subject { kind, name: name.to_owned(), ..Subject::default() };
            d.read().find(&spec)
        };
        assert!(matches!(about(SubjectKind::Environment, "prod"), SendDecision::Send(..)));
        assert!(matches!(about(SubjectKind::Cluster, "fleet.eu"), SendDecision::Send(..)));
        assert!(matches!(about(SubjectKind::Pipeline, "podinfo"), SendDecision::NotYet));
        assert!(matches!(about(SubjectKind::Environment, "dev"), SendDecision::Gone { what: Gone::Target, sure: false }));
    }

    #[test]
    fn a_promotion_is_gone_with_its_environment() {
        let d = pipeline_index(false);
        let subjects = [("environment/prod", Some(5)), ("promotion/prod", Some(7)), ("promotion/new", None)];
        let facts = PipelineFacts {
            namespace: "team-a".into(),
            subjects: subjects.map(|(subject, since)| (subject.to_owned(), since)).into(),
            ..PipelineFacts::default()
        };
        d.put_pipeline("p1", facts);
        let about = |name: &str, serial, type_| {
            let subject = Subject { kind: SubjectKind::Environment, name: name.to_owned(), ..Subject::default() };
            d.read().find(&DeliverySpec { subject, type_, ..spec(serial) })
        };
        let requested = TransitionType::PromotionRequested;
        assert!(matches!(about("prod", 9, requested), SendDecision::Send(..)));
        assert!(matches!(about("prod", 6, TransitionType::EnvironmentReady), SendDecision::Send(..)));
        let earlier = about("prod", 6, requested);
        assert!(matches!(earlier, SendDecision::Gone { what: Gone::Target, sure: true }), "of an earlier environment");
        assert!(matches!(about("new", 9, requested), SendDecision::NotYet));
        assert!(matches!(about("dev", 9, requested), SendDecision::Gone { what: Gone::Target, sure: false }));
    }

    #[test]
    fn a_recreated_notification_does_not_send_deliveries_of_its_predecessor() {
        let d = pipeline_index(false);
        d.put_notification("team-a", "deploys", notification("n2"));
        assert!(matches!(d.read().find(&spec(9)), SendDecision::Gone { what: Gone::Notification, sure: true }));
        d.remove_notification("team-a", "deploys");
        assert!(matches!(d.read().find(&spec(9)), SendDecision::Gone { what: Gone::Notification, sure: false }));
    }

    /// Checks look-ups while a target is removed together with the layers that redirect it. They never find the target without the layers.
    #[test]
    fn a_removed_target_is_never_found_without_its_layers() {
        let d = pipeline_index(false);
        let there = d.pipeline("p1").map(|facts| (*facts).clone()).unwrap_or_default();
        let layers = || {
            let elsewhere = Arc::new(EffectiveNotification { home: "elsewhere".into(), ..notification("n1") });
            let subjects = HashMap::from([("target/prod/in-cluster/podinfo".to_owned(), elsewhere)]);
            iter::once(("deploys".to_owned(), Arc::new(Overridden { rest: None, subjects }))).collect::<Layered>()
        };
        d.put_pipeline_with_layers("p1", there.clone(), layers());
        let (stop, found) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let answer = d.read().find(&spec(9));
                    let is_right = match &answer {
                        SendDecision::Send(notification, _) => notification.home == "elsewhere",
                        answer => matches!(answer, SendDecision::Gone { what: Gone::Target, .. }),
                    };
                    if !is_right {
                        return Some(format!("{answer:?}"));
                    }
                    found.fetch_add(1, Ordering::Relaxed);
                }
                None
            });
            while found.load(Ordering::Relaxed) < 10_000 && !reader.is_finished() {
                let without = PipelineFacts { subjects: HashMap::new(), ..there.clone() };
                d.put_pipeline_with_layers("p1", without, Layered::default());
                d.put_pipeline_with_layers("p1", there.clone(), layers());
            }
            stop.store(true, Ordering::Relaxed);
            assert_eq!(reader.join().ok().flatten(), None);
        });
    }

    #[test]
    fn unchanged_facts_of_a_pipeline_are_no_change() {
        let d = PipelineIndex::default();
        assert!(d.put_pipeline("p", PipelineFacts::default()));
        assert!(!d.put_pipeline("p", PipelineFacts::default()));
        assert!(d.remove_pipeline("p"));
    }
}
