//! The steps from a request to its answer: limits of its source, keys, signature, limits of its pipeline, and what it asks for.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderMap;
use kube::Client;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::act::Actor;
use super::approval::{Approval, environment};
use super::directory::{Directory, Entry};
use super::follow;
use super::limits::{Limits, Source};
use super::route::Route;
use super::{Answer, LONGEST_BODY};
use relaybook_api::{ObjectName, now, since_boot};
use relaybook_egress::{SecretWatches, Secrets, Signed};
use relaybook_runtime::fair::{Limits as Permitted, Permits};
use relaybook_runtime::report::events::Events;
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::Hook;

/// How many verified requests call the API server at once, in total and for each namespace. The calls of one namespace can hang, for example
/// because of an admission webhook.
const ACTING: Permitted = Permitted::new(16, 4).with_budget(Duration::from_secs(30));
/// Maximum time from a right signature to the answer.
const DEADLINE: Duration = Duration::from_secs(20);

/// What the hooks need.
pub struct Given {
    /// The client for the API server.
    pub client: Client,
    /// The watched namespaces; `None`: all.
    pub namespaces: Vec<Option<String>>,
    /// The sender of Events.
    pub events: Events,
    /// The metrics.
    pub metrics: Metrics,
}

/// Answers requests to hooks. Cheap to clone.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    directory: RwLock<Directory>,
    secrets: SecretWatches,
    /// Whether all pipelines and their keys are known.
    complete: AtomicBool,
    limits: Mutex<Limits>,
    /// The pipelines for which a check is planned. Only a right signature adds one.
    planned: Mutex<BTreeSet<ObjectName>>,
    acting: Permits<String>,
    actor: Actor,
    namespaces: Vec<Option<String>>,
}

impl Service {
    /// Creates a service that knows no pipeline yet. Until [`Service::follow`] has read all of them, it answers that it is unavailable.
    #[must_use]
    pub fn new(given: Given) -> Self {
        let Given { client, namespaces, events, metrics } = given;
        // Every replica answers, so the watches begin at once and belong to one term that never ends.
        let (_, terms) = watch::channel(Some(1));
        let secrets = SecretWatches::new(client.clone(), terms, metrics.clone());
        Self(Arc::new(Inner {
            directory: RwLock::default(),
            secrets,
            complete: AtomicBool::new(false),
            limits: Mutex::default(),
            planned: Mutex::default(),
            acting: Permits::new(ACTING),
            actor: Actor { client, events, metrics },
            namespaces,
        }))
    }

    /// Follows pipelines and Secrets until `stop`. `ready` is called once, as soon as all of them are known.
    pub async fn follow(self, ready: impl FnOnce() + Send, stop: CancellationToken) {
        let Inner { actor, namespaces, .. } = &*self.0;
        tokio::select! {
            () = follow::run(&self, &actor.client, namespaces, &actor.metrics, ready, &stop) => {}
            () = self.0.secrets.broken() => {}
        }
        self.0.secrets.shutdown().await;
    }

    /// Answers a complete request. `verified` is called if its signature is right.
    pub async fn answer(
        &self,
        source: Source,
        route: &Route,
        headers: &HeaderMap,
        body: &[u8],
        verified: impl FnOnce(),
    ) -> Answer {
        if body.len() > LONGEST_BODY {
            return Answer::TooLarge;
        }
        if !self.0.complete.load(Ordering::Acquire) {
            return Answer::Unavailable("the keys have not been read yet; send the request again");
        }
        if let Err(wait) = self.0.limits.lock().unverified(source, since_boot()) {
            return Answer::TooMany(wait);
        }
        let Some((entry, signer)) = self.verify(route, headers, body) else { return Answer::Unauthorized };
        verified();
        if let Err(wait) = self.0.limits.lock().verified(source, route.hook, &entry.uid, since_boot()) {
            return Answer::TooMany(wait);
        }
        let act = self.in_turn(&route.pipeline, async {
            match route.hook {
                Hook::Approval => self.approve(&route.pipeline, &entry, &signer, body).await,
                Hook::Look => self.look(&route.pipeline, &entry).await,
            }
        });
        act.await.unwrap_or(Answer::Unavailable("the API server did not answer in time"))
    }

    /// Calls the API server about a pipeline, as soon as few others do. `None`: it did not answer in time.
    async fn in_turn<R>(&self, pipeline: &ObjectName, act: impl Future<Output = R>) -> Option<R> {
        let act = async {
            let _turn = self.0.acting.acquire(pipeline.namespace.clone(), ()).await;
            act.await
        };
        timeout(DEADLINE, act).await.ok()
    }

    /// Counts an answer.
    pub fn count(&self, hook: Hook, answer: &Answer) {
        if let Some(result) = answer.result() {
            self.0.actor.metrics.hook(hook, result);
        }
    }

    /// Returns the pipeline and the Secret with one of whose keys the request is signed. The work depends on the request only: not on the
    /// pipeline that it names, and not on others.
    fn verify(&self, route: &Route, headers: &HeaderMap, body: &[u8]) -> Option<(Arc<Entry>, ObjectName)> {
        let (purpose, environment) = match route.hook {
            Hook::Approval => (Signed::Approval, environment(body)),
            Hook::Look => (Signed::Look, None),
        };
        let entry = self.directory().get(&route.pipeline);
        let signer = entry.as_ref().and_then(|entry| entry.signer(route.hook, environment.as_deref())).cloned();
        let is_signed = self.0.secrets.secrets().is_signed(purpose, signer.as_ref(), headers, body);
        entry.zip(signer).filter(|_| is_signed)
    }

    /// Requests a check. If the last one was a moment ago, another one is planned: a forge does not repeat a hook that was accepted.
    async fn look(&self, pipeline: &ObjectName, entry: &Entry) -> Answer {
        let (answer, later) = self.0.actor.look(pipeline, entry).await;
        if let Some(later) = later
            && self.planned().insert(pipeline.clone())
        {
            let (service, pipeline) = (self.clone(), pipeline.clone());
            let wait = Duration::try_from(later.duration_since(now())).unwrap_or_default();
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                service.planned().remove(&pipeline);
                let entry = service.directory().get(&pipeline);
                if let Some(entry) = entry {
                    // If it is not due, a check was requested in the meantime.
                    drop(service.in_turn(&pipeline, service.0.actor.look(&pipeline, &entry)).await);
                }
            });
        }
        answer
    }

    async fn approve(&self, pipeline: &ObjectName, entry: &Entry, signer: &ObjectName, body: &[u8]) -> Answer {
        let approval = match Approval::read(body, pipeline, now()) {
            Ok(approval) => approval,
            Err(why) => return Answer::Invalid(why.to_string()),
        };
        // The key of one environment does not approve for another one.
        if entry.approvals.get(&approval.environment) != Some(signer) {
            return Answer::Unauthorized;
        }
        self.0.actor.approve(pipeline, entry, &approval).await
    }

    /// Returns the pipelines.
    pub(super) fn directory(&self) -> RwLockReadGuard<'_, Directory> {
        self.0.directory.read()
    }

    /// Returns the pipelines, to change them.
    pub(super) fn directory_mut(&self) -> RwLockWriteGuard<'_, Directory> {
        self.0.directory.write()
    }

    /// Returns what is known of the Secrets, by which requests are verified.
    #[must_use]
    pub fn known_secrets(&self) -> Secrets {
        self.0.secrets.secrets()
    }

    /// Returns the pipelines whose hooks have this Secret.
    #[must_use]
    pub fn using(&self, secret: &ObjectName) -> Vec<ObjectName> {
        self.directory().using(secret)
    }

    /// Returns the watches of the Secrets.
    pub(super) fn secrets(&self) -> &SecretWatches {
        &self.0.secrets
    }

    /// Called when all pipelines and their keys are known.
    pub(super) fn complete(&self) {
        self.0.complete.store(true, Ordering::Release);
    }

    fn planned(&self) -> MutexGuard<'_, BTreeSet<ObjectName>> {
        self.0.planned.lock()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::hooks::seen::SeenPipeline;
    use relaybook_egress::keys_tried;
    use relaybook_runtime::report::events::events;

    /// Returns a pipeline that has a Secret of its own for each environment but the first one.
    fn pipeline(name: &str, environments: usize) -> SeenPipeline {
        let environment = |at: usize| {
            let strategy = json!({"notification": {}, "secretRef": {"name": format!("approvals-{at}")}});
            json!({"name": format!("e{at}"), "promotion": {"strategy": strategy}})
        };
        let environments: Vec<Value> = (0..environments).map(environment).collect();
        let spec = json!({"environments": environments, "hooks": {"secretRef": {"name": "looks"}}});
        serde_json::from_value(json!({"metadata": {"namespace": "team-a", "name": name, "uid": name}, "spec": spec}))
            .unwrap()
    }

    #[tokio::test]
    async fn the_work_for_an_unsigned_request_depends_on_no_pipeline() {
        let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, tower::BoxError>>()
        });
        let client = Client::new(never, "default");
        let metrics = Metrics::new();
        let (events, _) = events(client.clone(), metrics.clone(), CancellationToken::new());
        let service = Service::new(Given { client, namespaces: vec![None], events, metrics });
        let work = |path: &str, body: &Value| {
            let route = crate::hooks::route(path).unwrap();
            let before = keys_tried();
            assert!(service.verify(&route, &HeaderMap::new(), body.to_string().as_bytes()).is_none());
            keys_tried() - before
        };
        let all = || {
            let bodies = [json!({"environment": "e1"}), json!({"environment": "qa"}), json!([])];
            let of = |name: &str| bodies.each_ref().map(|body| work(&format!("/approval/team-a/{name}"), body));
            let looks = ["large", "small", "gone"].map(|name| work(&format!("/hooks/team-a/{name}"), &json!({})));
            (["large", "small", "gone"].map(of), looks)
        };
        let expected = ([[4; 3]; 3], [4; 3]);
        assert_eq!(all(), expected, "no pipeline");
        service.directory_mut().put(&pipeline("large", 32));
        service.directory_mut().put(&pipeline("small", 2));
        assert_eq!(service.directory().secrets().len(), 32);
        assert_eq!(all(), expected);
        service.directory_mut().remove(&ObjectName::of(&pipeline("large", 32)));
        assert_eq!(all(), expected, "it is deleted");
    }
}
