//! The pipeline controller of the model: it takes the steps of promotions into the log, and shows the promotions in the status.

use kube::ResourceExt as _;

use super::{Logged, Server, last_step};
use relaybook_api::Promotion;
use relaybook_core::promotion::names::{order, order_of_mirror};
use relaybook_core::promotion::plan::is_ended;
use relaybook_core::promotion::testing::mirror as shown_as;

impl Server {
    /// Takes the steps into the log, one promotion of an environment after the other.
    pub(super) fn mirror(&mut self) {
        let mut pipeline = self.pipeline.clone();
        for environment in &mut pipeline.status.as_mut().unwrap().environments {
            let is_here = |p: &&Promotion| p.spec.environment == environment.name && last_step(p) > 0;
            let mut all: Vec<&Promotion> = self.mirrored.values().filter(is_here).collect();
            all.sort_by_key(|promotion| order(&promotion.spec));
            loop {
                let shown = environment.promotion.as_ref();
                let current = shown.and_then(|shown| all.iter().find(|promotion| promotion.name_any() == shown.name));
                if let (Some(shown), Some(current)) = (shown, current) {
                    let steps = &current.status.as_ref().unwrap().steps;
                    if steps.first().is_some_and(|first| first.step > shown.taken + 1) {
                        self.violations.push(format!("a step of {} was lost", shown.name));
                    }
                    let new = steps.iter().filter(|step| step.step > shown.taken).map(|step| Logged {
                        environment: environment.name.clone(),
                        wipes: self.wipes,
                        order: order(&current.spec),
                        uid: current.metadata.uid.clone().unwrap(),
                        step: step.step,
                    });
                    self.log.extend(new);
                    environment.promotion = Some(shown_as(current, shown.taken.max(last_step(current))));
                }
                let last = environment.promotion.as_ref().map(order_of_mirror);
                let next = all.iter().find(|promotion| last.is_none_or(|last| order(&promotion.spec) > last));
                match next {
                    Some(next) if current.is_none_or(|current| is_ended(current)) => {
                        environment.promotion = Some(shown_as(next, 0));
                    }
                    _ => break,
                }
            }
        }
        if pipeline != self.pipeline {
            self.edit(|stored| *stored = pipeline);
        }
    }
}
