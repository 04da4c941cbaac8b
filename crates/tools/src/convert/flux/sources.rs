//! Which Pipelines and `PipelineSets` the event sources of all Alerts of a namespace need. Pure.
//!
//! In: [`Scope`]s, which say what Alerts name. Out: for each kind one [`Followed`], with its manifests, so that no object is observed twice.
//!
//! A set cannot select by name. So an object that is named alone gets a Pipeline of its own. If an Alert also names all objects of its
//! namespace, the set makes the Pipeline. What an Alert does not name is then left out by its conditions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::kinds::Kind;
use crate::init::{Manifest, yaml};
use relaybook_api::values::names::{cut, hash};
use relaybook_api::{GROUP, VERSION};

/// The label of the pipelines, by which Notifications select them. Its value is the kind.
pub(super) const LABEL: &str = "flux-kind";
/// All namespaces.
pub(super) const ALL: &str = "*";
/// Maximum number of namespaces of a generator.
const NAMESPACES: usize = 64;
/// Maximum number of generators of a set.
const GENERATORS: usize = 8;
/// Maximum length of the name of a Pipeline.
const LONGEST: usize = 63;

/// Labels that an object must have.
pub(super) type Labels = BTreeMap<String, String>;

/// What one event source names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    pub(super) kind: &'static Kind,
    /// The namespace, or [`ALL`].
    pub(super) namespace: String,
    /// The name. `None`: all objects.
    pub(super) name: Option<String>,
    pub(super) labels: Labels,
}

impl Scope {
    /// Whether each object that `other` names is named by this one, too.
    pub(super) fn includes(&self, other: &Self) -> bool {
        self.is_of(&other.namespace)
            && (self.name.is_none() || self.name == other.name)
            && self.labels.iter().all(|label| other.labels.iter().any(|of| of == label))
    }

    fn is_of(&self, namespace: &str) -> bool {
        self.namespace == ALL || self.namespace == namespace
    }
}

/// The objects of one kind that are followed for the Alerts of a namespace.
#[derive(Debug)]
pub(super) struct Followed {
    kind: &'static Kind,
    /// What has a pipeline.
    pub(super) population: BTreeSet<Scope>,
    /// The labels that the pipelines copy.
    labels: BTreeSet<String>,
}

impl Followed {
    /// Decides what is followed. `scopes`: those of this kind.
    pub(super) fn new(kind: &'static Kind, scopes: &BTreeSet<Scope>) -> Self {
        let labels = scopes.iter().flat_map(|scope| scope.labels.keys().cloned()).collect();
        let (mut population, named): (BTreeSet<Scope>, BTreeSet<Scope>) =
            scopes.iter().cloned().partition(|scope| scope.name.is_none());
        let selected = population.clone();
        for scope in named {
            // A set and a person cannot both own a Pipeline.
            let is_near = selected.iter().any(|one| one.is_of(&scope.namespace));
            population.insert(if is_near { Scope { name: None, ..scope } } else { scope });
        }
        // One name includes no other one.
        let wide: Vec<Scope> = population.iter().filter(|scope| scope.name.is_none()).cloned().collect();
        population.retain(|one| !wide.iter().any(|other| other != one && other.includes(one)));
        let mut followed = Self { kind, population, labels };
        if followed.generators().len() > GENERATORS {
            let whole = Scope { kind, namespace: ALL.to_owned(), name: None, labels: Labels::new() };
            followed.population = BTreeSet::from([whole]);
        }
        followed
    }

    /// Whether Alerts with these scopes want all of the pipelines.
    pub(super) fn is_covered(&self, scopes: &[&Scope]) -> bool {
        self.population.iter().all(|one| scopes.iter().any(|scope| scope.includes(one)))
    }

    /// Returns the namespace, if all pipelines follow objects of one.
    pub(super) fn only_namespace(&self) -> Option<&str> {
        let first = self.population.first()?.namespace.as_str();
        (first != ALL && self.population.iter().all(|one| one.namespace == first)).then_some(first)
    }

    /// Returns the manifests, in this namespace.
    pub(super) fn manifests(&self, namespace: &str) -> Vec<Manifest> {
        let generators = self.generators();
        let set = (!generators.is_empty()).then(|| self.set(namespace, &generators));
        let single = |scope: &Scope| Some(self.pipeline(namespace, &scope.namespace, scope.name.as_deref()?));
        set.into_iter().chain(self.population.iter().filter_map(single)).collect()
    }

    /// Returns the namespaces of each generator, with the labels of the objects.
    fn generators(&self) -> Vec<(Vec<String>, &Labels)> {
        let mut by_labels: BTreeMap<&Labels, Vec<String>> = BTreeMap::new();
        for scope in self.population.iter().filter(|scope| scope.name.is_none()) {
            by_labels.entry(&scope.labels).or_default().push(scope.namespace.clone());
        }
        let parts =
            |(labels, all): (_, Vec<String>)| all.chunks(NAMESPACES).map(|part| (part.to_vec(), labels)).collect::<Vec<_>>();
        by_labels.into_iter().flat_map(parts).collect()
    }

    fn set(&self, namespace: &str, generators: &[(Vec<String>, &Labels)]) -> Manifest {
        let Kind { name: kind, plural, api_version, .. } = self.kind;
        let generator = |(namespaces, labels): &(Vec<String>, &Labels)| {
            let mut objects = json!({"apiVersion": api_version, "kind": kind, "namespaces": namespaces});
            if !labels.is_empty() {
                objects["selector"] = json!({"matchLabels": labels});
            }
            json!({"objects": objects})
        };
        let copied = self.labels.iter().map(|key| (key.clone(), json!(format!("{{{{default labels.[{key}] \"\"}}}}"))));
        let labels: Map<String, Value> = copied.chain([(LABEL.to_owned(), json!(kind))]).collect();
        let metadata = json!({"name": format!("{}.{{{{namespace}}}}.{{{{name}}}}", kind.to_lowercase()), "labels": labels});
        let name = format!("flux-{plural}");
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "PipelineSet",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "generators": generators.iter().map(generator).collect::<Vec<_>>(),
                "template": {"metadata": metadata, "spec": self.spec("{{namespace}}", "{{name}}")},
            },
        });
        let places: Vec<_> = generators.iter().flat_map(|(namespaces, _)| namespaces).map(String::as_str).collect();
        let places = if places.contains(&ALL) { "all namespaces".to_owned() } else { places.join(", ") };
        let about = format!("PipelineSet {namespace}/{name}: a Pipeline for each {kind} of {places}");
        Manifest { file: format!("{namespace}.pipelineset-{name}.yaml"), about, text: yaml(&object) }
    }

    fn pipeline(&self, namespace: &str, of: &str, app: &str) -> Manifest {
        let kind = self.kind.name;
        let name = pipeline_name(kind, of, app);
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "Pipeline",
            "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: kind}},
            "spec": self.spec(of, app),
        });
        let about = format!("Pipeline {namespace}/{name}: {kind} {of}/{app}");
        Manifest { file: format!("{namespace}.pipeline-{name}.yaml"), about, text: yaml(&object) }
    }

    fn spec(&self, namespace: &str, name: &str) -> Value {
        let Kind { name: kind, api_version, .. } = self.kind;
        json!({
            "appRef": {"apiVersion": api_version, "kind": kind, "name": name},
            "environments": [{"name": "all", "targets": [{"namespace": namespace}]}],
        })
    }
}

/// Returns the name that a set would give the Pipeline, unless it is too long.
fn pipeline_name(kind: &str, namespace: &str, name: &str) -> String {
    let whole = format!("{}.{namespace}.{name}", kind.to_lowercase());
    if whole.len() <= LONGEST {
        return whole;
    }
    // The objects have names of ASCII characters.
    let begin: String = whole.chars().take(LONGEST - 9).collect();
    format!("{}-{}", cut(begin.trim_end_matches(['.', '-'])), hash(&[whole.as_str()]).chars().take(8).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(namespace: &str, name: &str, labels: &[(&str, &str)]) -> Scope {
        let kind = Kind::named("Kustomization").unwrap();
        let name = Some(name.to_owned()).filter(|name| name != "*");
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Scope { kind, namespace: namespace.to_owned(), name, labels }
    }

    fn followed(scopes: &[Scope]) -> Followed {
        Followed::new(Kind::named("Kustomization").unwrap(), &scopes.iter().cloned().collect())
    }

    #[test]
    fn each_object_has_one_pipeline() {
        let red = [("team", "red")];
        for (scopes, expected) in [
            (vec![scope("a", "x", &[]), scope("b", "y", &[])], &["pipeline a/x", "pipeline b/y"][..]),
            (vec![scope("a", "*", &[]), scope("a", "x", &[]), scope("b", "y", &[])], &["set a", "pipeline b/y"]),
            (vec![scope("a", "*", &red), scope("b", "*", &red)], &["set a+b team=red"]),
            (vec![scope("a", "*", &red), scope("a", "*", &[])], &["set a"]),
            (vec![scope("a", "*", &red), scope("a", "x", &[])], &["set a"]),
            (vec![scope("a", "*", &red), scope("b", "*", &[])], &["set b", "set a team=red"]),
            (vec![scope("*", "*", &[]), scope("a", "*", &red), scope("b", "x", &[])], &["set *"]),
            (vec![scope("*", "*", &red), scope("b", "x", &[])], &["set b", "set * team=red"]),
            ((0..70).map(|n| scope(&format!("n{n:02}"), "*", &[])).collect(), &["set n00…n63", "set n64…n69"]),
            ((0..9).map(|n| scope("a", "*", &[("n", n.to_string().as_str())])).collect(), &["set *"]),
        ] {
            let followed = followed(&scopes);
            let set = |(namespaces, labels): (Vec<String>, &Labels)| {
                let labels: Vec<String> = labels.iter().map(|(key, value)| format!(" {key}={value}")).collect();
                let few = namespaces.len() < 4;
                let all =
                    if few { namespaces.join("+") } else { format!("{}…{}", namespaces[0], namespaces.last().unwrap()) };
                format!("set {all}{}", labels.concat())
            };
            let one = |scope: &Scope| Some(format!("pipeline {}/{}", scope.namespace, scope.name.as_ref()?));
            let singles = followed.population.iter().filter_map(one);
            let found: Vec<_> = followed.generators().into_iter().map(set).chain(singles).collect();
            assert_eq!(found, expected, "{scopes:?}");
            assert!(followed.is_covered(&[&scope("*", "*", &[])]));
        }
    }

    #[test]
    fn an_alert_that_wants_all_pipelines_needs_no_condition() {
        let all = followed(&[scope("a", "*", &[]), scope("b", "y", &[])]);
        let (a, b, x) = (scope("a", "*", &[]), scope("b", "y", &[]), scope("a", "x", &[]));
        assert!(all.is_covered(&[&a, &b]) && !all.is_covered(&[&a]) && !all.is_covered(&[&x, &b]));
        assert_eq!((all.only_namespace(), followed(&[a, x]).only_namespace()), (None, Some("a")));
        assert_eq!(followed(&[scope("*", "*", &[])]).only_namespace(), None);
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_and_stays_unique() {
        assert_eq!(pipeline_name("HelmRelease", "team-a", "web"), "helmrelease.team-a.web");
        let (one, other) = (format!("{}a", "x".repeat(60)), format!("{}b", "x".repeat(60)));
        let [first, second] = [one, other].map(|name| pipeline_name("Kustomization", "team-a", &name));
        assert!(first.len() == 63 && first != second && first.starts_with("kustomization.team-a.xxx"), "{first}");
    }
}
