//! Checks of notifications with special settings, which the oracle does not know.
//!
//! In: all requests and deliveries, and when Relaybook was killed or disturbed. Out: findings about lanes in which newer
//! deliveries replace older ones, about pipelines that are one lane, about messages that are continued, and about rates.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use relaybook_api::{Delivery, Outcome};
use serde_json::Value;

use crate::crew::Crew;
use crate::load::{How, RATE};
use crate::support::lanes::Lane;
use crate::support::oracle::repeats::is_taken;
use crate::support::oracle::{Expected, Finding, Row, Seen, judge, row};

/// Tolerance of the rate: requests that were delayed and arrive together with later ones.
const LATE: f64 = 3.0;
/// Number of accepted deliveries of a lane after which one of them has continued a message.
const SOME: usize = 5;
/// Time after a change of process in which requests of both processes may arrive.
const CHANGE: Duration = Duration::from_secs(3);
/// Maximum time to record an accepted request, unless the process has ended.
const WRITTEN: Duration = Duration::from_secs(30);

/// Returns a finding that waiting cannot resolve.
pub fn finding(kind: &'static str, text: String) -> Finding {
    Finding { final_: true, kind, text }
}

/// Returns all findings except those of [`ordered`].
pub fn findings(deliveries: &[Delivery], seen: &[Seen], crew: &Crew) -> Vec<Finding> {
    let told = |how: How| seen.iter().filter(move |s| How::of(&s.lane) == Some(how));
    let mut found = Vec::from_iter(paced(told(How::Paced).map(|s| s.at).collect(), crew));
    found.extend(threads(told(How::Threaded), crew));
    found.extend(latest(deliveries, &told(How::Latest).collect::<Vec<_>>(), crew));
    found
}

/// Returns the deliveries that newer ones have replaced, in the lanes that allow it.
pub fn replaced(rows: &[Row]) -> Vec<Row> {
    let rows = rows.iter().filter(|r| How::of(&r.lane) == Some(How::Latest));
    rows.filter(|r| r.step.outcome == Some(Outcome::Superseded)).cloned().collect()
}

/// Finds more requests in some time than the rate allows. Each new process starts with a full burst.
///
/// The requests from one to another are too many if their number is above the bursts and the rate of that time. Both are differences of sums
/// since the beginning, so only the least sum before a request must be known.
fn paced(mut times: Vec<Instant>, crew: &Crew) -> Option<Finding> {
    times.sort();
    let (per_second, burst) = RATE;
    let begin = *times.first()?;
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let changes = |is_before: &dyn Fn(Instant) -> bool| crew.changes.iter().filter(|at| is_before(**at)).count();
    // What is used up, without the bursts of these changes of process.
    let used = |requests: usize, changes: usize, at: Instant| {
        number(requests)
            - f64::from(burst) * number(changes)
            - f64::from(per_second) * at.duration_since(begin).as_secs_f64()
    };
    let mut least: Option<(f64, usize)> = None;
    for (last, at) in times.iter().enumerate() {
        let before = used(last, changes(&|change| change + CHANGE < *at), *at);
        if least.is_none_or(|(least, _)| before < least) {
            least = Some((before, last));
        }
        let (before, first) = least?;
        if used(last + 1, changes(&|change| change <= *at), *at) - before > f64::from(burst) + LATE {
            let (requests, span) = (last + 1 - first, at.duration_since(times[first]).as_secs_f64());
            return Some(finding("order", format!("paced: {requests} requests in {span:.1} s")));
        }
    }
    None
}

/// Finds messages whose text became older, and lanes whose messages were never continued. The request of a process that was frozen can arrive late.
fn threads<'s>(seen: impl Iterator<Item = &'s Seen>, crew: &Crew) -> Vec<Finding> {
    let mut lanes: BTreeMap<Lane, Vec<&Seen>> = BTreeMap::new();
    for seen in seen {
        lanes.entry(seen.lane.clone()).or_default().push(seen);
    }
    let mut found = Vec::new();
    for (lane, mut seen) in lanes {
        seen.sort_by_key(|s| s.at);
        let mut newest: BTreeMap<String, i64> = BTreeMap::new();
        for s in &seen {
            let body: Value = serde_json::from_slice(&s.body).unwrap_or_default();
            let Some(message) = body["continues"].as_str().filter(|message| !message.is_empty()) else { continue };
            let last = newest.entry(message.to_owned()).or_insert(s.serial);
            let is_late = crew.frozen.iter().any(|end| *end <= s.at && s.at <= *end + CHANGE);
            if s.serial < *last && !is_late {
                found.push(finding("order", format!("{lane}: {} replaced a newer text of message {message}", s.what)));
            }
            *last = s.serial.max(*last);
        }
        let sent: BTreeSet<_> =
            seen.iter().filter(|s| s.answered.is_some_and(|(code, _)| is_taken(code))).map(|s| s.serial).collect();
        if newest.is_empty() && sent.len() > SOME {
            found.push(finding("missing", format!("{lane}: none of {} deliveries continued a message", sent.len())));
        }
    }
    found
}

/// Returns the oracle's findings about order, with each pipeline as one lane. `seen` must not contain requests of deliveries
/// that the user has deleted: such a request may have been in flight when the next one was sent.
pub fn ordered(seen: &[Seen]) -> Vec<Finding> {
    let whole = |s: &Seen| {
        let path = s.lane.path.rsplit_once('/').map_or("", |(path, _)| path);
        Seen { lane: Lane { path: format!("{path}/*"), ..s.lane.clone() }, ..s.clone() }
    };
    let mut seen: Vec<_> = seen.iter().filter(|s| How::of(&s.lane) == Some(How::Ordered)).map(whole).collect();
    seen.sort_by_key(|s| s.at);
    let found = judge(&Expected::default(), &seen, &[]);
    found.into_iter().filter(|f| f.kind == "order").collect()
}

/// Checks the lanes in which newer deliveries replace older ones.
fn latest(deliveries: &[Delivery], seen: &[&Seen], crew: &Crew) -> Vec<Finding> {
    let mut lanes: BTreeMap<Lane, Vec<&Delivery>> = BTreeMap::new();
    for delivery in deliveries.iter().filter(|d| How::of(&Lane::of(d)) == Some(How::Latest)) {
        lanes.entry(Lane::of(delivery)).or_default().push(delivery);
    }
    let mut found = Vec::new();
    for (lane, mut deliveries) in lanes {
        deliveries.sort_by_key(|d| (d.spec.order, d.spec.serial));
        let seen: Vec<_> = seen.iter().filter(|s| s.lane == lane).collect();
        for pair in seen.windows(2).filter(|pair| pair[1].serial < pair[0].serial) {
            found.push(finding("order", format!("{lane}: {} came after {}, which is newer", pair[1].what, pair[0].what)));
        }
        let mut due = 0;
        for (place, delivery) in deliveries.iter().enumerate() {
            let (status, row) = (delivery.status.clone().unwrap_or_default(), row(delivery));
            let replaced = status.outcome == Some(Outcome::Superseded);
            if status.outcome.is_some() && !replaced && status.superseded != due {
                let text = format!("{lane}: {} says that it replaces {}, and there are {due}", row.step, status.superseded);
                found.push(finding("audit", text));
            }
            due = if replaced { due + 1 } else { 0 };
            if replaced && place + 1 == deliveries.len() {
                found.push(finding("missing", format!("{lane}: {}, and nothing came after it", row.step)));
            }
            let taken = seen.iter().find(|s| s.serial == row.serial && s.answered.is_some_and(|(code, _)| is_taken(code)));
            if let Some(taken) = taken.filter(|taken| replaced && !is_explained(taken, crew)) {
                found.push(finding("audit", format!("{lane}: {}, although it was taken", taken.what)));
            }
        }
    }
    found
}

/// Whether the process that sent the request may have ended before it recorded that the receiver had accepted it.
fn is_explained(taken: &Seen, crew: &Crew) -> bool {
    let ends = crew.kills.iter().chain(&crew.deposed);
    ends.into_iter().any(|(from, to)| *to >= taken.at && *from <= taken.at + WRITTEN)
}
