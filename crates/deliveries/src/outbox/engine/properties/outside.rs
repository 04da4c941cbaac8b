//! What users and other clients do in a history, besides deletions and redeliveries.
//!
//! In: steps. Out: what exists besides Deliveries ([`Existing`]), what the leader knows of it, settings, and Deliveries of other clients.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::process::LONG;
use super::server::{LANES, NAMESPACE};
use super::world::{Checked, World};
use super::{Setting, Thing};
use crate::outbox::engine::effect::Input;
use crate::outbox::send_gate::index::Gone;
use crate::outbox::{Command, Scope};
use relaybook_api::notification::Ordering;
use relaybook_settings::config::Rate;

/// What exists besides Deliveries.
#[derive(Clone)]
pub(super) struct Existing {
    pub(super) has_pipeline: bool,
    /// The targets by lane, each with the serial at which it was first observed. `None`: it is not observed yet.
    pub(super) targets: BTreeMap<usize, Option<i64>>,
    /// The number in the uid of the notification.
    pub(super) notification: Option<usize>,
    /// The highest number that a notification of this name has had.
    newest: usize,
}

impl Default for Existing {
    fn default() -> Self {
        let targets = (0..LANES).map(|lane| (lane, Some(0))).collect();
        Self { has_pipeline: true, targets, notification: Some(1), newest: 1 }
    }
}

impl Existing {
    /// What a live read finds: `send_gate::live_check`.
    pub(super) fn is_gone(&self, what: Gone, lane: usize) -> bool {
        match what {
            Gone::Notification => self.notification.is_none(),
            Gone::Pipeline => !self.has_pipeline,
            Gone::Target => !self.has_pipeline || !self.targets.contains_key(&lane),
        }
    }

    fn hide(&mut self, thing: Thing) {
        match thing {
            Thing::Pipeline => self.has_pipeline = false,
            Thing::Target(lane) => _ = self.targets.remove(&lane),
            Thing::Notification => self.notification = None,
        }
    }

    /// Deletes a thing, or creates another one of the same name.
    fn replace(&mut self, thing: Thing) {
        match thing {
            Thing::Target(lane) if !self.targets.contains_key(&lane) => _ = self.targets.insert(lane, None),
            Thing::Notification if self.notification.is_none() => {
                self.newest += 1;
                self.notification = Some(self.newest);
            }
            _ => self.hide(thing),
        }
    }

    /// Whether it is there is known by now, so the new targets are observed.
    fn observe(&mut self, logged: i64) {
        for since in self.targets.values_mut() {
            since.get_or_insert(logged);
        }
    }
}

impl World<'_> {
    pub(super) fn edit(&mut self, setting: Setting) {
        let delivery = &mut self.settings.delivery;
        match setting {
            Setting::Suspend => self.settings.suspend = !self.settings.suspend,
            Setting::Supersede => delivery.supersede = !delivery.supersede,
            Setting::Rate => {
                let slow = Rate { per_second: NonZeroU32::MIN, burst: NonZeroU32::MIN };
                delivery.rate = delivery.rate.is_none().then_some(slow);
            }
            Setting::Ordering => {
                let is_whole = delivery.ordering == Ordering::Pipeline;
                delivery.ordering = if is_whole { Ordering::Target } else { Ordering::Pipeline };
            }
        }
        self.show(self.leader_knows().clone());
    }

    /// A thing is deleted or created, and the leader does not know it yet. Or, unless `is_true`, the leader does not find it although it is
    /// there. That can happen with all but the pipeline: without it, the leader has no cursor, and no Delivery would be undecided.
    pub(super) fn replace(&mut self, thing: Thing, is_true: bool) {
        if is_true || matches!(thing, Thing::Pipeline) {
            return self.server.existing.replace(thing);
        }
        let mut known = self.leader_knows().clone();
        known.hide(thing);
        self.show(known);
    }

    /// The watches of the leader have delivered everything.
    pub(super) fn learn(&mut self) {
        self.show(self.server.existing.clone());
        self.server.existing.observe(self.server.logged());
    }

    fn leader_knows(&self) -> &Existing {
        &self.processes[self.leader()].known
    }

    fn show(&mut self, existing: Existing) {
        let leader = self.leader();
        let process = &mut self.processes[leader];
        process.see(existing, &self.settings, &self.server);
        let scope = Scope::Notification(NAMESPACE.to_owned(), "deploys".to_owned());
        process.send(Command::Check(scope));
    }

    /// The Lease becomes too short for a request, or it is renewed.
    pub(super) fn lease(&mut self, is_short: bool) -> Checked {
        let leader = self.leader();
        self.processes[leader].renew(if is_short { Duration::ZERO } else { LONG });
        self.on(leader, Input::Lease).map(drop)
    }
}
