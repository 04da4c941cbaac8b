//! Which deliveries are asked for: what the API server can select, and what is left to us. Pure.

use super::Row;
use crate::api::{Outcome, Time};

/// Which deliveries are asked for; what is absent selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this pipeline.
    pub pipeline: Option<String>,
    /// Of this notification.
    pub notification: Option<String>,
    /// With labels that a selector selects, as for `kubectl -l`.
    pub selector: Option<String>,
    /// That stand so.
    pub state: Option<Wanted>,
    /// To which something has happened since.
    pub since: Option<Time>,
}

/// How a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Not settled yet.
    Pending,
    /// Settled so.
    Settled(Outcome),
}

impl Wanted {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Settled(Outcome::Delivered),
        Self::Settled(Outcome::Parked),
        Self::Settled(Outcome::Canceled),
        Self::Settled(Outcome::Superseded),
    ];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Settled(outcome) => outcome.as_str(),
        }
    }
}

impl Filter {
    /// What the API server selects by the labels of deliveries.
    #[must_use]
    pub fn labels(&self) -> String {
        let label = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("pennant.dev/{name}={value}"));
        let both = [label("pipeline", &self.pipeline), label("notification", &self.notification)];
        let selector = self.selector.clone().filter(|selector| !selector.trim().is_empty());
        both.into_iter().flatten().chain(selector).collect::<Vec<_>>().join(",")
    }

    /// What the API server selects by the fields of deliveries. One without an outcome has an empty one there.
    #[must_use]
    pub fn fields(&self) -> String {
        match self.state {
            None => String::new(),
            Some(Wanted::Pending) => "status.outcome=".to_owned(),
            Some(Wanted::Settled(outcome)) => format!("status.outcome={}", outcome.as_str()),
        }
    }

    /// Whether a row is asked for: in a watch one can change under way, and times are not selected by the API server.
    #[must_use]
    pub fn takes(&self, row: &Row) -> bool {
        let state = match self.state {
            None => true,
            Some(Wanted::Pending) => row.outcome.is_none(),
            Some(Wanted::Settled(outcome)) => row.outcome == Some(outcome),
        };
        state && self.since.is_none_or(|since| row.last().is_some_and(|last| last >= since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Delivery, DeliveryStatus};

    fn row(outcome: Option<Outcome>, recorded: i64, settled: Option<i64>) -> Row {
        let at = |second| Time::from_second(second).unwrap();
        let mut delivery = Delivery::new("d", crate::outbox::testing::spec(1));
        delivery.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(recorded)));
        delivery.status = Some(DeliveryStatus { outcome, settled_time: settled.map(at), ..DeliveryStatus::default() });
        delivery.into()
    }

    #[test]
    fn rows_are_taken_by_state_and_time() {
        let pending = row(None, 100, None);
        let delivered = row(Some(Outcome::Delivered), 100, Some(200));
        let since = |second| Filter { since: Some(Time::from_second(second).unwrap()), ..Filter::default() };
        let state = |state| Filter { state: Some(state), ..Filter::default() };
        for (filter, takes) in [
            (Filter::default(), [true, true]),
            (state(Wanted::Pending), [true, false]),
            (state(Wanted::Settled(Outcome::Delivered)), [false, true]),
            (state(Wanted::Settled(Outcome::Parked)), [false, false]),
            (since(100), [true, true]),
            (since(150), [false, true]),
            (since(201), [false, false]),
        ] {
            assert_eq!([filter.takes(&pending), filter.takes(&delivered)], takes, "{filter:?}");
        }
    }

    #[test]
    fn the_api_server_selects_what_it_can() {
        let filter = Filter {
            selector: Some("team in (a,b)".to_owned()),
            pipeline: Some("shop".to_owned()),
            notification: Some("chat".to_owned()),
            state: Some(Wanted::Settled(Outcome::Parked)),
            since: None,
        };
        assert_eq!(filter.labels(), "pennant.dev/pipeline=shop,pennant.dev/notification=chat,team in (a,b)");
        assert_eq!((filter.fields().as_str(), Filter::default().labels().as_str()), ("status.outcome=Parked", ""));
    }
}
