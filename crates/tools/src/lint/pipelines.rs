//! Merges the layers of each pipeline with the layers below them in the files, and checks the result.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::global::Found;
use super::idle::meant_notification;
use super::layers::{LayerStack, PositionedLayer};
use super::sheet::FindingContext;
use super::{Finding, Options, Report};
use relaybook_api::notification::NotificationLayer;
use relaybook_api::pipeline::Environment;
use relaybook_api::pipeline::target::{Entry, TargetInfo, possible_targets, targets};
use relaybook_api::{Notification, Pipeline};
use relaybook_settings::config::Global;
use relaybook_settings::config::layers::{Layer, Source as Author, fold, is_layer_of, names, of_target};
use relaybook_settings::manifests::field::{below, entry, is_within};
use relaybook_settings::manifests::{ConfigMaps, has_notification, layers_below};

/// The Notifications of the files, by namespace and name; `None`: the Notification cannot be parsed.
pub(super) type Notifications<'a> = BTreeMap<(String, String), (FindingContext<'a>, Option<Notification>)>;

/// The content of the files, except the pipeline that is checked.
#[derive(Clone, Copy)]
pub(super) struct Files<'a> {
    pub(super) notifications: &'a Notifications<'a>,
    /// The global configuration. Empty if it is not known.
    pub(super) global: &'a Global,
    /// The global configuration with its position in the files.
    pub(super) found: Option<&'a Found<'a>>,
    pub(super) texts: &'a ConfigMaps,
    pub(super) options: &'a Options,
}

impl<'a> Files<'a> {
    /// The Notifications with this name in the namespace of a pipeline and in its layer namespace.
    pub(super) fn of(&self, pipeline: &Pipeline, name: &str) -> Vec<&'a Notification> {
        let namespace = pipeline.namespace().unwrap_or_default();
        let other = pipeline.spec.other_layer_namespace(&namespace).map(str::to_owned);
        let at = |namespace| self.notifications.get(&(namespace, name.to_owned()))?.1.as_ref();
        [Some(namespace), other].into_iter().flatten().filter_map(at).collect()
    }

    /// The Notifications of the layer namespace of a pipeline that are layers of it.
    fn laid(&self, pipeline: &Pipeline) -> impl Iterator<Item = &'a Notification> {
        let all = self.notifications.values().filter_map(|(_, notification)| notification.as_ref());
        let namespace = pipeline.namespace().unwrap_or_default();
        all.filter(move |n| is_layer_of(n, &pipeline.spec, (&namespace, pipeline.labels())))
    }

    /// Whether the global configuration is in the files but invalid. Then fields that are missing elsewhere can be in it.
    pub(super) fn are_partial(&self) -> bool {
        self.found.is_some_and(|found| found.global.is_none())
    }
}

/// Checks the layers of a pipeline. `reported_fields` contains the fields for which a problem is already reported.
pub(super) fn check(
    pipeline: &Pipeline,
    context: FindingContext<'_>,
    reported_fields: &[String],
    files: Files<'_>,
    report: &mut Report,
) {
    let namespace = pipeline.namespace().unwrap_or_default();
    let mut names = names(&pipeline.spec);
    names.extend(files.laid(pipeline).map(Notification::name_any));
    for name in names {
        let (known, notification) = match files.notifications.get(&(namespace.clone(), name.clone())) {
            Some((context, notification)) => (Some(*context), notification.as_ref()),
            None => (None, None),
        };
        let unchecked = |why: &str| {
            format!(
                "Pipeline {namespace}/{}: its layers for notification {name} were not checked: {why}",
                pipeline.name_any()
            )
        };
        if known.is_some() && notification.is_none() {
            report.notes.push(unchecked("the Notification cannot be read"));
            continue;
        }
        let Some(base_layers) = layers_below(files.global, pipeline, &name, files.of(pipeline, &name)) else {
            report.notes.push(unchecked("the Notification does not select the Pipeline"));
            continue;
        };
        let base_layers: Vec<_> =
            base_layers.into_iter().filter_map(|layer| positioned(layer, &name, known, files)).collect();
        let is_laid = base_layers.iter().any(|positioned| matches!(positioned.layer.source, Author::LayerNamespace(_)));
        let is_known = has_notification(&base_layers.iter().map(|positioned| positioned.layer.clone()).collect::<Vec<_>>());
        let mut left_out = false;
        for (target, own) in different(pipeline, &name, context, files.options, is_laid) {
            if own.iter().any(|positioned| reported_fields.iter().any(|field| is_within(field, &positioned.field))) {
                continue;
            }
            let layers = [base_layers.clone(), own].concat();
            if !is_known && !is_whole(&layers) {
                left_out = true;
                continue;
            }
            let stack = LayerStack { layers, namespace: namespace.clone(), partial: files.are_partial() };
            let findings = stack.check(files.options, files.texts, Vec::new(), &mut report.notes);
            let of = format!("{target} of Pipeline {namespace}/{}", pipeline.name_any());
            report.add(findings.into_iter().map(|finding| told(finding, context, &target, &of)).collect());
        }
        if left_out {
            let meant = meant_notification(&namespace, &name, files);
            report.notes.push(unchecked(&format!("Notification {namespace}/{name} is not among the files{meant}")));
        }
    }
}

/// Adds the target that the finding is for, because the field alone does not show it.
fn told(finding: Finding, context: FindingContext<'_>, target: &str, of: &str) -> Finding {
    let is_own = (finding.kind.as_str(), finding.name.as_str()) == (context.kind, context.name);
    let message = format!("{} (for {})", finding.message, if is_own { target } else { of });
    Finding { message, ..finding }
}

/// Adds the position to a layer that is not from the pipeline.
fn positioned<'a>(
    layer: Layer,
    name: &str,
    known: Option<FindingContext<'a>>,
    files: Files<'a>,
) -> Option<PositionedLayer<'a>> {
    let context = match layer.source {
        Author::Notification => known,
        Author::LayerNamespace(_) => {
            files.notifications.get(&(layer.namespace.clone(), name.to_owned())).map(|(context, _)| *context)
        }
        _ => return files.found.map(|found| found.positioned(name, layer)),
    };
    context.map(|context| PositionedLayer { layer, context, field: "spec".to_owned() })
}

/// Returns each distinct list of layers that the pipeline has for a target, with the first target that has it. An empty list is left out, unless
/// the layers below are those of this pipeline only (`is_laid`).
fn different<'a>(
    pipeline: &Pipeline,
    name: &str,
    context: FindingContext<'a>,
    options: &Options,
    is_laid: bool,
) -> Vec<(String, Vec<PositionedLayer<'a>>)> {
    let namespace = pipeline.namespace().unwrap_or_default();
    let spec = &pipeline.spec;
    let infos = [targets(spec, &options.cluster_name), possible_targets(spec)].concat();
    let mut seen: Vec<Vec<Layer>> = Vec::new();
    let mut all = Vec::new();
    for info in &infos {
        let own = of_target(spec, &namespace, name, info);
        // If a target has no layers, its result is the result of the layers below.
        if (own.is_empty() && !is_laid) || seen.contains(&own) {
            continue;
        }
        seen.push(own.clone());
        let positioned =
            |layer: Layer| PositionedLayer { field: field(pipeline, &layer.source, name, info), layer, context };
        all.push((info.name.clone(), own.into_iter().map(positioned).collect()));
    }
    all
}

/// Returns the field of the pipeline that contains a layer.
fn field(pipeline: &Pipeline, author: &Author, name: &str, info: &TargetInfo) -> String {
    let environment = &pipeline.spec.environments[info.environment_index];
    let outer = entry("spec.environments", info.environment_index);
    let (holder, layers): (_, &[NotificationLayer]) = match author {
        Author::Environment(_) => (outer, &environment.notifications),
        Author::Target(_) => match info.entry {
            Entry::Listed(t) => (entry(&below(&outer, "targets"), t), &environment.targets[t].notifications),
            Entry::Generated(index) => generated(&entry(&below(&outer, "targetsFrom"), index), environment, name, info),
        },
        _ => ("spec".to_owned(), &pipeline.spec.notifications),
    };
    let index = layers.iter().position(|layer| layer.name == name).unwrap_or_default();
    entry(&below(&holder, "notifications"), index)
}

/// Returns the list of layers of an entry of `targetsFrom` that has a layer with this name, and its field.
fn generated<'a>(
    outer: &str,
    environment: &'a Environment,
    name: &str,
    info: &TargetInfo,
) -> (String, &'a [NotificationLayer]) {
    let Entry::Generated(index) = info.entry else { return (outer.to_owned(), &[]) };
    let from = &environment.targets_from[index];
    let has = |layers: &[NotificationLayer]| layers.iter().any(|layer| layer.name == name);
    let over = from.overrides.iter().position(|over| has(&over.notifications)).filter(|_| !has(&from.notifications));
    match over {
        Some(over) => (entry(&below(outer, "overrides"), over), &from.overrides[over].notifications),
        None => (outer.to_owned(), &from.notifications),
    }
}

/// Whether nothing is missing, so that the layers can be a notification of their own.
fn is_whole(layers: &[PositionedLayer<'_>]) -> bool {
    let layers: Vec<_> = layers.iter().map(|positioned| positioned.layer.clone()).collect();
    let folded = fold(&layers, |_| {}).unwrap_or_default();
    ["endpoint", "triggers", "template"].iter().all(|field| folded.value.contains_key(*field))
}
