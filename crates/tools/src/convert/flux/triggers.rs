//! The triggers of an Alert. Pure.
//!
//! In: transition types, patterns of messages, and what the Alert names. Out: triggers with conditions in CEL, each of which Relaybook accepts.
//! A condition has a maximum size, so the names can need several triggers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::sources::{ALL, Followed, Scope};
use relaybook_api::TransitionType;
use relaybook_settings::trigger::When;

/// Maximum number of triggers of a Notification.
const TRIGGERS: usize = 32;

/// The conditions do not fit into the triggers of one Notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// The patterns of an Alert, as conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Patterns {
    /// A message must match one of them, if there are any.
    pub(super) included: Vec<String>,
    /// A message must match none of them.
    pub(super) excluded: Vec<String>,
}

impl Patterns {
    fn parts(&self) -> Vec<String> {
        let included = match self.included.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            all => Some(format!("({})", all.join(" || "))),
        };
        included.into_iter().chain(self.excluded.iter().map(|pattern| format!("!{pattern}"))).collect()
    }

    /// Leaves out patterns until the conditions fit beside each clause, the last exclusion first. A message too many does less harm than one
    /// too few. Returns how many exclusions stay, and whether the inclusions do.
    pub(super) fn limit(&mut self, clauses: &[Clause]) -> (usize, bool) {
        let longest = clauses.iter().max_by_key(|clause| clause.length());
        let longest: Vec<&Clause> = longest.into_iter().collect();
        while !fits(&self.parts(), &longest) {
            if self.excluded.pop().is_none() {
                self.included.clear();
                break;
            }
        }
        (self.excluded.len(), !self.included.is_empty())
    }
}

/// Returns the condition for a pattern of Go. `None`: Relaybook does not accept the pattern.
pub(super) fn pattern(of: &str) -> Option<String> {
    let condition = format!("message.matches({})", literal(of));
    When::compile(&condition).is_ok().then_some(condition)
}

/// Returns a text of CEL. JSON has the same escapes.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// What one event source names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clause {
    /// The conditions, apart from that for the name.
    parts: Vec<String>,
    name: Option<String>,
}

impl Clause {
    fn length(&self) -> usize {
        self.parts.iter().map(String::len).sum::<usize>() + self.name.as_ref().map_or(0, String::len)
    }
}

/// Returns what an Alert names, by kind. An empty list: it wants all pipelines that its Notification selects.
pub(super) fn clauses(kinds: &[(&Followed, Vec<&Scope>)]) -> Vec<Clause> {
    if kinds.iter().all(|(followed, scopes)| followed.is_covered(scopes)) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for (followed, scopes) in kinds {
        let Some(first) = scopes.first() else { continue };
        // With one kind, the selector decides it.
        let kind = (kinds.len() > 1).then(|| format!("target.app.kind == {}", literal(first.kind.name)));
        if followed.is_covered(scopes) {
            all.push(Clause { parts: kind.into_iter().collect(), name: None });
            continue;
        }
        for scope in scopes {
            let is_known = scope.namespace == ALL || followed.only_namespace() == Some(&scope.namespace);
            let namespace = (!is_known).then(|| format!("target.namespace == {}", literal(&scope.namespace)));
            let labels = scope.labels.iter().map(|(key, value)| {
                let key = literal(key);
                format!("{key} in pipeline.labels && pipeline.labels[{key}] == {}", literal(value))
            });
            let parts = kind.clone().into_iter().chain(namespace).chain(labels).collect();
            all.push(Clause { parts, name: scope.name.clone() });
        }
    }
    all
}

/// Returns the triggers for these types. `ends`: those that are sent whatever their message is.
pub(super) fn triggers(
    (types, ends): (&[TransitionType], &[TransitionType]),
    patterns: &Patterns,
    clauses: &[Clause],
) -> Result<Vec<Value>, TooMany> {
    let parts = patterns.parts();
    let mut chunks: Vec<Vec<&Clause>> = Vec::new();
    for clause in clauses {
        if let Some(last) = chunks.last_mut() {
            last.push(clause);
            if fits(&parts, last) {
                continue;
            }
            last.pop();
        }
        chunks.push(vec![clause]);
        if chunks.len() * types.len() > TRIGGERS || !fits(&parts, &[clause]) {
            return Err(TooMany);
        }
    }
    if chunks.is_empty() {
        chunks.push(Vec::new());
    }
    let mut triggers = Vec::new();
    for chunk in &chunks {
        for type_ in types {
            let parts: &[String] = if ends.contains(type_) { &[] } else { &parts };
            triggers.push(match expression(parts, chunk).as_str() {
                "" => json!({"type": type_.as_str()}),
                when => json!({"type": type_.as_str(), "when": when}),
            });
        }
    }
    Ok(triggers)
}

fn fits(parts: &[String], clauses: &[&Clause]) -> bool {
    let expression = expression(parts, clauses);
    expression.is_empty() || When::compile(&expression).is_ok()
}

/// Returns the condition: all parts, and one of the clauses. Names with the same other conditions are one list.
fn expression(parts: &[String], clauses: &[&Clause]) -> String {
    let mut groups: BTreeMap<(&[String], bool), Vec<&str>> = BTreeMap::new();
    for clause in clauses {
        groups.entry((clause.parts.as_slice(), clause.name.is_some())).or_default().extend(clause.name.as_deref());
    }
    let group = |((parts, _), names): ((&[String], bool), Vec<&str>)| {
        let name = match names.as_slice() {
            [] => None,
            [one] => Some(format!("target.app.name == {}", literal(one))),
            all => Some(format!("target.app.name in {}", json!(all))),
        };
        parts.iter().cloned().chain(name).collect::<Vec<_>>().join(" && ")
    };
    let groups: Vec<String> = groups.into_iter().map(group).collect();
    let named = match groups.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        all => {
            let all = all.iter().map(|one| if one.contains(" && ") { format!("({one})") } else { one.clone() });
            let any = all.collect::<Vec<_>>().join(" || ");
            Some(if parts.is_empty() { any } else { format!("({any})") })
        }
    };
    parts.iter().cloned().chain(named).collect::<Vec<_>>().join(" && ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use TransitionType::{Failed, Recovered};

    use super::super::kinds::Kind;
    use super::*;

    fn scope(kind: &str, namespace: &str, name: &str, labels: &[(&str, &str)]) -> Scope {
        let name = Some(name.to_owned()).filter(|name| name != "*");
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Scope { kind: Kind::named(kind).unwrap(), namespace: namespace.to_owned(), name, labels }
    }

    /// Returns the clauses of an Alert with the scopes `of`, if other Alerts of the namespace name `others`.
    fn named(of: &[Scope], others: &[Scope]) -> Vec<Clause> {
        let kinds: BTreeSet<&Kind> = of.iter().map(|scope| scope.kind).collect();
        let followed: Vec<(&Kind, Followed)> = kinds
            .into_iter()
            .map(|kind| {
                let all = of.iter().chain(others).filter(|scope| scope.kind == kind).cloned().collect();
                (kind, Followed::new(Kind::named(kind.name).unwrap(), &all))
            })
            .collect();
        let kinds: Vec<_> =
            followed.iter().map(|(kind, one)| (one, of.iter().filter(|scope| scope.kind == *kind).collect())).collect();
        clauses(&kinds)
    }

    #[test]
    fn conditions_name_what_the_selector_does_not() {
        let all = |kind| scope(kind, "a", "*", &[]);
        let (kustomization, release) = ("Kustomization", "HelmRelease");
        for (of, others, expected) in [
            (vec![all(kustomization)], vec![], ""),
            (vec![all(kustomization), scope(release, "a", "x", &[])], vec![], ""),
            (vec![scope(kustomization, "a", "x", &[])], vec![all(kustomization)], "target.app.name == \"x\""),
            (
                vec![scope(kustomization, "a", "x", &[]), scope(kustomization, "a", "y", &[])],
                vec![all(kustomization)],
                "target.app.name in [\"x\",\"y\"]",
            ),
            (
                vec![scope(kustomization, "a", "x", &[])],
                vec![scope(kustomization, "b", "*", &[])],
                "target.namespace == \"a\" && target.app.name == \"x\"",
            ),
            (
                vec![all(kustomization), scope(release, "a", "x", &[])],
                vec![all(release)],
                "(target.app.kind == \"HelmRelease\" && target.app.name == \"x\") || target.app.kind == \"Kustomization\"",
            ),
            (
                vec![scope(kustomization, "a", "*", &[("example.com/team", "red")])],
                vec![all(kustomization)],
                "\"example.com/team\" in pipeline.labels && pipeline.labels[\"example.com/team\"] == \"red\"",
            ),
        ] {
            let clauses = named(&of, &others);
            let found = expression(&[], &clauses.iter().collect::<Vec<_>>());
            assert_eq!(found, expected, "{of:?} {others:?}");
            assert!(fits(&[], &clauses.iter().collect::<Vec<_>>()), "{found}");
        }
    }

    #[test]
    fn patterns_are_conditions_if_they_are_accepted() {
        assert_eq!(pattern(r"^a\.b$").as_deref(), Some(r#"message.matches("^a\\.b$")"#));
        for refused in ["a{2}", "(", &"x".repeat(200)] {
            assert_eq!(pattern(refused), None, "{refused}");
        }
        let [a, b] = ["a", "b"].map(|text| pattern(text).unwrap());
        let patterns = Patterns { included: vec![a.clone(), b.clone()], excluded: vec![b.clone()] };
        let expected = format!("({a} || {b}) && !{b}");
        assert_eq!(
            triggers((&[Failed, Recovered], &[]), &patterns, &[]),
            Ok(vec![json!({"type": "Failed", "when": expected}), json!({"type": "Recovered", "when": expected})])
        );
        // An incident that was opened must be closed, whatever the message says.
        assert_eq!(
            triggers((&[Failed, Recovered], &[Recovered]), &patterns, &[]),
            Ok(vec![json!({"type": "Failed", "when": expected}), json!({"type": "Recovered"})])
        );
        assert_eq!(triggers((&[Failed], &[]), &Patterns::default(), &[]), Ok(vec![json!({"type": "Failed"})]));
    }

    #[test]
    fn many_names_need_several_triggers_and_too_many_are_refused() {
        let name = |n: usize| scope("Kustomization", "a", &format!("application-{n:03}"), &[]);
        let some =
            |number: usize| named(&(0..number).map(name).collect::<Vec<_>>(), &[scope("Kustomization", "a", "*", &[])]);
        let made = triggers((&[Failed], &[]), &Patterns::default(), &some(120)).unwrap();
        assert!(made.len() > 1 && made.len() < 10, "{}", made.len());
        for trigger in &made {
            assert!(When::compile(trigger["when"].as_str().unwrap()).is_ok(), "{trigger}");
        }
        let told: usize = made.iter().map(|trigger| trigger["when"].as_str().unwrap().matches("application-").count()).sum();
        assert_eq!(told, 120);
        assert_eq!(triggers((&[Failed, Recovered], &[]), &Patterns::default(), &some(5_000)), Err(TooMany));
    }

    #[test]
    fn patterns_that_do_not_fit_are_left_out() {
        let long = |n: usize| pattern(&format!("{n}{}", "x".repeat(100))).unwrap();
        let mut patterns = Patterns { included: vec![long(0)], excluded: (1..20).map(long).collect() };
        let (excluded, included) = patterns.limit(&[]);
        assert!(included && excluded > 3 && excluded < 10, "{excluded}");
        assert!(triggers((&[Failed], &[]), &patterns, &[]).is_ok());
        let mut patterns = Patterns { included: (0..20).map(long).collect(), excluded: vec![long(30)] };
        assert_eq!(patterns.limit(&[]), (0, false));
    }
}
