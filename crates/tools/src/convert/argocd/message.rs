//! The body of a Notification for templates of Argo CD. Pure.
//!
//! In: the templates of one condition, the service and the recipient. Out: `spec.template` and what the endpoint has more ([`Message`]), and what
//! became of each part of the templates. A part without a counterpart is left out. If the message itself has none, the built-in template sends its
//! own text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::Notes;
use super::gotemplate::{Needs, Recipient, Scene, Spot, convert, literal, recipient};
use super::services::{By, Service, Shape};
use crate::convert::ledger::Ledger;
use crate::convert::report::List;
use relaybook_api::TransitionType;
use relaybook_settings::manifests::field::below;
use relaybook_settings::render::{Body, Data, Parameters, TextTemplate, UrlTemplate, Values, builtin};

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

    /// Converts a field. `None`: no template has it, or it has no counterpart.
    fn convert(&mut self, field: &str, scene: Scene<'_>, spot: Spot, needs: &mut Needs) -> Option<String> {
        let (at, source) = self.last(field)?;
        let begin = source.trim_start();
        let skipped = source[..source.len() - begin.len()].matches('\n').count();
        match convert(begin.trim_end(), scene, spot) {
            Ok(made) => {
                needs.add(&made.needs);
                match made.differs.first() {
                    Some((line, text)) => self.note(at, field, List::Differs, text, Some(skipped + line)),
                    None => self.note(at, field, List::Converted, "the template has it", None),
                }
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
    let to = recipient(scene.recipient, Spot::Quoted);
    let (to_field, text_field) = match row.argo {
        "mattermost" => ("channel_id", "message"),
        "telegram" => ("chat_id", "text"),
        "webex" => ("roomId", "markdown"),
        "googlechat" => ("", "text"),
        _ => ("channel", "text"),
    };
    let mut parts = Vec::new();
    if !to_field.is_empty() {
        parts.push((to_field, Part::Text(if row.argo == "telegram" { chat(scene.recipient, &to) } else { to })));
    }
    if row.argo == "slack" {
        sender(sources, service, scene, &mut parts);
    }
    parts.push((text_field, Part::Text(format!("{TEST}{text}"))));
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
        parts.push((key, Part::Json(json)));
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
        let (at, _) = sources.last("message")?;
        sources.note(at, "message", List::NoCounterpart, &format!("as a template of Relaybook: {error}"), None);
        return None;
    }
    let mut endpoint = Map::new();
    if let Some(success) = &builtin(row.builtin).metadata.success {
        endpoint.insert("success".to_owned(), json!(success.trim()));
    }
    Some(Message { template: json!({"inline": {"body": body}}), endpoint, needs })
}

/// Returns the identity of a chat in Telegram, which begins with a dash or an at sign.
fn chat(of: &Recipient, shown: &str) -> String {
    match of {
        Recipient::Constant(text) if text.starts_with(['-', '@']) => shown.to_owned(),
        Recipient::Constant(_) => format!("@{shown}"),
        Recipient::Annotation(_) => {
            let call = shown.trim_start_matches("{{").trim_end_matches("}}");
            format!("{{{{#unless (or (startsWith ({call}) \"-\") (startsWith ({call}) \"@\"))}}}}@{{{{/unless}}}}{shown}")
        }
    }
}

/// Adds who sends a message of Slack.
fn sender(sources: &mut Sources<'_, '_>, service: &Service, scene: Scene<'_>, parts: &mut Vec<(&'static str, Part)>) {
    let own = |text: &Option<String>| text.as_deref().map(|text| literal(text, Spot::Quoted));
    let mut needs = Needs::default();
    let user = sources.convert("slack.username", scene, Spot::Quoted, &mut needs).filter(|user| !user.is_empty());
    if let Some(user) = user.or_else(|| own(&service.username)) {
        parts.push(("username", Part::Text(user)));
    }
    let icon = sources.convert("slack.icon", scene, Spot::Quoted, &mut needs).filter(|icon| !icon.is_empty());
    if let Some(icon) = icon.or_else(|| own(&service.icon)) {
        parts.push((if icon.starts_with(':') { "icon_emoji" } else { "icon_url" }, Part::Text(icon)));
    }
    if service.hides_links {
        parts.push(("unfurl_links", Part::Is(false)));
        parts.push(("unfurl_media", Part::Is(false)));
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

/// Returns why a body is no template of Relaybook: it does not compile, or the body of a sample is not valid.
fn fault(content_type: &str, body: &str) -> Option<String> {
    let body = match Body::compile(content_type, body, &Parameters::default()) {
        Ok(body) => body,
        Err(error) => return Some(error.to_string()),
    };
    samples().find_map(|values| body.render(&values).err()).map(|error| error.to_string())
}

/// Whether a text is the template of a URL.
fn is_url(text: &str) -> bool {
    let valid = |url: UrlTemplate| samples().all(|values| url.render(&values).is_ok());
    UrlTemplate::compile(text, &Parameters::default()).is_ok_and(valid)
}

/// Returns samples of transitions that have a revision.
fn samples() -> impl Iterator<Item = Values> {
    use TransitionType::{Deployed, Drifted, Failed, Progressing, Recovered};
    let all = [Progressing, Deployed, Failed, Recovered, Drifted].into_iter();
    all.filter_map(|type_| Values::new(&Data::sample(type_), &Parameters::default()).ok())
}

/// Returns an object of JSON.
fn object(parts: &[(&'static str, Part)]) -> String {
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
            let (list, text, line) = match (is_all, made.differs.first()) {
                (_, Some((line, text))) => (List::Differs, text.as_str(), Some(*line)),
                (false, None) => (List::Differs, "its first line is the title; the template shows the rest itself", None),
                (true, None) => (List::Converted, "the title", None),
            };
            sources.note(at, field, list, text, line);
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
    let has_part = sources.templates.iter().any(|at| sources.ledgers[*at].get(&part).is_some());
    let method = sources.last(&field("method")).map_or("GET", |(_, method)| method).to_ascii_uppercase();
    if !["POST", "PUT", "PATCH"].contains(&method.as_str()) {
        let text = format!("{method}: Relaybook sends POST, PUT and PATCH");
        sources.note_all(if has_part { part.as_str() } else { "message" }, List::NoCounterpart, &text);
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
    let body = match source {
        Some(_) => sources.convert(&field("body"), scene, spot, &mut needs)?,
        None => "{}".to_owned(),
    };
    if let Some(error) = fault(&content_type, &body) {
        let text = format!("as a template of Relaybook: {error}");
        sources.note_all(&field("body"), List::NoCounterpart, &text);
        return None;
    }
    let inline = json!({"contentType": content_type, "body": body});
    Some(Message { template: json!({"inline": inline}), endpoint, needs })
}
