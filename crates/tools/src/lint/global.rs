//! Finds the global configuration among the files, and checks it as the dispatcher does.
//!
//! The global configuration is a ConfigMap with the configured name, a document with only the keys of the configuration, or a file with
//! the name of the ConfigMap's key. Such a file in a folder can belong to another program. So each of its keys must be a key of the global
//! configuration or a misspelling of one. In a file that the user named, one key of the configuration is enough.

use std::path::Path;

use serde_json::Value;

use super::layers::{LayerStack, PositionedLayer};
use super::sheet::{FindingContext, Lines};
use super::{FileDocument, Options, Report, Source};
use relaybook_api::global::KEY;
use relaybook_api::values::nearest::nearest;
use relaybook_settings::config::Global;
use relaybook_settings::config::layers::{Layer, Source as Author};
use relaybook_settings::manifests::field::{below, entry};
use relaybook_settings::manifests::global::{Wrong, document, understand};
use relaybook_settings::manifests::literal::first_line;
use relaybook_settings::manifests::{ConfigMaps, Document};

/// The global configuration in a file.
#[derive(Debug)]
pub(super) struct Found<'a> {
    file_document: &'a FileDocument<'a>,
    lines: Lines,
    document: Option<Document>,
    /// The namespace in which its references resolve.
    namespace: String,
    /// `None`: the configuration is invalid.
    pub(super) global: Option<Global>,
}

impl Found<'_> {
    fn context(&self) -> FindingContext<'_> {
        let FileDocument { file, document, .. } = self.file_document;
        let (kind, name) = (document.kind(), document.name());
        FindingContext { file, kind, name, document: self.document.as_ref(), lines: self.lines }
    }

    /// Adds the position to one of its layers, for a notification with this name.
    pub(super) fn positioned(&self, name: &str, layer: Layer) -> PositionedLayer<'_> {
        let field = if layer.source == Author::Defaults {
            "defaults".to_owned()
        } else {
            let all = self.document.as_ref().and_then(|d| d.value["notifications"].as_array());
            let index = all.and_then(|all| all.iter().position(|n| n["name"] == name));
            entry("notifications", index.unwrap_or_default())
        };
        PositionedLayer { layer, context: self.context(), field }
    }

    /// Checks the defaults, and each cluster-wide notification over them, as the dispatcher does.
    pub(super) fn check(&self, options: &Options, texts: &ConfigMaps, report: &mut Report) {
        let Some(global) = &self.global else { return };
        let namespace = self.namespace.as_str();
        let stack = |name: &str, layers: Vec<Layer>, partial: bool| LayerStack {
            layers: layers.into_iter().map(|layer| self.positioned(name, layer)).collect(),
            namespace: namespace.to_owned(),
            partial,
        };
        let defaults = stack("", global.layers_below(None, None), true);
        let all = global.notifications();
        let all = all.map(|(name, cluster_wide)| stack(name, global.layers_below(Some(cluster_wide), None), false));
        for stack in std::iter::once(defaults).chain(all) {
            let findings = stack.check(options, texts, Vec::new(), &mut report.notes);
            report.add(findings);
        }
    }
}

/// Finds the global configuration, and reports what its schema rejects. If there are several, layers are checked with the first one.
pub(super) fn find<'a>(all: &'a [FileDocument<'a>], options: &Options, report: &mut Report) -> Option<Found<'a>> {
    let mut found = None;
    for file_document in all {
        let Some(one) = read(file_document, options, report) else { continue };
        report.objects += 1;
        if found.is_some() {
            let note =
                format!("{}: more than one global configuration; the first one is used for the checks", file_document.file);
            report.notes.push(note);
        }
        found.get_or_insert(one);
    }
    found
}

fn read<'a>(file_document: &'a FileDocument<'a>, options: &Options, report: &mut Report) -> Option<Found<'a>> {
    if is_bare(file_document) {
        let document = Some(file_document.document.clone());
        let namespace = options.config_map.namespace.clone();
        return Some(understood(Found { file_document, lines: Lines::OfFile, document, namespace, global: None }, report));
    }
    let Document { value, .. } = &file_document.document;
    let is_config_map = (file_document.document.api_version(), file_document.document.kind()) == ("v1", "ConfigMap");
    if !is_config_map || file_document.document.name() != options.config_map.name {
        return None;
    }
    let namespace = value["metadata"]["namespace"].as_str().unwrap_or(&options.namespace).to_owned();
    let field = below("data", KEY);
    let wrong = |message: &str, source| FindingContext::of(file_document).finding(field.clone(), message.to_owned(), source);
    let text = match &value["data"][KEY] {
        Value::String(text) => text,
        // In another namespace, a ConfigMap with this name is not the global configuration.
        Value::Null if namespace != options.config_map.namespace => return None,
        Value::Null => {
            report.findings.push(wrong("is missing; add the key, or delete the ConfigMap", Source::Controller));
            return None;
        }
        _ => {
            report.findings.push(wrong(&format!("must be a string; write the value as a block: {KEY}: |"), Source::Schema));
            return None;
        }
    };
    let key = file_document.document.line(&field);
    let lines = first_line(file_document.text, KEY, key).map_or(Lines::Folded(key), Lines::From);
    let mut found = Found { file_document, lines, document: None, namespace, global: None };
    match document(text) {
        Ok(Some(document)) => found.document = Some(document),
        Ok(None) => found.global = Some(Global::default()),
        Err(wrongs) => told(&found, wrongs, report),
    }
    Some(understood(found, report))
}

fn understood<'a>(mut found: Found<'a>, report: &mut Report) -> Found<'a> {
    match found.document.as_ref().map(|document| understand(document, &found.namespace)) {
        Some(Ok(global)) => found.global = Some(global),
        Some(Err(wrongs)) => told(&found, wrongs, report),
        None => {}
    }
    found
}

fn told(found: &Found<'_>, wrongs: Vec<Wrong>, report: &mut Report) {
    let context = found.context();
    let finding = |wrong: Wrong| context.finding_at(wrong.place.line, wrong.field, wrong.message, Source::Controller);
    report.findings.extend(wrongs.into_iter().map(finding));
}

const KEYS: [&str; 4] = ["defaults", "notifications", "forges", "links"];
/// The keys by which a file in a folder is recognised. The others have names that many programs use.
const OWN_KEYS: [&str; 2] = ["defaults", "notifications"];

/// Whether a document is the global configuration itself and not an object. In a file that the user named, one known key is enough. So an
/// unknown key beside it is reported.
fn is_bare(file_document: &FileDocument<'_>) -> bool {
    let Value::Object(fields) = &file_document.document.value else { return false };
    let is_object = fields.contains_key("apiVersion") || fields.contains_key("kind");
    let is_named = Path::new(file_document.file).file_name().is_some_and(|name| name == KEY);
    let is_key = |key: &String| KEYS.contains(&key.as_str());
    let has_own_key = OWN_KEYS.iter().any(|key| fields.contains_key(*key));
    let has_key = if file_document.is_found { has_own_key && fields.keys().all(is_key) } else { fields.keys().any(is_key) };
    let is_meant = !file_document.is_found || fields.keys().all(|key| is_key(key) || nearest(key, KEYS).is_some());
    !is_object && (has_key || is_named && is_meant)
}
