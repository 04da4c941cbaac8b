//! Finds the global configuration among the files, and checks it as the dispatcher does.
//!
//! The global configuration is a ConfigMap with the configured name, a document with only its keys, or a file with the name of the
//! ConfigMap's key. Such a file in a folder can belong to another program. So each of its keys must be a key of the global configuration or
//! a misspelling of one.

use std::path::Path;

use serde_json::Value;

use super::layers::{Laid, Stack};
use super::sheet::{Lines, Sheet};
use super::{Options, Report, Source, Written};
use crate::api::global::KEY;
use crate::api::values::nearest::nearest;
use crate::config::Global;
use crate::config::layers::{Layer, Source as Author};
use crate::manifests::field::{below, entry};
use crate::manifests::global::{Wrong, document, understand};
use crate::manifests::literal::first_line;
use crate::manifests::{ConfigMaps, Document};

/// The global configuration in a file.
#[derive(Debug)]
pub(super) struct Found<'a> {
    written: &'a Written<'a>,
    lines: Lines,
    document: Option<Document>,
    /// The namespace in which its references resolve.
    namespace: String,
    /// `None`: the configuration is invalid.
    pub(super) global: Option<Global>,
}

impl Found<'_> {
    fn sheet(&self) -> Sheet<'_> {
        let Written { file, document, .. } = self.written;
        let (kind, name) = (document.kind(), document.name());
        Sheet { file, kind, name, document: self.document.as_ref(), lines: self.lines }
    }

    /// Adds the position to one of its layers, for a notification with this name.
    pub(super) fn laid(&self, name: &str, layer: Layer) -> Laid<'_> {
        let field = if layer.source == Author::Defaults {
            "defaults".to_owned()
        } else {
            let all = self.document.as_ref().and_then(|d| d.value["notifications"].as_array());
            let index = all.and_then(|all| all.iter().position(|n| n["name"] == name));
            entry("notifications", index.unwrap_or_default())
        };
        Laid { layer, sheet: self.sheet(), field }
    }

    /// Checks the defaults, and each cluster-wide notification over them, as the dispatcher does.
    pub(super) fn check(&self, options: &Options, texts: &ConfigMaps, report: &mut Report) {
        let Some(global) = &self.global else { return };
        let namespace = self.namespace.as_str();
        let stack = |name: &str, layers: Vec<Layer>, partial: bool| Stack {
            layers: layers.into_iter().map(|layer| self.laid(name, layer)).collect(),
            namespace: namespace.to_owned(),
            partial,
        };
        let defaults = stack("", global.beneath(None, None), true);
        let all = global.notifications();
        let all = all.map(|(name, everywhere)| stack(name, global.beneath(Some(everywhere), None), false));
        for stack in std::iter::once(defaults).chain(all) {
            let findings = stack.check(options, texts, Vec::new(), &mut report.notes);
            report.add(findings);
        }
    }
}

/// Finds the global configuration, and reports what its schema rejects. If there are several, the other files are checked with the first
/// one.
pub(super) fn find<'a>(written: &'a [Written<'a>], options: &Options, report: &mut Report) -> Option<Found<'a>> {
    let mut found = None;
    for written in written {
        let Some(one) = read(written, options, report) else { continue };
        report.objects += 1;
        if found.is_some() {
            let note = format!("{}: a second global configuration; layers were checked with the first one", written.file);
            report.notes.push(note);
        }
        found.get_or_insert(one);
    }
    found
}

fn read<'a>(written: &'a Written<'a>, options: &Options, report: &mut Report) -> Option<Found<'a>> {
    if is_bare(written) {
        let document = Some(written.document.clone());
        let namespace = options.config_map.namespace.clone();
        return Some(understood(Found { written, lines: Lines::OfFile, document, namespace, global: None }, report));
    }
    let Document { value, .. } = &written.document;
    let is_config_map = (written.document.api_version(), written.document.kind()) == ("v1", "ConfigMap");
    if !is_config_map || written.document.name() != options.config_map.name {
        return None;
    }
    let namespace = value["metadata"]["namespace"].as_str().unwrap_or(&options.namespace).to_owned();
    let field = below("data", KEY);
    let wrong = |message: &str, source| Sheet::of(written).finding(field.clone(), message.to_owned(), source);
    let text = match &value["data"][KEY] {
        Value::String(text) => text,
        // In another namespace, a ConfigMap with this name is not the global configuration.
        Value::Null if namespace != options.config_map.namespace => return None,
        Value::Null => {
            report.findings.push(wrong("is missing: add it, or remove the ConfigMap", Source::Controller));
            return None;
        }
        _ => {
            report.findings.push(wrong(&format!("must be a text: write {KEY}: | before it"), Source::Schema));
            return None;
        }
    };
    let key = written.document.line(&field);
    let lines = first_line(written.text, KEY, key).map_or(Lines::Folded(key), Lines::From);
    let mut found = Found { written, lines, document: None, namespace, global: None };
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
    let sheet = found.sheet();
    let finding = |wrong: Wrong| sheet.finding_at(wrong.place.line, wrong.field, wrong.message, Source::Controller);
    report.findings.extend(wrongs.into_iter().map(finding));
}

const KEYS: [&str; 2] = ["defaults", "notifications"];

/// Whether a document is the global configuration itself and not an object.
fn is_bare(written: &Written<'_>) -> bool {
    let Value::Object(fields) = &written.document.value else { return false };
    let is_object = fields.contains_key("apiVersion") || fields.contains_key("kind");
    let is_named = Path::new(written.file).file_name().is_some_and(|name| name == KEY);
    let is_key = |key: &String| KEYS.contains(&key.as_str());
    let is_told = !fields.is_empty() && fields.keys().all(is_key);
    let is_meant = !written.is_found || fields.keys().all(|key| is_key(key) || nearest(key, KEYS).is_some());
    !is_object && (is_told || is_named && is_meant)
}
