//! The body of a Notification for templates of Argo CD. Pure.
//!
//! In: the templates of one condition, the service and the recipient. Out: `spec.template` and what the endpoint has more ([`Message`]), and what
//! became of each part of the templates. A part without a counterpart is left out. If the message itself has none, the built-in template sends its
//! own text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::Notes;
use super::accepted::{fault, is_url};
use super::gotemplate::{Needs, Recipient, Scene, Spot, convert, literal, recipient};
use super::services::{By, Service, Shape};
use crate::convert::ledger::Ledger;
use crate::convert::report::List;
use relaybook_settings::manifests::field::below;
use relaybook_settings::render::{Parameters, TextTemplate, builtin};

/// What a template shows if there is no message.
const TITLE: &str = "{{target.app.name}}: {{type}}";
/// The media type of most bodies.
const JSON: &str = "application/json";
/// The beginning of the text of a test.
const TEST: &str = "{{#if test}}TEST: {{/if}}";

/// What a Notification sends.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) template: Value,
    pub(super) endpoint: Map<String, Value>,
    pub(super) needs: Needs,
}

/// The templates of a condition. Later ones replace what earlier ones have, as in Argo CD.
pub(super) struct Sources<'s, 'd> {
    /// The fields of all parts of the configuration.
    pub(super) ledgers: &'s [Ledger<'d>],
    /// The templates, as indexes.
    pub(super) templates: &'s [usize],
    pub(super) notes: &'s mut Notes,
}

impl<'d> Sources<'_, 'd> {
    /// Returns the field of the last template that has it.
    fn last(&self, field: &str) -> Option<(usize, &'d str)> {
        self.templates.iter().rev().find_map(|&at| Some((at, self.ledgers[at].text(field)?)))
    }

    fn note(&mut self, at: usize, field: &str, list: List, text: &str, line: Option<usize>) {
        self.notes.add((at, field), (list, text.to_owned()), line);
    }

    /// Mentions a field of all templates.
    fn note_all(&mut self, field: &str, list: List, text: &str) {
        let templates = self.templates;
        for &at in templates {
            if self.ledgers[at].get(field).is_some() {
                self.note(at, field, list, text, None);
            }
        }
    }

    /// Returns the last template that has a part, and mentions the part of the others.
    fn last_with(&mut self, part: &str) -> Option<usize> {
        let with: Vec<usize> = self.templates.iter().copied().filter(|&at| self.ledgers[at].get(part).is_some()).collect();
        let (&last, others) = with.split_last()?;
        for &at in others.iter().filter(|at| **at != last) {
            self.note(at, part, List::Ignored, "a later template of `send` replaces it", None);
        }
        Some(last)
    }

    /// Mentions a field of earlier templates. `made`: what that of the last one becomes.
    fn replaced(&mut self, field: &str, made: &str) {
        if !made.starts_with("{{") || !made.ends_with("}}") {
            self.last_with(field);
            return;
        }
        let last = self.last(field).map(|(at, _)| at);
        for at in self.templates.iter().filter(|at| Some(**at) != last && self.ledgers[**at].get(field).is_some()) {
            let text = "a later template of `send` replaces it; Argo CD uses it where the later one is empty";
            self.notes.add((*at, field), (List::Differs, text.to_owned()), None);
        }
    }

    /// Converts a field. `None`: no template has it, or it has no counterpart.
    fn convert(&mut self, field: &str, scene: Scene<'_>, spot: Spot, needs: &mut Needs) -> Option<String> {
        let (at, source) = self.last(field)?;
        let begin = source.trim_start();
        let skipped = source[..source.len() - begin.len()].matches('\n').count();
        match convert(begin.trim_end(), scene, spot) {
            Ok(made) => {
                needs.add(&made.needs);
                match made.difference() {
                    Some((line, text)) => self.note(at, field, List::Differs, &text, Some(skipped + line)),
                    None => self.note(at, field, List::Converted, "the template has it", None),
                }
                self.replaced(field, &made.text);
                Some(made.text)
            }
            Err(refusal) => {
                self.note(at, field, List::NoCounterpart, &refusal.why, Some(skipped + refusal.line));
                None
            }
        }
    }
}

/// Makes the message of a Notification.
pub(super) fn message(sources: &mut Sources<'_, '_>, service: &Service, name: &str, scene: Scene<'_>) -> Option<Message> {
    let made = match service.row.shape {
        Shape::Message => of_chat(sources, service, scene),
        Shape::Webhook => return of_webhook(sources, service, name, scene),
        Shape::Builtin => None,
    };
    Some(made.unwrap_or_else(|| of_builtin(sources, service, scene)))
}

/// A value in an object of JSON.
enum Part {
    Text(String),
    Json(String),
    Is(bool),
}

/// A message of a chat, in the JSON of its service.
fn of_chat(sources: &mut Sources<'_, '_>, service: &Service, scene: Scene<'_>) -> Option<Message> {
    let mut needs = Needs::default();
    let row = service.row;
    let text = sources.convert("message", scene, Spot::Quoted, &mut needs)?;
    let last = sources.last("message");
    // Argo CD takes all fields of these parts from the last template that has the part.
    let whole = &mut *sources;
    let with_part: Vec<usize> = match row.argo {
        "slack" | "mattermost" => whole.last_with(row.argo).into_iter().collect(),
        _ => whole.templates.to_vec(),
    };
    let sources = &mut Sources { ledgers: whole.ledgers, templates: &with_part, notes: &mut *whole.notes };
    let text_field = match row.argo {
        "mattermost" => "message",
        "webex" => "markdown",
        _ => "text",
    };
    let mut parts: Vec<(String, Part)> = to(row.argo, scene.recipient).into_iter().collect();
    if row.argo == "slack" {
        sender(sources, service, scene, &mut parts, &mut needs);
    }
    parts.push((text_field.to_owned(), Part::Text(format!("{TEST}{text}"))));
    if row.argo == "telegram" {
        parts.push(("parse_mode".to_owned(), Part::Text("Markdown".to_owned())));
    }
    let plain = object(&parts);
    for field in ["slack.blocks", "slack.attachments", "mattermost.attachments"] {
        if !field.starts_with(row.argo) {
            continue;
        }
        let mut more = Needs::default();
        let Some(json) = sources.convert(field, scene, Spot::Json, &mut more) else { continue };
        let (key, json) = match field {
            "mattermost.attachments" => ("props", format!("{{ \"attachments\": {json} }}")),
            "slack.blocks" => ("blocks", json),
            _ => ("attachments", json),
        };
        parts.push((key.to_owned(), Part::Json(json)));
        if let Some(error) = fault(JSON, &object(&parts)) {
            parts.pop();
            if let Some((at, _)) = sources.last(field) {
                sources.note(at, field, List::NoCounterpart, &format!("as a template of Relaybook: {error}"), None);
            }
        } else {
            needs.add(&more);
        }
    }
    rest_of_slack(sources, row.argo);
    sources.note_all(
        row.argo,
        List::NoCounterpart,
        "only the message, and attachments and blocks of chats, have a counterpart",
    );
    let mut body = object(&parts);
    if fault(JSON, &body).is_some() {
        body = plain;
    }
    if let Some(error) = fault(JSON, &body) {
        let (at, _) = last?;
        sources.note(at, "message", List::NoCounterpart, &format!("as a template of Relaybook: {error}"), None);
        return None;
    }
    let mut endpoint = Map::new();
    if let Some(success) = &builtin(row.builtin).metadata.success {
        endpoint.insert("success".to_owned(), json!(success.trim()));
    }
    Some(Message { template: json!({"inline": {"body": body}}), endpoint, needs })
}

/// Returns the field with the recipient.
fn to(argo: &str, of: &Recipient) -> Option<(String, Part)> {
    let shown = recipient(of, Spot::Quoted);
    let call = shown.trim_start_matches("{{").trim_end_matches("}}");
    let (field, value) = match (argo, of) {
        ("googlechat", _) => return None,
        ("mattermost", _) => ("channel_id".to_owned(), shown),
        // The number of a chat begins with a dash, and the name of a channel with an at sign.
        ("telegram", Recipient::Constant(text)) if text.starts_with(['-', '@']) => ("chat_id".to_owned(), shown),
        ("telegram", Recipient::Constant(_)) => ("chat_id".to_owned(), format!("@{shown}")),
        ("telegram", Recipient::Annotation(_)) => {
            let is_whole = format!("(or (startsWith ({call}) \"-\") (startsWith ({call}) \"@\"))");
            ("chat_id".to_owned(), format!("{{{{#unless {is_whole}}}}}@{{{{/unless}}}}{shown}"))
        }
        // A person or a room.
        ("webex", Recipient::Constant(text)) if text.contains('@') => ("toPersonEmail".to_owned(), shown),
        ("webex", Recipient::Constant(_)) => ("roomId".to_owned(), shown),
        ("webex", Recipient::Annotation(_)) => {
            let field = format!("{{{{#if (contains ({call}) \"@\")}}}}toPersonEmail{{{{else}}}}roomId{{{{/if}}}}");
            (field, shown)
        }
        _ => ("channel".to_owned(), shown),
    };
    Some((field, Part::Text(value)))
}

/// Adds who sends a message of Slack.
fn sender(
    sources: &mut Sources<'_, '_>,
    service: &Service,
    scene: Scene<'_>,
    parts: &mut Vec<(String, Part)>,
    needs: &mut Needs,
) {
    let own = |text: &Option<String>| text.as_deref().map(|text| literal(text, Spot::Quoted));
    let user = sources.convert("slack.username", scene, Spot::Quoted, needs).filter(|user| !user.is_empty());
    if let Some(user) = user.or_else(|| own(&service.username)) {
        parts.push(("username".to_owned(), Part::Text(user)));
    }
    let icon = sources.convert("slack.icon", scene, Spot::Quoted, needs).filter(|icon| !icon.is_empty());
    if let Some(icon) = icon.or_else(|| own(&service.icon)) {
        parts.push(((if icon.starts_with(':') { "icon_emoji" } else { "icon_url" }).to_owned(), Part::Text(icon)));
    }
    if service.hides_links {
        parts.push(("unfurl_links".to_owned(), Part::Is(false)));
        parts.push(("unfurl_media".to_owned(), Part::Is(false)));
    }
}

/// Mentions how Slack groups messages.
fn rest_of_slack(sources: &mut Sources<'_, '_>, argo: &str) {
    if argo != "slack" {
        return;
    }
    let is_grouped = sources.last("slack.groupingKey").is_some_and(|(_, key)| !key.is_empty());
    let (list, text) = if is_grouped {
        (
            List::NoCounterpart,
            "each change is a message; the parameter mode of the template slack groups them (docs/threads.md)",
        )
    } else {
        (List::Converted, "each change is a message")
    };
    for field in ["slack.groupingKey", "slack.deliveryPolicy", "slack.notifyBroadcast"] {
        sources.note_all(field, list, text);
    }
}

/// Returns an object of JSON.
fn object(parts: &[(String, Part)]) -> String {
    let mut text = "{\n".to_owned();
    for (at, (name, part)) in parts.iter().enumerate() {
        let end = if at + 1 == parts.len() { "" } else { "," };
        let _ = match part {
            Part::Text(value) => writeln!(text, "  \"{name}\": \"{value}\"{end}"),
            Part::Json(value) => writeln!(text, "  \"{name}\": {value}{end}"),
            Part::Is(is) => writeln!(text, "  \"{name}\": {is}{end}"),
        };
    }
    text + "}\n"
}

/// The built-in template, with the first line of the message as its title.
fn of_builtin(sources: &mut Sources<'_, '_>, service: &Service, scene: Scene<'_>) -> Message {
    let row = service.row;
    let mut needs = Needs::default();
    let mut parameters = BTreeMap::new();
    if let By::Parameter(name) = row.by {
        parameters.insert(name, recipient(scene.recipient, Spot::Plain));
    }
    let own = match row.argo {
        "teams" => "teams.title",
        "teams-workflows" => "teams-workflows.title",
        "opsgenie" => "opsgenie.message",
        "pagerdutyv2" => "pagerdutyv2.summary",
        _ => "",
    };
    let field = if sources.last(own).is_some() { own } else { "message" };
    let title = title(sources, field, scene, &mut needs);
    if builtin(row.builtin).metadata.parameters.iter().any(|declared| declared.name == "title") {
        parameters.insert("title", title.unwrap_or_else(|| TITLE.to_owned()));
    }
    if field != "message" {
        sources.note_all("message", List::Differs, "the template shows revision, state and message itself");
    }
    sources.note_all(row.argo, List::NoCounterpart, "the template shows revision, state and message itself");
    let template = json!({"builtin": row.builtin.as_str(), "parameters": parameters});
    Message { template, endpoint: Map::new(), needs }
}

/// Returns the title: the first line of a text.
fn title(sources: &mut Sources<'_, '_>, field: &str, scene: Scene<'_>, needs: &mut Needs) -> Option<String> {
    let (at, source) = sources.last(field)?;
    let mut lines = source.trim().lines().map(str::trim_end);
    let first = lines.next()?;
    let is_all = lines.next().is_none();
    match convert(first.trim(), scene, Spot::Plain) {
        Ok(made) if TextTemplate::compile(&made.text, &Parameters::default()).is_ok() => {
            needs.add(&made.needs);
            let what = if is_all { "it" } else { "its first line" };
            let (line, more) =
                made.difference().map_or((None, String::new()), |(line, text)| (Some(line), format!("; {text}")));
            let text = format!("{what} is the title; the template shows revision, state and message itself{more}");
            sources.note(at, field, List::Differs, &text, line);
            Some(made.text)
        }
        Ok(_) => {
            sources.note(at, field, List::NoCounterpart, "it is no template of Relaybook", None);
            None
        }
        Err(refusal) => {
            sources.note(at, field, List::NoCounterpart, &refusal.why, Some(refusal.line));
            None
        }
    }
}

/// What the part `webhook` of the templates says. `None`: it has no counterpart.
fn of_webhook(sources: &mut Sources<'_, '_>, service: &Service, name: &str, scene: Scene<'_>) -> Option<Message> {
    let part = below("webhook", name);
    let field = |of: &str| below(&part, of);
    let with_part = sources.last_with(&part);
    let templates: Vec<usize> = with_part.map_or_else(|| sources.templates.to_vec(), |at| vec![at]);
    let sources = &mut Sources { ledgers: sources.ledgers, templates: &templates, notes: &mut *sources.notes };
    let method = sources.last(&field("method")).map_or("GET", |(_, method)| method).to_ascii_uppercase();
    if !["POST", "PUT", "PATCH"].contains(&method.as_str()) {
        let text = format!("{method}: Relaybook sends POST, PUT and PATCH");
        sources.note_all(if with_part.is_some() { part.as_str() } else { "message" }, List::NoCounterpart, &text);
        return None;
    }
    sources.note_all(&field("method"), List::Converted, "endpoint.method");
    let mut needs = Needs::default();
    let mut endpoint = Map::new();
    endpoint.insert("method".to_owned(), json!(method));
    if sources.last(&field("path")).is_some_and(|(_, path)| !path.is_empty()) {
        let path = sources.convert(&field("path"), scene, Spot::Plain, &mut needs)?;
        let base = service.endpoint.get("url").and_then(Value::as_str);
        let url = base.map(|base| format!("{}/{}", base.trim_end_matches('/'), path.trim_start_matches('/')));
        let Some(url) = url.filter(|url| is_url(url)) else {
            let text =
                "it is no path in a template of Relaybook, or the URL is in a Secret, which must then have the whole path";
            sources.note_all(&field("path"), List::NoCounterpart, text);
            return None;
        };
        endpoint.insert("url".to_owned(), json!(url));
    }
    let source = sources.last(&field("body")).map(|(_, body)| body.trim_start());
    let is_json = source.is_none_or(|body| body.starts_with(['{', '[']) && !body.starts_with("{{"));
    let usual = if is_json { JSON } else { "text/plain" };
    let content_type = service.content_type.clone().unwrap_or_else(|| usual.to_owned());
    let spot = if content_type.contains("json") { Spot::Json } else { Spot::Plain };
    let body = if source.is_some() {
        sources.convert(&field("body"), scene, spot, &mut needs)?
    } else {
        sources.note_all(&field("method"), List::Differs, "it has no body, so the body is an empty object");
        "{}".to_owned()
    };
    if let Some(error) = fault(&content_type, &body) {
        let text = format!("as a template of Relaybook: {error}");
        sources.note_all(&field("body"), List::NoCounterpart, &text);
        return None;
    }
    let inline = json!({"contentType": content_type, "body": body});
    Some(Message { template: json!({"inline": inline}), endpoint, needs })
}
