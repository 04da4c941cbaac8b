//! The dispatcher as a model: it offers the deliveries of each lane to the engine, or records them, and advances its cursor.
//!
//! In: the change log, answers of the engine, ends of creates. Out: commands for the engine, creates.

use std::collections::VecDeque;
use std::sync::Arc;

use super::job::Job;
use super::process::Process;
use super::server::{Form, LANES, NAMESPACE, PIPELINE, Server, derived};
use crate::outbox::engine::effect::Ticket;
use crate::outbox::record::{Record, name};
use crate::outbox::store::journal::New;
use crate::outbox::{Answer, Command};
use relaybook_api::{DeliverySpec, ObjectName};

/// The number of the lane for the whole pipeline.
const WHOLE: usize = LANES;

/// What a lane of the dispatcher waits for.
pub(super) enum Waits {
    Answer(Ticket),
    Create,
}

/// The deliveries of one lane that the dispatcher records in one pass: `Deliveries::record`.
pub(super) struct Pass {
    todo: VecDeque<Arc<DeliverySpec>>,
    recorded: Vec<i64>,
    created: Vec<Record>,
    is_offering: bool,
    pub(super) waits: Waits,
}

impl Process {
    /// Continues the passes of the dispatcher, and then advances its cursor.
    pub(super) fn dispatch(&mut self, server: &mut Server) {
        if !self.is_loaded || self.is_stopped {
            return;
        }
        let lanes: Vec<_> = self.passes.keys().copied().collect();
        for lane in lanes {
            self.pass(lane);
        }
        let Some(notification) = self.known.notification.filter(|_| self.known.has_pipeline) else { return };
        if self.passes.is_empty() && self.uid != notification {
            // The cursor of a notification begins at the end of the log.
            (self.uid, self.cursor) = (notification, server.logged());
            server.skipped = self.cursor;
        }
        if self.uid == notification {
            self.begin_all(server);
        }
        while self.done.contains(&(self.cursor + 1)) {
            self.cursor += 1;
        }
    }

    /// Begins passes. After an edit of `ordering`, the earlier ones end first.
    fn begin_all(&mut self, server: &Server) {
        let is_other = |lane: &usize| (*lane == WHOLE) != self.is_whole;
        if self.passes.keys().any(is_other) {
            return;
        }
        let lanes = if self.is_whole { WHOLE..WHOLE + 1 } else { 0..LANES };
        for lane in lanes {
            if !self.passes.contains_key(&lane) {
                self.begin(lane, server);
            }
        }
    }

    fn pass(&mut self, lane: usize) {
        let Some(pass) = self.passes.get_mut(&lane) else { return };
        let Waits::Answer(ticket) = pass.waits else { return };
        match self.answers.remove(&ticket) {
            Some(Answer::Recorded) => self.recorded(lane, None),
            Some(Answer::Declined) => {
                pass.is_offering = false;
                self.next(lane);
            }
            Some(Answer::Failed(_) | Answer::Drained) => self.end(lane),
            None => {}
        }
    }

    fn begin(&mut self, lane: usize, server: &Server) {
        let mut todo = VecDeque::new();
        let form = Form { notification: self.uid, is_whole: self.is_whole };
        for (serial, of) in server.above(self.cursor).filter(|(_, of)| self.is_whole || *of == lane) {
            let spec = derived(serial, of, form);
            let id = ObjectName::new(NAMESPACE, name(&spec));
            let is_gone = match self.known.targets.get(&of).copied().flatten() {
                Some(since) => serial <= since,
                None if server.is_of_gone_target(serial, of) => true,
                // The dispatcher waits until it knows the target.
                None => break,
            };
            if is_gone || self.done.contains(&serial) || self.parts.delivery_index.is_recorded(PIPELINE, &id) {
                self.done.insert(serial);
            } else {
                todo.push_back(spec);
            }
        }
        if !todo.is_empty() {
            let (recorded, created) = (Vec::new(), Vec::new());
            self.passes.insert(lane, Pass { todo, recorded, created, is_offering: true, waits: Waits::Create });
            self.next(lane);
        }
    }

    /// Offers or records the next delivery of a lane, or ends its pass.
    fn next(&mut self, lane: usize) {
        let Some(pass) = self.passes.get_mut(&lane) else { return };
        let Some(spec) = pass.todo.front().cloned() else { return self.end(lane) };
        let (serial, is_offering) = (spec.serial, pass.is_offering);
        let new = New { namespace: NAMESPACE.to_owned(), elsewhere: None, spec };
        let waits = if is_offering {
            Waits::Answer(self.send(Command::Offer(new)))
        } else {
            self.jobs.push(Job::Create(lane, new));
            Waits::Create
        };
        if let Some(pass) = self.passes.get_mut(&lane) {
            pass.waits = waits;
        }
        if self.is_early {
            self.done.insert(serial);
        }
    }

    /// The delivery for which a lane waits is recorded, by the dispatcher or by the engine.
    pub(super) fn recorded(&mut self, lane: usize, created: Option<Record>) {
        let Some(pass) = self.passes.get_mut(&lane) else { return };
        pass.recorded.extend(pass.todo.pop_front().map(|spec| spec.serial));
        pass.created.extend(created);
        // A deposed process does not begin another create.
        if self.is_loaded { self.next(lane) } else { self.end(lane) }
    }

    pub(super) fn end(&mut self, lane: usize) {
        let Some(pass) = self.passes.remove(&lane) else { return };
        self.parts.delivery_index.recorded(&pass.created);
        if !pass.created.is_empty() {
            self.send(Command::Recorded(pass.created));
        }
        self.done.extend(pass.recorded);
    }
}
