//! The success and the latency of a notification over time. Pure.

use relaybook_api::{Outcome, Time};
use relaybook_tools::audit::Row;

/// Number of columns of the chart.
pub(crate) const COLUMNS: usize = 24;

/// What happened in one part of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) start: Time,
    pub(crate) end: Time,
    pub(crate) delivered: usize,
    pub(crate) parked: usize,
    /// Durations of the last requests, sorted, in milliseconds.
    durations: Vec<i64>,
}

/// Figures of some deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) delivered: usize,
    pub(crate) parked: usize,
    pub(crate) pending: usize,
    /// Those of the pending deliveries that have failed at least once.
    pub(crate) failing: usize,
    /// Deliveries whose last answer was 429.
    pub(crate) throttled: usize,
    durations: Vec<i64>,
}

impl Figures {
    /// Counts these deliveries.
    pub(crate) fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut figures = Self::default();
        rows.for_each(|row| figures.add(row));
        figures.durations.sort_unstable();
        figures
    }

    fn add(&mut self, row: &Row) {
        match row.outcome {
            Some(Outcome::Delivered) => self.delivered += 1,
            Some(Outcome::Parked) => self.parked += 1,
            Some(Outcome::Canceled | Outcome::Superseded) => {}
            None => {
                self.pending += 1;
                self.failing += usize::from(row.attempts > 0);
            }
        }
        self.throttled += usize::from(row.code == Some(429));
        self.durations.extend(row.duration_millis);
    }

    /// Returns the percentile of the durations, in milliseconds.
    pub(crate) fn percentile(&self, percent: usize) -> Option<i64> {
        percentile(&self.durations, percent)
    }
}

/// Returns the part that was delivered, in words. It is never rounded up to 100 %.
pub(crate) fn success(delivered: usize, parked: usize) -> Option<String> {
    let all = delivered + parked;
    match (all, parked) {
        (0, _) => None,
        (_, 0) => Some("100 %".to_owned()),
        _ => {
            let tenths = delivered * 1000 / all;
            Some(format!("{}.{} %", tenths / 10, tenths % 10))
        }
    }
}

fn percentile(sorted: &[i64], percent: usize) -> Option<i64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1).min(last)).copied()
}

impl Column {
    /// Returns the percentile of the durations, in milliseconds.
    pub(crate) fn percentile(&self, percent: usize) -> Option<i64> {
        percentile(&self.durations, percent)
    }
}

/// Divides the time of these deliveries into columns. Empty if none was settled.
pub(crate) fn columns(rows: &[&Row], now: Time) -> Vec<Column> {
    let settled: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row.settled?.as_millisecond(), *row)))
        .filter(|(_, row)| matches!(row.outcome, Some(Outcome::Delivered | Outcome::Parked)))
        .collect();
    let Some(first) = settled.iter().map(|(at, _)| *at).min() else { return Vec::new() };
    let count = i64::try_from(COLUMNS).unwrap_or(1);
    let width = ((now.as_millisecond() - first) / count + 1).max(1000);
    let at = |index: i64| Time::from_millisecond(first + index * width).unwrap_or(now);
    let mut columns: Vec<_> =
        (0..count).map(|index| Column { start: at(index), end: at(index + 1), ..Column::default() }).collect();
    for (time, row) in settled {
        let index = usize::try_from((time - first) / width).unwrap_or(0).min(COLUMNS - 1);
        let column = &mut columns[index];
        match row.outcome {
            Some(Outcome::Delivered) => column.delivered += 1,
            _ => column.parked += 1,
        }
        column.durations.extend(row.duration_millis);
    }
    for column in &mut columns {
        column.durations.sort_unstable();
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::{Delivery, DeliveryStatus};

    fn row(outcome: Option<Outcome>, second: i64, took: i64, code: u16) -> Row {
        let mut delivery = Delivery::new("d", relaybook_api::testing::spec(1));
        let settled_time = outcome.map(|_| Time::from_second(second).unwrap());
        delivery.status = Some(DeliveryStatus {
            outcome,
            settled_time,
            last_duration_millis: Some(took),
            status_code: Some(code),
            ..DeliveryStatus::default()
        });
        delivery.into()
    }

    #[test]
    fn a_single_failure_is_never_rounded_away() {
        for (delivered, parked, words) in
            [(0, 0, None), (3, 0, Some("100 %")), (9999, 1, Some("99.9 %")), (1, 1, Some("50.0 %")), (0, 2, Some("0.0 %"))]
        {
            assert_eq!(success(delivered, parked).as_deref(), words);
        }
    }

    #[test]
    fn figures_and_chart_columns_count_the_same_deliveries() {
        let rows = [
            row(Some(Outcome::Delivered), 1000, 10, 200),
            row(Some(Outcome::Delivered), 1500, 30, 200),
            row(Some(Outcome::Parked), 2000, 20, 400),
            row(None, 0, 5, 429),
        ];
        let figures = Figures::of(rows.iter());
        assert_eq!((figures.delivered, figures.parked, figures.pending, figures.throttled), (2, 1, 1, 1));
        assert_eq!((figures.percentile(50), figures.percentile(99)), (Some(10), Some(30)));
        let columns = columns(&rows.iter().collect::<Vec<_>>(), Time::from_second(2200).unwrap());
        assert_eq!(columns.len(), COLUMNS);
        assert_eq!(columns.iter().map(|column| column.delivered + column.parked).sum::<usize>(), 3);
        assert_eq!((columns[0].delivered, columns[0].percentile(99)), (1, Some(10)));
        assert!(columns.last().unwrap().end.as_second() >= 2200);
        assert_eq!(super::columns(&[], Time::UNIX_EPOCH), Vec::new());
    }
}
