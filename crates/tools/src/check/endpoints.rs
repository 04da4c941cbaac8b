//! Checks the endpoints of Notifications: whether the URL in a Secret is one, and whether the egress policy refuses an address.
//!
//! In: Notifications, and what the controllers publish. Out: a warning for each endpoint to which nothing can be sent, and what was not
//! checked. Secrets are read with the permissions of the person. No finding contains a value of a Secret.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};
use tokio::time::timeout;
use url::Url;

use super::{Finding, PARALLEL};
use crate::diagnosis::remedy_of;
use crate::preview::Egress;
use relaybook_api::conditions::{ConditionStatus, READY, get};
use relaybook_api::delivery::Reason;
use relaybook_api::notification::credentials::{Needed, SecretKey};
use relaybook_api::values::refs::INBOUND;
use relaybook_api::{Notification, ObjectName};
use relaybook_egress::{NotSent, Policy, Secrets, not_sent};
use relaybook_runtime::published::{Installation as Published, LookupError};

/// Time limit of a read.
const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum number of Secrets that are read.
const MOST: usize = 100;
/// Maximum number of warnings.
const SHOWN: usize = 20;

/// Where the URL of an endpoint is.
#[derive(Debug)]
enum Place {
    /// It is literal. Templates are only in path and query.
    Literal(String),
    /// It is the value of a key of a Secret.
    Secret(SecretKey),
}

/// The endpoint of a Notification.
#[derive(Debug)]
struct Endpoint {
    notification: ObjectName,
    url: Place,
}

/// What was read of each Secret, or why it could not be read.
type Read = BTreeMap<ObjectName, Result<Option<Secret>, String>>;

/// Returns a warning for each endpoint to which nothing can be sent, and what was not checked. Left out are Notifications whose status already
/// says it, and those in namespaces that the controllers do not watch.
pub(super) async fn check(
    client: &Client,
    notifications: &[Notification],
    published: Result<&Published, &LookupError>,
) -> Vec<Finding> {
    let is_watched = |one: &&Notification| {
        published.is_ok_and(|published| published.watches(&one.namespace().unwrap_or_default())) || published.is_err()
    };
    let unreported = notifications.iter().filter(is_watched).filter(|one| !is_reported(one));
    let endpoints: Vec<Endpoint> = unreported.filter_map(Endpoint::of).collect();
    if endpoints.is_empty() {
        return Vec::new();
    }
    let names: BTreeSet<ObjectName> = endpoints.iter().filter_map(Endpoint::secret).collect();
    let reads = names.into_iter().take(MOST).map(|name| read(client, name));
    let secrets: Read = stream::iter(reads).buffered(PARALLEL).collect().await;
    findings(&endpoints, &secrets, policy(published))
}

/// Returns the policy of the controllers, or why it is not known.
fn policy(published: Result<&Published, &LookupError>) -> Result<Policy, String> {
    let dispatch = &published.map_err(ToString::to_string)?.dispatch;
    let egress = Egress::new(&dispatch.allow_destinations, &dispatch.deny_destinations);
    let egress = egress.ok_or_else(|| "the controllers publish something that is no address range".to_owned())?;
    Ok(egress.policy(dispatch.allow_http))
}

/// Whether the status of a Notification already says why nothing is sent. A Secret that the controllers cannot read may have other problems, too.
fn is_reported(notification: &Notification) -> bool {
    let ready = notification.status.as_ref().and_then(|status| get(&status.conditions, READY));
    ready.is_some_and(|ready| ready.status == ConditionStatus::False && ready.reason != Reason::SecretUnreadable.as_str())
}

/// Reads a Secret. The text of an error is that of the API server, because other texts can quote what was read.
async fn read(client: &Client, name: ObjectName) -> (ObjectName, Result<Option<Secret>, String>) {
    let api: Api<Secret> = Api::namespaced(client.clone(), &name.namespace);
    let found = match timeout(DEADLINE, api.get_opt(&name.name)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(kube::Error::Api(status))) => Err(status.message),
        Ok(Err(_)) | Err(_) => Err("the API server does not answer".to_owned()),
    };
    (name, found)
}

impl Endpoint {
    fn of(notification: &Notification) -> Option<Self> {
        let endpoint = notification.spec.endpoint.as_ref()?;
        let name = ObjectName::new(notification.namespace().unwrap_or_default(), notification.name_any());
        let url = match (&endpoint.url, &endpoint.url_from) {
            (Some(url), None) => Place::Literal(url.clone()),
            (None, Some(from)) => {
                let key = &from.secret_key_ref;
                Place::Secret(SecretKey::new(&name.namespace, &key.name, &key.key))
            }
            _ => return None,
        };
        Some(Self { notification: name, url })
    }

    fn secret(&self) -> Option<ObjectName> {
        match &self.url {
            Place::Literal(_) => None,
            Place::Secret(key) => Some(key.secret()),
        }
    }

    /// Returns why nothing can be sent. A host name is not resolved.
    fn problem(&self, secrets: &Read, policy: &Policy) -> Option<NotSent> {
        match &self.url {
            Place::Literal(url) => refused(url, policy),
            Place::Secret(key) => unusable(key, secrets.get(&key.secret())?.as_ref().ok()?.as_ref(), policy),
        }
    }
}

/// Returns why the policy refuses a URL. What else is wrong with a literal URL, the controllers report.
fn refused(url: &str, policy: &Policy) -> Option<NotSent> {
    match policy.url(&Url::parse(url).ok()?) {
        Err(why @ (NotSent::DestinationForbidden(_) | NotSent::InsecureScheme)) => Some(why),
        _ => None,
    }
}

/// Returns why the URL in a Secret cannot be used: as the controllers find out before they send.
fn unusable(key: &SecretKey, secret: Option<&Secret>, policy: &Policy) -> Option<NotSent> {
    let Some(secret) = secret else { return Some(NotSent::SecretMissing(key.secret())) };
    if secret.type_.as_deref() == Some(INBOUND) {
        return Some(NotSent::SecretReserved(key.secret()));
    }
    let Some(value) = secret.data.as_ref().and_then(|data| data.get(&key.key)) else {
        return Some(NotSent::KeyMissing(key.clone()));
    };
    let Ok(text) = String::from_utf8(value.0.clone()) else {
        return Some(NotSent::SecretInvalid { key: key.clone(), problem: "is not UTF-8" });
    };
    Secrets::fixed([(key.clone(), text)]).check(&[Needed::Url(key.clone())], policy).err()
}

/// Returns the findings. Without a policy, every address counts as allowed.
fn findings(endpoints: &[Endpoint], secrets: &Read, policy: Result<Policy, String>) -> Vec<Finding> {
    let (policy, unknown) = match policy {
        Ok(policy) => (policy, None),
        Err(why) => (anywhere(), Some(why)),
    };
    let warning = |endpoint: &Endpoint| {
        let (why, name) = (endpoint.problem(secrets, &policy)?, &endpoint.notification);
        let remedy = remedy_of(not_sent(&why).as_str(), &name.namespace, &name.name);
        let why = format!("nothing can be sent to its endpoint: {why}");
        Some(Finding::warning(format!("Notification {name}"), why, remedy))
    };
    let mut warnings: Vec<Finding> = endpoints.iter().filter_map(warning).collect();
    let (count, more) = (warnings.len(), warnings.len().saturating_sub(SHOWN));
    warnings.truncate(SHOWN);
    let more = (more > 0).then(|| {
        let remedy = "correct those that are shown, and check again".to_owned();
        Finding::warning("endpoints".to_owned(), format!("{more} more warnings are not shown"), remedy)
    });
    let what = "egress policy of endpoints";
    let known = match unknown {
        Some(why) => Some(format!("{what}: not checked, {why}")),
        None if count == 0 => Some(format!("{what}: {} checked, without the addresses of host names", endpoints.len())),
        None => None,
    };
    let known = known.map(Finding::ok);
    warnings.into_iter().chain(more).chain(known).chain(unread(endpoints, secrets)).collect()
}

/// Returns how many URLs in Secrets were not checked, and why.
fn unread(endpoints: &[Endpoint], secrets: &Read) -> Option<Finding> {
    let wanted: BTreeSet<ObjectName> = endpoints.iter().filter_map(Endpoint::secret).collect();
    let not_read = wanted.iter().filter(|name| !matches!(secrets.get(*name), Some(Ok(_))));
    let not_read: Vec<_> = not_read.collect();
    let first = secrets.get(*not_read.first()?).and_then(|read| read.as_ref().err());
    let why = first.cloned().unwrap_or_else(|| format!("only {MOST} are read"));
    Some(Finding::ok(format!("URLs in {} of {} Secrets: not checked, {why}", not_read.len(), wanted.len())))
}

/// Returns a policy that allows every address, also over `http`.
fn anywhere() -> Policy {
    let allow = ["0.0.0.0/0", "::/0"].iter().filter_map(|range| range.parse().ok()).collect();
    Policy { allow, deny: Vec::new(), allow_http: true }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TO_SECRET: &str = "secret";

    /// Returns a Notification with this literal URL, or with one in a Secret.
    fn notification(name: &str, url: &str, ready: Option<&str>) -> Notification {
        let endpoint = match url {
            TO_SECRET => json!({"urlFrom": {"secretKeyRef": {"name": "slack", "key": "url"}}}),
            url => json!({"url": url}),
        };
        let condition = |reason: &str| {
            let since = "2026-01-01T00:00:00Z";
            json!({"type": "Ready", "status": "False", "reason": reason, "message": "", "lastTransitionTime": since})
        };
        let conditions: Vec<Value> = ready.into_iter().map(condition).collect();
        serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification",
            "metadata": {"name": name, "namespace": "team-a"}, "spec": {"endpoint": endpoint},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn secret(data: &Value) -> Secret {
        serde_json::from_value(json!({"metadata": {"name": "slack"}, "data": data})).unwrap()
    }

    fn with_url(url: &str) -> Secret {
        let data = [("url".to_owned(), k8s_openapi::ByteString(url.as_bytes().to_vec()))];
        Secret { data: Some(data.into()), ..Secret::default() }
    }

    /// Returns level, problem and remedy of each finding about one endpoint.
    fn found(url: &str, secret: Result<Option<Secret>, String>, policy: Result<Policy, String>) -> Vec<String> {
        let endpoints: Vec<_> = Endpoint::of(&notification("chat", url, None)).into_iter().collect();
        let read = Read::from([(ObjectName::new("team-a", "slack"), secret)]);
        let line = |one: Finding| match one.level {
            None => format!("ok {}", one.what),
            Some(level) => format!("{level:?} {}: {} | {}", one.what, one.why, one.remedy),
        };
        findings(&endpoints, &read, policy).into_iter().map(line).collect()
    }

    #[test]
    fn a_value_that_is_no_url_is_a_warning_that_does_not_show_it() {
        let corrected = "correct the value of the key in the Secret; Relaybook detects it";
        let created = "create the Secret or its key; Relaybook detects it";
        let begin = "Warning Notification team-a/chat: nothing can be sent to its endpoint: Secret team-a/slack";
        let of = |why: &str, remedy: &str| format!("{begin}{why} | {remedy}");
        let invalid = |why: &str| of(&format!(", key url: {why}"), corrected);
        for (secret, expected) in [
            (Some(with_url("\"https://sesame.example/x\"\n")), invalid("is not a URL: remove the quotation marks")),
            (Some(with_url("sesame.example/x")), invalid("is not a URL")),
            (Some(with_url("sesame://sesame/x")), invalid("the URL must begin with https:// or http://")),
            (Some(with_url("https://a.example/\nsesame")), invalid("character 19 is a line break; remove it")),
            (Some(secret(&json!({"url": "/w=="}))), invalid("is not UTF-8")),
            (Some(secret(&json!({"other": ""}))), of(" has no key url", created)),
            (None, of(" does not exist", created)),
        ] {
            let lines = found(TO_SECRET, Ok(secret), Ok(Policy::default()));
            assert_eq!(lines, [expected]);
            assert!(!lines.concat().contains("sesame"), "{lines:?}");
        }
    }

    #[test]
    fn an_address_that_the_policy_refuses_is_a_warning() {
        let forbidden = "destination forbidden: a loopback address is refused unless it is allowed by --allow-destination";
        let insecure = "http is allowed only to a cluster-local .svc name, or with --allow-http; use https";
        let fine = "ok egress policy of endpoints: 1 checked, without the addresses of host names";
        for (url, why) in [
            ("https://127.0.0.1/{{revision}}", Some(forbidden)),
            ("http://chat.example.com/x", Some(insecure)),
            ("http://chat.team-a.svc/x", None),
            ("https://chat.example.com/x", None),
        ] {
            let in_secret = found(TO_SECRET, Ok(Some(with_url(&url.replace(['{', '}'], "")))), Ok(Policy::default()));
            let literal = found(url, Err("not read".to_owned()), Ok(Policy::default()));
            for lines in [literal, in_secret] {
                let is = |line: &str| match why {
                    Some(why) => line.contains(&format!("to its endpoint: {why} | use an `https` address")),
                    None => line == fine,
                };
                assert!(lines.len() == 1 && is(&lines[0]), "{url}: {lines:?}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_reported_and_nothing_is_assumed() {
        let unknown = || Err("there is no ConfigMap relaybook-info in any namespace".to_owned());
        let policy = "ok egress policy of endpoints: not checked, there is no ConfigMap relaybook-info in any namespace";
        assert_eq!(found("https://127.0.0.1/", Ok(None), unknown()), [policy]);
        let quoted = found(TO_SECRET, Ok(Some(with_url("'https://127.0.0.1/'"))), unknown());
        assert!(quoted.len() == 2 && quoted[0].contains("is not a URL: remove the quotation marks"), "{quoted:?}");
        assert_eq!(quoted[1], policy);
        let unread = found(TO_SECRET, Err("secrets \"slack\" is forbidden".to_owned()), Ok(Policy::default()));
        assert_eq!(unread.len(), 2, "{unread:?}");
        assert_eq!(unread[1], "ok URLs in 1 of 1 Secrets: not checked, secrets \"slack\" is forbidden");
    }

    #[test]
    fn what_the_controllers_report_is_not_repeated() {
        let is = |ready: Option<&str>| is_reported(&notification("chat", TO_SECRET, ready));
        assert_eq!([None, Some("SecretInvalid"), Some("SecretUnreadable")].map(is), [false, true, false]);
    }

    #[test]
    fn warnings_are_bounded() {
        let endpoints = (0..22).filter_map(|n| Endpoint::of(&notification(&format!("n{n}"), "https://127.0.0.1/", None)));
        let all = findings(&endpoints.collect::<Vec<_>>(), &Read::new(), Ok(Policy::default()));
        assert_eq!((all.len(), all[20].why.as_str()), (21, "2 more warnings are not shown"));
    }
}
