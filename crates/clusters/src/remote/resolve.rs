//! Resolves a reference to a kubeconfig. In: watches of the object that represents the cluster and of its Secret, each by its name, on the
//! local cluster. Out: each new connection to the cluster, or why there is none. An unchanged result, for example after a resync or an
//! edited label, is not sent.

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Secret;
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};

use super::kubeconfig::{self, Checked};
use super::reference::{self, Place};
use crate::error::ObserveError;
use relaybook_api::values::refs::{ClusterRef, INBOUND};
use relaybook_core::reading::Reason;
use relaybook_runtime::watch;
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::Watch;

/// The result for a reference.
#[derive(Clone, Debug)]
pub(crate) enum Resolution {
    /// Not known yet.
    Pending,
    /// A usable kubeconfig, and the digest of its text to detect changes.
    Ready(Box<Checked>, [u8; 32]),
    /// No usable kubeconfig.
    ObserveError(ObserveError),
}

impl Resolution {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pending, Self::Pending) => true,
            (Self::Ready(_, a), Self::Ready(_, b)) => a == b,
            (Self::ObserveError(a), Self::ObserveError(b)) => a == b,
            _ => false,
        }
    }
}

/// Resolves one reference, again after each change.
pub(crate) struct Resolver {
    client: Client,
    cluster: ClusterRef,
    /// `--allow-insecure-clusters`.
    insecure: bool,
    metrics: Metrics,
    /// The object that represents the cluster; `None` for a Secret.
    object: Option<Seen<DynamicObject>>,
    /// The Secret and key with the kubeconfig, according to the object.
    place: Result<Place, ObserveError>,
    secret: Option<Seen<Secret>>,
    told: Resolution,
}

impl Resolver {
    /// Starts the first watch. `cluster` must have a namespace.
    pub fn new(client: Client, cluster: ClusterRef, insecure: bool, metrics: Metrics) -> Self {
        let namespace = cluster.namespace.clone().unwrap_or_default();
        let kind = reference::kind(&cluster);
        let object = kind.as_ref().ok().and_then(Option::as_ref).map(|kind| {
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, kind);
            Seen::new(watch::one(api, &cluster.name))
        });
        let told = Resolution::Pending;
        let place = kind.map(|_| reference::itself(&cluster));
        let mut new = Self { client, cluster, insecure, metrics, object, place, secret: None, told };
        if new.object.is_none() {
            new.follow(new.place.clone());
        }
        new
    }

    /// Waits until the result changes, and returns the new one.
    pub async fn next(&mut self) -> Resolution {
        loop {
            let now = self.resolve();
            // The previous result remains valid until another one is known.
            if !matches!(now, Resolution::Pending) && !now.is(&self.told) {
                self.told = now.clone();
                return now;
            }
            self.step().await;
        }
    }

    /// Waits for one event or error of the watches. It can be dropped at any time.
    pub async fn step(&mut self) {
        tokio::select! {
            () = next(&mut self.object, &self.metrics) => self.object_seen(),
            () = next(&mut self.secret, &self.metrics) => {}
        }
    }

    fn object_seen(&mut self) {
        let found = match self.object.as_ref().map(|seen| &seen.state) {
            Some(State::Is(object)) => reference::place(&self.cluster, object),
            Some(State::Absent | State::NoKind) => {
                // Its Secret is not needed any more.
                self.secret = None;
                return;
            }
            _ => return,
        };
        if found != self.place || self.secret.is_none() {
            self.follow(found);
        }
    }

    /// Starts a watch of the Secret at this place, and stops the previous watch.
    fn follow(&mut self, place: Result<Place, ObserveError>) {
        self.secret = place.as_ref().ok().map(|place| {
            let namespace = self.cluster.namespace.as_deref().unwrap_or_default();
            Seen::new(watch::one(Api::namespaced(self.client.clone(), namespace), &place.secret))
        });
        self.place = place;
    }

    fn resolve(&self) -> Resolution {
        let name = self.cluster.full_name();
        let kind = self.cluster.kind.as_str();
        let trouble =
            |reason, words: String| Resolution::ObserveError(ObserveError::new(reason, format!("cluster {name}: {words}")));
        match self.object.as_ref().map(|seen| &seen.state) {
            None | Some(State::Is(_)) => {}
            Some(State::Unseen) => return Resolution::Pending,
            Some(State::Absent) => return trouble(Reason::ClusterNotFound, format!("there is no {kind} of that name")),
            Some(State::NoKind) => {
                let words = format!("the local cluster has no kind {kind}; install its CRD");
                return trouble(Reason::ClusterNotFound, words);
            }
            Some(State::Forbidden) => {
                return trouble(Reason::Forbidden, format!("Relaybook is not allowed to list and watch the {kind}"));
            }
        }
        let place = match &self.place {
            Ok(place) => place,
            Err(why) => return Resolution::ObserveError(why.clone()),
        };
        let secret = format!("{}/{}", self.cluster.namespace.as_deref().unwrap_or_default(), place.secret);
        let object = match self.secret.as_ref().map(|seen| &seen.state) {
            None | Some(State::Unseen) => return Resolution::Pending,
            Some(State::Forbidden) => {
                return trouble(Reason::Forbidden, format!("Relaybook is not allowed to list and watch Secret {secret}"));
            }
            Some(State::Absent | State::NoKind) => {
                return trouble(Reason::KubeconfigMissing, format!("there is no Secret {secret}"));
            }
            Some(State::Is(object)) => object,
        };
        if object.type_.as_deref() == Some(INBOUND) {
            let words =
                format!("Secret {secret} has the type {INBOUND}, which is only for the keys of hooks; use another Secret");
            return trouble(Reason::SecretReserved, words);
        }
        let data = object.data.as_ref();
        let found = place.keys.iter().find_map(|key| Some((key, data?.get(*key)?)));
        let Some((key, bytes)) = found else {
            let words = format!("Secret {secret} has no key {}", list(place.keys));
            return trouble(Reason::KubeconfigMissing, words);
        };
        match kubeconfig::read(&bytes.0, self.insecure) {
            Ok(checked) => Resolution::Ready(Box::new(checked), Sha256::digest(&bytes.0).into()),
            Err(why) => trouble(Reason::KubeconfigInvalid, format!("Secret {secret}, key {key}: {why}")),
        }
    }
}

/// Returns keys as a list, such as `a, b or c`.
fn list(keys: &[&str]) -> String {
    match keys {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        _ => keys.concat(),
    }
}

/// Applies the next event of a watch, if there is one.
async fn next<K>(seen: &mut Option<Seen<K>>, metrics: &Metrics) {
    match seen {
        Some(seen) => seen.next(metrics).await,
        None => std::future::pending().await,
    }
}

/// State of the one object of a watch.
enum State<K> {
    Unseen,
    Is(Box<K>),
    Absent,
    NoKind,
    Forbidden,
}

/// The watch of one object.
struct Seen<K> {
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    listed: Option<Box<K>>,
    state: State<K>,
}

impl<K> Seen<K> {
    fn new(events: BoxStream<'static, watcher::Result<Event<K>>>) -> Self {
        Self { events, listed: None, state: State::Unseen }
    }

    async fn next(&mut self, metrics: &Metrics) {
        match self.events.next().await {
            Some(Ok(Event::Init)) => self.listed = None,
            Some(Ok(Event::InitApply(object))) => self.listed = Some(Box::new(object)),
            Some(Ok(Event::InitDone)) => self.state = self.listed.take().map_or(State::Absent, State::Is),
            Some(Ok(Event::Apply(object))) => self.state = State::Is(Box::new(object)),
            Some(Ok(Event::Delete(_))) => self.state = State::Absent,
            Some(Err(error)) => {
                metrics.watch_error(Watch::Clusters);
                self.failed(&error);
            }
            // The watch never ends. If it did, the last state would remain valid.
            None => std::future::pending().await,
        }
    }

    /// Applies an error. A known object remains valid while the local API server is unavailable or refuses calls, because it refuses every
    /// call during its start.
    fn failed(&mut self, error: &watcher::Error) {
        let code = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status))
            | watcher::Error::WatchFailed(kube::Error::Api(status))
            | watcher::Error::WatchError(status) => status.code,
            _ => return,
        };
        match code {
            404 => self.state = State::NoKind,
            401 | 403 if !matches!(self.state, State::Is(_)) => self.state = State::Forbidden,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use k8s_openapi::ByteString;
    use kube::Config;
    use kube::core::Status;
    use serde_json::json;

    use super::*;
    use relaybook_api::values::refs::ClusterKind;

    type Events<K> = Vec<watcher::Result<Event<K>>>;

    const KUBECONFIG: &str = "contexts: [{name: a, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n\
        clusters: [{name: c, cluster: {server: 'https://10.0.0.1'}}]";

    fn listed<K>(object: Option<K>) -> Events<K> {
        let object = object.map(|object| Ok(Event::InitApply(object)));
        [Ok(Event::Init)].into_iter().chain(object).chain([Ok(Event::InitDone)]).collect()
    }

    fn refused<K>(code: u16) -> Events<K> {
        let status = Status::failure("no", "No").with_code(code).boxed();
        vec![Err(watcher::Error::InitialListFailed(kube::Error::Api(status)))]
    }

    fn of<K: Send + 'static>(events: Events<K>) -> Seen<K>
    where
        watcher::Result<Event<K>>: Send,
    {
        Seen::new(stream::iter(events).chain(stream::pending()).boxed())
    }

    fn secret(key: &str, text: &str) -> Secret {
        let data = [(key.to_owned(), ByteString(text.as_bytes().to_vec()))].into();
        Secret { data: Some(data), ..Secret::default() }
    }

    fn object(secret: &str) -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": "eu"}, "spec": {"secretRef": {"name": secret}}})).unwrap()
    }

    /// Returns a resolver whose watches of the local cluster deliver no events.
    fn resolver(kind: ClusterKind) -> Resolver {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let cluster = ClusterRef { api_version: None, kind, name: "eu".into(), namespace: Some("infra".into()) };
        let mut resolver = Resolver::new(client, cluster, false, Metrics::new());
        resolver.object = resolver.object.take().map(|_| of(Vec::new()));
        resolver.secret = resolver.secret.take().map(|_| of(Vec::new()));
        resolver
    }

    /// Returns the reason and the message of the next result.
    async fn next(resolver: &mut Resolver) -> (&'static str, String) {
        match resolver.next().await {
            Resolution::Ready(..) => ("Ready", String::new()),
            Resolution::Pending => ("Pending", String::new()),
            Resolution::ObserveError(trouble) => (trouble.reason.as_str(), trouble.message),
        }
    }

    #[tokio::test]
    async fn each_missing_or_invalid_part_of_a_kubeconfig_secret_is_named() {
        let mut both = secret("value", "sesame");
        both.data.as_mut().unwrap().extend(secret("value.yaml", KUBECONFIG).data.unwrap());
        for (events, reason, words) in [
            (listed(None), "KubeconfigMissing", "there is no Secret infra/eu"),
            (refused(403), "Forbidden", "not allowed to list and watch Secret infra/eu"),
            (
                listed(Some(secret("else", ""))),
                "KubeconfigMissing",
                "Secret infra/eu has no key kubeconfig, value or value.yaml",
            ),
            (
                listed(Some(Secret { type_: Some(INBOUND.to_owned()), ..secret("value", KUBECONFIG) })),
                "SecretReserved",
                "Secret infra/eu has the type relaybook.dev/inbound",
            ),
            (
                listed(Some(secret("value", "sesame"))),
                "KubeconfigInvalid",
                "Secret infra/eu, key value: the kubeconfig cannot",
            ),
            (listed(Some(secret("value", KUBECONFIG))), "Ready", ""),
            (listed(Some(secret("value.yaml", KUBECONFIG))), "Ready", ""),
            (listed(Some(both)), "KubeconfigInvalid", "Secret infra/eu, key value: the kubeconfig cannot"),
        ] {
            let mut resolver = resolver(ClusterKind::Secret);
            resolver.secret = Some(of(events));
            let (told, message) = next(&mut resolver).await;
            assert_eq!((told, message.contains(words)), (reason, true), "{message}");
            assert!(message.is_empty() || message.starts_with("cluster infra.eu: "), "{message}");
        }
        for (events, reason, words) in [
            (listed(None), "ClusterNotFound", "there is no GitopsCluster of that name"),
            (refused(404), "ClusterNotFound", "install its CRD"),
            (refused(403), "Forbidden", "not allowed to list and watch the GitopsCluster"),
            (listed(Some(object("A B"))), "KubeconfigInvalid", "invalid Secret name"),
        ] {
            let mut resolver = resolver(ClusterKind::GitopsCluster);
            resolver.object = Some(of(events));
            let (told, message) = next(&mut resolver).await;
            assert_eq!((told, message.contains(words)), (reason, true), "{message}");
        }
    }

    #[tokio::test]
    async fn a_resolution_is_announced_only_if_it_changes_and_survives_failed_watches() {
        let mut resolver = resolver(ClusterKind::Secret);
        let mut events = listed(Some(secret("value", KUBECONFIG)));
        let mut edited = secret("value", KUBECONFIG);
        edited.metadata.labels = Some([("edited".to_owned(), "yes".to_owned())].into());
        events.push(Ok(Event::Apply(edited)));
        events.extend(refused(403));
        events.extend(refused(500));
        events.extend(listed(Some(secret("value", KUBECONFIG))));
        events.push(Ok(Event::Apply(secret("value", &format!("{KUBECONFIG}\n")))));
        events.push(Ok(Event::Delete(Secret::default())));
        resolver.secret = Some(of(events));
        let told = [next(&mut resolver).await.0, next(&mut resolver).await.0, next(&mut resolver).await.0];
        assert_eq!(told, ["Ready", "Ready", "KubeconfigMissing"], "once each");
    }

    #[tokio::test]
    async fn an_edited_cluster_object_leads_to_the_secret_that_it_names() {
        let mut resolver = resolver(ClusterKind::GitopsCluster);
        let mut events = listed(Some(object("one")));
        events.push(Ok(Event::Apply(object("one"))));
        events.push(Ok(Event::Apply(object("two"))));
        resolver.object = Some(of(events));
        let place = |resolver: &Resolver| resolver.place.clone().unwrap().secret;
        for (steps, named) in [(3, "one"), (1, "one"), (1, "two")] {
            for _ in 0..steps {
                super::next(&mut resolver.object, &resolver.metrics).await;
                resolver.object_seen();
            }
            assert_eq!(place(&resolver), named);
            assert!(matches!(resolver.resolve(), Resolution::Pending), "the Secret has not been seen");
        }
    }
}
