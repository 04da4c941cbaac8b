//! Pure: the pipelines that a set should have, one for each source, or one for each part of the targets of a source.
//!
//! In: the sources, and the compiled template. Out: the desired pipelines by name, and what prevents others.

use std::collections::{BTreeMap, HashSet};

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::made::hash;
use super::plan::{Planned, PlannedGenerator};
use super::template::Rendered;
use relaybook_api::pipeline::Baseline;
use relaybook_api::pipeline_set::{APPLIED, GeneratorStatus, MAX_PIPELINES, SET, SourceRef, WrongPipeline};
use relaybook_api::values::names::is_subdomain;
use relaybook_api::{PipelineSet, PipelineSpec};
use relaybook_core::pipeline::plan::plan;
use relaybook_core::reading::selection::{Joined, SourceObject, Sources};
use relaybook_settings::render::SourceData;
use relaybook_text::first_line;

/// Maximum length of the name of a pipeline.
const LONGEST: usize = 63;
/// Number of characters of the hash at the end of a name that is cut.
const HASH: usize = 10;
/// Reason of a pipeline with a spec that is not valid.
pub(super) const INVALID: &str = "Invalid";

/// What one generator selects now.
pub(super) struct Found<'a> {
    pub generator: &'a PlannedGenerator,
    pub sources: Sources,
    /// What the status records of it. `None`: it is new.
    pub before: Option<&'a GeneratorStatus>,
}

/// A pipeline that a set should have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Desired {
    pub source: SourceRef,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Where its source is: index of the generator, and of the object.
    pub at: (usize, usize),
    /// Which part of the targets of the source it has, and of how many.
    pub chunk: Option<(u32, u32)>,
    /// Hash of the spec, as [`hash`] returns it.
    pub hash: String,
    /// The baseline of the template.
    pub baseline: Option<Baseline>,
    /// Whether the source appeared while the set was watching.
    pub is_new: bool,
}

/// All pipelines that a set should have.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    pub desired: BTreeMap<String, Desired>,
    pub wrong: Vec<WrongPipeline>,
    /// Sources whose pipelines are wrong. What they have stays.
    pub kept: HashSet<SourceRef>,
    /// Whether there are more sources than one set can have.
    pub is_limited: bool,
    /// Why sources can be missing.
    pub incomplete: Vec<(String, String)>,
}

/// The settings of the installation.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// Name of the local cluster in the names of targets.
    pub cluster_name: &'a str,
    /// Whether sources and targets in another namespace than their set are allowed.
    pub cross_namespace_refs: bool,
    /// The label that names the shard of an object. A pipeline has that of its source, unless the template sets it.
    pub shard_label: &'a str,
}

/// Returns the pipelines that a set should have. `owner`: the source of a pipeline that exists, which keeps its name.
pub(super) fn expand(
    set: &PipelineSet,
    planned: &Planned,
    found: &[Found<'_>],
    settings: Settings<'_>,
    owner: impl Fn(&str) -> Option<SourceRef>,
) -> Expanded {
    let mut expanded = Expanded::default();
    let here = Here { set, planned, settings };
    let total: usize = found.iter().map(|found| found.sources.total).sum();
    let limit = MAX_PIPELINES / usize::try_from(set.spec.chunks.unwrap_or(1)).unwrap_or(1).max(1);
    let (mut room, mut displaced) = (limit, Vec::new());
    for (index, of) in found.iter().enumerate() {
        if let Some((reason, message)) = &of.sources.incomplete {
            expanded.incomplete.push((reason.as_str().to_owned(), format!("generators[{index}]: {message}")));
        }
        for (number, object) in of.sources.objects.iter().enumerate().take(room) {
            if let Err(wrong) = here.expand(of, (index, number), &owner, &mut expanded.desired, &mut displaced) {
                expanded.kept.insert(of.generator.source(&object.namespace, &object.name));
                expanded.wrong.push(wrong);
            }
        }
        room = room.saturating_sub(of.sources.objects.len());
    }
    for (name, source, other) in displaced {
        let message = format!("{} has a pipeline of this name; correct template.metadata.name", shown(&other));
        let reason = "DuplicateName".to_owned();
        expanded.wrong.push(WrongPipeline { name, source: shown(&source), reason, message });
        expanded.kept.insert(source);
    }
    if total > limit {
        let message = format!("{total} sources are selected; the maximum is {limit}; select fewer, or use several sets");
        expanded.is_limited = true;
        expanded.wrong.insert(0, WrongPipeline { reason: "TooManySources".into(), message, ..WrongPipeline::default() });
    }
    expanded
}

/// Returns the field and the message of a problem that a set has for every source: a spec that is refused, or a template whose result is not a
/// pipeline. Whether all values of a pipeline are valid depends on the source.
#[must_use]
pub fn problem(set: &PipelineSet, settings: Settings<'_>) -> Option<(&'static str, String)> {
    let namespace = set.namespace().unwrap_or_default();
    let planned = match super::plan::plan(&set.spec, &namespace, settings.cross_namespace_refs) {
        Ok(planned) => planned,
        Err(refused) => return Some(("spec", refused.message)),
    };
    let sample = SourceObject {
        namespace,
        name: "sample".to_owned(),
        labels: BTreeMap::new(),
        joined: Joined::Listed,
        created: None,
    };
    let sources = Sources { objects: vec![sample], total: 1, newest: None, incomplete: None };
    let generator = planned.generators.first()?;
    let wrong = expand(set, &planned, &[Found { generator, sources, before: None }], settings, |_| None).wrong;
    let wrong = wrong.into_iter().find(|wrong| wrong.reason == INVALID)?;
    Some(("spec.template", wrong.message))
}

/// A name, a source that has no pipeline of this name, and the source that has it.
type Displaced = (String, SourceRef, SourceRef);

struct Here<'a> {
    set: &'a PipelineSet,
    planned: &'a Planned,
    settings: Settings<'a>,
}

impl Here<'_> {
    /// Adds the pipelines of one source.
    fn expand(
        &self,
        found: &Found<'_>,
        at: (usize, usize),
        owner: &impl Fn(&str) -> Option<SourceRef>,
        all: &mut BTreeMap<String, Desired>,
        displaced: &mut Vec<Displaced>,
    ) -> Result<(), WrongPipeline> {
        let object = &found.sources.objects[at.1];
        let source = found.generator.source(&object.namespace, &object.name);
        let wrong = |name: &str, reason: &str, message: &str| WrongPipeline {
            name: name.to_owned(),
            source: shown(&source),
            reason: reason.to_owned(),
            message: first_line(message),
        };
        let rendered = self.planned.template.render(&data(&source, object));
        let mut rendered = rendered.map_err(|message| wrong("", "TemplateFailed", &message))?;
        if let Some(shard) = object.labels.get(self.settings.shard_label) {
            rendered.labels.entry(self.settings.shard_label.to_owned()).or_insert_with(|| shard.clone());
        }
        let is_new = is_new(object, found.before);
        let chunks = self.set.spec.chunks;
        for chunk in 0..chunks.unwrap_or(1) {
            let suffix = if chunks.is_some() { format!("-{chunk}") } else { String::new() };
            let name = fitting(&rendered.name, &suffix);
            let chunk = chunks.map(|of| (chunk, of));
            let desired = self.pipeline(&name, &rendered, chunk, &source);
            let desired = desired.map_err(|(reason, message)| wrong(&name, reason, &message))?;
            let desired = Desired { at, is_new, ..desired };
            match all.get(&name).map(|other| other.source.clone()) {
                // Two generators select it.
                Some(other) if other == source => {}
                Some(other) if owner(&name).as_ref() != Some(&source) => displaced.push((name, source.clone(), other)),
                Some(other) => {
                    displaced.push((name.clone(), other, source.clone()));
                    all.insert(name, desired);
                }
                None => drop(all.insert(name, desired)),
            }
        }
        Ok(())
    }

    /// Returns one pipeline, or why it is refused.
    fn pipeline(
        &self,
        name: &str,
        rendered: &Rendered,
        chunk: Option<(u32, u32)>,
        source: &SourceRef,
    ) -> Result<Desired, (&'static str, String)> {
        if name.len() > LONGEST || !is_subdomain(name) {
            let message = format!(
                "{name:?} is not a name of a pipeline: lower case letters, digits, '-' and '.', at most 63 characters"
            );
            return Err(("InvalidName", message));
        }
        let set = self.set.name_any();
        let spec = spec(rendered.spec.clone(), chunk, &set, source)?;
        let typed: PipelineSpec = serde_path_to_error::deserialize(&spec)
            .map_err(|error| (INVALID, format!("template.spec.{}: {}", error.path(), error.inner())))?;
        let read = serde_json::to_value(&typed).unwrap_or_default();
        if let Some(field) = unread(&spec, &read) {
            return Err((INVALID, format!("template.spec.{field}: unknown field; correct or remove it")));
        }
        let namespace = self.set.namespace().unwrap_or_default();
        let Settings { cluster_name, cross_namespace_refs, .. } = self.settings;
        plan(&typed, &namespace, cluster_name, cross_namespace_refs)
            .map_err(|refused| (refused.reason, format!("template.spec: {}", refused.message)))?;
        let mut labels = rendered.labels.clone();
        labels.insert(SET.to_owned(), set);
        let mut annotations = rendered.annotations.clone();
        annotations.insert(APPLIED.to_owned(), metadata_hash(&labels, &annotations));
        Ok(Desired {
            source: source.clone(),
            labels,
            annotations,
            hash: hash(&typed),
            baseline: typed.baseline,
            at: (0, 0),
            chunk,
            is_new: false,
        })
    }
}

/// Returns a field of `written` that the type does not have, so it is missing from `read`. The type leaves out empty values.
fn unread(written: &Value, read: &Value) -> Option<String> {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => written.iter().find_map(|(name, value)| match read.get(name) {
            Some(read) => unread(value, read).map(|field| {
                let dot = if field.starts_with('[') { "" } else { "." };
                format!("{name}{dot}{field}")
            }),
            None => (!is_empty(value)).then(|| name.clone()),
        }),
        (Value::Array(written), Value::Array(read)) => {
            let mut pairs = written.iter().zip(read).enumerate();
            pairs.find_map(|(index, (written, read))| unread(written, read).map(|field| format!("[{index}].{field}")))
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

/// Returns what templates read of a source.
fn data(source: &SourceRef, object: &SourceObject) -> SourceData {
    SourceData {
        api_version: source.api_version.clone(),
        kind: source.kind.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        labels: object.labels.clone(),
    }
}

/// Returns the spec of a desired pipeline, as it is applied, without the baseline unless the template has one.
pub(super) fn spec_of(set: &PipelineSet, planned: &Planned, found: &[Found<'_>], desired: &Desired) -> Option<Value> {
    let object = found.get(desired.at.0)?.sources.objects.get(desired.at.1)?;
    let rendered = planned.template.render(&data(&desired.source, object)).ok()?;
    spec(rendered.spec, desired.chunk, &set.name_any(), &desired.source).ok()
}

/// Adds the part and the set to a rendered spec.
fn spec(mut spec: Value, chunk: Option<(u32, u32)>, set: &str, source: &SourceRef) -> Result<Value, (&'static str, String)> {
    if let Some((index, of)) = chunk {
        divide(&mut spec, index, of)?;
    }
    let fields = spec.as_object_mut().ok_or_else(|| (INVALID, "template.spec must be an object".to_owned()))?;
    if fields.insert("pipelineSet".to_owned(), json!({"name": set, "source": source})).is_some() {
        return Err((INVALID, "template.spec.pipelineSet must be absent; the set writes it".to_owned()));
    }
    Ok(spec)
}

/// Returns a hash of labels and annotations.
fn metadata_hash(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> String {
    let text = serde_json::to_string(&(labels, annotations)).unwrap_or_default();
    hex::encode(Sha256::digest(text))[..HASH].to_owned()
}

/// Lets each entry of `targetsFrom` select only one part of its objects.
fn divide(spec: &mut Value, index: u32, of: u32) -> Result<(), (&'static str, String)> {
    let environments = spec.get_mut("environments").and_then(Value::as_array_mut);
    for environment in environments.into_iter().flatten() {
        let field = || format!("environment {}", environment.get("name").and_then(Value::as_str).unwrap_or_default());
        if environment.get("targets").is_some_and(|targets| targets != &json!([])) {
            let message =
                format!("{} has targets, which chunks cannot divide; use targetsFrom only, or remove chunks", field());
            return Err((INVALID, message));
        }
        let field = field();
        for entry in environment.get_mut("targetsFrom").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(entry) = entry.as_object_mut() else { continue };
            if entry.insert("chunk".to_owned(), json!({"index": index, "of": of})).is_some() {
                let message = format!("{field} has a chunk; remove it, or chunks of the set");
                return Err((INVALID, message));
            }
        }
    }
    Ok(())
}

/// Whether a source appeared while the set was watching, or after those that are recorded.
fn is_new(object: &SourceObject, before: Option<&GeneratorStatus>) -> bool {
    match object.joined {
        Joined::Created => true,
        Joined::Moved => false,
        Joined::Listed => before.is_some_and(|before| before.newest.is_none_or(|newest| object.created >= Some(newest))),
    }
}

/// Returns a name with its suffix. A name that is too long is cut, and gets a hash of the whole name.
fn fitting(name: &str, suffix: &str) -> String {
    if name.len() + suffix.len() <= LONGEST {
        return format!("{name}{suffix}");
    }
    let hash = &hex::encode(Sha256::digest(name))[..HASH];
    let room = LONGEST - suffix.len() - HASH - 1;
    let mut end = room;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}{suffix}", name[..end].trim_end_matches(['-', '.']))
}

/// Returns a source for a message.
pub(super) fn shown(source: &SourceRef) -> String {
    format!("{} {}/{}", source.kind, source.namespace, source.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::plan;
    use crate::sets::testing::spec;
    use relaybook_api::PipelineSetSpec;
    use relaybook_api::values::shard::SHARD_LABEL;
    use relaybook_core::reading::Reason;

    const KUSTOMIZATIONS: &str = r#"{"objects": {"apiVersion": "apps/v1", "kind": "Deployment", "namespaces": ["*"]}}"#;

    fn object(namespace: &str, name: &str, joined: Joined, created: i64) -> SourceObject {
        let created = relaybook_api::Time::from_second(created).ok();
        SourceObject { namespace: namespace.into(), name: name.into(), labels: BTreeMap::new(), joined, created }
    }

    /// Returns the spec of a pipeline.
    fn spec_named(set: &PipelineSetSpec, objects: &[SourceObject], name: &str) -> Value {
        let mut set = PipelineSet::new("apps", set.clone());
        set.metadata.namespace = Some("team-a".into());
        let planned = plan::plan(&set.spec, "team-a", true).unwrap();
        let sources = Sources { objects: objects.to_vec(), ..Sources::default() };
        let desired = &of(set.spec.clone(), objects, None, None).desired[name];
        spec_of(&set, &planned, &[Found { generator: &planned.generators[0], sources, before: None }], desired).unwrap()
    }

    fn of(
        spec: PipelineSetSpec,
        objects: &[SourceObject],
        before: Option<&GeneratorStatus>,
        owner: Option<&str>,
    ) -> Expanded {
        let mut set = PipelineSet::new("apps", spec);
        set.metadata.namespace = Some("team-a".into());
        let planned = plan::plan(&set.spec, "team-a", true).unwrap();
        let sources = Sources { objects: objects.to_vec(), total: objects.len(), newest: None, incomplete: None };
        let found = [Found { generator: &planned.generators[0], sources, before }];
        let owner = |_: &str| Some(planned.generators[0].source(owner?, "x"));
        expand(
            &set,
            &planned,
            &found,
            Settings { cluster_name: "in-cluster", cross_namespace_refs: true, shard_label: SHARD_LABEL },
            owner,
        )
    }

    #[test]
    fn each_source_has_its_pipeline() {
        let objects = [object("a", "x", Joined::Listed, 1), object("b", "x", Joined::Listed, 2)];
        let expanded = of(spec(KUSTOMIZATIONS, "{{namespace}}.{{name}}"), &objects, None, None);
        assert_eq!(expanded.desired.keys().collect::<Vec<_>>(), ["a.x", "b.x"]);
        let one = &expanded.desired["a.x"];
        assert_eq!((one.labels[SET].as_str(), one.source.namespace.as_str(), one.is_new), ("apps", "a", false));
        let spec = spec_named(&spec(KUSTOMIZATIONS, "{{namespace}}.{{name}}"), &objects, "a.x");
        assert_eq!(spec["pipelineSet"]["name"], "apps");
        assert_eq!(spec["environments"][0]["targets"][0]["namespace"], "a");
    }

    #[test]
    fn two_sources_with_the_same_pipeline_name_have_one_pipeline() {
        let objects = [object("a", "x", Joined::Listed, 1), object("b", "x", Joined::Listed, 2)];
        for (owner, expected) in [(None, "a"), (Some("b"), "b")] {
            let expanded = of(spec(KUSTOMIZATIONS, "{{name}}"), &objects, None, owner);
            assert_eq!(expanded.desired["x"].source.namespace, expected, "the pipeline that exists keeps its source");
            assert_eq!(expanded.desired.len(), 1);
        }
        let expanded = of(spec(KUSTOMIZATIONS, "{{name}}"), &objects, None, Some("b"));
        assert_eq!(expanded.wrong[0].source, "Deployment a/x");
        let expanded = of(spec(KUSTOMIZATIONS, "{{name}}"), &objects, None, None);
        assert_eq!(
            (expanded.wrong[0].reason.as_str(), expanded.wrong[0].source.as_str()),
            ("DuplicateName", "Deployment b/x")
        );
    }

    #[test]
    fn a_source_is_new_if_it_appeared_after_those_that_are_recorded() {
        let before = |newest: Option<i64>| GeneratorStatus {
            selection: "x".into(),
            newest: newest.and_then(|second| relaybook_api::Time::from_second(second).ok()),
        };
        for (joined, newest, expected) in [
            (Joined::Created, Some(9), true),
            (Joined::Moved, None, false),
            (Joined::Listed, Some(4), true),
            (Joined::Listed, Some(5), true),
            (Joined::Listed, Some(6), false),
            (Joined::Listed, None, true),
        ] {
            assert_eq!(is_new(&object("a", "x", joined, 5), Some(&before(newest))), expected, "{joined:?} {newest:?}");
        }
        assert!(!is_new(&object("a", "x", Joined::Listed, 5), None) && is_new(&object("a", "x", Joined::Created, 5), None));
    }

    #[test]
    fn long_names_are_cut_to_63_characters_and_stay_valid_and_unique() {
        let long = "kustomization.flux-system.".to_owned() + &"a".repeat(60);
        let (cut, chunk) = (fitting(&long, ""), fitting(&long, "-12"));
        assert_eq!((cut.len(), chunk.len()), (63, 63));
        assert!(chunk.ends_with("-12") && is_subdomain(&cut) && is_subdomain(&chunk), "{cut} {chunk}");
        assert_ne!(fitting(&(long.clone() + "b"), ""), cut);
        assert_eq!(fitting("a", "-0"), "a-0");
    }

    #[test]
    fn chunks_require_targets_from_a_selection() {
        let mut set = spec(r#"{"fleet": {"gitRepos": {}}}"#, "{{name}}");
        set.chunks = Some(3);
        let objects = [object("team-a", "shop", Joined::Listed, 1)];
        let wrong = &of(set.clone(), &objects, None, None).wrong[0];
        assert!(wrong.message.contains("environment all has targets"), "{wrong:?}");
        set.template.spec = json!({"environments": [{"name": "all", "targetsFrom": [{"fleet": {"gitRepo": "{{name}}"}}]}]});
        let expanded = of(set.clone(), &objects, None, None);
        assert_eq!(expanded.desired.keys().collect::<Vec<_>>(), ["shop-0", "shop-1", "shop-2"]);
        let spec = spec_named(&set, &objects, "shop-2");
        assert_eq!(spec["environments"][0]["targetsFrom"][0]["chunk"], json!({"index": 2, "of": 3}));
    }

    #[test]
    fn each_invalid_template_result_is_reported_with_its_field() {
        let mut set = spec(KUSTOMIZATIONS, "{{name}}");
        let objects = [object("a", "x", Joined::Listed, 1)];
        set.template.spec = json!({"environments": [{"name": "all", "targets": 3}]});
        let wrong = |set: &PipelineSetSpec| of(set.clone(), &objects, None, None).wrong.remove(0);
        assert!(wrong(&set).message.starts_with("template.spec.environments[0].targets: "), "{:?}", wrong(&set));
        set.template.spec = json!({"environments": [], "pipelineSet": {}});
        assert_eq!(wrong(&set).reason, "Invalid");
        set.template.spec = json!({
            "appRef": {"apiVersion": "v1", "kind": "K", "name": "a"}, "nothing": null,
            "environments": [{"name": "all", "targets": [{"namespace": "a"}], "targetFrom": [1], "notifications": []}],
        });
        assert!(wrong(&set).message.starts_with("template.spec.environments[0].targetFrom: unknown"), "{:?}", wrong(&set));
        let bad = spec(KUSTOMIZATIONS, "{{name}}_");
        assert_eq!((wrong(&bad).reason.as_str(), wrong(&bad).name.as_str()), ("InvalidName", "x_"));
    }

    #[test]
    fn an_incomplete_generator_is_named() {
        let mut set = PipelineSet::new("apps", spec(KUSTOMIZATIONS, "{{name}}"));
        set.metadata.namespace = Some("team-a".into());
        let planned = plan::plan(&set.spec, "team-a", true).unwrap();
        let incomplete = Some((Reason::KindNotFound, "no such kind".to_owned()));
        let sources = Sources { incomplete, ..Sources::default() };
        let found = [Found { generator: &planned.generators[0], sources, before: None }];
        let settings = Settings { cluster_name: "in-cluster", cross_namespace_refs: true, shard_label: SHARD_LABEL };
        let expanded = expand(&set, &planned, &found, settings, |_| None);
        assert_eq!(expanded.incomplete, [("KindNotFound".to_owned(), "generators[0]: no such kind".to_owned())]);
    }
}
