//! Pure: the effective notifications of a pipeline, with the layer that set each field.
//!
//! In: the pipeline, and the layers that can be below its own layers ([`Known`]). Out: the effective settings of each notification
//! ([`Explained`]). Targets, environments and the pipeline form one group if their settings come from the same layers.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::{Map, Value};

use super::defaults::add_defaults;
use super::{Egress, PreviewError};
use relaybook_api::delivery::{Family, Reason, SubjectKind};
use relaybook_api::pipeline::target::{TargetInfo, targets_of};
use relaybook_api::{LogSubject, Notification, ObjectName, Pipeline, Status, Time, TransitionType};
use relaybook_core::promotion::policy::policy;
use relaybook_settings::config::layers::{Folded, Layer, Source, fold, names, of_environment, of_target, of_whole_pipeline};
use relaybook_settings::config::{Given, Global, Text, is_secret};
use relaybook_settings::manifests::{effective_notification, has_notification, layers_below};
use relaybook_settings::render::observed;

const MASK: &str = "******";
/// The author of a default.
const DEFAULT: &str = "default";

/// One notification, for the targets with the same effective settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// Name of the notification.
    pub notification: String,
    /// Names of the targets.
    pub targets: Vec<String>,
    /// The other subjects that the notification reports, as a change names them: `environment/NAME`, `promotion/NAME` for the promotions to
    /// an environment, and `pipeline`, which includes its clusters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
    /// The effective settings. Possible credentials are masked.
    pub spec: Map<String, Value>,
    /// The author of each field, by JSON Pointer into `spec`. The author is the object or the part of it that set the field.
    pub fields: BTreeMap<String, String>,
    /// When a receiver last answered 2xx to this notification for this pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sent_time: Option<Time>,
    /// The last successful delivery by any notification, by target or subject.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub last_sent: BTreeMap<String, LastDelivery>,
    /// Why the state of a target is currently unknown, by target. It comes from the status of the pipeline.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unobserved: BTreeMap<String, Wrong>,
    /// Why the controller cannot send the notification now, by target. It comes from the status of the pipeline.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub not_ready: BTreeMap<String, Wrong>,
    /// Why the notification cannot be recorded or sent, as far as its definition shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Wrong>,
}

/// The last successful delivery for a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastDelivery {
    /// When the receiver answered 2xx.
    pub time: Time,
    /// Name of the notification. It is empty in a status that an earlier version wrote.
    pub notification: String,
}

/// A problem of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wrong {
    /// Machine-readable reason.
    pub reason: String,
    /// Human-readable message with the layer, the field and the remedy.
    pub message: String,
}

/// The layers that can be below the layers of a pipeline, and the settings of Relaybook.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The global configuration.
    pub global: &'a Global,
    /// The ConfigMap of the global configuration.
    pub config_map: &'a ObjectName,
    /// The Notifications in the namespace of the pipeline, and in its layer namespace.
    pub notifications: &'a [Notification],
    /// The name of the local cluster.
    pub cluster: &'a str,
    /// Whether `http` is allowed to any host.
    pub allow_http: bool,
    /// The addresses that the controller does not send to, if they are known.
    pub egress: Option<&'a Egress>,
}

/// The part of a pipeline to explain. `None` means all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Name of a notification.
    pub notification: Option<&'a str>,
    /// Name of a target.
    pub target: Option<&'a str>,
}

/// Explains the notifications of a pipeline.
pub fn explain(pipeline: &Pipeline, known: &Known<'_>, asked: Asked<'_>) -> Result<Vec<Explained>, PreviewError> {
    let all = targets_of(pipeline, known.cluster);
    if let Some(target) = asked.target.filter(|name| all.iter().all(|t| t.name != *name)) {
        let known = all.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(PreviewError::NoTarget { pipeline: pipeline.name_any(), target: target.to_owned(), known });
    }
    let mut bases: BTreeMap<String, Vec<&Notification>> = BTreeMap::new();
    for notification in known.notifications {
        bases.entry(notification.name_any()).or_default().push(notification);
    }
    let own = names(&pipeline.spec);
    let everywhere = known.global.notifications().map(|(name, _)| name);
    let names: BTreeSet<&String> = own.iter().chain(bases.keys()).chain(everywhere).collect();
    let mut explained = Vec::new();
    for name in names.into_iter().filter(|known| asked.notification.is_none_or(|name| name == *known)) {
        // A notification that does not select the pipeline does not apply to it, even if the pipeline has a layer with its name.
        let Some(below) = layers_below(known.global, pipeline, name, bases.get(name).into_iter().flatten().copied()) else {
            continue;
        };
        let groups = Whole { pipeline, known, name, below }.groups(&all, asked.target);
        explained.extend(groups.into_iter().map(|group| group.with_last_sent(pipeline).with_not_ready(pipeline)));
    }
    match asked.notification {
        Some(name) if explained.is_empty() => {
            Err(PreviewError::NoSuchNotification { pipeline: pipeline.name_any(), name: name.to_owned() })
        }
        _ => Ok(explained),
    }
}

/// Returns the number of targets of a pipeline to which a notification applies. `None`: it does not apply to the pipeline. This is much
/// cheaper than [`explain`], because nothing is compiled.
#[must_use]
pub fn covered(pipeline: &Pipeline, known: &Known<'_>, name: &str) -> Option<usize> {
    let below = layers_below(known.global, pipeline, name, known.notifications)?;
    let namespace = pipeline.namespace().unwrap_or_default();
    let applies = |info: &TargetInfo| {
        let layers = [below.as_slice(), &of_target(&pipeline.spec, &namespace, name, info)].concat();
        has_notification(&layers)
    };
    Some(targets_of(pipeline, known.cluster).iter().filter(|info| applies(info)).count()).filter(|count| *count > 0)
}

/// One notification, for all targets.
struct Whole<'a> {
    pipeline: &'a Pipeline,
    known: &'a Known<'a>,
    name: &'a str,
    below: Vec<Layer>,
}

impl Whole<'_> {
    /// Groups the targets with the same layers, and the other subjects.
    fn groups(&self, all: &[TargetInfo], target: Option<&str>) -> Vec<Explained> {
        let Self { pipeline, name, .. } = self;
        let namespace = pipeline.namespace().unwrap_or_default();
        let spec = &pipeline.spec;
        let mut groups: Vec<Explained> = Vec::new();
        for info in all.iter().filter(|info| target.is_none_or(|name| name == info.name)) {
            let one = self.explained(&of_target(spec, &namespace, name, info));
            let unobserved = unobserved(pipeline, info).map(|why| (info.name.clone(), why)).into_iter().collect();
            join(&mut groups, one.map(|one| Explained { targets: vec![info.name.clone()], unobserved, ..one }));
        }
        if target.is_some() {
            return groups;
        }
        let about = |subject: LogSubject<'_>, is_about: fn(TransitionType) -> bool, own: &[Layer]| {
            let one = self.explained(own).filter(|one| one.reports(is_about))?;
            Some(Explained { subjects: vec![subject.to_string()], ..one })
        };
        for (e, environment) in spec.environments.iter().enumerate() {
            let own = of_environment(spec, &namespace, name, e);
            join(&mut groups, about(LogSubject::Environment(&environment.name), is_about_environments, &own));
            if policy(spec, e).is_some() {
                join(&mut groups, about(LogSubject::Promotion(&environment.name), is_about_promotions, &own));
            }
        }
        let own: Vec<Layer> = of_whole_pipeline(spec, &namespace, name).into_iter().collect();
        join(&mut groups, about(LogSubject::Pipeline, is_about_pipelines, &own));
        groups
    }

    /// Returns the result of these layers of the pipeline over the layers below. `None`: the result is not a notification.
    fn explained(&self, own: &[Layer]) -> Option<Explained> {
        let layers = [self.below.as_slice(), own].concat();
        if !has_notification(&layers) {
            return None;
        }
        let namespace = self.pipeline.namespace().unwrap_or_default();
        let given = Given { allow_http: self.known.allow_http, text: &|_| Text::Unknown };
        let effective = effective_notification(&layers, &namespace, &given);
        let problem = effective.intake.err().or(effective.sending.err()).filter(|problem| !problem.is_unknown());
        let problem = problem.map(|p| Wrong { reason: p.reason().as_str().to_owned(), message: p.to_string() });
        let whole: Vec<_> = std::iter::once(Layer::built_in()).chain(layers.iter().cloned()).collect();
        // Layers that cannot be merged are reported as the problem.
        let folded = fold(&whole, |_| {}).unwrap_or_default();
        let problem = problem.or_else(|| self.refused(&folded.value));
        let mut fields = self.authors(&folded, &namespace);
        let mut spec = folded.value;
        mask(&mut spec);
        fields.extend(add_defaults(&mut spec).into_iter().map(|pointer| (pointer, DEFAULT.to_owned())));
        Some(Explained {
            notification: self.name.to_owned(),
            targets: Vec::new(),
            subjects: Vec::new(),
            spec,
            fields,
            last_sent_time: None,
            last_sent: BTreeMap::new(),
            unobserved: BTreeMap::new(),
            not_ready: BTreeMap::new(),
            problem,
        })
    }

    /// Returns a problem if the controller does not send to the address of the endpoint.
    fn refused(&self, spec: &Map<String, Value>) -> Option<Wrong> {
        let url = spec.get("endpoint")?.get("url")?.as_str()?;
        let message = self.known.egress?.refuses(url)?;
        Some(Wrong { reason: Reason::DestinationForbidden.as_str().to_owned(), message })
    }

    fn authors(&self, folded: &Folded, namespace: &str) -> BTreeMap<String, String> {
        let (name, pipeline, config_map) = (self.name, self.pipeline.name_any(), self.known.config_map);
        let who = |source: &Source| match source {
            Source::BuiltIn => DEFAULT.to_owned(),
            Source::Defaults => format!("ConfigMap {config_map}, defaults"),
            Source::Global => format!("ConfigMap {config_map}, notification {name}"),
            Source::Notification => format!("Notification {namespace}/{name}"),
            Source::LayerNamespace(notification) => format!("Notification {notification}"),
            Source::Pipeline => format!("Pipeline {namespace}/{pipeline}"),
            Source::Environment(environment) => format!("Pipeline {namespace}/{pipeline}, environment {environment}"),
            Source::Target(target) => format!("Pipeline {namespace}/{pipeline}, target {target}"),
        };
        folded.authors().map(|(pointer, source)| (pointer.to_owned(), who(source))).collect()
    }
}

fn is_about_promotions(type_: TransitionType) -> bool {
    type_.family() == Family::Promotion
}

fn is_about_environments(type_: TransitionType) -> bool {
    type_.subject() == SubjectKind::Environment && !is_about_promotions(type_)
}

/// Whether a transition is reported with the layers of the whole pipeline.
fn is_about_pipelines(type_: TransitionType) -> bool {
    matches!(type_.subject(), SubjectKind::Pipeline | SubjectKind::Cluster)
}

/// Adds an entry to the group with the same settings, or starts a new group.
fn join(groups: &mut Vec<Explained>, one: Option<Explained>) {
    let Some(one) = one else { return };
    match groups.iter_mut().find(|g| g.spec == one.spec && g.fields == one.fields && g.problem == one.problem) {
        Some(group) => {
            group.targets.extend(one.targets);
            group.subjects.extend(one.subjects);
            group.unobserved.extend(one.unobserved);
        }
        None => groups.push(one),
    }
}

/// Returns why the state of a target is currently unknown, from the status of its pipeline.
fn unobserved(pipeline: &Pipeline, target: &TargetInfo) -> Option<Wrong> {
    let shown = observed(pipeline, target).filter(|shown| matches!(shown.status, Status::NotFound | Status::Unknown))?;
    let reason = if shown.status == Status::NotFound { "TargetNotFound" } else { &shown.reason };
    Some(Wrong { reason: reason.to_owned(), message: shown.message.clone() })
}

/// Masks literal values whose names indicate credentials. References are not masked.
fn mask(spec: &mut Map<String, Value>) {
    for (part, map) in [("endpoint", "/headers"), ("endpoint", "/auth/oauth2/parameters"), ("template", "/parameters")] {
        let values = spec.get_mut(part).and_then(|part| part.pointer_mut(map)).and_then(Value::as_object_mut);
        for (name, value) in values.into_iter().flatten() {
            if is_secret(name) {
                *value = Value::from(MASK);
            }
        }
    }
}

impl Explained {
    /// Adds the last successful deliveries from the pipeline's status.
    fn with_last_sent(self, pipeline: &Pipeline) -> Self {
        let Some(dispatched) = pipeline.status.as_ref().and_then(|status| status.dispatched.as_ref()) else { return self };
        let cursor = dispatched.cursors.iter().find(|cursor| cursor.notification == self.notification);
        let last_sent = self.places().filter_map(|place| {
            let is_same = |subject: &str| subject == place || LogSubject::parse(subject) == LogSubject::Target(place);
            let last = dispatched.last_sent.iter().find(|last| is_same(&last.subject))?;
            Some((place.to_owned(), LastDelivery { time: last.time, notification: last.notification.clone() }))
        });
        Self { last_sent_time: cursor.and_then(|cursor| cursor.last_sent_time), last_sent: last_sent.collect(), ..self }
    }

    /// Adds what the controller reports about its targets, as far as the definition does not show it.
    fn with_not_ready(mut self, pipeline: &Pipeline) -> Self {
        let dispatched = pipeline.status.as_ref().and_then(|status| status.dispatched.as_ref());
        let own = dispatched.into_iter().flat_map(|d| &d.notifications).filter(|entry| entry.name == self.notification);
        for entry in own {
            let why = Wrong { reason: entry.reason.clone(), message: entry.message.clone() };
            let is_known = self.problem.as_ref().is_some_and(|problem| problem.reason == why.reason);
            let targets = self.targets.iter().filter(|name| entry.target.as_ref().is_none_or(|target| target == *name));
            let targets: Vec<_> = targets.filter(|_| !is_known).cloned().collect();
            self.not_ready.extend(targets.into_iter().map(|target| (target, why.clone())));
        }
        self
    }

    /// Returns the targets and the subjects.
    fn places(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().chain(&self.subjects).map(String::as_str)
    }

    /// Returns a comment line for the notification, and one for the last successful delivery of each target and subject.
    fn last_sent_lines(&self) -> impl Iterator<Item = String> {
        let own = self.last_sent_time.map_or_else(|| "never".to_owned(), |time| time.to_string());
        let places = self.places().map(|place| match self.last_sent.get(place) {
            Some(LastDelivery { time, notification }) if notification.is_empty() => format!("# {place}: last sent {time}"),
            Some(LastDelivery { time, notification }) => format!("# {place}: last sent {time} by {notification}"),
            None => format!("# {place}: nothing sent yet"),
        });
        std::iter::once(format!("# last sent for this pipeline: {own}")).chain(places)
    }

    /// Whether a trigger matches such a transition.
    fn reports(&self, is_such: fn(TransitionType) -> bool) -> bool {
        let triggers = self.spec.get("triggers").and_then(Value::as_array);
        let types = triggers.into_iter().flatten().filter_map(|trigger| trigger.get("type"));
        let types = types.filter_map(|type_| serde_json::from_value::<TransitionType>(type_.clone()).ok());
        types.into_iter().any(is_such)
    }

    /// Returns the settings as YAML, with the author beside each field.
    #[must_use]
    pub fn text(&self) -> String {
        let places = self.places().collect::<Vec<_>>();
        let mut lines = vec![(format!("# {} for {}", self.notification, places.join(", ")), None)];
        lines.extend(self.last_sent_lines().map(|line| (line, None)));
        if let Some(problem) = &self.problem {
            lines.push((format!("# {}: {}", problem.reason, problem.message), None));
        }
        for (target, why) in self.unobserved.iter().chain(&self.not_ready) {
            lines.push((format!("# {target}: {}: {}", why.reason, comment(&why.message)), None));
        }
        lines.push(("spec:".to_owned(), None));
        self.lines(&self.spec, "", 1, &mut lines);
        let authored = lines.iter().filter(|(_, author)| author.is_some());
        let width = authored.map(|(line, _)| line.chars().count()).filter(|width| *width <= WIDEST).max().unwrap_or(0);
        let mut text = String::new();
        for (line, author) in lines {
            match author {
                Some(author) => text.extend([format!("{line:width$}"), "  # ".to_owned(), author]),
                None => text.push_str(&line),
            }
            text.push('\n');
        }
        text
    }

    fn lines(&self, map: &Map<String, Value>, at: &str, depth: usize, lines: &mut Vec<(String, Option<String>)>) {
        for (name, value) in map {
            let pointer = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
            let indent = "  ".repeat(depth);
            match value {
                Value::Object(inner) if !inner.is_empty() => {
                    lines.push((format!("{indent}{}:", key(name)), None));
                    self.lines(inner, &pointer, depth + 1, lines);
                }
                // A JSON value is also valid YAML.
                other => lines.push((format!("{indent}{}: {other}", key(name)), self.fields.get(&pointer).cloned())),
            }
        }
    }
}

/// Converts a text to one line. The text comes from a cluster, and must not leave the YAML comment.
pub fn comment(message: &str) -> String {
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Maximum column at which comments are aligned. The comment of a longer line follows the line directly.
const WIDEST: usize = 72;

fn key(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if plain && name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pipeline() -> Pipeline {
        serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "shop", "namespace": "team-a"},
            "spec": {
                "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "notifications": [{"name": "deploys", "endpoint": {"headers": {"X-Team": "a"}}}],
                "environments": [
                    {"name": "dev", "targets": [{"namespace": "x"}, {"namespace": "y"}]},
                    {"name": "prod", "targets": [{"namespace": "z", "notifications": [
                        {"name": "deploys", "endpoint": {"url": "https://b.example.com/in"}}, {"name": "own", "triggers": []},
                    ]}]},
                ],
            },
        }))
        .unwrap()
    }

    fn notification() -> Notification {
        serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification", "metadata": {"name": "deploys", "namespace": "team-a"},
            "spec": {
                "triggers": [{"type": "Deployed"}],
                "endpoint": {"url": "https://a.example.com/in", "headers": {"X-Api-Key": "literal"}},
                "template": {"inline": {"body": "{}"}},
            },
        }))
        .unwrap()
    }

    fn with(global: &str, name: Option<&str>, target: Option<&str>) -> Result<Vec<Explained>, PreviewError> {
        of(&pipeline(), global, Asked { notification: name, target })
    }

    fn of(pipeline: &Pipeline, global: &str, asked: Asked<'_>) -> Result<Vec<Explained>, PreviewError> {
        let global = relaybook_settings::manifests::global::parse(global, "relaybook-system").unwrap();
        let config_map = ObjectName::new("relaybook-system", "relaybook-config");
        let notifications = [notification()];
        let known = Known {
            global: &global,
            config_map: &config_map,
            notifications: &notifications,
            cluster: "c",
            allow_http: false,
            egress: None,
        };
        explain(pipeline, &known, asked)
    }

    fn all(name: Option<&str>, target: Option<&str>) -> Result<Vec<Explained>, PreviewError> {
        with("", name, target)
    }

    #[test]
    fn targets_with_the_same_layers_are_grouped() {
        let all = all(None, None).unwrap();
        let told: Vec<_> = all.iter().map(|e| (e.notification.as_str(), e.targets.join(" "))).collect();
        assert_eq!(
            told,
            [("deploys", "dev/c/x dev/c/y".into()), ("deploys", "prod/c/z".into()), ("own", "prod/c/z".into())]
        );
        let problems: Vec<_> = all.iter().map(|e| e.problem.as_ref().map(|p| p.reason.as_str())).collect();
        assert_eq!(problems, [None, Some("CredentialOriginMismatch"), Some("Incomplete")]);
        assert_eq!(all[1].fields["/endpoint/url"], "Pipeline team-a/shop, target prod/c/z");
        assert_eq!(all[1].fields["/endpoint/headers/X-Team"], "Pipeline team-a/shop");
        assert_eq!(all[1].fields["/endpoint/timeout"], "default");
    }

    #[test]
    fn fields_of_the_global_configuration_are_explained_below_other_layers() {
        let global = "
defaults: {endpoint: {timeout: 7s}, delivery: {retry: {maxAge: 12h}}}
notifications:
- name: deploys
  namespaces: [team-*]
  endpoint: {headers: {X-From: all}, timeout: 9s}
- name: audit
  triggers: [{type: Failed}]
  endpoint: {url: https://audit.example.com/in}
  template: {builtin: cloudevents}
- name: elsewhere
  namespaces: [team-b]
";
        let all = with(global, None, None).unwrap();
        let names: Vec<_> = all.iter().map(|e| (e.notification.as_str(), e.targets.len())).collect();
        assert_eq!(names, [("audit", 3), ("deploys", 2), ("deploys", 1), ("own", 1)]);
        let (audit, deploys) = (&all[0], &all[1]);
        assert_eq!(audit.problem, None);
        assert_eq!(audit.fields["/endpoint/url"], "ConfigMap relaybook-system/relaybook-config, notification audit");
        assert_eq!(audit.fields["/endpoint/timeout"], "ConfigMap relaybook-system/relaybook-config, defaults");
        assert_eq!(audit.fields["/template/parameters/type"], "default");
        assert_eq!(audit.spec["template"]["parameters"]["type"], "dev.relaybook.{{lower type}}");
        assert_eq!(deploys.fields["/endpoint/timeout"], "ConfigMap relaybook-system/relaybook-config, notification deploys");
        assert_eq!(deploys.fields["/delivery/retry/maxAge"], "ConfigMap relaybook-system/relaybook-config, defaults");
        assert_eq!(deploys.fields["/endpoint/url"], "Notification team-a/deploys");
        assert!(with(global, Some("elsewhere"), None).is_err());
    }

    #[test]
    fn environments_and_the_pipeline_are_listed_with_their_notifications() {
        let global = "
notifications:
- name: deploys
  triggers: [{type: EnvironmentReady}, {type: ClusterOffline}]
- name: audit
  triggers: [{type: EnvironmentReady}]
  endpoint: {url: https://audit.example.com/in}
  template: {builtin: cloudevents}
";
        let told = |target| -> Vec<_> {
            let all = with(global, None, target).unwrap().into_iter();
            all.map(|e| (e.notification.clone(), e.targets.len(), e.subjects.join(" "))).collect()
        };
        let line = |name: &str, targets, subjects: &str| (name.to_owned(), targets, subjects.to_owned());
        assert_eq!(
            told(None),
            [
                line("audit", 3, "environment/dev environment/prod"),
                // The triggers of the Notification override those of the global configuration. They report only on targets.
                line("deploys", 2, ""),
                line("deploys", 1, ""),
                line("own", 1, ""),
            ]
        );
        assert_eq!(told(Some("dev/c/x")), [line("audit", 1, ""), line("deploys", 1, "")]);
        let text = with(global, Some("audit"), None).unwrap()[0].text();
        assert!(text.starts_with("# audit for dev/c/x, dev/c/y, prod/c/z, environment/dev, environment/prod\n"), "{text}");
    }

    #[test]
    fn promotions_are_listed_for_environments_that_have_them() {
        let global = "
notifications:
- name: audit
  triggers: [{type: PromotionRequested}]
  endpoint: {url: https://audit.example.com/in}
  template: {builtin: cloudevents}
";
        let told = |own: Value| {
            let mut pipeline = serde_json::to_value(pipeline()).unwrap();
            json_patch::merge(&mut pipeline, &own);
            let pipeline: Pipeline = serde_json::from_value(pipeline).unwrap();
            let all = of(&pipeline, global, Asked { notification: Some("audit"), target: None }).unwrap();
            all[0].subjects.join(" ")
        };
        let strategy = json!({"strategy": {"notification": {}}});
        assert_eq!(told(json!({})), "");
        assert_eq!(told(json!({"spec": {"promotion": strategy}})), "promotion/prod", "nothing is promoted to the first");
        let mut off = json!({"spec": {"promotion": strategy, "environments": pipeline().spec.environments}});
        off["spec"]["environments"][1]["promotion"] = json!({});
        assert_eq!(told(off), "");
    }

    #[test]
    fn the_text_is_yaml_and_hides_credentials() {
        let text = all(Some("deploys"), Some("dev/c/x")).unwrap()[0].text();
        assert!(text.contains("# Notification team-a/deploys") && !text.contains("literal"), "{text}");
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read["spec"]["endpoint"]["url"], "https://a.example.com/in");
        assert_eq!(read["spec"]["endpoint"]["headers"]["X-Api-Key"], MASK);
        assert_eq!(read["spec"]["delivery"]["retain"]["maxAge"], "168h", "in the largest units: {text}");
        assert_eq!(read["spec"]["delivery"]["retry"]["max"], "10m", "{text}");
    }

    #[test]
    fn a_target_that_cannot_be_observed_is_reported() {
        let mut pipeline = pipeline();
        let target = |namespace: &str, status: &str, message: &str| {
            json!({"clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": namespace},
                "status": status, "ready": status == "Current", "reason": "Forbidden", "message": message})
        };
        pipeline.status = serde_json::from_value(json!({"environments": [
            {"name": "dev", "targets": [target("x", "NotFound", "Deployment web does not\nexist"), target("y", "Current", "")]},
            {"name": "prod", "targets": [target("z", "Unknown", "refused")]},
        ]}))
        .unwrap();
        let config_map = ObjectName::new("relaybook-system", "relaybook-config");
        let (global, notifications) = (Global::default(), [notification()]);
        let known = Known {
            global: &global,
            config_map: &config_map,
            notifications: &notifications,
            cluster: "c",
            allow_http: false,
            egress: None,
        };
        let all = explain(&pipeline, &known, Asked { notification: Some("deploys"), target: None }).unwrap();
        let told: Vec<_> = all.iter().flat_map(|e| &e.unobserved).map(|(t, why)| format!("{t} {}", why.reason)).collect();
        assert_eq!(told, ["dev/c/x TargetNotFound", "prod/c/z Forbidden"]);
        let text = all[0].text();
        assert!(text.contains("# dev/c/x: TargetNotFound: Deployment web does not exist\nspec:"), "{text}");
    }

    #[test]
    fn an_unknown_target_or_notification_is_reported_with_the_known_ones() {
        let error = all(None, Some("dev/c/q")).unwrap_err().to_string();
        assert!(error.contains("dev/c/q") && error.contains("dev/c/x, dev/c/y, prod/c/z"), "{error}");
        let error = all(Some("deplois"), None).unwrap_err().to_string();
        assert!(error.contains("deplois") && error.contains("shop"), "{error}");
    }
}
