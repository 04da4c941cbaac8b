//! Checks an object as the controllers do after the API server has accepted it.

use std::collections::HashSet;

use kube::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::layers::{LayerStack, PositionedLayer, remove, remove_field};
use super::pipelines::Files;
use super::sheet::FindingContext;
use super::{FieldProblem, Finding, Options, Source};
use relaybook_api::pipeline::target::{Entry, targets};
use relaybook_api::values::shard::SHARD_LABEL;
use relaybook_api::{Notification, Pipeline, PipelineSet, Promotion};
use relaybook_core::pipeline::plan::{DUPLICATE_TARGET, INVALID_RECORD, plan};
use relaybook_core::promotion::names;
use relaybook_pipelines::sets;
use relaybook_pipelines::sets::Settings;
use relaybook_promotions::{Sample, unusable};
use relaybook_settings::config::layers::{Layer, Source as Author};
use relaybook_settings::manifests::field::{below, entry, is_within, steps};
use relaybook_text::first_line;

/// Parses an object as a kind of Relaybook. Returns the problem if the object does not match the type.
pub(super) fn parse<K: DeserializeOwned + kube::Resource>(object: &Value, namespace: &str) -> Result<K, FieldProblem> {
    let mut parsed: K = serde_path_to_error::deserialize(object)
        .map_err(|e| (e.path().to_string(), first_line(&e.inner().to_string()), Source::Controller))?;
    parsed.meta_mut().namespace.get_or_insert_with(|| namespace.to_owned());
    Ok(parsed)
}

/// Returns the problem for which the pipeline controller would reject the spec, if there is one.
pub(super) fn pipeline(pipeline: &Pipeline, options: &Options) -> Option<FieldProblem> {
    let namespace = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let refused = plan(&pipeline.spec, namespace, &options.cluster_name, options.cross_namespace_refs).err()?;
    let field = match refused.reason {
        DUPLICATE_TARGET => second(pipeline, options),
        INVALID_RECORD => Some("spec.record".to_owned()),
        _ => None,
    };
    Some((field.unwrap_or_else(|| "spec.environments".to_owned()), refused.message, Source::Controller))
}

/// Returns the problems of the strategies of a pipeline that every promotion by commit or pull request would have. `reported`: the fields
/// with a problem already.
pub(super) fn strategies(pipeline: &Pipeline, reported: &[String], options: &Options) -> Vec<FieldProblem> {
    let spec = &pipeline.spec;
    let second = spec.environments.get(1).map_or("", |environment| environment.name.as_str());
    let of_pipeline = spec.promotion.iter().map(|policy| (policy, "spec".to_owned(), 1, second));
    let environments = spec.environments.iter().enumerate().skip(1);
    let of_environments = environments.filter_map(|(index, environment)| {
        Some((environment.promotion.as_ref()?, entry("spec.environments", index), index, environment.name.as_str()))
    });
    let mut all = Vec::new();
    for (policy, holder, index, environment) in of_pipeline.chain(of_environments) {
        let Some(strategy) = &policy.strategy else { continue };
        let whole = below(&below(&holder, "promotion"), "strategy");
        let from = spec.environments.get(index - 1).map_or("", |before| before.name.as_str());
        let sample = Sample { pipeline: &pipeline.name_any(), environment, from };
        let problems = unusable(strategy, options.allow_http, sample);
        let placed = problems.into_iter().map(|(name, message)| {
            let field = name.split('.').fold(whole.clone(), |field, part| below(&field, part));
            (field, message, Source::Controller)
        });
        let is_reported = |field: &str| {
            let is_about = |at: &String| is_within(at, field) || (is_within(field, at) && is_within(at, &whole));
            reported.iter().any(is_about)
        };
        all.extend(placed.filter(|(field, ..)| !is_reported(field)));
    }
    all
}

/// Returns the problem for which the promotion controller would withdraw a Promotion in any state of its pipeline. The object has no problem
/// that the API server would report.
pub(super) fn promotion(object: &Value, options: &Options) -> Option<FieldProblem> {
    let promotion: Promotion = match parse(object, &options.namespace) {
        Ok(promotion) => promotion,
        Err(problem) => return Some(problem),
    };
    let name = names::name(&promotion.spec);
    let message = format!("must be {name}, which the spec determines; relaybook promote creates a Promotion with its name");
    (promotion.name_any() != name).then(|| ("metadata.name".to_owned(), message, Source::Controller))
}

/// Returns the problem that a `PipelineSet` has for every source.
pub(super) fn pipeline_set(object: &Value, options: &Options) -> Option<FieldProblem> {
    let set: PipelineSet = match parse(object, &options.namespace) {
        Ok(set) => set,
        Err(problem) => return Some(problem),
    };
    let settings = Settings {
        cluster_name: &options.cluster_name,
        cross_namespace_refs: options.cross_namespace_refs,
        shard_label: SHARD_LABEL,
    };
    let (field, message) = sets::problem(&set, settings)?;
    Some((field.to_owned(), message, Source::Controller))
}

/// Returns the field of the first target that has the same name as an earlier target.
fn second(pipeline: &Pipeline, options: &Options) -> Option<String> {
    let all = targets(&pipeline.spec, &options.cluster_name);
    let mut names = HashSet::new();
    let index = all.iter().position(|target| !names.insert(&target.name))?;
    let Entry::Listed(target) = all[index].entry else { return None };
    Some(entry(&below(&entry("spec.environments", all[index].environment_index), "targets"), target))
}

/// Checks a Notification over the global configuration, as the dispatcher does. Fields that the API server would report are removed first.
pub(super) fn notification(
    object: &Value,
    context: FindingContext<'_>,
    problems: &[FieldProblem],
    files: Files<'_>,
    notes: &mut Vec<String>,
) -> Vec<Finding> {
    let mut object = object.clone();
    let removed: Vec<String> = problems.iter().map(|(field, ..)| without(&mut object, field)).collect();
    let notification: Notification = match parse(&object, &files.options.namespace) {
        Ok(notification) => notification,
        // An object that does not match the type does not match the schema either. That problem is already reported.
        Err(_) if !removed.is_empty() => return Vec::new(),
        Err((field, message, source)) => return vec![context.finding(field, message, source)],
    };
    let (name, namespace) = (notification.name_any(), notification.namespace().unwrap_or_default());
    let cluster_wide = files.global.get(&name).filter(|cluster_wide| cluster_wide.reach.covers(&namespace));
    let positioned = |layer: Layer| match (&layer.source, files.found) {
        (Author::Defaults | Author::Global, Some(found)) => found.positioned(&name, layer),
        _ => PositionedLayer { layer, context, field: "spec".to_owned() },
    };
    let layers = files.global.layers_below(cluster_wide, Some(&notification)).into_iter().map(positioned).collect();
    // A layer of pipelines of other namespaces need not be complete.
    let partial = files.are_partial() || notification.spec.pipeline_namespaces.as_ref().is_some_and(|all| !all.is_empty());
    let stack = LayerStack { layers, namespace, partial };
    stack.check(files.options, files.texts, removed, notes)
}

/// Removes a field of an object, or replaces it with a harmless value. Returns the removed field.
fn without(object: &mut Value, field: &str) -> String {
    let path: Vec<&str> = steps(field).take_while(|step| step.parse::<usize>().is_err()).collect();
    match object {
        Value::Object(fields) if path.len() > 1 && path[0] == "spec" => {
            let spec = fields.get_mut("spec").and_then(Value::as_object_mut);
            remove_field(spec.into_iter(), field)
        }
        Value::Object(fields) => {
            remove(fields, &path);
            path.iter().fold(String::new(), |path, step| below(&path, step))
        }
        _ => String::new(),
    }
}
