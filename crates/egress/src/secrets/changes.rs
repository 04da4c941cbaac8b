//! Names of Secrets that have changed, for components that act on them.
//!
//! A slow listener gets each name once, even if the Secret changed several times in between. So no change is lost, and the number of
//! watched Secrets limits the queue.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use relaybook_api::ObjectName;

/// The list of listeners, to which changes are announced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Announcements(Arc<Mutex<Vec<Weak<Pending>>>>);

/// The Secrets that have changed since this listener was created. Each name is returned again only if the Secret changes again.
#[derive(Debug)]
pub struct Changes(Arc<Pending>);

#[derive(Debug, Default)]
struct Pending {
    names: Mutex<BTreeSet<ObjectName>>,
    notify: Notify,
}

impl Announcements {
    /// Creates a listener for all changes from now on.
    pub(crate) fn listen(&self) -> Changes {
        let pending = Arc::new(Pending::default());
        let mut listeners = self.0.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(&pending));
        Changes(pending)
    }

    /// Announces that a Secret has changed.
    pub(crate) fn announce(&self, name: &ObjectName) {
        for listener in self.0.lock().iter().filter_map(Weak::upgrade) {
            listener.names.lock().insert(name.clone());
            listener.notify.notify_one();
        }
    }
}

impl Changes {
    /// Returns the next Secret that has changed. Waits without a timeout. If the wait is canceled, no name is lost.
    pub async fn next(&mut self) -> ObjectName {
        loop {
            if let Some(name) = self.now() {
                return name;
            }
            self.0.notify.notified().await;
        }
    }

    /// Returns a Secret that has changed, if there is one.
    pub fn now(&mut self) -> Option<ObjectName> {
        self.0.names.lock().pop_first()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn name(number: usize) -> ObjectName {
        ObjectName { namespace: "team-a".to_owned(), name: format!("s-{number:04}") }
    }

    #[tokio::test]
    async fn a_slow_listener_gets_every_name_once() {
        let announcements = Announcements::default();
        let (mut one, mut two) = (announcements.listen(), announcements.listen());
        for number in (0..1000).chain(0..1000) {
            announcements.announce(&name(number));
        }
        for changes in [&mut one, &mut two] {
            for number in 0..1000 {
                assert_eq!(changes.next().await, name(number));
            }
            assert!(changes.next().now_or_never().is_none());
        }
        let (next, ()) = tokio::join!(one.next(), async { announcements.announce(&name(7)) });
        assert_eq!(next, name(7));
        drop((one, two));
        assert_eq!(announcements.listen().now(), None);
        assert_eq!(announcements.0.lock().len(), 1, "dropped listeners are removed");
    }
}
