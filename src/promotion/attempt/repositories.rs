//! Limits how many repositories are read at the same time, and how much memory they need.
//!
//! In: the namespace of a promotion, and the URL of its repository. Out: a [`Permit`], which is held while the files of the repository are in
//! memory. Each server has at most one permit, and each namespace a part of all. So a server that hangs during a request delays only promotions
//! in its own repositories, and a team with many such servers delays only its own promotions.
//!
//! What needs much memory has a permit of its own: to receive a large pack, and to read a pack. So a few hostile servers cannot fill the memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use url::Url;

use super::lock;
use crate::k8s::limiter::{self, NamespaceLimiter};

/// Maximum number of repositories that are read at the same time.
const REPOSITORIES: usize = 8;

/// The permits.
pub(super) struct Repositories {
    all: NamespaceLimiter,
    /// By the origin of the server. Those that nobody uses are removed.
    servers: Mutex<HashMap<String, Weak<Semaphore>>>,
    large: Semaphore,
    reading: Arc<Semaphore>,
}

/// The permission to read one repository.
pub(super) struct Permit {
    _all: limiter::Permit,
    _server: OwnedSemaphorePermit,
}

impl Default for Repositories {
    fn default() -> Self {
        Self {
            all: NamespaceLimiter::new(REPOSITORIES),
            servers: Mutex::default(),
            large: Semaphore::new(1),
            reading: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Repositories {
    /// Waits for a permit. Who waits holds nothing: a namespace without a free place must not block a server for others, and a busy server must
    /// not take up a place.
    pub(super) async fn acquire(&self, namespace: &str, url: &str) -> Result<Permit, AcquireError> {
        let server = self.server(url);
        loop {
            let place = self.all.acquire(namespace).await;
            if let Ok(server) = Arc::clone(&server).try_acquire_owned() {
                return Ok(Permit { _all: place, _server: server });
            }
            drop(place);
            drop(Arc::clone(&server).acquire_owned().await?);
        }
    }

    /// Waits until no other attempt has a large pack in memory.
    pub(super) async fn large(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.large.acquire().await
    }

    /// Waits until no other pack is read.
    pub(super) async fn reading(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        Arc::clone(&self.reading).acquire_owned().await
    }

    fn server(&self, url: &str) -> Arc<Semaphore> {
        let origin = Url::parse(url).map_or_else(|_| url.to_owned(), |url| url.origin().ascii_serialization());
        let mut servers = lock(&self.servers);
        servers.retain(|_, server| server.strong_count() > 0);
        let known = servers.get(&origin).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let server = Arc::new(Semaphore::new(1));
            servers.insert(origin, Arc::downgrade(&server));
            server
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_server_has_one_permit_and_a_namespace_has_a_part_of_all() {
        let repositories = Repositories::default();
        let taken = |namespace, host: &str| {
            let url = format!("https://{host}.example/o/one.git");
            repositories.acquire(namespace, &url).now_or_never().map(Result::unwrap)
        };
        let first = taken("team-a", "a");
        assert!(first.is_some() && taken("team-b", "a").is_none(), "the server has one permit");
        let mut all: Vec<_> = (0..9).filter_map(|n| taken("team-a", &format!("hangs-{n}"))).collect();
        assert!(all.len() + 1 < REPOSITORIES, "team-a has a part");
        all.extend((0..9).filter_map(|n| taken("team-b", &format!("b-{n}"))));
        assert!(all.len() < REPOSITORIES);
        drop((first, all));
        assert!(taken("team-b", "a").is_some());
        // All places of team-a are taken, and one more attempt of it waits.
        let places: Vec<_> = (0..9).filter_map(|n| taken("team-a", &format!("hangs-{n}"))).collect();
        let mut waits = Box::pin(repositories.acquire("team-a", "https://a.example/o/one.git"));
        assert!(futures::poll!(&mut waits).is_pending());
        assert!(taken("team-b", "a").is_some(), "what waits does not block the server");
        drop((waits, places));
        assert!(taken("team-b", "a").is_some());
        assert_eq!(lock(&repositories.servers).len(), 1, "those of others are forgotten");
    }
}
