//! The applications of a world, as users and the deployment controller write them.
//!
//! In: rollouts and their ends, failures, deletions, and the requests for promotions that a receiver has accepted. Out: Deployments, and what
//! really happened to each of them.

use http::Method;
use relaybook_simulation::clock;
use serde_json::{Value, json};

use super::verdict::is_accepted;
use super::world::{DEPLOYER, ENVIRONMENTS, PIPELINES, TRAIN, World};

/// What users and their controllers wrote about an application.
#[derive(Debug)]
pub struct App {
    pub name: String,
    /// The tag of its image, a number.
    pub tag: u32,
    /// The transitions since it was created.
    pub told: Vec<String>,
    /// Whether its last rollout has ended.
    pub is_settled: bool,
    /// Whether its last rollout is good.
    pub is_good: bool,
    /// The tag that was good last.
    good: u32,
    /// Whether its object is deleted.
    pub is_gone: bool,
}

impl App {
    /// Returns an application that runs tag 1.
    fn new(name: String) -> Self {
        Self { name, tag: 1, told: Vec::new(), is_settled: true, is_good: true, good: 1, is_gone: false }
    }

    /// Returns the status that its pipeline must report, and the revision if it is ready.
    pub fn state(&self) -> (&'static str, Option<u32>) {
        match (self.is_gone, self.is_good) {
            (true, _) => ("NotFound", None),
            (false, true) => ("Current", Some(self.tag)),
            (false, false) => ("Failed", None),
        }
    }
}

impl World {
    /// Creates an application that runs tag 1.
    pub fn create_app(&mut self, name: String) {
        self.create("apps/v1", "Deployment", &name, json!({"spec": rollout(1)}));
        self.finish(&name, true);
        self.apps.push(App::new(name));
    }

    /// Begins a rollout of the next tag. A deleted object is created again.
    pub fn begin(&mut self, app: usize) {
        let next = self.apps[app].tag + 1;
        self.roll_out(app, next);
    }

    fn roll_out(&mut self, app: usize, next: u32) {
        let App { name, tag, is_settled, is_gone, told, .. } = &mut self.apps[app];
        (*tag, *is_settled) = (next, false);
        let (name, spec) = (name.clone(), json!({"spec": rollout(next)}));
        if std::mem::take(is_gone) {
            told.push(format!("Added {next}"));
            self.create("apps/v1", "Deployment", &name, spec);
        } else {
            self.write(&Method::PATCH, "apps/v1", "deployments", &name, false, &spec);
        }
    }

    /// Deletes an application object, if it exists. Those of promotions stay.
    pub fn remove(&mut self, app: usize) {
        let App { name, told, is_settled, is_gone, .. } = &mut self.apps[app];
        if app < PIPELINES.len() * ENVIRONMENTS.len() && !std::mem::replace(is_gone, true) {
            told.push("Removed ".to_owned());
            *is_settled = true;
            let name = name.clone();
            self.write(&Method::DELETE, "apps/v1", "deployments", &name, false, &json!({}));
        }
    }

    /// Carries out the requests for promotions that the receiver has accepted.
    pub fn carry_out(&mut self) {
        let prod = self.apps.len() - 1;
        let requests = self.receivers.log(|log| {
            let lane = format!("{TRAIN}/{DEPLOYER}/");
            let of = log.iter().filter(|request| request.lane.starts_with(&lane) && is_accepted(request));
            of.map(|request| request.delivery.rsplit(' ').next().and_then(|tag| tag.parse().ok()).unwrap_or(0))
                .collect::<Vec<u32>>()
        });
        for tag in requests.into_iter().skip(self.carried) {
            self.carried += 1;
            if tag > self.apps[prod].tag {
                clock::show(self.now, 0);
                self.roll_out(prod, tag);
                self.end(prod, true);
            }
        }
    }

    /// Ends the rollout of an application, if there is one.
    pub fn end(&mut self, app: usize, is_good: bool) {
        if !std::mem::replace(&mut self.apps[app].is_settled, true) {
            self.report(app, is_good);
        }
    }

    /// Lets an application fail without a rollout, or recover.
    pub fn flip(&mut self, app: usize) {
        let App { is_settled, is_gone, is_good, .. } = self.apps[app];
        if is_settled && !is_gone {
            self.report(app, !is_good);
        }
    }

    fn report(&mut self, app: usize, good: bool) {
        let App { name, tag, told, is_good, good: last, .. } = &mut self.apps[app];
        let is_new = std::mem::replace(last, if good { *tag } else { *last }) != *tag;
        *is_good = good;
        let what = match (good, is_new) {
            (false, _) => "Failed",
            (true, true) => "Deployed",
            (true, false) => "Recovered",
        };
        told.push(format!("{what} {tag}"));
        let name = name.clone();
        self.finish(&name, good);
    }

    /// Writes the status of a rollout that has ended.
    fn finish(&self, app: &str, is_good: bool) {
        let generation = self.object("deployments", app)["metadata"]["generation"].clone();
        let (status, reason) =
            if is_good { ("True", "NewReplicaSetAvailable") } else { ("False", "ProgressDeadlineExceeded") };
        let time = "2025-01-01T00:00:00Z";
        let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "m", "lastTransitionTime": time});
        let conditions =
            [condition("Progressing", status, reason), condition("Available", "True", "MinimumReplicasAvailable")];
        let (all, unavailable) = if is_good { (1, Value::Null) } else { (2, json!(1)) };
        let status = json!({"observedGeneration": generation, "conditions": conditions, "replicas": all, "updatedReplicas": 1,
            "readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": unavailable});
        self.write(&Method::PATCH, "apps/v1", "deployments", app, true, &json!({"status": status}));
    }
}

fn rollout(tag: u32) -> Value {
    let containers = json!([{"name": "app", "image": format!("registry.example/app:{tag}")}]);
    json!({"replicas": 1, "template": {"spec": {"containers": containers}}})
}
