//! Which message a delivery continues, and what its outcome says about the message. Pure.
//!
//! In: the thread of the newest delivered delivery about the same subject, the settings, and what an answer says. Out: whether the message is
//! continued, and the thread that is written with the outcome. The thread is a part of this one write, so a crash can lose both or none.
//!
//! If the process ends between the answer and the write, the ID of a created message is lost, and the repeated request creates another message.
//! An update is repeated with the same text.

use sha2::{Digest as _, Sha256};

use relaybook_api::delivery::MessageThread;
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

/// Whether later deliveries can continue this message.
#[must_use]
pub fn is_open(thread: &MessageThread, now: Time) -> bool {
    !thread.closed && now < thread.expiration_time
}

/// Returns the thread after a request that was delivered. `before`: the message that the delivery wanted to continue. `key`: the hash of its
/// key. `None`: the answer lacks a value, so no later request can continue the message.
#[must_use]
pub fn after(
    before: Option<&MessageThread>,
    key: &str,
    learned: &Learned,
    settings: &config::Thread,
    type_: TransitionType,
    sent: Time,
) -> Option<MessageThread> {
    let before = before.filter(|_| learned.is_later);
    let mut values = learned.values.clone();
    // The first value of a name stays: an answer to a reply has the ID of the reply.
    values.extend(before.iter().flat_map(|thread| thread.values.clone()));
    let fresh = || sent.checked_add(settings.max_age).unwrap_or(Time::MAX);
    let thread = MessageThread {
        key: key.to_owned(),
        origin: learned.origin.clone(),
        expiration_time: before.map_or_else(fresh, |thread| thread.expiration_time),
        closed: ends(type_) && !settings.keep_open,
        values,
    };
    settings.is_complete(&thread.values).then_some(thread)
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

    fn learned(is_later: bool, all: &[(&str, &str)]) -> Learned {
        Learned { origin: "o".to_owned(), is_later, values: values(all) }
    }

    #[test]
    fn the_thread_of_a_message_follows_from_its_answers() {
        let first = |sent| {
            let learned = learned(false, &[("id", "1"), ("room", "a")]);
            after(None, "k", &learned, &settings(false), TransitionType::Progressing, at(sent)).unwrap()
        };
        let one = first(100);
        let expected = MessageThread {
            key: "k".to_owned(),
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
            assert_eq!(after(Some(&one), "k", &answer, &settings(keep_open), type_, at(200)), expected, "{what}");
        }
    }

    #[test]
    fn a_message_is_open_until_it_is_closed_or_expired() {
        let thread = |closed| MessageThread {
            key: hash("n1", "k", &Remember::default()),
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
