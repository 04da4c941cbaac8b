//! The world of a history: the API server, three replicas, the receivers, the objects of users and their controllers.
//!
//! In: the steps of a history. Out: what happened, for the [`verdict`](super::verdict).

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use parking_lot::Mutex;
use relaybook_api::TransitionType;
use relaybook_simulation::api_server::request::Request;
use relaybook_simulation::api_server::{Server, kind};
use relaybook_simulation::clock;
use relaybook_simulation::service::Network;
use serde_json::{Value, json};

use super::apps::App;
use super::line::Line;
use super::receivers::{Manner, RECEIVERS, Receivers};
use super::replica::{HOME, Replica};
use super::steps::Step;
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
pub const DEPLOYER: &str = "deployer";
/// The Secret with the token of the second notification.
const SECRET: &str = "token";
/// The template of all bodies.
const BODY: &str = r#"{"serial": "{{serial}}", "pipeline": "{{pipeline.name}}", "notification": "{{notification.name}}",
    "target": "{{environment}}", "type": "{{type}}", "revision": "{{revision}}"}"#;
/// Before a wait of this time or longer, all watches get a bookmark.
const BOOKMARKS: Duration = Duration::from_secs(10);
/// How long a call needs at most, each way.
const WAY: Duration = Duration::from_millis(4);
/// A replica runs at most this time alone. Then the others run until the same time. So what one does can be seen by another this much earlier.
pub const TURN: Duration = Duration::from_millis(500);
/// At the end, nothing is broken any more, and everything must be settled within this time.
const CALM: Duration = Duration::from_mins(15);
/// Number of times that everything is checked from then on, 5 s apart.
const STAYS: usize = 20;

/// The world.
pub struct World {
    pub network: Network,
    pub receivers: Receivers,
    replicas: Vec<Replica>,
    pub now: Duration,
    pub apps: Vec<App>,
    /// Number of requests for promotions that were carried out.
    pub carried: usize,
    suspended: [bool; RECEIVERS],
    lines: Arc<Mutex<Vec<Line>>>,
    pub verdict: Verdict,
}

impl World {
    /// Returns a world whose replicas run and have settled.
    pub fn new() -> Result<Self, String> {
        let mut server = Server::new(kinds());
        server.refuses_old_watches = fastrand::bool();
        for name in [HOME, TEAM] {
            server.add_namespace(name, clock::wall());
        }
        let lines: Arc<Mutex<Vec<Line>>> = Arc::new(Mutex::new((0..REPLICAS).map(|_| Line::default()).collect()));
        let of = lines.clone();
        let network = Network::new(server, clock::wall, move |arrived| {
            let fate = of.lock()[arrived.client].fate(arrived);
            tracing::debug!(replica = arrived.client, ?fate, "{}", arrived.request);
            fate
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
                self.create_app(format!("{pipeline}-{environment}"));
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
        // The number of its receiver, its name, what triggers it, and what is different.
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
            Step::Start(which) => self.start(which),
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
                self.verdict.is_merged |= allowed.is_some();
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
            Step::Compact => {
                self.verdict.is_merged = true;
                self.network.with(|server| server.compact(server.version()));
            }
        }
        self.check()
    }

    /// Repairs everything, waits until all is settled, and checks what must be so at the end.
    pub fn end_all(&mut self) -> Result<(), String> {
        for which in 0..REPLICAS {
            self.step(Step::Outage(which, None))?;
            self.lines.lock()[which] = Line::default();
            self.step(Step::Freeze(which, false))?;
            self.start(which);
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
            (0..REPLICAS).for_each(|which| self.start(which));
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

    fn start(&mut self, which: usize) {
        if !self.replicas[which].is_running() {
            // The new process is not frozen.
            self.change(which, Cause::Frozen, false);
            self.replicas[which].start(self.now);
        }
    }

    fn kill(&mut self, which: usize) {
        if self.replicas[which].is_running() {
            self.change(which, Cause::Killed, true);
            self.replicas[which].kill();
        }
    }

    fn wait(&mut self, time: Duration) -> Result<(), String> {
        if time >= BOOKMARKS {
            self.network.watches().iter().for_each(|watch| self.network.bookmark(watch.id));
        }
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
        let is_settled = |delivery: &Value| delivery["status"]["outcome"].is_string();
        let settled: Vec<Value> = self.objects("deliveries").into_iter().filter(is_settled).collect();
        if let Some(delivery) = settled.get(which % settled.len().max(1)) {
            self.verdict.redelivered.insert(delivery_of(delivery), self.now);
            let value = format!("{:?}", self.now);
            let annotation = json!({"metadata": {"annotations": {relaybook_api::delivery::REDELIVER: value}}});
            let name = delivery["metadata"]["name"].as_str().unwrap_or_default();
            self.write(&Method::PATCH, "relaybook.dev/v1alpha1", "deliveries", name, false, &annotation);
        }
    }

    /// Creates an object of the team.
    pub fn create(&self, api_version: &str, kind: &str, name: &str, mut object: Value) {
        json_patch::merge(
            &mut object,
            &json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": TEAM}}),
        );
        let plural = format!("{}s", kind.to_lowercase());
        self.write(&Method::POST, api_version, &plural, "", false, &object);
    }

    /// Writes an object as a user or another controller.
    pub fn write(&self, method: &Method, api_version: &str, plural: &str, name: &str, is_status: bool, body: &Value) {
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
