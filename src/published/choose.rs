//! Which of the published configurations holds for a namespace. Pure.

use std::collections::BTreeMap;

use super::{Dispatch, NAME};

/// Namespaces that a message names at most.
const NAMED: usize = 5;

/// The configuration of a running dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The namespace that it runs in.
    pub namespace: String,
    /// What it published.
    pub dispatch: Dispatch,
}

/// Why the configuration that holds for a namespace is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// No cluster is asked.
    #[error("no cluster is asked")]
    Offline,
    /// There is no ConfigMap in this namespace, and other namespaces were not asked, or could not be.
    #[error("there is no ConfigMap {NAME} in namespace {0}; name the controller's namespace with --controller-namespace")]
    NotThere(String),
    /// There is none in any namespace.
    #[error("there is no ConfigMap {NAME} in any namespace")]
    Nowhere,
    /// The permission to read it is missing.
    #[error("reading ConfigMap {NAME} in namespace {0} is forbidden; value rbac.infoReaders of the chart permits it")]
    Forbidden(String),
    /// No installation watches the namespace.
    #[error("no controller that was found watches namespace {namespace}: those in {}; name another with --controller-namespace", list(.found))]
    Elsewhere {
        /// The namespace of the pipeline.
        namespace: String,
        /// The namespaces of the installations.
        found: Vec<String>,
    },
    /// More than one watches it.
    #[error("more than one controller watches namespace {namespace}: those in {}; choose one with --controller-namespace", list(.found))]
    Several {
        /// The namespace of the pipeline.
        namespace: String,
        /// The namespaces of the installations.
        found: Vec<String>,
    },
    /// The dispatcher has published nothing, or something that this version cannot read.
    #[error("ConfigMap {NAME} in namespace {namespace} cannot be used: {problem}")]
    Unusable {
        /// The namespace of the ConfigMap.
        namespace: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The API server did not give it.
    #[error("ConfigMap {NAME} in namespace {namespace} cannot be read: {problem}")]
    Unread {
        /// The namespace of the ConfigMap.
        namespace: String,
        /// What the API server said.
        problem: String,
    },
}

fn list(namespaces: &[String]) -> String {
    let more = namespaces.len().saturating_sub(NAMED);
    let named = namespaces.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

impl Installation {
    /// Reads the data of the ConfigMap in this namespace.
    pub(super) fn read(namespace: &str, data: Option<&BTreeMap<String, String>>) -> Result<Self, Unknown> {
        let unusable = |problem: String| Unknown::Unusable { namespace: namespace.to_owned(), problem };
        let text = data.and_then(|data| data.get(Dispatch::KEY));
        let text = text.ok_or_else(|| unusable(format!("it has no key {}", Dispatch::KEY)))?;
        let dispatch = serde_saphyr::from_str(text);
        let dispatch = dispatch.map_err(|e| unusable(format!("{}: {}", Dispatch::KEY, one_line(&e.to_string()))))?;
        Ok(Self { namespace: namespace.to_owned(), dispatch })
    }

    /// Whether it watches this namespace.
    #[must_use]
    pub fn watches(&self, namespace: &str) -> bool {
        let watched = &self.dispatch.watch_namespaces;
        watched.is_empty() || watched.iter().any(|watched| watched == namespace)
    }
}

/// The one of all installations that watches a namespace. One that cannot be used counts only if no other is there.
pub(super) fn choose(all: Vec<Result<Installation, Unknown>>, namespace: &str) -> Result<Installation, Unknown> {
    let names = |all: &[Installation]| all.iter().map(|one| one.namespace.clone()).collect();
    let (mut usable, mut unusable) = (Vec::new(), None);
    for one in all {
        match one {
            Ok(one) => usable.push(one),
            Err(unknown) => unusable = unusable.or(Some(unknown)),
        }
    }
    if usable.is_empty() {
        return Err(unusable.unwrap_or(Unknown::Nowhere));
    }
    let found = names(&usable);
    let mut fit: Vec<_> = usable.into_iter().filter(|one| one.watches(namespace)).collect();
    let namespace = namespace.to_owned();
    match (fit.pop(), fit.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(last), false) => {
            fit.push(last);
            Err(Unknown::Several { namespace, found: names(&fit) })
        }
        (None, _) => Err(Unknown::Elsewhere { namespace, found }),
    }
}

/// A parser's message has lines of its own, with the text that it is about.
fn one_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatch(watch: &[&str]) -> Dispatch {
        Dispatch {
            version: "0.1.0".to_owned(),
            watch_namespaces: watch.iter().map(ToString::to_string).collect(),
            cluster_name: "true".to_owned(),
            config_map: "pennant-config".to_owned(),
            allow_http: true,
            allow_destinations: vec!["::1/128".to_owned()],
            deny_destinations: Vec::new(),
        }
    }

    fn installation(namespace: &str, watch: &[&str]) -> Installation {
        Installation { namespace: namespace.to_owned(), dispatch: dispatch(watch) }
    }

    #[test]
    fn the_one_that_watches_the_namespace_is_chosen() {
        let (all, a, ab) =
            (installation("all", &[]), installation("one", &["team-a"]), installation("two", &["team-a", "team-b"]));
        for (installations, namespace, expected) in [
            (vec![], "team-a", Err("there is no ConfigMap pennant-info in any namespace")),
            (vec![&all], "team-a", Ok("all")),
            (vec![&a, &ab], "team-b", Ok("two")),
            (vec![&a, &ab], "team-c", Err("no controller that was found watches namespace team-c: those in one, two;")),
            (vec![&a, &ab], "team-a", Err("more than one controller watches namespace team-a: those in one, two;")),
            (vec![&a, &all], "team-a", Err("those in one, all; choose one with --controller-namespace")),
        ] {
            let installations = installations.into_iter().cloned().map(Ok).collect();
            match (choose(installations, namespace), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.namespace, expected),
                (Err(unknown), Err(words)) => assert!(unknown.to_string().contains(words), "{unknown}"),
                (found, expected) => panic!("{namespace}: {found:?}, not {expected:?}"),
            }
        }
        let unusable = || Err(Unknown::NotThere("x".to_owned()));
        assert_eq!(choose(vec![unusable(), Ok(a), unusable()], "team-a").unwrap().namespace, "one");
        assert_eq!(choose(vec![unusable()], "team-a"), unusable());
        let many: Vec<_> = (0..7).map(|n| format!("ns-{n}")).collect();
        assert_eq!(list(&many), "ns-0, ns-1, ns-2, ns-3, ns-4 and 2 more");
    }

    #[test]
    fn what_is_published_can_be_read() {
        let text = serde_saphyr::to_string(&dispatch(&["123", "team-a"])).unwrap();
        let read =
            |text: &str| Installation::read("own", Some(&BTreeMap::from([(Dispatch::KEY.to_owned(), text.to_owned())])));
        assert_eq!(read(&text).unwrap(), installation("own", &["123", "team-a"]));
        assert!(read(&format!("{text}later: 1\n")).is_ok(), "a field of a later version");
        for (text, words) in [("allowHttp: true\n", "dispatch.yaml: "), ("[", "dispatch.yaml: "), ("", "dispatch.yaml: ")] {
            let problem = read(text).unwrap_err().to_string();
            assert!(problem.contains(words) && problem.lines().count() == 1, "{problem}");
        }
        assert!(Installation::read("own", None).unwrap_err().to_string().contains("it has no key dispatch.yaml"));
    }
}
