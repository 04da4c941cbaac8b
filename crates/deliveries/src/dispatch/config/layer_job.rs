//! Compiles the layers of a pipeline over one notification, in steps.
//!
//! In: the pipeline, and the sources below its layers. Out: an effective notification for the whole pipeline, and for each environment and
//! target that has layers. Targets with the same layers share one effective notification. A pipeline can have thousands of targets, so a
//! job can pause after each step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::sources::{Compiled, Compiler, Site, Sources, Texts};
use relaybook_api::LogSubject;
use relaybook_api::notification::NotificationLayer;
use relaybook_api::pipeline::target::{Entry, TargetInfo};
use relaybook_settings::config::EffectiveNotification;
use relaybook_settings::config::layers::{ClusterGlobs, Layer, of_environment, of_target, of_whole_pipeline, own};
use relaybook_settings::config::snapshot::Overridden;

/// A job pauses after this time.
const SLICE: Duration = Duration::from_millis(50);

/// A job: the layers of a pipeline over one notification, and their results so far.
pub(crate) struct LayerJob {
    pub(super) uid: String,
    pub(super) name: String,
    begun: Option<Begun>,
}

struct Begun {
    site: Arc<Site>,
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
    pub(super) fn new(uid: &str, name: &str) -> Self {
        Self { uid: uid.to_owned(), name: name.to_owned(), begun: None }
    }

    /// Runs for one time slice. Restarts if the sources have changed. Returns `true` when the job is done.
    pub(super) fn run(&mut self, site: &Arc<Site>, sources: Sources, compiler: Compiler<'_>) -> bool {
        let start = Instant::now();
        let mut begun = self.begun.take().filter(|begun| begun.is_of(site, &sources)).unwrap_or_else(|| {
            let steps = steps(site, &self.name);
            let beneath = sources.layers();
            Begun { site: site.clone(), sources, beneath, steps, texts: Texts::new(), result: Overridden::default() }
        });
        // All steps collect the texts that they read in one list, so a change between two steps is noticed.
        compiler.texts.replace(std::mem::take(&mut begun.texts));
        while let Some(step) = begun.steps.pop() {
            begun.compile(&self.name, &compiler, step);
            if start.elapsed() >= SLICE {
                break;
            }
        }
        begun.texts = compiler.texts.into_inner();
        let is_done = begun.steps.is_empty();
        self.begun = Some(begun);
        is_done
    }

    /// Returns the result, if it was compiled from this pipeline and these sources. The next run of the job starts again with the first
    /// step.
    pub(super) fn finish(&mut self, site: &Arc<Site>, sources: &Sources) -> Option<Compiled<Arc<Overridden>>> {
        let Begun { sources, texts, result, .. } = self.begun.take().filter(|begun| begun.is_of(site, sources))?;
        Some(Compiled { sources, texts, result: Arc::new(result) })
    }
}

impl Begun {
    fn is_of(&self, site: &Arc<Site>, sources: &Sources) -> bool {
        Arc::ptr_eq(&self.site, site) && self.sources == *sources
    }

    fn compile(&mut self, name: &str, compiler: &Compiler<'_>, step: Step) {
        let Site { uid, spec, place, .. } = &*self.site;
        let namespace = place.namespace.as_str();
        let over = |layers: Vec<Layer>| -> Arc<EffectiveNotification> {
            let all: Vec<_> = self.beneath.iter().cloned().chain(layers).collect();
            Arc::new(compiler.layers(&all, namespace, self.sources.uid(uid)))
        };
        match step {
            Step::Pipeline => {
                let layer = of_whole_pipeline(spec, namespace, name);
                let has_layer = layer.is_some() || self.sources.laid.is_some();
                self.result.rest = has_layer.then(|| over(layer.into_iter().collect()));
            }
            Step::Environment(environment, subjects) => {
                let shared = over(of_environment(spec, namespace, name, environment));
                self.result.subjects.extend(subjects.into_iter().map(|subject| (subject, shared.clone())));
            }
            Step::Target(target, subjects) => {
                let shared = over(of_target(spec, namespace, name, &target));
                self.result.subjects.extend(subjects.into_iter().map(|subject| (subject, shared.clone())));
            }
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
