//! What must be so after each step, and what at the end.
//!
//! In: the requests that the receivers got, the objects of the API server, and what really happened to the applications. Out: the first broken
//! promise, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::receivers::Arrived;
use super::world::{ENVIRONMENTS, NOTIFICATIONS, PIPELINES, TRAIN, World, delivery_of};

/// What was checked, and what is known for the next checks.
#[derive(Default)]
pub struct Verdict {
    /// Number of requests that were checked.
    requests: usize,
    /// The changes that a log contained, by pipeline and serial: their subject and state.
    changes: BTreeMap<(String, i64), String>,
    /// When a replica did not do its work from then on, or again.
    pub disturbed: Vec<(usize, Duration)>,
    /// The deliveries that a user has ordered to send again.
    pub redelivered: BTreeSet<String>,
    /// Whether something happened after which several changes can be observed as one.
    pub is_merged: bool,
}

impl Verdict {
    /// Checks the requests and the changes since the last time.
    ///
    /// # Errors
    ///
    /// What promise is broken.
    pub fn at_any_time(&mut self, world: &World) -> Result<(), String> {
        world.receivers.log(|log| {
            for number in std::mem::replace(&mut self.requests, log.len())..log.len() {
                self.request(&log[number], &log[..number])?;
            }
            Ok::<_, String>(())
        })?;
        for pipeline in PIPELINES.into_iter().chain([TRAIN]) {
            let object = world.object("pipelines", pipeline);
            for change in object["status"]["log"]["changes"].as_array().into_iter().flatten() {
                let says = format!("{} {} {}", change["subject"], change["to"]["status"], change["to"]["revision"]);
                let key = (pipeline.to_owned(), change["serial"].as_i64().unwrap_or_default());
                let before = self.changes.entry(key).or_insert_with(|| says.clone());
                if *before != says {
                    return Err(format!("{pipeline}: serial {} was {before}, and is {says}", change["serial"]));
                }
            }
        }
        Ok(())
    }

    /// Checks a request. `before`: the requests before it.
    fn request(&mut self, request: &Arrived, before: &[Arrived]) -> Result<(), String> {
        let says = format!("{} (at {:?} by replica {})", request.delivery, request.at, request.replica);
        if !request.is_recorded {
            return Err(format!("recorded first: {says} was sent before it was recorded"));
        }
        // A redelivery is outside of the order.
        if self.redelivered.contains(&request.delivery) {
            return Ok(());
        }
        if let Some(beside) = request.beside.filter(|other| !self.redelivered.contains(&before[*other].delivery)) {
            return Err(format!("in order: {says} began while {:?} was in flight", before[beside]));
        }
        let newer = before.iter().rev().find(|other| other.lane == request.lane && other.serial > request.serial);
        if let Some(newer) = newer {
            return Err(format!("in order: {says} came after {:?}, which is newer", newer.delivery));
        }
        let is_first = |other: &&Arrived| {
            other.delivery == request.delivery
                && is_accepted(other)
                && other.answered.is_some_and(|(_, at)| at <= request.at)
        };
        if let Some(first) = before.iter().find(is_first) {
            let explains = |(which, at): &(usize, Duration)| *which == first.replica && *at <= request.at;
            if first.replica == request.replica && !self.disturbed.iter().any(explains) {
                return Err(format!("no repetition: {says} came again after {:?}", first.answered));
            }
        }
        Ok(())
    }

    /// Checks what must be so when nothing is broken any more.
    ///
    /// # Errors
    ///
    /// What is not so, or not yet.
    pub fn at_the_end(world: &World) -> Result<(), String> {
        let accepted: BTreeSet<String> =
            world.receivers.log(|log| log.iter().filter(|r| is_accepted(r)).map(|r| r.delivery.clone()).collect());
        let mut lanes: BTreeMap<String, BTreeSet<(i64, String)>> = BTreeMap::new();
        let mut add = |delivery: &str| {
            let mut words = delivery.splitn(3, ' ');
            let (lane, serial, what) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
            Some(lanes.entry(lane.to_owned()).or_default().insert((serial, what.to_owned())))
        };
        for delivery in world.objects("deliveries") {
            let (name, is_accepted) = (delivery_of(&delivery), accepted.contains(&delivery_of(&delivery)));
            match delivery["status"]["outcome"].as_str() {
                Some("Delivered") if is_accepted => {}
                Some("Delivered") => return Err(format!("true: {name} is Delivered, but no receiver has accepted it")),
                Some("Parked") if !is_accepted || world.verdict.redelivered.contains(&name) => {}
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
                let rows: Vec<&str> = rows.iter().map(|(_, what)| what.as_str()).collect();
                fits(&rows, &app.told, world.verdict.is_merged)
                    .map_err(|why| format!("{lane}: {why}: {rows:?} of {:?}", app.told))?;
            }
        }
        let requested = lanes.remove("train/deployer/prod").unwrap_or_default();
        promoted(world, requested.into_iter().map(|(_, what)| what))?;
        if let Some((lane, rows)) = lanes.first_key_value() {
            return Err(format!("quiet: {lane} has {rows:?}"));
        }
        Ok(())
    }
}

/// Whether each revision was promoted once, and `prod` runs the last one that `dev` has run.
fn promoted(world: &World, requested: impl Iterator<Item = String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for what in requested {
        if !seen.insert(what.clone()) {
            return Err(format!("promoted once: {what} twice"));
        }
    }
    let [.., dev, prod] = &world.apps[..] else { return Ok(()) };
    let last = dev.told.iter().rev().find_map(|told| told.strip_prefix("Deployed ")).unwrap_or("1");
    let is_last_good = dev.told.last().is_none_or(|told| told.starts_with("Deployed "));
    if is_last_good && last != prod.tag.to_string() {
        return Err(format!("promoted: prod runs {}, dev {last}", prod.tag));
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

fn is_accepted(request: &Arrived) -> bool {
    request.answered.is_some_and(|(code, _)| (200..300).contains(&code))
}
