//! The objects of the input. Pure.
//!
//! In: files. Out: Alerts and Providers, and the names of the keys of Secrets ([`Documents`]). Everything else is an item of the report: objects
//! of other kinds, and what must be rendered by Helm, Kustomize or Flux first.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use serde_json::Value;

use super::provider::Secrets;
use crate::convert::Input;
use crate::convert::documents::{item, unreadable};
use crate::convert::ledger::leaves;
use crate::convert::report::{Item, List};
use relaybook_api::values::names::{is_label, is_subdomain};
use relaybook_settings::manifests::field::is_within;
use relaybook_settings::manifests::{Broken, Document};

/// The group of the API.
pub(super) const GROUP: &str = "notification.toolkit.fluxcd.io";
/// The versions of Alerts and Providers whose fields are known.
const VERSIONS: [&str; 3] = ["v1beta1", "v1beta2", "v1beta3"];
/// Maximum length of the name of a Notification.
const LONGEST_NAME: usize = 63;
/// Fields in which Flux may still replace variables, because their texts are copied as they are.
const FREE: [&str; 6] =
    ["spec.summary", "spec.eventMetadata", "spec.channel", "spec.username", "spec.inclusionList", "spec.exclusionList"];
/// Fields of a `kustomization.yaml` that change objects.
const TRANSFORMS: [&str; 11] = [
    "patches",
    "patchesStrategicMerge",
    "patchesJson6902",
    "namePrefix",
    "nameSuffix",
    "namespace",
    "components",
    "replacements",
    "transformers",
    "vars",
    "helmCharts",
];
const HELM: &str = "render it first: `helm template … | relaybook convert flux -`";
const KUSTOMIZE: &str = "render it first: `kustomize build … | relaybook convert flux -`";
const FLUX: &str = "render it first: `flux build kustomization NAME --path DIR | relaybook convert flux -`";

/// An Alert or a Provider.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    /// The index of the file.
    pub(super) order: usize,
    pub(super) file: &'a str,
    pub(super) document: &'a Document,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The objects of all files.
#[derive(Debug, Default)]
pub(super) struct Documents<'a> {
    pub(super) alerts: Vec<Object<'a>>,
    pub(super) providers: Vec<Object<'a>>,
    pub(super) secrets: Secrets,
    /// Whether texts have variables that Flux replaces when it applies them.
    pub(super) has_variables: bool,
    /// Items about other objects, each with the index of its file.
    pub(super) items: Vec<(usize, Item)>,
}

/// Sorts the documents of files.
pub(super) fn sort<'a>(
    inputs: &'a [Input],
    documents: &'a [Vec<Result<Document, Broken>>],
    namespace: &str,
) -> Documents<'a> {
    let mut all = Documents::default();
    let mut kustomizations = Vec::new();
    let mut names = BTreeSet::new();
    for (order, (input, documents)) in inputs.iter().zip(documents).enumerate() {
        for document in documents {
            match document {
                Ok(document) if is_kustomization(input, document) => kustomizations.push((order, input, document)),
                Ok(document) => all.add((order, input, document), namespace, &mut names),
                Err(broken) => all.items.push((order, unreadable(input, broken, &[GROUP], "flux"))),
            }
        }
    }
    let files: BTreeSet<&str> = all.alerts.iter().chain(&all.providers).map(|object| object.file).collect();
    for (order, input, document) in kustomizations {
        let item = match transform(document).filter(|_| files.iter().any(|file| changes(&input.name, document, file))) {
            Some(field) => {
                item(input, document, List::Error, field, format!("Kustomize changes these objects; {KUSTOMIZE}"))
            }
            None => whole(input, document, "a list of files"),
        };
        all.items.push((order, item));
    }
    all
}

impl<'a> Documents<'a> {
    fn add(
        &mut self,
        (order, input, document): (usize, &'a Input, &'a Document),
        default: &str,
        names: &mut BTreeSet<(String, String, String)>,
    ) {
        let (group, version) = document.api_version().split_once('/').unwrap_or(("", document.api_version()));
        let is_ours = group == GROUP && ["Alert", "Provider"].contains(&document.kind());
        if !is_ours {
            let text = match (group, document.kind()) {
                ("", "Secret") => {
                    self.keep_keys(document, default);
                    "referred to as it is; only the names of its keys are read"
                }
                (GROUP, "Receiver") => "it starts reconciliations, and sends no notifications; keep it",
                _ => "no Alert and no Provider",
            };
            return self.items.push((order, whole(input, document, text)));
        }
        let mut error =
            |field: &str, text: String| self.items.push((order, item(input, document, List::Error, field, text)));
        if !VERSIONS.contains(&version) {
            let text =
                format!("unknown version; known are {}. With the same fields, write {GROUP}/v1beta3", VERSIONS.join(", "));
            return error("apiVersion", text);
        }
        if let Some((field, remedy)) = template(document) {
            return error(&field, format!("it is a template; {remedy}"));
        }
        let namespace = document.value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or(default);
        let name = document.name();
        if !is_subdomain(name) || (document.kind() == "Alert" && name.len() > LONGEST_NAME) {
            let text = format!(
                "must be the name of an object with at most {LONGEST_NAME} characters, because the Notification has it"
            );
            return error("metadata.name", text);
        }
        if !is_label(namespace) {
            return error("metadata.namespace", "is not the name of a namespace".to_owned());
        }
        if !names.insert((document.kind().to_owned(), namespace.to_owned(), name.to_owned())) {
            return error("metadata.name", format!("{namespace}/{name} is twice in the input; remove one"));
        }
        self.has_variables |= !with_text(&document.value, "${").is_empty();
        let object = Object { order, file: &input.name, document, namespace: namespace.to_owned(), name: name.to_owned() };
        if document.kind() == "Alert" { self.alerts.push(object) } else { self.providers.push(object) }
    }

    /// Keeps the names of the keys of a Secret, and nothing else of it.
    fn keep_keys(&mut self, document: &Document, default: &str) {
        let namespace = document.value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or(default);
        let maps = ["data", "stringData"].into_iter().filter_map(|field| document.value.get(field)?.as_object());
        let keys: BTreeSet<String> = maps.flat_map(serde_json::Map::keys).cloned().collect();
        // Another program can fill a Secret without keys.
        if !keys.is_empty() {
            self.secrets.entry((namespace.to_owned(), document.name().to_owned())).or_default().extend(keys);
        }
    }
}

/// Returns the item for an object that is not converted.
fn whole(input: &Input, document: &Document, text: &str) -> Item {
    item(input, document, List::Ignored, "", text.to_owned())
}

/// Returns the fields whose texts contain a word.
fn with_text(value: &Value, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    leaves(value, String::new(), &mut |field: String, value: &Value| {
        if value.as_str().is_some_and(|text| text.contains(word)) {
            found.push(field);
        }
    });
    found
}

/// Returns the first field that is a template, with the remedy.
fn template(document: &Document) -> Option<(String, &'static str)> {
    let of_helm = with_text(&document.value, "{{").into_iter().map(|field| (field, HELM));
    let of_flux = with_text(&document.value, "${").into_iter().map(|field| (field, FLUX));
    let is_free = |field: &str| FREE.iter().any(|free| is_within(field, free));
    of_helm.chain(of_flux.filter(|(field, _)| !is_free(field))).next()
}

/// Whether a document is a `kustomization.yaml`, which is no Kustomization of Flux. Its type can be left out, but not its name in a folder.
fn is_kustomization(input: &Input, document: &Document) -> bool {
    let group = document.api_version().split('/').next().unwrap_or_default();
    let is_named = !input.is_found || Path::new(&input.name).file_stem().is_some_and(|stem| stem == "kustomization");
    let has_no_type = is_named && document.api_version().is_empty() && document.kind().is_empty();
    let has_fields = |fields: &[&str]| fields.iter().any(|field| document.value.get(field).is_some());
    group == "kustomize.config.k8s.io" || (has_no_type && (has_fields(&["resources"]) || has_fields(&TRANSFORMS)))
}

/// Returns the first field that changes objects.
fn transform(document: &Document) -> Option<&'static str> {
    TRANSFORMS.into_iter().find(|field| document.value.get(field).is_some_and(|value| !value.is_null()))
}

/// Whether a `kustomization.yaml` includes a file: one of its folder, or one that it names.
fn changes(kustomization: &str, document: &Document, file: &str) -> bool {
    let folder = Path::new(kustomization).parent().unwrap_or_else(|| Path::new(""));
    let named = document.value.get("resources").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let file = steps(Path::new(file));
    let is_below = |path: &Path| file.starts_with(&steps(path));
    is_below(folder) || named.map(|name| folder.join(name)).any(|path| is_below(&path))
}

/// Returns the parts of a path, without `.` and `..`.
fn steps(path: &Path) -> Vec<&str> {
    let mut steps = Vec::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                steps.pop();
            }
            Component::Normal(step) => steps.extend(step.to_str()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use relaybook_settings::manifests::read;

    use super::*;

    #[test]
    fn a_kustomization_changes_the_files_of_its_folder_and_those_that_it_names() {
        let document = read("resources: [../base, ../other/alert.yaml]\n").remove(0).unwrap();
        for (file, is) in [
            ("clusters/prod/alert.yaml", true),
            ("clusters/prod/deep/alert.yaml", true),
            ("./clusters/prod/alert.yaml", true),
            ("clusters/base/x/alert.yaml", true),
            ("clusters/other/alert.yaml", true),
            ("clusters/other/provider.yaml", false),
            ("clusters/prod2/alert.yaml", false),
            ("alert.yaml", false),
        ] {
            assert_eq!(changes("clusters/prod/kustomization.yaml", &document, file), is, "{file}");
        }
        assert!(changes("<stdin>", &document, "<stdin>"));
    }
}
