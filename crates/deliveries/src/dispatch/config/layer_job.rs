//! Compiles the layers of a pipeline over one notification, in steps.
//!
//! In: the pipeline, and the sources below its layers. Out: an effective notification for the whole pipeline, and for each environment and
//! target that has layers. Targets with the same layers share one effective notification. A pipeline can have thousands of targets, so a
//! job can pause after each step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::results::{Compiled, Effective, Place};
use super::sources::{Compiler, Site, Sources, Texts};
use relaybook_api::LogSubject;
use relaybook_api::notification::NotificationLayer;
use relaybook_api::pipeline::target::{Entry, TargetInfo};
use relaybook_settings::config::layers::{ClusterGlobs, Layer, of_environment, of_target, of_whole_pipeline, own};
use relaybook_settings::config::snapshot::Overridden;

/// A job pauses after this time.
const SLICE: Duration = Duration::from_millis(50);

/// A job: the layers of a pipeline over one notification, and their results so far.
pub(crate) struct LayerJob {
    pub(super) place: Place,
    begun: Option<Begun>,
}

struct Begun {
    sources: Sources,
    /// The layers of the sources.
    beneath: Vec<Layer>,
    /// The remaining steps, in reverse order.
    steps: Vec<Step>,
    texts: Texts,
    result: Overridden,
}

/// A step compiles one effective notification.
enum Step {
    /// For the pipeline, and for every subject that has no layer of its own.
    Pipeline,
    /// For an environment, and for its targets that have no layer of their own.
    Environment(usize, Vec<String>),
    /// For a target, and for all targets with the same layers: their subjects.
    Target(Box<TargetInfo>, Vec<String>),
}

impl LayerJob {
    pub(super) fn new(place: Place) -> Self {
        Self { place, begun: None }
    }

    /// Runs for one time slice. Restarts if the sources have changed. Returns `true` when the job is done.
    pub(super) fn run(&mut self, sources: Sources, compiler: Compiler<'_>) -> bool {
        let start = Instant::now();
        let name = &self.place.name;
        let mut begun = self.begun.take().filter(|begun| begun.sources == sources).unwrap_or_else(|| {
            let steps = sources.site.as_deref().map(|site| steps(site, name)).unwrap_or_default();
            let beneath = sources.layers();
            Begun { sources, beneath, steps, texts: Texts::new(), result: Overridden::default() }
        });
        // All steps collect the texts that they read in one list, so a change between two steps is noticed.
        compiler.texts.replace(std::mem::take(&mut begun.texts));
        while let Some(step) = begun.steps.pop() {
            begun.compile(name, &compiler, step);
            if start.elapsed() >= SLICE {
                break;
            }
        }
        begun.texts = compiler.texts.into_inner();
        let is_done = begun.steps.is_empty();
        self.begun = Some(begun);
        is_done
    }

    /// Returns the result, if it was compiled from these sources. The next run of the job starts again with the first step.
    pub(super) fn finish(&mut self, sources: &Sources) -> Option<Compiled> {
        let Begun { sources, texts, result, .. } = self.begun.take().filter(|begun| begun.sources == *sources)?;
        Some(Compiled { sources, texts, result: Effective::Layers(Arc::new(result)) })
    }
}

impl Begun {
    fn compile(&mut self, name: &str, compiler: &Compiler<'_>, step: Step) {
        let Some(Site { spec, place, .. }) = self.sources.site.as_deref() else { return };
        let namespace = place.namespace.as_str();
        let (layers, subjects) = match step {
            Step::Pipeline => (of_whole_pipeline(spec, namespace, name).into_iter().collect(), None),
            Step::Environment(environment, subjects) => (of_environment(spec, namespace, name, environment), Some(subjects)),
            Step::Target(target, subjects) => (of_target(spec, namespace, name, &target), Some(subjects)),
        };
        if subjects.is_none() && layers.is_empty() && self.sources.laid.is_none() {
            return;
        }
        let all: Vec<_> = self.beneath.iter().cloned().chain(layers).collect();
        let effective = Arc::new(compiler.layers(&all, namespace, self.sources.uid()));
        match subjects {
            None => self.result.rest = Some(effective),
            Some(subjects) => self.result.subjects.extend(subjects.into_iter().map(|subject| (subject, effective.clone()))),
        }
    }
}

fn steps(site: &Site, name: &str) -> Vec<Step> {
    let spec = &site.spec;
    let mut steps = vec![Step::Pipeline];
    let (mut targets, mut globs) = (site.targets.iter().peekable(), ClusterGlobs::default());
    for (e, environment) in spec.environments.iter().enumerate() {
        let mut others = Vec::new();
        // Generated targets of one entry share their layers, unless an override matches only some of them.
        let mut shared: Vec<(Entry, Vec<*const NotificationLayer>, usize)> = Vec::new();
        while let Some(info) = targets.next_if(|info| info.environment_index == e) {
            let own: Vec<_> = own(spec, name, info, &mut globs).into_iter().map(std::ptr::from_ref).collect();
            if own.is_empty() {
                others.push(info.log_subject().to_string());
                continue;
            }
            let is_shared = |(entry, layers, _): &&(Entry, Vec<_>, usize)| *entry == info.entry && *layers == own;
            if let Some((.., at)) = shared.iter().find(is_shared)
                && let Some(Step::Target(_, subjects)) = steps.get_mut(*at)
            {
                subjects.push(info.log_subject().to_string());
                continue;
            }
            shared.push((info.entry, own, steps.len()));
            steps.push(Step::Target(Box::new(info.clone()), vec![info.log_subject().to_string()]));
        }
        if environment.notifications.iter().any(|layer| layer.name == name) {
            let name = &environment.name;
            others.extend([LogSubject::Environment(name), LogSubject::Promotion(name)].map(|subject| subject.to_string()));
            steps.push(Step::Environment(e, others));
        }
    }
    steps
}
