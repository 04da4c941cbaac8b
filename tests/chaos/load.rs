//! The load: applications that change, receivers that react, and the expected steps of every lane.
//!
//! In: a seed. Out: changes, one at a time for each application, and each only after the previous one has been observed, so that
//! no change is lost by design (because it is reverted before it is observed, or coalesced in a full log); the number of all
//! changes, and the expected steps of each lane.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::fmt::rfc2822::DateTimePrinter;
use kube::ResourceExt as _;
use kube::api::ListParams;
use relaybook_api::{Delivery, Notification, Pipeline, Status, Time};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::receiver::{Receiver, Reply};
use crate::script::{Act, Behaviour, Body, Life, Then, Wait, behaviour, refusal};
use crate::support::World;
use crate::support::lanes::{Lane, Step};
use crate::support::oracle::is_real;
use crate::support::receiver::Request;
use crate::support::world::{BODY, notification};

/// The pipelines, with the applications of each.
pub const PIPELINES: [(&str, [&str; 5]); 2] =
    [("north", ["n0", "n1", "n2", "n3", "n4"]), ("south", ["s0", "s1", "s2", "s3", "s4"])];
/// All types of transitions in this test.
const ALL: &[&str] = &["Deployed", "Failed", "Recovered"];

/// A notification.
pub struct Told {
    /// Its name.
    pub name: &'static str,
    /// Index of its receiver.
    receiver: usize,
    /// The transitions that it reports.
    types: &'static [&'static str],
    /// Its special setting.
    pub how: How,
}

/// The special setting of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// No special setting.
    Plain,
    /// The receiver requires the current token.
    Guarded,
    /// The whole pipeline is one lane.
    Ordered,
    /// The rate is limited to [`RATE`].
    Paced,
    /// All deliveries about an application continue one message.
    Threaded,
    /// Newer deliveries replace older ones.
    Latest,
    /// It has a receiver of its own, which is sometimes down. Not all attempts are seen.
    Fickle,
}

/// The notifications.
pub const NOTIFICATIONS: [Told; 7] = [
    Told { name: "plain", receiver: 0, types: ALL, how: How::Plain },
    Told { name: "guarded", receiver: 1, types: ALL, how: How::Guarded },
    Told { name: "ordered", receiver: 2, types: &["Deployed"], how: How::Ordered },
    Told { name: "paced", receiver: 2, types: &["Failed"], how: How::Paced },
    Told { name: "recovered", receiver: 1, types: &["Recovered"], how: How::Threaded },
    Told { name: "latest", receiver: 0, types: ALL, how: How::Latest },
    Told { name: "fickle", receiver: RECEIVERS - 1, types: ALL, how: How::Fickle },
];
/// Requests per second and burst of a notification with a limited rate.
pub const RATE: (u32, u32) = (3, 2);
/// Number of receivers, each with its own origin.
const RECEIVERS: usize = 4;
/// Target of redirects, which must not be followed.
pub const ELSEWHERE: &str = "/elsewhere";
/// The Secret with the current token, and its key.
pub const TOKEN: (&str, &str) = ("token", "token");
/// The environment of all targets.
const ENVIRONMENT: &str = "dev";
/// Maximum number of unprocessed changes of one target in the log: with more than 8, some would be coalesced.
const UNTAKEN: usize = 4;
/// Maximum number of changes that a lane may be behind its application.
const BEHIND: usize = 8;
/// Maximum time for anything that must happen. If a promise is broken on purpose, some of it never happens.
pub static PATIENCE: LazyLock<Duration> =
    LazyLock::new(|| Duration::from_secs(if std::env::var_os("RELAYBOOK_BROKEN").is_some() { 40 } else { 150 }));

impl How {
    /// Returns the special setting of a lane's notification, if it is one of [`NOTIFICATIONS`].
    pub fn of(lane: &Lane) -> Option<Self> {
        let name = lane.path.split('/').nth(1)?;
        NOTIFICATIONS.iter().find(|told| told.name == name).map(|told| told.how)
    }

    /// Whether a notification with this setting reports a revision. One lane for a whole pipeline has many deliveries, and at most 1,000 are
    /// kept, so it reports only every second one.
    fn reports(self, revision: &str) -> bool {
        self != Self::Ordered || revision.ends_with(['0', '2', '4', '6', '8'])
    }

    /// Returns the trigger for a type of transition.
    fn trigger(self, type_: &str) -> Value {
        match self {
            Self::Ordered => json!({"type": type_, "when": "revision.matches('[02468]$')"}),
            _ => json!({"type": type_}),
        }
    }

    /// Returns the part of the spec for this setting.
    fn over(self) -> Value {
        let (per_second, burst) = RATE;
        match self {
            Self::Plain | Self::Fickle => json!({}),
            Self::Guarded => json!({"endpoint": {"auth": {"token": {"secretKeyRef": {"name": TOKEN.0, "key": TOKEN.1}}}}}),
            Self::Ordered => json!({"delivery": {"ordering": "Pipeline"}}),
            Self::Paced => json!({"delivery": {"rate": {"perSecond": per_second, "burst": burst}}}),
            Self::Threaded => {
                let body = BODY.replacen('{', r#"{"continues": "{{remembered.message}}", "#, 1);
                // A message that is lost causes a second request in the same attempt, and the oracle compares requests with attempts.
                let update = json!({"lost": "false"});
                let thread = json!({"remember": {"message": "headers['x-message']"}, "update": update, "keepOpen": true});
                json!({"endpoint": {"thread": thread}, "template": {"inline": {"body": body}}})
            }
            Self::Latest => {
                let body = BODY.replacen('{', r#"{"superseded": "{{superseded}}", "#, 1);
                json!({"delivery": {"supersede": true}, "template": {"inline": {"body": body}}})
            }
        }
    }
}

/// State of the receivers: the messages that they accepted or refused finally, by path, and the token that they accept.
#[derive(Default)]
pub struct Desk {
    numbers: HashMap<String, u64>,
    done: HashMap<String, BTreeSet<String>>,
    token: String,
}

/// The load of one run.
pub struct Load {
    seed: u64,
    world: Arc<World>,
    /// The receivers.
    pub receivers: Vec<Receiver>,
    desk: Arc<Mutex<Desk>>,
    friendly: Arc<AtomicBool>,
    lives: Vec<Mutex<(Life, Vec<Act>)>>,
    view: watch::Receiver<BTreeMap<String, Pipeline>>,
}

impl Load {
    /// Creates all objects that must exist before the first change.
    pub async fn new(seed: u64, world: Arc<World>) -> Self {
        let desk: Arc<Mutex<Desk>> = Arc::new(Mutex::new(Desk { token: "day-0".to_owned(), ..Desk::default() }));
        let friendly = Arc::new(AtomicBool::new(false));
        let start = |_| {
            let (desk, friendly) = (desk.clone(), friendly.clone());
            Receiver::start(move |request| reply(seed, request, &mut lock(&desk), friendly.load(Ordering::Relaxed)))
        };
        let receivers: Vec<_> = (0..RECEIVERS).map(start).collect();
        for (pipeline, apps) in PIPELINES {
            for app in apps {
                world.deploy(app, "0").await;
            }
            world.pipeline(pipeline, &apps.map(|app| format!("{ENVIRONMENT}/{app}")).each_ref().map(String::as_str)).await;
        }
        world.secret(TOKEN.0, json!({TOKEN.1: "day-0"})).await;
        for told in &NOTIFICATIONS {
            let triggers: Vec<_> = told.types.iter().map(|t| told.how.trigger(t)).collect();
            let mut over =
                json!({"triggers": triggers, "endpoint": {"timeout": "5s"}, "delivery": {"retain": {"perLane": 1000}}});
            json_patch::merge(&mut over, &told.how.over());
            let url = receivers[told.receiver].url(&format!("/{}/{{{{target.app.name}}}}", told.name));
            world.create::<Notification>(notification(told.name, &url, over)).await;
        }
        let apps = PIPELINES.iter().flat_map(|(_, apps)| apps);
        let lives = apps.map(|app| Mutex::new((Life::new(seed, app), Vec::new()))).collect();
        let view = watch_pipelines(world.clone());
        Self { seed, world, receivers, desk, friendly, lives, view }
    }

    /// Returns the receiver that is sometimes down.
    pub fn fickle(&self) -> &Receiver {
        &self.receivers[RECEIVERS - 1]
    }

    /// Sets the token that the receivers accept.
    pub fn let_in(&self, token: &str) {
        token.clone_into(&mut lock(&self.desk).token);
    }

    /// Notes that the user has deleted this delivery, so the load does not wait for it.
    pub fn never_mind(&self, delivery: &Delivery) {
        let app = delivery.spec.subject.target.as_ref().map_or("", |target| &target.app.name);
        let path = format!("/{}/{app}", delivery.spec.notification);
        lock(&self.desk).done.entry(path).or_default().insert(delivery.name_any());
    }

    /// Performs acts of all applications until `enough`, then finishes the current acts. Returns the applications that got stuck.
    pub async fn run(&self, enough: &AtomicBool) -> Vec<String> {
        let stuck = join_all(Self::apps().map(async |(number, pipeline, app)| {
            while !enough.load(Ordering::Relaxed) {
                let pause = self.life(number).0.pause();
                tokio::time::sleep(pause).await;
                if self.may_go_on(number, pipeline, app) {
                    let act = self.life(number).0.act();
                    self.perform(number, pipeline, app, act).await?;
                } else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            Ok(())
        }));
        stuck.await.into_iter().filter_map(Result::err).collect()
    }

    /// Performs one more act of each kind for every application.
    pub async fn finale(&self) -> Vec<String> {
        let stuck = join_all(Self::apps().map(async |(number, pipeline, app)| {
            let acts = self.life(number).0.finale();
            for act in acts {
                self.perform(number, pipeline, app, act).await?;
            }
            Ok(())
        }));
        stuck.await.into_iter().filter_map(Result::err).collect()
    }

    /// Stops the faults of the receivers: from now on each message is accepted or refused finally at the first request.
    pub fn be_friendly(&self) {
        self.friendly.store(true, Ordering::Relaxed);
    }

    /// Returns the expected steps of every lane, after all acts so far.
    pub fn expected(&self) -> BTreeMap<Lane, Vec<Step>> {
        let mut lanes = BTreeMap::new();
        for ((number, pipeline, app), Told { name: notification, types, how, .. }) in
            Self::apps().flat_map(|app| NOTIFICATIONS.iter().map(move |n| (app, n)))
        {
            let path = format!("{pipeline}/{notification}/{ENVIRONMENT}/{app}");
            let life = self.life(number);
            let reported = life.1.iter().map(Act::means);
            let reported = reported.filter(|(type_, revision)| types.contains(type_) && how.reports(revision));
            let steps = reported.map(|(type_, revision)| {
                let refused = refusal(self.seed, &format!("/{notification}/{app}"), type_, revision);
                Step::new(&format!("{type_} {revision}{}", if refused.is_some() { " [Parked]" } else { "" }))
            });
            lanes.insert(Lane { namespace: self.world.ns.clone(), path }, steps.collect());
        }
        lanes
    }

    /// Returns the number of acts so far.
    pub fn acts(&self) -> usize {
        (0..self.lives.len()).map(|number| self.life(number).1.len()).sum()
    }

    fn apps() -> impl Iterator<Item = (usize, &'static str, &'static str)> + Clone {
        let pairs = PIPELINES.into_iter().flat_map(|(pipeline, apps)| apps.into_iter().map(move |app| (pipeline, app)));
        pairs.enumerate().map(|(number, (pipeline, app))| (number, pipeline, app))
    }

    fn life(&self, number: usize) -> MutexGuard<'_, (Life, Vec<Act>)> {
        self.lives[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the log and all lanes are close enough to the application for another act.
    fn may_go_on(&self, number: usize, pipeline: &str, app: &str) -> bool {
        let done = self.life(number).1.clone();
        let desk = lock(&self.desk);
        let behind = |told: &Told| {
            let reported = |(type_, revision): &(&str, &str)| told.types.contains(type_) && told.how.reports(revision);
            let due = done.iter().map(Act::means).filter(reported).count();
            due.saturating_sub(desk.done.get(&format!("/{}/{app}", told.name)).map_or(0, BTreeSet::len))
        };
        // Deliveries that newer ones may replace are not waited for.
        let behind = |told: &Told| if told.how == How::Latest { 0 } else { behind(told) };
        let untaken = self.view.borrow().get(pipeline).map_or(usize::MAX, |p| untaken(p, app));
        untaken <= UNTAKEN && NOTIFICATIONS.iter().map(behind).all(|behind| behind < BEHIND)
    }

    /// Performs one act, and waits until it is observed.
    async fn perform(&self, number: usize, pipeline: &str, app: &str, act: Act) -> Result<(), String> {
        let (world, revision) = (&self.world, act.means().1.to_owned());
        let (status, is) = match &act {
            Act::Break(_) => (Status::Failed, "fails"),
            Act::Ship(_) | Act::RollBack(_) => (Status::Current, "runs"),
        };
        self.life(number).1.push(act.clone());
        insist(async || world.try_roll_out(app, &revision).await).await;
        insist(async || match &act {
            Act::Break(_) => world.try_fail(app, "the new one does not come up").await,
            Act::Ship(_) | Act::RollBack(_) => world.try_finish(app).await,
        })
        .await;
        let observed = |pipelines: &BTreeMap<String, Pipeline>| {
            let status_of = pipelines.get(pipeline).and_then(|p| p.status.as_ref());
            let mut targets = status_of.into_iter().flat_map(|s| &s.environments).flat_map(|e| &e.targets);
            let target = targets.find(|t| t.cluster_app_ref.name == app);
            target.and_then(|t| t.settled.as_ref()).is_some_and(|s| s.status == status && s.revision == revision)
        };
        let mut view = self.view.clone();
        let waited = tokio::time::timeout(*PATIENCE, view.wait_for(observed)).await;
        match waited {
            Ok(found) => found.map(drop).map_err(|e| e.to_string()),
            Err(_) => Err(format!("not observed within {:?}: {app} {is} {revision}", *PATIENCE)),
        }
    }
}

/// Returns the reaction of a receiver to a request.
fn reply(seed: u64, request: &Request, desk: &mut Desk, friendly: bool) -> Reply {
    let answer = |status, headers: &str, body, after| Reply::Answer { status, headers: headers.to_owned(), body, after };
    // A test must not change the script of the real messages.
    if !is_real(request) {
        return answer(200, "", Body::Short, Duration::ZERO);
    }
    if request.path.starts_with("/guarded/") && request.header("authorization") != format!("Bearer {}", desk.token) {
        return answer(401, "", Body::Short, Duration::ZERO);
    }
    let text = request.json();
    let word = |name: &str| text[name].as_str().unwrap_or_default().to_owned();
    let number = desk.numbers.entry(request.path.clone()).or_default();
    *number += 1;
    let number = *number;
    let kind = Behaviour { after: Duration::ZERO, then: Then::Take(200, Body::Short) };
    let Behaviour { then, after } = if friendly { kind } else { behaviour(seed, &request.path, number) };
    match then {
        Then::Take(code, body) => {
            desk.done.entry(request.path.clone()).or_default().insert(request.id().to_owned());
            let message = format!("x-message: {number}\r\n");
            let Some(code) = refusal(seed, &request.path, &word("type"), &word("revision")) else {
                return answer(code, &message, body, after);
            };
            answer(code, &format!("location: {ELSEWHERE}\r\n"), Body::Short, after)
        }
        Then::Fail(code) => answer(code, "", Body::Short, after),
        Then::Throttle(wait) => answer(429, &format!("retry-after: {}\r\n", words(wait)), Body::Short, after),
        Then::Hang => Reply::Hang,
        Then::Close => Reply::Close,
        Then::DripHead => Reply::DripHead,
        Then::Bomb => Reply::Bomb,
    }
}

fn words(wait: Wait) -> String {
    let date = |time: Time| DateTimePrinter::new().timestamp_to_rfc9110_string(&time).expect("a year of four digits");
    match wait {
        Wait::Second => "1".to_owned(),
        Wait::Date => date(Time::now() + Duration::from_secs(1)),
        Wait::Past => date(Time::UNIX_EPOCH),
        Wait::Junk => "when the moon is full".to_owned(),
    }
}

/// Returns the number of changes of a target that not every cursor has passed.
fn untaken(pipeline: &Pipeline, app: &str) -> usize {
    let status = pipeline.status.clone().unwrap_or_default();
    let cursors = status.dispatched.unwrap_or_default().cursors;
    let lowest = cursors.iter().map(|c| c.serial).min().unwrap_or(0);
    let subject = format!("/{app}");
    let changes = status.log.unwrap_or_default().changes;
    changes.iter().filter(|c| c.serial > lowest && c.subject.ends_with(&subject)).count()
}

/// Lists the pipelines periodically, without the proxy.
fn watch_pipelines(world: Arc<World>) -> watch::Receiver<BTreeMap<String, Pipeline>> {
    let (sender, receiver) = watch::channel(BTreeMap::new());
    tokio::spawn(async move {
        while !sender.is_closed() {
            let listed = world.api::<Pipeline>().list(&ListParams::default()).await;
            if let Ok(list) = listed {
                sender.send_replace(list.into_iter().map(|p| (p.name_any(), p)).collect());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    receiver
}

/// Repeats a call until it succeeds. A single call has no timeout, because a call that was given up could still be executed
/// later.
pub async fn insist<T>(call: impl AsyncFn() -> kube::Result<T>) -> T {
    let deadline = Instant::now() + *PATIENCE;
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) if Instant::now() > deadline => panic!("the API server does not come back: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}
