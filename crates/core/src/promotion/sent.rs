//! Pure: what became of the request that a receiver has to carry out.
//!
//! In: the Deliveries of the transition `PromotionRequested`, and how far the log of the pipeline was read. Out: whether a receiver has
//! accepted the last request of a promotion, or none can any more ([`Fate`]).
//!
//! All Deliveries of one request have the serial of its change. A notification that has not read that change can still record one.

use kube_core::ResourceExt as _;

use super::text::answer;
use relaybook_api::delivery;
use relaybook_api::delivery::TransitionType;
use relaybook_api::pipeline::Dispatched;
use relaybook_api::{Delivery, DeliveryStatus, Outcome, Time};

/// One Delivery of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The notification that sends it.
    pub notification: String,
    /// Serial of the change.
    pub serial: i64,
    /// When the promotion was requested.
    pub time: Time,
    /// How it stands.
    pub status: DeliveryStatus,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// No Delivery of it is known.
    Unknown,
    /// A receiver can still accept it.
    Open {
        /// Why no receiver has accepted it yet. `None`: nothing has failed.
        why: Option<String>,
        /// Whether a request was made. Otherwise the Delivery waits for something.
        is_tried: bool,
    },
    /// A receiver has accepted it.
    Accepted {
        /// When the last receiver accepted what a person had sent again.
        resent: Option<Time>,
        /// The receivers that have not accepted it.
        without: Option<String>,
    },
    /// No receiver has accepted it, and none can any more.
    Refused(String),
}

impl Sent {
    /// Returns the uid of the promotion that a Delivery requests, and the Delivery. `None`: it requests nothing, or Relaybook cannot have recorded
    /// it. `home`: the namespace of Deliveries of cluster-wide notifications.
    #[must_use]
    pub fn of(object: &Delivery, home: &str) -> Option<(String, Self)> {
        let spec = &object.spec;
        let namespace = object.namespace().unwrap_or_default();
        let is_here = namespace == spec.pipeline_ref.namespace || namespace == home;
        if spec.type_ != TransitionType::PromotionRequested || !is_here || object.name_any() != delivery::name(spec) {
            return None;
        }
        let uid = spec.to.promotion.as_ref()?.uid.clone();
        let (notification, serial, time) = (spec.notification.clone(), spec.serial, spec.time);
        Some((uid, Self { notification, serial, time, status: object.status.clone().unwrap_or_default() }))
    }

    /// Says what happened to it, if anything did.
    fn said(&self) -> Option<String> {
        let DeliveryStatus { outcome, reason, attempts, error, response, .. } = &self.status;
        let reason = reason.as_deref().unwrap_or_default();
        let what = match outcome {
            Some(Outcome::Canceled) => format!("canceled ({reason})"),
            _ => answer(error.as_deref().filter(|error| !error.is_empty()).or(Some(reason).filter(|r| !r.is_empty()))?),
        };
        let response = response.as_deref().filter(|_| *attempts > 0).map(answer).filter(|text| !text.is_empty());
        let response = response.map(|text| format!(": {text}")).unwrap_or_default();
        let attempts = if *attempts > 1 { format!(" ({attempts} attempts)") } else { String::new() };
        Some(format!("Notification {}: {what}{response}{attempts}", answer(&self.notification)))
    }
}

/// Returns what became of the request that a promotion made at this time. `sent`: the Deliveries of all its requests.
#[must_use]
pub fn fate(sent: &[Sent], requested: Time, dispatched: Option<&Dispatched>) -> Fate {
    let ours = || sent.iter().filter(move |sent| sent.time >= requested);
    let Some(serial) = ours().map(|sent| sent.serial).max() else { return Fate::Unknown };
    let mut last: Vec<&Sent> = ours().filter(|sent| sent.serial == serial).collect();
    last.sort_by(|one, other| one.notification.cmp(&other.notification));
    let is_accepted = |sent: &&&Sent| sent.status.outcome == Some(Outcome::Delivered);
    let said: Vec<String> = last.iter().filter(|sent| !is_accepted(sent)).filter_map(|sent| sent.said()).collect();
    let said = (!said.is_empty()).then(|| said.join("; "));
    if last.iter().any(|sent| is_accepted(&sent)) {
        let resent = last.iter().filter(is_accepted).filter(|sent| sent.status.redelivered.is_some());
        return Fate::Accepted { resent: resent.filter_map(|sent| sent.status.settled_time).max(), without: said };
    }
    if last.iter().any(|sent| sent.status.outcome.is_none()) || !is_recorded(serial, dispatched) {
        return Fate::Open { why: said, is_tried: last.iter().any(|sent| sent.status.attempts > 0) };
    }
    Fate::Refused(said.unwrap_or_else(|| "the request was not sent".to_owned()))
}

/// Whether each notification has recorded what it sends about a change.
fn is_recorded(serial: i64, dispatched: Option<&Dispatched>) -> bool {
    dispatched.is_some_and(|dispatched| {
        let is_timed = dispatched.armed.iter().any(|timer| is_request(timer.type_) && timer.serial == serial);
        !is_timed && dispatched.cursors.iter().all(|cursor| cursor.serial >= serial)
    })
}

fn is_request(type_: TransitionType) -> bool {
    type_ == TransitionType::PromotionRequested
}

/// Keeps what [`fate`] reads of the progress of the dispatcher: the cursor that is furthest behind, and the timers of requests.
pub fn lean(dispatched: Dispatched) -> Dispatched {
    let cursors = dispatched.cursors.into_iter().min_by_key(|cursor| cursor.serial).into_iter().collect();
    let armed = dispatched.armed.into_iter().filter(|timer| is_request(timer.type_)).collect();
    Dispatched { cursors, armed, ..Dispatched::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promotion::testing::at;
    use relaybook_api::pipeline::{Cursor, RunningTimer};

    fn sent(notification: &str, serial: i64, outcome: Option<Outcome>) -> Sent {
        let (error, reason, response) = match outcome {
            Some(Outcome::Delivered) | None => (None, None, None),
            Some(Outcome::Canceled) => (None, Some("NotificationGone".to_owned()), None),
            Some(_) => (Some("404 Not Found".to_owned()), Some("ReceiverNotFound".to_owned()), Some("no\nrepo".to_owned())),
        };
        let settled_time = outcome.map(|_| at(serial + 5));
        let attempts = i64::from(outcome.is_some_and(|outcome| outcome != Outcome::Canceled));
        let status =
            DeliveryStatus { outcome, reason, attempts, settled_time, error, response, ..DeliveryStatus::default() };
        Sent { notification: notification.to_owned(), serial, time: at(serial), status }
    }

    fn tried(attempts: i64, reason: Option<&str>) -> Sent {
        let mut sent = sent("ci", 10, None);
        sent.status.attempts = attempts;
        sent.status.reason = reason.map(str::to_owned);
        sent.status.error = Some("503 Service Unavailable".to_owned());
        sent
    }

    fn read(serials: &[i64], timers: &[(i64, TransitionType)]) -> Dispatched {
        let cursor = |serial: &i64| Cursor { serial: *serial, ..Cursor::default() };
        let timer = |(serial, type_): &(i64, TransitionType)| RunningTimer {
            notification: "slow".to_owned(),
            subject: "promotion/prod".to_owned(),
            serial: *serial,
            type_: *type_,
            due: at(99),
        };
        let (cursors, armed) = (serials.iter().map(cursor).collect(), timers.iter().map(timer).collect());
        Dispatched { cursors, armed, ..Dispatched::default() }
    }

    #[test]
    fn a_request_is_refused_only_if_no_receiver_accepted_it_or_can() {
        use Outcome::{Canceled, Delivered, Parked};
        let (requested, finished) = (TransitionType::PromotionRequested, TransitionType::PromotionFinished);
        let all = read(&[10, 12], &[]);
        let parked = "Notification ci: 404 Not Found: no\\nrepo";
        let refused = |text: &str| Fate::Refused(text.to_owned());
        let open = |why: Option<&str>, is_tried| Fate::Open { why: why.map(str::to_owned), is_tried };
        let accepted = |resent, without: Option<&str>| Fate::Accepted { resent, without: without.map(str::to_owned) };
        let again = |mut sent: Sent| {
            sent.status.redelivered = Some(delivery::Redelivered { value: "1".into(), time: at(14) });
            sent
        };
        let (ci, chat) = (|outcome| sent("ci", 10, outcome), |outcome| sent("chat", 10, outcome));
        for (what, sent, dispatched, expected) in [
            ("nothing was recorded", vec![], &all, Fate::Unknown),
            ("that of an earlier request", vec![sent("ci", 4, Some(Parked))], &all, Fate::Unknown),
            ("not sent", vec![ci(None)], &all, open(None, false)),
            ("parked", vec![ci(Some(Parked))], &all, refused(parked)),
            ("canceled", vec![ci(Some(Canceled))], &all, refused("Notification ci: canceled (NotificationGone)")),
            ("accepted", vec![ci(Some(Delivered))], &all, accepted(None, None)),
            ("sent again", vec![again(ci(Some(Delivered)))], &all, accepted(Some(at(15)), None)),
            ("one of two", vec![ci(Some(Parked)), chat(Some(Delivered))], &all, accepted(None, Some(parked))),
            ("one can still be accepted", vec![ci(Some(Parked)), chat(None)], &all, open(Some(parked), true)),
            ("another one is not recorded", vec![ci(Some(Parked))], &read(&[10, 9], &[]), open(Some(parked), true)),
            ("another one has a timer", vec![ci(Some(Parked))], &read(&[10], &[(10, requested)]), open(Some(parked), true)),
            ("a timer of another", vec![ci(Some(Parked))], &read(&[10], &[(10, finished), (9, requested)]), refused(parked)),
            ("after a retry", vec![sent("ci", 8, Some(Delivered)), ci(Some(Parked))], &all, refused(parked)),
            ("tried", vec![tried(3, None)], &all, open(Some("Notification ci: 503 Service Unavailable (3 attempts)"), true)),
            (
                "blocked",
                vec![tried(0, Some("Suspended"))],
                &all,
                open(Some("Notification ci: 503 Service Unavailable"), false),
            ),
        ] {
            assert_eq!(fate(&sent, at(5), Some(dispatched)), expected, "{what}");
            let shortened = lean(dispatched.clone());
            assert_eq!(fate(&sent, at(5), Some(&shortened)), expected, "{what}, without what is not read");
        }
        assert_eq!(
            fate(&[ci(Some(Parked))], at(5), None),
            open(Some(parked), true),
            "how far the log was read is not known"
        );
    }

    #[test]
    fn only_deliveries_of_requests_that_relaybook_recorded_count() {
        let mut delivery = Delivery::new("", crate::promotion::testing::request_spec("p-uid", 10));
        delivery.metadata.namespace = Some("team-a".into());
        let name = delivery::name(&delivery.spec);
        delivery.metadata.name = Some(name.clone());
        let of = |delivery: &Delivery| Sent::of(delivery, "relaybook-system").map(|(uid, sent)| (uid, sent.serial));
        assert_eq!(of(&delivery), Some(("p-uid".to_owned(), 10)));
        for (what, namespace, name, type_, counts) in [
            ("cluster-wide", "relaybook-system", name.as_str(), TransitionType::PromotionRequested, true),
            ("in the namespace of others", "team-b", &name, TransitionType::PromotionRequested, false),
            ("under another name", "team-a", "web-ci", TransitionType::PromotionRequested, false),
            ("of another transition", "team-a", &name, TransitionType::PromotionFailed, false),
        ] {
            let mut other = delivery.clone();
            (other.metadata.namespace, other.metadata.name) = (Some(namespace.to_owned()), Some(name.to_owned()));
            other.spec.type_ = type_;
            assert_eq!(of(&other).is_some(), counts, "{what}");
        }
    }
}
