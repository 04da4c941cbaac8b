//! The judge: compares what a test expects with what the receivers saw and with what the Delivery objects say.
//!
//! Five kinds of findings: `missing`, `unexpected`, `duplicate`, `order` and `audit`. What may still come right is waited for;
//! what cannot is a failure at once.

pub mod repeats;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Instant;

use pennant::api::{Delivery, Outcome};
use repeats::Repeats;
use serde_json::Value;

use super::lanes::{Lane, Step, what};
use super::receiver::{Receiver, Request};
use super::wait::DEADLINE;
use super::world::{WITNESS, World};

/// One request, as far as it matters here.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its lane.
    pub lane: Lane,
    /// Type and revision.
    pub what: String,
    /// Serial of the change.
    pub serial: i64,
    /// `webhook-id`.
    pub id: String,
    /// Its bytes.
    pub body: Vec<u8>,
    /// When it came.
    pub at: Instant,
    /// What was answered, and when.
    pub answered: Option<(u16, Instant)>,
}

/// One Delivery object, as far as it matters here.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its lane.
    pub lane: Lane,
    /// What it reports, and how it ended.
    pub step: Step,
    /// Serial of the change.
    pub serial: i64,
    /// Its place in the lane.
    pub order: i64,
    /// Requests made.
    pub attempts: i64,
    /// The last answer.
    pub status_code: Option<u16>,
}

/// What a test promises.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The steps of each lane, in order.
    pub lanes: BTreeMap<Lane, Vec<Step>>,
    /// Which requests a lane may repeat after they were taken, or without having written them down.
    pub duplicates: Repeats,
    /// Whether the Delivery objects were deleted, so that only the receivers can tell.
    pub forgotten: bool,
    /// Whether attempts were made that no receiver saw, for it refused the connection.
    pub unseen: bool,
    /// When Pennant went on after it had stood still: an attempt may have run out of time before its request was written.
    pub frozen: Vec<Instant>,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether time cannot mend it.
    pub final_: bool,
    /// `missing`, `unexpected`, `duplicate`, `order` or `audit`.
    pub kind: &'static str,
    /// The lane and what is the matter there.
    pub text: String,
}

/// Collects what is expected, then checks it.
pub struct Oracle<'a> {
    world: &'a World,
    receivers: Vec<&'a Receiver>,
    namespaces: BTreeSet<String>,
    expected: Expected,
}

impl<'a> Oracle<'a> {
    /// For everything that happened in this namespace and at this receiver.
    pub fn new(world: &'a World, receiver: &'a Receiver) -> Self {
        let namespaces = world.namespaces().cloned().collect();
        Self { world, receivers: vec![receiver], namespaces, expected: Expected::default() }
    }

    /// And at this one.
    pub fn and(mut self, receiver: &'a Receiver) -> Self {
        self.receivers.push(receiver);
        self
    }

    /// What is expected in one lane, `PIPELINE/NOTIFICATION/ENVIRONMENT/APP`. In all others: nothing.
    pub fn lane(self, path: &str, steps: &[&str]) -> Self {
        let namespace = self.world.ns.clone();
        self.lane_in(&namespace, path, steps)
    }

    /// The same in another namespace.
    pub fn lane_in(mut self, namespace: &str, path: &str, steps: &[&str]) -> Self {
        let lane = Lane { namespace: namespace.to_owned(), path: path.to_owned() };
        self.namespaces.insert(namespace.to_owned());
        self.expected.lanes.insert(lane, steps.iter().map(|s| Step::new(s)).collect());
        self
    }

    /// Pennant was killed: one request of each lane may have been repeated.
    pub fn after_a_crash(mut self) -> Self {
        self.expected.duplicates = Repeats::AtMost(1);
        self
    }

    /// Pennant was killed so many times: each time one request of each lane may have been repeated.
    pub fn after_crashes(mut self, times: usize) -> Self {
        self.expected.duplicates = Repeats::AtMost(times);
        self
    }

    /// A receiver refused connections: attempts were made that it has not seen.
    pub fn with_attempts_unseen(mut self) -> Self {
        self.expected.unseen = true;
        self
    }

    /// The Delivery objects were deleted: only the receivers can tell.
    pub fn without_audit(mut self) -> Self {
        self.expected.forgotten = true;
        self
    }

    /// Waits until all is as expected; panics with everything that is not.
    pub async fn check(&self) {
        let deadline = Instant::now() + DEADLINE;
        let mut before = Vec::new();
        loop {
            // First what was received: what is sent has been recorded before, so nothing can be seen without its row.
            let mut seen: Vec<_> = self.receivers.iter().flat_map(|r| r.log()).map(|r| seen(&r)).collect();
            // A lane may go from one receiver to another.
            seen.sort_by_key(|seen| seen.at);
            let mut rows = Vec::new();
            for namespace in &self.namespaces {
                rows.extend(self.world.deliveries_in(namespace).await.iter().map(row));
            }
            let findings = judge(&self.expected, &seen, &rows);
            if findings.is_empty() {
                return;
            }
            // Receivers and API server are not read at one moment: what is found for good is found twice.
            let hopeless = findings.iter().any(|f| f.final_ && before.contains(f)) || Instant::now() > deadline;
            assert!(!hopeless, "{}", report(&findings, &seen, &rows));
            before = findings;
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

/// A request as the judge reads it: its body is that of [`super::world::BODY`], or such a text stands in the header of
/// [`super::world::WITNESS`].
pub fn seen(request: &Request) -> Seen {
    let witness = request.headers.get(WITNESS);
    let body: Value = witness.map_or_else(|| request.json(), |text| serde_json::from_str(text).expect("JSON"));
    let field = |name: &str| body[name].as_str().unwrap_or_else(|| panic!("no {name} in {body}")).to_owned();
    let path = format!("{}/{}/{}", field("pipeline"), field("notification"), field("target"));
    assert_eq!(field("id"), request.id(), "the id in the body is that of the header");
    Seen {
        lane: Lane { namespace: field("namespace"), path },
        what: what(&field("type"), &field("revision")),
        serial: field("serial").parse().expect("a number"),
        id: request.id().to_owned(),
        body: request.body.clone(),
        at: request.at,
        answered: request.answered,
    }
}

/// A delivery as the judge reads it.
pub fn row(delivery: &Delivery) -> Row {
    let status = delivery.status.clone().unwrap_or_default();
    let spec = &delivery.spec;
    Row {
        lane: Lane::of(delivery),
        step: Step { what: what(spec.type_.as_str(), &spec.to.revision), outcome: status.outcome },
        serial: spec.serial,
        order: spec.order,
        attempts: status.attempts,
        status_code: status.status_code,
    }
}

/// Everything that is not as expected. Requests in the order in which they came to each receiver; rows in any.
pub fn judge(expected: &Expected, seen: &[Seen], rows: &[Row]) -> Vec<Finding> {
    let lanes: BTreeSet<_> =
        expected.lanes.keys().chain(seen.iter().map(|s| &s.lane)).chain(rows.iter().map(|r| &r.lane)).collect();
    let mut findings = Vec::new();
    for lane in lanes {
        let mut rows: Vec<_> = rows.iter().filter(|r| r.lane == *lane).collect();
        rows.sort_by_key(|r| (r.order, r.serial));
        let mut messages: Vec<Vec<&Seen>> = Vec::new();
        for one in seen.iter().filter(|s| s.lane == *lane) {
            match messages.iter_mut().find(|m| m[0].id == one.id) {
                Some(message) => message.push(one),
                None => messages.push(vec![one]),
            }
        }
        let mut bench = Bench { lane, findings: &mut findings };
        if !lane.is_fence() {
            let none = Vec::new();
            bench.as_expected(expected, expected.lanes.get(lane).unwrap_or(&none), &rows, &messages);
        }
        bench.in_order(&messages);
        bench.no_duplicates(&expected.duplicates, &messages);
        if !expected.forgotten {
            bench.audited(expected, &rows, &messages);
        }
    }
    findings
}

/// Takes down the findings of one lane.
struct Bench<'a> {
    lane: &'a Lane,
    findings: &'a mut Vec<Finding>,
}

impl Bench<'_> {
    fn find(&mut self, final_: bool, kind: &'static str, text: impl std::fmt::Display) {
        self.findings.push(Finding { final_, kind, text: format!("{}: {text}", self.lane) });
    }

    fn as_expected(&mut self, expected: &Expected, steps: &[Step], rows: &[&Row], messages: &[Vec<&Seen>]) {
        let have: Vec<Step> = if expected.forgotten {
            messages.iter().map(|m| Step { what: m[0].what.clone(), outcome: Some(Outcome::Delivered) }).collect()
        } else {
            rows.iter().map(|r| r.step.clone()).collect()
        };
        for (i, step) in steps.iter().enumerate() {
            match have.get(i) {
                Some(one) if one == step => {}
                Some(one) if one.what == step.what => {
                    // What is on its way can still end well; what has ended has ended.
                    self.find(one.outcome.is_some(), "missing", format!("{step}, but there is {one}"));
                }
                Some(one) => return self.find(true, "unexpected", format!("{one} where {step} should be")),
                None => self.find(false, "missing", step),
            }
        }
        for one in have.iter().skip(steps.len()) {
            self.find(true, "unexpected", one);
        }
    }

    fn in_order(&mut self, messages: &[Vec<&Seen>]) {
        for pair in messages.windows(2) {
            let (last, first) = (pair[0][pair[0].len() - 1], pair[1][0]);
            let settled = last.answered.map_or(last.at, |(_, at)| at);
            if first.at < settled {
                self.find(true, "order", format!("{} came before {} was settled", first.what, last.what));
            }
            if first.serial < last.serial {
                self.find(true, "order", format!("{} came after {}, which is newer", first.what, last.what));
            }
        }
    }

    fn no_duplicates(&mut self, forgiven: &Repeats, messages: &[Vec<&Seen>]) {
        for text in repeats::beyond(forgiven, messages) {
            self.find(true, "duplicate", text);
        }
        let mut ids = BTreeMap::new();
        for message in messages {
            if message.iter().any(|s| s.body != message[0].body) {
                self.find(true, "duplicate", format!("{} was repeated with other bytes", message[0].what));
            }
            if ids.insert((message[0].serial, message[0].what.clone()), message[0].id.clone()).is_some() {
                self.find(true, "duplicate", format!("{} came under two ids", message[0].what));
            }
        }
    }

    fn audited(&mut self, expected: &Expected, rows: &[&Row], messages: &[Vec<&Seen>]) {
        for (number, message) in messages.iter().enumerate() {
            let first = message[0];
            let Some(row) = rows.iter().find(|r| r.serial == first.serial && r.step.what == first.what) else {
                self.find(true, "audit", format!("{} was sent and is not recorded", first.what));
                continue;
            };
            let (seen, said) = (message.len(), usize::try_from(row.attempts).unwrap_or(0));
            let unwritten = repeats::unwritten(&expected.duplicates, message);
            let before = number.checked_sub(1).map(|n| messages[n].as_slice());
            let too_few = seen + repeats::unseen(&expected.frozen, before, message) < said && !expected.unseen;
            if too_few || seen > said + unwritten {
                self.find(too_few, "audit", format!("{}: {said} attempts audited, {seen} seen", first.what));
            }
            let answer = message[message.len() - 1].answered.map(|(status, _)| status);
            let delivered = answer.is_some_and(repeats::is_taken);
            if row.step.outcome.is_some() && (row.step.outcome == Some(Outcome::Delivered)) != delivered {
                self.find(true, "audit", format!("{} although {answer:?} was answered", row.step));
            }
            if row.step.outcome.is_some() && row.status_code != answer {
                let code = row.status_code;
                self.find(true, "audit", format!("{}: code {code:?}, but {answer:?} was answered", first.what));
            }
        }
        for row in rows.iter().filter(|r| r.attempts > 0 && !expected.unseen) {
            if !messages.iter().any(|m| m[0].serial == row.serial && m[0].what == row.step.what) {
                self.find(false, "audit", format!("{}: {} attempts audited, none seen", row.step, row.attempts));
            }
        }
    }
}

fn report(findings: &[Finding], seen: &[Seen], rows: &[Row]) -> String {
    let mut text = "not as expected\n".to_owned();
    for f in findings {
        let _ = writeln!(text, "  {:<11} {}", f.kind, f.text);
    }
    let begin = seen.iter().map(|s| s.at).min();
    text += "requests\n";
    for s in seen {
        let after = begin.map_or(0, |b| (s.at - b).as_millis());
        let code = s.answered.map_or("none".to_owned(), |(status, _)| status.to_string());
        let _ = writeln!(text, "  {after:>6} ms  {code:<4} {:<40} {:<20} {}", s.lane.path, s.what, s.id);
    }
    text += "deliveries\n";
    for r in rows {
        let (code, attempts) = (r.status_code.map_or("none".to_owned(), |c| c.to_string()), r.attempts);
        let _ =
            writeln!(text, "  {} {code:<4} {:<40} {:<30} attempts {attempts}", r.serial, r.lane.path, r.step.to_string());
    }
    text
}
