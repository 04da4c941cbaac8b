//! The endpoint and the template of a Provider. Pure.
//!
//! In: a Provider, and the names of the keys of Secrets in the input. Out: what each Notification for it has ([`Made`]), and the Provider's
//! part of the report. `endpoint` has the URL, and `login` the credentials.

mod endpoint;
mod login;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::label::literal;
use super::receivers::{Channel, Login, Receiver};
use crate::convert::ledger::Ledger;
use crate::convert::report::List;
use crate::init::quoted;
use relaybook_api::values::names::is_subdomain;
use relaybook_api::{duration, duration_text};
use relaybook_settings::config::nearest;

/// All fields of `spec`, in all versions of the API.
pub(super) const FIELDS: [&str; 13] = [
    "spec.type",
    "spec.interval",
    "spec.channel",
    "spec.username",
    "spec.address",
    "spec.timeout",
    "spec.proxy",
    "spec.proxySecretRef.name",
    "spec.secretRef.name",
    "spec.serviceAccountName",
    "spec.certSecretRef.name",
    "spec.suspend",
    "spec.commitStatusExpr",
];
/// Limits of `endpoint.timeout`.
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(1));

const WORKLOAD: &str = "Relaybook does not sign in to clouds; use a Secret";

/// The names of the keys of Secrets, by namespace and name.
pub(super) type Secrets = BTreeMap<(String, String), BTreeSet<String>>;

/// What a Provider becomes.
#[derive(Debug)]
pub(super) enum Outcome {
    Made(Made),
    /// There is no such receiver.
    NoCounterpart,
    /// The report has an error.
    Wrong,
}

/// What each Notification for a Provider has.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) receiver: &'static Receiver,
    pub(super) endpoint: Map<String, Value>,
    pub(super) parameters: BTreeMap<String, String>,
    /// What comes before the manifests are applied.
    pub(super) steps: Vec<String>,
    /// `commitStatusExpr`, which the report does not mention yet.
    pub(super) expression: Option<String>,
    pub(super) is_suspended: bool,
}

/// A Provider that is being converted.
struct Making<'l, 'd, 's> {
    ledger: &'l mut Ledger<'d>,
    namespace: &'s str,
    name: &'s str,
    receiver: &'static Receiver,
    /// The name of the Secret with the credentials.
    secret: Option<&'d str>,
    /// Its keys, if it is in the input.
    keys: Option<&'s BTreeSet<String>>,
    /// What of the Secret is used, and whether that differs from Flux.
    uses: Vec<String>,
    differs: bool,
    endpoint: Map<String, Value>,
    parameters: BTreeMap<String, String>,
    steps: Vec<String>,
}

/// Converts a Provider.
pub(super) fn make(ledger: &mut Ledger<'_>, (namespace, name): (&str, &str), secrets: &Secrets) -> Outcome {
    let Some(flux) = ledger.text("spec.type") else {
        ledger.error("spec.type", "is missing, or not a text; write the type of the receiver");
        return Outcome::Wrong;
    };
    let receiver = match Receiver::named(flux) {
        Ok(receiver) => receiver,
        Err(Some(why)) => {
            ledger.put(List::NoCounterpart, "spec.type", format!("{flux}: {why}"));
            ledger.put_each(List::NoCounterpart, FIELDS, "the Provider has no counterpart");
            return Outcome::NoCounterpart;
        }
        Err(None) => {
            let meant = nearest(flux, Receiver::names()).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            ledger.put(List::Error, "spec.type", format!("there is no such type{meant}"));
            return Outcome::Wrong;
        }
    };
    let secret = ledger.text("spec.secretRef.name");
    if receiver.login == Login::Password && secret.is_none() && ledger.text("spec.serviceAccountName").is_some() {
        ledger.put(List::NoCounterpart, "spec.serviceAccountName", WORKLOAD);
        ledger.put_each(List::NoCounterpart, FIELDS, "the Provider has no counterpart without a Secret");
        return Outcome::NoCounterpart;
    }
    let keys = secret.and_then(|secret| secrets.get(&(namespace.to_owned(), secret.to_owned())));
    for field in ["spec.secretRef.name", "spec.certSecretRef.name"] {
        if ledger.text(field).is_some_and(|name| !is_subdomain(name)) {
            ledger.put(List::Error, field, "is not the name of a Secret");
        }
    }
    let mut making = Making {
        ledger,
        namespace,
        name,
        receiver,
        secret,
        keys,
        uses: Vec::new(),
        differs: false,
        endpoint: Map::new(),
        parameters: BTreeMap::new(),
        steps: Vec::new(),
    };
    making.address();
    making.login();
    making.channel();
    making.username();
    making.common(secrets);
    making.finish()
}

impl Making<'_, '_, '_> {
    fn error(&mut self, field: &str, text: impl Into<String>) {
        self.ledger.error(field, text);
    }

    /// Whether the Secret has a key. `None`: its keys are not known.
    fn has_key(&self, key: &str) -> Option<bool> {
        self.keys.map(|keys| keys.contains(key))
    }

    /// Mentions what the Secret is used for. `differs`: the person has to read it.
    fn uses(&mut self, differs: bool, text: impl Into<String>) {
        self.differs |= differs;
        self.uses.push(text.into());
    }

    fn set(&mut self, field: &str, value: Value) {
        self.endpoint.insert(field.to_owned(), value);
    }

    fn set_url(&mut self, url: &str) {
        self.set("url", json!(url));
    }

    /// Reads the URL from the key `address` of a Secret.
    fn set_url_from(&mut self, secret: &str) {
        self.set("urlFrom", json!({"secretKeyRef": {"name": secret, "key": "address"}}));
    }

    fn parameter(&mut self, name: &str, value: &str) {
        self.parameters.insert(name.to_owned(), literal(value));
    }

    /// Returns the name of a Secret that the person creates.
    fn own_secret(&self, what: &str) -> String {
        format!("{}-{what}", self.name)
    }

    /// Adds the command that copies a field of the Provider into a new Secret, without showing it.
    fn copy_to_secret(&mut self, field: &str, secret: &str, key: &str) {
        let (namespace, name) = (self.namespace, self.name);
        self.steps.push(format!(
            "kubectl get providers.notification.toolkit.fluxcd.io {name} -n {namespace} -o jsonpath='{{.{field}}}' | kubectl create \
             secret generic {secret} -n {namespace} --from-file={key}=/dev/stdin"
        ));
    }

    fn channel(&mut self) {
        const FIELD: &str = "spec.channel";
        match (self.receiver.channel, self.ledger.text(FIELD)) {
            (Channel::Unused, _) => self.ledger.put(List::Ignored, FIELD, "this receiver does not use it"),
            (Channel::Parameter(_), None) => {}
            (Channel::Required(_) | Channel::Topic | Channel::Credential, None) => {
                self.error(FIELD, "is missing, and the receiver requires it");
            }
            (Channel::Required("chatId"), Some(chat)) if chat.contains(':') => {
                self.parameter("chatId", chat.split(':').next().unwrap_or_default());
                self.ledger.put(List::Differs, FIELD, "the parameter chatId; the topic of the group is lost");
            }
            (Channel::Parameter(name) | Channel::Required(name), Some(channel)) => {
                self.parameter(name, channel);
                self.ledger.put(List::Converted, FIELD, format!("the parameter {name}"));
            }
            (Channel::Topic, Some(channel)) => match channel.split_once('/') {
                Some((channel, topic)) if !channel.is_empty() && !topic.is_empty() => {
                    self.parameter("channel", channel);
                    self.parameter("topic", topic);
                    self.ledger.put(List::Converted, FIELD, "the parameters channel and topic");
                }
                _ => self.error(FIELD, "write CHANNEL/TOPIC"),
            },
            (Channel::Credential, Some(_)) => {
                let secret = self.own_secret("routing-key");
                self.copy_to_secret(FIELD, &secret, "token");
                self.set("auth", json!({"token": {"secretKeyRef": {"name": secret, "key": "token"}}}));
                let text = format!("it is a credential: auth.token reads it from a new Secret {secret} (see the steps)");
                self.ledger.put(List::Differs, FIELD, text);
            }
        }
    }

    fn username(&mut self) {
        const FIELD: &str = "spec.username";
        let Some(user) = self.ledger.text(FIELD) else { return };
        if self.receiver.takes("username") {
            self.parameter("username", user);
            return self.ledger.put(List::Converted, FIELD, "the parameter username");
        }
        match self.secret.filter(|_| self.has_basic()) {
            Some(_) if self.has_key("username") == Some(true) => {
                self.ledger.put(List::Ignored, FIELD, "the key username of the Secret replaces it");
            }
            Some(secret) => {
                let (namespace, patch) = (self.namespace, json!({"stringData": {"username": user}}).to_string());
                self.steps.push(format!("kubectl patch secret {secret} -n {namespace} -p {}", quoted(&patch)));
                let text = format!("auth.basic reads it from the key username of the Secret {secret} (see the steps)");
                self.ledger.put(List::Differs, FIELD, text);
            }
            None => self.ledger.put(List::Ignored, FIELD, "this receiver does not use it"),
        }
    }

    /// What all types have.
    fn common(&mut self, secrets: &Secrets) {
        if let Some(text) = self.ledger.text("spec.timeout") {
            let given = duration(text);
            let (least, most) = TIMEOUT;
            let within = given.unwrap_or(Duration::from_secs(15)).clamp(least, most);
            self.set("timeout", json!(duration_text(within)));
            let (list, text) = match given {
                Some(given) if given == within => (List::Converted, "endpoint.timeout, which is for each attempt"),
                _ => {
                    (List::Differs, "endpoint.timeout is another one: it is at least 100ms and at most 60s, in whole units")
                }
            };
            self.ledger.put(list, "spec.timeout", text);
        }
        if let Some(secret) = self.ledger.text("spec.certSecretRef.name") {
            self.tls(secret, secrets.get(&(self.namespace.to_owned(), secret.to_owned())));
        } else if let Some(secret) = self.secret.filter(|_| self.has_own_authority()) {
            self.set("tls", json!({"caFrom": {"secretKeyRef": {"name": secret, "key": "ca.crt"}}}));
            self.uses(false, "endpoint.tls.caFrom reads its key ca.crt");
        }
        let proxy = "only the whole installation can have a proxy (value egress.proxy of the chart)";
        self.ledger.put_each(List::NoCounterpart, ["spec.proxy", "spec.proxySecretRef.name"], proxy);
        if self.has_key("proxy") == Some(true) {
            self.uses(true, format!("its key proxy has no counterpart: {proxy}"));
        }
        self.ledger.put(List::NoCounterpart, "spec.serviceAccountName", WORKLOAD);
        self.ledger.put(List::Ignored, "spec.interval", "Flux does not use it any more");
    }

    /// Whether Flux reads the certificates of a commit status from the Secret of the credentials.
    fn has_own_authority(&self) -> bool {
        self.receiver.context().is_some() && self.has_key("ca.crt") == Some(true)
    }

    fn tls(&mut self, secret: &str, keys: Option<&BTreeSet<String>>) {
        const FIELD: &str = "spec.certSecretRef.name";
        let has = |key: &str| keys.is_some_and(|keys| keys.contains(key));
        let ca = json!({"secretKeyRef": {"name": secret, "key": "ca.crt"}});
        let own = json!({"secretRef": {"name": secret}});
        let (has_ca, has_own) = (has("ca.crt") || has("caFile") || keys.is_none(), has("tls.crt") || has("certFile"));
        let parts = [("caFrom", ca, has_ca), ("clientCertificate", own, has_own)];
        let tls: Map<String, Value> =
            parts.into_iter().filter(|(.., has)| *has).map(|(name, value, _)| (name.to_owned(), value)).collect();
        let (list, text) = if tls.is_empty() {
            (List::Error, "the Secret has none of the keys ca.crt and tls.crt".to_owned())
        } else if has("caFile") || has("certFile") || has("keyFile") {
            let names = "caFile to ca.crt, certFile to tls.crt, keyFile to tls.key";
            (List::Differs, format!("endpoint.tls; rename the keys of Secret {secret}: {names}"))
        } else if keys.is_none() {
            let text = "endpoint.tls.caFrom reads its key ca.crt; if it has tls.crt and tls.key, add endpoint.tls.clientCertificate";
            (List::Differs, text.to_owned())
        } else {
            (List::Converted, "endpoint.tls".to_owned())
        };
        self.ledger.put(list, FIELD, text);
        self.set("tls", Value::Object(tls));
    }

    fn finish(self) -> Outcome {
        let Self { ledger, receiver, uses, differs, endpoint, parameters, steps, .. } = self;
        let (list, text) = match (differs, uses.is_empty()) {
            (_, true) => (List::Ignored, "nothing in it is used for this receiver".to_owned()),
            (true, false) => (List::Differs, uses.join("; ")),
            (false, false) => (List::Converted, uses.join("; ")),
        };
        ledger.put(list, "spec.secretRef.name", text);
        let is_suspended = ledger.get("spec.suspend").and_then(Value::as_bool);
        if let Some(is_suspended) = is_suspended {
            ledger.put(
                List::Converted,
                "spec.suspend",
                if is_suspended { "no triggers" } else { "the triggers are active" },
            );
        }
        let expression = ledger.text("spec.commitStatusExpr").map(str::to_owned);
        if receiver.context().is_none() {
            ledger.put(List::Ignored, "spec.commitStatusExpr", "Flux uses it for commit statuses only");
        }
        if ledger.has_errors() {
            return Outcome::Wrong;
        }
        let expression = expression.filter(|_| receiver.context().is_some());
        let is_suspended = is_suspended.unwrap_or_default();
        Outcome::Made(Made { receiver, endpoint, parameters, steps, expression, is_suspended })
    }
}
