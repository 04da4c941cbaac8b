//! The Deliveries of requests that the watches have delivered.
//!
//! In: watch events, and answers of the API server. Out: the Deliveries of one promotion. Only Deliveries with the label of requests are
//! watched, and only a short form of them is stored.

use std::collections::{BTreeMap, HashMap};

use kube::runtime::watcher::Event;

use super::index::Key;
use relaybook_api::group;
use relaybook_api::{Delivery, ObjectName, version};
use relaybook_core::promotion::sent::Sent;
use relaybook_runtime::controller::Listing;

/// Selects the Deliveries of requests.
pub(super) const REQUESTS: &str = concat!(group!(), "/type=PromotionRequested");

/// A Delivery, and the version of its object.
#[derive(Debug)]
struct Known {
    promotion: String,
    pipeline: Key,
    version: u64,
}

/// The Deliveries of all requests.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    /// The Deliveries of each promotion, by its uid.
    sent: HashMap<String, BTreeMap<ObjectName, Sent>>,
    known: HashMap<ObjectName, Known>,
}

impl Deliveries {
    /// Returns the Deliveries of the promotion with this uid.
    pub(crate) fn sent(&self, promotion: &str) -> Vec<Sent> {
        self.sent.get(promotion).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Applies an event of a watch of Deliveries. Returns the pipeline whose Delivery has changed. `home`: the namespace of Deliveries of
    /// cluster-wide notifications.
    pub(crate) fn absorb(&mut self, home: &str, listing: &mut Listing, event: Event<Delivery>) -> Option<Key> {
        listing.note(&event, ObjectName::of);
        match event {
            Event::Init => {}
            Event::InitApply(delivery) => drop(self.put(&delivery, home)),
            Event::InitDone => {
                for name in listing.end(self.known.keys(), Clone::clone) {
                    self.remove(&name);
                }
            }
            Event::Apply(delivery) => return self.put(&delivery, home),
            Event::Delete(delivery) => return self.remove(&ObjectName::of(&delivery)),
        }
        None
    }

    /// Takes the answer of the API server to a list.
    pub(super) fn learn(&mut self, delivery: &Delivery, home: &str) {
        self.put(delivery, home);
    }

    /// Stores a Delivery, unless a newer version is known. Returns its pipeline.
    fn put(&mut self, delivery: &Delivery, home: &str) -> Option<Key> {
        let (name, at) = (ObjectName::of(delivery), version(delivery.metadata.resource_version.as_deref()));
        let (promotion, sent) = Sent::of(delivery, home)?;
        if self.known.get(&name).is_some_and(|known| known.version > at) {
            return None;
        }
        self.remove(&name);
        let of = &delivery.spec.pipeline_ref;
        let pipeline = Key { namespace: of.namespace.clone(), uid: of.uid.clone() };
        self.sent.entry(promotion.clone()).or_default().insert(name.clone(), sent);
        self.known.insert(name, Known { promotion, pipeline: pipeline.clone(), version: at });
        Some(pipeline)
    }

    fn remove(&mut self, name: &ObjectName) -> Option<Key> {
        let known = self.known.remove(name)?;
        if let Some(sent) = self.sent.get_mut(&known.promotion) {
            sent.remove(name);
            if sent.is_empty() {
                self.sent.remove(&known.promotion);
            }
        }
        Some(known.pipeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::{DeliveryStatus, Outcome, delivery};
    use relaybook_core::promotion::testing::request_spec;

    const HOME: &str = "relaybook-system";

    fn delivery(serial: i64, version: u64, outcome: Option<Outcome>) -> Delivery {
        let mut delivery = Delivery::new("", request_spec("p-uid", serial));
        delivery.metadata.name = Some(delivery::name(&delivery.spec));
        delivery.metadata.namespace = Some("team-a".into());
        delivery.metadata.resource_version = Some(version.to_string());
        delivery.status = Some(DeliveryStatus { outcome, ..DeliveryStatus::default() });
        delivery
    }

    fn outcomes(deliveries: &Deliveries) -> Vec<(i64, Option<Outcome>)> {
        deliveries.sent("p-uid").into_iter().map(|sent| (sent.serial, sent.status.outcome)).collect()
    }

    #[test]
    fn the_newest_version_of_each_delivery_is_known_until_it_is_deleted() {
        let (mut all, mut listing) = (Deliveries::default(), Listing::default());
        let key = Some(Key { namespace: "team-a".into(), uid: "u".into() });
        for event in [Event::Init, Event::InitApply(delivery(10, 5, None)), Event::InitDone] {
            assert_eq!(all.absorb(HOME, &mut listing, event), None);
        }
        let parked = Some(Outcome::Parked);
        assert_eq!(all.absorb(HOME, &mut listing, Event::Apply(delivery(10, 7, parked))), key);
        all.learn(&delivery(10, 6, None), HOME);
        assert_eq!(outcomes(&all), [(10, parked)], "an older answer changes nothing");
        all.learn(&delivery(20, 8, None), HOME);
        assert_eq!(outcomes(&all), [(10, parked), (20, None)]);
        assert_eq!(all.absorb(HOME, &mut listing, Event::Delete(delivery(10, 9, parked))), key);
        assert_eq!(outcomes(&all), [(20, None)]);
        for event in [Event::Init, Event::InitDone] {
            all.absorb(HOME, &mut Listing::of(Some("team-b".into())), event);
        }
        assert_eq!(outcomes(&all), [(20, None)], "the list is that of another namespace");
        for event in [Event::Init, Event::InitDone] {
            all.absorb(HOME, &mut listing, event);
        }
        assert!(outcomes(&all).is_empty() && all.sent.is_empty() && all.known.is_empty());
    }
}
