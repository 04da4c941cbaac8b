//! What must be so after each step, and what at the end.
//!
//! In: the requests that the receivers got, the objects of the API server, and what really happened to the applications. Out: the first broken
//! promise, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use relaybook_api::{Change, TransitionType};
use relaybook_core::meaning::transitions;
use serde_json::Value;

use super::apps::App;
use super::receivers::{Arrived, RECEIVERS};
use super::world::{ENVIRONMENTS, NOTIFICATIONS, PIPELINES, TRAIN, TURN, World, delivery_of};

/// How the words about each broken promise begin.
pub const PROMISES: [&str; 8] =
    ["recorded first", "in order", "at least once", "no repetition", "isolated", "quiet", "true", "promoted"];
/// The transitions that are reported.
pub const REPORTED: [TransitionType; 5] = [
    TransitionType::Deployed,
    TransitionType::Failed,
    TransitionType::Recovered,
    TransitionType::Removed,
    TransitionType::Added,
];
/// A request of an open notification arrives within this time, although each of its calls can take 10 s, be lost and be repeated.
const LATE: Duration = Duration::from_mins(2);
/// The timeout of the notifications, and of the calls on the way. A request counts as ended then, although a frozen sender does not close its
/// connection.
const TIMEOUT: Duration = Duration::from_secs(11);
/// A disturbance explains a repetition only if it began at most this time after the first request. Then its outcome is written, or lost.
const UNWRITTEN: Duration = Duration::from_mins(1);

/// Why a replica did not do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Killed,
    Frozen,
    CutOff,
}

/// When a replica did not do its work. `until` is `None` as long as that lasts.
struct Disturbance {
    replica: usize,
    cause: Cause,
    from: Duration,
    until: Option<Duration>,
}

/// A change that a log contained.
struct Recorded {
    change: Change,
    /// When it was first seen.
    seen: Duration,
}

/// What was checked, and what is known for the next checks.
#[derive(Default)]
pub struct Verdict {
    /// The requests that were checked, in the order of their arrival: their numbers.
    order: Vec<usize>,
    /// The changes that the logs contained, by pipeline and serial.
    changes: BTreeMap<(String, i64), Recorded>,
    /// Since when each notification can be sent: its receiver accepts everything, and it is not suspended. `None`: it cannot.
    pub open: [Option<Duration>; RECEIVERS],
    disturbances: Vec<Disturbance>,
    /// The deliveries that a user has ordered to send again, and when that was last.
    pub redelivered: BTreeMap<String, Duration>,
    /// Whether something happened after which several changes can be observed as one.
    pub is_merged: bool,
}

impl Verdict {
    /// Returns the state before the first step: all notifications are open.
    pub fn new() -> Self {
        Self { open: [Some(Duration::ZERO); RECEIVERS], ..Self::default() }
    }

    /// Notes that a replica does not do its work from now on.
    pub fn disturb(&mut self, replica: usize, cause: Cause, from: Duration) {
        self.is_merged = true;
        // A killed process does nothing any more that has to be explained.
        let until = (cause == Cause::Killed).then_some(from);
        self.disturbances.push(Disturbance { replica, cause, from, until });
    }

    /// Notes that a replica does its work again.
    pub fn recover(&mut self, replica: usize, cause: Cause, now: Duration) {
        let open = self.disturbances.iter_mut().filter(|one| one.replica == replica && one.cause == cause);
        open.for_each(|one| _ = one.until.get_or_insert(now));
    }

    /// Checks the requests, the outcomes and the changes since the last time.
    ///
    /// # Errors
    ///
    /// What promise is broken.
    pub fn at_any_time(&mut self, world: &World) -> Result<(), String> {
        world.receivers.log(|log| {
            let mut new: Vec<usize> = (self.order.len()..log.len()).collect();
            // A replica runs for some time before the next one runs for the same time.
            new.sort_by_key(|number| log[*number].at);
            for number in new {
                let before: Vec<&Arrived> = self.order.iter().map(|number| &log[*number]).collect();
                self.request(&log[number], &before)?;
                self.order.push(number);
            }
            let accepted: BTreeSet<&str> = log.iter().filter(|r| is_accepted(r)).map(|r| r.delivery.as_str()).collect();
            for delivery in world.objects("deliveries") {
                let name = delivery_of(&delivery);
                if delivery["status"]["outcome"] == "Delivered" && !accepted.contains(name.as_str()) {
                    return Err(format!("true: {name} is Delivered, but no receiver has accepted it"));
                }
            }
            Ok(())
        })?;
        for pipeline in PIPELINES.into_iter().chain([TRAIN]) {
            let object = world.object("pipelines", pipeline);
            for change in object["status"]["log"]["changes"].as_array().into_iter().flatten() {
                let change: Change = serde_json::from_value(change.clone()).map_err(|error| error.to_string())?;
                let key = (pipeline.to_owned(), change.serial);
                let known = self.changes.entry(key).or_insert(Recorded { change: change.clone(), seen: world.now });
                if known.change.subject != change.subject || known.change.to != change.to {
                    return Err(format!("recorded first: {pipeline}: {:?} has become {change:?}", known.change));
                }
            }
        }
        Ok(())
    }

    /// Checks a request. `before`: the requests before it, in their order.
    fn request(&self, request: &Arrived, before: &[&Arrived]) -> Result<(), String> {
        let says = format!("{} (at {:?} by replica {})", request.delivery, request.at, request.replica);
        if !request.is_recorded {
            return Err(format!("recorded first: {says} was sent before it was recorded"));
        }
        // A redelivery is outside of the order.
        if self.redelivered.contains_key(&request.delivery) {
            return Ok(());
        }
        let in_lane =
            || before.iter().filter(|other| other.lane == request.lane && !self.redelivered.contains_key(&other.delivery));
        let is_open =
            |other: &&&Arrived| other.at + TIMEOUT > request.at && other.ended.is_none_or(|ended| ended > request.at + TURN);
        if let Some(beside) = in_lane().find(is_open) {
            return Err(format!("in order: {says} began while {beside:?} was in flight"));
        }
        if let Some(newer) = in_lane().find(|other| other.serial > request.serial) {
            return Err(format!("in order: {says} came after {:?}, which is newer", newer.delivery));
        }
        let is_first = |other: &&&Arrived| {
            other.delivery == request.delivery
                && is_accepted(other)
                && other.answered.is_some_and(|(_, at)| at <= request.at)
        };
        if let Some(first) = in_lane().find(is_first) {
            let explains = |one: &Disturbance| {
                let ends = one.until.is_none_or(|until| until + TURN >= first.at);
                one.replica == first.replica && ends && one.from <= request.at.min(first.at + UNWRITTEN)
            };
            if !self.disturbances.iter().any(explains) {
                return Err(format!(
                    "no repetition: {says} came again after {:?} of replica {}",
                    first.answered, first.replica
                ));
            }
        }
        self.in_time(request)
    }

    /// Checks that nothing else delays a request whose receiver accepts everything. Only without kills and outages is there a limit.
    fn in_time(&self, request: &Arrived) -> Result<(), String> {
        let seen = self.changes.get(&(request.pipeline.clone(), request.serial)).map(|recorded| recorded.seen);
        let due = seen.zip(self.open[request.receiver]).map(|(seen, open)| seen.max(open) + LATE);
        match due {
            Some(due) if !self.is_merged && request.at > due => {
                Err(format!("isolated: {} came only at {:?}, and was due at {due:?}", request.delivery, request.at))
            }
            _ => Ok(()),
        }
    }

    /// Checks what must be so when nothing is broken any more.
    ///
    /// # Errors
    ///
    /// What is not so, or not yet.
    pub fn at_the_end(world: &World) -> Result<(), String> {
        let (accepted, refused): (BTreeSet<String>, BTreeSet<String>) = world.receivers.log(|log| {
            let of = |is: fn(&Arrived) -> bool| log.iter().filter(|r| is(r)).map(|r| r.delivery.clone()).collect();
            (of(is_accepted), of(|request| request.answered.is_some_and(|(code, _)| code == 401)))
        });
        let mut lanes: BTreeMap<String, BTreeSet<(i64, String)>> = BTreeMap::new();
        let mut add = |delivery: &str| {
            let mut words = delivery.splitn(3, ' ');
            let (lane, serial, what) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
            Some(lanes.entry(lane.to_owned()).or_default().insert((serial, what.to_owned())))
        };
        for delivery in world.objects("deliveries") {
            let name = delivery_of(&delivery);
            match delivery["status"]["outcome"].as_str() {
                Some("Delivered") => {}
                // Every other error is temporary.
                Some("Parked") if refused.contains(&name) => {}
                other => return Err(format!("at least once: {name} is {other:?}")),
            }
            add(&name);
        }
        // Retention has deleted some of them.
        for delivery in &accepted {
            add(delivery);
        }
        for (number, app) in world.apps.iter().enumerate() {
            let pipelines: Vec<&str> = PIPELINES.into_iter().chain([TRAIN]).collect();
            let (pipeline, environment) =
                (pipelines[number / ENVIRONMENTS.len()], ENVIRONMENTS[number % ENVIRONMENTS.len()]);
            for notification in NOTIFICATIONS {
                let lane = format!("{pipeline}/{notification}/{environment}");
                let rows = lanes.remove(&lane).unwrap_or_default();
                world
                    .verdict
                    .all_sent(pipeline, environment, &rows)
                    .map_err(|what| format!("at least once: {lane} lacks {what}"))?;
                let rows: Vec<&str> = rows.iter().map(|(_, what)| what.as_str()).collect();
                reported(world, pipeline, environment, app)?;
                fits(&rows, &app.told, world.verdict.is_merged)
                    .map_err(|why| format!("{lane}: {why}: {rows:?} of {:?}", app.told))?;
            }
        }
        let requested = lanes.remove("train/deployer/prod").unwrap_or_default();
        promoted(world, requested.into_iter().map(|(_, what)| what))?;
        for (delivery, ordered) in &world.verdict.redelivered {
            let is_again = |request: &Arrived| request.delivery == *delivery && request.at >= *ordered;
            if !world.receivers.log(|log| log.iter().any(is_again)) {
                return Err(format!("at least once: {delivery} was not sent again"));
            }
        }
        if let Some((lane, rows)) = lanes.first_key_value() {
            return Err(format!("quiet: {lane} has {rows:?}"));
        }
        Ok(())
    }

    /// Checks that each change of an application that was recorded has a delivery in this lane, except those that were merged later.
    fn all_sent(&self, pipeline: &str, environment: &str, rows: &BTreeSet<(i64, String)>) -> Result<(), String> {
        let subject = format!("target/{environment}/");
        let of = |((of, _), recorded): &(&(String, i64), &Recorded)| {
            of == pipeline && recorded.change.subject.starts_with(&subject)
        };
        let ours: Vec<&Change> = self.changes.iter().filter(of).map(|(_, recorded)| &recorded.change).collect();
        let merged = ours.iter().filter(|change| change.coalesced).map(|change| change.serial).max();
        for change in ours.iter().filter(|change| merged.is_none_or(|merged| change.serial > merged)) {
            for type_ in transitions(change).filter(|type_| REPORTED.contains(type_)) {
                let is = |(serial, what): &(i64, String)| {
                    *serial == change.serial && what.split(' ').next() == Some(type_.as_str())
                };
                if !rows.iter().any(is) {
                    return Err(format!("{} of serial {}", type_.as_str(), change.serial));
                }
            }
        }
        Ok(())
    }
}

/// Whether the status of a pipeline reports the real state of an application.
fn reported(world: &World, pipeline: &str, environment: &str, app: &App) -> Result<(), String> {
    let object = world.object("pipelines", pipeline);
    let mut environments = object["status"]["environments"].as_array().into_iter().flatten();
    let target = environments.find(|of| of["name"] == environment).map_or(&Value::Null, |of| &of["targets"][0]);
    let (status, revision) = app.state();
    let is_same = target["status"] == status
        && revision.is_none_or(|revision| target["revision"].as_str() == Some(&revision.to_string()));
    let says =
        || format!("true: {pipeline} reports {} {} of {}, not {status}", target["status"], target["revision"], app.name);
    is_same.then_some(()).ok_or_else(says)
}

/// Whether each revision was promoted once, and `prod` runs the last one that `dev` has run.
fn promoted(world: &World, requested: impl Iterator<Item = String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for what in requested {
        if !seen.insert(what.clone()) {
            return Err(format!("promoted: {what} twice"));
        }
    }
    let [.., dev, prod] = &world.apps[..] else { return Ok(()) };
    let is_last_good = dev.is_good;
    if is_last_good && dev.tag != prod.tag {
        return Err(format!("promoted: prod runs {}, dev {}", prod.tag, dev.tag));
    }
    for promotion in world.objects("promotions") {
        let phase = &promotion["status"]["phase"];
        // One waits as long as `dev` is not ready.
        let is_waiting = phase == "Pending" && !is_last_good;
        if !is_waiting && !["Finished", "Superseded", "Withdrawn", "Failed"].iter().any(|ended| phase == ended) {
            return Err(format!("promoted: the promotion of {} is {phase}", promotion["spec"]["revision"]));
        }
    }
    Ok(())
}

/// Whether these are all transitions, in their order. If some can be merged, only the last must be among them. A state that came and went
/// unobserved is then no change, and one that was not observed before is not recovered.
fn fits(rows: &[&str], told: &[String], is_merged: bool) -> Result<(), &'static str> {
    let state = |what: &str| if is_merged { what.replace("Recovered", "Deployed") } else { what.to_owned() };
    // An object that is added can have another revision when it is first observed.
    let is = |told: &str, row: &str| state(told) == state(row) || [told, row].iter().all(|text| text.starts_with("Added "));
    let mut left = told.iter();
    if !rows.iter().all(|row| left.any(|told| is(told, row))) {
        return Err("quiet: something did not happen, or happened once");
    }
    if !is(told.last().map_or("Deployed 1", String::as_str), rows.last().copied().unwrap_or("Deployed 1")) {
        return Err("at least once: the last is missing");
    }
    if !is_merged && rows.len() < told.len() {
        return Err("at least once: one is missing");
    }
    Ok(())
}

/// Whether the receiver has accepted a request.
pub fn is_accepted(request: &Arrived) -> bool {
    request.answered.is_some_and(|(code, _)| (200..300).contains(&code))
}
