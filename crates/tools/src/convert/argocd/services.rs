//! The services of a configuration, and the templates and endpoints that send the same. Pure.
//!
//! In: one `service.TYPE.NAME`. Out: what each Notification for it has ([`Service`]), and the service's part of the report. A value such as `$key`
//! becomes a reference to the Secret of Argo CD. Any other credential moves to a new Secret, by a command that shows no value.

mod http;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::convert::ledger::Ledger;
use crate::convert::report::List;
use relaybook_api::notification::Builtin;

/// The Secret of Argo CD Notifications.
pub(super) const SECRET: &str = "argocd-notifications-secret";

/// A type of a service.
#[derive(Debug)]
pub(super) struct Row {
    /// The type in Argo CD.
    pub(super) argo: &'static str,
    /// The template, also if the texts of Argo CD have no counterpart.
    pub(super) builtin: Builtin,
    pub(super) shape: Shape,
    pub(super) by: By,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The message, in a JSON object of the service.
    Message,
    /// The built-in template, with the message as its title.
    Builtin,
    /// What the part `webhook` of the template says.
    Webhook,
}

/// What the recipient of a subscription is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A value in the request: a parameter of the built-in template.
    Parameter(&'static str),
    /// The name of a credential, in this field of the service.
    Name(&'static str),
    /// Nothing.
    Nothing,
}

const fn row(argo: &'static str, builtin: Builtin, shape: Shape, by: By) -> Row {
    Row { argo, builtin, shape, by }
}

static ROWS: [Row; 12] = [
    row("slack", Builtin::Slack, Shape::Message, By::Parameter("channel")),
    row("mattermost", Builtin::MattermostBot, Shape::Message, By::Parameter("channelId")),
    row("telegram", Builtin::Telegram, Shape::Message, By::Parameter("chatId")),
    row("webex", Builtin::Webex, Shape::Message, By::Parameter("roomId")),
    row("googlechat", Builtin::GoogleChat, Shape::Message, By::Name("webhooks")),
    row("teams", Builtin::Teams, Shape::Builtin, By::Name("recipientUrls")),
    row("teams-workflows", Builtin::Teams, Shape::Builtin, By::Name("recipientUrls")),
    row("opsgenie", Builtin::Opsgenie, Shape::Builtin, By::Name("apiKeys")),
    row("pagerdutyv2", Builtin::Pagerduty, Shape::Builtin, By::Name("serviceKeys")),
    row("alertmanager", Builtin::Alertmanager, Shape::Builtin, By::Nothing),
    row("grafana", Builtin::GrafanaAnnotation, Shape::Builtin, By::Nothing),
    row("webhook", Builtin::Generic, Shape::Webhook, By::Nothing),
];

/// The types without a template, and what to do.
const OTHERS: [(&str, &str); 12] = [
    ("email", "Relaybook sends HTTP requests only; use the HTTP API of a mail service with a template of your own"),
    (
        "github",
        "use the templates github-commit-status, github-deployment or github-pull-request-comment, with auth.githubApp",
    ),
    ("gitlab", "use the templates gitlab-commit-status or gitlab-merge-request-comment"),
    ("rocketchat", "it signs in with a password; use the template rocketchat with an incoming webhook"),
    ("pagerduty", "it creates incidents by the REST API; use the template pagerduty with a key of Events v2"),
    ("newrelic", "it records deployments; use the template new-relic-event"),
    ("pushover", "the recipient is a credential; use the template pushover"),
    ("datadog", "use the template datadog-event"),
    ("matrix", "use the template matrix"),
    ("awssqs", "Relaybook has no signatures of AWS"),
    ("gcppubsub", "Relaybook has no tokens of Google for Pub/Sub"),
    ("nats", "Relaybook sends HTTP requests only"),
];

/// Parts of the URLs of webhooks. Who knows such a URL can post.
const WEBHOOKS: [&str; 6] = [
    "hooks.slack.com/",
    "discord.com/api/webhooks/",
    "discordapp.com/api/webhooks/",
    ".webhook.office.com/",
    ".logic.azure.com",
    "chat.googleapis.com/",
];

/// Returns the names of all types.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.argo).chain(OTHERS.iter().map(|(name, _)| *name)).chain(["kafka", "console"])
}

/// Returns the type with this name. The error says why there is no template.
pub(super) fn named(argo: &str) -> Result<&'static Row, &'static str> {
    let why = || OTHERS.iter().find(|(name, _)| *name == argo).map_or("Relaybook has no such service", |(_, why)| *why);
    ROWS.iter().find(|row| row.argo == argo).ok_or_else(why)
}

/// What each Notification for a service has.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) row: &'static Row,
    pub(super) endpoint: Map<String, Value>,
    /// What the endpoint has more, by the name of the recipient.
    pub(super) named: BTreeMap<String, Map<String, Value>>,
    pub(super) username: Option<String>,
    pub(super) icon: Option<String>,
    pub(super) hides_links: bool,
    /// The media type that the headers name.
    pub(super) content_type: Option<String>,
    pub(super) steps: Vec<String>,
}

struct Reading<'l, 'd, 's> {
    ledger: &'l mut Ledger<'d>,
    namespace: &'s str,
    name: &'s str,
    /// The keys of the Secret of Argo CD, if it is in the input.
    keys: Option<&'s BTreeSet<String>>,
    made: Service,
}

/// Reads a service. `None`: the report says why there is none.
pub(super) fn read(
    ledger: &mut Ledger<'_>,
    (type_, name): (&str, &str),
    namespace: &str,
    keys: Option<&BTreeSet<String>>,
) -> Option<Service> {
    let row = match named(type_) {
        Ok(row) => row,
        Err(why) => {
            super::put_rest(ledger, List::NoCounterpart, &format!("{type_}: {why}"));
            return None;
        }
    };
    let made = Service {
        row,
        endpoint: Map::new(),
        named: BTreeMap::new(),
        username: None,
        icon: None,
        hides_links: false,
        content_type: None,
        steps: Vec::new(),
    };
    let mut reading = Reading { ledger, namespace, name, keys, made };
    reading.endpoint();
    reading.common();
    let is_complete = match row.by {
        By::Name(_) => !reading.made.named.is_empty(),
        By::Parameter(_) | By::Nothing => {
            reading.made.endpoint.contains_key("url") || reading.made.endpoint.contains_key("urlFrom")
        }
    };
    if !is_complete && !reading.ledger.has_errors() {
        reading.ledger.error("", "the service is not complete: its URL or its credentials are missing");
    }
    (!reading.ledger.has_errors()).then_some(reading.made)
}

/// Returns the key that a value refers to, if that is the whole value.
fn key(value: &str) -> Option<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    value.trim().strip_prefix('$').filter(|key| !key.is_empty() && key.chars().all(is_part))
}

impl Reading<'_, '_, '_> {
    fn endpoint(&mut self) {
        match self.made.row.argo {
            "slack" => {
                let api = self.text("apiURL", "https://slack.com/api/");
                self.url("apiURL", &format!("{}/chat.postMessage", api.trim_end_matches('/')));
                self.token("token");
                self.made.username = self.option("username");
                self.made.icon = self.option("icon");
                self.made.hides_links = self.flag("disableUnfurl");
                self.ledger.put_each(List::Ignored, ["signingSecret", "channels"], "no notification uses it");
            }
            "mattermost" => {
                let api = self.text("apiURL", "");
                self.url("apiURL", &format!("{}/api/v4/posts", api.trim_end_matches('/')));
                self.token("token");
            }
            "webex" => {
                let api = self.text("apiURL", "https://webexapis.com");
                self.url("apiURL", &format!("{}/v1/messages", api.trim_end_matches('/')));
                self.token("token");
            }
            "telegram" => self.bot(),
            "googlechat" | "teams" | "teams-workflows" => self.urls(),
            "opsgenie" => {
                let api = self.text("apiUrl", "api.opsgenie.com");
                let api = if api.contains("://") { api } else { format!("https://{api}") };
                self.url("apiUrl", &api);
                self.tokens();
            }
            "pagerdutyv2" => {
                self.made.endpoint.insert("url".to_owned(), json!("https://events.pagerduty.com"));
                self.tokens();
            }
            "alertmanager" => self.alertmanager(),
            "grafana" => {
                let api = self.text("apiUrl", "");
                self.url("apiUrl", api.trim_end_matches('/'));
                self.token("apiKey");
            }
            _ => self.webhook(),
        }
    }

    /// What all types have.
    fn common(&mut self) {
        if self.flag("insecureSkipVerify") {
            self.made.endpoint.insert("tls".to_owned(), json!({"insecureSkipVerify": true}));
        }
        let pool = ["maxIdleConns", "maxIdleConnsPerHost", "maxConnsPerHost", "idleConnTimeout"];
        self.ledger.put_each(List::Ignored, pool, "Relaybook manages its connections");
    }

    fn option(&mut self, field: &str) -> Option<String> {
        let text = self.ledger.text(field)?.to_owned();
        self.ledger.put(List::Converted, field, "the template has it");
        Some(text)
    }

    fn flag(&mut self, field: &str) -> bool {
        let is = self.ledger.get(field).and_then(Value::as_bool);
        if is.is_some() {
            self.ledger.put(List::Converted, field, "endpoint and template have it");
        }
        is.unwrap_or_default()
    }

    fn text(&self, field: &str, default: &str) -> String {
        self.ledger.text(field).unwrap_or(default).to_owned()
    }

    /// Sets the URL, unless it is a credential.
    fn url(&mut self, field: &str, url: &str) {
        if is_credential(url) {
            let reference = self.moved(field, "url");
            self.made.endpoint.insert("urlFrom".to_owned(), reference);
        } else if url.starts_with("https://") || url.starts_with("http://") {
            self.made.endpoint.insert("url".to_owned(), json!(url));
            self.ledger.put(List::Converted, field, "endpoint.url");
        } else {
            self.ledger.error(field, "is not a URL that begins with https:// or http://");
        }
    }

    /// Returns the reference to a credential: to the Secret of Argo CD, or to a new one.
    fn credential(&mut self, field: &str, what: &str) -> Option<Value> {
        let text = self.ledger.text(field)?;
        let Some(key) = key(text) else { return Some(self.moved(field, what)) };
        let is_missing = self.keys.is_some_and(|keys| !keys.contains(key));
        let (list, text) = if is_missing {
            (List::Differs, format!("the key {key} of the Secret {SECRET}, which it does not have in the input"))
        } else {
            (List::Converted, format!("the key {key} of the Secret {SECRET}"))
        };
        self.ledger.put(list, field, text);
        Some(json!({"secretKeyRef": {"name": SECRET, "key": key}}))
    }

    /// Returns the reference to a new Secret, which a person creates with the value of a field.
    fn moved(&mut self, field: &str, what: &str) -> Value {
        // Names in the input can have characters that a shell interprets.
        let (secret, namespace, what) = (self.own_secret(what), self.namespace, super::slug(what));
        self.made.steps.push(format!(
            "kubectl create secret generic {secret} -n {namespace} --from-literal={what}=VALUE   # the field {field} of the service, with the \
             keys of {SECRET} filled in"
        ));
        self.ledger.put(
            List::Differs,
            field,
            format!("it is a credential: read from a new Secret {secret} (see the steps)"),
        );
        json!({"secretKeyRef": {"name": secret, "key": what}})
    }

    /// Returns the name of a Secret that a person creates.
    fn own_secret(&self, what: &str) -> String {
        format!("argocd-{}-{}", super::slug(self.name), super::slug(what))
    }

    fn token(&mut self, field: &str) {
        match self.credential(field, "token") {
            Some(reference) => {
                self.made.endpoint.insert("auth".to_owned(), json!({"token": reference}));
            }
            None => self.ledger.error(field, "is missing"),
        }
    }

    /// Returns the names of the credentials of recipients.
    fn recipients(&self) -> Vec<(String, String)> {
        let By::Name(object) = self.made.row.by else { return Vec::new() };
        self.ledger.named(object).into_iter().map(|(field, name, _)| (field, name.to_owned())).collect()
    }

    fn urls(&mut self) {
        for (field, name) in self.recipients() {
            let Some(reference) = self.credential(&field, &format!("{name}-url")) else { continue };
            self.made.named.insert(name, one("urlFrom", reference));
        }
    }

    fn tokens(&mut self) {
        for (field, name) in self.recipients() {
            let Some(reference) = self.credential(&field, &format!("{name}-token")) else { continue };
            self.made.named.insert(name, one("auth", json!({"token": reference})));
        }
    }

    /// Telegram has the token in the URL.
    fn bot(&mut self) {
        let (secret, namespace) = (self.own_secret("url"), self.namespace);
        let Some(text) = self.ledger.text("token") else { return self.ledger.error("token", "is missing") };
        let url = match key(text) {
            Some(key) => format!(
                "printf 'https://api.telegram.org/bot%s/sendMessage' \"$(kubectl get secret {SECRET} -n {namespace} -o \
                 jsonpath='{{.data.{key}}}' | base64 -d)\""
            ),
            None => "printf 'https://api.telegram.org/bot%s/sendMessage' TOKEN".to_owned(),
        };
        self.made
            .steps
            .push(format!("{url} | kubectl create secret generic {secret} -n {namespace} --from-file=url=/dev/stdin"));
        self.made.endpoint.insert("urlFrom".to_owned(), json!({"secretKeyRef": {"name": secret, "key": "url"}}));
        let text = format!("the token is a part of the URL: endpoint.urlFrom reads a new Secret {secret} (see the steps)");
        self.ledger.put(List::Differs, "token", text);
    }
}

/// Returns an object with one field.
fn one(name: &str, value: Value) -> Map<String, Value> {
    [(name.to_owned(), value)].into_iter().collect()
}

/// Whether a URL is a credential: it has a key of the Secret, a user or a query, or it is a webhook of a known service.
fn is_credential(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let has_user = rest.split(['/', '?', '#']).next().is_some_and(|host| host.contains('@'));
    has_user || url.contains(['$', '?']) || WEBHOOKS.iter().any(|webhook| url.contains(webhook))
}

#[cfg(test)]
mod tests {
    use relaybook_settings::render::builtin;

    use super::*;

    #[test]
    fn each_type_has_a_template_that_takes_its_recipient() {
        let all: BTreeSet<_> = names().collect();
        assert_eq!(all.len(), ROWS.len() + OTHERS.len() + 2);
        for row in &ROWS {
            let metadata = &builtin(row.builtin).metadata;
            let takes = |name: &str| metadata.parameters.iter().any(|declared| declared.name == name);
            if let By::Parameter(name) = row.by {
                assert!(takes(name), "{row:?}");
            }
            assert!(row.shape == Shape::Webhook || row.argo == "grafana" || takes("title"), "{row:?}");
        }
        assert!(named("email").is_err() && named("nothing").is_err());
    }

    #[test]
    fn only_a_whole_value_is_a_key() {
        for (value, expected) in [("$a-b_c", Some("a-b_c")), (" $a ", Some("a")), ("x$a", None), ("$a/b", None), ("$", None)]
        {
            assert_eq!(key(value), expected, "{value}");
        }
        for (url, is) in [
            ("https://a:b@example.com/x", true),
            ("https://example.com/@x", false),
            ("https://example.com/x?token=y", true),
            ("https://example.com/$key", true),
            ("https://hooks.slack.com/services/x", true),
        ] {
            assert_eq!(is_credential(url), is, "{url}");
        }
    }
}
