//! Who subscribes to what. Pure.
//!
//! In: the key `subscriptions`, and the annotations of Applications and `AppProjects`. Out: [`Route`]s, each with the conditions under which
//! it applies, and what the pipelines have to record for these.
//!
//! An annotation becomes a condition on the recorded annotation, and the recipient is read from it. So a new Application with the same annotation
//! needs no new conversion.

use std::collections::{BTreeMap, BTreeSet};

use super::gotemplate::{Needs, Recipient};
use super::services::By;
use super::trigger::{list, literal};

/// The beginning of annotations with a subscription.
pub(super) const PREFIX: &str = "notifications.argoproj.io/subscribe.";

/// Who gets the messages of a trigger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route {
    pub(super) recipient: Recipient,
    /// All of these conditions must be true.
    pub(super) when: Vec<String>,
}

/// An annotation name, divided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The trigger. `None`: the default triggers.
    pub(super) trigger: Option<String>,
    pub(super) service: String,
}

/// Divides the name of an annotation. `None`: it is no subscription.
pub(super) fn key(annotation: &str) -> Option<Key> {
    let mut parts = annotation.strip_prefix(PREFIX)?.split('.');
    let (first, second) = (parts.next()?, parts.next());
    let (trigger, service) = second.map_or((None, first), |service| (Some(first.to_owned()), service));
    (!service.is_empty()).then(|| Key { trigger, service: service.to_owned() })
}

/// Divides the value of an annotation.
pub(super) fn recipients(value: &str) -> Vec<String> {
    let all: Vec<String> = value.split(';').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect();
    if value.is_empty() { vec![String::new()] } else { all }
}

/// Returns the routes for an annotation. `values`: those of all Applications.
pub(super) fn routes(annotation: &str, values: &BTreeSet<&str>, by: By) -> Vec<Route> {
    let (map, key) = ("target.app.annotations", literal(annotation));
    let exists = format!("{key} in {map}");
    let one_of = |values: &[&str]| match values {
        [one] => format!("{map}[{key}] == {}", literal(one)),
        all => format!("{map}[{key}] in {}", list(all)),
    };
    let constant = |recipient: String, values: &[&str]| Route {
        recipient: Recipient::Constant(recipient),
        when: vec![exists.clone(), one_of(values)],
    };
    let mut by_recipient: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for value in values {
        for recipient in recipients(value) {
            by_recipient.entry(recipient).or_default().push(value);
        }
    }
    match by {
        // A service that uses the recipient only in texts gets one request for each annotation.
        By::Nothing => vec![Route { recipient: Recipient::Annotation(annotation.to_owned()), when: vec![exists] }],
        By::Name(_) => by_recipient.into_iter().map(|(recipient, values)| constant(recipient, &values)).collect(),
        By::Parameter(_) => {
            // One request has one recipient, so a value with several ones needs a Notification for each.
            let any = Route {
                recipient: Recipient::Annotation(annotation.to_owned()),
                when: vec![exists.clone(), format!("!{map}[{key}].contains(\";\")")],
            };
            let is_several = |value: &&str| value.contains(';');
            let several = by_recipient.into_iter().filter_map(|(recipient, values)| {
                let values: Vec<&str> = values.into_iter().filter(is_several).collect();
                (!values.is_empty()).then(|| constant(recipient, &values))
            });
            std::iter::once(any).chain(several).collect()
        }
    }
}

/// Returns the condition for the Applications of an `AppProject`.
pub(super) fn of_project(name: &str, needs: &mut Needs) -> String {
    needs.fields.insert(".spec.project".to_owned());
    format!("(\".spec.project\" in target.app.fields && target.app.fields[\".spec.project\"] == {})", literal(name))
}

/// Returns the conditions for a selector of labels. `None`: it is not understood.
pub(super) fn selector(text: &str, needs: &mut Needs) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        // Commas in brackets divide values.
        let mut depth = 0_i32;
        let end = rest.find(|c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth == 0
        });
        let (one, after) = end.map_or((rest, ""), |end| (&rest[..end], &rest[end + 1..]));
        all.push(requirement(one.trim(), needs)?);
        rest = after.trim();
    }
    Some(all)
}

fn requirement(text: &str, needs: &mut Needs) -> Option<String> {
    let (name, values, negated): (&str, Option<Vec<&str>>, bool) = if let Some((name, values)) = text.split_once('(') {
        let (name, negated) = match name.trim().rsplit_once(char::is_whitespace)? {
            (name, "in") => (name, false),
            (name, "notin") => (name, true),
            _ => return None,
        };
        (name, Some(values.strip_suffix(')')?.split(',').map(str::trim).collect()), negated)
    } else if let Some((name, value)) = text.split_once("!=") {
        (name, Some(vec![value.trim()]), true)
    } else if let Some((name, value)) = text.split_once('=') {
        (name, Some(vec![value.trim_start_matches('=').trim()]), false)
    } else if let Some(name) = text.strip_prefix('!') {
        (name, None, true)
    } else {
        (text, None, false)
    };
    let name = name.trim();
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if name.is_empty() || !name.chars().all(is_part) {
        return None;
    }
    needs.labels.insert(name.to_owned());
    let key = literal(name);
    let exists = format!("{key} in target.app.labels");
    let condition = match values.as_deref() {
        None => exists,
        Some([one]) => format!("({exists} && target.app.labels[{key}] == {})", literal(one)),
        Some(all) => format!("({exists} && target.app.labels[{key}] in {})", list(all)),
    };
    Some(if negated { format!("!({condition})") } else { condition })
}

#[cfg(test)]
mod tests {
    use relaybook_settings::trigger::When;

    use super::*;

    #[test]
    fn selectors_become_conditions() {
        let (team, tier) = ("\"team\" in target.app.labels", "\"tier\" in target.app.labels");
        for (text, expected) in [
            ("", Some(vec![])),
            ("team=red", Some(vec![format!("({team} && target.app.labels[\"team\"] == \"red\")")])),
            ("team == red", Some(vec![format!("({team} && target.app.labels[\"team\"] == \"red\")")])),
            ("team!=red", Some(vec![format!("!(({team} && target.app.labels[\"team\"] == \"red\"))")])),
            (
                "team in (red, blue),tier",
                Some(vec![format!("({team} && target.app.labels[\"team\"] in [\"red\", \"blue\"])"), tier.to_owned()]),
            ),
            ("tier notin (gold)", Some(vec![format!("!(({tier} && target.app.labels[\"tier\"] == \"gold\"))")])),
            ("!tier", Some(vec![format!("!({tier})")])),
            ("team gt (5)", None),
            ("team in (red", None),
            ("a b", None),
        ] {
            let found = selector(text, &mut Needs::default());
            assert_eq!(found, expected, "{text}");
            for condition in found.into_iter().flatten() {
                assert!(When::compile(&condition).is_ok(), "{condition}");
            }
        }
    }

    #[test]
    fn annotations_become_routes() {
        let name = "notifications.argoproj.io/subscribe.on-deployed.slack";
        assert_eq!(key(name), Some(Key { trigger: Some("on-deployed".to_owned()), service: "slack".to_owned() }));
        assert_eq!(key("notifications.argoproj.io/subscribe.slack").unwrap().trigger, None);
        assert_eq!(key("notified.notifications.argoproj.io"), None);
        let values = BTreeSet::from(["red", "red;blue"]);
        for (by, expected) in [
            (By::Parameter("channel"), &["annotation", "blue", "red"][..]),
            (By::Name("webhooks"), &["blue", "red"]),
            (By::Nothing, &["annotation"]),
        ] {
            let routes = routes(name, &values, by);
            let shown: Vec<&str> = routes
                .iter()
                .map(|route| match &route.recipient {
                    Recipient::Constant(text) => text.as_str(),
                    Recipient::Annotation(_) => "annotation",
                })
                .collect();
            assert_eq!(shown, expected);
            for route in routes {
                assert!(When::compile(&route.when.join(" && ")).is_ok(), "{route:?}");
            }
        }
        assert_eq!(recipients("a; b;"), ["a", "b"]);
        assert_eq!(recipients(""), [""]);
    }
}
