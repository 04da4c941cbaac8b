//! Pure: which Secrets the promotions of which pipelines need.
//!
//! In: the objects of a pipeline. Out: the Secrets of its strategies, and of the strategies that its open promotions have copied; and for a
//! Secret that has changed, the pipelines that use it.

use std::collections::{BTreeSet, HashMap};

use super::index::{Key, Seen};
use relaybook_api::promotion::{GitRepository, Phase};
use relaybook_api::{ObjectName, Promotion};
use relaybook_core::promotion::policy::{policy, repository};

/// The Secrets of all pipelines.
#[derive(Debug, Default)]
pub(super) struct Wanted(HashMap<Key, BTreeSet<ObjectName>>);

impl Wanted {
    /// Replaces the Secrets of a pipeline. `None`: the pipeline is gone. Returns whether they have changed.
    pub(super) fn put(&mut self, key: &Key, seen: Option<&Seen>) -> bool {
        let needed = seen.map(|seen| needed(&key.namespace, seen)).unwrap_or_default();
        if self.0.get(key).map_or(needed.is_empty(), |known| *known == needed) {
            return false;
        }
        if needed.is_empty() {
            self.0.remove(key);
        } else {
            self.0.insert(key.clone(), needed);
        }
        true
    }

    /// Forgets all pipelines.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns all Secrets.
    pub(super) fn all(&self) -> BTreeSet<ObjectName> {
        self.0.values().flatten().cloned().collect()
    }

    /// Returns the pipelines that use a Secret.
    pub(super) fn using(&self, name: &ObjectName) -> Vec<Key> {
        self.0.iter().filter(|(_, names)| names.contains(name)).map(|(key, _)| key.clone()).collect()
    }
}

/// Returns the Secrets that the promotions of a pipeline need. Those of a strategy are read before the first promotion.
fn needed(namespace: &str, seen: &Seen) -> BTreeSet<ObjectName> {
    let is_open =
        |promotion: &&Promotion| !promotion.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::is_ended);
    let promotions = seen.promotions.values().map(AsRef::as_ref).filter(is_open);
    let copied = promotions.filter_map(|promotion| promotion.status.as_ref()?.strategy.clone());
    let declared = seen.pipeline.iter().flat_map(|pipeline| {
        let environments = 1..pipeline.spec.environments.len();
        environments.filter_map(|index| policy(&pipeline.spec, index)).map(|policy| policy.strategy)
    });
    let strategies: Vec<_> = copied.chain(declared).collect();
    strategies.iter().filter_map(repository).flat_map(|(repository, _)| of_repository(namespace, repository)).collect()
}

/// Returns the Secrets that requests to a repository need.
fn of_repository(namespace: &str, repository: &GitRepository) -> Vec<ObjectName> {
    let tls = repository.tls.as_ref();
    let login = repository.secret_ref.as_ref().map(|secret| secret.name.clone());
    let authorities = tls.and_then(|tls| tls.ca_from.as_ref()).map(|ca| ca.secret_key_ref.name.clone());
    let client = tls.and_then(|tls| tls.client_certificate.as_ref()).map(|client| client.secret_ref.name.clone());
    let names = [login, authorities, client].into_iter().flatten();
    names.map(|name| ObjectName::new(namespace, name)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::ResourceExt as _;

    use super::*;
    use relaybook_api::Pipeline;
    use relaybook_api::notification::ClientCertificate;
    use relaybook_api::promotion::{GitTls, PromotionStrategy, SecretCa};
    use relaybook_api::values::refs::{SecretKeyRef, SecretRef};
    use relaybook_core::promotion::testing::{by_commit, by_pull_request, pipeline, promotion, with_policy};

    fn key(uid: &str) -> Key {
        Key { namespace: "team-a".into(), uid: uid.into() }
    }

    fn secret(name: &str) -> ObjectName {
        ObjectName::new("team-a", name)
    }

    /// Returns a strategy with a Secret for the login, and with one for each setting of TLS.
    fn uses(mut strategy: PromotionStrategy, login: &str) -> PromotionStrategy {
        let named = |name: &str| SecretRef { name: name.into() };
        let ca = SecretCa { secret_key_ref: SecretKeyRef { name: "ca".into(), key: "ca.crt".into() } };
        let client_certificate = Some(ClientCertificate { secret_ref: named("client") });
        let all = [
            strategy.commit.as_mut().map(|of| &mut of.repository),
            strategy.pull_request.as_mut().map(|of| &mut of.repository),
        ];
        for repository in all.into_iter().flatten() {
            repository.secret_ref = Some(named(login));
            repository.tls = Some(GitTls { ca_from: Some(ca.clone()), client_certificate: client_certificate.clone() });
        }
        strategy
    }

    fn seen(pipeline: Option<Pipeline>, promotions: &[Promotion]) -> Seen {
        let promotions = promotions.iter().map(|promotion| (promotion.name_any(), Arc::new(promotion.clone()))).collect();
        Seen { pipeline: pipeline.map(Arc::new), promotions, ..Seen::default() }
    }

    fn by(phase: Phase, login: &str) -> Promotion {
        let mut promotion = promotion((20, 0), &[phase], "");
        promotion.status.as_mut().unwrap().strategy = Some(uses(by_commit(), login));
        promotion
    }

    #[test]
    fn the_secrets_of_a_strategy_and_of_open_promotions_are_watched() {
        let declares = || with_policy(|policy| policy.strategy = Some(uses(by_pull_request(), "bot")));
        for (what, seen, expected) in [
            ("a receiver carries them out", seen(Some(pipeline()), &[]), vec![]),
            ("the strategy of the pipeline", seen(Some(declares()), &[]), vec!["bot", "ca", "client"]),
            ("an open one", seen(Some(pipeline()), &[by(Phase::Requested, "old")]), vec!["ca", "client", "old"]),
            ("both", seen(Some(declares()), &[by(Phase::Open, "old")]), vec!["bot", "ca", "client", "old"]),
            ("an ended one", seen(Some(pipeline()), &[by(Phase::Failed, "old")]), vec![]),
            ("without a pipeline", seen(None, &[by(Phase::Open, "old")]), vec!["ca", "client", "old"]),
        ] {
            let mut wanted = Wanted::default();
            assert_eq!(wanted.put(&key("u"), Some(&seen)), !expected.is_empty(), "{what}");
            assert!(!wanted.put(&key("u"), Some(&seen)), "{what}: nothing has changed");
            let expected: BTreeSet<ObjectName> = expected.into_iter().map(secret).collect();
            assert_eq!(wanted.all(), expected, "{what}");
        }
    }

    #[test]
    fn a_secret_belongs_to_the_pipelines_that_use_it() {
        let mut wanted = Wanted::default();
        let uses = |login: &str| seen(None, &[by(Phase::Open, login)]);
        wanted.put(&key("u"), Some(&uses("one")));
        wanted.put(&key("v"), Some(&uses("two")));
        assert_eq!(wanted.using(&secret("one")), [key("u")]);
        assert_eq!(wanted.using(&secret("ca")).len(), 2);
        assert_eq!(wanted.using(&ObjectName { namespace: "team-b".into(), ..secret("one") }), []);
        assert!(wanted.put(&key("u"), None), "the pipeline is gone");
        assert_eq!(wanted.using(&secret("one")), []);
        wanted.clear();
        assert_eq!(wanted.all(), BTreeSet::new());
    }
}
