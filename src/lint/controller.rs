//! What the controllers would say of an object that the API server has taken.

use std::collections::{HashMap, HashSet};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Options, Said, Source};
use crate::api::refs::ConfigMapKey;
use crate::api::target::targets;
use crate::api::{Notification, Pipeline};
use crate::config::{Given, Problem, Text, config_maps, resolve};
use crate::manifests::field::{below, entry, is_within, steps};
use crate::manifests::{ConfigMaps, one_line};
use crate::pipeline::plan::plan;

/// What may come from a ConfigMap that is not among the files, and cannot be stood in for.
const AUTHORITIES: &str = "spec.endpoint.tls.caFrom";
/// So many problems of one object are looked for.
const MOST: usize = 20;

/// What is wrong with an object; `said` is what the API server has said of it already.
pub(super) fn check(
    kind: &str,
    object: &Value,
    options: &Options,
    texts: &ConfigMaps,
    said: &[Said],
    notes: &mut Vec<String>,
) -> Vec<Said> {
    if kind == "Pipeline" { pipeline(object, options, said) } else { notification(object, options, texts, said, notes) }
}

fn parse<K: DeserializeOwned + kube::Resource>(object: &Value, namespace: &str) -> Result<K, Said> {
    let mut parsed: K = serde_path_to_error::deserialize(object)
        .map_err(|e| (e.path().to_string(), one_line(&e.inner().to_string()), Source::Controller))?;
    parsed.meta_mut().namespace.get_or_insert_with(|| namespace.to_owned());
    Ok(parsed)
}

fn pipeline(object: &Value, options: &Options, said: &[Said]) -> Vec<Said> {
    let pipeline: Pipeline = match parse(object, &options.namespace) {
        Ok(pipeline) => pipeline,
        // What does not fit the type does not fit the schema either, and that has been said.
        Err(_) if !said.is_empty() => return Vec::new(),
        Err(misfit) => return vec![misfit],
    };
    let namespace = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let Err(refused) = plan(&pipeline.spec, namespace, &options.cluster_name, options.cross_namespace_refs) else {
        return Vec::new();
    };
    let field = match refused.reason {
        "DuplicateTarget" => second(&pipeline, options),
        _ => None,
    };
    vec![(field.unwrap_or_else(|| "spec.environments".to_owned()), refused.message, Source::Controller)]
}

/// The first target whose name another has.
fn second(pipeline: &Pipeline, options: &Options) -> Option<String> {
    let all = targets(&pipeline.spec, &options.cluster_name);
    let mut names = HashSet::new();
    let index = all.iter().position(|target| !names.insert(&target.name))?;
    let environments = pipeline.spec.environments.iter().enumerate();
    let places = environments.flat_map(|(i, e)| (0..e.targets.len()).map(move |j| (i, j)));
    let (environment, target) = places.into_iter().nth(index)?;
    Some(entry(&below(&entry("spec.environments", environment), "targets"), target))
}

/// What is blamed is taken away and the rest is looked at again, so that all problems are told at once.
fn notification(object: &Value, options: &Options, texts: &ConfigMaps, said: &[Said], notes: &mut Vec<String>) -> Vec<Said> {
    let mut object = object.clone();
    let mut gone: Vec<String> = said.iter().map(|(field, ..)| take_away(&mut object, field)).collect();
    let mut found = Vec::new();
    while found.len() < MOST {
        let notification: Notification = match parse(&object, &options.namespace) {
            Ok(notification) => notification,
            // What does not fit the type does not fit the schema either, and that has been said.
            Err(_) if !gone.is_empty() => break,
            Err(misfit) => return vec![misfit],
        };
        let known = known(&notification, texts, notes);
        let text = |key: &ConfigMapKey| known.get(key).cloned().unwrap_or(Text::Unknown);
        let effective = resolve(&notification, &Given { allow_http: options.allow_http, text: &text });
        let problems: Vec<_> = [effective.intake.err(), effective.sending.err()].into_iter().flatten().collect();
        if problems.iter().any(Problem::is_unknown) && !gone.iter().any(|gone| gone == AUTHORITIES) {
            gone.push(take_away(&mut object, AUTHORITIES));
            continue;
        }
        let mut fresh: Vec<_> = problems.iter().map(|problem| blamed(&problem.to_string())).collect();
        fresh.retain(|(field, _)| !gone.iter().any(|gone| is_within(field, gone)));
        if fresh.is_empty() {
            break;
        }
        for (field, message) in fresh {
            gone.push(take_away(&mut object, &field));
            found.push((field, message, Source::Controller));
        }
    }
    found
}

/// What the ConfigMaps hold that it refers to. One that is not among the files may be in the cluster: it is noted, and a
/// template that fits stands in for it.
fn known(notification: &Notification, texts: &ConfigMaps, notes: &mut Vec<String>) -> HashMap<ConfigMapKey, Text> {
    let template = notification.spec.template.as_ref().and_then(|t| t.config_map_key_ref.as_ref());
    let mut known = HashMap::new();
    for key in config_maps(notification) {
        let mut text = texts.text(&key);
        if text == Text::NoConfigMap {
            let note = format!("ConfigMap {} is not among the files; what it holds was not checked", key.object());
            if !notes.contains(&note) {
                notes.push(note);
            }
            let is_template = template.is_some_and(|t| (&t.name, &t.key) == (&key.name, &key.key));
            text = if is_template { Text::Found("{}".into()) } else { Text::Unknown };
        }
        known.insert(key, text);
    }
    known
}

/// Field and message of a problem, which begins with its field if it has one.
fn blamed(problem: &str) -> (String, String) {
    let end = problem.find([' ', ',', ':']).unwrap_or(problem.len());
    let (field, message) = problem.split_at(end);
    if field == "spec" || field.starts_with("spec.") {
        let message = message.trim_start_matches([':', ',', ' ']);
        (field.to_owned(), message.to_owned())
    } else {
        let field = match field {
            "ConfigMap" => "spec.template.configMapKeyRef",
            "missing" => "spec.template.parameters",
            _ => "spec",
        };
        (field.to_owned(), problem.to_owned())
    }
}

/// Takes a field away, or puts something harmless in its place; of a list, all of it. Returns what is gone.
fn take_away(object: &mut Value, field: &str) -> String {
    let path: Vec<&str> = steps(field).take_while(|step| step.parse::<usize>().is_err()).collect();
    match path.as_slice() {
        ["spec", "endpoint", "url"] => object["spec"]["endpoint"]["url"] = json!("https://example.com/"),
        ["spec", "endpoint"] => remove(object, &["spec", "endpoint", "urlFrom"]),
        ["spec", "template"] | ["spec", "template", "builtin" | "inline" | "configMapKeyRef", ..] => {
            object["spec"]["template"] = json!({"inline": {"body": "{}"}});
        }
        path => remove(object, path),
    }
    path.iter().fold(String::new(), |path, step| below(&path, step))
}

fn remove(object: &mut Value, path: &[&str]) {
    match (path, object) {
        ([name], Value::Object(fields)) => drop(fields.remove(*name)),
        ([name, rest @ ..], Value::Object(fields)) => {
            if let Some(value) = fields.get_mut(*name) {
                remove(value, rest);
            }
        }
        _ => {}
    }
}
