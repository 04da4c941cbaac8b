//! Settled deliveries for which users have requested a redelivery: which one is reopened next. Pure.
//!
//! A namespace reopens a limited number at once. If writes to it fail, other namespaces continue.

use std::collections::{BTreeMap, HashMap};

use crate::outbox::record::Record;
use relaybook_api::ObjectName;

/// Maximum number of deliveries of one namespace that are reopened at once.
const REOPENING: usize = 16;

/// The requests of users.
#[derive(Default)]
pub(crate) struct Asks {
    waiting: BTreeMap<ObjectName, Record>,
    /// By namespace: how many deliveries are being reopened.
    reopening: HashMap<String, usize>,
}

impl Asks {
    pub(crate) fn insert(&mut self, record: Record) {
        self.waiting.insert(record.id.clone(), record);
    }

    pub(crate) fn remove(&mut self, id: &ObjectName) {
        self.waiting.remove(id);
    }

    /// Removes the request for a delivery, because this copy of it has none. The request stays if it comes from a newer copy, or from the
    /// same one: a write knows the annotations from before it.
    pub(crate) fn remove_if_older(&mut self, record: &Record) {
        if self.waiting.get(&record.id).is_some_and(|known| known.is_older_than(record)) {
            self.waiting.remove(&record.id);
        }
    }

    /// Removes the requests for which `keep` is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Record) -> bool) {
        self.waiting.retain(|_, record| keep(record));
    }

    /// Removes and returns the next request whose namespace is below its limit, and for which `has_to_wait` is false.
    pub(crate) fn take_next(&mut self, has_to_wait: impl Fn(&Record) -> bool) -> Option<Record> {
        let mut from = ObjectName::default();
        loop {
            let (id, record) = self.waiting.range(&from..).next()?;
            // No name contains this character, so the range continues with the next namespace, or with the next delivery.
            if self.reopening.get(&id.namespace).is_some_and(|count| *count >= REOPENING) {
                from = ObjectName::new(format!("{}\0", id.namespace), "");
            } else if has_to_wait(record) {
                from = ObjectName::new(&id.namespace, format!("{}\0", id.name));
            } else {
                let id = id.clone();
                return self.waiting.remove(&id);
            }
        }
    }

    /// Counts a delivery of a namespace that is being reopened.
    pub(crate) fn begin(&mut self, namespace: &str) {
        *self.reopening.entry(namespace.to_owned()).or_default() += 1;
    }

    /// Counts it less, because its write has ended.
    pub(crate) fn end(&mut self, namespace: &str) {
        if let Some(count) = self.reopening.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.reopening.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::testing::record;

    #[test]
    fn a_namespace_at_its_limit_does_not_delay_the_redeliveries_of_others() {
        let mut asks = Asks::default();
        let ask = |namespace: &str, serial| {
            let record = record(serial);
            Record { id: ObjectName::new(namespace, &record.id.name), ..record }
        };
        for serial in 1..=2 {
            asks.insert(ask("a", serial));
        }
        asks.insert(ask("b", 3));
        (0..REOPENING).for_each(|_| asks.begin("a"));
        assert_eq!(asks.take_next(|_| false).map(|record| record.id.namespace).as_deref(), Some("b"));
        assert!(asks.take_next(|_| false).is_none());
        asks.end("a");
        assert_eq!(asks.take_next(|_| false).map(|record| record.id.namespace).as_deref(), Some("a"));
        asks.retain(|_| false);
        assert!(asks.take_next(|_| false).is_none());
    }

    #[test]
    fn a_delivery_that_has_to_wait_does_not_delay_others_and_its_request_stays() {
        let mut asks = Asks::default();
        let (first, second) = (record(1), record(2));
        asks.insert(Record { version: "7".into(), ..first.clone() });
        asks.insert(second.clone());
        let next = asks.take_next(|record| record.id == first.id);
        assert_eq!(next.map(|record| record.id), Some(second.id));
        for (version, stays) in [("6", true), ("7", true), ("8", false)] {
            asks.remove_if_older(&Record { version: version.into(), ..first.clone() });
            assert_eq!(asks.waiting.contains_key(&first.id), stays, "{version}");
        }
    }
}
