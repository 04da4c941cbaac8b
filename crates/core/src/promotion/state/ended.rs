//! Pure: the decisions about a promotion that has ended.
//!
//! In: the promotion and its environments. Out: its next status. A failed one finishes if the environment runs the revision after all, and
//! continues if a receiver accepts its request after all. A failed or closed one is requested again, if a person asks for it with the annotation `relaybook.dev/retry`.

use super::{Case, Next, bounded, index_of, not_whole, policy, shown};
use crate::promotion::pair::Pair;
use relaybook_api::promotion::Phase;

impl Case<'_> {
    /// Decides about a failed promotion. It continues only as the newest one.
    pub(super) fn failed(&self) -> Next {
        let (spec, to) = (self.spec(), self.environment());
        let index = index_of(self.pipeline, &spec.environment);
        let pair = index.and_then(|index| Pair::new(self.pipeline, index));
        let is_failed = self.status.phase == Some(Phase::Failed);
        if is_failed && self.is_newest() && pair.as_ref().is_some_and(|pair| pair.runs(&spec.revision)) {
            return self.finished();
        }
        if let Some((pair, _)) = pair.as_ref().zip(index.and_then(|index| policy(&self.pipeline.spec, index)))
            && is_failed
            && self.is_newest()
            && let Some(next) = self.accepted_since(pair)
        {
            return next;
        }
        if self.asked().is_none() {
            return Next::Wait(None);
        }
        if !self.is_newest() {
            return self.not_retried(&format!("a later promotion to {to} exists or existed"));
        }
        let Some((pair, policy)) = pair.zip(index.and_then(|index| policy(&self.pipeline.spec, index))) else {
            return self.not_retried(&format!("the pipeline has no promotion strategy for {to}"));
        };
        if policy.manual && !spec.approved {
            return self.not_retried(&format!("it was never approved; {}", self.another()));
        }
        if let Some(why) = not_whole(&spec.revision) {
            return self.not_retried(&why);
        }
        match pair.ready().filter(|_| pair.not_observed().is_none()) {
            // The state is not known, or does not last. The annotation stays.
            None => Next::Wait(None),
            Some(source) if source.revision == spec.revision && pair.from.name == spec.from => self.request(&policy),
            Some(source) => {
                let [from, runs, of] = [&pair.from.name, &source.revision, &spec.from].map(|text| shown(text));
                self.not_retried(&format!("{from} runs {runs}, and {} is promoted from {of}", self.revision()))
            }
        }
    }

    /// Notes an annotation that comes too late.
    pub(super) fn ended(&self) -> Next {
        if self.asked().is_none() {
            return Next::Wait(None);
        }
        self.not_retried(&format!("only a failed or closed promotion can be retried; {}", self.another()))
    }

    /// Returns the remedy for a promotion that cannot continue.
    fn another(&self) -> String {
        let (pipeline, to) = (shown(&self.spec().pipeline_ref.name), self.environment());
        format!("start another one with `relaybook promote {pipeline} {to}`")
    }

    /// Notes an annotation. The message of the last step stays, because it can say that a pull request is still open.
    fn not_retried(&self, why: &str) -> Next {
        let mut status = self.status.clone();
        status.retried = self.asked();
        let before = status.steps.last().map(|step| step.message.as_str()).filter(|message| !message.is_empty());
        let before = before.map(|message| format!("{message}; ")).unwrap_or_default();
        status.message = bounded(&format!("{before}not retried: {why}"));
        Next::Write(Box::new(status))
    }
}
