//! The requests of one attempt: it continues a message, finds its parent and the message before, or creates it.
//!
//! In: an [`Outgoing`], and what was read for it. Out: the result of the request that decides, and what the answers say about the message. All
//! requests go to one origin with the same credentials, and end at the same deadline.

use std::collections::BTreeMap;

use http::header::LOCATION;
use http::response::Parts;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use url::Url;

use super::body::{Incomplete, READ, Read, beginning};
use super::compose::{self, Own, Prepared};
use super::exchange::Terms;
use super::outgoing::{Destination, LaterRequest, Learned, MoreRequests, Outgoing, ThreadRequest};
use super::sender::Sender;
use crate::attempt::{self, AttemptResult, Judged, NotSent, Step, failure};
use crate::client::proxy::Proxy;
use crate::client::traffic::Traffic;
use crate::secrets::redact::{Beginning, withheld};
use relaybook_api::Time;
use relaybook_api::notification::credentials::AuthRef;
use relaybook_api::values::redirect::redirect_origin;
use relaybook_settings::answer::{Answer, Find, LONGEST_BODY, LONGEST_LIST, Lost, Remember, Success, is_success};
use relaybook_settings::config::{Lookup, Problem};

/// The problem with the answer to a search.
const TOO_LONG: &str = "its body is longer than 256 KiB";
/// Number of bytes of the hash of a message's origin.
const ORIGIN: usize = 8;

impl Sender {
    /// Sends the request that continues the message, if something is remembered of it. Otherwise, or if the message no longer exists, it is looked
    /// for. If it is not found, the first request is sent, and the one that follows it. All of them are one attempt with one timeout.
    pub(super) async fn converse(
        &self,
        out: &Outgoing,
        prepared: &Prepared,
        started: Time,
        deadline: Instant,
    ) -> (AttemptResult, Option<Step>, Option<Learned>) {
        let talk = Conversation { sender: self, out, prepared, started, deadline };
        let Some(thread) = &out.thread else {
            let result = talk.create(None, None).await.map_or_else(|failed| failed, |(answered, _)| answered.result);
            return (result, None, None);
        };
        match talk.converse(thread).await {
            Ok(End { result, step, learned }) => (result, step, Some(learned)),
            Err((step, failed)) => (failed, step, None),
        }
    }
}

/// The requests of one attempt.
struct Conversation<'a> {
    sender: &'a Sender,
    out: &'a Outgoing,
    prepared: &'a Prepared,
    started: Time,
    deadline: Instant,
}

/// How an attempt has ended: with an answer about the message.
struct End {
    result: AttemptResult,
    step: Option<Step>,
    learned: Learned,
}

/// An answer to a request that creates or continues a message.
struct Answered {
    result: AttemptResult,
    /// The values of the message, without secrets of the request.
    values: BTreeMap<String, String>,
    /// Whether the message no longer exists.
    is_lost: bool,
}

/// What an answer to a search says.
enum Looked {
    /// The item is there, with these values.
    Found(Reply, BTreeMap<String, String>),
    /// It is not.
    Missing(Reply),
    /// The list is longer than is read.
    TooLong(Reply),
}

/// What one of the requests has of its own.
struct Call<'c> {
    own: Own<'c>,
    /// Maximum number of bytes that are read of the body of the answer.
    limit: usize,
    /// Whether a success without its whole body is no answer.
    needs_body: bool,
}

/// The answer to one of the requests.
struct Reply {
    head: Parts,
    read: Read,
}

impl Reply {
    fn answer(&self) -> Answer<'_> {
        Answer { status: self.head.status.as_u16(), headers: &self.head.headers, body: &self.read.body.bytes }
    }
}

impl Conversation<'_> {
    async fn converse(&self, thread: &ThreadRequest) -> Result<End, (Option<Step>, AttemptResult)> {
        let origin = message_origin(self.out, &self.prepared.url);
        let end = |result, step, continues, values: BTreeMap<String, String>| {
            // The values go back to the receiver, but other people must not read them.
            let values = if self.out.withhold_answer { BTreeMap::new() } else { values };
            Ok(End { result, step, learned: Learned { origin: origin.clone(), continues, values } })
        };
        let is_here = |later: &&LaterRequest| later.origin.as_ref().is_none_or(|of| *of == origin);
        if let Some(later) = thread.later.as_ref().filter(is_here) {
            let updated = self.update(thread, later).await.map_err(|failed| (None, failed))?;
            if !updated.is_lost {
                return end(updated.result, None, true, updated.values);
            }
        }
        let Some(more) = &thread.more else {
            let (created, _) = self.create(Some(thread), None).await.map_err(|failed| (None, failed))?;
            return end(created.result, None, false, created.values);
        };
        let number = self.parent(more).await.map_err(|failed| (Some(Step::Parent), failed))?;
        let found = self.find(thread, more, &number).await.map_err(|failed| (Some(Step::Search), failed))?;
        if let Some((reply, values)) = found {
            let later = self.later(thread, more, &values, &reply).map_err(|failed| (Some(Step::Search), failed))?;
            let updated = self.update(thread, &later).await.map_err(|failed| (Some(Step::AfterSearch), failed))?;
            // The receiver lists it. So it usually exists, whatever the answer is.
            if !(updated.is_lost && more.is_optional) {
                return end(updated.result, Some(Step::AfterSearch), false, values);
            }
        }
        let first = more.parent.as_ref().map(|_| more.render.create(&number)).transpose();
        let first = first.map_err(|problem| (None, unfit(&problem)))?;
        let (created, reply) = self.create(Some(thread), first.as_ref()).await.map_err(|failed| (None, failed))?;
        if !(more.follows && created.result.counts_as().is_some_and(is_success)) {
            return end(created.result, None, false, created.values);
        }
        let later = self.later(thread, more, &created.values, &reply).map_err(|failed| (None, failed))?;
        let updated = self.update(thread, &later).await.map_err(|failed| (Some(Step::AfterCreation), failed))?;
        end(updated.result, Some(Step::AfterCreation), false, created.values)
    }

    /// Looks for the parent of the message. Returns its number, or nothing if the message needs none. `Err`: there is no parent, or the receiver does
    /// not say it.
    async fn parent(&self, more: &MoreRequests) -> Result<BTreeMap<String, String>, AttemptResult> {
        let at = more.render.parent().map_err(|problem| unfit(&problem))?;
        let Some((at, (item, number))) = at.zip(more.parent.as_ref()) else { return Ok(BTreeMap::new()) };
        match self.look(&at, item, &more.id, number).await? {
            Looked::Found(reply, values) if !number.is_complete(&values) => {
                Err(self.useless(&reply, "it lacks the number of the pull request".to_owned()))
            }
            Looked::Found(_, values) => Ok(values),
            Looked::TooLong(reply) => Err(self.useless(&reply, TOO_LONG.to_owned())),
            Looked::Missing(reply) => Err(self.answered(&reply, Some(Judged::NoPullRequest))),
        }
    }

    /// Looks for a message that an earlier attempt created. Returns the answer and the values of the message, if it is there. `Err`: the receiver did
    /// not answer, or refused. This is the result of the attempt, because the message may exist.
    async fn find(
        &self,
        thread: &ThreadRequest,
        more: &MoreRequests,
        number: &BTreeMap<String, String>,
    ) -> Result<Option<(Reply, BTreeMap<String, String>)>, AttemptResult> {
        let at = more.render.search(number).map_err(|problem| unfit(&problem))?;
        let Some((at, item)) = at.zip(more.find.as_ref()) else { return Ok(None) };
        match self.look(&at, item, &more.id, &thread.remember).await? {
            Looked::Found(reply, values) => Ok(Some((reply, values))),
            Looked::TooLong(reply) if !more.is_optional => Err(self.useless(&reply, TOO_LONG.to_owned())),
            Looked::TooLong(_) | Looked::Missing(_) => Ok(None),
        }
    }

    /// Sends a request that looks for an item, and reads its values.
    async fn look(&self, at: &Lookup, item: &Find, id: &str, remember: &Remember) -> Result<Looked, AttemptResult> {
        let url = at.applied_to(&self.prepared.url);
        let own = Own { url: &url, sends: None };
        let reply = self.request(Call { own, limit: LONGEST_LIST, needs_body: true }).await?;
        if item.is_none(&reply.answer()) {
            return Ok(Looked::Missing(reply));
        }
        // What `endpoint.success` says about the answers to other requests could make a refusal a success.
        if !reply.head.status.is_success() {
            return Err(self.result(&reply, None));
        }
        if reply.read.body.cut {
            return Ok(Looked::TooLong(reply));
        }
        match item.values(&reply.answer(), (&self.out.body, id), remember) {
            Err(why) => Err(self.useless(&reply, why.to_string())),
            Ok(None) => Ok(Looked::Missing(reply)),
            Ok(Some(mut values)) => {
                values.retain(|_, value| !self.prepared.hidden.is_in(value));
                Ok(Looked::Found(reply, values))
            }
        }
    }

    /// Sends the request that creates a message, or that is a message of its own.
    /// `first`: what differs in it from the request that was rendered before the attempt.
    async fn create(
        &self,
        thread: Option<&ThreadRequest>,
        first: Option<&LaterRequest>,
    ) -> Result<(Answered, Reply), AttemptResult> {
        let url = first.map_or_else(|| self.prepared.url.clone(), |first| self.url(first));
        let sends = first.map_or((self.out.method, &self.out.body), |first| (first.method, &first.body));
        let own = Own { url: &url, sends: Some(sends) };
        let follows = thread.and_then(|thread| thread.more.as_ref()).is_some_and(|more| more.follows);
        // Without the values of a created message, nothing can follow.
        self.exchange(own, thread, None, follows && thread.is_some_and(|thread| thread.remember.reads_body())).await
    }

    /// Sends the request that continues a message.
    async fn update(&self, thread: &ThreadRequest, later: &LaterRequest) -> Result<Answered, AttemptResult> {
        let url = self.url(later);
        let own = Own { url: &url, sends: Some((later.method, &later.body)) };
        self.exchange(own, Some(thread), Some(&thread.lost), false).await.map(|(answered, _)| answered)
    }

    fn url(&self, later: &LaterRequest) -> Url {
        let first = &self.prepared.url;
        later.path.as_ref().map_or_else(|| first.clone(), |path| path.applied_to(first))
    }

    /// Renders the request that continues the message with these values of an answer.
    fn later(
        &self,
        thread: &ThreadRequest,
        more: &MoreRequests,
        values: &BTreeMap<String, String>,
        reply: &Reply,
    ) -> Result<LaterRequest, AttemptResult> {
        if let Some(name) = thread.remember.names().find(|name| !values.contains_key(*name)) {
            let why = format!("it lacks the value {name} of the message, or that value contains a secret of the request");
            return Err(self.useless(reply, why));
        }
        more.render.update(values).map_err(|problem| self.useless(reply, problem.to_string()))
    }

    /// Sends a request that creates or continues a message, and reads the answer. `lost`: whether an answer says that the message no longer exists.
    async fn exchange(
        &self,
        own: Own<'_>,
        thread: Option<&ThreadRequest>,
        lost: Option<&Lost>,
        needs_values: bool,
    ) -> Result<(Answered, Reply), AttemptResult> {
        let success = self.out.success.as_ref();
        let reads_body = success.is_some_and(Success::reads_body)
            || thread.is_some_and(|thread| thread.remember.reads_body())
            || lost.is_some_and(Lost::reads_body);
        let limit = if reads_body { LONGEST_BODY } else { READ };
        let needs_body = needs_values || success.is_some_and(Success::needs_body);
        let reply = self.request(Call { own, limit, needs_body }).await?;
        let answer = reply.answer();
        // A part of a body is not judged as if it were the whole.
        let is_whole = reply.read.lacks.is_none();
        let is_lost = lost.is_some_and(|lost| (is_whole || !lost.reads_body()) && lost.is_lost(&answer));
        let remember = thread.map(|thread| &thread.remember).filter(|remember| is_whole || !remember.reads_body());
        let mut values = remember.map(|remember| remember.values(&answer)).unwrap_or_default();
        values.retain(|_, value| !self.prepared.hidden.is_in(value));
        let result = self.result(&reply, success.filter(|success| is_whole || !success.reads_body()));
        Ok((Answered { result, values, is_lost }, reply))
    }

    /// Sends a request, and reads the answer.
    async fn request(&self, Call { own, limit, needs_body }: Call<'_>) -> Result<Reply, AttemptResult> {
        let Self { sender, out, prepared, started, deadline } = *self;
        let terms = Terms {
            traffic: Traffic::Webhooks,
            shown: out.destination.literal(),
            timeout: out.timeout,
            connect_timeout: out.connect_timeout,
            until: out.until,
            deadline,
            limit,
        };
        let composed = |proxy: Option<&Proxy>| compose::delivery(out, &own, prepared, started, proxy);
        let (response, exchange) = sender.open(&terms, prepared, composed).await?;
        let (head, body) = response.into_parts();
        let read = beginning(body, limit, deadline).await;
        if !read.is_late() {
            exchange.finish();
        }
        match read.lacks.filter(|_| needs_body && head.status.is_success()) {
            None | Some(Incomplete::TooLarge) => Ok(Reply { head, read }),
            Some(Incomplete::Late) => Err(failure::late_body(&terms).into()),
            Some(Incomplete::Broken) => Err(failure::broken_body(&terms).into()),
        }
    }

    /// Returns the result for an answer of success that lacks what the next request needs.
    fn useless(&self, reply: &Reply, why: String) -> AttemptResult {
        self.answered(reply, Some(Judged::Useless(why)))
    }

    /// Returns the result for an answer. `success`: what says as which status it counts, if not the status itself.
    fn result(&self, reply: &Reply, success: Option<&Success>) -> AttemptResult {
        self.answered(reply, attempt::judged(success, &reply.answer()))
    }

    fn answered(&self, Reply { head, read }: &Reply, judged: Option<Judged>) -> AttemptResult {
        let Self { sender, out, prepared, .. } = self;
        let status = head.status.as_u16();
        let retry_after = attempt::requested(status, judged.as_ref(), &head.headers);
        let redirect = redirected(head, prepared).filter(|_| !out.withhold_answer);
        let body = read.body.first(READ);
        let body = if out.withhold_answer { withheld(&body) } else { prepared.hidden.shown(&body) };
        let is_401 = judged.as_ref().map_or(Some(status), Judged::status) == Some(401);
        let is_replaced = is_401 && prepared.lent.as_ref().is_some_and(|lent| sender.tokens.forget(lent));
        let rotated = is_replaced || prepared.used.iter().any(|(name, then)| sender.secrets.differs(name, then));
        AttemptResult::Answered { status, judged, retry_after, redirect, body, rotated }
    }
}

/// Returns the result if a request cannot be rendered. It was rendered with sample values before the attempt.
fn unfit(problem: &Problem) -> AttemptResult {
    tracing::warn!(%problem, "a request of an attempt cannot be rendered");
    AttemptResult::NotSent(NotSent::InvalidRequest("it cannot be rendered with the values of the receiver's answers"))
}

/// Returns a hash of the place where a message is: the origin of the URL, and the keys of Secrets or the ServiceAccount with the credentials. A URL from a Secret counts
/// as a whole. The hash is visible, and that of the host alone would confirm a guess.
fn message_origin(out: &Outgoing, url: &Url) -> String {
    let place = match &out.destination {
        Destination::Url(_) => url.origin().ascii_serialization(),
        Destination::Secret(key) => format!("{key}\n{url}"),
    };
    let keys = out.auth.iter().flat_map(AuthRef::keys).map(|key| format!("\n{key}"));
    let keys = keys.chain(out.headers_from.iter().map(|name| format!("\n{name}")));
    let account = out.auth.as_ref().and_then(AuthRef::account).map(|name| format!("\nServiceAccount {name}"));
    let keys = keys.chain(account);
    hex::encode(&Sha256::digest(place + &keys.collect::<String>())[..ORIGIN])
}

/// Returns the origin to which an answer redirects. It is empty if this is the origin of the request.
fn redirected(head: &Parts, prepared: &Prepared) -> Option<String> {
    let location = head.headers.get(LOCATION).filter(|_| head.status.is_redirection())?;
    let origin = redirect_origin(location.to_str().ok()?, Some(&prepared.url))?;
    if origin == prepared.url.origin().ascii_serialization() {
        return Some(String::new());
    }
    Some(prepared.hidden.shown(&Beginning { bytes: origin.into_bytes(), cut: false }))
}
