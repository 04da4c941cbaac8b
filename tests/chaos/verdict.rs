//! The verdict on a run, from the API server and the receivers only.
//!
//! In: the expected steps of every lane, when Relaybook was killed, what the user has deleted, the Delivery objects, the logs of
//! the receivers. Out: findings, and the figures of the report. Relaybook's own counts are not used; they are compared with the
//! objects that exist.
//!
//! Deliveries that the user has deleted are ignored, with their requests: such a delivery may have been in flight, and after
//! a crash it may have been recorded again. Deliveries that newer ones have replaced, in lanes that allow it, are ignored
//! here, too; [`special`] checks them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use kube::api::ListParams;
use relaybook_api::{Delivery, Notification, Outcome, Pipeline};

use crate::crew::Crew;
use crate::load::{ELSEWHERE, How, Load, PATIENCE, insist};
use crate::person::Person;
use crate::receiver::Receiver;
use crate::script::REFUSALS;
use crate::special;
use crate::support::World;
use crate::support::lanes::{Lane, Step};
use crate::support::oracle::repeats::{Repeats, beyond, is_taken, repeated};
use crate::support::oracle::{Expected, Finding, Row, Seen, is_real, judge, row, seen};
use crate::tested;

/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(500);

/// Everything that is known at one time.
pub struct Evidence {
    /// The expected steps of every lane.
    pub lanes: Lanes,
    /// The Delivery objects.
    pub rows: Vec<Row>,
    /// The requests, in order of arrival at each receiver.
    pub seen: Vec<Seen>,
    /// All findings.
    pub findings: Vec<Finding>,
}

/// Figures of the report.
pub struct Figures {
    /// Number of Delivery objects.
    pub recorded: usize,
    /// Number of messages that a receiver accepted.
    pub delivered: usize,
    /// Number of messages that a receiver refused finally.
    pub parked: usize,
    /// Number of expected transitions that their receiver neither accepted nor refused finally.
    pub missing: usize,
    /// Number of requests that were repeated after a final answer.
    pub duplicates: usize,
}

/// The expected steps of each lane.
type Lanes = BTreeMap<Lane, Vec<Step>>;

/// Waits until every cursor is at the end of its log and every delivery is settled, and until there are no findings or the
/// findings no longer change.
pub async fn settle(world: &World, load: &Load, crew: &Crew, person: &Person) -> Evidence {
    let expected =
        Expected { duplicates: Repeats::Across(crew.interruptions()), frozen: crew.frozen.clone(), ..Expected::default() };
    let mut deadline = Instant::now() + *PATIENCE;
    let (mut before, mut fewest) = (None, usize::MAX);
    loop {
        let evidence = collect(world, load, &expected, crew, person).await;
        let texts: Vec<_> = evidence.findings.iter().map(|f| f.text.clone()).collect();
        // Pending deliveries may change the findings. Findings that are equal twice in a row, with nothing pending, are final.
        let pending = evidence.rows.iter().filter(|r| r.step.outcome.is_none()).count();
        if pending < fewest {
            // After a long run, a notification with a limited rate needs its time.
            (fewest, deadline) = (pending, Instant::now() + *PATIENCE);
        }
        let at_rest = pending == 0 && taken(world).await;
        let done = at_rest && (texts.is_empty() || before.as_ref() == Some(&texts));
        if done || Instant::now() > deadline {
            return evidence;
        }
        before = at_rest.then_some(texts);
        tokio::time::sleep(LOOK).await;
    }
}

async fn collect(world: &World, load: &Load, expected: &Expected, crew: &Crew, person: &Person) -> Evidence {
    // Requests are read first: each is recorded before it is sent, so no request can be seen without its row.
    let (requests, of_tests): (Vec<_>, Vec<_>) = load.receivers.iter().flat_map(Receiver::log).partition(is_real);
    let followed = requests.iter().filter(|r| r.path.starts_with(ELSEWHERE)).map(|r| Finding {
        final_: true,
        kind: "unexpected",
        text: format!("a redirect was followed: {}", r.id()),
    });
    let mut findings: Vec<_> = followed.collect();
    let mut seen: Vec<_> = requests.iter().filter(|r| !r.path.starts_with(ELSEWHERE)).map(seen).collect();
    let (tests, deliveries): (Vec<_>, Vec<_>) = list(world).await.into_iter().partition(|d| d.spec.test);
    findings.extend(tested::judge(&of_tests, &seen, &tests));
    let mut rows: Vec<_> = deliveries.iter().map(row).collect();
    let there: BTreeSet<_> = deliveries.iter().filter_map(Delivery::uid).collect();
    let mut gone: Vec<_> =
        person.deleted.iter().filter(|d| d.uid().is_none_or(|uid| !there.contains(&uid))).map(row).collect();
    findings.extend(special::findings(&deliveries, &seen, crew));
    gone.extend(special::replaced(&rows));
    // The newest first: removing it does not change the positions of the others.
    gone.sort_by_key(|one| std::cmp::Reverse(one.serial));
    let mut lanes = load.expected();
    for one in &gone {
        strike(&mut lanes, one, &rows, &gone);
    }
    let is_gone = |lane: &Lane, serial: i64, what: &str| {
        gone.iter().any(|one| one.serial == serial && one.step.what == what && one.lane == *lane)
    };
    rows.retain(|r| !is_gone(&r.lane, r.serial, &r.step.what));
    seen.retain(|s| !is_gone(&s.lane, s.serial, &s.what));
    findings.extend(special::ordered(&seen));
    for fickle in [false, true] {
        let of = |lane: &Lane| (How::of(lane) == Some(How::Fickle)) == fickle;
        let lanes = lanes.iter().filter(|(lane, _)| of(lane)).map(|(lane, steps)| (lane.clone(), steps.clone())).collect();
        let expected = Expected { lanes, unseen: fickle, ..expected.clone() };
        let rows: Vec<_> = rows.iter().filter(|r| of(&r.lane)).cloned().collect();
        let seen: Vec<_> = seen.iter().filter(|s| of(&s.lane)).cloned().collect();
        let late = written_late(crew, &seen, &rows);
        let mut found = judge(&expected, &seen, &rows);
        found.retain(|f| f.kind != "audit" || !late.iter().any(|text| f.text.starts_with(text)));
        findings.extend(found);
    }
    findings.extend(refused_twice(&expected.duplicates, &seen));
    Evidence { lanes, rows, seen, findings }
}

/// Removes the step of a deleted delivery from its lane. Among equal steps, it is the one at the same position.
fn strike(lanes: &mut Lanes, one: &Row, rows: &[Row], gone: &[Row]) {
    let same = |r: &&Row| r.lane == one.lane && r.step.what == one.step.what;
    let earlier: BTreeSet<_> = rows.iter().chain(gone).filter(same).map(|r| r.serial).filter(|s| *s < one.serial).collect();
    let steps = lanes.entry(one.lane.clone()).or_default();
    let place = steps.iter().enumerate().filter(|(_, step)| step.what == one.step.what).nth(earlier.len());
    if let Some((place, _)) = place {
        steps.remove(place);
    }
}

/// Returns the beginnings of audit findings to ignore. A process was killed while its write was in flight, and the write was
/// applied after the next process had listed the deliveries. So the message was sent again, and the audit contains the
/// result of the earlier request, which is correct.
pub fn written_late(crew: &Crew, seen: &[Seen], rows: &[Row]) -> Vec<String> {
    let mut texts = Vec::new();
    for row in rows {
        let message: Vec<_> = seen.iter().filter(|s| s.lane == row.lane && s.serial == row.serial).collect();
        let ends = |one: &Seen, next: &Seen| crew.kills.iter().any(|(killed, back)| *back >= one.at && *killed <= next.at);
        let told = |one: &Seen| one.answered.map(|(code, _)| code) == row.status_code;
        let late = row.status_code.is_some() && message.windows(2).any(|pair| told(pair[0]) && ends(pair[0], pair[1]));
        if late {
            let what = &row.step.what;
            texts.extend([format!("{}: {} although", row.lane, row.step), format!("{}: {what}: code", row.lane)]);
        }
    }
    texts
}

/// Finds requests that were repeated after a final refusal without a kill that explains it. The oracle only knows 2xx and 400.
fn refused_twice(forgiven: &Repeats, seen: &[Seen]) -> Vec<Finding> {
    let others = |s: &&Seen| s.answered.is_none_or(|(code, _)| !is_taken(code) && code != 400);
    let as_400 = |s: &Seen| Seen {
        answered: s.answered.map(|(code, at)| (if REFUSALS.contains(&code) { 400 } else { 500 }, at)),
        ..s.clone()
    };
    let mut lanes: BTreeMap<Lane, BTreeMap<String, Vec<Seen>>> = BTreeMap::new();
    for one in seen.iter().filter(others) {
        lanes.entry(one.lane.clone()).or_default().entry(one.id.clone()).or_default().push(as_400(one));
    }
    let found = lanes.iter().flat_map(|(lane, messages)| {
        let messages: Vec<Vec<_>> = messages.values().map(|m| m.iter().collect()).collect();
        let texts = beyond(forgiven, &messages).into_iter();
        texts.map(move |text| Finding { final_: true, kind: "duplicate", text: format!("{lane}: {text}") })
    });
    found.collect()
}

async fn list(world: &World) -> Vec<Delivery> {
    insist(async || world.api::<Delivery>().list(&ListParams::default()).await).await.items
}

/// Whether every cursor is at the end of its log.
pub async fn taken(world: &World) -> bool {
    let pipelines = insist(async || world.api::<Pipeline>().list(&ListParams::default()).await).await;
    pipelines.into_iter().filter_map(|p| p.status).all(|status| {
        let serial = status.log.unwrap_or_default().serial;
        status.dispatched.unwrap_or_default().cursors.iter().all(|c| c.serial >= serial)
    })
}

/// Waits until the counts in the status of each notification are right, and returns those that are not.
pub async fn counts(world: &World) -> Vec<String> {
    let deadline = Instant::now() + *PATIENCE;
    loop {
        let rows = list(world).await;
        let notifications = insist(async || world.api::<Notification>().list(&ListParams::default()).await).await;
        let wrong: Vec<_> = notifications.iter().filter_map(|n| miscounted(n, &rows)).collect();
        if wrong.is_empty() || Instant::now() > deadline {
            return wrong;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn miscounted(notification: &Notification, rows: &[Delivery]) -> Option<String> {
    let name = notification.metadata.name.as_deref()?;
    let outcome = |d: &Delivery| d.status.as_ref().and_then(|s| s.outcome);
    let count = |of: Option<Outcome>| {
        let all = rows.iter().filter(|d| !d.spec.test && d.spec.notification == name && outcome(d) == of).count();
        i64::try_from(all).unwrap_or(i64::MAX)
    };
    let there = [count(None), count(Some(Outcome::Delivered)), count(Some(Outcome::Parked))];
    let status = notification.status.clone().unwrap_or_default();
    let said = [status.pending, status.delivered, status.parked];
    let text = format!("notification {name} counts {said:?} pending, delivered, parked; there are {there:?}");
    (said != there).then_some(text)
}

/// Returns the figures of the report.
pub fn figures(evidence: &Evidence) -> Figures {
    let mut messages: BTreeMap<(&Lane, &str), Vec<&Seen>> = BTreeMap::new();
    for one in &evidence.seen {
        messages.entry((&one.lane, &one.id)).or_default().push(one);
    }
    let refused = |code| REFUSALS.contains(&code);
    let answered = |m: &&Vec<&Seen>, wanted: fn(u16) -> bool| m.iter().any(|s| s.answered.is_some_and(|(c, _)| wanted(c)));
    let mut done: BTreeMap<&Lane, BTreeSet<&str>> = BTreeMap::new();
    for ((lane, id), _) in messages.iter().filter(|(_, m)| answered(m, is_taken) || answered(m, refused)) {
        done.entry(lane).or_default().insert(id);
    }
    let lacking = |(lane, steps): (&Lane, &Vec<_>)| steps.len().saturating_sub(done.get(lane).map_or(0, BTreeSet::len));
    Figures {
        recorded: evidence.rows.len(),
        delivered: messages.values().filter(|m| answered(m, is_taken)).count(),
        parked: messages.values().filter(|m| answered(m, refused)).count(),
        missing: evidence.lanes.iter().map(lacking).sum(),
        duplicates: messages.values().map(|m| repeated(m).len()).sum(),
    }
}

impl Evidence {
    /// Returns the number of findings of these kinds.
    pub fn count(&self, kinds: &[&str]) -> usize {
        self.findings.iter().filter(|f| kinds.contains(&f.kind)).count()
    }

    /// Describes the lanes that have findings, with times in milliseconds since `begin`.
    pub fn of_the_lanes_in_question(&self, begin: Instant) -> String {
        let mut text = String::new();
        let ms = |at: Instant| at.saturating_duration_since(begin).as_millis();
        let lanes: BTreeSet<_> = self.rows.iter().map(|r| &r.lane).chain(self.seen.iter().map(|s| &s.lane)).collect();
        for lane in lanes {
            let findings: Vec<_> = self.findings.iter().filter(|f| f.text.starts_with(&lane.to_string())).collect();
            if findings.is_empty() {
                continue;
            }
            let _ = writeln!(text, "{lane}");
            for f in findings {
                let _ = writeln!(text, "  {:<10} {}", f.kind, f.text);
            }
            for s in self.seen.iter().filter(|s| s.lane == *lane) {
                let answer = s.answered.map_or("no answer".to_owned(), |(code, at)| format!("{code} at {}", ms(at)));
                let _ = writeln!(text, "    request  {:>7} ms  {:<16} {:<14} {}", ms(s.at), s.what, answer, s.id);
            }
            let mut rows: Vec<_> = self.rows.iter().filter(|r| r.lane == *lane).collect();
            rows.sort_by_key(|r| (r.order, r.serial));
            for r in rows {
                let _ = writeln!(text, "    delivery {}  {:<28} attempts {}", r.serial, r.step.to_string(), r.attempts);
            }
        }
        text
    }
}
