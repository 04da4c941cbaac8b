//! Whether the API server accepts deliveries at present, so that one can be sent before it is recorded.
//!
//! In: the results of writes. Out: whether a create can be expected to succeed.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{JournalError, New};

/// Whether the API server accepts writes of deliveries at present.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// By namespace: the notifications for which a create was accepted since the last one that failed in the namespace. A quota is full
    /// for the whole namespace, and an admission policy can reject the deliveries of one notification.
    accepting: Mutex<HashMap<String, HashSet<String>>>,
    /// Whether the last write was not answered.
    is_silent: AtomicBool,
}

impl Health {
    /// Notes the result of a write.
    pub(super) fn note<T>(&self, result: &Result<T, JournalError>) {
        let is_silent = matches!(result, Err(JournalError::Timeout | JournalError::Unavailable(_)));
        self.is_silent.store(is_silent, Ordering::Relaxed);
    }

    /// Notes the result of a create.
    pub(super) fn note_create<T>(&self, new: &New, result: &Result<T, JournalError>) {
        self.note(result);
        let mut accepting = self.accepting.lock();
        if result.is_err() {
            accepting.remove(&new.namespace);
        } else if !accepting.get(&new.namespace).is_some_and(|known| known.contains(&new.spec.notification)) {
            accepting.entry(new.namespace.clone()).or_default().insert(new.spec.notification.clone());
        }
    }

    /// Returns whether a create for this notification was accepted since the last failed create in the namespace, and the last write was
    /// answered.
    pub(crate) fn is_accepting(&self, namespace: &str, notification: &str) -> bool {
        let accepts = self.accepting.lock().get(namespace).is_some_and(|known| known.contains(notification));
        accepts && !self.is_silent.load(Ordering::Relaxed)
    }
}

/// For tests that make no calls.
#[cfg(test)]
impl super::Journal {
    pub(crate) fn note<T>(&self, result: &Result<T, JournalError>) {
        self.health.note(result);
    }

    pub(crate) fn note_create<T>(&self, new: &New, result: &Result<T, JournalError>) {
        self.health.note_create(new, result);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use relaybook_api::testing::spec;

    fn new(namespace: &str, notification: &str) -> New {
        let spec = relaybook_api::DeliverySpec { notification: notification.to_owned(), ..spec(1) };
        New { namespace: namespace.to_owned(), elsewhere: None, spec: Arc::new(spec) }
    }

    #[test]
    fn a_failed_create_counts_for_its_namespace_and_an_accepted_one_for_its_notification() {
        let health = Health::default();
        let accepting = || [("a", "x"), ("a", "y"), ("b", "x")].map(|(ns, name)| health.is_accepting(ns, name));
        assert_eq!(accepting(), [false; 3], "nothing is known");
        for (namespace, notification) in [("a", "x"), ("a", "y"), ("b", "x")] {
            health.note_create(&new(namespace, notification), &Ok(()));
        }
        assert_eq!(accepting(), [true; 3]);
        health.note_create::<()>(&new("a", "x"), &Err(JournalError::Taken("d".into())));
        assert_eq!(accepting(), [false, false, true]);
        health.note_create(&new("a", "y"), &Ok(()));
        assert_eq!(accepting(), [false, true, true]);
        health.note::<()>(&Err(JournalError::Timeout));
        assert_eq!(accepting(), [false; 3], "the API server does not answer");
        health.note(&Ok(()));
        assert_eq!(accepting(), [false, true, true]);
    }
}
