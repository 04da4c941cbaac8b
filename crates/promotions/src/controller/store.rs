//! The calls of the API server. It is the only file that writes Promotions.
//!
//! In: specs to create, statuses to write, promotions to delete. Out: the objects that are stored. Each write needs the tenure of the
//! reconcile, and has a deadline. A status write and a deletion test the version of the object. What is written and not in the change log is
//! reported as an Event.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::attempts::ATTEMPT;
use super::deliveries::REQUESTS;
use super::index::{Index, Key};
use super::reconcile::Calls;
use crate::attempt::Clock;
use crate::{Context, Error, is_refusal};
use relaybook_api::GROUP;
use relaybook_api::promotion::Phase;
use relaybook_api::{Delivery, Pipeline, Promotion, PromotionSpec, PromotionStatus, Time, now};
use relaybook_core::promotion::names::{labels, name};
use relaybook_core::promotion::progress::{Progress, Task};
use relaybook_core::promotion::reason::PUSHED;
use relaybook_core::promotion::state::recorded;
use relaybook_core::promotion::text::{bounded, shown};
use relaybook_runtime::call::{CallError, DEADLINE, call};
use relaybook_runtime::guarded::{Guarded, Outcome};
use relaybook_runtime::report::events::ChangeEvent;
use relaybook_runtime::tenure::{Tenure, write};
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::{ApiWrite, WriteResult};

/// The Lease must last for this time when a live read starts: for the read, a read of the Promotion, and the write.
const READS_AND_WRITE: Duration = Duration::from_secs(30);

/// The calls of one reconcile.
pub(super) struct Store<'a> {
    context: &'a Context,
    key: &'a Key,
    tenure: &'a Tenure,
    /// Number of lists before the reconcile.
    lists: u64,
}

impl<'a> Store<'a> {
    /// Returns the calls of a reconcile that starts after this number of lists.
    pub(super) fn new(context: &'a Context, key: &'a Key, tenure: &'a Tenure, lists: u64) -> Self {
        Self { context, key, tenure, lists }
    }

    fn promotions(&self) -> Api<Promotion> {
        Api::namespaced(self.context.client.clone(), &self.key.namespace)
    }

    fn learn(&self, learn: impl FnOnce(&mut Index)) {
        learn(&mut self.context.index());
    }

    fn count(&self, result: WriteResult) {
        self.context.metrics.api_write(ApiWrite::Promotion, result);
    }

    /// Counts a failed write, and reports it to the users of the pipeline if the API server refused it.
    fn failed(&self, promotion: &PromotionSpec, error: CallError) -> Error {
        if matches!(error, CallError::NotHeld) {
            return Error::NotLeader;
        }
        self.count(WriteResult::Error);
        if is_refusal(&error) {
            let environment = shown(&promotion.environment);
            let note = bounded(&format!("cannot write a Promotion to {environment}: {}", chain(&error)));
            self.context.events.warn(self.regarding(promotion), "PromotionNotWritten", "Promote", &note);
        }
        error.into()
    }

    fn regarding(&self, promotion: &PromotionSpec) -> ObjectReference {
        ObjectReference {
            api_version: Some(Pipeline::api_version(&()).into_owned()),
            kind: Some(Pipeline::kind(&()).into_owned()),
            namespace: Some(self.key.namespace.clone()),
            name: Some(promotion.pipeline_ref.name.clone()),
            uid: Some(self.key.uid.clone()),
            ..ObjectReference::default()
        }
    }

    /// Notes the attempt that a status records. Nothing is kept for a promotion that has ended.
    fn note_attempt(&self, promotion: &Promotion, status: &PromotionStatus, before: Option<&PromotionStatus>) {
        let uid = promotion.metadata.uid.as_deref().unwrap_or_default();
        if let Some(attempt) = recorded(before, status) {
            self.context.attempts.record(uid, attempt);
        } else if status.phase.is_some_and(Phase::is_ended) {
            self.context.attempts.forget(uid);
        }
    }

    /// Reports a status that is no transition. The pipeline controller reports the transitions, from the change log.
    fn report(&self, promotion: &Promotion, status: &PromotionStatus, before: Option<&PromotionStatus>) {
        if before.and_then(|before| before.phase) == status.phase {
            return;
        }
        let (reason, warning) = match status.phase {
            Some(Phase::Withdrawn) if status.step == 0 => ("PromotionRejected", true),
            Some(Phase::Withdrawn) => ("PromotionWithdrawn", false),
            // The pipeline controller reports a commit that was pushed as a transition.
            Some(Phase::Merged) if status.reason != PUSHED => ("PromotionMerged", false),
            _ => return,
        };
        let (name, revision) = (shown(&promotion.name_any()), shown(&promotion.spec.revision));
        let note = format!("{name} of {revision}: {}: {}", status.reason, status.message);
        let event = ChangeEvent { serial: now().as_microsecond(), warning, reason: reason.into(), note };
        self.context.events.report_change(self.regarding(&promotion.spec), event);
    }
}

impl Calls for Store<'_> {
    fn now(&self) -> Time {
        now()
    }

    async fn pipeline(&self, name: &str) -> Result<Option<Pipeline>, Error> {
        // Waits here and not before the write: what was read must not become old during the wait.
        if !self.tenure.wait(READS_AND_WRITE).await {
            return Err(Error::NotLeader);
        }
        let api = Api::<Pipeline>::namespaced(self.context.client.clone(), &self.key.namespace);
        let found = call(api.get_opt(name)).await?;
        if let Some(found) = &found {
            self.learn(|index| index.learn_pipeline(self.lists, found));
        }
        Ok(found)
    }

    async fn promotion(&self, name: &str) -> Result<Option<Promotion>, Error> {
        let found = call(self.promotions().get_opt(name)).await?;
        if let Some(found) = &found {
            self.learn(|index| index.learn_promotion(self.lists, found));
        }
        Ok(found)
    }

    async fn create(&self, spec: &PromotionSpec) -> Result<Option<Promotion>, Error> {
        let name = name(spec);
        let metadata = ObjectMeta { name: Some(name.clone()), labels: Some(labels(spec)), ..ObjectMeta::default() };
        let object = Promotion { metadata, spec: spec.clone(), status: None };
        match write(self.tenure.into(), self.promotions().create(&PostParams::default(), &object)).await {
            Ok(stored) => {
                self.count(WriteResult::Ok);
                self.learn(|index| index.learn_promotion(self.lists, &stored));
                Ok(Some(stored))
            }
            // Another replica, a person, or this replica has created it; then the answer was lost.
            Err(CallError::Api(error)) if is_taken(&error) => {
                self.count(WriteResult::Conflict);
                self.promotion(&name).await
            }
            Err(error) => Err(self.failed(spec, error)),
        }
    }

    async fn write(&self, base: &Promotion, status: &PromotionStatus) -> Result<Option<Promotion>, Error> {
        let version = json!(base.metadata.resource_version);
        let patch = Guarded::of(base.metadata.uid.as_deref()).test(["metadata", "resourceVersion"], version);
        let patch = patch.put(["status"], status).map_err(CallError::from)?;
        match patch.write_status(self.tenure.into(), &self.promotions(), &base.name_any()).await {
            Ok(Outcome::Written(stored)) => {
                self.count(WriteResult::Ok);
                self.learn(|index| index.learn_promotion(self.lists, &stored));
                self.report(&stored, status, base.status.as_ref());
                self.note_attempt(&stored, status, base.status.as_ref());
                Ok(Some(stored))
            }
            Ok(Outcome::Stale | Outcome::Gone) => {
                self.count(WriteResult::Conflict);
                Ok(None)
            }
            Err(error) => Err(self.failed(&base.spec, error)),
        }
    }

    fn progress(&self, promotion: &Promotion) -> Progress {
        let sent = self.context.index().deliveries.sent(promotion.metadata.uid.as_deref().unwrap_or_default());
        Progress { sent, ..self.context.attempts.progress(promotion) }
    }

    async fn read_sent(&self, promotion: &Promotion) -> Result<(), Error> {
        let home = &self.context.options.home;
        let namespaces = BTreeSet::from([&self.key.namespace, home]);
        let labels = format!("{REQUESTS},{GROUP}/pipeline={}", promotion.spec.pipeline_ref.name);
        for namespace in namespaces {
            let api = Api::<Delivery>::namespaced(self.context.client.clone(), namespace);
            let listed = call(api.list(&ListParams::default().labels(&labels))).await?;
            self.learn(|index| listed.items.iter().for_each(|delivery| index.deliveries.learn(delivery, home)));
        }
        Ok(())
    }

    fn start(&self, promotion: &Promotion, task: Task) -> Result<(), Error> {
        if !self.tenure.allows(DEADLINE) {
            return Err(Error::NotLeader);
        }
        let status = promotion.status.as_ref();
        let number = match task {
            Task::Carry => status.map_or(0, |status| status.attempts),
            Task::Close => {
                status.and_then(|status| status.withdrawing.as_ref()).map_or(0, |withdrawing| withdrawing.attempts)
            }
            Task::Look | Task::Last => 0,
        };
        // The bucket is not handed over before the attempt has ended.
        let clock = Clock::start(&self.context.lease, &self.key.uid, ATTEMPT).ok_or(Error::NotLeader)?;
        self.context.attempts.start(self.key.clone(), promotion, task, number, clock);
        Ok(())
    }

    async fn delete(&self, base: &Promotion) -> Result<(), Error> {
        let version = base.metadata.resource_version.clone();
        let preconditions = Some(Preconditions { resource_version: version, uid: base.metadata.uid.clone() });
        let params = DeleteParams { preconditions, ..DeleteParams::background() };
        match write(self.tenure.into(), self.promotions().delete(&base.name_any(), &params)).await {
            Ok(_) => {
                self.count(WriteResult::Ok);
                Ok(())
            }
            Err(CallError::Api(error)) if is_gone(&error) => {
                self.count(WriteResult::Conflict);
                Ok(())
            }
            Err(error) => Err(self.failed(&base.spec, error)),
        }
    }
}

fn is_taken(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// Whether an object is not there any more, or was changed in the meantime.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found() || status.is_conflict())
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn the_errors_of_the_api_server_are_distinguished() {
        let api = |code, reason: &str| kube::Error::Api(Status::failure("", reason).with_code(code).boxed());
        for (error, taken, gone, refused) in [
            (api(409, "AlreadyExists"), true, false, true),
            (api(409, "Conflict"), false, true, true),
            (api(404, "NotFound"), false, true, false),
            (api(403, "Forbidden"), false, false, true),
            (api(429, "TooManyRequests"), false, false, false),
            (api(500, "InternalError"), false, false, false),
            (kube::Error::Service("reset".into()), false, false, false),
        ] {
            assert_eq!((is_taken(&error), is_gone(&error)), (taken, gone), "{error:?}");
            assert_eq!(is_refusal(&error.into()), refused, "whether others can succeed");
        }
    }
}
