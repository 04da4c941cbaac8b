//! Builds a request from a recorded transition. Pure. The request is rendered for every attempt, so that it uses the current configuration.
//! If the configuration is unchanged, so are the bytes.

use std::time::Duration;

use crate::outbox::lane::thread::hash;
use crate::outbox::record::{Record, webhook_id};
use crate::outbox::send_gate::index::PipelineFacts;
use relaybook_api::delivery::MessageThread;
use relaybook_api::values::permalink::PageUrl;
use relaybook_egress::{LaterRequest, Outgoing, RequestError, ThreadRequest, compose};
use relaybook_settings::config::{RenderedLater, Sending, Thread};
use relaybook_settings::render::Data;

/// What a request is rendered with, besides its record.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The pipeline.
    pub facts: &'a PipelineFacts,
    /// The name of the local cluster.
    pub cluster: &'a str,
    /// The URL of the audit page, for links.
    pub page: Option<&'a PageUrl>,
}

/// A request, and the message that it is a part of.
pub struct Built {
    /// The request.
    pub outgoing: Outgoing,
    /// The hash of the key of the message. `None`: no later delivery continues it.
    pub key: Option<String>,
}

/// Renders URL, headers and body. `message`: the one that the delivery continues if it has the same key. `until`: when the attempt must end, by
/// [`relaybook_api::since_boot`].
pub fn build(
    record: &Record,
    sending: &Sending,
    around: Around<'_>,
    message: Option<&MessageThread>,
    until: Duration,
) -> Result<Built, RequestError> {
    let spec = &record.spec;
    let id = webhook_id(spec);
    let superseded = record.status.superseded;
    let Around { facts, cluster, page } = around;
    let data = Data::new(&id, spec, &facts.labels, &facts.annotations, &facts.namespace).with_context(spec, cluster);
    let data = Data { superseded, ..data.with_links(page, &record.id.namespace, &record.id.name) };
    let mut outgoing = compose(sending, sending.render(&data)?, &record.id.namespace, id, until)?;
    let key = match &sending.thread {
        Some(thread) => sending.thread_key(&data)?.map(|key| hash(&spec.notification_uid, &key, &thread.remember)),
        None => None,
    };
    if let (Some(thread), Some(key)) = (&sending.thread, &key) {
        let message = message.filter(|message| message.key == *key && thread.is_complete(&message.values));
        let later = message.map(|message| later(sending, thread, &data, message, &mut outgoing)).transpose()?;
        outgoing.thread = Some(ThreadRequest { remember: thread.remember.clone(), later });
    }
    Ok(Built { outgoing, key })
}

/// Renders what differs in the request that continues a message.
fn later(
    sending: &Sending,
    thread: &Thread,
    data: &Data,
    message: &MessageThread,
    outgoing: &mut Outgoing,
) -> Result<LaterRequest, RequestError> {
    let RenderedLater { method, path, body, credentials } = sending.render_later(data, &message.values)?;
    for value in &credentials {
        outgoing.hidden.add(value);
    }
    Ok(LaterRequest { origin: message.origin.clone(), method, path, body: body.into(), lost: thread.lost.clone() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::outbox::testing::{notification, record};
    use relaybook_api::notification::credentials::{AuthRef, Authorities, SecretKey, SignatureForm, SigningRef};
    use relaybook_api::{Notification, ObjectName, Outcome};
    use relaybook_settings::config::{Given, resolve};

    /// Builds a request for a revision.
    fn request(url: &str, body: &str, revision: &str) -> Result<Outgoing, RequestError> {
        let mut record = record(7);
        Arc::make_mut(&mut record.spec).to.revision = revision.to_owned();
        let spec = serde_json::json!({
            "endpoint": {"url": url, "headers": {"X-Day": "{{date revision}}"}},
            "template": {"inline": {"body": body}, "parameters": {"sha": "{{commit revision}}"}},
            "triggers": [],
        });
        let notification = Notification::new("n", serde_json::from_value(spec).unwrap());
        let sending = resolve(&notification, &Given::nothing()).sending.unwrap();
        let facts = PipelineFacts::default();
        let around = Around { facts: &facts, cluster: "in-cluster", page: None };
        Ok(build(&record, &sending, around, None, Duration::MAX)?.outgoing)
    }

    #[test]
    fn a_request_about_a_commit_is_canceled_without_one() {
        let (of_commit, other) = ("https://example.com/{{commit revision}}", "https://example.com/in");
        let commit = "a".repeat(40);
        let time = "2026-01-01T00:00:00Z";
        for (url, body, revision, outcome, reason) in [
            (of_commit, "{}", "6.5.0", Outcome::Canceled, "CommitMissing"),
            (of_commit, "{}", "", Outcome::Canceled, "CommitMissing"),
            ("https://example.com/{{parameters.sha}}", "{}", "6.5.0", Outcome::Canceled, "CommitMissing"),
            // A header fails.
            (of_commit, "{}", &commit, Outcome::Parked, "TemplateFailed"),
            // The message is not about the commit. It only names the commit.
            (other, r#"{"text": "{{commit revision}} failed"}"#, time, Outcome::Parked, "TemplateFailed"),
        ] {
            let error = request(url, body, revision).unwrap_err();
            assert_eq!((error.outcome(), error.reason().as_str()), (Some(outcome), reason), "{url}, {revision}: {error}");
        }
    }

    #[test]
    fn an_answer_to_credentials_of_another_namespace_is_withheld() {
        let plain = notification("n1").sending.unwrap();
        let secret = |namespace: &str| ObjectName::new(namespace, "s");
        let key = |namespace: &str| SecretKey::new(namespace, "s", "k");
        let withheld = |change: &dyn Fn(&mut Sending)| {
            let mut sending = plain.clone();
            change(&mut sending);
            let facts = PipelineFacts::default();
            let around = Around { facts: &facts, cluster: "in-cluster", page: None };
            build(&record(7), &sending, around, None, Duration::MAX).unwrap().outgoing.withhold_answer
        };
        assert!(!withheld(&|_| {}));
        for (namespace, expected) in [("team-a", false), ("relaybook-system", true)] {
            let auth = AuthRef::Basic { namespace: namespace.to_owned(), name: "s".to_owned() };
            let signing = SigningRef { secret: secret(namespace), form: SignatureForm::StandardWebhooks };
            let all: [&dyn Fn(&mut Sending); 6] = [
                &|s| s.auth = Some(auth.clone()),
                &|s| s.headers_from = Some(secret(namespace)),
                &|s| s.signing = Some(signing.clone()),
                &|s| s.tls.client_certificate = Some(secret(namespace)),
                &|s| s.destination = relaybook_settings::config::Destination::Secret(key(namespace)),
                &|s| s.literal_credentials = [namespace.to_owned()].into(),
            ];
            for (number, change) in all.into_iter().enumerate() {
                assert_eq!(withheld(change), expected, "{namespace}, {number}");
            }
        }
        assert!(
            !withheld(&|s| s.tls.authorities = Authorities::Secret(key("relaybook-system"))),
            "these are no credentials"
        );
    }
}
