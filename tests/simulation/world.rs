//! The world of a history: the API server, three replicas, the receivers, the objects of users and their controllers.
//!
//! In: the steps of a history. Out: what happened, for the [`verdict`](super::verdict).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use parking_lot::Mutex;
use relaybook_api::TransitionType;
use relaybook_simulation::api_server::request::Request;
use relaybook_simulation::api_server::{Server, kind};
use relaybook_simulation::clock;
use relaybook_simulation::service::{Arrived, Fate, Network, Silence};
use serde_json::{Value, json};

use super::receivers::{Manner, RECEIVERS, Receivers};
use super::replica::{HOME, Replica};
use super::steps::{Step, Wrote};
use super::verdict::{Cause, REPORTED, Verdict};

/// The namespace of the team.
pub const TEAM: &str = "team";
/// Number of replicas.
pub const REPLICAS: usize = 3;
/// The pipelines. Each has an environment `dev` with the application `PIPELINE-dev`, and `prod` with `PIPELINE-prod`.
pub const PIPELINES: [&str; 2] = ["blue", "green"];
/// The environments.
pub const ENVIRONMENTS: [&str; 2] = ["dev", "prod"];
/// The notifications of changes. Each has its own receiver.
pub const NOTIFICATIONS: [&str; 2] = ["chat", "audit"];
/// The pipeline whose revisions are promoted from `dev` to `prod`, and the notification whose receiver carries that out.
pub const TRAIN: &str = "train";
const DEPLOYER: &str = "deployer";
/// The Secret with the token of the second notification.
const SECRET: &str = "token";
/// The template of all bodies.
const BODY: &str = r#"{"serial": "{{serial}}", "pipeline": "{{pipeline.name}}", "notification": "{{notification.name}}",
    "target": "{{environment}}", "type": "{{type}}", "revision": "{{revision}}"}"#;
/// How long a call needs at most, each way.
const WAY: Duration = Duration::from_millis(4);
/// A replica runs at most this time alone. Then the others run until the same time. So what one does can be seen by another this much earlier.
pub const TURN: Duration = Duration::from_millis(500);
/// At the end, nothing is broken any more, and everything must be settled within this time.
const CALM: Duration = Duration::from_mins(15);
/// Number of times that everything is checked from then on, 5 s apart.
const STAYS: usize = 20;

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
    /// Returns the status that its pipeline must report, and the revision if it is ready.
    pub fn state(&self) -> (&'static str, Option<u32>) {
        match (self.is_gone, self.is_good) {
            (true, _) => ("NotFound", None),
            (false, true) => ("Current", Some(self.tag)),
            (false, false) => ("Failed", None),
        }
    }
}

/// What happens to the requests of one replica, to the API server and to receivers.
#[derive(Default)]
pub struct Line {
    /// No request arrives.
    outage: Option<Silence>,
    /// What happens to the next writes, each after a number of others.
    writes: VecDeque<(u8, Fate)>,
    /// After this number of writes and requests to receivers the process is killed. The last one still arrives, or does not.
    fatal: Option<(u8, bool)>,
    /// Whether it is killed.
    is_dead: bool,
}

/// The world.
pub struct World {
    pub network: Network,
    pub receivers: Receivers,
    replicas: Vec<Replica>,
    pub now: Duration,
    pub apps: Vec<App>,
    /// Number of requests for promotions that were carried out.
    carried: usize,
    suspended: [bool; RECEIVERS],
    lines: Arc<Mutex<Vec<Line>>>,
    pub verdict: Verdict,
}

impl World {
    /// Returns a world whose replicas run and have settled.
    pub fn new() -> Result<Self, String> {
        let mut server = Server::new(kinds());
        for name in [HOME, TEAM] {
            server.add_namespace(name, clock::wall());
        }
        let lines: Arc<Mutex<Vec<Line>>> = Arc::new(Mutex::new((0..REPLICAS).map(|_| Line::default()).collect()));
        let of = lines.clone();
        let network = Network::new(server, clock::wall, move |arrived| {
            let fate = of.lock()[arrived.client].fate(arrived);
            tracing::debug!(replica = arrived.client, ?fate, "{}", arrived.request);
            Some(fate)
        });
        network.delay(WAY);
        let receivers = Receivers::new(network.clone(), lines.clone());
        let dial = receivers.clone();
        relaybook_egress::played::play(Some(Box::new(move |to| dial.connect(to))));
        let replicas = (0..REPLICAS).map(|number| Replica::new(number, network.clone())).collect();
        let verdict = Verdict::new();
        let mut this = Self {
            network,
            receivers,
            replicas,
            now: Duration::ZERO,
            apps: Vec::new(),
            carried: 0,
            suspended: [false; RECEIVERS],
            lines,
            verdict,
        };
        this.create_objects();
        for replica in &mut this.replicas {
            replica.start(this.now);
        }
        this.wait(Duration::from_secs(30))?;
        Ok(this)
    }

    fn create_objects(&mut self) {
        for pipeline in PIPELINES.into_iter().chain([TRAIN]) {
            for environment in ENVIRONMENTS {
                let name = format!("{pipeline}-{environment}");
                self.create("apps/v1", "Deployment", &name, json!({"spec": rollout(1)}));
                self.finish(&name, true);
                self.apps.push(App {
                    name,
                    tag: 1,
                    told: Vec::new(),
                    is_settled: true,
                    is_good: true,
                    good: 1,
                    is_gone: false,
                });
            }
            let environments = ENVIRONMENTS.map(|environment| {
                let target = json!({"namespace": TEAM, "appRef": {"name": format!("{pipeline}-{environment}")}});
                let mut spec = json!({"name": environment, "targets": [target]});
                if (pipeline, environment) == (TRAIN, "prod") {
                    spec["promotion"] = json!({"strategy": {"notification": {}}});
                }
                spec
            });
            let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "app"});
            let spec = json!({"spec": {"appRef": app, "environments": environments}});
            self.create("relaybook.dev/v1alpha1", "Pipeline", pipeline, spec);
        }
        self.create("v1", "Secret", SECRET, json!({"data": {"value": base64(1)}}));
        let auth = json!({"token": {"secretKeyRef": {"name": SECRET, "key": "value"}}});
        let changes = REPORTED.map(TransitionType::as_str);
        // The first two have pipelines without promotions in view, whose expectations are exact.
        for (number, name, types, over) in [
            (0, NOTIFICATIONS[0], &changes[..], json!({})),
            (1, NOTIFICATIONS[1], &changes[..], json!({"endpoint": {"auth": auth}, "delivery": {"retain": {"perLane": 4}}})),
            (2, DEPLOYER, &["PromotionRequested"], json!({})),
        ] {
            let mut spec = json!({
                "triggers": types.iter().map(|type_| json!({"type": type_})).collect::<Vec<_>>(),
                "endpoint": {"url": format!("http://r{number}.example/hook"), "timeout": "10s"},
                "template": {"inline": {"body": BODY}},
                "delivery": {"retry": {"initial": "1s", "max": "20s"}, "retain": {"perLane": 100}},
            });
            json_patch::merge(&mut spec, &over);
            self.create("relaybook.dev/v1alpha1", "Notification", name, json!({"spec": spec}));
        }
    }

    /// Carries out a step, and checks what can be checked at any time.
    ///
    /// # Errors
    ///
    /// If a promise is broken.
    pub fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Wait(millis) => self.wait(Duration::from_millis(millis.into()))?,
            Step::Begin(app) => self.begin(app),
            Step::End(app, is_good) => self.end(app, is_good),
            Step::Receiver(which, manner) => self.receive(which, manner),
            Step::Kill(which) => {
                self.lines.lock()[which].fatal = None;
                self.kill(which);
            }
            Step::Die(which, after, arrives) => {
                if self.replicas[which].is_running() {
                    self.lines.lock()[which].fatal = Some((after, arrives));
                }
            }
            Step::Stop(which) => {
                self.verdict.is_merged = true;
                self.replicas[which].stop();
            }
            Step::Start(which) => self.replicas[which].start(self.now),
            Step::Freeze(which, is_frozen) => {
                if std::mem::replace(&mut self.replicas[which].is_frozen, is_frozen) != is_frozen {
                    self.change(which, Cause::Frozen, is_frozen);
                }
            }
            Step::Clock(which, ahead) => self.replicas[which].ahead = ahead.into(),
            Step::Outage(which, silence) => {
                let before = std::mem::replace(&mut self.lines.lock()[which].outage, silence);
                if before.is_some() != silence.is_some() {
                    self.change(which, Cause::CutOff, silence.is_some());
                }
            }
            Step::Write(which, after, wrote) => self.lines.lock()[which].writes.push_back((after, wrote.fate())),
            Step::Land(which, is_applied) => drop(self.network.land(which.into(), is_applied)),
            Step::Behind(which, allowed) => {
                for watch in self.network.watches().iter().filter(|watch| watch.client == which) {
                    self.network.allow(watch.id, allowed.map(usize::from));
                }
            }
            Step::Cut(which, end) => {
                let watches = self.network.watches();
                if let Some(watch) = watches.get(usize::from(which) % watches.len().max(1)) {
                    self.verdict.is_merged = true;
                    self.network.cut(watch.id, end);
                }
            }
            Step::Flip(app) => self.flip(app),
            Step::Remove(app) => self.remove(app),
            Step::Rotate => self.rotate(),
            Step::Suspend(which, is_suspended) => self.suspend(which, is_suspended),
            Step::Redeliver(which) => self.redeliver(which.into()),
            Step::Compact => self.network.with(|server| server.compact(server.version())),
        }
        self.check()
    }

    /// Repairs everything, waits until all is settled, and checks what must be so at the end.
    pub fn end_all(&mut self) -> Result<(), String> {
        for which in 0..REPLICAS {
            self.step(Step::Outage(which, None))?;
            self.lines.lock()[which] = Line::default();
            self.step(Step::Freeze(which, false))?;
            self.replicas[which].start(self.now);
            self.step(Step::Behind(which, None))?;
        }
        (0..RECEIVERS).for_each(|receiver| self.receive(receiver, None));
        (0..NOTIFICATIONS.len()).for_each(|which| self.suspend(which, false));
        while self.network.land(0, true) {}
        (0..self.apps.len()).for_each(|app| self.end(app, true));
        let until = self.now + CALM;
        // What is so once must stay so.
        let mut stays = 0;
        while stays < STAYS {
            self.wait(Duration::from_secs(5))?;
            self.check()?;
            // A replica that was asked to end starts again, as its Pod does.
            (0..REPLICAS).for_each(|which| self.replicas[which].start(self.now));
            match Verdict::at_the_end(self) {
                Ok(()) => stays += 1,
                Err(why) if stays > 0 || self.now > until => return Err(why),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Notes that a replica does not do its work from now on, or does it again.
    fn change(&mut self, which: usize, cause: Cause, is_disturbed: bool) {
        if is_disturbed {
            self.verdict.disturb(which, cause, self.now);
        } else {
            self.verdict.recover(which, cause, self.now);
        }
    }

    fn kill(&mut self, which: usize) {
        if self.replicas[which].is_running() {
            self.change(which, Cause::Killed, true);
            self.replicas[which].kill();
        }
    }

    fn wait(&mut self, time: Duration) -> Result<(), String> {
        let until = self.now + time;
        // A long time with the same steps for all histories.
        let turn = (time / 8).clamp(Duration::from_millis(1), TURN);
        while self.now < until {
            let next = (self.now + turn).min(until);
            let first = fastrand::usize(0..REPLICAS);
            for which in (0..REPLICAS).map(|after| (first + after) % REPLICAS) {
                self.receivers.of_replica(which);
                self.replicas[which].run(self.now, next)?;
                clock::show(next, 0);
                if std::mem::take(&mut self.lines.lock()[which].is_dead) {
                    self.kill(which);
                }
            }
            self.now = next;
            self.carry_out();
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        clock::show(self.now, 0);
        let mut verdict = std::mem::take(&mut self.verdict);
        let checked = verdict.at_any_time(self);
        self.verdict = verdict;
        checked
    }

    /// Begins a rollout of the next tag. A deleted object is created again.
    fn begin(&mut self, app: usize) {
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
    fn remove(&mut self, app: usize) {
        let App { name, told, is_settled, is_gone, .. } = &mut self.apps[app];
        if app < PIPELINES.len() * ENVIRONMENTS.len() && !std::mem::replace(is_gone, true) {
            told.push("Removed ".to_owned());
            *is_settled = true;
            let name = name.clone();
            self.write(&Method::DELETE, "apps/v1", "deployments", &name, false, &json!({}));
        }
    }

    /// Carries out the requests for promotions that the receiver has accepted.
    fn carry_out(&mut self) {
        let prod = self.apps.len() - 1;
        let requests = self.receivers.log(|log| {
            let of = log.iter().filter(|request| {
                request.lane.starts_with("train/deployer/") && request.answered.is_some_and(|(code, _)| code < 300)
            });
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

    /// Changes the token of the second notification. Its receiver accepts only the newest.
    fn rotate(&mut self) {
        let token = self.receivers.rotate();
        self.write(&Method::PATCH, "v1", "secrets", SECRET, false, &json!({"data": {"value": base64(token)}}));
    }

    fn receive(&mut self, which: usize, manner: Option<Manner>) {
        // Another one that was open stays so.
        let is_open = manner.is_none() && !self.suspended[which];
        self.verdict.open[which] = is_open.then(|| self.verdict.open[which].unwrap_or(self.now));
        self.receivers.set(which, manner);
    }

    fn suspend(&mut self, which: usize, is_suspended: bool) {
        let was_suspended = std::mem::replace(&mut self.suspended[which], is_suspended);
        if is_suspended {
            self.verdict.open[which] = None;
        } else if was_suspended && self.receivers.is_open(which) {
            self.verdict.open[which] = Some(self.now);
        }
        let spec = json!({"spec": {"suspend": is_suspended}});
        self.write(&Method::PATCH, "relaybook.dev/v1alpha1", "notifications", NOTIFICATIONS[which], false, &spec);
    }

    /// Orders that a settled delivery is sent again.
    fn redeliver(&mut self, which: usize) {
        let settled: Vec<Value> =
            self.objects("deliveries").into_iter().filter(|delivery| delivery["status"]["outcome"].is_string()).collect();
        if let Some(delivery) = settled.get(which % settled.len().max(1)) {
            self.verdict.redelivered.insert(delivery_of(delivery), self.now);
            let value = format!("{:?}", self.now);
            let annotation = json!({"metadata": {"annotations": {relaybook_api::delivery::REDELIVER: value}}});
            let name = delivery["metadata"]["name"].as_str().unwrap_or_default();
            self.write(&Method::PATCH, "relaybook.dev/v1alpha1", "deliveries", name, false, &annotation);
        }
    }

    /// Ends the rollout of an application, if there is one.
    fn end(&mut self, app: usize, is_good: bool) {
        if !std::mem::replace(&mut self.apps[app].is_settled, true) {
            self.report(app, is_good);
        }
    }

    /// Lets an application fail without a rollout, or recover.
    fn flip(&mut self, app: usize) {
        let App { is_settled, is_gone, is_good, .. } = self.apps[app];
        if is_settled && !is_gone {
            self.report(app, !is_good);
        }
    }

    fn report(&mut self, app: usize, good: bool) {
        let App { name, tag, told, is_good, good: last, .. } = &mut self.apps[app];
        let is_new = std::mem::replace(last, if good { *tag } else { *last }) != *tag;
        *is_good = good;
        told.push(format!(
            "{} {tag}",
            if !good {
                "Failed"
            } else if is_new {
                "Deployed"
            } else {
                "Recovered"
            }
        ));
        let name = name.clone();
        self.finish(&name, good);
    }

    /// Writes the status of a rollout that has ended.
    fn finish(&self, app: &str, is_good: bool) {
        let generation = self.object("deployments", app)["metadata"]["generation"].clone();
        let (status, reason) =
            if is_good { ("True", "NewReplicaSetAvailable") } else { ("False", "ProgressDeadlineExceeded") };
        let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2025-01-01T00:00:00Z"});
        let conditions =
            [condition("Progressing", status, reason), condition("Available", "True", "MinimumReplicasAvailable")];
        let (all, unavailable) = if is_good { (1, Value::Null) } else { (2, json!(1)) };
        let status = json!({"observedGeneration": generation, "conditions": conditions, "replicas": all, "updatedReplicas": 1,
            "readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": unavailable});
        self.write(&Method::PATCH, "apps/v1", "deployments", app, true, &json!({"status": status}));
    }

    fn create(&self, api_version: &str, kind: &str, name: &str, mut object: Value) {
        json_patch::merge(
            &mut object,
            &json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": TEAM}}),
        );
        let plural = format!("{}s", kind.to_lowercase());
        self.write(&Method::POST, api_version, &plural, "", false, &object);
    }

    /// Writes an object as a user or another controller.
    fn write(&self, method: &Method, api_version: &str, plural: &str, name: &str, is_status: bool, body: &Value) {
        let status = if is_status { "/status" } else { "" };
        let root = if api_version == "v1" { "api" } else { "apis" };
        let path = format!("/{root}/{api_version}/namespaces/{TEAM}/{plural}/{name}{status}");
        let kind = if *method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        let request = Request::parse(method, &path, "", &headers, body.to_string().into());
        let request = request.map_err(|failure| failure.status()).expect("a valid request");
        self.network.with(|server| {
            server.answer(&request, clock::wall()).map(drop).map_err(|failure| failure.status()).expect("written")
        });
    }

    /// Returns an object of the team. Null: it does not exist.
    pub fn object(&self, plural: &str, name: &str) -> Value {
        self.network.with(|server| server.object(plural, TEAM, name).map_or(Value::Null, |object| object.value.clone()))
    }

    /// Returns all objects of a kind.
    pub fn objects(&self, plural: &str) -> Vec<Value> {
        self.network.with(|server| server.objects(plural).map(|object| object.value.clone()).collect())
    }
}

impl Line {
    /// Counts a write, or a request to a receiver. Returns whether it still arrives.
    pub fn arrives(&mut self) -> bool {
        let Some((left, arrives)) = &mut self.fatal else { return !self.is_dead };
        if let Some(fewer) = left.checked_sub(1) {
            *left = fewer;
            return true;
        }
        let arrives = *arrives;
        (self.is_dead, self.fatal) = (true, None);
        arrives
    }

    fn fate(&mut self, arrived: &Arrived) -> Fate {
        let is_write = arrived.request.verb.is_write();
        if self.is_dead || is_write && !self.arrives() {
            return Fate::Dropped(Silence::Hanging);
        }
        if let Some(silence) = self.outage {
            return Fate::Dropped(silence);
        }
        match self.writes.front_mut().filter(|_| is_write) {
            Some((0, _)) => self.writes.pop_front().map_or(Fate::Answered, |(_, fate)| fate),
            Some((after, _)) => {
                *after -= 1;
                Fate::Answered
            }
            None => Fate::Answered,
        }
    }
}

impl Wrote {
    fn fate(self) -> Fate {
        match self {
            Self::Lost => Fate::Lost(Silence::Broken),
            Self::LostLater => Fate::Lost(Silence::Hanging),
            Self::Dropped => Fate::Dropped(Silence::Hanging),
            Self::Late => Fate::Late(Silence::Hanging),
            Self::Refused(code) => Fate::Refused(code),
        }
    }
}

/// Returns the delivery as [`super::receivers::Arrived`] has it.
pub fn delivery_of(delivery: &Value) -> String {
    let (spec, text) = (&delivery["spec"], |value: &Value| value.as_str().unwrap_or_default().to_owned());
    let (pipeline, notification) = (text(&spec["pipelineRef"]["name"]), text(&spec["notification"]));
    let (environment, type_, revision) =
        (text(&spec["subject"]["environment"]), text(&spec["type"]), text(&spec["to"]["revision"]));
    format!("{pipeline}/{notification}/{environment} {} {type_} {revision}", spec["serial"])
}

/// Returns a token as a Secret contains it.
fn base64(token: u32) -> String {
    // Three characters are four in base64, without a rest.
    json!(k8s_openapi::ByteString(format!("{token:03}").into_bytes())).as_str().unwrap_or_default().to_owned()
}

fn rollout(tag: u32) -> Value {
    let containers = json!([{"name": "app", "image": format!("registry.example/app:{tag}")}]);
    json!({"replicas": 1, "template": {"spec": {"containers": containers}}})
}

fn kinds() -> Vec<kind::Kind> {
    let deployments = kind::Kind {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        plural: "deployments".to_owned(),
        kind: "Deployment".to_owned(),
        is_namespaced: true,
        has_status: true,
        has_generation: true,
        ..kind::Kind::default()
    };
    let ours = relaybook_api::crds();
    ours.iter().flat_map(kind::custom).chain(kind::builtin()).chain([deployments]).collect()
}
