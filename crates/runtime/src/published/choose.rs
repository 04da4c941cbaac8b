//! Selects the published configuration that applies to a namespace. Pure.

use std::collections::BTreeMap;

use relaybook_text::first_line;

use super::{Dispatch, NAME};

/// Maximum number of namespaces in a message.
const NAMED: usize = 5;

/// The configuration of a running dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The namespace in which the dispatcher runs.
    pub namespace: String,
    /// The published configuration.
    pub dispatch: Dispatch,
}

/// Why the configuration for a namespace is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The command runs without a cluster.
    #[error("no cluster is used")]
    NoCluster,
    /// This namespace has no ConfigMap. Other namespaces were not read, or could not be read.
    #[error("ConfigMap {NAME} not found in namespace {0}; set --controller-namespace to the controller's namespace")]
    NoConfigMap(String),
    /// No namespace has a ConfigMap.
    #[error("there is no ConfigMap {NAME} in any namespace")]
    NoInstallation,
    /// The permission to read the ConfigMap is missing.
    #[error("reading ConfigMap {NAME} in namespace {0} is forbidden; the chart value rbac.infoReaders grants access")]
    Forbidden(String),
    /// No installation watches the namespace.
    #[error("no known controller watches namespace {namespace} (known controllers in: {}); select another with --controller-namespace", list(.found))]
    NotWatched {
        /// The namespace of the pipeline.
        namespace: String,
        /// The namespaces of the installations.
        found: Vec<String>,
    },
    /// More than one installation watches the namespace.
    #[error("several controllers watch namespace {namespace} (in: {}); select one with --controller-namespace", list(.found))]
    Several {
        /// The namespace of the pipeline.
        namespace: String,
        /// The namespaces of the installations.
        found: Vec<String>,
    },
    /// The ConfigMap contains no configuration of a dispatcher, or one that this version cannot read.
    #[error("ConfigMap {NAME} in namespace {namespace} cannot be used: {problem}")]
    Unusable {
        /// The namespace of the ConfigMap.
        namespace: String,
        /// Why it cannot be used.
        problem: String,
    },
    /// The list of all namespaces failed.
    #[error(
        "the ConfigMaps {NAME} of all namespaces cannot be listed: {0}; select a controller with --controller-namespace"
    )]
    Unlisted(String),
    /// The read failed.
    #[error("ConfigMap {NAME} in namespace {namespace} cannot be read: {problem}")]
    Unread {
        /// The namespace of the ConfigMap.
        namespace: String,
        /// The error.
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
    pub(super) fn read(namespace: &str, data: Option<&BTreeMap<String, String>>) -> Result<Self, LookupError> {
        let unusable = |problem: String| LookupError::Unusable { namespace: namespace.to_owned(), problem };
        let text = data.and_then(|data| data.get(Dispatch::KEY));
        let text = text.ok_or_else(|| unusable(format!("it has no key {}", Dispatch::KEY)))?;
        let dispatch = serde_saphyr::from_str(text);
        let dispatch = dispatch.map_err(|e| unusable(format!("{}: {}", Dispatch::KEY, first_line(&e.to_string()))))?;
        Ok(Self { namespace: namespace.to_owned(), dispatch })
    }

    /// Whether the dispatcher watches this namespace.
    #[must_use]
    pub fn watches(&self, namespace: &str) -> bool {
        let watched = &self.dispatch.watch_namespaces;
        watched.is_empty() || watched.iter().any(|watched| watched == namespace)
    }
}

/// Returns the only installation that watches a namespace. Errors of installations are returned only if no installation is usable.
pub(super) fn choose(all: Vec<Result<Installation, LookupError>>, namespace: &str) -> Result<Installation, LookupError> {
    let names = |all: &[Installation]| all.iter().map(|one| one.namespace.clone()).collect();
    let (mut usable, mut unusable) = (Vec::new(), None);
    for one in all {
        match one {
            Ok(one) => usable.push(one),
            Err(error) => unusable = unusable.or(Some(error)),
        }
    }
    if usable.is_empty() {
        return Err(unusable.unwrap_or(LookupError::NoInstallation));
    }
    let found = names(&usable);
    let mut fit: Vec<_> = usable.into_iter().filter(|one| one.watches(namespace)).collect();
    let namespace = namespace.to_owned();
    match (fit.pop(), fit.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(last), false) => {
            fit.push(last);
            Err(LookupError::Several { namespace, found: names(&fit) })
        }
        (None, _) => Err(LookupError::NotWatched { namespace, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatch(watch: &[&str]) -> Dispatch {
        Dispatch {
            version: "0.1.0".to_owned(),
            watch_namespaces: watch.iter().map(ToString::to_string).collect(),
            cluster_name: "true".to_owned(),
            config_map: "relaybook-config".to_owned(),
            allow_http: true,
            allow_destinations: vec!["::1/128".to_owned()],
            deny_destinations: Vec::new(),
            page_url: None,
        }
    }

    fn installation(namespace: &str, watch: &[&str]) -> Installation {
        Installation { namespace: namespace.to_owned(), dispatch: dispatch(watch) }
    }

    #[test]
    fn the_installation_that_watches_the_namespace_is_chosen() {
        let (all, a, ab) =
            (installation("all", &[]), installation("one", &["team-a"]), installation("two", &["team-a", "team-b"]));
        for (installations, namespace, expected) in [
            (vec![], "team-a", Err("there is no ConfigMap relaybook-info in any namespace")),
            (vec![&all], "team-a", Ok("all")),
            (vec![&a, &ab], "team-b", Ok("two")),
            (vec![&a, &ab], "team-c", Err("no known controller watches namespace team-c (known controllers in: one, two);")),
            (vec![&a, &ab], "team-a", Err("several controllers watch namespace team-a (in: one, two);")),
            (vec![&a, &all], "team-a", Err("(in: one, all); select one with --controller-namespace")),
        ] {
            let installations = installations.into_iter().cloned().map(Ok).collect();
            match (choose(installations, namespace), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.namespace, expected),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, expected) => panic!("{namespace}: {found:?}, not {expected:?}"),
            }
        }
        let unusable = || Err(LookupError::NoConfigMap("x".to_owned()));
        assert_eq!(choose(vec![unusable(), Ok(a), unusable()], "team-a").unwrap().namespace, "one");
        assert_eq!(choose(vec![unusable()], "team-a"), unusable());
        let many: Vec<_> = (0..7).map(|n| format!("ns-{n}")).collect();
        assert_eq!(list(&many), "ns-0, ns-1, ns-2, ns-3, ns-4 and 2 more");
    }

    #[test]
    fn published_settings_can_be_read() {
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
