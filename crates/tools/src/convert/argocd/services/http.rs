//! The services whose URL, login and headers a person chooses: `alertmanager` and `webhook`. Pure.

use serde_json::{Map, Value, json};

use super::{Reading, SECRET, key};
use crate::convert::report::List;
use crate::init::quoted;
use relaybook_settings::manifests::field::below;

/// Headers that have no credentials.
const PLAIN: [&str; 5] = ["accept", "accept-language", "user-agent", "x-github-api-version", "x-requested-with"];

impl Reading<'_, '_, '_> {
    pub(super) fn alertmanager(&mut self) {
        let targets: Vec<(String, String)> =
            self.ledger.texts("targets").into_iter().map(|(field, text)| (field, text.to_owned())).collect();
        let scheme = self.text("scheme", "http");
        self.ledger.put(List::Converted, "scheme", "endpoint.url");
        for (at, (field, target)) in targets.iter().enumerate() {
            if at == 0 {
                self.url(field, &format!("{scheme}://{target}"));
            } else {
                let text = "a Notification has one URL; copy the Notification for each other Alertmanager";
                self.ledger.put(List::NoCounterpart, field, text);
            }
        }
        let is_usual = self.ledger.text("apiPath").is_none_or(|path| path == "/api/v2/alerts");
        let list = if is_usual { List::Converted } else { List::Differs };
        self.ledger.put(list, "apiPath", "the template appends /api/v2/alerts");
        if self.ledger.get("basicAuth").is_some() {
            self.basic();
        } else if self.ledger.get("bearerToken").is_some() {
            self.token("bearerToken");
        }
        self.ledger.put(List::Ignored, "timeout", "an attempt has 15 s (endpoint.timeout)");
    }

    /// A user and a password, which must be the keys of one Secret.
    fn basic(&mut self) {
        let (secret, namespace) = (self.own_secret("login"), self.namespace);
        let value = |field: &str, word: &str| match self.ledger.text(field).map(key) {
            Some(Some(key)) => {
                format!("\"$(kubectl get secret {SECRET} -n {namespace} -o jsonpath='{{.data.{key}}}' | base64 -d)\"")
            }
            _ => word.to_owned(),
        };
        let (user, password) = (value("basicAuth.username", "USER"), value("basicAuth.password", "PASSWORD"));
        self.made.steps.push(format!(
            "kubectl create secret generic {secret} -n {namespace} --from-literal=username={user} --from-literal=password={password}"
        ));
        self.made.endpoint.insert("auth".to_owned(), json!({"basic": {"secretRef": {"name": secret}}}));
        let text = format!("auth.basic reads user and password from a new Secret {secret} (see the steps)");
        self.ledger.put(List::Differs, "basicAuth", text);
    }

    pub(super) fn webhook(&mut self) {
        match self.ledger.text("url").map(str::to_owned) {
            Some(url) if key(&url).is_some() => {
                if let Some(reference) = self.credential("url", "url") {
                    self.made.endpoint.insert("urlFrom".to_owned(), reference);
                }
            }
            Some(url) => self.url("url", &url),
            None => self.ledger.error("url", "is missing"),
        }
        if self.ledger.get("basicAuth").is_some() {
            self.basic();
        }
        let retries = ["retryMax", "retryWaitMin", "retryWaitMax"];
        self.ledger.put_each(List::Differs, retries, "Relaybook retries for 24 h by default (spec.delivery.retry)");
        self.headers();
    }

    fn headers(&mut self) {
        let number = self.ledger.get("headers").and_then(Value::as_array).map_or(0, Vec::len);
        let (mut plain, mut hidden) = (Map::new(), Vec::new());
        for at in 0..number {
            let entry = format!("headers[{at}]");
            let (name_field, value_field) = (below(&entry, "name"), below(&entry, "value"));
            let (Some(name), Some(value)) = (self.ledger.text(&name_field), self.ledger.text(&value_field)) else {
                continue;
            };
            let (name, value) = (name.to_owned(), value.to_owned());
            let low = name.to_ascii_lowercase();
            if low == "content-type" {
                self.made.content_type = Some(value);
                self.ledger.put(List::Converted, &entry, "template.inline.contentType");
            } else if low == "authorization" && value.starts_with("Bearer $") && key(&value["Bearer ".len()..]).is_some() {
                let key = key(&value["Bearer ".len()..]).unwrap_or_default();
                let reference = json!({"secretKeyRef": {"name": SECRET, "key": key}});
                self.made.endpoint.insert("auth".to_owned(), json!({"token": reference}));
                self.ledger.put(List::Converted, &entry, format!("auth.token reads the key {key} of the Secret {SECRET}"));
            } else if !PLAIN.contains(&low.as_str()) || value.contains('$') {
                hidden.push(name);
                let text = "it can be a credential: endpoint.headersFrom reads it from a new Secret (see the steps)";
                self.ledger.put(List::Differs, &entry, text);
            } else {
                plain.insert(name, json!(value.replace("{{", "\\{{")));
                self.ledger.put(List::Converted, &entry, "endpoint.headers");
            }
        }
        if !plain.is_empty() {
            self.made.endpoint.insert("headers".to_owned(), Value::Object(plain));
        }
        if !hidden.is_empty() {
            let (secret, namespace) = (self.own_secret("headers"), self.namespace);
            let literals =
                hidden.iter().map(|name| format!(" --from-literal={}=VALUE", quoted(name))).collect::<Vec<_>>().concat();
            self.made.steps.push(format!("kubectl create secret generic {secret} -n {namespace}{literals}"));
            self.made.endpoint.insert("headersFrom".to_owned(), json!({"secretRef": {"name": secret}}));
        }
    }
}
