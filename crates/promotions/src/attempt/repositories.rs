//! Limits how many repositories are read at the same time, and how much memory they need.
//!
//! In: the namespace of a promotion, and the URL of its repository. Out: a [`Permit`], which is held while the files of the repository are in
//! memory. Namespaces take turns. Each has one permit at a server, and a part of all. So a team with many slow repositories delays only its own
//! promotions, also at a server that others use. A server has a part of all permits, too. So one that hangs during a request delays only
//! promotions in its own repositories.
//!
//! What needs much memory has permits of its own: to receive a large pack, and to read a pack. So a few hostile servers cannot fill the memory.

use std::time::Duration;

use url::Url;

use relaybook_runtime::fair;
use relaybook_runtime::fair::{Limits, Permits};

/// Limits of repositories that are read at the same time. The groups are servers. A Secret belongs to a namespace, so a server has one
/// request at a time for each Secret.
const REPOSITORIES: Limits = Limits { all: 8, of_key: 2, of_group: 6, of_key_in_group: 1, budget: Some(BUDGET) };
/// Limits of large packs in memory.
const LARGE: Limits = Limits::new(2, 1).with_budget(BUDGET);
/// Limits of packs that are read at the same time.
const READING: Limits = Limits::new(1, 1);
/// After this time with permits, a namespace is slow. Most promotions hold a permit for a second or two.
const BUDGET: Duration = Duration::from_secs(30);

/// The permits, by namespace.
pub(super) struct Repositories {
    all: Permits<String, String>,
    large: Permits<String>,
    reading: Permits<String>,
}

/// The permission to read one repository.
pub(super) type Permit = fair::Permit<String, String>;
/// The permission to have a large pack in memory, or to read a pack.
pub(super) type Memory = fair::Permit<String>;

impl Default for Repositories {
    fn default() -> Self {
        Self { all: Permits::new(REPOSITORIES), large: Permits::new(LARGE), reading: Permits::new(READING) }
    }
}

impl Repositories {
    /// Waits for a permit for the repository with this URL.
    pub(super) async fn acquire(&self, namespace: &str, url: &str) -> Permit {
        let origin = Url::parse(url).map_or_else(|_| url.to_owned(), |url| url.origin().ascii_serialization());
        self.all.acquire(namespace.to_owned(), origin).await
    }

    /// Waits until few other attempts have a large pack in memory.
    pub(super) async fn large(&self, namespace: &str) -> Memory {
        self.large.acquire(namespace.to_owned(), ()).await
    }

    /// Waits until no other pack is read.
    pub(super) async fn reading(&self, namespace: &str) -> Memory {
        self.reading.acquire(namespace.to_owned(), ()).await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_namespace_can_use_a_part_of_all_permits_and_one_at_each_server() {
        let repositories = Repositories::default();
        let taken = |namespace: &str, host: &str| {
            let url = format!("https://{host}.example/o/one.git");
            repositories.acquire(namespace, &url).now_or_never()
        };
        let first = taken("team-a", "a");
        assert!(first.is_some() && taken("team-a", "a").is_none(), "one at a server");
        let second = taken("team-a", "b");
        assert!(second.is_some() && taken("team-a", "c").is_none(), "a part of all");
        let other = taken("team-b", "a");
        assert!(other.is_some(), "another namespace at the same server");
        // What waits blocks no other namespace.
        let mut waits = Box::pin(repositories.acquire("team-a", "https://a.example/o/two.git"));
        assert!(futures::poll!(&mut waits).is_pending());
        drop(other);
        let other = taken("team-b", "a");
        assert!(other.is_some());
        drop(first);
        assert!(futures::poll!(&mut waits).is_ready());
    }

    #[tokio::test]
    async fn a_server_that_hangs_for_all_namespaces_leaves_permits_for_others() {
        let repositories = Repositories::default();
        let held: Vec<_> = (0..20)
            .filter_map(|n| repositories.acquire(&format!("team-{n}"), "https://hangs.example/o/one.git").now_or_never())
            .collect();
        assert_eq!(held.len(), REPOSITORIES.of_group);
        let other = repositories.acquire("team-30", "https://fine.example/o/one.git").now_or_never();
        assert!(other.is_some());
    }

    #[tokio::test]
    async fn a_large_pack_of_one_namespace_leaves_room_for_that_of_another() {
        let repositories = Repositories::default();
        let first = repositories.large("team-a").await;
        assert!(repositories.large("team-a").now_or_never().is_none());
        assert!(repositories.large("team-b").now_or_never().is_some());
        drop(first);
        let reading = repositories.reading("team-a").await;
        let mut again = Box::pin(repositories.reading("team-a"));
        let mut third = Box::pin(repositories.reading("team-a"));
        let mut other = Box::pin(repositories.reading("team-b"));
        assert!(futures::poll!(&mut again).is_pending() && futures::poll!(&mut third).is_pending());
        assert!(futures::poll!(&mut other).is_pending());
        drop(reading);
        let again = again.await;
        drop(again);
        assert!(futures::poll!(&mut third).is_pending() && futures::poll!(&mut other).is_ready(), "they take turns");
    }
}
