//! The oracle: compares what a test expects with the requests that the receivers saw and with the Delivery objects.
//!
//! Five kinds of findings: `missing`, `unexpected`, `duplicate`, `order` and `audit`. The oracle waits while a finding can still
//! resolve; a final finding fails the test at once.

pub mod promotions;
pub mod repeats;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Instant;

use kube::api::ListParams;
use relaybook_api::{Delivery, Outcome, Pipeline, Promotion};
use repeats::Repeats;
use serde_json::Value;

use super::lanes::{Lane, PROMOTION, Step, what};
use super::receiver::{Receiver, Request};
use super::wait::DEADLINE;
use super::world::{WITNESS, World};

/// The part of a request that the oracle compares.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its lane.
    pub lane: Lane,
    /// Type and revision, such as `Deployed 2`.
    pub what: String,
    /// Serial of the change.
    pub serial: i64,
    /// The `webhook-id` header.
    pub id: String,
    /// Its body.
    pub body: Vec<u8>,
    /// Time of arrival.
    pub at: Instant,
    /// Status code and time of the answer.
    pub answered: Option<(u16, Instant)>,
}

/// The part of a Delivery object that the oracle compares.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its lane.
    pub lane: Lane,
    /// Its transition and outcome.
    pub step: Step,
    /// Serial of the change.
    pub serial: i64,
    /// Its position in the lane.
    pub order: i64,
    /// Number of requests made.
    pub attempts: i64,
    /// Status code of the last answer.
    pub status_code: Option<u16>,
    /// Whether changes were merged before it was recorded.
    pub coalesced: bool,
}

/// What a test expects.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The steps of each lane, in order.
    pub lanes: BTreeMap<Lane, Vec<Step>>,
    /// Which requests a lane may repeat although they were answered finally, or make without recording them.
    pub duplicates: Repeats,
    /// Whether the Delivery objects were deleted, so that only the receivers' logs can be compared.
    pub forgotten: bool,
    /// Whether attempts were made that no receiver saw, because it refused the connection.
    pub unseen: bool,
    /// When Relaybook resumed after SIGSTOP: an attempt may have timed out before its request was written.
    pub frozen: Vec<Instant>,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether the finding is final: waiting cannot resolve it.
    pub final_: bool,
    /// `missing`, `unexpected`, `duplicate`, `order` or `audit`.
    pub kind: &'static str,
    /// The lane and the problem.
    pub text: String,
}

/// Collects the expectations of a test, then checks them.
pub struct Oracle<'a> {
    world: &'a World,
    receivers: Vec<&'a Receiver>,
    namespaces: BTreeSet<String>,
    expected: Expected,
    promotions: Vec<promotions::Expected>,
}

impl<'a> Oracle<'a> {
    /// Creates an oracle for everything in this namespace and at this receiver.
    pub fn new(world: &'a World, receiver: &'a Receiver) -> Self {
        let namespaces = world.namespaces().cloned().collect();
        Self { world, receivers: vec![receiver], namespaces, expected: Expected::default(), promotions: Vec::new() }
    }

    /// Adds a receiver.
    pub fn and(mut self, receiver: &'a Receiver) -> Self {
        self.receivers.push(receiver);
        self
    }

    /// Expects these steps in one lane, `PIPELINE/NOTIFICATION/ENVIRONMENT/APP`. All lanes without steps must be empty.
    pub fn lane(self, path: &str, steps: &[&str]) -> Self {
        let namespace = self.world.ns.clone();
        self.lane_in(&namespace, path, steps)
    }

    /// Expects these steps in a lane of another namespace.
    pub fn lane_in(mut self, namespace: &str, path: &str, steps: &[&str]) -> Self {
        let lane = Lane { namespace: namespace.to_owned(), path: path.to_owned() };
        self.namespaces.insert(namespace.to_owned());
        self.expected.lanes.insert(lane, steps.iter().map(|s| Step::new(s)).collect());
        self
    }

    /// Expects exactly these promotions of a pipeline, each as `ENVIRONMENT REVISION: STEP, STEP`, and the deliveries of their steps by each
    /// of these notifications. [`promotions`] describes the lines.
    pub fn promotions(mut self, pipeline: &str, notifications: &[&str], lines: &[&str]) -> Self {
        self.promotions.push(promotions::Expected::new(&self.world.ns, pipeline, notifications, lines));
        self
    }

    /// Expects that the promotions of a pipeline fit together, whichever they are, and the deliveries of their steps.
    pub fn any_promotions(mut self, pipeline: &str, notifications: &[&str]) -> Self {
        self.promotions.push(promotions::Expected::any(&self.world.ns, pipeline, notifications));
        self
    }

    /// Allows one repeated request in each lane, because Relaybook was killed.
    pub fn after_a_crash(mut self) -> Self {
        self.expected.duplicates = Repeats::AtMost(1);
        self
    }

    /// Allows as many repeated requests in each lane as Relaybook was killed.
    pub fn after_crashes(mut self, times: usize) -> Self {
        self.expected.duplicates = Repeats::AtMost(times);
        self
    }

    /// Allows attempts that no receiver saw, because one refused connections.
    pub fn with_attempts_unseen(mut self) -> Self {
        self.expected.unseen = true;
        self
    }

    /// Ignores the Delivery objects, because they were deleted, and compares the receivers' logs only.
    pub fn without_audit(mut self) -> Self {
        self.expected.forgotten = true;
        self
    }

    /// Waits until everything is as expected; panics with all findings otherwise.
    pub async fn check(&self) {
        let deadline = Instant::now() + DEADLINE;
        let mut before = Vec::new();
        loop {
            // Requests are read first. A delivery that is sent at once has its row only after the answer, so a missing row is not final.
            let mut seen: Vec<_> = self.receivers.iter().flat_map(|r| r.log()).filter(is_real).map(|r| seen(&r)).collect();
            // A lane may move from one receiver to another.
            seen.sort_by_key(|seen| seen.at);
            let mut deliveries = Vec::new();
            for namespace in &self.namespaces {
                deliveries.extend(self.world.deliveries_in(namespace).await);
            }
            let rows: Vec<_> = deliveries.iter().filter(|delivery| !delivery.spec.test).map(row).collect();
            let (lanes, of_promotions) = self.judge_promotions(&deliveries).await;
            let mut expected = self.expected.clone();
            expected.lanes.extend(lanes);
            let mut findings = judge(&expected, &seen, &rows);
            findings.extend(of_promotions);
            if findings.is_empty() {
                return;
            }
            // Receivers and API server are not read at the same time, so a final finding counts only if it is found twice.
            let hopeless = findings.iter().any(|f| f.final_ && before.contains(f)) || Instant::now() > deadline;
            assert!(!hopeless, "{}", report(&findings, &seen, &rows));
            before = findings;
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Returns the lanes that the promotions cause, and the findings about the promotions. Without expectations nothing is read.
    async fn judge_promotions(&self, deliveries: &[Delivery]) -> (BTreeMap<Lane, Vec<Step>>, Vec<Finding>) {
        let (mut lanes, mut findings) = (BTreeMap::new(), Vec::new());
        if self.promotions.is_empty() {
            return (lanes, findings);
        }
        let all = self.world.api::<Promotion>().list(&ListParams::default()).await.expect("listed").items;
        for expected in &self.promotions {
            let pipeline = self.world.api::<Pipeline>().get_opt(expected.pipeline()).await.expect("answered");
            lanes.extend(expected.lanes(&all));
            findings.extend(expected.judge(&all, pipeline.as_ref(), deliveries));
        }
        (lanes, findings)
    }
}

/// Whether a request is no test. A test is in no order and no count.
pub fn is_real(request: &Request) -> bool {
    !request.headers.contains_key("relaybook-test")
}

/// Converts a request. The fields are in its body, which [`super::world::BODY`] has rendered, or in the header
/// [`super::world::WITNESS`].
pub fn seen(request: &Request) -> Seen {
    let witness = request.headers.get(WITNESS);
    let body: Value = witness.map_or_else(|| request.json(), |text| serde_json::from_str(text).expect("JSON"));
    let field = |name: &str| body[name].as_str().unwrap_or_else(|| panic!("no {name} in {body}")).to_owned();
    let lane = if field("type").starts_with("Promotion") { PROMOTION } else { "" };
    let path = format!("{}/{}/{}{lane}", field("pipeline"), field("notification"), field("target"));
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

/// Converts a delivery.
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
        coalesced: spec.coalesced,
    }
}

/// Returns all findings. The requests must be in the order of their arrival at each receiver; rows may be in any order.
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

/// Collects the findings of one lane.
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
                    // A pending delivery can still reach the expected outcome; a settled one cannot.
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
                self.find(false, "audit", format!("{} was sent and is not recorded", first.what));
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
        let merged = if r.coalesced { ", coalesced" } else { "" };
        let (lane, step) = (&r.lane.path, r.step.to_string());
        let _ = writeln!(text, "  {} {code:<4} {lane:<40} {step:<30} attempts {attempts}{merged}", r.serial);
    }
    text
}
