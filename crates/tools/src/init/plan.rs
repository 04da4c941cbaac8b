//! Which objects the answers need. Pure.
//!
//! In: [`Answers`], and what a running controller follows already. Out: a [`Plan`] with the manifests and the Secrets that they refer to, or an
//! [`InitError`]. [`check`] lints the manifests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::answers::{Answers, App, LABEL, On, Source, Spot};
use super::files::{Manifest, yaml};
use super::notification::{Made, refuse_incomplete};
use super::{InitError, SecretName};
use crate::lint::{File, LintError, Options, Report, lint};
use relaybook_api::pipeline::{Environment, Target};
use relaybook_api::pipeline_set::MAX_PIPELINES;
use relaybook_api::values::names::is_subdomain;
use relaybook_api::values::refs::AppRef;
use relaybook_api::{Pipeline, PipelineSpec};
use relaybook_pipelines::sets::Followed;
use relaybook_runtime::published;
use relaybook_settings::config::nearest;
use relaybook_settings::render::{BuiltinTemplate, CredentialsKind, builtin};
use relaybook_text::escaped;

/// Maximum length of the name of a Pipeline or a Notification, which becomes the value of a label.
const LONGEST_NAME: usize = 63;
/// Number of followed objects above which deployments are many messages.
const MANY: u64 = 500;
/// The label of the team on the pipelines of a set: a copy of the label of the object, if it has one.
const TEAM: (&str, &str) = ("team", "{{default labels.team \"\"}}");

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The namespace of all objects.
    pub namespace: String,
    /// The files.
    pub manifests: Vec<Manifest>,
    /// The Secrets that the person creates.
    pub secrets: Vec<SecretNeed>,
    /// The names of the Notifications.
    pub notifications: Vec<String>,
    /// What the person should know.
    pub notes: Vec<String>,
}

/// A Secret that the manifests refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretNeed {
    /// Its name.
    pub name: String,
    /// Its keys, each with a placeholder for the value.
    pub keys: Vec<(String, String)>,
    /// What the values are, one line for each receiver.
    pub about: Vec<String>,
}

/// The controller that already makes a Pipeline for each object of some kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Already {
    /// Its namespace, in which the pipelines are.
    pub namespace: String,
    /// The kinds, among those that the person wants to follow.
    pub kinds: Vec<Followed>,
}

impl Already {
    /// Returns the kinds that controllers follow, if there are any. `all`: what controllers publish, each with its namespace. `namespace`: where
    /// the person wants the objects. A controller that does not watch it does not count. One Notification cannot apply to pipelines of two
    /// namespaces, so two controllers are an error.
    pub fn find(
        all: &[(String, published::Pipeline)],
        namespace: Option<&str>,
        wanted: &[Followed],
    ) -> Result<Option<Self>, InitError> {
        let found = all.iter().filter_map(|(own, settings)| {
            let watched = &settings.watch_namespaces;
            let is_followed = |namespace: &str| watched.is_empty() || watched.iter().any(|watched| watched == namespace);
            let follows = |kind: &Followed| settings.follow.iter().any(|name| name == kind.name());
            let kinds: Vec<_> = wanted.iter().copied().filter(follows).collect();
            let is_near = namespace.is_none_or(is_followed);
            (is_near && !kinds.is_empty()).then(|| Self { namespace: own.clone(), kinds })
        });
        let mut found: Vec<Self> = found.collect();
        if found.len() > 1 {
            let place = |one: &Self| format!("{} ({})", escaped(&one.namespace), names(&one.kinds));
            return Err(InitError::Controllers(found.iter().map(place).collect::<Vec<_>>().join(" and ")));
        }
        Ok(found.pop())
    }
}

fn names(kinds: &[Followed]) -> String {
    kinds.iter().copied().map(Followed::name).collect::<Vec<_>>().join(", ")
}

/// Plans the objects.
pub fn plan(answers: &Answers, already: Option<&Already>) -> Result<Plan, InitError> {
    refuse_flags(answers)?;
    let namespace = namespace(answers, already)?;
    let (mut manifests, mut notes) = sources(answers, &namespace, already)?;
    refuse_incomplete(distinct(&answers.receivers).map(builtin), answers)?;
    let (mut secrets, mut notifications) = (Vec::new(), Vec::new());
    // The Notifications of two applications have different names.
    let first = answers.pipeline().or(answers.name.as_deref());
    for receiver in distinct(&answers.receivers) {
        let own = receiver.as_str();
        let name = first.map_or_else(|| own.to_owned(), |first| format!("{first}-{own}"));
        refuse_name("Notification", &name)?;
        let made = Made::new(builtin(receiver), answers, (&namespace, name))?;
        notes.extend(commit_note(&made, answers)?);
        notes.extend(made.note);
        add_secret(&mut secrets, made.secret);
        notifications.push(made.name);
        manifests.push(made.manifest);
    }
    Ok(Plan { namespace, manifests, secrets, notifications, notes })
}

/// Lints the manifests of a plan.
pub fn check(plan: &Plan, options: &Options) -> Result<Report, LintError> {
    let files: Vec<File> = plan.manifests.iter().map(|one| File::named(&one.file, one.text.clone())).collect();
    lint(&files, options)
}

/// Returns a warning if the number of objects of a kind causes too many messages or pipelines.
#[must_use]
pub fn many(kind: Followed, objects: u64, on: On) -> Option<String> {
    let name = kind.name();
    if objects > MAX_PIPELINES as u64 {
        let remedy = "write several sets that select by namespace or label";
        return Some(format!(
            "a PipelineSet makes at most {MAX_PIPELINES} pipelines, and there are {objects} {name}; {remedy}"
        ));
    }
    let is_much = objects > MANY && on != On::Failures;
    is_much.then(|| format!("deployments of {objects} {name} are many messages; use --on failures to report only failures"))
}

/// Refuses flags that fit none of the receivers, or not all of them.
fn refuse_flags(answers: &Answers) -> Result<(), InitError> {
    let templates: Vec<&BuiltinTemplate> = distinct(&answers.receivers).map(builtin).collect();
    let one = |flag: &'static str| if templates.len() > 1 { Err(InitError::Several(flag)) } else { Ok(()) };
    if answers.url.is_some() {
        one("--url")?;
        if let Some(template) = templates.iter().find(|of| of.metadata.credentials.kind == CredentialsKind::Url) {
            return Err(InitError::SecretUrl(template.name.as_str()));
        }
    }
    if let Some(SecretName { key, .. }) = &answers.secret {
        one("--secret")?;
        for template in &templates {
            match template.metadata.credentials.kind {
                CredentialsKind::None => return Err(InitError::NoSecret(template.name.as_str())),
                CredentialsKind::Basic if key.is_some() => return Err(InitError::BasicKey(template.name.as_str())),
                CredentialsKind::Basic | CredentialsKind::Token | CredentialsKind::Url => {}
            }
        }
    }
    let declared: BTreeSet<&str> =
        templates.iter().flat_map(|of| &of.metadata.parameters).map(|parameter| parameter.name.as_str()).collect();
    let Some(unknown) = answers.settings.keys().find(|name| !declared.contains(name.as_str())) else { return Ok(()) };
    let remedy = match nearest(unknown, declared.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None if declared.is_empty() => "leave it out".to_owned(),
        None => format!("known parameters: {}", declared.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Err(InitError::Parameter { name: escaped(unknown), remedy })
}

/// Returns the namespace of the objects. The Notification must be beside the pipelines that exist already.
fn namespace(answers: &Answers, already: Option<&Already>) -> Result<String, InitError> {
    match (&answers.namespace, already) {
        (Some(chosen), Some(Already { namespace, kinds })) if chosen != namespace => {
            Err(InitError::Elsewhere { namespace: escaped(namespace), kinds: names(kinds) })
        }
        (_, Some(Already { namespace, .. })) => Ok(namespace.clone()),
        (chosen, None) => Ok(chosen.as_ref().unwrap_or(&answers.default_namespace).clone()),
    }
}

/// Returns the Pipeline, or the sets, and what to know about them.
fn sources(
    answers: &Answers,
    namespace: &str,
    already: Option<&Already>,
) -> Result<(Vec<Manifest>, Vec<String>), InitError> {
    match &answers.source {
        Source::App { app, spots } => {
            let name = answers.pipeline().unwrap_or(&app.name);
            refuse_name("Pipeline", name)?;
            Ok((vec![pipeline(app, spots, name, namespace)], Vec::new()))
        }
        Source::Follow(kinds) => {
            let is_followed = |kind: &Followed| already.is_some_and(|already| already.kinds.contains(kind));
            let (theirs, ours): (Vec<Followed>, Vec<Followed>) = distinct(kinds).partition(is_followed);
            let mut sets = Vec::new();
            for kind in &ours {
                let name = match &answers.name {
                    Some(name) if ours.len() == 1 => name.clone(),
                    Some(name) => format!("{name}-{}", kind.name()),
                    None => kind.name().to_owned(),
                };
                refuse_name("PipelineSet", &name)?;
                sets.push(set(*kind, &name, namespace));
            }
            let note = |kind: &Followed| {
                format!("the controller makes a Pipeline for each object of {} already, so no set is necessary", kind.name())
            };
            Ok((sets, theirs.iter().map(note).collect()))
        }
    }
}

fn refuse_name(kind: &'static str, name: &str) -> Result<(), InitError> {
    if name.len() <= LONGEST_NAME && is_subdomain(name) {
        return Ok(());
    }
    Err(InitError::Name { kind, name: escaped(name) })
}

fn pipeline(app: &App, spots: &[Spot], name: &str, namespace: &str) -> Manifest {
    let mut environments: Vec<Environment> = Vec::new();
    for spot in spots {
        let target = Target { namespace: spot.namespace.clone(), cluster_ref: spot.cluster.clone(), ..Target::default() };
        match environments.iter_mut().find(|environment| environment.name == spot.environment) {
            Some(environment) => environment.targets.push(target),
            None => environments.push(Environment {
                name: spot.environment.clone(),
                targets: vec![target],
                ..Environment::default()
            }),
        }
    }
    let (places, targets) = (counted(environments.len(), "environment"), counted(spots.len(), "target"));
    let about = format!("Pipeline {namespace}/{name}: {places}, {targets}");
    let App { api_version, kind, name: of } = app.clone();
    let app_ref = AppRef { api_version, kind, name: of, revision_path: None };
    let mut pipeline = Pipeline::new(name, PipelineSpec { app_ref, environments, ..PipelineSpec::default() });
    pipeline.metadata.namespace = Some(namespace.to_owned());
    pipeline.metadata.labels = Some(BTreeMap::from([(LABEL.to_owned(), name.to_owned())]));
    Manifest { file: format!("pipeline-{name}.yaml"), about, text: yaml(&without_status(json!(pipeline))) }
}

/// Returns a set as `--follow` makes it, but one that the controller does not regard as its own.
fn set(kind: Followed, name: &str, namespace: &str) -> Manifest {
    let mut set = kind.set(namespace, false);
    set.metadata.name = Some(name.to_owned());
    // The controller deletes sets with its label.
    set.metadata.labels = None;
    let (label, value) = TEAM;
    set.spec.template.metadata.labels.insert(label.to_owned(), value.to_owned());
    let about = format!("PipelineSet {namespace}/{name}: a Pipeline for each {}", kind_of(kind));
    Manifest { file: format!("pipelineset-{name}.yaml"), about, text: yaml(&without_status(json!(set))) }
}

/// Returns the kind of the objects of an item of `--follow`.
fn kind_of(followed: Followed) -> String {
    let generators = followed.set("", false).spec.generators;
    generators.into_iter().find_map(|generator| generator.objects).map(|objects| objects.kind).unwrap_or_default()
}

fn without_status(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

/// Refuses a receiver of commits for objects whose revision never is one. Returns a note if it need not be one.
fn commit_note(made: &Made, answers: &Answers) -> Result<Option<String>, InitError> {
    if !made.needs_commit {
        return Ok(None);
    }
    let kinds: Vec<String> = match &answers.source {
        Source::App { app, .. } => vec![app.kind.clone()],
        Source::Follow(kinds) => kinds.iter().copied().map(kind_of).collect(),
    };
    let has_version = |kind: &&String| ["HelmRelease", "HelmOp"].contains(&kind.as_str());
    if let Some(kind) = kinds.iter().find(has_version) {
        return Err(InitError::ChartVersion { receiver: made.receiver, kind: kind.clone() });
    }
    // The lint notes the same about an application.
    let has_image = |kind: &&String| kind.as_str() == "Deployment" && matches!(answers.source, Source::Follow(_));
    Ok(kinds.iter().find(has_image).map(|kind| {
        let of = &made.name;
        format!("{of} needs a commit, but the revision of a {kind} is the tag of its image, which may not be a commit")
    }))
}

/// Adds a Secret, or its keys to the Secret of the same name.
fn add_secret(secrets: &mut Vec<SecretNeed>, need: Option<SecretNeed>) {
    let Some(need) = need else { return };
    match secrets.iter_mut().find(|known| known.name == need.name) {
        Some(known) => {
            let fresh: Vec<_> = need.keys.into_iter().filter(|key| !known.keys.contains(key)).collect();
            known.keys.extend(fresh);
            known.about.extend(need.about);
        }
        None => secrets.push(need),
    }
}

/// Returns each item once, in the given order.
fn distinct<T: Copy + PartialEq>(all: &[T]) -> impl Iterator<Item = T> {
    all.iter().enumerate().filter(move |(at, item)| !all[..*at].contains(item)).map(|(_, item)| *item)
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
