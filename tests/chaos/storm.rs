//! What goes wrong with the API server and on the way there.
//!
//! In: the weather of a blow. Out: calls that fail, an API server that is away, and how often each kind of fault was hit.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;

use crate::crew::Crew;
use crate::plan::{Blow, Calls, Harm, Kill, Weather};
use crate::support::control_plane::ControlPlane;
use crate::support::proxy::{Call, Fault, Proxy, RuleId};

/// Of all writes, so many in a hundred lose their answer in any weather.
const DRIZZLE: u8 = 2;

/// The control plane and the way there.
pub struct Sky {
    control_plane: Option<ControlPlane>,
    proxy: Proxy,
    rng: Rng,
    drizzle: RuleId,
    /// How often each kind of fault was hit.
    pub hits: BTreeMap<String, usize>,
}

impl Sky {
    /// With drizzle from now on.
    pub fn new(control_plane: ControlPlane, proxy: Proxy, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let drizzle = rule(&proxy, &mut rng, Calls::Writes, Harm::AnswerLost, DRIZZLE);
        Self { control_plane: Some(control_plane), proxy, rng, drizzle, hits: BTreeMap::new() }
    }

    /// Carries out one blow. It is over when this returns.
    pub async fn strike(&mut self, blow: &Blow, crew: &mut Crew) {
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
            Weather::Faulty(calls, harm, percent) => {
                let id = rule(&self.proxy, &mut self.rng, calls, harm, percent);
                meanwhile(blow, crew).await;
                self.end(id, &format!("{calls:?}: {harm:?}"));
            }
        }
        crew.note(format!("{:?} is over", blow.weather));
    }

    /// Ends the drizzle: nothing goes wrong any more.
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

    /// Has the launcher do something, while time passes for the replicas.
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

/// The time of a blow, with the kill in it.
async fn meanwhile(blow: &Blow, crew: &mut Crew) {
    let Some(Kill { replica, after, down }) = blow.kill else { return crew.pass(blow.span).await };
    crew.pass(after).await;
    crew.kill(replica, down);
    crew.pass(blow.span.saturating_sub(after)).await;
}

fn rule(proxy: &Proxy, rng: &mut Rng, calls: Calls, harm: Harm, percent: u8) -> RuleId {
    let fault = match harm {
        Harm::AnswerLost => Fault::LoseAnswer,
        Harm::RequestLost => Fault::LoseRequest,
        Harm::Refused(code) => Fault::Refuse(code),
    };
    let dice = Mutex::new(rng.fork());
    let unlucky = move || dice.lock().unwrap_or_else(PoisonError::into_inner).u8(0..100) < percent;
    proxy.rule(move |call| concerns(calls, call) && unlucky(), fault)
}

fn concerns(calls: Calls, call: &Call) -> bool {
    match calls {
        Calls::Creates => call.is_create_delivery(),
        Calls::Outcomes => call.is_outcome(),
        Calls::Cursors => call.is_cursors(),
        Calls::PipelineStatus => call.is_pipeline_status(),
        Calls::Lease => call.is_lease(),
        Calls::Writes => {
            call.is_create_delivery() || call.is_delivery_status() || call.is_cursors() || call.is_pipeline_status()
        }
    }
}
