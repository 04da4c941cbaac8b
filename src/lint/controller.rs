//! What the controllers would say of an object that the API server has taken.

use std::collections::{HashMap, HashSet};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Options, Said, Source};
use crate::api::refs::ConfigMapKey;
use crate::api::target::targets;
use crate::api::{Notification, Pipeline};
use crate::config::{Given, Text, config_maps, resolve};
use crate::manifests::field::{below, entry, is_within, steps};
use crate::manifests::{ConfigMaps, one_line};
use crate::pipeline::plan::plan;

/// So many problems of one object are looked for.
const MOST: usize = 20;

/// What is wrong with an object; `said` is what the API server has said already.
pub(super) fn check(
    kind: &str,
    object: &Value,
    options: &Options,
    texts: &ConfigMaps,
    said: &[Said],
    notes: &mut Vec<String>,
) -> Vec<Said> {
    let found = match kind {
        "Pipeline" => parse(object, &options.namespace).map(|pipeline| self::pipeline(&pipeline, options)),
        _ => parse(object, &options.namespace).map(|notification| self::notification(notification, options, texts, notes)),
    };
    match found {
        Ok(found) => found.into_iter().filter(|(field, ..)| !said.iter().any(|(at, ..)| same(at, field))).collect(),
        // What does not fit the type does not fit the schema either, and that has been said.
        Err(_) if !said.is_empty() => Vec::new(),
        Err(said) => vec![said],
    }
}

/// Two words on the same field are one too many.
fn same(one: &str, other: &str) -> bool {
    is_within(one, other) && is_within(other, one)
}

fn parse<K: DeserializeOwned + kube::Resource>(object: &Value, namespace: &str) -> Result<K, Said> {
    let mut parsed: K = serde_path_to_error::deserialize(object)
        .map_err(|e| (e.path().to_string(), one_line(&e.inner().to_string()), Source::Controller))?;
    parsed.meta_mut().namespace.get_or_insert_with(|| namespace.to_owned());
    Ok(parsed)
}

fn pipeline(pipeline: &Pipeline, options: &Options) -> Vec<Said> {
    let namespace = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let Err(refused) = plan(&pipeline.spec, namespace, &options.cluster_name, options.cross_namespace_refs) else {
        return Vec::new();
    };
    let field = match refused.reason {
        "DuplicateTarget" => second(pipeline, options),
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
fn notification(
    mut notification: Notification,
    options: &Options,
    texts: &ConfigMaps,
    notes: &mut Vec<String>,
) -> Vec<Said> {
    let known = known(&notification, texts, notes);
    let text = |key: &ConfigMapKey| known.get(key).cloned().unwrap_or(Text::Unknown);
    let given = Given { allow_http: options.allow_http, text: &text };
    let mut found: Vec<Said> = Vec::new();
    while found.len() < MOST {
        let effective = resolve(&notification, &given);
        let problems = [effective.intake.err(), effective.sending.err()].into_iter().flatten().filter(|p| !p.is_unknown());
        let fresh: Vec<_> = problems
            .map(|problem| blamed(&problem.to_string()))
            .filter(|(field, _)| !found.iter().any(|(before, ..)| is_within(field, before) || is_within(before, field)))
            .collect();
        let Some(rest) = without(&notification, &fresh) else {
            found.extend(fresh.into_iter().map(|(field, message)| (field, message, Source::Controller)));
            break;
        };
        found.extend(fresh.into_iter().map(|(field, message)| (field, message, Source::Controller)));
        notification = rest;
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
            notes.push(format!("ConfigMap {} is not among the files; what it holds was not checked", key.object()));
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

/// The notification without these fields, or with something harmless in their place; nothing, if that makes no difference.
fn without(notification: &Notification, fields: &[(String, String)]) -> Option<Notification> {
    let mut object = serde_json::to_value(notification).ok()?;
    let before = object.clone();
    for (field, _) in fields {
        let path: Vec<&str> = steps(field).collect();
        match path.as_slice() {
            ["spec", "endpoint", "url"] => object["spec"]["endpoint"]["url"] = json!("https://example.com/"),
            ["spec", "template", "inline", "body"] => object["spec"]["template"]["inline"]["body"] = json!("{}"),
            ["spec", "template", "configMapKeyRef"] => object["spec"]["template"] = json!({"inline": {"body": "{}"}}),
            path => remove(&mut object, path),
        }
    }
    if object == before { None } else { serde_json::from_value(object).ok() }
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
