//! The preview of one request.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};
use serde_json::Value;
use url::Url;

use super::{LayeredNotification, PreviewError};
use relaybook_api::notification::credentials::{AuthRef, SignatureForm};
use relaybook_api::values::looked_up::LookedUp;
use relaybook_api::{ObjectName, TransitionType};
use relaybook_settings::answer::Success;
use relaybook_settings::config::{Address, Given, Rendered, Sending};
use relaybook_settings::render::{Data, SampleContext};

/// The replacement for a secret.
pub(super) const MASK: &str = "***";

/// The request for one transition.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// Name of the notification.
    pub notification: String,
    /// The transition.
    pub trigger: TransitionType,
    /// HTTP method.
    pub method: &'static str,
    /// The URL, or `***` if the whole URL is secret.
    pub url: String,
    /// Headers in lower case. Possible credentials are `***`.
    pub headers: BTreeMap<String, String>,
    /// The Secret whose keys are headers, too. `headers` contains them if they are known.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub headers_from: Option<ObjectName>,
    /// The names of the masked headers.
    #[serde(skip)]
    pub masked: BTreeSet<String>,
    /// Whether the keys of that Secret are known.
    #[serde(skip)]
    pub(super) has_keys: bool,
    /// The body, exactly as it would be sent.
    pub body: String,
    /// What an example of an answer means, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The rule about answers.
    #[serde(skip)]
    pub success: Option<Success>,
}

/// Returns the requests of a notification for a sample context. They are for the `wanted` transitions, or for all that it reports if
/// `wanted` is empty. No forge is asked: they have a sample of its answer.
pub fn previews(
    notification: &LayeredNotification,
    wanted: &[TransitionType],
    given: &Given<'_>,
    context: &SampleContext,
) -> Result<Vec<Preview>, PreviewError> {
    let name = &notification.name;
    let wrong = |problem| PreviewError::Notification { name: name.clone(), problem };
    let (sending, reported) = notification.compiled(given).map_err(wrong)?;
    let chosen = if wanted.is_empty() { &reported } else { wanted };
    let in_order = TransitionType::ALL.into_iter().filter(|type_| chosen.contains(type_));
    in_order
        .map(|type_| {
            let mut data = context.transition(type_);
            if !sending.look_ups.is_none() {
                data = data.with_looked_up(&LookedUp::sample());
            }
            Ok(preview(name, &sending, &sending.render(&data).map_err(wrong)?, &data))
        })
        .collect()
}

/// Returns the preview of a rendered request.
pub(super) fn preview(name: &str, sending: &Sending, rendered: &Rendered, data: &Data) -> Preview {
    let (mut headers, mut masked) = (BTreeMap::new(), BTreeSet::new());
    for (name, value) in &rendered.headers {
        let hide = may_be_credential(name.as_str());
        if hide {
            masked.insert(name.as_str().to_owned());
        }
        headers.insert(name.as_str().to_owned(), if hide { MASK } else { value }.to_owned());
    }
    for (name, value) in [
        ("content-type", sending.body.content_type()),
        ("user-agent", concat!("relaybook/", env!("CARGO_PKG_VERSION"))),
        ("webhook-id", &data.id),
        ("webhook-timestamp", &data.time.as_second().to_string()),
    ] {
        headers.insert(name.to_owned(), value.to_owned());
    }
    for (name, value) in credentials(sending) {
        masked.insert(name.clone());
        headers.insert(name, value);
    }
    let url = match &rendered.address {
        Address::Url(url) => shown(&at_parent(sending, data, url)),
        Address::Secret(_) => MASK.to_owned(),
    };
    let notification = name.to_owned();
    let (trigger, method, body) = (data.type_, sending.method.as_str(), rendered.body.clone());
    let (success, headers_from) = (sending.success.clone(), sending.headers_from.clone());
    let (answer, has_keys) = (None, false);
    Preview { notification, trigger, method, url, headers, headers_from, masked, has_keys, body, answer, success }
}

/// Returns the URL of the request that creates a message. The number of its parent, such as a pull request, is known only to the receiver.
fn at_parent(sending: &Sending, data: &Data, url: &Url) -> Url {
    let created = sending.render_create(data, &[("number".to_owned(), "NUMBER".to_owned())].into());
    let path = created.ok().and_then(|created| created.path);
    path.map_or_else(|| url.clone(), |path| path.applied_to(url))
}

#[allow(clippy::ref_option, reason = "the signature is that of serde")]
fn as_text<S: Serializer>(name: &Option<ObjectName>, serializer: S) -> Result<S::Ok, S::Error> {
    name.as_ref().map(ToString::to_string).serialize(serializer)
}

/// Returns the headers whose values come from Secrets, with masked values, apart from those of `endpoint.headersFrom`.
fn credentials(sending: &Sending) -> Vec<(String, String)> {
    let auth = match &sending.auth {
        Some(AuthRef::Basic { .. }) => Some(("authorization".to_owned(), format!("Basic {MASK}"))),
        Some(AuthRef::Token { header, scheme, .. }) if scheme.is_empty() => {
            Some((header.as_str().to_owned(), MASK.to_owned()))
        }
        Some(AuthRef::Token { header, scheme, .. }) => Some((header.as_str().to_owned(), format!("{scheme} {MASK}"))),
        Some(AuthRef::GithubApp(_) | AuthRef::OAuth2(_) | AuthRef::Workload(_)) => {
            Some(("authorization".to_owned(), format!("Bearer {MASK}")))
        }
        None => None,
    };
    let signature = sending.signing.as_ref().map(|signing| match &signing.form {
        SignatureForm::StandardWebhooks => ("webhook-signature".to_owned(), format!("v1,{MASK}")),
        SignatureForm::BodyHex(header) => (header.as_str().to_owned(), format!("sha256={MASK}")),
    });
    auth.into_iter().chain(signature).collect()
}

/// Returns a URL in which the values of query parameters are masked if they usually are credentials.
fn shown(url: &Url) -> String {
    if url.query_pairs().all(|(name, _)| !may_be_credential(&name)) {
        return url.to_string();
    }
    let mut shown = url.clone();
    let pairs = url.query_pairs();
    let masked = pairs.map(|(name, value)| if may_be_credential(&name) { (name, MASK.into()) } else { (name, value) });
    shown.query_pairs_mut().clear().extend_pairs(masked);
    shown.to_string()
}

/// Whether a header or a parameter of this name usually carries a credential.
fn may_be_credential(name: &str) -> bool {
    let words = ["auth", "cookie", "token", "secret", "key", "pass", "session", "sig", "credential", "pat", "apikey"];
    let name = name.to_ascii_lowercase();
    let mut parts = name.split(['-', '_', '.']);
    parts.any(|part| words.iter().any(|word| part == *word || (word.len() > 3 && part.contains(word))))
}

impl Preview {
    /// Adds headers with these names, whose values are in the Secret `headers_from`. Credentials and a signature replace them, as in a request.
    pub fn add_secret_headers<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        for name in names.into_iter().map(str::to_ascii_lowercase) {
            if self.masked.insert(name.clone()) {
                self.headers.insert(name, MASK.to_owned());
            }
        }
        self.has_keys = true;
    }

    /// Returns the text for users: request line, headers, and the body with JSON pretty-printed. Control characters are replaced by U+FFFD.
    #[must_use]
    pub fn text(&self) -> String {
        let headers: String = self.headers.iter().flat_map(|(name, value)| [name, ": ", value, "\n"]).collect();
        let unknown = self.headers_from.as_ref().filter(|_| !self.has_keys);
        let headers = headers + &unknown.map_or_else(String::new, |name| format!("({MASK}: the keys of Secret {name})\n"));
        let answer = self.answer.as_ref().map_or_else(String::new, |meaning| format!("\nanswer: {meaning}\n"));
        let text = format!("{} {}\n{headers}\n{}\n{answer}", self.method, self.url, self.pretty_body());
        text.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), "\u{fffd}")
    }

    /// Returns the body, with JSON pretty-printed.
    #[must_use]
    pub fn pretty_body(&self) -> String {
        let json: Option<Value> = serde_json::from_str(&self.body).ok();
        json.and_then(|json| serde_json::to_string_pretty(&json).ok()).unwrap_or_else(|| self.body.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_settings::config::Global;

    fn notification(spec: &Value) -> LayeredNotification {
        let object = serde_json::json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification",
            "metadata": {"name": "deploys", "namespace": "team-a"}, "spec": spec,
        });
        LayeredNotification::without_pipeline(&Global::default(), &serde_json::from_value(object).unwrap())
    }

    fn sample() -> SampleContext {
        SampleContext::sample(("deploys".to_owned(), "team-a".to_owned()))
    }

    #[test]
    fn possible_secrets_are_masked() {
        let spec = serde_json::json!({
            "triggers": [{"type": "Failed"}, {"type": "Deployed"}],
            "endpoint": {
                "url": "https://example.com/{{environment}}?monkey=a&access_token=s3cr3t&sig=s3cr3t", "method": "PUT",
                "headers": {"X-Team": "a", "X-Gitlab-Token": "s3cr3t", "Cookie": "s3cr3t"},
                "auth": {"token": {"secretKeyRef": {"name": "s", "key": "k"}}},
                "signing": {"secretRef": {"name": "s"}, "scheme": "BodyHex"},
            },
            "template": {"inline": {"body": "{\"type\":\"{{type}}\"}"}},
        });
        let shown = previews(&notification(&spec), &[], &Given::nothing(), &sample()).unwrap();
        assert_eq!(shown.iter().map(|p| p.trigger).collect::<Vec<_>>(), [TransitionType::Deployed, TransitionType::Failed]);
        let text = shown[0].text();
        let line = "PUT https://example.com/prod?monkey=a&access_token=***&sig=***\nauthorization: Bearer ***\n";
        assert!(text.starts_with(line), "{text}");
        assert_eq!(shown[0].masked.len(), 4, "{:?}", shown[0].masked);
        let has_headers = text.contains("\nx-signature: sha256=***\nx-team: a\n");
        assert!(has_headers && text.ends_with("\n\n{\n  \"type\": \"Deployed\"\n}\n"), "{text}");
        assert!(!text.contains("s3cr3t"));
    }

    #[test]
    fn a_secret_url_is_masked_and_an_incomplete_spec_is_an_error() {
        let spec = serde_json::json!({
            "triggers": [],
            "endpoint": {"urlFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            "template": {"inline": {"contentType": "text/plain", "body": "{{type}}"}},
        });
        let shown = previews(&notification(&spec), &[TransitionType::Removed], &Given::nothing(), &sample()).unwrap();
        assert_eq!((shown.len(), shown[0].url.as_str(), shown[0].body.as_str()), (1, "***", "Removed"));
        let spec = serde_json::json!({"triggers": []});
        let problem = previews(&notification(&spec), &[], &Given::nothing(), &sample()).unwrap_err().to_string();
        assert_eq!(problem, "Notification deploys: spec.endpoint is missing: set it");
    }

    #[test]
    fn a_preview_has_a_sample_of_what_a_forge_says_if_the_body_uses_it() {
        for (body, expected) in [("{{git.author}}, #{{pullRequest.number}}", "Ada Lovelace, #7"), ("{{json git.url}}", "")] {
            let spec = serde_json::json!({
                "triggers": [{"type": "Deployed"}], "endpoint": {"url": "https://example.com/in"},
                "template": {"inline": {"contentType": "text/plain", "body": body}},
            });
            let shown = previews(&notification(&spec), &[], &Given::nothing(), &sample()).unwrap().remove(0);
            assert!(shown.body.starts_with(expected) && shown.body.contains("Ada") != expected.is_empty(), "{}", shown.body);
        }
    }

    #[test]
    fn headers_of_a_secret_are_named_if_their_keys_are_known() {
        let spec = serde_json::json!({
            "triggers": [{"type": "Deployed"}],
            "endpoint": {
                "url": "https://example.com/in", "headers": {"X-Team": "a", "X-Region": "b"},
                "headersFrom": {"secretRef": {"name": "gateway"}},
                "auth": {"token": {"secretKeyRef": {"name": "s", "key": "k"}}},
            },
            "template": {"inline": {"body": "{}"}},
        });
        let mut shown = previews(&notification(&spec), &[], &Given::nothing(), &sample()).unwrap().remove(0);
        let text = shown.text();
        assert!(text.contains("\nx-team: a\n(***: the keys of Secret team-a/gateway)\n\n"), "{text}");
        assert_eq!(serde_json::to_value(&shown).unwrap()["headersFrom"], "team-a/gateway");
        shown.add_secret_headers(["X-Api-Key", "x-team", "Authorization"]);
        let text = shown.text();
        let headers = "authorization: Bearer ***\ncontent-type: application/json\n";
        assert!(text.contains(headers) && text.contains("\nx-api-key: ***\nx-region: b\nx-team: ***\n\n"), "{text}");
        assert!(shown.masked.contains("x-team") && !text.contains("gateway"), "{text}");
    }

    /// Every Notification in the documentation is valid without changes.
    #[test]
    fn the_examples_of_the_documentation_render() {
        for (page, least) in [
            (include_str!("../../../../docs/templates.md"), 1),
            (include_str!("../../../../docs/template-gallery.md"), 4),
            (include_str!("../../../../docs/quick-start.md"), 1),
        ] {
            let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
            let mut manifests = super::super::Manifests::default();
            blocks.filter(|b| b.contains("kind: Notification")).for_each(|b| manifests.add("page", b, "team-a").unwrap());
            let all = manifests.named(None).unwrap();
            assert!(all.len() >= least, "{} were found", all.len());
            for notification in all {
                let shown = previews(
                    &LayeredNotification::without_pipeline(&Global::default(), notification),
                    &[],
                    &Given::nothing(),
                    &sample(),
                );
                assert!(shown.is_ok(), "{}", shown.unwrap_err());
            }
        }
    }
}
