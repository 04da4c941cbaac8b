//! Executes the faults: of the replicas, of the API server and the connections to it, and of one of the receivers.
//!
//! In: the weather of a blow. Out: calls that fail or are late, an API server or a receiver that is down, and how often each
//! kind of fault was hit.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::crew::Crew;
use crate::plan::{Blow, Calls, Harm, Kill, Weather};
use crate::receiver::{Presence, Receiver};
use crate::support::control_plane::ControlPlane;
use crate::support::proxy::{Call, Fault, Proxy, RuleId};

/// Percentage of all writes that lose their answer at any time.
const DRIZZLE: u8 = 2;

/// Time after which all connections are closed.
const CUT: Duration = Duration::from_millis(100);
/// The delays of slow calls, in milliseconds.
const LATE: [u64; 3] = [100, 600, 2000];

/// The control plane and the proxy in front of it.
pub struct Sky {
    control_plane: Option<ControlPlane>,
    proxy: Proxy,
    rng: Rng,
    drizzle: RuleId,
    /// How often each kind of fault was hit.
    pub hits: BTreeMap<String, usize>,
}

impl Sky {
    /// Starts the permanent low rate of lost answers.
    pub fn new(control_plane: ControlPlane, proxy: Proxy, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let drizzle = rule(&proxy, &mut rng, Calls::Writes, Fault::LoseAnswer, DRIZZLE);
        Self { control_plane: Some(control_plane), proxy, rng, drizzle, hits: BTreeMap::new() }
    }

    /// Executes one blow, until its end.
    pub async fn strike(&mut self, blow: &Blow, crew: &mut Crew, fickle: &Receiver) {
        crew.pass(blow.pause).await;
        crew.note(format!("{:?} for {:?}", blow.weather, blow.span));
        match blow.weather {
            Weather::Calm => meanwhile(blow, crew).await,
            Weather::Stopped(replica) => {
                crew.stop(replica);
                self.hit("replica stopped", 1);
                meanwhile(blow, crew).await;
            }
            Weather::Frozen(replica) => {
                crew.freeze(replica);
                self.hit("replica frozen", 1);
                meanwhile(blow, crew).await;
                crew.thaw(replica);
            }
            Weather::ApiKilled => {
                self.order(crew, ControlPlane::kill_api_server).await;
                self.hit("API server killed", 1);
                meanwhile(blow, crew).await;
                self.order(crew, ControlPlane::start_api_server).await;
            }
            Weather::ApiFrozen => {
                self.control_plane().freeze_api_server();
                self.hit("API server frozen", 1);
                meanwhile(blow, crew).await;
                self.control_plane().thaw_api_server();
            }
            Weather::Cut => {
                self.proxy.cut();
                self.hit("API server cut off", 1);
                meanwhile(blow, crew).await;
                self.proxy.heal();
            }
            Weather::Slow(calls, percent) => {
                let late = |proxy: &Proxy, rng: &mut Rng, by| rule(proxy, rng, calls, Fault::Late(by), percent / 3);
                let ids = LATE.map(|by| late(&self.proxy, &mut self.rng, Duration::from_millis(by)));
                meanwhile(blow, crew).await;
                for id in ids {
                    self.end(id, &format!("{calls:?}: slow"));
                }
            }
            Weather::ReceiverGone => {
                fickle.be(Presence::Gone);
                self.hit("receiver gone", 1);
                meanwhile(blow, crew).await;
                fickle.be(Presence::Here);
            }
            Weather::ReceiverAsleep => {
                fickle.be(Presence::Asleep);
                self.hit("receiver asleep", 1);
                meanwhile(blow, crew).await;
                fickle.be(Presence::Here);
            }
            Weather::Lost(_) => {
                self.hit("replica lost", 1);
                meanwhile(blow, crew).await;
            }
            Weather::FrozenOut(replica) => {
                let since = Instant::now();
                crew.freeze(replica);
                self.hit("replica frozen out", 1);
                meanwhile(blow, crew).await;
                crew.thaw(replica);
                crew.deposed.push((since, Instant::now()));
            }
            Weather::Faulty(calls, harm, percent) => {
                let id = rule(&self.proxy, &mut self.rng, calls, fault(harm), percent);
                if calls == Calls::Secrets {
                    // Secrets that are already watched are only read again after the watch breaks.
                    self.proxy.cut();
                    crew.pass(CUT).await;
                    self.proxy.heal();
                }
                meanwhile(blow, crew).await;
                self.end(id, &format!("{calls:?}: {harm:?}"));
            }
        }
        crew.note(format!("{:?} is over", blow.weather));
    }

    /// Ends the permanent lost answers. After that there are no faults.
    pub fn clear_up(&mut self) {
        self.end(self.drizzle, "drizzle: AnswerLost");
    }

    fn end(&mut self, rule: RuleId, name: &str) {
        self.proxy.remove(rule);
        self.hit(name, self.proxy.hits(rule));
    }

    fn hit(&mut self, name: &str, times: usize) {
        *self.hits.entry(name.to_owned()).or_default() += times;
    }

    fn control_plane(&self) -> &ControlPlane {
        self.control_plane.as_ref().expect("here between two orders")
    }

    /// Executes an order of the launcher, while due replicas are still restarted.
    async fn order(&mut self, crew: &mut Crew, order: fn(&mut ControlPlane)) {
        let mut control_plane = self.control_plane.take().expect("here between two orders");
        let mut ordered = tokio::task::spawn_blocking(move || {
            order(&mut control_plane);
            control_plane
        });
        let done = loop {
            tokio::select! {
                done = &mut ordered => break done,
                () = crew.pass(Duration::from_secs(1)) => {}
            }
        };
        self.control_plane = Some(done.expect("the launcher obeys"));
    }
}

/// Waits for the duration of a blow, and executes its kill.
async fn meanwhile(blow: &Blow, crew: &mut Crew) {
    let Some(Kill { replica, after, down }) = blow.kill else { return crew.pass(blow.span).await };
    crew.pass(after).await;
    crew.kill(replica, down);
    crew.pass(blow.span.saturating_sub(after)).await;
}

fn fault(harm: Harm) -> Fault {
    match harm {
        Harm::AnswerLost => Fault::LoseAnswer,
        Harm::RequestLost => Fault::LoseRequest,
        Harm::Refused(code) => Fault::Refuse(code),
    }
}

fn rule(proxy: &Proxy, rng: &mut Rng, calls: Calls, fault: Fault, percent: u8) -> RuleId {
    let dice = Mutex::new(rng.fork());
    let unlucky = move || dice.lock().unwrap_or_else(PoisonError::into_inner).u8(0..100) < percent;
    proxy.rule(move |call| concerns(calls, call) && unlucky(), fault)
}

fn concerns(calls: Calls, call: &Call) -> bool {
    match calls {
        Calls::Creates => call.is_create_delivery() || call.is_create_promotion(),
        Calls::Outcomes => call.is_outcome() || call.is_promotion_status(),
        Calls::Cursors => call.is_cursors(),
        Calls::PipelineStatus => call.is_pipeline_status(),
        Calls::DeliveryStatus => call.is_delivery_status(),
        Calls::Pipelines => call.is_cursors() || call.is_pipeline_status(),
        Calls::Secrets => call.path.split('/').any(|word| word == "secrets"),
        Calls::Lease => call.is_lease(),
        Calls::Writes => {
            let of_promotions = call.is_create_promotion() || call.is_promotion_status();
            let of_deliveries = call.is_create_delivery() || call.is_delivery_status();
            of_promotions || of_deliveries || call.is_cursors() || call.is_pipeline_status()
        }
        Calls::All => true,
    }
}
