//! The URL of a Provider. Pure.
//!
//! In: a Provider that is being converted. Out: `url` or `urlFrom` of its endpoint, and the parameters of templates that are parts of its address. A
//! URL that is a credential moves to a Secret, by a command that does not show it.

use serde_json::json;

use super::super::address::{Parts, form, is_url, repository};
use super::super::receivers::{Address, Forge};
use super::Making;
use crate::convert::report::List;
use relaybook_api::notification::Builtin;

impl Making<'_, '_, '_> {
    pub(super) fn address(&mut self) {
        let given = self.ledger.text("spec.address");
        let is_secret = self.secret.is_some() && (given.is_none() || self.has_key("address") == Some(true));
        match (self.receiver.address, given) {
            (Address::Repository(forge), given) => self.repository(forge, given),
            (Address::Bot, _) => self.bot(),
            (address, _) if is_secret => self.address_of_secret(address),
            (Address::Service { origin: Some(origin), .. }, None) => self.set_url(origin),
            (_, None) => self.error("spec.address", "is missing, and there is no secretRef; set one of them"),
            (Address::Hidden, Some(given)) => self.hidden(given),
            (_, Some(given)) if !is_url(given) => {
                self.error("spec.address", "is not a URL that begins with https:// or http://");
            }
            (Address::AlertSource, Some(given)) => self.alert_source(given),
            (address, Some(given)) => self.open(address, given),
        }
    }

    fn address_of_secret(&mut self, address: Address) {
        let secret = self.secret.unwrap_or_default();
        if self.has_key("address") == Some(false) {
            return self.error("spec.address", "is missing, and the Secret has no key address; set one of them");
        }
        self.ledger.put(List::Ignored, "spec.address", "the key address of the Secret replaces it");
        match address {
            Address::Service { origin: Some(origin), .. } => {
                self.set_url(origin);
                self.uses(true, format!("its key address is not read: requests go to {origin}"));
            }
            Address::AlertSource | Address::Service { is_static: false, .. } => {
                let text = "the address is in the Secret, and the template needs its parts; write it into spec.address of the input";
                self.error("spec.secretRef.name", text);
            }
            Address::Service { path, .. } => {
                self.set_url_from(secret);
                self.uses(
                    true,
                    format!("endpoint.urlFrom reads its key address, which must end with {path} and name no user"),
                );
            }
            _ => {
                self.set_url_from(secret);
                let caveat = self.caveat();
                if self.receiver.builtin == Builtin::Slack && self.has_key("token") == Some(true) {
                    self.token(true);
                }
                self.uses(!caveat.is_empty(), format!("endpoint.urlFrom reads its key address{caveat}"));
            }
        }
    }

    /// Returns what a URL must be that Flux changes, or sends another format to.
    fn caveat(&self) -> &'static str {
        match self.receiver.builtin {
            Builtin::Discord => ", which must not end with /slack",
            Builtin::Teams => ", which must be that of a workflow, not of an Office 365 connector",
            Builtin::Zoom => ", which must contain format=full",
            _ => "",
        }
    }

    /// A webhook, whose URL is a credential. Slack also has an API with a token.
    fn hidden(&mut self, given: &str) {
        let is_api = |parts: Parts<'_>| parts.host == "slack.com" && parts.rest.starts_with("/api/");
        if self.receiver.builtin == Builtin::Slack && Parts::of(given).is_some_and(is_api) {
            self.set_url(given);
            self.ledger.put(List::Converted, "spec.address", "endpoint.url");
            return self.token(true);
        }
        let secret = self.own_secret("address");
        self.copy_to_secret("spec.address", &secret, "address");
        self.set_url_from(&secret);
        let (why, caveat) = ("the URL is a credential", self.caveat());
        let text = format!("{why}: endpoint.urlFrom reads it from a new Secret {secret} (see the steps){caveat}");
        self.ledger.put(List::Differs, "spec.address", text);
        if self.secret.is_some() && self.keys.is_none() {
            self.uses(true, "it is not used; if it has a key address, let endpoint.urlFrom name it instead");
        }
    }

    fn open(&mut self, address: Address, given: &str) {
        let Some(parts) = Parts::of(given) else { return };
        let mut url = parts.without_user();
        let mut text = "endpoint.url".to_owned();
        if let Address::Service { path, .. } = address {
            // Flux reads only the server of PagerDuty's address.
            if self.receiver.builtin == Builtin::Pagerduty {
                url = format!("{}://{}", parts.scheme, parts.host);
            }
            let trimmed = url.trim_end_matches('/');
            url = trimmed.strip_suffix(path).unwrap_or(trimmed).to_owned();
            "endpoint.url; the template appends the path".clone_into(&mut text);
        } else if self.receiver.builtin == Builtin::Zoom && !url.contains("format=") {
            url = format!("{url}{}format=full", if url.contains('?') { '&' } else { '?' });
        }
        self.set_url(&url);
        if !parts.has_user {
            return self.ledger.put(List::Converted, "spec.address", text);
        }
        let (secret, namespace) = (self.own_secret("login"), self.namespace);
        self.steps.push(format!(
            "kubectl create secret generic {secret} -n {namespace} --from-literal=username=USER --from-literal=password=PASSWORD   \
             # those of the address"
        ));
        self.set("auth", json!({"basic": {"secretRef": {"name": secret}}}));
        let text = format!(
            "endpoint.url has no user and password: auth.basic reads them from a new Secret {secret} (see the steps)"
        );
        self.ledger.put(List::Differs, "spec.address", text);
    }

    fn alert_source(&mut self, given: &str) {
        let parts = Parts::of(given).filter(|parts| !parts.has_user);
        let source = parts.and_then(|parts| Some((parts, parts.rest.strip_prefix("/v2/alert_events/http/")?)));
        match source.filter(|(_, id)| !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric())) {
            Some((parts, id)) => {
                self.set_url(&format!("{}://{}", parts.scheme, parts.host));
                self.parameter("source", id);
                self.ledger.put(List::Converted, "spec.address", "endpoint.url, and the parameter source");
            }
            None => self.error("spec.address", "write it as https://api.incident.io/v2/alert_events/http/ID"),
        }
    }

    fn repository(&mut self, forge: Forge, given: Option<&str>) {
        let Some(given) = given else {
            return self.error("spec.address", format!("is missing; write the repository as {}", form(forge)));
        };
        let Some(found) = repository(given, forge) else {
            return self.error("spec.address", format!("write the repository as {}", form(forge)));
        };
        if self.has_key("address") == Some(true) {
            self.uses(true, "its key address, which Flux prefers, is not read: compare it with spec.address");
        }
        self.set_url(&found.url);
        let names: Vec<_> = found.parameters.iter().map(|(name, _)| *name).collect();
        self.ledger.put(List::Converted, "spec.address", format!("endpoint.url, and the parameters {}", names.join(", ")));
        for (name, value) in found.parameters {
            self.parameter(name, &value);
        }
        if self.receiver.builtin == Builtin::GithubRepositoryDispatch {
            let event = "{{target.app.kind}}/{{target.app.name}}.{{target.namespace}}";
            self.parameters.insert("eventType".to_owned(), event.to_owned());
        }
    }

    /// Telegram has the token in the URL.
    fn bot(&mut self) {
        let Some(token) = self.required("token") else { return };
        let (secret, namespace) = (self.own_secret("address"), self.namespace);
        self.steps.push(format!(
            "printf 'https://api.telegram.org/bot%s/sendMessage' \"$(kubectl get secret {token} -n {namespace} -o \
             jsonpath='{{.data.token}}' | base64 -d)\" | kubectl create secret generic {secret} -n {namespace} --from-file=address=/dev/stdin"
        ));
        self.set_url_from(&secret);
        self.ledger.put(List::Ignored, "spec.address", "Flux always sends to https://api.telegram.org");
        self.uses(
            true,
            format!("the token is a part of the URL: endpoint.urlFrom reads a new Secret {secret} (see the steps)"),
        );
    }
}
