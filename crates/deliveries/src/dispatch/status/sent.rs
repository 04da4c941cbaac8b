//! The last successful deliveries of a pipeline: by subject and by notification. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use relaybook_api::{LogSubject, Time};

/// Maximum length of a summary, in bytes.
const LONGEST: usize = 512;

/// One successful delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent {
    /// When the receiver answered 2xx.
    pub time: Time,
    /// The notification.
    pub notification: String,
}

/// Returns the newest successful delivery.
#[must_use]
pub fn newest(sent: &BTreeMap<String, Sent>) -> Option<&Sent> {
    sent.values().max()
}

/// Returns one line about the targets, newest first: `prod/in-cluster/web chat 2026-11-23T03:00:00Z, …`. Targets that do not fit in 512
/// bytes are only counted.
#[must_use]
pub fn summary(sent: &BTreeMap<String, Sent>) -> String {
    let target = |subject| if let LogSubject::Target(name) = LogSubject::parse(subject) { Some(name) } else { None };
    let mut targets: Vec<_> = sent.iter().filter_map(|(subject, sent)| Some((target(subject)?, sent))).collect();
    targets.sort_by_key(|(name, sent)| (Reverse(sent.time), *name));
    let mut line = String::new();
    for (at, (name, Sent { time, notification })) in targets.iter().enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        let part = format!("{separator}{name} {notification} {time:.0}");
        if line.len() + part.len() > LONGEST - " and 256 more".len() {
            let left = targets.len() - at;
            let rest = match (at, left) {
                (0, 1) => "1 target".to_owned(),
                (0, _) => format!("{left} targets"),
                _ => format!(" and {left} more"),
            };
            line += &rest;
            break;
        }
        line += &part;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64, notification: &str) -> Sent {
        Sent { time: Time::from_second(second).unwrap(), notification: notification.to_owned() }
    }

    #[test]
    fn a_summary_of_sent_deliveries_names_only_targets_and_the_newest_first() {
        let sent = BTreeMap::from([
            ("environment/prod".to_owned(), at(9, "chat")),
            ("target/dev/in-cluster/web".to_owned(), at(1, "chat")),
            ("target/prod/in-cluster/web".to_owned(), at(2, "audit")),
        ]);
        assert_eq!(
            summary(&sent),
            "prod/in-cluster/web audit 1970-01-01T00:00:02Z, dev/in-cluster/web chat 1970-01-01T00:00:01Z"
        );
        assert_eq!(newest(&sent), Some(&at(9, "chat")));
        assert_eq!((summary(&BTreeMap::new()), newest(&BTreeMap::new())), (String::new(), None));
    }

    #[test]
    fn a_summary_is_bounded() {
        let sent: BTreeMap<_, _> = (0..256).map(|n| (format!("target/prod/in-cluster/web-{n}"), at(n, "chat"))).collect();
        let line = summary(&sent);
        assert!(line.len() <= LONGEST && line.starts_with("prod/in-cluster/web-255 "), "{line}");
        let listed = line.matches("web-").count();
        assert!(listed > 5 && line.ends_with(&format!(" and {} more", 256 - listed)), "{line}");
        let long = |count: usize| -> BTreeMap<_, _> {
            (0..count).map(|n| (format!("target/{n}{}", "x".repeat(600)), at(1, "chat"))).collect()
        };
        assert_eq!(summary(&long(1)), "1 target");
        assert_eq!(summary(&long(3)), "3 targets");
    }
}
