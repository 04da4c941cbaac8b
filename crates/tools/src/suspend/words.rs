//! What the commands say. Pure.
//!
//! In: names, what waits, and the time. Out: sentences.

use super::Verb;
use crate::audit::Row;
use relaybook_api::global::KEY;
use relaybook_api::{ObjectName, Time};

/// Maximum number of layers that a message names.
const MOST: usize = 5;

/// The pending deliveries of a notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Their number.
    pub count: usize,
    /// When the oldest one was recorded.
    pub oldest: Option<Time>,
}

/// Whether the global configuration has a cluster-wide notification of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterWide {
    /// It has one.
    Yes,
    /// It has none.
    No,
    /// It cannot be read.
    Unknown,
}

impl Waiting {
    /// Counts rows. All of them must be pending.
    #[must_use]
    pub fn of(rows: &[Row]) -> Self {
        Self { count: rows.len(), oldest: rows.iter().filter_map(|row| row.recorded).min() }
    }

    /// Returns what resuming does with them. `drop`: they are deleted first.
    #[must_use]
    pub fn announcement(&self, drop: bool, now: Time) -> String {
        let messages = if self.count == 1 { "message" } else { "messages" };
        let what = if drop { "will be deleted and never sent" } else { "will be sent" };
        let since = match self.oldest {
            Some(oldest) if self.count == 1 => format!(", from {}", ago(oldest, now)),
            Some(oldest) => format!(", the oldest from {}", ago(oldest, now)),
            None => String::new(),
        };
        format!("{} {messages} {what}{since}", self.count)
    }
}

/// Says that a Notification is suspended now. `waiting`: unknown if the deliveries cannot be listed.
#[must_use]
pub fn suspended(namespace: &str, name: &str, waiting: Option<Waiting>) -> String {
    let wait = waiting.map_or_else(String::new, |waiting| {
        format!("; {} {} now", waiting.count, if waiting.count == 1 { "waits" } else { "wait" })
    });
    format!(
        "{name} is suspended. Changes are recorded and wait{wait}. Resume: relaybook resume notification/{name} -n {namespace}"
    )
}

/// Says that the promotions of a pipeline, or those to one environment, are suspended now.
#[must_use]
pub fn promotions_suspended(namespace: &str, pipeline: &str, environment: Option<&str>) -> String {
    let subject = promotions(pipeline, environment);
    let command = command(Verb::Resume, namespace, pipeline, environment);
    format!("{subject} are suspended. Those that were requested continue. Resume: {command}")
}

/// Returns how the promotions of a pipeline, or those to one environment, are named.
#[must_use]
pub fn promotions(pipeline: &str, environment: Option<&str>) -> String {
    match environment {
        Some(environment) => format!("promotions of {pipeline} to {environment}"),
        None => format!("promotions of {pipeline}"),
    }
}

/// Warns about an environment whose own policy the change does not reach.
#[must_use]
pub fn other(verb: Verb, namespace: &str, pipeline: &str, environment: &str) -> String {
    let state = if verb.value() { "not suspended" } else { "still suspended" };
    let command = command(verb, namespace, pipeline, Some(environment));
    format!("warning: {environment} has a promotion policy of its own, which is {state}: {command}")
}

fn command(verb: Verb, namespace: &str, pipeline: &str, environment: Option<&str>) -> String {
    let verb = if verb.value() { "suspend" } else { "resume" };
    let environment = environment.map_or_else(String::new, |environment| format!(" {environment}"));
    format!("relaybook {verb} promotions/{pipeline}{environment} -n {namespace}")
}

/// Warns about layers that decide otherwise. `None`: there are none.
#[must_use]
pub fn layered(verb: Verb, name: &str, layers: &[String]) -> Option<String> {
    if layers.is_empty() {
        return None;
    }
    let mut named = layers.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = layers.len().saturating_sub(MOST);
    if more > 0 {
        named = format!("{named}, and {more} more");
    }
    Some(match verb {
        Verb::Suspend => {
            format!("warning: {name} is still sent for {named}: suspend is false in that layer; change it there")
        }
        Verb::Resume => {
            format!("{name} is still suspended by {named}; this command does not change layers, so change suspend there")
        }
    })
}

/// Returns the error about a Notification that does not exist. `pipelines`: the Pipelines that define a notification of this name.
#[must_use]
pub fn missing(of: &ObjectName, config_map: &ObjectName, found: ClusterWide, pipelines: &[String]) -> String {
    let name = &of.name;
    let there = format!("set the field suspend of {name} in notifications, in {KEY} of ConfigMap {config_map}");
    let remedy = match (found, pipelines.first()) {
        (ClusterWide::Yes, _) => {
            format!(
                "{name} is only in the global configuration: {there}, or create a Notification {name} with suspend: true over it"
            )
        }
        (_, Some(pipeline)) => {
            format!("only {pipeline} defines {name}: set the field suspend of {name} in its notifications")
        }
        (ClusterWide::No, None) => format!("`kubectl get rbn -n {}` lists those that exist", of.namespace),
        (ClusterWide::Unknown, None) => format!("if it is in the global configuration, {there}"),
    };
    format!("Notification {of} does not exist; {remedy}")
}

/// Returns how long ago a time is, in its largest unit.
fn ago(then: Time, now: Time) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::Delivery;

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn row(recorded: Option<i64>) -> Row {
        let mut delivery = Delivery::new("d", relaybook_api::testing::spec(1));
        delivery.metadata.creation_timestamp =
            recorded.map(|second| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(second)));
        delivery.into()
    }

    #[test]
    fn an_announcement_says_how_many_wait_and_since_when() {
        let three_hours = 3 * 3600 + 59;
        for (rows, drop, expected) in [
            (vec![], false, "0 messages will be sent"),
            (vec![row(None)], false, "1 message will be sent"),
            (vec![row(Some(1000))], false, "1 message will be sent, from 3 h ago"),
            (vec![row(Some(5000)), row(Some(1000)), row(None)], false, "3 messages will be sent, the oldest from 3 h ago"),
            (
                vec![row(Some(1000)), row(Some(1001))],
                true,
                "2 messages will be deleted and never sent, the oldest from 3 h ago",
            ),
        ] {
            assert_eq!(Waiting::of(&rows).announcement(drop, at(1000 + three_hours)), expected);
        }
    }

    #[test]
    fn an_age_is_in_its_largest_unit() {
        for (seconds, expected) in [
            (-5, "0 s ago"),
            (0, "0 s ago"),
            (59, "59 s ago"),
            (60, "1 min ago"),
            (3599, "59 min ago"),
            (3600, "1 h ago"),
            (172_799, "47 h ago"),
            (172_800, "2 d ago"),
        ] {
            assert_eq!(ago(at(1_000_000), at(1_000_000 + seconds)), expected, "{seconds}");
        }
    }

    #[test]
    fn the_state_names_the_command_that_ends_it() {
        let waiting = |count| Some(Waiting { count, oldest: None });
        let resume = "Resume: relaybook resume notification/chat -n team-a";
        for (waiting, words) in [(waiting(0), "; 0 wait now"), (waiting(1), "; 1 waits now"), (None, "")] {
            assert_eq!(
                suspended("team-a", "chat", waiting),
                format!("chat is suspended. Changes are recorded and wait{words}. {resume}")
            );
        }
        assert_eq!(
            promotions_suspended("team-a", "web", None),
            "promotions of web are suspended. Those that were requested continue. Resume: relaybook resume promotions/web -n team-a"
        );
        assert!(
            promotions_suspended("team-a", "web", Some("prod")).ends_with("relaybook resume promotions/web prod -n team-a")
        );
        assert_eq!(
            other(Verb::Suspend, "team-a", "web", "prod"),
            "warning: prod has a promotion policy of its own, which is not suspended: relaybook suspend promotions/web prod -n team-a"
        );
        assert!(
            other(Verb::Resume, "team-a", "web", "prod").contains("still suspended: relaybook resume promotions/web prod")
        );
    }

    #[test]
    fn layers_that_decide_otherwise_are_named() {
        assert_eq!(layered(Verb::Resume, "chat", &[]), None);
        let one = ["environment prod of Pipeline web".to_owned()];
        let said = layered(Verb::Resume, "chat", &one).unwrap();
        assert!(said.starts_with("chat is still suspended by environment prod of Pipeline web; "), "{said}");
        let said = layered(Verb::Suspend, "chat", &one).unwrap();
        assert!(said.starts_with("warning: chat is still sent for environment prod of Pipeline web: "), "{said}");
        let many: Vec<_> = (0..7).map(|n| format!("Pipeline {n}")).collect();
        let said = layered(Verb::Resume, "chat", &many).unwrap();
        assert!(said.contains("Pipeline 4, and 2 more;") && !said.contains("Pipeline 5"), "{said}");
    }

    #[test]
    fn a_missing_notification_says_where_to_set_the_field() {
        let (of, config_map) = (ObjectName::new("team-a", "chat"), ObjectName::new("relaybook-system", "relaybook-config"));
        let one = ["Pipeline web".to_owned()];
        let place =
            "set the field suspend of chat in notifications, in config.yaml of ConfigMap relaybook-system/relaybook-config";
        for (found, pipelines, words) in [
            (ClusterWide::Yes, &one[..], format!("chat is only in the global configuration: {place}, or create")),
            (ClusterWide::No, &one, "only Pipeline web defines chat: set the field suspend".to_owned()),
            (ClusterWide::Unknown, &one, "only Pipeline web defines chat".to_owned()),
            (ClusterWide::No, &[], "`kubectl get rbn -n team-a` lists those that exist".to_owned()),
            (ClusterWide::Unknown, &[], format!("if it is in the global configuration, {place}")),
        ] {
            let said = missing(&of, &config_map, found, pipelines);
            assert!(said.starts_with(&format!("Notification team-a/chat does not exist; {words}")), "{said}");
        }
    }
}
