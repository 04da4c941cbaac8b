//! A property test: however often and however late promotions are read, each step is in the log once.

use proptest::prelude::*;

use super::*;

/// One act of a test.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A promotion is created. `true`: a person asks for it.
    Begin(bool),
    /// The newest promotion makes one of its next steps, if it can.
    Step(usize),
    /// The reason of the newest promotion changes within its phase.
    Touch,
    /// An ended promotion is deleted, if all of its steps are taken.
    Retain,
    /// The pipeline controller reads the promotions as they were some acts ago, but not as they were before its last read.
    Read(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => any::<bool>().prop_map(Act::Begin),
        8 => (0..4_usize).prop_map(Act::Step),
        1 => Just(Act::Touch),
        1 => Just(Act::Retain),
        3 => (0..6_usize).prop_map(Act::Read),
    ]
}

/// The steps that can follow, as the state machine allows.
fn next_phases(promotion: &Promotion) -> &'static [(Phase, &'static str)] {
    let soaks = promotion.status.as_ref().is_some_and(|status| status.reason == "Soaking");
    match promotion.status.as_ref().and_then(|status| status.phase) {
        None => &[(Pending, "Soaking"), (Pending, WAITING_APPROVAL), (Requested, ""), (Withdrawn, "Superseded")],
        Some(Pending) if soaks => &[(Pending, WAITING_APPROVAL), (Requested, ""), (Merged, ""), (Withdrawn, "SourceMoved")],
        Some(Pending) => &[(Requested, ""), (Requested, ""), (Finished, ""), (Withdrawn, "Superseded")],
        Some(Requested | Merged) => {
            &[(Finished, ""), (Failed, "NotRunning"), (Failed, "NotRunning"), (Withdrawn, "Superseded")]
        }
        Some(Failed) => &[(Requested, "Retried"), (Requested, "Retried"), (Finished, "")],
        Some(_) => &[],
    }
}

/// The promotion controller, and the promotions after each act.
struct World {
    promotions: Vec<Promotion>,
    history: Vec<Vec<Promotion>>,
    /// All steps: name and time, which is unique.
    happened: Vec<(String, Phase, Time)>,
    reader: Reader,
    /// Reads after each act.
    eager: Reader,
    read: usize,
    clock: i64,
}

impl World {
    fn new() -> Self {
        let (reader, eager) = (Reader::new(), Reader::new());
        Self { promotions: vec![], history: vec![vec![]], happened: vec![], reader, eager, read: 0, clock: 0 }
    }

    fn act(&mut self, act: Act) {
        self.clock += 1;
        match act {
            Act::Begin(asked) => self.begin(asked),
            Act::Step(which) => self.step(which),
            Act::Touch => {
                let status = self.promotions.last_mut().and_then(|promotion| promotion.status.as_mut());
                if let Some(status) = status.filter(|status| status.phase == Some(Requested)) {
                    status.reason = format!("Touched{}", self.clock);
                }
            }
            Act::Retain => self.retain(),
            Act::Read(_) => {}
        }
        self.history.push(self.promotions.clone());
        self.eager.read(&self.promotions, false);
        if let Act::Read(ago) = act {
            self.read = self.read.max(self.history.len().saturating_sub(1 + ago));
            self.reader.read(&self.history[self.read], false);
        }
    }

    fn begin(&mut self, asked: bool) {
        let last = self.promotions.last();
        if last.is_some_and(|last| !super::phase(last).is_ended() || last.status.is_none()) {
            return;
        }
        let order = last.map_or((0, 0), |last| (last.spec.occasion, last.spec.request));
        let (occasion, request) = if asked && order.0 > 0 { (order.0, order.1 + 1) } else { (order.0 + 1, 0) };
        self.promotions.push(promotion(occasion, request));
    }

    fn step(&mut self, which: usize) {
        let taken = |promotion: &Promotion| {
            let mirror = self.reader.environment.promotion.as_ref();
            mirror.filter(|m| promotion.metadata.name.as_deref() == Some(&*m.name)).map_or(0, |mirror| mirror.taken)
        };
        let Some(promotion) = self.promotions.last() else { return };
        // No ninth step before the oldest of the kept steps is taken.
        let kept = steps(promotion);
        if kept.len() == MAX_STEPS && kept[0].step > taken(promotion) {
            return;
        }
        let next = next_phases(promotion);
        let Some((phase, reason)) = next.get(which).or(next.last()) else { return };
        let (phase, clock) = (*phase, self.clock);
        if let Some(promotion) = self.promotions.last_mut() {
            step(promotion, phase, reason, clock);
            self.happened.push((promotion.metadata.name.clone().unwrap(), phase, at(clock)));
        }
    }

    fn retain(&mut self) {
        let Some(mirror) = &self.reader.environment.promotion else { return };
        self.promotions.retain(|promotion| order(&promotion.spec) >= (mirror.occasion, mirror.request));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Every step of every counted promotion is in the log exactly once and in order, however often and however late they are read.
    #[test]
    fn every_step_is_in_the_log_once(acts in prop::collection::vec(act(), 0..120)) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
        world.act(Act::Read(0));
        let told = |reader: &Reader| -> Vec<(String, Phase, Time)> {
            let of = |change: &Change| {
                let promotion = change.to.promotion.clone().unwrap();
                (promotion.name, promotion.phase, change.time)
            };
            reader.log.changes.iter().map(of).collect()
        };
        prop_assert_eq!(&told(&world.reader), &world.happened);
        prop_assert!(world.reader.log.changes.iter().all(|change| !change.coalesced));
        // The reason of the state before, and the strategy of a step before the request, may be those of a later time.
        let bare = |reader: &Reader| -> Vec<Change> {
            let bare = |state: &State| {
                let promotion = state.promotion.clone().map(|is| PromotionState { strategy: String::new(), ..is });
                State { promotion, ..state.clone() }
            };
            let of = |change: &Change| Change {
                from: State { reason: String::new(), ..bare(&change.from) },
                to: bare(&change.to),
                ..change.clone()
            };
            reader.log.changes.iter().map(of).collect()
        };
        prop_assert_eq!(bare(&world.reader), bare(&world.eager));
        prop_assert_eq!(&world.reader.environment, &world.eager.environment);
        let after = world.reader.log.clone();
        world.reader.read(&world.promotions, false);
        prop_assert_eq!(after, world.reader.log, "nothing is taken twice");
    }
}
