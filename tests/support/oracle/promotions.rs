//! What a test expects of the promotions of one pipeline, compared with the Promotion objects, the pipeline and the deliveries. Pure.
//!
//! In: lines such as `prod 2: Pending, Requested, Finished`, which name the environment, the revision, and the phases of the steps. The
//! lines of one environment are in the order of its promotions.
//! - `Pending` alone is a promotion that waits for an approval, which is reported. `PHASE/REASON` also names the reason.
//! - `Requested/Opening`, `Requested/Pushing` and `Requested/RequestAccepted` are not reported. `Merged/Pushed` is reported as opened.
//! - `prod 2: rejected NotIndicated` is a promotion that the controller withdrew without a step, which is never reported.
//! - A line that ends with ` (deleted)` is a promotion whose object is gone.
//!
//! Out: the lanes of the deliveries that the steps cause, and findings: a promotion or a step that is missing or unexpected, two promotions
//! for one occasion, steps that are not in the order of the log, and a delivery or a status that names another promotion.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use relaybook_api::delivery::Family;
use relaybook_api::promotion::{MAX_STEPS, Phase};
use relaybook_api::{Delivery, Pipeline, Promotion, PromotionStatus};

use super::Finding;
use crate::support::lanes::{Lane, PROMOTION, Step};
use crate::support::world::promotions::FENCE;

/// The reason of a promotion that waits for an approval.
const WAITS: &str = "WaitingApproval";
/// The reason of a promotion whose commit was pushed.
const PUSHED: &str = "Pushed";

/// What is expected of the promotions of one pipeline.
#[derive(Clone, Debug)]
pub struct Expected {
    namespace: String,
    pipeline: String,
    notifications: Vec<String>,
    /// `None`: any promotions are expected, whose deliveries follow from their steps.
    lines: Option<Vec<Line>>,
}

/// One expected promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    environment: String,
    revision: String,
    steps: Vec<Due>,
    /// The reason, if the promotion is withdrawn without a step.
    rejected: Option<String>,
    deleted: bool,
}

/// One expected step.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Due {
    phase: Phase,
    /// `None`: any reason.
    reason: Option<String>,
}

impl Due {
    fn parse(text: &str) -> Self {
        let (phase, reason) = text.split_once('/').map_or((text, None), |(phase, reason)| (phase, Some(reason)));
        let found = Phase::ALL.into_iter().find(|p| p.as_str() == phase);
        let phase = found.unwrap_or_else(|| panic!("no such phase: {text}"));
        let reason = reason.or((phase == Phase::Pending).then_some(WAITS));
        Self { phase, reason: reason.map(str::to_owned) }
    }

    fn is(&self, (phase, reason): &(Phase, String)) -> bool {
        self.phase == *phase && self.reason.as_ref().is_none_or(|wanted| wanted == reason)
    }
}

impl Line {
    fn parse(text: &str) -> Self {
        let (text, deleted) = text.strip_suffix(" (deleted)").map_or((text, false), |text| (text, true));
        let (place, steps) = text.split_once(": ").unwrap_or_else(|| panic!("ENVIRONMENT REVISION: STEPS, not {text}"));
        let (environment, revision) = place.split_once(' ').expect("ENVIRONMENT REVISION");
        let rejected = steps.strip_prefix("rejected ").map(str::to_owned);
        let steps = if rejected.is_some() { Vec::new() } else { steps.split(", ").map(Due::parse).collect() };
        Self { environment: environment.to_owned(), revision: revision.to_owned(), steps, rejected, deleted }
    }

    /// Whether the promotion has these last steps, and this number of steps. `None`: not yet.
    fn is(&self, promotion: &Promotion) -> Option<bool> {
        let (steps, count) = (taken(promotion), status(promotion).step);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let begins = self.revision == promotion.spec.revision && count <= self.steps.len();
        let first = count.saturating_sub(steps.len());
        let same = begins && self.steps[first..count].iter().zip(&steps).all(|(due, step)| due.is(step));
        if same && count < self.steps.len() { None } else { Some(same) }
    }
}

impl Expected {
    /// Expects exactly these promotions, and their deliveries by each of these notifications.
    pub fn new(namespace: &str, pipeline: &str, notifications: &[&str], lines: &[&str]) -> Self {
        let lines = Some(lines.iter().map(|text| Line::parse(text)).collect());
        Self { lines, ..Self::any(namespace, pipeline, notifications) }
    }

    /// Expects any promotions that fit together, and the deliveries of their steps.
    pub fn any(namespace: &str, pipeline: &str, notifications: &[&str]) -> Self {
        let notifications = notifications.iter().map(|name| (*name).to_owned()).collect();
        Self { namespace: namespace.to_owned(), pipeline: pipeline.to_owned(), notifications, lines: None }
    }

    /// Returns the name of the pipeline.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// Returns the promotions of the pipeline, in order, without those of the fence.
    fn ours<'p>(&self, all: &'p [Promotion]) -> Vec<&'p Promotion> {
        let is_ours = |p: &&Promotion| p.spec.pipeline_ref.name == self.pipeline && p.spec.environment != FENCE;
        let mut ours: Vec<_> = all.iter().filter(is_ours).collect();
        ours.sort_by_key(|p| (p.spec.occasion, p.spec.request));
        ours
    }

    /// Returns the lanes of the deliveries that must exist.
    pub fn lanes(&self, all: &[Promotion]) -> BTreeMap<Lane, Vec<Step>> {
        let mut reports: BTreeMap<String, Vec<Step>> = BTreeMap::new();
        match &self.lines {
            Some(lines) => {
                for line in lines {
                    let steps = line.steps.iter().map(|d| (d.phase, d.reason.clone().unwrap_or_default()));
                    reports.entry(line.environment.clone()).or_default().extend(reported(steps, &line.revision));
                }
            }
            None => {
                for promotion in self.ours(all) {
                    let steps = reported(taken(promotion), &promotion.spec.revision);
                    reports.entry(promotion.spec.environment.clone()).or_default().extend(steps);
                }
            }
        }
        let mut lanes = BTreeMap::new();
        for notification in &self.notifications {
            for (environment, steps) in &reports {
                let path = format!("{}/{notification}/{environment}/{PROMOTION}", self.pipeline);
                lanes.insert(Lane { namespace: self.namespace.clone(), path }, steps.clone());
            }
        }
        lanes
    }

    /// Returns all findings except those about the lanes.
    pub fn judge(&self, all: &[Promotion], pipeline: Option<&Pipeline>, deliveries: &[Delivery]) -> Vec<Finding> {
        let ours = self.ours(all);
        let mut bench = Bench { pipeline: &self.pipeline, findings: Vec::new() };
        bench.looked_at(&ours);
        let (counted, rejected): (Vec<_>, Vec<_>) =
            ours.into_iter().filter(|p| p.status.is_some()).partition(|p| status(p).step > 0);
        if let Some(lines) = &self.lines {
            bench.as_expected(lines, &counted);
            bench.as_rejected(lines, &rejected);
        }
        bench.once(&counted);
        bench.in_order(&counted);
        let deleted = |environment: &str| {
            let mut lines = self.lines.iter().flatten().filter(|line| line.environment == environment);
            lines.rfind(|line| line.rejected.is_none()).is_some_and(|line| line.deleted)
        };
        bench.mirrored(pipeline, &counted, deleted);
        for notification in &self.notifications {
            let is_ours = |d: &&Delivery| d.spec.pipeline_ref.name == self.pipeline && d.spec.notification == *notification;
            bench.named(&counted, &deliveries.iter().filter(is_ours).collect::<Vec<_>>());
        }
        bench.findings
    }
}

/// Collects findings.
struct Bench<'a> {
    pipeline: &'a str,
    findings: Vec<Finding>,
}

impl Bench<'_> {
    fn find(&mut self, final_: bool, kind: &'static str, text: impl std::fmt::Display) {
        self.findings.push(Finding { final_, kind, text: format!("promotions of {}: {text}", self.pipeline) });
    }

    fn looked_at(&mut self, all: &[&Promotion]) {
        for promotion in all.iter().filter(|p| p.status.is_none()) {
            self.find(false, "missing", format!("{} has no status", shown(promotion)));
        }
    }

    /// Compares the promotions of each environment with its lines.
    fn as_expected(&mut self, lines: &[Line], counted: &[&Promotion]) {
        let there = lines.iter().filter(|line| line.rejected.is_none() && !line.deleted);
        let environments: BTreeSet<&str> = there
            .clone()
            .map(|l| l.environment.as_str())
            .chain(counted.iter().map(|p| p.spec.environment.as_str()))
            .collect();
        for environment in environments {
            let lines: Vec<_> = there.clone().filter(|line| line.environment == environment).collect();
            let promotions: Vec<_> = counted.iter().filter(|p| p.spec.environment == environment).collect();
            for (line, promotion) in lines.iter().zip(&promotions) {
                match line.is(promotion) {
                    Some(true) => {}
                    Some(false) => self.find(true, "unexpected", format!("{} where {line:?} should be", shown(promotion))),
                    None => self.find(false, "missing", format!("steps: {} should be {line:?}", shown(promotion))),
                }
            }
            for line in lines.iter().skip(promotions.len()) {
                self.find(false, "missing", format!("{line:?}"));
            }
            for promotion in promotions.iter().skip(lines.len()) {
                self.find(true, "unexpected", shown(promotion));
            }
        }
    }

    /// Compares the promotions that were withdrawn without a step. Their order has no meaning.
    fn as_rejected(&mut self, lines: &[Line], rejected: &[&Promotion]) {
        let name = |environment: &str, revision: &str, reason: &str| format!("{environment} {revision}: rejected {reason}");
        let of_line = |line: &Line| line.rejected.as_ref().map(|reason| name(&line.environment, &line.revision, reason));
        let of = |p: &&Promotion| name(&p.spec.environment, &p.spec.revision, &status(p).reason);
        let mut due: Vec<_> = lines.iter().filter(|line| !line.deleted).filter_map(of_line).collect();
        for text in rejected.iter().map(of) {
            match due.iter().position(|one| *one == text) {
                Some(place) => drop(due.remove(place)),
                None => self.find(true, "unexpected", text),
            }
        }
        for text in due {
            self.find(false, "missing", text);
        }
    }

    /// For each occasion and request of an environment there is one promotion.
    fn once(&mut self, counted: &[&Promotion]) {
        let mut seen = BTreeMap::new();
        for promotion in counted {
            let spec = &promotion.spec;
            let key = (&spec.pipeline_ref.uid, &spec.environment, spec.occasion, spec.request);
            if let Some(other) = seen.insert(key, promotion.name_any()) {
                self.find(true, "duplicate", format!("{} and {other} are for one occasion", shown(promotion)));
            }
        }
    }

    /// The steps of an environment are a sequence: each promotion has all of its steps, one after the other, and begins only after the one
    /// before it has ended.
    fn in_order(&mut self, counted: &[&Promotion]) {
        let mut last = BTreeMap::new();
        for promotion in counted {
            let status = status(promotion);
            let numbers: Vec<_> = status.steps.iter().map(|s| s.step).collect();
            let first = status.step - i64::try_from(numbers.len()).unwrap_or(0) + 1;
            let whole = numbers.len() == MAX_STEPS.min(usize::try_from(status.step).unwrap_or(0));
            if !whole || numbers != (first..=status.step).collect::<Vec<_>>() {
                self.find(true, "order", format!("{} has the steps {numbers:?} of {}", shown(promotion), status.step));
            }
            if status.steps.last().map(|s| s.phase) != status.phase {
                self.find(true, "order", format!("{} is {:?} after its last step", shown(promotion), status.phase));
            }
            let key = (promotion.spec.pipeline_ref.uid.clone(), promotion.spec.environment.clone());
            let mut time = last.get(&key).copied();
            for step in &status.steps {
                if time.is_some_and(|before| step.time < before) {
                    self.find(true, "order", format!("step {} of {} is too early", step.step, shown(promotion)));
                }
                time = Some(step.time);
            }
            if let Some(time) = time {
                last.insert(key, time);
            }
        }
        for pair in counted.windows(2).filter(|pair| same_environment(pair[0], pair[1])) {
            if !status(pair[0]).phase.is_some_and(Phase::is_ended) {
                self.find(false, "order", format!("{} has not ended, and {} has begun", shown(pair[0]), shown(pair[1])));
            }
        }
    }

    /// The pipeline's status names the newest promotion of each environment, and all of its steps are in the log.
    fn mirrored(&mut self, pipeline: Option<&Pipeline>, counted: &[&Promotion], deleted: impl Fn(&str) -> bool) {
        let Some(pipeline) = pipeline else { return };
        let uid = pipeline.uid().unwrap_or_default();
        let mut newest: BTreeMap<&str, &Promotion> = BTreeMap::new();
        for promotion in counted.iter().filter(|p| p.spec.pipeline_ref.uid == uid) {
            newest.insert(&promotion.spec.environment, promotion);
        }
        let environments = pipeline.status.iter().flat_map(|s| &s.environments);
        let shown_there: BTreeMap<_, _> = environments.map(|e| (e.name.as_str(), e.promotion.as_ref())).collect();
        for (environment, promotion) in newest.into_iter().filter(|(environment, _)| !deleted(environment)) {
            // An environment that is not in the spec any more has no status.
            let Some(mirror) = shown_there.get(environment) else { continue };
            let status = status(promotion);
            let same = mirror.is_some_and(|m| {
                let same = m.name == promotion.name_any() && m.revision == promotion.spec.revision;
                same && Some(m.phase) == status.phase && m.taken == status.step && m.succeeded == status.succeeded
            });
            if !same {
                self.find(false, "audit", format!("the pipeline shows {mirror:?} for {}", shown(promotion)));
            }
        }
    }

    /// Each delivery names the promotion whose step it reports. Deliveries of promotions that are gone are not compared.
    fn named(&mut self, counted: &[&Promotion], deliveries: &[&Delivery]) {
        let is_promotion = |d: &&&Delivery| d.spec.type_.family() == Family::Promotion;
        let mut requested = BTreeMap::new();
        for delivery in deliveries.iter().filter(is_promotion).filter(|d| d.spec.subject.environment != FENCE) {
            let (spec, name) = (&delivery.spec, delivery.name_any());
            let Some(state) = &spec.to.promotion else {
                self.find(true, "audit", format!("delivery {name} names no promotion"));
                continue;
            };
            if spec.lane != format!("promotion/{}", spec.subject.environment) {
                self.find(true, "audit", format!("delivery {name} is in the lane {}", spec.lane));
            }
            let Some(promotion) = counted.iter().find(|p| p.name_any() == state.name) else { continue };
            let uid = promotion.uid().unwrap_or_default();
            let of_it =
                promotion.spec.revision == spec.to.revision && promotion.spec.environment == spec.subject.environment;
            let reason = if state.phase == Phase::Merged { PUSHED } else { WAITS };
            if !of_it || uid != state.uid || report(state.phase, reason) != Some(spec.type_.as_str()) {
                self.find(true, "audit", format!("delivery {name} says {state:?} for {}", shown(promotion)));
            }
            *requested.entry((state.name.clone(), state.phase)).or_insert(0_usize) += 1;
        }
        for ((name, phase), count) in requested {
            let promotion = counted.iter().find(|p| p.name_any() == name).expect("it was found above");
            let steps = taken(promotion).iter().filter(|(p, _)| *p == phase).count();
            let earlier = usize::try_from(status(promotion).step).unwrap_or(0).saturating_sub(MAX_STEPS);
            if count > steps + earlier {
                self.find(true, "duplicate", format!("{count} deliveries of {phase:?} of {}", shown(promotion)));
            }
        }
    }
}

fn same_environment(one: &Promotion, other: &Promotion) -> bool {
    one.spec.pipeline_ref.uid == other.spec.pipeline_ref.uid && one.spec.environment == other.spec.environment
}

fn status(promotion: &Promotion) -> PromotionStatus {
    promotion.status.clone().unwrap_or_default()
}

/// Returns phase and reason of the steps that the status still contains.
fn taken(promotion: &Promotion) -> Vec<(Phase, String)> {
    status(promotion).steps.into_iter().map(|step| (step.phase, step.reason)).collect()
}

/// Returns the deliveries that these steps cause.
fn reported(steps: impl IntoIterator<Item = (Phase, String)>, revision: &str) -> Vec<Step> {
    let types = steps.into_iter().filter_map(|(phase, reason)| report(phase, &reason));
    types.map(|type_| Step::new(&format!("{type_} {revision}"))).collect()
}

/// Returns the type of the transition that reports a step.
fn report(phase: Phase, reason: &str) -> Option<&'static str> {
    match phase {
        Phase::Pending => (reason == WAITS).then_some("PromotionPending"),
        // Relaybook itself carries it out, so there is no request to a receiver.
        // What was accepted after all was requested before.
        Phase::Requested if ["Opening", "Pushing", "RequestAccepted"].contains(&reason) => None,
        Phase::Requested => Some("PromotionRequested"),
        Phase::Merged if reason == PUSHED => Some("PromotionOpened"),
        Phase::Open => Some("PromotionOpened"),
        Phase::Finished => Some("PromotionFinished"),
        Phase::Failed | Phase::Closed => Some("PromotionFailed"),
        Phase::Merged | Phase::Withdrawn => None,
    }
}

/// Describes a promotion as a line.
fn shown(promotion: &Promotion) -> String {
    let steps: Vec<_> = taken(promotion).iter().map(|(phase, reason)| format!("{}/{reason}", phase.as_str())).collect();
    let spec = &promotion.spec;
    format!("{} ({} {}: {})", promotion.name_any(), spec.environment, spec.revision, steps.join(", "))
}

#[cfg(test)]
mod tests {
    use relaybook_api::Time;
    use relaybook_api::promotion::{PromotedPipeline, PromotionSpec, Step as Taken};

    use super::*;

    /// Returns a promotion to prod with these steps, one second after the other from `begin`.
    fn promotion(revision: &str, occasion: i64, begin: i64, steps: &[&str]) -> Promotion {
        let spec = PromotionSpec {
            pipeline_ref: PromotedPipeline { name: "shop".to_owned(), uid: "u".to_owned() },
            environment: "prod".to_owned(),
            revision: revision.to_owned(),
            occasion,
            ..PromotionSpec::default()
        };
        let steps = steps.iter().zip(1..).map(|(text, step)| {
            let Due { phase, reason } = Due::parse(text);
            let time = Time::from_second(begin + step).unwrap();
            Taken { step, phase, reason: reason.unwrap_or_default(), message: String::new(), time }
        });
        let steps: Vec<_> = steps.collect();
        let mut promotion = Promotion::new(&format!("shop-prod-{occasion}"), spec);
        promotion.status = Some(PromotionStatus {
            phase: steps.last().map(|s| s.phase),
            step: i64::try_from(steps.len()).unwrap(),
            steps: steps[steps.len().saturating_sub(MAX_STEPS)..].to_vec(),
            ..PromotionStatus::default()
        });
        promotion
    }

    fn kinds(lines: &[&str], all: &[Promotion]) -> Vec<(bool, &'static str)> {
        let found = Expected::new("ns", "shop", &["hook"], lines).judge(all, None, &[]);
        found.into_iter().map(|f| (f.final_, f.kind)).collect()
    }

    #[test]
    fn differences_between_promotions_and_expected_lines_are_found() {
        let done = promotion("2", 7, 0, &["Pending", "Requested", "Finished"]);
        let open = promotion("3", 9, 10, &["Requested"]);
        let (first, second) = ("prod 2: Pending, Requested, Finished", "prod 3: Requested");
        let both = [open.clone(), done.clone()];
        for (name, lines, all, want) in [
            ("as expected, in any order of the list", vec![first, second], both.to_vec(), vec![]),
            ("one is missing", vec![first, second], vec![done.clone()], vec![(false, "missing")]),
            ("one too many", vec![first], both.to_vec(), vec![(true, "unexpected")]),
            ("a step is missing", vec![first, "prod 3: Requested, Finished"], both.to_vec(), vec![(false, "missing")]),
            ("another step", vec![first, "prod 3: Pending"], both.to_vec(), vec![(true, "unexpected")]),
            ("another revision", vec![first, "prod 4: Requested"], both.to_vec(), vec![(true, "unexpected")]),
            (
                "another reason",
                vec!["prod 2: Pending/Soaking, Requested, Finished"],
                vec![done.clone()],
                vec![(true, "unexpected")],
            ),
            ("a deleted one", vec!["prod 1: Requested (deleted)", first], vec![done.clone()], vec![]),
            (
                "two for one occasion",
                vec![second, second],
                vec![open.clone(), open.clone()],
                vec![(true, "duplicate"), (false, "order")],
            ),
        ] {
            let mut found = kinds(&lines, &all);
            found.sort_by_key(|(_, kind)| *kind);
            assert_eq!(found, want, "{name}");
        }
    }

    #[test]
    fn gaps_and_overlaps_of_steps_are_an_error_of_order() {
        let done = promotion("2", 7, 0, &["Requested", "Finished"]);
        let early = promotion("3", 9, 0, &["Requested"]);
        assert_eq!(kinds(&["prod 2: Requested, Finished", "prod 3: Requested"], &[done, early]), [(true, "order")]);
        let mut gap = promotion("2", 7, 0, &["Requested", "Finished"]);
        gap.status.as_mut().unwrap().steps.remove(0);
        assert_eq!(kinds(&["prod 2: Requested, Finished"], &[gap]), [(true, "order")]);
        let many = ["Requested", "Failed"].repeat(5);
        let long = promotion("2", 7, 0, &many);
        let line = format!("prod 2: {}", many.join(", "));
        assert!(kinds(&[&line], &[long]).is_empty(), "only the last 8 are kept");
    }

    #[test]
    fn expected_steps_of_a_promotion_determine_its_deliveries() {
        let expected =
            Expected::new("ns", "shop", &["hook"], &["prod 2: Pending, Requested, Withdrawn", "prod 3: Merged, Failed"]);
        let lanes = expected.lanes(&[]);
        let lane = Lane { namespace: "ns".to_owned(), path: "shop/hook/prod/promotion".to_owned() };
        let steps = ["PromotionPending 2", "PromotionRequested 2", "PromotionFailed 3"].map(Step::new);
        assert_eq!(lanes, BTreeMap::from([(lane.clone(), steps.to_vec())]));
        let as_they_are = Expected::any("ns", "shop", &["hook"]);
        let all = [promotion("2", 7, 0, &["Pending/Soaking", "Requested"])];
        assert_eq!(as_they_are.lanes(&all)[&lane], [Step::new("PromotionRequested 2")]);
    }
}
