//! Which message a delivery continues, and what its outcome says about the message. Pure.
//!
//! In: the thread of the newest delivered delivery about the same subject, the settings, and what an answer says. Out: whether the message is
//! continued, and the thread that is written with the outcome. The thread is a part of this one write, so a crash can lose both or none.
//!
//! If the process ends between the answer and the write, the ID of a created message is lost. The repeated request creates another message, unless
//! the template can find the first one by its identity. An update is repeated with the same text.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::outbox::record::{Record, webhook_id};
use relaybook_api::delivery::{Family, MessageThread};
use relaybook_api::{Time, TransitionType};
use relaybook_egress::Learned;
use relaybook_settings::answer::Remember;
use relaybook_settings::config;

/// Number of bytes of the hash of a key.
const HASH: usize = 8;

/// Returns the hash of a key, as a status contains it. It covers the notification and the expressions of `remember`, so a new notification of this
/// name, and one whose expressions were corrected, begin another message.
#[must_use]
pub fn hash(notification_uid: &str, key: &str, remember: &Remember) -> String {
    let expressions = remember.sources().map(|(name, source)| format!("\n{name} {source}"));
    let all: String = [notification_uid, "\n", key].into_iter().map(str::to_owned).chain(expressions).collect();
    hex::encode(&Sha256::digest(all)[..HASH])
}

/// The message that a delivery is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The hash of its key. `None`: no later delivery continues it.
    pub key: Option<String>,
    /// Its identity at the receiver: 16 hexadecimal digits.
    pub id: String,
}

/// What was delivered before about the same subject. It is empty for a redelivery, which is outside of the order.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// The message of the newest delivered delivery, also if it is expired.
    pub message: Option<Arc<MessageThread>>,
    /// Whether the message can be continued.
    pub is_open: bool,
    /// The serial of that delivery.
    pub serial: Option<i64>,
}

impl Before {
    /// The message, if it can be continued.
    #[must_use]
    pub fn open(&self) -> Option<&MessageThread> {
        self.message.as_deref().filter(|_| self.is_open)
    }
}

/// Returns which message a delivery is a part of. `key`: its rendered key, and the notification's expressions of `remember`.
///
/// The identity is that of a rollout: the deliveries with one key after the same other one. So each attempt of a delivery has the same, in each
/// replica, and so has the delivery after a parked one. A rollback to an earlier commit has another one than the rollout of that commit. A delivery
/// without a key, and each redelivery, is a message of its own.
#[must_use]
pub fn part(record: &Record, key: Option<(&str, &Remember)>, before: &Before) -> Part {
    let uid = &record.spec.notification_uid;
    let hashed = key.map(|(key, remember)| hash(uid, key, remember));
    let known = before.message.as_ref().filter(|message| hashed.as_ref() == Some(&message.key) && !message.id.is_empty());
    let again = record.status.redelivered.as_ref().filter(|_| record.again);
    let after = match (before.serial, again) {
        (_, Some(again)) => format!("{}\n{}", webhook_id(&record.spec), again.value),
        (Some(serial), None) if key.is_some() => serial.to_string(),
        _ => webhook_id(&record.spec),
    };
    // One change can have a delivery of each family.
    let family = match record.spec.type_.family() {
        Family::Existence => "existence",
        Family::Status => "status",
        Family::Drift => "drift",
        Family::Promotion => "promotion",
    };
    let key = key.map_or("", |(key, _)| key);
    let id = || hex::encode(&Sha256::digest(format!("{uid}\n{family}\n{key}\n{after}"))[..HASH]);
    Part { id: known.map_or_else(id, |message| message.id.clone()), key: hashed }
}

/// Whether later deliveries can continue this message.
#[must_use]
pub fn is_open(thread: &MessageThread, now: Time) -> bool {
    !thread.closed && now < thread.expiration_time
}

/// Returns the thread after a request that was delivered. `before`: the message that the delivery wanted to continue. `None`: the answer lacks a
/// value, so no later request can continue the message. A message that can be found needs no values.
#[must_use]
pub fn after(
    before: Option<&MessageThread>,
    part: Part,
    learned: &Learned,
    settings: &config::Thread,
    type_: TransitionType,
    sent: Time,
) -> Option<MessageThread> {
    let before = before.filter(|_| learned.continues);
    let mut values = learned.values.clone();
    // The first value of a name stays: an answer to a reply has the ID of the reply.
    values.extend(before.iter().flat_map(|thread| thread.values.clone()));
    let fresh = || sent.checked_add(settings.max_age).unwrap_or(Time::MAX);
    let open_after = settings.continued_after.as_ref();
    let thread = MessageThread {
        key: part.key?,
        id: if settings.find.is_some() { part.id } else { String::new() },
        origin: learned.origin.clone(),
        expiration_time: before.map_or_else(fresh, |thread| thread.expiration_time),
        closed: !settings.keep_open && open_after.map_or_else(|| ends(type_), |open| !open.contains(&type_)),
        values,
    };
    (settings.find.is_some() || settings.is_complete(&thread.values)).then_some(thread)
}

/// Whether a transition of this type ends what a message is about, so that the next transition is the beginning of another message.
const fn ends(type_: TransitionType) -> bool {
    match type_ {
        TransitionType::Deployed
        | TransitionType::Recovered
        | TransitionType::Removed
        | TransitionType::DriftCorrected
        | TransitionType::ClusterOnline
        | TransitionType::EnvironmentReady
        | TransitionType::PipelineReady
        | TransitionType::PromotionFinished
        | TransitionType::PromotionFailed => true,
        TransitionType::Added
        | TransitionType::Progressing
        | TransitionType::Failed
        | TransitionType::Drifted
        | TransitionType::ClusterOffline
        | TransitionType::PromotionPending
        | TransitionType::PromotionRequested
        | TransitionType::PromotionOpened => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::outbox::testing::record;
    use relaybook_api::Notification;
    use relaybook_settings::config::{Given, resolve};

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn settings(keep_open: bool) -> config::Thread {
        let spec = json!({
            "endpoint": {
                "url": "https://example.com/in",
                "thread": {"remember": {"id": "body.id", "room": "body.room"}, "maxAge": "10m", "keepOpen": keep_open},
            },
            "template": {"inline": {"body": "{}"}},
            "triggers": [],
        });
        let notification = Notification::new("n", serde_json::from_value(spec).unwrap());
        resolve(&notification, &Given::nothing()).sending.unwrap().thread.unwrap()
    }

    fn values(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn of_key() -> Part {
        Part { key: Some("k".to_owned()), id: "1f0a".to_owned() }
    }

    fn learned(continues: bool, all: &[(&str, &str)]) -> Learned {
        Learned { origin: "o".to_owned(), continues, values: values(all) }
    }

    #[test]
    fn the_thread_of_a_message_follows_from_its_answers() {
        let first = |sent| {
            let learned = learned(false, &[("id", "1"), ("room", "a")]);
            after(None, of_key(), &learned, &settings(false), TransitionType::Progressing, at(sent)).unwrap()
        };
        let one = first(100);
        let expected = MessageThread {
            key: "k".to_owned(),
            id: String::new(),
            origin: "o".to_owned(),
            expiration_time: at(700),
            closed: false,
            values: values(&[("id", "1"), ("room", "a")]),
        };
        assert_eq!(one, expected);
        for (what, answer, type_, keep_open, expected) in [
            ("an update keeps values and end", learned(true, &[]), TransitionType::Failed, false, Some(one.clone())),
            (
                "the first value stays",
                learned(true, &[("id", "2"), ("room", "a")]),
                TransitionType::Failed,
                false,
                Some(one.clone()),
            ),
            (
                "the last one closes it",
                learned(true, &[]),
                TransitionType::Deployed,
                false,
                Some(MessageThread { closed: true, ..one.clone() }),
            ),
            ("unless it is kept open", learned(true, &[]), TransitionType::Deployed, true, Some(one.clone())),
            (
                "a message that was lost is replaced",
                learned(false, &[("id", "2"), ("room", "b")]),
                TransitionType::Failed,
                false,
                Some(MessageThread {
                    expiration_time: at(800),
                    values: values(&[("id", "2"), ("room", "b")]),
                    ..one.clone()
                }),
            ),
            ("one value is missing", learned(false, &[("id", "2")]), TransitionType::Failed, false, None),
        ] {
            assert_eq!(after(Some(&one), of_key(), &answer, &settings(keep_open), type_, at(200)), expected, "{what}");
        }
        let alone = Part { key: None, ..of_key() };
        let answer = learned(false, &[("id", "2"), ("room", "b")]);
        assert_eq!(after(None, alone, &answer, &settings(false), TransitionType::Failed, at(200)), None, "no key");
    }

    /// Nothing is remembered of an answer that people must not read. Later deliveries find the message by its identity.
    #[test]
    fn a_message_that_can_be_found_needs_no_values() {
        use TransitionType::{Deployed, Failed, Progressing};

        let of_template = |builtin: &str| {
            let spec = json!({
                "endpoint": {"url": "https://api.github.com"},
                "template": {"builtin": builtin, "parameters": {"owner": "acme", "repository": "web"}},
                "triggers": [],
            });
            let notification = Notification::new("n", serde_json::from_value(spec).unwrap());
            resolve(&notification, &Given::nothing()).sending.unwrap().thread.unwrap()
        };
        for (builtin, type_, closed) in [
            ("github-deployment", Progressing, false),
            ("github-deployment", Deployed, false),
            ("github-check-run", Progressing, false),
            ("github-check-run", Failed, true),
        ] {
            let thread = after(None, of_key(), &learned(false, &[]), &of_template(builtin), type_, at(100)).unwrap();
            assert_eq!((thread.id.as_str(), thread.values.len(), thread.closed), ("1f0a", 0, closed), "{builtin}");
        }
    }

    #[test]
    fn the_identity_of_a_message_is_that_of_a_rollout() {
        let mut remember = Remember::default();
        remember.add("id", "body.id").unwrap();
        let part = |record: &Record, key: Option<&str>, before: &Before| {
            super::part(record, key.map(|key| (key, &remember)), before)
        };
        let after = |serial| Before { serial: Some(serial), ..Before::default() };
        let (first, second) = (record(7), record(8));
        let one = part(&first, Some("a"), &after(5));
        assert_eq!((one.key.as_deref().map(str::len), one.id.len()), (Some(2 * HASH), 2 * HASH));
        assert_eq!(part(&first, Some("a"), &after(5)), one, "the next attempt");
        assert_eq!(part(&second, Some("a"), &after(5)), one, "the one after it was parked");
        for (what, record, key, before) in [
            ("another commit", &first, Some("b"), after(5)),
            ("a rollback after another commit", &first, Some("a"), after(6)),
            ("nothing was delivered before", &first, Some("a"), Before::default()),
            ("a message of its own", &first, None, after(5)),
        ] {
            assert_ne!(part(record, key, &before).id, one.id, "{what}");
        }
        let own = |record: &Record| part(record, None, &after(5)).id;
        assert_ne!(own(&first), own(&second), "each one without a key is a message of its own");

        let message = |key: &str, id: &str| MessageThread {
            key: key.to_owned(),
            id: id.to_owned(),
            origin: String::new(),
            expiration_time: at(1),
            closed: false,
            values: BTreeMap::new(),
        };
        let known =
            |key: &str, id: &str| Before { message: Some(Arc::new(message(key, id))), is_open: false, serial: Some(7) };
        let key = one.key.clone().unwrap();
        assert_eq!(part(&second, Some("a"), &known(&key, "1f0a")).id, "1f0a", "the rollout continues");
        for (what, before) in [("another key", known("k", "1f0a")), ("it had no identity", known(&key, ""))] {
            assert_eq!(part(&second, Some("a"), &before).id, part(&second, Some("a"), &after(7)).id, "{what}");
        }

        let again = |value: &str| {
            let redelivered = relaybook_api::delivery::Redelivered { value: value.to_owned(), time: at(9) };
            let mut record = Record { again: true, ..first.clone() };
            record.status.redelivered = Some(redelivered);
            part(&record, Some("a"), &Before::default()).id
        };
        assert_eq!(again("1"), again("1"), "the next attempt of a redelivery");
        assert!(again("1") != again("2") && again("1") != one.id, "each redelivery is a message of its own");
    }

    #[test]
    fn a_message_is_open_until_it_is_closed_or_expired() {
        let thread = |closed| MessageThread {
            key: hash("n1", "k", &Remember::default()),
            id: String::new(),
            origin: String::new(),
            expiration_time: at(700),
            closed,
            values: BTreeMap::new(),
        };
        for (closed, now, expected) in [(false, 699, true), (false, 700, false), (true, 100, false)] {
            assert_eq!(is_open(&thread(closed), at(now)), expected, "{closed}, {now}");
        }
    }

    #[test]
    fn another_notification_key_or_expression_is_another_message() {
        let remember = |source| {
            let mut remember = Remember::default();
            remember.add("id", source).unwrap();
            remember
        };
        let one = hash("n1", "a", &remember("body.id"));
        assert_eq!((&one, one.len()), (&hash("n1", "a", &remember("body.id")), 2 * HASH));
        for other in [
            hash("n2", "a", &remember("body.id")),
            hash("n1", "b", &remember("body.id")),
            hash("n1", "a", &remember("body.card")),
        ] {
            assert_ne!(one, other);
        }
    }
}
