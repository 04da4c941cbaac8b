//! Builds a request from a recorded transition. Pure. The request is rendered for every attempt, so that it uses the current configuration.
//! If the configuration is unchanged, so are the bytes, unless the body contains what a forge says about the commit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::outbox::lane;
use crate::outbox::lane::thread::{Before, Part};
use crate::outbox::record::{Record, webhook_id};
use crate::outbox::send_gate::index::PipelineFacts;
use relaybook_api::delivery::MessageThread;
use relaybook_api::values::looked_up::LookedUp;
use relaybook_api::values::permalink::PageUrl;
use relaybook_egress::{Hidden, LaterRequest, MoreRequests, Outgoing, RenderMore, RequestError, ThreadRequest, compose};
use relaybook_settings::answer::Remember;
use relaybook_settings::config::{Lookup, Problem, RenderedLater, Sending, Thread};
use relaybook_settings::render::{Data, Web};

/// What a request is rendered with, besides its record.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The pipeline.
    pub facts: &'a PipelineFacts,
    /// The name of the local cluster.
    pub cluster: &'a str,
    /// The URL of the audit page, for links.
    pub page: Option<&'a PageUrl>,
    /// The forges and the links of the global configuration.
    pub web: &'a Web,
    /// What the forge says about the commit. `None`: it was not asked.
    pub looked_up: Option<&'a LookedUp>,
}

/// A request, and the message that it is a part of.
pub struct Built {
    /// The request.
    pub outgoing: Outgoing,
    /// The message. `None`: the delivery is none that a thread is about.
    pub part: Option<Part>,
}

/// Renders URL, headers and body, and how the request is a part of a message. `before`: what was delivered before about the same subject. `None`: it
/// is a test, which is no part of a message. `until`: when the attempt must end, by [`relaybook_api::since_boot`].
pub fn build(
    record: &Record,
    sending: &Sending,
    around: Around<'_>,
    before: Option<&Before>,
    until: Duration,
) -> Result<Built, RequestError> {
    match build_with(record, sending, around, before, until) {
        // What a stranger wrote must not hold a message.
        Err(_) if around.looked_up.is_some() => {
            build_with(record, sending, Around { looked_up: None, ..around }, before, until)
        }
        built => built,
    }
}

fn build_with(
    record: &Record,
    sending: &Sending,
    around: Around<'_>,
    before: Option<&Before>,
    until: Duration,
) -> Result<Built, RequestError> {
    let spec = &record.spec;
    let id = webhook_id(spec);
    let superseded = record.status.superseded;
    let Around { facts, cluster, page, web, looked_up } = around;
    let data = Data::new(&id, spec, &facts.labels, &facts.annotations, &facts.namespace).with_context(spec, cluster);
    let data = data.with_links(page, &record.id.namespace, &record.id.name).with_web(spec, web);
    let data = Data { superseded, ..data };
    let data = if let Some(found) = looked_up { data.with_looked_up(found) } else { data };
    let thread = sending.thread.as_ref();
    let key = sending.thread_key(&data);
    let part = thread.zip(before).map(|(thread, before)| {
        let key = key.as_ref().ok().and_then(Option::as_deref);
        lane::thread::part(record, key.map(|key| (key, &thread.remember)), before)
    });
    let data = Data { thread: part.as_ref().map(|part| part.id.clone()).unwrap_or_default(), ..data };
    // The problem of the request is the first one, because it says whether there is a commit to report about.
    let rendered = sending.render(&data)?;
    let mut outgoing = compose(sending, rendered, &record.id.namespace, id, until)?;
    key?;
    if let Some(thread) = thread {
        let message = before.and_then(Before::open);
        let is_same = |message: &&MessageThread| part.as_ref().is_some_and(|part| part.key.as_ref() == Some(&message.key));
        let message = message.filter(is_same).filter(|message| thread.is_complete(&message.values));
        let threaded = threaded(sending, thread, &data, message, part.is_some(), &mut outgoing.hidden)?;
        let is_part = part.as_ref().is_some_and(|part| part.key.is_some()) || threaded.more.is_some();
        outgoing.thread = Some(threaded).filter(|_| is_part);
    }
    Ok(Built { outgoing, part })
}

/// Returns how a request is a part of a message. `message`: the one that it continues. `finds`: whether one is looked for that an earlier attempt has
/// created.
fn threaded(
    sending: &Sending,
    thread: &Thread,
    data: &Data,
    message: Option<&MessageThread>,
    finds: bool,
    hidden: &mut Hidden,
) -> Result<ThreadRequest, RequestError> {
    let mut later = |origin: Option<&String>, rendered: RenderedLater| {
        for value in &rendered.credentials {
            hidden.add(value);
        }
        later(origin, rendered)
    };
    let remembered =
        message.map(|message| sending.render_later(data, &message.values).map(|l| later(Some(&message.origin), l)));
    let (remember, lost) = (thread.remember.clone(), thread.lost.clone());
    let request = ThreadRequest { remember, lost, later: remembered.transpose()?, more: None };
    let find = thread.find.as_ref().filter(|_| finds);
    let parent = thread.parent.as_ref().map(|parent| (parent.item().clone(), parent.number.clone()));
    if find.is_none() && parent.is_none() && !thread.follows {
        return Ok(request);
    }
    let render = Rendering { sending: sending.clone(), data: data.clone(), finds };
    // A problem of these requests, and their secrets, are known before anything is sent.
    let sample = |remember: &Remember| remember.names().map(|name| (name.to_owned(), "1".to_owned())).collect();
    let number = parent.as_ref().map(|(_, number)| sample(number)).unwrap_or_default();
    render.parent()?;
    render.search(&number)?;
    later(None, sending.render_create(data, &number)?);
    later(None, sending.render_later(data, &sample(&thread.remember))?);
    let more = MoreRequests {
        parent,
        find: find.map(|find| find.item.clone()),
        id: data.thread.clone(),
        is_optional: find.is_some_and(|find| find.is_optional),
        follows: thread.follows,
        render: Arc::new(render),
    };
    Ok(ThreadRequest { more: Some(more), ..request })
}

/// The settings and the data of an attempt, for requests that depend on its answers.
struct Rendering {
    sending: Sending,
    data: Data,
    /// Whether a message is looked for that an earlier attempt has created.
    finds: bool,
}

impl RenderMore for Rendering {
    fn parent(&self) -> Result<Option<Lookup>, Problem> {
        self.sending.render_parent(&self.data)
    }

    fn search(&self, number: &BTreeMap<String, String>) -> Result<Option<Lookup>, Problem> {
        if self.finds { self.sending.render_find(&self.data, number) } else { Ok(None) }
    }

    fn create(&self, number: &BTreeMap<String, String>) -> Result<LaterRequest, Problem> {
        Ok(later(None, self.sending.render_create(&self.data, number)?))
    }

    fn update(&self, values: &BTreeMap<String, String>) -> Result<LaterRequest, Problem> {
        Ok(later(None, self.sending.render_later(&self.data, values)?))
    }
}

/// Returns what differs in a later request. `origin`: where its message is, if it is remembered.
fn later(origin: Option<&String>, rendered: RenderedLater) -> LaterRequest {
    LaterRequest { origin: origin.cloned(), method: rendered.method, path: rendered.path, body: rendered.body.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::testing::{notification, record};
    use relaybook_api::notification::credentials::{AuthRef, Authorities, SecretKey, SignatureForm, SigningRef};
    use relaybook_api::{Notification, ObjectName, Outcome};
    use relaybook_settings::config::{Given, NewPath, resolve};

    fn sending(spec: serde_json::Value) -> Sending {
        let notification = Notification::new("n", serde_json::from_value(spec).unwrap());
        resolve(&notification, &Given::nothing()).sending.unwrap()
    }

    /// Builds a request for a revision.
    fn request(url: &str, body: &str, revision: &str) -> Result<Outgoing, RequestError> {
        let mut record = record(7);
        Arc::make_mut(&mut record.spec).to.revision = revision.to_owned();
        let spec = serde_json::json!({
            "endpoint": {"url": url, "headers": {"X-Day": "{{date revision}}"}},
            "template": {"inline": {"body": body}, "parameters": {"sha": "{{commit revision}}"}},
            "triggers": [],
        });
        let sending = sending(spec);
        let facts = PipelineFacts::default();
        let web = Web::default();
        let around = Around { facts: &facts, cluster: "in-cluster", page: None, web: &web, looked_up: None };
        Ok(build(&record, &sending, around, None, Duration::MAX)?.outgoing)
    }

    #[test]
    fn a_deployment_is_looked_for_by_the_identity_of_its_rollout() {
        let mut record = record(7);
        Arc::make_mut(&mut record.spec).to.revision = "a".repeat(40);
        let spec = serde_json::json!({
            "endpoint": {"url": "https://api.github.com"},
            "template": {"builtin": "github-deployment", "parameters": {"owner": "acme", "repository": "web"}},
            "triggers": [],
        });
        let sending = sending(spec);
        let facts = PipelineFacts::default();
        let web = Web::default();
        let around = Around { facts: &facts, cluster: "in-cluster", page: None, web: &web, looked_up: None };
        let built = |before: Option<&Before>| build(&record, &sending, around, before, Duration::MAX).unwrap();
        let task = |outgoing: &Outgoing| {
            let body: serde_json::Value = serde_json::from_slice(&outgoing.body).unwrap();
            body["task"].as_str().unwrap().to_owned()
        };

        let first = Before::default();
        let Built { outgoing, part } = built(Some(&first));
        let part = part.unwrap();
        assert_eq!(task(&outgoing), format!("relaybook:{}", part.id));
        let thread = outgoing.thread.unwrap();
        let more = thread.more.unwrap();
        assert!(more.find.is_some() && more.follows && thread.later.is_none());
        let values = BTreeMap::from([("id".to_owned(), "9".to_owned())]);
        let later = more.render.update(&values).unwrap();
        assert!(later.origin.is_none() && later.path == Some(NewPath::Append("/9/statuses".to_owned())));

        let message = MessageThread {
            key: part.key.unwrap(),
            id: "of the rollout".to_owned(),
            origin: "o".to_owned(),
            expiration_time: relaybook_api::Time::MAX,
            closed: false,
            values,
        };
        let without_values = MessageThread { values: BTreeMap::new(), ..message.clone() };
        let other = MessageThread { key: "k".to_owned(), ..message.clone() };
        for (what, message, is_open, continues, is_known) in [
            ("the same", &message, true, true, true),
            ("the same, but it is expired", &message, false, false, true),
            ("the same, but its values were withheld", &without_values, true, false, true),
            ("another commit", &other, true, false, false),
        ] {
            let before = Before { message: Some(Arc::new(message.clone())), is_open, serial: Some(5) };
            let outgoing = built(Some(&before)).outgoing;
            assert_eq!(task(&outgoing) == "relaybook:of the rollout", is_known, "{what}");
            let thread = outgoing.thread.unwrap();
            let looks = thread.more.is_some_and(|more| more.find.is_some());
            assert_eq!((thread.later.is_some(), looks), (continues, true), "{what}");
        }
        let test = built(None).outgoing;
        assert!(test.thread.unwrap().more.is_some_and(|more| more.find.is_none() && more.follows), "a test");
    }

    #[test]
    fn a_message_is_sent_with_or_without_what_the_forge_says() {
        const BODY: &str =
            r#"{"by": "{{git.author}}", "title": "{{pullRequest.title}}{{#if git.time}}{{date git.time "%Y"}}{{/if}}"}"#;
        let spec = serde_json::json!({
            "endpoint": {"url": "https://example.com/in"}, "triggers": [],
            "template": {"inline": {"body": BODY}},
        });
        let notification = Notification::new("n", serde_json::from_value(spec).unwrap());
        let sending = resolve(&notification, &Given::nothing()).sending.unwrap();
        let (facts, web, hostile) = (PipelineFacts::default(), Web::default(), "\", \"x\": \"y");
        let mut found = LookedUp::sample();
        hostile.clone_into(&mut found.pull_request.title);
        let title = format!("{hostile}2026");
        // With this text, the body cannot be rendered.
        let mut bad = found.clone();
        "soon".clone_into(&mut bad.commit.time);
        for (looked_up, expected) in [(None, ["", ""]), (Some(&found), ["Ada Lovelace", &title]), (Some(&bad), ["", ""])] {
            let around = Around { facts: &facts, cluster: "in-cluster", page: None, web: &web, looked_up };
            let built = build(&record(7), &sending, around, None, Duration::MAX).unwrap();
            let body: serde_json::Value = serde_json::from_slice(&built.outgoing.body).unwrap();
            assert_eq!(body, serde_json::json!({"by": expected[0], "title": expected[1]}));
        }
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
            let web = Web::default();
            let around = Around { facts: &facts, cluster: "in-cluster", page: None, web: &web, looked_up: None };
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
