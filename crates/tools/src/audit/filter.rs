//! Selects deliveries: by labels and fields at the API server, and by state and time in this process. Pure.

use kube::api::ListParams;

use super::Row;
use relaybook_api::GROUP;
use relaybook_api::delivery::{PIPELINE_NAMESPACE, TEST_LABEL};
use relaybook_api::{Outcome, Time};

/// A selection of deliveries. An absent field selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Name of the pipeline.
    pub pipeline: Option<String>,
    /// Name of the notification.
    pub notification: Option<String>,
    /// Label selector, as for `kubectl -l`.
    pub selector: Option<String>,
    /// The state.
    pub state: Option<StateFilter>,
    /// Minimum time of the last event; see [`Row::last`].
    pub since: Option<Time>,
    /// Also those that record tests.
    pub tests: bool,
}

/// The state of the deliveries to select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFilter {
    /// Not settled yet.
    Pending,
    /// Settled with this outcome.
    Settled(Outcome),
}

impl StateFilter {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Settled(Outcome::Delivered),
        Self::Settled(Outcome::Parked),
        Self::Settled(Outcome::Canceled),
        Self::Settled(Outcome::Superseded),
    ];

    /// Returns the name of the state.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Settled(outcome) => outcome.as_str(),
        }
    }
}

impl Filter {
    /// Selects only deliveries about the pipelines of a namespace, wherever they are recorded. Replaces an earlier selector.
    #[must_use]
    pub fn about_pipelines_in(self, namespace: &str) -> Self {
        Self { selector: Some(format!("{PIPELINE_NAMESPACE}={namespace}")), ..self }
    }

    /// Returns the label selector for the API server.
    #[must_use]
    pub fn labels(&self) -> String {
        let label = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{GROUP}/{name}={value}"));
        let both = [label("pipeline", &self.pipeline), label("notification", &self.notification)];
        let selector = self.selector.clone().filter(|selector| !selector.trim().is_empty());
        let no_tests = (!self.tests).then(|| format!("!{TEST_LABEL}"));
        both.into_iter().flatten().chain(selector).chain(no_tests).collect::<Vec<_>>().join(",")
    }

    /// Returns the field selector for the API server. A delivery without an outcome has an empty value there.
    #[must_use]
    pub fn fields(&self) -> String {
        match self.state {
            None => String::new(),
            Some(StateFilter::Pending) => "status.outcome=".to_owned(),
            Some(StateFilter::Settled(outcome)) => format!("status.outcome={}", outcome.as_str()),
        }
    }

    /// Returns the parameters of a list with pages of this size.
    pub(super) fn params(&self, limit: u32) -> ListParams {
        let fields = Some(self.fields()).filter(|fields| !fields.is_empty());
        ListParams { field_selector: fields, ..ListParams::default().limit(limit).labels(&self.labels()) }
    }

    /// Whether the filter selects this row by state and time. Labels are not checked. The API server cannot select by time. It does not
    /// select by state in a watch ([`super::changes`]), because the state of a delivery can change during the watch.
    #[must_use]
    pub fn matches(&self, row: &Row) -> bool {
        let state = match self.state {
            None => true,
            Some(StateFilter::Pending) => row.outcome.is_none(),
            Some(StateFilter::Settled(outcome)) => row.outcome == Some(outcome),
        };
        state && self.since.is_none_or(|since| row.last().is_some_and(|last| last >= since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::{Delivery, DeliveryStatus};

    fn row(outcome: Option<Outcome>, recorded: i64, settled: Option<i64>) -> Row {
        let at = |second| Time::from_second(second).unwrap();
        let mut delivery = Delivery::new("d", relaybook_api::testing::spec(1));
        delivery.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(recorded)));
        delivery.status = Some(DeliveryStatus { outcome, settled_time: settled.map(at), ..DeliveryStatus::default() });
        delivery.into()
    }

    #[test]
    fn rows_are_selected_by_state_and_time() {
        let pending = row(None, 100, None);
        let delivered = row(Some(Outcome::Delivered), 100, Some(200));
        let since = |second| Filter { since: Some(Time::from_second(second).unwrap()), ..Filter::default() };
        let state = |state| Filter { state: Some(state), ..Filter::default() };
        for (filter, expected) in [
            (Filter::default(), [true, true]),
            (state(StateFilter::Pending), [true, false]),
            (state(StateFilter::Settled(Outcome::Delivered)), [false, true]),
            (state(StateFilter::Settled(Outcome::Parked)), [false, false]),
            (since(100), [true, true]),
            (since(150), [false, true]),
            (since(201), [false, false]),
        ] {
            assert_eq!([filter.matches(&pending), filter.matches(&delivered)], expected, "{filter:?}");
        }
    }

    #[test]
    fn the_api_server_selects_what_it_can() {
        let filter = Filter {
            selector: Some("team in (a,b)".to_owned()),
            pipeline: Some("shop".to_owned()),
            notification: Some("chat".to_owned()),
            state: Some(StateFilter::Settled(Outcome::Parked)),
            since: None,
            tests: true,
        };
        assert_eq!(filter.labels(), "relaybook.dev/pipeline=shop,relaybook.dev/notification=chat,team in (a,b)");
        let all = Filter::default();
        assert_eq!((filter.fields().as_str(), all.labels().as_str()), ("status.outcome=Parked", "!relaybook.dev/test"));
    }
}
