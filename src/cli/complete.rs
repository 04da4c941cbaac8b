//! Names that a shell completes: those of objects, environments and namespaces.
//!
//! In: the words of the command line so far. Out: candidates, read with the permissions of the person. If the API server refuses or does not
//! answer in time, there are none, and nothing is printed.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::time::Duration;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::app::Access;
use relaybook_api::{Notification, Pipeline};

/// Time after which a shell gets no candidates.
const WITHIN: Duration = Duration::from_millis(500);
/// Maximum number of candidates.
const MOST: u32 = 500;

/// Completes the name of a Pipeline.
pub(crate) fn pipelines() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| asked(begun, async |client, at| names::<Pipeline>(&client, &at.namespace).await))
}

/// Completes the name of a Notification.
pub(crate) fn notifications() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| {
        asked(begun, async |client, at| names::<Notification>(&client, &at.namespace).await)
    })
}

/// Completes the name of a namespace.
pub(crate) fn namespaces() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| {
        asked(begun, async |client, _| {
            let all = Api::<Namespace>::all(client).list_metadata(&ListParams::default().limit(MOST)).await?;
            Ok(all.iter().map(ResourceExt::name_any).collect())
        })
    })
}

/// Completes the name of an environment: those of the Pipelines that the line names, or of all.
pub(crate) fn environments() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| {
        asked(begun, async |client, at| {
            let all = Api::<Pipeline>::namespaced(client, &at.namespace).list(&ListParams::default().limit(MOST)).await?;
            let is_named = |pipeline: &&Pipeline| at.words.contains(&pipeline.name_any());
            let named: Vec<_> = all.iter().filter(is_named).collect();
            let those = if named.is_empty() { all.iter().collect() } else { named };
            Ok(those.iter().flat_map(|pipeline| &pipeline.spec.environments).map(|one| one.name.clone()).collect())
        })
    })
}

async fn names<K>(client: &Client, namespace: &str) -> kube::Result<Vec<String>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let all = api.list_metadata(&ListParams::default().limit(MOST)).await?;
    Ok(all.iter().map(ResourceExt::name_any).collect())
}

/// The line so far.
struct Line {
    words: Vec<String>,
    namespace: String,
}

/// Asks the cluster that the line names. Every failure gives no candidates.
fn asked(begun: &OsStr, ask: impl AsyncFnOnce(Client, Line) -> kube::Result<Vec<String>>) -> Vec<CompletionCandidate> {
    let words: Vec<String> = std::env::args().collect();
    let work = async {
        let access = Access {
            kubeconfig: value(&words, &["--kubeconfig"]).map(Into::into),
            context: value(&words, &["--context"]).or_else(|| std::env::var("RELAYBOOK_CONTEXT").ok()),
            user: value(&words, &["--as"]),
            proxy_of_environment: true,
            ..Access::default()
        };
        let client = access.client().await.ok()?;
        let namespace = value(&words, &["-n", "--namespace"]).unwrap_or_else(|| client.default_namespace().to_owned());
        ask(client, Line { words: words.clone(), namespace }).await.ok()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let found = runtime.ok().and_then(|runtime| runtime.block_on(async { timeout(WITHIN, work).await.ok().flatten() }));
    let mut found = found.unwrap_or_default();
    found.retain(|name| begun.to_str().is_some_and(|begun| name.starts_with(begun)));
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(CompletionCandidate::new).collect()
}

/// Returns the value of an option in the words of a line: `-n NAME` or `--namespace=NAME`.
fn value(words: &[String], names: &[&str]) -> Option<String> {
    words.iter().enumerate().find_map(|(index, word)| match word.split_once('=') {
        Some((name, value)) if names.contains(&name) => Some(value.to_owned()),
        None if names.contains(&word.as_str()) => words.get(index + 1).cloned(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_cluster_and_the_namespace() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            (value(&words, &["-n", "--namespace"]), value(&words, &["--context"]))
        };
        let some = |text: &str| Some(text.to_owned());
        for (line, expected) in [
            ("relaybook explain -n team-a sh", (some("team-a"), None)),
            ("relaybook --context=eu explain --namespace=team-b", (some("team-b"), some("eu"))),
            ("relaybook explain --context", (None, None)),
            ("relaybook render hook --param n=x", (None, None)),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }
}
